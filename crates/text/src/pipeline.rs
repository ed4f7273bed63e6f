//! `Pipeline`: text to token ids, out of the parts of the `tokenizers` crate.
//!
//! added tokens are cut out → the rest is normalised → split into words → each word is merged (BPE)

use ahash::AHashMap;
use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, Token,
};

use crate::TextError;
use crate::error::shown;
use crate::pre_tokenizer::Step;
use crate::spelling::{self, Spelling};

/// What a [`Pipeline`] is built from.
pub(crate) struct Parts {
    pub bpe: BpeParts,
    pub added: Vec<AddedToken>,
    pub normalizer: Option<NormalizerWrapper>,
    pub steps: Vec<Step>,
    pub spelling: Spelling,
}

/// A BPE model as files describe it.
#[derive(Default)]
pub(crate) struct BpeParts {
    pub vocabulary: AHashMap<String, u32>,
    pub merges: Vec<(String, String)>,
    pub unknown: Option<String>,
    pub fuse_unknown: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

pub(crate) struct Pipeline {
    bpe: BPE,
    normalizer: Option<NormalizerWrapper>,
    steps: Vec<Step>,
    spelling: Spelling,
    /// Finds all added tokens in a text.
    added: AddedVocabulary,
    /// Finds those that are not special.
    added_as_text: AddedVocabulary,
}

impl Pipeline {
    pub fn new(parts: Parts) -> Result<Self, TextError> {
        let bpe = build_bpe(parts.bpe)?;
        let mut added = AddedVocabulary::new();
        added
            .add_tokens(parts.added, &bpe, parts.normalizer.as_ref())
            .map_err(build_error)?;
        let mut added_as_text = added.clone();
        added_as_text.set_encode_special_tokens(true);
        Ok(Pipeline {
            bpe,
            normalizer: parts.normalizer,
            steps: parts.steps,
            spelling: parts.spelling,
            added,
            added_as_text,
        })
    }

    /// The ids of `text`. Characters that have no token are left out where `drop_missing` says so, else refused.
    pub fn encode(
        &self,
        text: &str,
        parse_special: bool,
        drop_missing: bool,
    ) -> Result<Vec<u32>, TextError> {
        let added = match parse_special {
            true => &self.added,
            false => &self.added_as_text,
        };
        let mut pieces = added.extract_and_normalize(self.normalizer.as_ref(), text);
        for step in &self.steps {
            step.apply(&mut pieces).map_err(encode_error)?;
        }
        let mut missing = None;
        self.merge(&mut pieces, |word| {
            missing.get_or_insert_with(|| word.to_owned());
        })?;
        if let Some(word) = missing.filter(|_| !drop_missing) {
            let found = self.missing_in(&word);
            return Err(TextError::Unencodable { found });
        }
        let ids = pieces
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .flat_map(|(_, _, tokens)| tokens.iter().flatten().map(|token| token.id))
            .collect();
        Ok(ids)
    }

    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.added.token_to_id(token, &self.bpe)
    }

    /// Merges the words, and calls `on_missing` for each in which characters had no token.
    fn merge(
        &self,
        pieces: &mut PreTokenizedString,
        on_missing: impl FnMut(&str),
    ) -> Result<(), TextError> {
        // `tokenize` takes a `Fn`.
        let on_missing = std::cell::RefCell::new(on_missing);
        pieces
            .tokenize(|word| {
                let tokens = self.bpe.tokenize(word.get())?;
                if covered(&tokens) != word.get().len() {
                    (on_missing.borrow_mut())(word.get());
                }
                Ok(tokens)
            })
            .map_err(encode_error)
    }

    /// What to say about a word in which characters have no token.
    fn missing_in(&self, word: &str) -> String {
        let lost = |c: &char| {
            let alone = self.bpe.tokenize(c.encode_utf8(&mut [0; 4]));
            alone.is_ok_and(|tokens| covered(&tokens) != c.len_utf8())
        };
        match word.chars().find(lost) {
            None => shown(word),
            Some(c) => match self.spelling {
                Spelling::ByteLevel => match spelling::byte_of(c) {
                    Some(byte) => format!("the byte {byte:#04x}"),
                    None => format!("the character {c:?}"),
                },
                Spelling::SentencePiece => format!("the character {c:?}"),
            },
        }
    }
}

/// How many bytes of a word its tokens stand for. The model leaves out what it has no token for.
fn covered(tokens: &[Token]) -> usize {
    tokens.last().map_or(0, |token| token.offsets.1)
}

fn build_bpe(parts: BpeParts) -> Result<BPE, TextError> {
    check_merges(&parts)?;
    let mut builder = BPE::builder()
        .vocab_and_merges(parts.vocabulary, parts.merges)
        .fuse_unk(parts.fuse_unknown)
        .byte_fallback(parts.byte_fallback)
        .ignore_merges(parts.ignore_merges)
        // The cache belongs to the thread and outlives the tokenizer, and each load of a model would leave one.
        .cache_capacity(0);
    if let Some(unknown) = parts.unknown {
        builder = builder.unk_token(unknown);
    }
    builder.build().map_err(build_error)
}

/// The builder panics when a merge makes a token that is longer than all in the vocabulary, so this comes before.
fn check_merges(parts: &BpeParts) -> Result<(), TextError> {
    let mut joined = String::new();
    for (index, (left, right)) in parts.merges.iter().enumerate() {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for (expected, token) in [
            ("its left part in the vocabulary", left),
            ("its right part in the vocabulary", right),
            ("what it makes in the vocabulary", &joined),
        ] {
            if !parts.vocabulary.contains_key(token) {
                let found = format!("{} {}", shown(left), shown(right));
                return Err(TextError::Merge {
                    index,
                    expected,
                    found,
                });
            }
        }
    }
    Ok(())
}

fn build_error(error: tokenizers::Error) -> TextError {
    TextError::Build {
        message: error.to_string(),
    }
}

fn encode_error(error: tokenizers::Error) -> TextError {
    TextError::Encode {
        message: error.to_string(),
    }
}
