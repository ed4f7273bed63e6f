//! Files with random damage: whatever they say, nothing panics, and what is accepted works.

mod common;

use std::sync::LazyLock;

use common::{Case, Vocabulary, fixture};
use ingle_text::{
    ChatTemplate, ControlTokens, EncodeOptions, Limits, Message, Missing, RenderInput,
    TemplateTokens, Tokenizer, TokenizerConfig,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

static HF: LazyLock<[Value; 2]> = LazyLock::new(|| {
    ["hf/byte_level.json", "hf/metaspace.json"].map(|name| {
        let mut file: Value = fixture(name);
        file["tokenizer"].take()
    })
});

static TEMPLATES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/templates");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path| std::fs::read_to_string(path).unwrap();
    paths.into_iter().map(read).collect()
});

/// Encodes and decodes, whatever comes of it.
fn use_it(tokenizer: &Tokenizer) {
    let options = EncodeOptions {
        missing: Missing::Drop,
        ..EncodeOptions::PROMPT
    };
    for text in [
        "",
        " a  b\n\n",
        "Grüße 🦀 12345 <|im_end|>x</s><think>",
        "▁▁ '\u{0}",
    ] {
        if let Ok(ids) = tokenizer.encode(text, options) {
            tokenizer.decode(&ids, ControlTokens::Show).unwrap();
        }
    }
    for id in 0..tokenizer.vocabulary_size().min(1000) {
        tokenizer.token_bytes(id as u32).unwrap();
    }
}

/// All places in a document, those in its vocabulary and its merges only by example.
fn places(value: &Value, path: &str, out: &mut Vec<String>) {
    out.push(path.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter().take(30) {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{path}/{key}"), out);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().take(6).enumerate() {
                places(value, &format!("{path}/{index}"), out);
            }
        }
        _ => {}
    }
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u32..700).prop_map(Value::from),
        "[a-zA-Z▁Ġ<>|x0-9 ()\\[\\]*+?{},.^$\\\\]{0,6}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"Regex": "()*|\\b|(?=a)|(?<!b)"})),
        Just(json!({"Regex": "(a*)*\\1$"})),
        Just(json!({"String": ""})),
        Just(json!({"type": "Digits", "individual_digits": true})),
        Just(json!({"type": "Punctuation", "behavior": "MergedWithNext"})),
        Just(
            json!({"type": "Metaspace", "replacement": "é", "prepend_scheme": "always", "split": true})
        ),
        Just(json!({"type": "Prepend", "prepend": ""})),
        Just(json!({"type": "NFKD"})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tokenizer_json(which in 0usize..2, changes in prop::collection::vec((any::<Index>(), odd_value()), 1..4)) {
        let mut file = HF[which].clone();
        for (place, value) in changes {
            let mut all = Vec::new();
            places(&file, "", &mut all);
            let path = &all[place.index(all.len())];
            *file.pointer_mut(path).unwrap() = value;
        }
        let bytes = serde_json::to_vec(&file).unwrap();
        if let Ok(tokenizer) = Tokenizer::from_json(&bytes, None) {
            use_it(&tokenizer);
        }
        let _ = TokenizerConfig::parse(&bytes);
    }

    #[test]
    fn gguf(
        llama: bool,
        pre in prop::sample::select(vec!["default", "gpt-2", "llama-bpe", "smollm", "qwen2"]),
        tokens in prop::collection::vec((any::<Index>(), "[a-z▁Ġ<>0xAF ]{0,5}"), 0..6),
        merges in prop::collection::vec((any::<Index>(), "[a-eĠ ]{0,5}"), 0..6),
        scores in prop::collection::vec((any::<Index>(), any::<f32>()), 0..6),
        types in prop::collection::vec((any::<Index>(), -1i32..9), 0..40),
        eos in prop::option::of(0u32..800),
    ) {
        let byte_level: Vocabulary<Value> = fixture("byte_level.json");
        let sentencepiece: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
        let mut file = match llama {
            true => sentencepiece.gguf("llama", None),
            false => byte_level.gguf("gpt2", Some(pre)),
        };
        file.roles.eos = eos;
        for (place, token) in &tokens {
            let at = place.index(file.tokens.len());
            file.tokens[at] = token;
        }
        for (place, merge) in merges.iter().filter(|_| !llama) {
            let at = place.index(file.merges.len());
            file.merges[at] = merge;
        }
        for (place, score) in scores.iter().filter(|_| llama) {
            let at = place.index(file.scores.len());
            file.scores[at] = *score;
        }
        for (place, kind) in types {
            let at = place.index(file.token_types.len());
            file.token_types[at] = kind;
        }
        if let Ok(tokenizer) = Tokenizer::from_gguf_parts(&file) {
            use_it(&tokenizer);
        }
    }

    #[test]
    fn templates(which: Index, cuts in prop::collection::vec((any::<Index>(), any::<Index>(), any::<bool>()), 1..4)) {
        let mut source: Vec<char> = which.get(&TEMPLATES).chars().collect();
        for (from, to, twice) in cuts {
            let (a, b) = (from.index(source.len() + 1), to.index(source.len() + 1));
            let part = a.min(b)..a.max(b).min(a.min(b) + 80);
            match twice {
                true => source.splice(part.end..part.end, source[part].to_vec()).for_each(drop),
                false => source.drain(part).for_each(drop),
            }
        }
        let source: String = source.into_iter().collect();
        let Ok(template) = ChatTemplate::new(&source, TemplateTokens::default()) else {
            return Ok(());
        };
        let limits = Limits { fuel: 100_000, output_bytes: 1 << 16 };
        let messages = [Message::new("user", "Hi"), Message::new("assistant", json!([{"type": "text"}]))];
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2.5]}}}]);
        let _ = template.with_limits(limits).render(&RenderInput {
            messages: &messages,
            tools: Some(&tools),
            ..RenderInput::default()
        });
    }
}
