//! The fixtures of `scripts/fixtures/text.py`.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;

use ingle_text::{
    ControlTokens, EncodeOptions, Framing, GgufTokenizer, Missing, Roles, SpecialTokens, Tokenizer,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A vocabulary as GGUF has it.
#[derive(Deserialize)]
pub struct Vocabulary<C> {
    pub tokens: Vec<String>,
    #[serde(default)]
    pub merges: Vec<String>,
    #[serde(default)]
    pub scores: Vec<f32>,
    pub token_types: Vec<i32>,
    pub cases: C,
}

/// A text and what Hugging Face makes of it.
#[derive(Deserialize)]
pub struct Case {
    pub text: String,
    pub parsed: Vec<u32>,
    pub as_text: Vec<u32>,
    pub shown: String,
    pub skipped: String,
}

impl<C> Vocabulary<C> {
    pub fn gguf<'a>(&'a self, model: &'a str, pre: Option<&'a str>) -> GgufTokenizer<'a> {
        GgufTokenizer {
            model,
            pre,
            tokens: self.tokens.iter().map(String::as_str).collect(),
            merges: self.merges.iter().map(String::as_str).collect(),
            scores: self.scores.clone(),
            token_types: self.token_types.clone(),
            roles: Roles {
                bos: Some(1),
                eos: Some(2),
                ..Roles::default()
            },
            ..GgufTokenizer::default()
        }
    }
}

pub fn fixture<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn options(special: SpecialTokens) -> EncodeOptions {
    EncodeOptions {
        special,
        framing: Framing::None,
        missing: Missing::Refuse,
    }
}

/// That a tokenizer makes of a text what Hugging Face makes of it.
pub fn check(name: &str, tokenizer: &Tokenizer, case: &Case) {
    let text = &case.text;
    for (special, expected) in [
        (SpecialTokens::Parse, &case.parsed),
        (SpecialTokens::AsText, &case.as_text),
    ] {
        let ids = tokenizer.encode(text, options(special)).unwrap();
        assert_eq!(&ids, expected, "{name}, {special:?}: {text:?}");
    }
    for (control, expected) in [
        (ControlTokens::Show, &case.shown),
        (ControlTokens::Skip, &case.skipped),
    ] {
        let decoded = tokenizer.decode(&case.parsed, control).unwrap();
        assert_eq!(&decoded, expected, "{name}, {control:?}: {text:?}");
    }
}
