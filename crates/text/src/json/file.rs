//! The form of `tokenizer.json`, as far as it is read.

use std::fmt;

use ahash::AHashMap;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use tokenizers::AddedToken;

use crate::TextError;
use crate::error::shown;

#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    #[serde(default)]
    pub added_tokens: Vec<AddedTokenFile>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    #[serde(default)]
    pub decoder: Value,
    pub model: ModelFile,
}

#[derive(Deserialize)]
pub(super) struct AddedTokenFile {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    pub special: bool,
}

#[derive(Deserialize)]
pub(super) struct ModelFile {
    pub vocab: AHashMap<String, u32>,
    pub merges: Vec<MergeFile>,
    pub unk_token: Option<String>,
    dropout: Option<f32>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub fuse_unk: bool,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub ignore_merges: bool,
}

/// A pair, written as `"a b"` or as `["a", "b"]`.
pub(super) struct MergeFile(pub (String, String));

impl TokenizerFile {
    pub fn parse(bytes: &[u8]) -> Result<Self, TextError> {
        let json = |source| TextError::Json {
            field: "tokenizer.json",
            source,
        };
        // Other models have vocabularies of another form, and should be told by name.
        let kind: KindFile = serde_json::from_slice(bytes).map_err(json)?;
        if let Some(kind) = kind.model.kind.filter(|kind| kind != "BPE") {
            return Err(TextError::Unsupported {
                field: "model.type",
                expected: "BPE",
                found: shown(&kind),
            });
        }
        let file: TokenizerFile = serde_json::from_slice(bytes).map_err(json)?;
        file.model.check()?;
        Ok(file)
    }
}

impl ModelFile {
    fn check(&self) -> Result<(), TextError> {
        let set = |text: &Option<String>| text.as_ref().filter(|text| !text.is_empty()).cloned();
        for (field, found) in [
            (
                "model.continuing_subword_prefix",
                set(&self.continuing_subword_prefix),
            ),
            ("model.end_of_word_suffix", set(&self.end_of_word_suffix)),
            (
                "model.dropout",
                self.dropout.filter(|&d| d != 0.0).map(|d| d.to_string()),
            ),
        ] {
            if let Some(found) = found {
                return Err(TextError::Unsupported {
                    field,
                    expected: "none",
                    found: shown(&found),
                });
            }
        }
        Ok(())
    }
}

impl AddedTokenFile {
    pub fn token(&self) -> AddedToken {
        AddedToken::from(self.content.as_str(), self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized)
    }
}

#[derive(Deserialize)]
struct KindFile {
    model: ModelKind,
}

#[derive(Deserialize)]
struct ModelKind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl<'de> Deserialize<'de> for MergeFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = MergeFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens, as a list or with a space between")
    }

    fn visit_str<E: de::Error>(self, merge: &str) -> Result<MergeFile, E> {
        let mut parts = merge.split(' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(left), Some(right), None) => Ok(MergeFile((left.into(), right.into()))),
            _ => Err(E::invalid_value(de::Unexpected::Str(merge), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut merge: A) -> Result<MergeFile, A::Error> {
        let left = merge.next_element()?;
        let right = merge.next_element()?;
        let end: Option<de::IgnoredAny> = merge.next_element()?;
        match (left, right, end) {
            (Some(left), Some(right), None) => Ok(MergeFile((left, right))),
            _ => Err(de::Error::custom("expected two tokens in a merge")),
        }
    }
}
