//! `StreamDecoder`: token ids to text as they come, never half a character.

use crate::tokenizer::ControlTokens;
use crate::{TextError, Tokenizer};

/// Turns token ids into text, one at a time. What it gives, put together with [`StreamDecoder::finish`], is what
/// [`Tokenizer::decode`] gives for all ids at once.
///
/// It holds back the bytes of a character until the last one has come. Bytes that can't become a character any more
/// are U+FFFD at once.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    control: ControlTokens,
    /// Whether nothing came yet and the space before the text is to be taken off.
    strip_space: bool,
    /// The beginning of a character, at most three bytes.
    held: Vec<u8>,
}

impl StreamDecoder {
    /// For a text from its beginning on.
    pub fn new(tokenizer: &Tokenizer, control: ControlTokens) -> Self {
        StreamDecoder {
            strip_space: tokenizer.strips_space(),
            ..StreamDecoder::continuing(control)
        }
    }

    /// For the continuation of a text that was shown already: a space at its beginning belongs to it.
    pub fn continuing(control: ControlTokens) -> Self {
        StreamDecoder {
            control,
            strip_space: false,
            held: Vec::new(),
        }
    }

    /// Takes a token, gives the characters that are complete now.
    ///
    /// # Errors
    ///
    /// [`TextError::TokenId`] for an id outside the vocabulary.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String, TextError> {
        let mut bytes = tokenizer.visible_bytes(id, self.control)?;
        if self.strip_space && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.strip_space = false;
        }
        Ok(self.push_bytes(bytes))
    }

    /// Ends the text: what is held back can't become a character any more.
    pub fn finish(self) -> &'static str {
        match self.held.is_empty() {
            true => "",
            false => "\u{FFFD}",
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.held);
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_beginning(invalid) {
                self.held.extend_from_slice(invalid);
            } else if !invalid.is_empty() {
                text.push('\u{FFFD}');
            }
        }
        text
    }
}

/// Whether these bytes are a character but for its last ones.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
