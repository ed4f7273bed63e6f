//! Tokenizers out of a Hugging Face folder: `tokenizer.json` and what `tokenizer_config.json` adds.
//!
//! Only BPE is supported, which is what decoder language models use; other models and components are refused by name.
//! The fields `truncation` and `padding` are ignored: lengths are the caller's business.

mod components;
mod config;
mod file;

use ahash::AHashMap;

pub use config::TokenizerConfig;

use crate::error::shown;
use crate::pipeline::{BpeParts, Parts};
use crate::spelling::byte_piece;
use crate::table::{TokenKind, TokenTable, TokenTableBuilder};
use crate::tokenizer::{Frame, Roles};
use crate::{TextError, Tokenizer};
use file::{AddedTokenFile, ModelFile, TokenizerFile};

impl Tokenizer {
    /// The tokenizer in `tokenizer.json`. Which tokens have a role, such as ending a sequence, is said by
    /// `tokenizer_config.json` only: without it, answers end at tokens that are known by name.
    ///
    /// # Errors
    ///
    /// Malformed JSON, contradictions, or a model or component that is not supported, by name.
    pub fn from_json(
        tokenizer_json: &[u8],
        config: Option<&TokenizerConfig>,
    ) -> Result<Self, TextError> {
        let file = TokenizerFile::parse(tokenizer_json)?;
        let decoder = components::decoder(&file.decoder)?;
        let mut frame = components::frame(&file.post_processor)?;
        let normalizer = components::normalizer(&file.normalizer)?;
        let steps = components::steps(&file.pre_tokenizer)?;

        let ids = Vocabulary::new(&file, tokenizer_json.len())?;
        let table = ids.table(&decoder)?;
        let added = file
            .added_tokens
            .iter()
            .map(AddedTokenFile::token)
            .collect();
        let parts = Parts {
            bpe: bpe(file.model, &file.added_tokens),
            added,
            normalizer,
            steps,
            spelling: decoder.spelling,
        };
        let find = |token: &str| parts.bpe.vocabulary.get(token).copied();
        let roles = match config {
            Some(config) => config.roles(find)?,
            None => Roles::default(),
        };
        if let Some(config) = config {
            config.amend(&mut frame, &roles)?;
        }
        check_frame(&frame, table.len())?;
        Tokenizer::new(parts, table, roles, frame, decoder.strips_space)
    }
}

/// The tokens of a file by id, with the smallest number of ids that has them all.
struct Vocabulary<'a> {
    /// `[vocabulary]`
    tokens: Vec<Option<(&'a str, TokenKind)>>,
}

impl<'a> Vocabulary<'a> {
    /// `file_bytes` bounds the ids: a token takes more than one byte of the file, so that ids beyond it have gaps
    /// that no real vocabulary has.
    fn new(file: &'a TokenizerFile, file_bytes: usize) -> Result<Self, TextError> {
        let mut tokens = Vec::new();
        let model = file
            .model
            .vocab
            .iter()
            .map(|(token, &id)| (token, id, TokenKind::Normal));
        let added = file.added_tokens.iter().map(|token| {
            let kind = match token.special {
                true => TokenKind::Control,
                false => TokenKind::UserDefined,
            };
            (&token.content, token.id, kind)
        });
        for (token, id, kind) in model.chain(added) {
            let index = id as usize;
            if index >= file_bytes {
                return Err(TextError::TokenId {
                    field: "vocab",
                    vocabulary: file_bytes,
                    found: id.into(),
                });
            }
            if index >= tokens.len() {
                tokens.resize(index + 1, None);
            }
            match tokens[index] {
                Some((other, _)) if other != token.as_str() => {
                    return Err(TextError::DuplicateId {
                        field: "vocab",
                        id,
                        first: shown(other),
                        second: shown(token),
                    });
                }
                _ => tokens[index] = Some((token.as_str(), kind)),
            }
            if let Some(&first) = file.model.vocab.get(token).filter(|&&first| first != id) {
                return Err(TextError::DuplicateToken {
                    field: "added_tokens",
                    token: shown(token),
                    first,
                    second: id,
                });
            }
        }
        Ok(Vocabulary { tokens })
    }

    fn table(&self, decoder: &components::Decoder) -> Result<TokenTable, TextError> {
        let mut table = TokenTableBuilder::with_capacity(self.tokens.len());
        for token in &self.tokens {
            match *token {
                None => table.push(TokenKind::Absent, [])?,
                Some((token, TokenKind::Normal)) => {
                    let is_byte = decoder.byte_pieces && byte_piece(token).is_some();
                    table.push(TokenKind::Normal, decoder.spelling.bytes(token, is_byte))?;
                }
                Some((token, kind)) => table.push(kind, token.bytes())?,
            }
        }
        Ok(table.finish())
    }
}

/// The model, with the added tokens in its vocabulary: a library that finds them there keeps their ids.
fn bpe(model: ModelFile, added: &[AddedTokenFile]) -> BpeParts {
    let mut vocabulary: AHashMap<String, u32> = model.vocab;
    vocabulary.extend(added.iter().map(|token| (token.content.clone(), token.id)));
    BpeParts {
        vocabulary,
        merges: model.merges.into_iter().map(|merge| merge.0).collect(),
        unknown: model.unk_token,
        fuse_unknown: model.fuse_unk,
        byte_fallback: model.byte_fallback,
        ignore_merges: model.ignore_merges,
    }
}

fn check_frame(frame: &Frame, vocabulary: usize) -> Result<(), TextError> {
    let ids = frame.prefix.iter().chain(&frame.suffix);
    match ids.copied().find(|&id| id as usize >= vocabulary) {
        None => Ok(()),
        Some(id) => Err(TextError::TokenId {
            field: "post_processor",
            vocabulary,
            found: id.into(),
        }),
    }
}
