//! `Tokenizer`: text to token ids and back.

use std::fmt;

use crate::TextError;
use crate::end_of_generation;
use crate::pipeline::{Parts, Pipeline};
use crate::table::{TokenKind, TokenTable};

/// A tokenizer, from a GGUF file ([`Tokenizer::from_gguf`]) or a Hugging Face folder ([`Tokenizer::from_json`]).
pub struct Tokenizer {
    pipeline: Pipeline,
    table: TokenTable,
    roles: Roles,
    frame: Frame,
    /// Sorted.
    end_of_generation: Box<[u32]>,
    strips_space: bool,
}

/// The tokens with a role, as ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Begins a sequence.
    pub bos: Option<u32>,
    /// Ends a sequence.
    pub eos: Option<u32>,
    /// Ends a turn of a chat.
    pub eot: Option<u32>,
    /// Ends a message that asks for a tool.
    pub eom: Option<u32>,
    pub unknown: Option<u32>,
    pub padding: Option<u32>,
}

/// How to encode a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeOptions {
    pub special: SpecialTokens,
    pub framing: Framing,
    pub missing: Missing,
}

/// Whether the names of control tokens, such as `<|im_end|>`, mean the tokens when they occur in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They do.
    Parse,
    /// They are text like any other.
    AsText,
}

/// Whether to put the tokens around a text that mark its begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Those that the model's files ask for.
    Model,
    None,
}

/// What to do about characters that no token stands for. Most vocabularies have a token for each byte; what the
/// others lack is control characters and bytes of unassigned planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Fail with [`TextError::Unencodable`].
    Refuse,
    /// Leave them out, as llama.cpp and Hugging Face do.
    Drop,
}

/// Whether to show control tokens in decoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlTokens {
    Skip,
    Show,
}

/// The tokens that go around a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

impl EncodeOptions {
    /// For what a chat template made: it writes all marks itself, by their names.
    pub const TEMPLATE: EncodeOptions = EncodeOptions {
        special: SpecialTokens::Parse,
        framing: Framing::None,
        missing: Missing::Refuse,
    };
    /// For the whole of a text to be continued, such as a prompt without a template.
    pub const PROMPT: EncodeOptions = EncodeOptions {
        framing: Framing::Model,
        ..EncodeOptions::TEMPLATE
    };
    /// For text that must stay text, whatever a stranger wrote.
    pub const TEXT: EncodeOptions = EncodeOptions {
        special: SpecialTokens::AsText,
        ..EncodeOptions::TEMPLATE
    };
}

impl Tokenizer {
    /// Puts a tokenizer together. `roles` and `frame` hold ids of the table.
    pub(crate) fn new(
        parts: Parts,
        table: TokenTable,
        roles: Roles,
        frame: Frame,
        strips_space: bool,
    ) -> Result<Self, TextError> {
        let pipeline = Pipeline::new(parts)?;
        let named = |name: &str| pipeline.token_id(name);
        let end_of_generation = end_of_generation::ids(&roles, named);
        Ok(Tokenizer {
            pipeline,
            table,
            roles,
            frame,
            end_of_generation: end_of_generation.into(),
            strips_space,
        })
    }

    /// The number of ids, those without a token included.
    pub fn vocabulary_size(&self) -> usize {
        self.table.len()
    }

    /// The ids of `text`.
    ///
    /// # Errors
    ///
    /// [`TextError::Unencodable`] where a character has no token and `options` say to refuse it.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TextError> {
        let parse_special = options.special == SpecialTokens::Parse;
        let drop_missing = options.missing == Missing::Drop;
        let ids = self.pipeline.encode(text, parse_special, drop_missing)?;
        if options.framing == Framing::None {
            return Ok(ids);
        }
        Ok([&self.frame.prefix[..], &ids, &self.frame.suffix].concat())
    }

    /// The text of a whole sequence. Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a
    /// character. Where encoding puts a space before a text, the first space is taken off again.
    ///
    /// # Errors
    ///
    /// [`TextError::TokenId`] for an id outside the vocabulary.
    pub fn decode(&self, ids: &[u32], control: ControlTokens) -> Result<String, TextError> {
        let mut bytes = Vec::with_capacity(4 * ids.len());
        for &id in ids {
            bytes.extend_from_slice(self.visible_bytes(id, control)?);
        }
        let bytes = match bytes.strip_prefix(b" ") {
            Some(rest) if self.strips_space => rest,
            _ => &bytes[..],
        };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The bytes a token stands for. They need not be whole characters. Control tokens give their names.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TextError> {
        self.table.bytes(id).ok_or_else(|| self.unknown_id(id))
    }

    pub fn token_kind(&self, id: u32) -> Result<TokenKind, TextError> {
        self.table.kind(id).ok_or_else(|| self.unknown_id(id))
    }

    /// The id of the token that the vocabulary spells like this.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.pipeline.token_id(token)
    }

    /// The ids of all tokens of one kind, ascending.
    pub fn tokens_of_kind(&self, kind: TokenKind) -> impl Iterator<Item = u32> {
        self.table.of_kind(kind)
    }

    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// Whether [`Framing::Model`] puts the beginning-of-sequence token before a text.
    pub fn adds_bos(&self) -> bool {
        self.roles.bos.is_some() && self.frame.prefix.first().copied() == self.roles.bos
    }

    /// Whether a model that emits this token has ended its answer.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// All tokens that end an answer, ascending.
    pub fn end_of_generation(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Also lets these tokens end an answer, such as `eos_token_id` of `generation_config.json`.
    pub fn add_end_of_generation(&mut self, ids: &[u32]) -> Result<(), TextError> {
        for &id in ids {
            self.token_kind(id)?;
        }
        let mut all = [&self.end_of_generation[..], ids].concat();
        all.sort_unstable();
        all.dedup();
        self.end_of_generation = all.into();
        Ok(())
    }

    /// Whether encoding puts a space before a text, and decoding takes it off.
    pub(crate) fn strips_space(&self) -> bool {
        self.strips_space
    }

    /// The bytes that a token shows.
    pub(crate) fn visible_bytes(
        &self,
        id: u32,
        control: ControlTokens,
    ) -> Result<&[u8], TextError> {
        match self.token_kind(id)? {
            TokenKind::Control if control == ControlTokens::Skip => Ok(&[]),
            _ => self.token_bytes(id),
        }
    }

    fn unknown_id(&self, id: u32) -> TextError {
        TextError::TokenId {
            field: "token",
            vocabulary: self.table.len(),
            found: id.into(),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary_size", &self.table.len())
            .field("roles", &self.roles)
            .field("frame", &self.frame)
            .field("end_of_generation", &self.end_of_generation)
            .field("strips_space", &self.strips_space)
            .finish_non_exhaustive()
    }
}
