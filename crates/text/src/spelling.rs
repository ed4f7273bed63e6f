//! How a vocabulary spells bytes as text: the byte-level alphabet of GPT-2, and the pieces of SentencePiece.

use std::iter;

/// The space of SentencePiece, U+2581.
pub(crate) const SPACE_MARK: char = '▁';

/// How the tokens of a vocabulary are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// One character for each byte (GPT-2).
    ByteLevel,
    /// Text with `▁` for a space, and `<0x0A>` for single bytes (SentencePiece).
    SentencePiece,
}

impl Spelling {
    /// The bytes that a piece of the vocabulary stands for. A byte-level piece that leaves the alphabet is taken as
    /// text, as Hugging Face does.
    pub fn bytes(self, piece: &str, is_byte: bool) -> Vec<u8> {
        match self {
            Spelling::ByteLevel => piece
                .chars()
                .map(byte_of)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| piece.as_bytes().to_vec()),
            Spelling::SentencePiece if is_byte => match byte_piece(piece) {
                Some(byte) => vec![byte],
                None => piece.as_bytes().to_vec(),
            },
            Spelling::SentencePiece => piece.replace(SPACE_MARK, " ").into_bytes(),
        }
    }
}

/// The byte that a character of the byte-level alphabet stands for: printable Latin-1 stands for itself, and the
/// others follow from U+0100 on in their order.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => is_printable(byte).then_some(byte),
        Err(_) => unprintable().nth(code.checked_sub(0x100)? as usize),
    }
}

/// The byte that `<0x0A>` stands for. Only this form counts: two digits, upper case.
pub(crate) fn byte_piece(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = |c: u8| c.is_ascii_digit() || (b'A'..=b'F').contains(&c);
    if digits.len() != 2 || !digits.bytes().all(upper) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

fn unprintable() -> impl Iterator<Item = u8> {
    iter::successors(Some(0u8), |b| b.checked_add(1)).filter(|&b| !is_printable(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_has_256_letters() {
        let mut found: Vec<u8> = ('\0'..'\u{400}').filter_map(byte_of).collect();
        found.sort_unstable();
        assert_eq!(found, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('Ċ'), Some(b'\n'));
        assert_eq!(byte_of('Ń'), Some(0xAD));
        assert_eq!(byte_of('ń'), None);
    }

    #[test]
    fn byte_pieces() {
        assert_eq!(byte_piece("<0x0A>"), Some(10));
        for other in ["<0x0a>", "<0xA>", "<0x+A>", "<0x0A", "0x0A", "<0x00A>"] {
            assert_eq!(byte_piece(other), None, "{other}");
        }
    }
}
