//! Tokenizers out of GGUF metadata, by llama.cpp's rules.
//!
//! `tokenizer.ggml.model` says which kind it is: `gpt2` is byte-level BPE with merges and a pre-tokenizer that
//! `tokenizer.ggml.pre` names, `llama` is SentencePiece's BPE, whose merges follow from scores.

use ahash::AHashMap;
use ingle_formats::gguf::Metadata;
use ingle_formats::{FormatError, Optional};
use tokenizers::AddedToken;

use crate::end_of_generation;
use crate::error::shown;
use crate::pipeline::{BpeParts, Parts};
use crate::pre_tokenizer::PreType;
use crate::sentencepiece;
use crate::spelling::{Spelling, byte_piece};
use crate::table::{TokenKind, TokenTable, TokenTableBuilder};
use crate::tokenizer::{Frame, Roles};
use crate::{TextError, Tokenizer};

/// What GGUF metadata says about a tokenizer. Fields are named after the keys `tokenizer.ggml.*`.
#[derive(Clone, Debug, Default)]
pub struct GgufTokenizer<'a> {
    /// `gpt2` or `llama`.
    pub model: &'a str,
    /// The pre-tokenizer, for `gpt2` only.
    pub pre: Option<&'a str>,
    /// `[vocabulary]`
    pub tokens: Vec<&'a str>,
    /// Two tokens with a space between, the most important first.
    pub merges: Vec<&'a str>,
    /// `[vocabulary]`, or empty
    pub scores: Vec<f32>,
    /// `[vocabulary]`, or empty
    pub token_types: Vec<i32>,
    pub roles: Roles,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// The values of `tokenizer.ggml.token_type` that matter here.
mod token_type {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const BYTE: i32 = 6;
}

impl Tokenizer {
    /// The tokenizer that the metadata of a GGUF file describes.
    ///
    /// # Errors
    ///
    /// A missing or malformed value, or a kind of tokenizer that is not supported, by name.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TextError> {
        Tokenizer::from_gguf_parts(&GgufTokenizer::read(metadata)?)
    }

    /// As [`Tokenizer::from_gguf`], from values already read.
    pub fn from_gguf_parts(file: &GgufTokenizer<'_>) -> Result<Self, TextError> {
        file.check()?;
        match file.model {
            "gpt2" => file.byte_level(),
            "llama" => file.sentencepiece(),
            other => Err(TextError::Unsupported {
                field: "tokenizer.ggml.model",
                expected: "gpt2, llama",
                found: shown(other),
            }),
        }
    }
}

impl<'a> GgufTokenizer<'a> {
    /// Reads the keys `tokenizer.ggml.*`.
    pub fn read(metadata: &'a Metadata) -> Result<Self, FormatError> {
        let id = |key| metadata.u32(key).optional();
        Ok(GgufTokenizer {
            model: metadata.str("tokenizer.ggml.model")?,
            pre: metadata.str("tokenizer.ggml.pre").optional()?,
            tokens: metadata.strings("tokenizer.ggml.tokens")?.collect(),
            merges: array(metadata.strings("tokenizer.ggml.merges"))?,
            scores: array(metadata.f32s("tokenizer.ggml.scores"))?,
            token_types: array(metadata.i32s("tokenizer.ggml.token_type"))?,
            roles: Roles {
                bos: id("tokenizer.ggml.bos_token_id")?,
                eos: id("tokenizer.ggml.eos_token_id")?,
                eot: id("tokenizer.ggml.eot_token_id")?,
                eom: id("tokenizer.ggml.eom_token_id")?,
                unknown: id("tokenizer.ggml.unknown_token_id")?,
                padding: id("tokenizer.ggml.padding_token_id")?,
            },
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token").optional()?,
            add_eos: metadata.bool("tokenizer.ggml.add_eos_token").optional()?,
            add_space_prefix: metadata
                .bool("tokenizer.ggml.add_space_prefix")
                .optional()?,
        })
    }

    fn check(&self) -> Result<(), TextError> {
        let tokens = self.tokens.len();
        for (field, found) in [
            ("tokenizer.ggml.scores", self.scores.len()),
            ("tokenizer.ggml.token_type", self.token_types.len()),
        ] {
            if found != 0 && found != tokens {
                return Err(TextError::Length {
                    field,
                    expected: tokens,
                    found,
                });
            }
        }
        let roles = &self.roles;
        for (field, id) in [
            ("tokenizer.ggml.bos_token_id", roles.bos),
            ("tokenizer.ggml.eos_token_id", roles.eos),
            ("tokenizer.ggml.eot_token_id", roles.eot),
            ("tokenizer.ggml.eom_token_id", roles.eom),
            ("tokenizer.ggml.unknown_token_id", roles.unknown),
            ("tokenizer.ggml.padding_token_id", roles.padding),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= tokens) {
                return Err(TextError::TokenId {
                    field,
                    vocabulary: tokens,
                    found: id.into(),
                });
            }
        }
        Ok(())
    }

    fn byte_level(&self) -> Result<Tokenizer, TextError> {
        let pre = PreType::named(self.pre.unwrap_or("default"))?;
        let bpe = BpeParts {
            vocabulary: self.vocabulary()?,
            merges: self.split_merges()?,
            ignore_merges: pre.ignore_merges,
            ..BpeParts::default()
        };
        let parts = Parts {
            bpe,
            added: self.added_tokens(),
            normalizer: None,
            steps: pre.steps()?,
            spelling: Spelling::ByteLevel,
        };
        let frame = self.frame(&self.roles, pre.add_bos)?;
        Tokenizer::new(
            parts,
            self.table(Spelling::ByteLevel)?,
            self.roles,
            frame,
            false,
        )
    }

    fn sentencepiece(&self) -> Result<Tokenizer, TextError> {
        if self.scores.is_empty() && self.merges.is_empty() {
            return Err(FormatError::MissingKey {
                key: "tokenizer.ggml.scores".to_owned(),
            }
            .into());
        }
        let vocabulary = self.vocabulary()?;
        let merges = match self.merges.is_empty() {
            true => {
                let is_text = |id| self.kind(id) != TokenKind::Control && !self.is_byte(id);
                sentencepiece::merges(&self.tokens, &self.scores, &vocabulary, is_text)?
            }
            false => self.split_merges()?,
        };
        let roles = self.sentencepiece_roles();
        let unknown = roles.unknown.map(|id| self.tokens[id as usize].to_owned());
        let space_prefix = self.add_space_prefix.unwrap_or(true);
        let parts = Parts {
            bpe: BpeParts {
                vocabulary,
                merges,
                unknown,
                fuse_unknown: true,
                byte_fallback: true,
                ignore_merges: false,
            },
            added: self.added_tokens(),
            normalizer: Some(sentencepiece::normalizer(space_prefix)?),
            steps: Vec::new(),
            spelling: Spelling::SentencePiece,
        };
        let frame = self.frame(&roles, true)?;
        let table = self.table(Spelling::SentencePiece)?;
        Tokenizer::new(parts, table, roles, frame, space_prefix)
    }

    /// Files for `llama` leave out the ids that every such vocabulary begins with.
    fn sentencepiece_roles(&self) -> Roles {
        let default = |id: u32| Some(id).filter(|&id| self.kind(id) == TokenKind::Control);
        Roles {
            unknown: self.roles.unknown.or_else(|| default(0)),
            bos: self.roles.bos.or_else(|| default(1)),
            eos: self.roles.eos.or_else(|| default(2)),
            ..self.roles
        }
    }

    /// Ids by token. Tokens without text can't occur in a text.
    fn vocabulary(&self) -> Result<AHashMap<String, u32>, TextError> {
        let mut vocabulary = AHashMap::with_capacity(self.tokens.len());
        for (id, &token) in (0u32..).zip(&self.tokens) {
            if token.is_empty() {
                continue;
            }
            if let Some(first) = vocabulary.insert(token.to_owned(), id) {
                return Err(TextError::DuplicateToken {
                    field: "tokenizer.ggml.tokens",
                    token: shown(token),
                    first,
                    second: id,
                });
            }
        }
        Ok(vocabulary)
    }

    fn split_merges(&self) -> Result<Vec<(String, String)>, TextError> {
        let split = |(index, merge): (usize, &&str)| {
            // The space between is not the first character, which may be one itself.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            match merge[first..].split_once(' ') {
                Some((_, right)) => {
                    let left = &merge[..merge.len() - right.len() - 1];
                    Ok((left.to_owned(), right.to_owned()))
                }
                None => Err(TextError::Merge {
                    index,
                    expected: "two tokens with a space between",
                    found: shown(merge),
                }),
            }
        };
        self.merges.iter().enumerate().map(split).collect()
    }

    /// What is cut out of a text before anything else.
    fn added_tokens(&self) -> Vec<AddedToken> {
        let token = |(id, token): (u32, &&str)| {
            let special = match self.kind(id) {
                TokenKind::Control => true,
                TokenKind::UserDefined => false,
                TokenKind::Normal | TokenKind::Absent => return None,
            };
            Some(AddedToken::from(*token, special).normalized(false))
        };
        (0u32..).zip(&self.tokens).filter_map(token).collect()
    }

    fn table(&self, spelling: Spelling) -> Result<TokenTable, TextError> {
        let mut table = TokenTableBuilder::with_capacity(self.tokens.len());
        for (id, &token) in (0u32..).zip(&self.tokens) {
            let kind = self.kind(id);
            match kind {
                TokenKind::Normal => table.push(kind, spelling.bytes(token, self.is_byte(id)))?,
                _ => table.push(kind, token.bytes())?,
            }
        }
        Ok(table.finish())
    }

    fn frame(&self, roles: &Roles, add_bos: bool) -> Result<Frame, TextError> {
        let required = |wanted: bool, id: Option<u32>, role| match (wanted, id) {
            (false, _) => Ok(Vec::new()),
            (true, Some(id)) => Ok(vec![id]),
            (true, None) => Err(TextError::MissingRole { role }),
        };
        let add_bos = self.add_bos.unwrap_or(add_bos);
        let add_eos = self.add_eos.unwrap_or(false);
        Ok(Frame {
            prefix: required(add_bos, roles.bos, "beginning-of-sequence")?,
            suffix: required(add_eos, roles.eos, "end-of-sequence")?,
        })
    }

    /// Tokens with a name that ends an answer are control tokens even where the file says otherwise.
    fn kind(&self, id: u32) -> TokenKind {
        let Some(&token) = self.tokens.get(id as usize) else {
            return TokenKind::Absent;
        };
        match self.token_type(id) {
            _ if token.is_empty() => TokenKind::Absent,
            token_type::CONTROL | token_type::UNKNOWN => TokenKind::Control,
            _ if end_of_generation::NAMES.contains(&token) => TokenKind::Control,
            token_type::USER_DEFINED => TokenKind::UserDefined,
            _ => TokenKind::Normal,
        }
    }

    fn is_byte(&self, id: u32) -> bool {
        let token = self.tokens[id as usize];
        self.token_type(id) == token_type::BYTE && byte_piece(token).is_some()
    }

    fn token_type(&self, id: u32) -> i32 {
        let given = self.token_types.get(id as usize);
        given.copied().unwrap_or(token_type::NORMAL)
    }
}

/// An array that may be missing.
fn array<T>(found: Result<impl Iterator<Item = T>, FormatError>) -> Result<Vec<T>, FormatError> {
    Ok(found.optional()?.map(Iterator::collect).unwrap_or_default())
}
