//! Ids and texts against Hugging Face's library, and files that lie.

mod common;

use std::collections::BTreeMap;

use common::{Case, Vocabulary, check, fixture, options};
use ingle_text::{
    ControlTokens, EncodeOptions, Framing, Missing, SpecialTokens, TextError, TokenKind, Tokenizer,
    TokenizerConfig,
};
use serde::Deserialize;
use serde_json::{Value, json};

type ByPre = BTreeMap<String, Vec<Case>>;

#[derive(Deserialize)]
struct HfFixture {
    tokenizer: Value,
    cases: Vec<Case>,
    framed: Vec<u32>,
}

#[test]
fn byte_level() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    assert_eq!(vocabulary.cases.len(), 5);
    for (pre, cases) in &vocabulary.cases {
        let file = vocabulary.gguf("gpt2", Some(pre));
        let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
        for case in cases {
            check(pre, &tokenizer, case);
        }
    }
}

#[test]
fn aliases_are_the_same() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    for (alias, pre) in [
        ("llama3", "llama-bpe"),
        ("llama-v3", "llama-bpe"),
        ("phi-2", "gpt-2"),
    ] {
        let file = vocabulary.gguf("gpt2", Some(alias));
        let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
        for case in &vocabulary.cases[pre] {
            check(alias, &tokenizer, case);
        }
    }
}

#[test]
fn sentencepiece() {
    let vocabulary: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
    let tokenizer = Tokenizer::from_gguf_parts(&vocabulary.gguf("llama", None)).unwrap();
    for case in &vocabulary.cases {
        check("llama", &tokenizer, case);
    }
    assert!(tokenizer.adds_bos());
    let ids = tokenizer.encode("Hello", EncodeOptions::PROMPT).unwrap();
    assert_eq!(ids[0], 1);
}

#[test]
fn sentencepiece_without_a_space_before() {
    let vocabulary: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
    let mut file = vocabulary.gguf("llama", None);
    file.add_space_prefix = Some(false);
    let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
    let ids = tokenizer.encode(" a", EncodeOptions::TEXT).unwrap();
    assert_eq!(tokenizer.decode(&ids, ControlTokens::Skip).unwrap(), " a");
    let ids = tokenizer.encode("a", EncodeOptions::TEXT).unwrap();
    assert_eq!(ids.len(), 1);
}

#[test]
fn hugging_face_folders() {
    for name in ["byte_level", "metaspace"] {
        let hf: HfFixture = fixture(&format!("hf/{name}.json"));
        let json = serde_json::to_vec(&hf.tokenizer).unwrap();
        let tokenizer = Tokenizer::from_json(&json, None).unwrap();
        for case in &hf.cases {
            check(name, &tokenizer, case);
        }
        let framing = EncodeOptions {
            framing: Framing::Model,
            ..options(SpecialTokens::AsText)
        };
        assert_eq!(tokenizer.encode("Hello world", framing).unwrap(), hf.framed);
    }
}

#[test]
fn tokenizer_config() {
    let hf: HfFixture = fixture("hf/byte_level.json");
    let json = serde_json::to_vec(&hf.tokenizer).unwrap();
    let config = json!({
        "bos_token": {"content": "<|im_start|>", "lstrip": false},
        "eos_token": "<|im_end|>",
        "pad_token": "[not in the vocabulary]",
        "unk_token": null,
        "add_bos_token": false,
        "chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}],
    });
    let config = TokenizerConfig::parse(config.to_string().as_bytes()).unwrap();
    let tokenizer = Tokenizer::from_json(&json, Some(&config)).unwrap();
    assert_eq!(tokenizer.roles().bos, Some(1));
    assert_eq!(tokenizer.roles().padding, None);
    assert_eq!(tokenizer.end_of_generation(), [0, 2]);
    // The post-processor puts <|im_start|> first and <|endoftext|> last; the config takes the first away.
    let ids = tokenizer.encode("a", EncodeOptions::PROMPT).unwrap();
    assert_eq!((ids.len(), ids[1]), (2, 0));
    assert_eq!(config.chat_template("tool_use").unwrap(), "b");
    let error = config.chat_template("rag").unwrap_err().to_string();
    assert!(error.contains("\"default\", \"tool_use\""), "{error}");

    let config = TokenizerConfig::parse(br#"{"eos_token": "nope"}"#).unwrap();
    let error = Tokenizer::from_json(&json, Some(&config)).unwrap_err();
    assert!(error.to_string().contains("eos_token"), "{error}");
}

#[test]
fn tokens_and_roles() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    let file = vocabulary.gguf("gpt2", Some("smollm"));
    let mut tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
    let think = tokenizer.token_id("<think>").unwrap();
    let space = tokenizer.token_id("Ġ").unwrap();
    assert_eq!(tokenizer.token_bytes(space).unwrap(), b" ");
    assert_eq!(tokenizer.token_bytes(2).unwrap(), b"<|im_end|>");
    assert_eq!(tokenizer.token_kind(think).unwrap(), TokenKind::UserDefined);
    let control: Vec<u32> = tokenizer.tokens_of_kind(TokenKind::Control).collect();
    assert_eq!(control, [0, 1, 2]);
    assert_eq!(tokenizer.end_of_generation(), [0, 2]);
    assert!(!tokenizer.adds_bos());
    tokenizer.add_end_of_generation(&[think]).unwrap();
    assert!(tokenizer.is_end_of_generation(think));
    let beyond = tokenizer.vocabulary_size() as u32;
    tokenizer.add_end_of_generation(&[beyond]).unwrap_err();
    tokenizer.token_bytes(beyond).unwrap_err();
    tokenizer
        .decode(&[beyond], ControlTokens::Show)
        .unwrap_err();
}

/// A vocabulary without a token for some byte: refused or left out, as the caller says.
#[test]
fn missing_bytes() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    let mut file = vocabulary.gguf("gpt2", Some("gpt-2"));
    let tilde = file.tokens.iter().position(|token| *token == "~").unwrap();
    file.tokens[tilde] = "";
    file.merges.retain(|merge| !merge.contains('~'));
    let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
    assert_eq!(
        tokenizer.token_kind(tilde as u32).unwrap(),
        TokenKind::Absent
    );
    let refuse = EncodeOptions::TEXT;
    let error = tokenizer.encode("ab ~ c", refuse).unwrap_err();
    assert!(error.to_string().ends_with("the byte 0x7e"), "{error}");
    let drop = EncodeOptions {
        missing: Missing::Drop,
        ..refuse
    };
    let ids = tokenizer.encode("ab ~ c", drop).unwrap();
    assert_eq!(
        tokenizer.decode(&ids, ControlTokens::Show).unwrap(),
        "ab  c"
    );
}

/// What is written as text must not become a mark, in any vocabulary.
#[test]
fn text_makes_no_control_tokens() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    let pieces: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
    let files = vocabulary
        .cases
        .keys()
        .map(|pre| vocabulary.gguf("gpt2", Some(pre)));
    for file in files.chain([pieces.gguf("llama", None)]) {
        let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
        let names: String = file.tokens.iter().take(3).copied().collect();
        let ids = tokenizer.encode(&names, EncodeOptions::TEXT).unwrap();
        let control = |&id: &u32| tokenizer.token_kind(id).unwrap() == TokenKind::Control;
        assert!(!ids.iter().any(control), "{:?}: {ids:?}", file.pre);
        assert_eq!(tokenizer.decode(&ids, ControlTokens::Skip).unwrap(), names);
    }
}

/// Where a pattern looks at every place of a long run, it neither fails nor takes forever.
#[test]
fn long_runs() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    for pre in vocabulary.cases.keys() {
        let file = vocabulary.gguf("gpt2", Some(pre));
        let tokenizer = Tokenizer::from_gguf_parts(&file).unwrap();
        for unit in [" ", "a", "1", "\n", "!", "é", " \n"] {
            let text = format!("{}x", unit.repeat(100_000 / unit.len()));
            let ids = tokenizer.encode(&text, EncodeOptions::TEXT).unwrap();
            let decoded = tokenizer.decode(&ids, ControlTokens::Show).unwrap();
            assert!(decoded == text, "{pre} {unit:?}");
        }
    }
}

#[test]
fn lying_gguf_metadata() {
    let vocabulary: Vocabulary<ByPre> = fixture("byte_level.json");
    let pieces: Vocabulary<Vec<Case>> = fixture("sentencepiece.json");
    let gpt2 = || vocabulary.gguf("gpt2", Some("gpt-2"));
    let llama = || pieces.gguf("llama", None);
    let fails = |file, part: &str| {
        let error = Tokenizer::from_gguf_parts(&file).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    };

    let mut file = gpt2();
    file.model = "bert";
    fails(file, "\"bert\"");
    let mut file = gpt2();
    file.pre = Some("tekken");
    fails(file, "\"tekken\"");
    let mut file = gpt2();
    file.token_types.pop();
    fails(file, "token_type");
    let mut file = gpt2();
    file.roles.bos = Some(1 << 30);
    fails(file, "bos_token_id");
    let mut file = gpt2();
    file.roles.bos = None;
    file.add_bos = Some(true);
    fails(file, "beginning-of-sequence");
    let mut file = gpt2();
    file.tokens[4] = file.tokens[5];
    fails(file, "as 4 and as 5");
    for (merge, part) in [
        ("ab", "space between"),
        ("", "space between"),
        (" a", "space between"),
        ("a nope", "right part"),
        ("nope a", "left part"),
        // The library panics on this one: it has no room for what is longer than the longest token.
        ("<|endoftext|> <|endoftext|>", "what it makes"),
    ] {
        let mut file = gpt2();
        file.merges[7] = merge;
        fails(file, part);
    }

    let mut file = llama();
    file.scores.clear();
    fails(file, "tokenizer.ggml.scores");
    let mut file = llama();
    file.scores[300] = f32::NAN;
    fails(file, "NaN");
    let long = "a".repeat(600);
    let mut file = llama();
    file.tokens[300] = &long;
    fails(file, "512");
    // Every piece of a run of one letter can be cut at every place.
    let runs: Vec<String> = (1..=500).map(|n| "a".repeat(n)).collect();
    let mut file = llama();
    file.tokens = runs.iter().map(String::as_str).collect();
    file.scores = vec![0.0; runs.len()];
    file.token_types = vec![1; runs.len()];
    fails(file, "merges");
}

#[test]
fn lying_tokenizer_json() {
    let hf: HfFixture = fixture("hf/byte_level.json");
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/model/type", json!("Unigram"), "\"Unigram\""),
        ("/model/vocab", json!([["a", 0.0]]), "tokenizer.json"),
        ("/model/vocab/a", json!(4_000_000_000u32), "4000000000"),
        ("/model/vocab/a", json!(5), "for 5"),
        ("/model/merges/0", json!("a b c"), "tokenizer.json"),
        ("/model/merges/0", json!(["a"]), "tokenizer.json"),
        (
            "/model/merges/0",
            json!(["<|endoftext|>", "<|endoftext|>"]),
            "merge 0",
        ),
        (
            "/model/continuing_subword_prefix",
            json!("##"),
            "continuing_subword_prefix",
        ),
        ("/model/dropout", json!(0.5), "dropout"),
        ("/added_tokens/0/id", json!(9), "for 9"),
        ("/added_tokens/0/id", json!(900), "as 0 and as 900"),
        (
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": ""}),
            "\"Precompiled\"",
        ),
        (
            "/normalizer",
            json!({"type": "Replace", "pattern": {"Regex": "("}, "content": ""}),
            "\"Replace\"",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}),
            "\"(\"",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Sequence"}),
            "a list of components",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "UnicodeScripts"}),
            "\"UnicodeScripts\"",
        ),
        ("/pre_tokenizer", json!([]), "an object with a type"),
        ("/decoder", json!({"type": "WordPiece"}), "WordPiece"),
        ("/decoder", Value::Null, "decoder"),
        (
            "/post_processor",
            json!({"type": "BertProcessing"}),
            "\"BertProcessing\"",
        ),
        (
            "/post_processor/processors/1/single",
            json!([{"SpecialToken": {"id": "x"}}]),
            "single",
        ),
        (
            "/post_processor/processors/1/special_tokens/<|im_start|>/ids",
            json!([70_000]),
            "70000",
        ),
    ];
    for (path, value, part) in cases {
        let mut file = hf.tokenizer.clone();
        match file.pointer_mut(path) {
            Some(place) => *place = value,
            None => panic!("{path} is not in the fixture"),
        }
        let json = serde_json::to_vec(&file).unwrap();
        let error = Tokenizer::from_json(&json, None).unwrap_err();
        assert!(error.to_string().contains(part), "{path}: {error}");
    }
    for bytes in [&b""[..], b"{", b"[]", b"{}", b"\xff", b"{\"model\":{}}"] {
        let error = Tokenizer::from_json(bytes, None).unwrap_err();
        assert!(matches!(error, TextError::Json { .. }), "{error}");
    }
}
