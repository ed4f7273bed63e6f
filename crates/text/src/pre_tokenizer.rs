//! Splitting text into words before merges: llama.cpp's pre-tokenizers by name, and the steps they are made of.

use fancy_regex::Regex;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior};

use crate::TextError;
use crate::error::shown;

/// One of the pre-tokenizers that `tokenizer.ggml.pre` names.
#[derive(Debug)]
pub(crate) struct PreType {
    names: &'static [&'static str],
    /// Applied one after the other; each cuts the pieces of the one before into matches and what lies between.
    patterns: &'static [&'static str],
    /// Whether a word that is in the vocabulary is taken whole, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether the beginning-of-sequence token is added where the file does not say.
    pub add_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";

/// The patterns of llama.cpp (`llama-vocab.cpp`, `llm_tokenizer_bpe`). GPT-2's leaves out the last `\s+`, since what
/// matches nothing is a piece of its own anyway.
static PRE_TYPES: &[PreType] = &[
    PreType {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
    PreType {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "trillion",
            "granite-docling",
        ],
        patterns: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreType {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        patterns: &[
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        add_bos: true,
    },
    PreType {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        patterns: &[r"\p{N}", GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    PreType {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "hunyuan",
            "megrez",
            "solar-open",
            "kormo",
        ],
        patterns: &[
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: false,
        add_bos: false,
    },
];

impl PreType {
    /// The pre-tokenizer of this name.
    pub fn named(name: &str) -> Result<&'static PreType, TextError> {
        PRE_TYPES
            .iter()
            .find(|pre| pre.names.contains(&name))
            .ok_or_else(|| TextError::Unsupported {
                field: "tokenizer.ggml.pre",
                expected: "default, gpt-2, llama-bpe, smollm, qwen2 or an alias of these",
                found: shown(name),
            })
    }

    /// The patterns, then bytes as letters.
    pub fn steps(&self) -> Result<Vec<Step>, TextError> {
        let split = |pattern: &&str| Step::split("pattern of a pre-tokenizer", pattern);
        let mut steps = self
            .patterns
            .iter()
            .map(split)
            .collect::<Result<Vec<_>, _>>()?;
        let byte_level = ByteLevel::new(false, false, false);
        steps.push(Step::Component(byte_level.into()));
        Ok(steps)
    }
}

/// One step of splitting. Patterns are ours and not a component of `tokenizers`, which stops splitting where a
/// pattern fails and says nothing.
#[derive(Debug)]
pub(crate) enum Step {
    Split {
        regex: Box<Regex>,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    Component(PreTokenizerWrapper),
}

impl Step {
    /// Cuts out the matches of `pattern` and keeps what lies between.
    pub fn split(field: &'static str, pattern: &str) -> Result<Step, TextError> {
        let regex = Regex::new(pattern).map_err(|source| TextError::Regex {
            field,
            found: shown(pattern),
            source: Box::new(source),
        })?;
        Ok(Step::Split {
            regex: Box::new(regex),
            behavior: SplitDelimiterBehavior::Isolated,
            invert: false,
        })
    }

    pub fn apply(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Step::Component(component) => component.pre_tokenize(text),
            Step::Split {
                regex,
                behavior,
                invert: false,
            } => text.split(|_, piece| piece.split(&**regex, *behavior)),
            Step::Split {
                regex,
                behavior,
                invert: true,
            } => text.split(|_, piece| piece.split(Invert(&**regex), *behavior)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pre in PRE_TYPES {
            pre.steps().unwrap();
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = PreType::named("made-up").unwrap_err();
        assert!(error.to_string().contains("\"made-up\""), "{error}");
    }
}
