//! What comes in pieces is what comes at once.

mod common;

use std::sync::LazyLock;

use common::{Case, Vocabulary, fixture};
use ingle_text::{ControlTokens, EncodeOptions, StreamDecoder, Tokenizer};
use proptest::prelude::*;

static TOKENIZERS: LazyLock<[Tokenizer; 2]> = LazyLock::new(|| {
    let byte_level: Vocabulary<serde_json::Value> = fixture("byte_level.json");
    let sentencepiece: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
    [
        byte_level.gguf("gpt2", Some("smollm")),
        sentencepiece.gguf("llama", None),
    ]
    .map(|file| Tokenizer::from_gguf_parts(&file).unwrap())
});

/// The pieces as they come, the end of the text among them.
fn stream(tokenizer: &Tokenizer, ids: &[u32], control: ControlTokens) -> Vec<String> {
    let mut decoder = StreamDecoder::new(tokenizer, control);
    let mut pieces: Vec<String> = ids
        .iter()
        .map(|&id| decoder.push(tokenizer, id).unwrap())
        .collect();
    pieces.push(decoder.finish().to_owned());
    pieces
}

fn check(tokenizer: &Tokenizer, ids: &[u32]) -> Result<(), TestCaseError> {
    for control in [ControlTokens::Skip, ControlTokens::Show] {
        let whole = tokenizer.decode(ids, control).unwrap();
        prop_assert_eq!(stream(tokenizer, ids, control).concat(), whole);
    }
    Ok(())
}

proptest! {
    /// Any ids, most of which are no text.
    #[test]
    fn any_ids(numbers in prop::collection::vec(any::<u32>(), 0..60)) {
        for tokenizer in &*TOKENIZERS {
            let size = tokenizer.vocabulary_size() as u32;
            // Half of them from the single bytes, so that characters begin, break off and end.
            let ids: Vec<u32> = numbers
                .iter()
                .map(|n| if n % 2 == 0 { n / 2 % size } else { n / 2 % 260 })
                .collect();
            check(tokenizer, &ids)?;
        }
    }

    /// Any text comes back whole, and no piece has half a character.
    #[test]
    fn any_text(text in any::<String>()) {
        for tokenizer in &*TOKENIZERS {
            let ids = tokenizer.encode(&text, EncodeOptions::TEXT).unwrap();
            check(tokenizer, &ids)?;
            let pieces = stream(tokenizer, &ids, ControlTokens::Show);
            prop_assert_eq!(pieces.concat(), text.clone());
            if !text.contains('\u{FFFD}') {
                let broken = pieces.iter().any(|piece| piece.contains('\u{FFFD}'));
                prop_assert!(!broken);
            }
        }
    }
}

/// An emoji comes with its last byte; a broken one is replaced as soon as it can't be mended.
#[test]
fn halves_are_held_back() {
    let [tokenizer, _] = &*TOKENIZERS;
    let byte = |letter: &str| tokenizer.token_id(letter).unwrap();
    let crab = ["ð", "Ł", "¦", "Ģ"].map(byte);
    let pieces = stream(tokenizer, &crab, ControlTokens::Skip);
    assert_eq!(pieces, ["", "", "", "🦀", ""]);
    let broken = [crab[0], crab[1], byte("a"), crab[0]];
    let pieces = stream(tokenizer, &broken, ControlTokens::Skip);
    assert_eq!(pieces, ["", "", "\u{FFFD}a", "", "\u{FFFD}"]);
}

#[test]
fn a_continuation_keeps_its_space() {
    let [_, tokenizer] = &*TOKENIZERS;
    let space = tokenizer.token_id("▁").unwrap();
    let mut decoder = StreamDecoder::continuing(ControlTokens::Skip);
    assert_eq!(decoder.push(tokenizer, space).unwrap(), " ");
    let mut decoder = StreamDecoder::new(tokenizer, ControlTokens::Skip);
    assert_eq!(decoder.push(tokenizer, space).unwrap(), "");
    assert_eq!(decoder.push(tokenizer, space).unwrap(), " ");
}
