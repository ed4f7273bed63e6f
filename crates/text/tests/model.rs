//! The tokenizer and the template of a real model: SmolLM2-135M-Instruct, from its GGUF file.
#![cfg(feature = "model-tests")]

mod common;

use std::env;
use std::fs::File;
use std::io::Read;
use std::sync::LazyLock;

use common::{Case, check, fixture, options};
use ingle_formats::Parsed;
use ingle_formats::gguf::{self, Metadata};
use ingle_text::{
    ChatTemplate, ControlTokens, EncodeOptions, Message, Missing, RenderInput, SpecialTokens,
    TemplateTokens, Tokenizer,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    prompts: Vec<Prompt>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Prompt {
    text: String,
    ids: Vec<u32>,
}

static METADATA: LazyLock<Metadata> = LazyLock::new(|| {
    let path = env::var_os("INGLE_TEST_MODEL").expect(
        "INGLE_TEST_MODEL should name SmolLM2-135M-Instruct.Q4_1.gguf: scripts/test fetches it and sets this",
    );
    let mut file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let size = file.metadata().unwrap().len();
    let mut prefix = vec![0; size.min(16 << 20) as usize];
    file.read_exact(&mut prefix).unwrap();
    match gguf::parse(&prefix, size).unwrap() {
        Parsed::Done(manifest) => manifest.metadata,
        Parsed::NeedMore { .. } => panic!("the header is longer than 16 MiB"),
    }
});

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_gguf(&METADATA).unwrap());

#[test]
fn prompts_have_the_reference_ids() {
    let fixture: Fixture = fixture("smollm2.json");
    assert_eq!(fixture.prompts.len(), 6);
    for prompt in &fixture.prompts {
        for options in [EncodeOptions::TEMPLATE, EncodeOptions::PROMPT] {
            let ids = TOKENIZER.encode(&prompt.text, options).unwrap();
            assert_eq!(ids, prompt.ids, "{:?}", prompt.text);
        }
        let text = TOKENIZER.decode(&prompt.ids, ControlTokens::Show).unwrap();
        assert_eq!(text, prompt.text);
    }
}

/// The vocabulary lacks a few bytes, which Hugging Face drops.
#[test]
fn texts_have_the_ids_of_hugging_face() {
    let fixture: Fixture = fixture("smollm2.json");
    let mut incomplete = 0;
    for case in &fixture.cases {
        let parse = options(SpecialTokens::Parse);
        if TOKENIZER.encode(&case.text, parse).is_ok() {
            check("smollm2", &TOKENIZER, case);
            continue;
        }
        incomplete += 1;
        let drop = EncodeOptions {
            missing: Missing::Drop,
            ..parse
        };
        assert_eq!(TOKENIZER.encode(&case.text, drop).unwrap(), case.parsed);
    }
    assert!(incomplete <= 1, "{incomplete}");
}

#[test]
fn roles() {
    let roles = TOKENIZER.roles();
    assert_eq!((roles.bos, roles.eos), (Some(1), Some(2)));
    assert_eq!(TOKENIZER.vocabulary_size(), 49152);
    assert!(!TOKENIZER.adds_bos());
    // <|endoftext|>, <|im_end|>, <reponame>
    assert_eq!(TOKENIZER.end_of_generation(), [0, 2, 4]);
}

/// A chat through the model's own template is the reference's prompt.
#[test]
fn the_template_makes_the_reference_prompt() {
    let fixture: Fixture = fixture("smollm2.json");
    let tokens = TemplateTokens::of(&TOKENIZER);
    let template = ChatTemplate::from_gguf(&METADATA, None, tokens).unwrap();
    let messages = [Message::new("user", "What is the capital of France?")];
    let text = template
        .render(&RenderInput {
            messages: &messages,
            add_generation_prompt: true,
            ..RenderInput::default()
        })
        .unwrap();
    let prompt = fixture.prompts.iter().find(|p| p.text == text);
    let ids = TOKENIZER.encode(&text, EncodeOptions::TEMPLATE).unwrap();
    assert_eq!(ids, prompt.expect("no prompt is this chat").ids, "{text}");
}

#[test]
fn named_templates_are_not_guessed() {
    let tokens = TemplateTokens::default();
    let error = ChatTemplate::from_gguf(&METADATA, Some("tool_use"), tokens).unwrap_err();
    assert!(error.to_string().contains("\"tool_use\""), "{error}");
}
