//! `TokenTable`: the bytes each token stands for, in one allocation, and what kind of token it is.

use crate::TextError;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// A mark such as the end of a turn. It is not text: decoding leaves it out unless asked, and encoding makes it
    /// from its name only where [`SpecialTokens::Parse`](crate::SpecialTokens::Parse) says so.
    Control,
    /// A piece of text that is always one token, such as `<think>`.
    UserDefined,
    /// An id without a token.
    Absent,
}

/// The bytes and kinds of all tokens, by id.
#[derive(Clone, Debug)]
pub(crate) struct TokenTable {
    bytes: Box<[u8]>,
    /// Where the bytes of each token end; they begin where those before it end. `[vocabulary]`
    ends: Box<[u32]>,
    kinds: Box<[TokenKind]>,
}

impl TokenTable {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = id.checked_sub(1).map_or(0, |i| self.ends[i] as usize);
        Some(&self.bytes[start..end])
    }

    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub fn of_kind(&self, kind: TokenKind) -> impl Iterator<Item = u32> {
        (0u32..)
            .zip(&self.kinds)
            .filter_map(move |(id, &found)| (found == kind).then_some(id))
    }
}

/// Fills a [`TokenTable`] token by token.
#[derive(Default)]
pub(crate) struct TokenTableBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    kinds: Vec<TokenKind>,
}

impl TokenTableBuilder {
    pub fn with_capacity(tokens: usize) -> Self {
        TokenTableBuilder {
            bytes: Vec::with_capacity(8 * tokens),
            ends: Vec::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
        }
    }

    /// Adds the token with the next id.
    pub fn push(
        &mut self,
        kind: TokenKind,
        bytes: impl IntoIterator<Item = u8>,
    ) -> Result<(), TextError> {
        self.bytes.extend(bytes);
        let end = u32::try_from(self.bytes.len()).map_err(|_| TextError::Limit {
            field: "bytes of all tokens",
            limit: u32::MAX as usize,
            found: self.bytes.len(),
        })?;
        self.ends.push(end);
        self.kinds.push(kind);
        Ok(())
    }

    pub fn finish(self) -> TokenTable {
        TokenTable {
            bytes: self.bytes.into(),
            ends: self.ends.into(),
            kinds: self.kinds.into(),
        }
    }
}
