//! The components of `tokenizer.json` around the model. Each is an object with a `type`; sequences hold more of them.

use serde_json::Value;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::TextError;
use crate::error::shown;
use crate::pre_tokenizer::Step;
use crate::spelling::{SPACE_MARK, Spelling};
use crate::tokenizer::Frame;

/// How the tokens are to be read.
pub(super) struct Decoder {
    pub spelling: Spelling,
    /// Whether `<0x0A>` is the byte 10.
    pub byte_pieces: bool,
    /// Whether the first space of a decoded text is taken off.
    pub strips_space: bool,
}

/// What `normalizer` says.
pub(super) fn normalizer(value: &Value) -> Result<Option<NormalizerWrapper>, TextError> {
    const FIELD: &str = "normalizer";
    if value.is_null() {
        return Ok(None);
    }
    for part in flat(FIELD, value, "normalizers")? {
        match kind(FIELD, part)? {
            "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "Prepend" | "Strip"
            | "StripAccents" => {}
            // A pattern that fails would stop replacing and say nothing.
            "Replace" if part["pattern"]["String"].is_string() => {}
            other => {
                return Err(TextError::Unsupported {
                    field: FIELD,
                    expected: "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a string, Sequence, Strip, \
                               StripAccents",
                    found: shown(other),
                });
            }
        }
    }
    component(FIELD, value).map(Some)
}

/// What `pre_tokenizer` says.
pub(super) fn steps(value: &Value) -> Result<Vec<Step>, TextError> {
    const FIELD: &str = "pre_tokenizer";
    if value.is_null() {
        return Ok(Vec::new());
    }
    let step = |part: &Value| match kind(FIELD, part)? {
        "Split" => split(part),
        "ByteLevel" | "Digits" | "Metaspace" | "Punctuation" | "Whitespace" | "WhitespaceSplit" => {
            let component: PreTokenizerWrapper = component(FIELD, part)?;
            Ok(Step::Component(component))
        }
        other => Err(TextError::Unsupported {
            field: FIELD,
            expected: "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit",
            found: shown(other),
        }),
    };
    flat(FIELD, value, "pretokenizers")?
        .into_iter()
        .map(step)
        .collect()
}

/// What `decoder` says.
pub(super) fn decoder(value: &Value) -> Result<Decoder, TextError> {
    const FIELD: &str = "decoder";
    let mut decoder = Decoder {
        spelling: Spelling::SentencePiece,
        byte_pieces: false,
        strips_space: false,
    };
    let mut known = false;
    let parts = match value.is_null() {
        true => Vec::new(),
        false => flat(FIELD, value, "decoders")?,
    };
    for part in &parts {
        match kind(FIELD, part)? {
            "ByteLevel" if parts.len() == 1 => {
                decoder.spelling = Spelling::ByteLevel;
                known = true;
            }
            "Metaspace" if is_space_mark(&part["replacement"]) => {
                decoder.strips_space = part["prepend_scheme"] != "never"
                    && part["add_prefix_space"] != Value::Bool(false);
                known = true;
            }
            "Replace" if is_space_mark(&part["pattern"]["String"]) && part["content"] == " " => {
                known = true;
            }
            "ByteFallback" => decoder.byte_pieces = true,
            "Fuse" => {}
            "Strip" if part["content"] == " " && part["start"] == 1 && part["stop"] == 0 => {
                decoder.strips_space = true;
            }
            _ => return Err(unsupported_decoder(part)),
        }
    }
    match known {
        true => Ok(decoder),
        false => Err(unsupported_decoder(value)),
    }
}

/// What `post_processor` puts around a single text.
pub(super) fn frame(value: &Value) -> Result<Frame, TextError> {
    const FIELD: &str = "post_processor";
    let mut frame = Frame::default();
    if value.is_null() {
        return Ok(frame);
    }
    for part in flat(FIELD, value, "processors")? {
        match kind(FIELD, part)? {
            // It is about offsets only.
            "ByteLevel" => {}
            "TemplateProcessing" => extend_frame(&mut frame, part)?,
            other => {
                return Err(TextError::Unsupported {
                    field: FIELD,
                    expected: "ByteLevel, Sequence, TemplateProcessing",
                    found: shown(other),
                });
            }
        }
    }
    Ok(frame)
}

fn extend_frame(frame: &mut Frame, template: &Value) -> Result<(), TextError> {
    let malformed = |found: &Value| TextError::Field {
        field: "post_processor.single",
        expected: "SpecialToken and Sequence elements, each token with its ids",
        found: shown(&found.to_string()),
    };
    let single = template["single"]
        .as_array()
        .ok_or_else(|| malformed(template))?;
    let mut before = Vec::new();
    let mut after_text = false;
    for element in single {
        if element.get("Sequence").is_some() {
            after_text = true;
            continue;
        }
        let token = element["SpecialToken"]["id"]
            .as_str()
            .ok_or_else(|| malformed(element))?;
        let ids = template["special_tokens"][token]["ids"]
            .as_array()
            .ok_or_else(|| malformed(element))?;
        let side = match after_text {
            false => &mut before,
            true => &mut frame.suffix,
        };
        for id in ids {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            side.push(id.ok_or_else(|| malformed(element))?);
        }
    }
    // A later template goes around what an earlier one made.
    before.append(&mut frame.prefix);
    frame.prefix = before;
    Ok(())
}

fn split(part: &Value) -> Result<Step, TextError> {
    const FIELD: &str = "pre_tokenizer.pattern";
    let pattern = &part["pattern"];
    let pattern = match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
        (Some(regex), _) => regex.to_owned(),
        (None, Some(text)) => fancy_regex::escape(text).into_owned(),
        (None, None) => {
            return Err(TextError::Field {
                field: FIELD,
                expected: "a Regex or a String",
                found: shown(&pattern.to_string()),
            });
        }
    };
    let mut step = Step::split(FIELD, &pattern)?;
    if let Step::Split {
        behavior, invert, ..
    } = &mut step
    {
        *behavior =
            component::<SplitDelimiterBehavior>("pre_tokenizer.behavior", &part["behavior"])?;
        *invert = part["invert"].as_bool().unwrap_or(false);
    }
    Ok(step)
}

/// The components in a value: itself, or what a sequence holds, at any depth.
fn flat<'a>(
    field: &'static str,
    value: &'a Value,
    list: &'static str,
) -> Result<Vec<&'a Value>, TextError> {
    if kind(field, value)? != "Sequence" {
        return Ok(vec![value]);
    }
    let parts = value[list].as_array().ok_or_else(|| TextError::Field {
        field,
        expected: "a list of components in a Sequence",
        found: shown(&value[list].to_string()),
    })?;
    let nested: Result<Vec<_>, _> = parts.iter().map(|part| flat(field, part, list)).collect();
    Ok(nested?.concat())
}

fn kind<'a>(field: &'static str, value: &'a Value) -> Result<&'a str, TextError> {
    value["type"].as_str().ok_or_else(|| TextError::Field {
        field,
        expected: "an object with a type",
        found: shown(&value.to_string()),
    })
}

fn component<T: serde::de::DeserializeOwned>(
    field: &'static str,
    value: &Value,
) -> Result<T, TextError> {
    serde_json::from_value(value.clone()).map_err(|source| TextError::Json { field, source })
}

fn is_space_mark(value: &Value) -> bool {
    let mut mark = [0; 4];
    value.as_str() == Some(SPACE_MARK.encode_utf8(&mut mark))
}

fn unsupported_decoder(found: &Value) -> TextError {
    TextError::Unsupported {
        field: "decoder",
        expected: "ByteLevel, Metaspace, or a Sequence of Replace (▁ by a space), ByteFallback, Fuse, Strip (a space)",
        found: shown(&found.to_string()),
    }
}
