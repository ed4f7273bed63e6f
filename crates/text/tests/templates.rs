//! Chat templates against Jinja2 as transformers sets it up, and templates that do too much.

mod common;

use std::path::Path;

use common::fixture;
use ingle_text::{
    Builtin, ChatTemplate, Limits, Message, Now, RenderInput, TemplateTokens, TextError,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
struct Fixture {
    tokens: Map<String, Value>,
    now: i64,
    chats: Vec<ChatCase>,
    data: Map<String, Value>,
    values: Vec<ValueCase>,
}

#[derive(Deserialize)]
struct ChatCase {
    template: String,
    chat: Chat,
    #[serde(flatten)]
    expected: Expected,
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<Map<String, Value>>,
    add_generation_prompt: bool,
    tools: Option<Value>,
    #[serde(default)]
    now: bool,
    #[serde(default)]
    variables: Map<String, Value>,
}

#[derive(Deserialize)]
struct ValueCase {
    source: String,
    #[serde(flatten)]
    expected: Expected,
}

/// What Jinja2 made of it: one of these.
#[derive(Debug, Deserialize)]
struct Expected {
    output: Option<String>,
    raised: Option<String>,
    failed: Option<String>,
}

impl Expected {
    /// What is different, in words.
    fn difference(&self, found: &Result<String, TextError>) -> Option<String> {
        let same = match (self, found) {
            (
                Expected {
                    output: Some(text), ..
                },
                Ok(found),
            ) => text == found,
            (
                Expected {
                    raised: Some(text), ..
                },
                Err(TextError::TemplateRaised { message }),
            ) => text == message,
            (
                Expected {
                    failed: Some(_), ..
                },
                Err(error),
            ) => !matches!(error, TextError::TemplateRaised { .. }),
            _ => false,
        };
        (!same).then(|| format!("expected {self:?}\n   found {found:?}"))
    }
}

fn tokens(map: &Map<String, Value>) -> TemplateTokens {
    let token = |name| Some(map.get(name)?.as_str()?.to_owned());
    TemplateTokens {
        bos: token("bos_token"),
        eos: token("eos_token"),
        ..TemplateTokens::default()
    }
}

fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates");
    std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap()
}

fn message(fields: &Map<String, Value>) -> Message {
    let mut fields = fields.clone();
    let role = fields.shift_remove("role").unwrap();
    let content = fields.shift_remove("content").unwrap();
    Message {
        role: role.as_str().unwrap().to_owned(),
        content,
        fields,
    }
}

#[test]
fn chats() {
    let fixture: Fixture = fixture("templates.json");
    let mut different = Vec::new();
    for case in &fixture.chats {
        let template = ChatTemplate::new(&source(&case.template), tokens(&fixture.tokens)).unwrap();
        let messages: Vec<Message> = case.chat.messages.iter().map(message).collect();
        let found = template.render(&RenderInput {
            messages: &messages,
            add_generation_prompt: case.chat.add_generation_prompt,
            tools: case.chat.tools.as_ref(),
            now: case.chat.now.then_some(Now {
                unix_seconds: fixture.now,
                utc_offset_seconds: 0,
            }),
            variables: Some(&case.chat.variables),
            ..RenderInput::default()
        });
        if let Some(words) = case.expected.difference(&found) {
            different.push(format!(
                "{}: {:?}\n{words}",
                case.template, case.chat.messages
            ));
        }
    }
    assert!(fixture.chats.len() >= 80);
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );
}

/// Single expressions and statements. Those that MiniJinja is known to see otherwise are listed, with what it makes
/// of them: none is of use in a chat template.
#[test]
fn values() {
    let fixture: Fixture = fixture("templates.json");
    let mut different = Vec::new();
    for case in &fixture.values {
        let found =
            ChatTemplate::new(&case.source, TemplateTokens::default()).and_then(|template| {
                template.render(&RenderInput {
                    now: case.source.contains("strftime_now").then_some(Now {
                        unix_seconds: fixture.now,
                        utc_offset_seconds: 0,
                    }),
                    variables: Some(&fixture.data),
                    ..RenderInput::default()
                })
            });
        let known = KNOWN_DIFFERENCES
            .iter()
            .find(|(source, _)| *source == case.source);
        match (known, case.expected.difference(&found)) {
            (None, Some(words)) => different.push(format!("{}\n{words}", case.source)),
            (Some(_), None) => different.push(format!("{}: no difference any more", case.source)),
            (Some((_, made)), Some(_)) => {
                assert_eq!(found.ok().as_deref(), *made, "{}", case.source)
            }
            (None, None) => {}
        }
    }
    assert!(fixture.values.len() >= 200);
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );
}

const KNOWN_DIFFERENCES: &[(&str, Option<&str>)] = &[
    // Separators of lines are printed as they are in the text of lists and maps.
    (
        "{{ map }}",
        Some("{'b': 1, 'a': [1, {'k': 'v'}], 'é': '\u{2028}\"\\\\\\t\\x01'}"),
    ),
    (
        "{{ map.items() | list }}",
        Some("[('b', 1), ('a', [1, {'k': 'v'}]), ('é', '\u{2028}\"\\\\\\t\\x01')]"),
    ),
    (
        "{{ map.values() | list }}",
        Some("[1, [1, {'k': 'v'}], '\u{2028}\"\\\\\\t\\x01']"),
    ),
    (
        "{{ map | items | list }}",
        Some("[('b', 1), ('a', [1, {'k': 'v'}]), ('é', '\u{2028}\"\\\\\\t\\x01')]"),
    ),
    // Operators and filters that are missing: errors, by name.
    ("{{ '%s-%03d' % ('a', 7) }}", None),
    ("{{ t | wordcount }}", None),
    ("{{ t | truncate(5) }}", None),
    ("{{ 'x' | center(5) }}", None),
    ("{{ 'a b' | urlencode }}", None),
];

#[test]
fn the_builtin_template_is_chatml() {
    let template = ChatTemplate::builtin(Builtin::ChatMl, TemplateTokens::default()).unwrap();
    let messages = [Message::new("user", "Hi"), Message::new("assistant", "Ho")];
    let text = template
        .render(&RenderInput {
            messages: &messages,
            add_generation_prompt: true,
            ..RenderInput::default()
        })
        .unwrap();
    assert_eq!(
        text,
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>assistant\n"
    );
}

/// A stranger's template neither runs forever nor takes all memory nor the stack.
#[test]
fn too_much() {
    type Check<'a> = &'a dyn Fn(&TextError) -> bool;
    let fuel = |error: &TextError| matches!(error, TextError::TemplateFuel { .. });
    let output = |error: &TextError| matches!(error, TextError::TemplateOutput { .. });
    let any = |_: &TextError| true;
    let nested = format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000));
    let blocks = "{% if true %}".repeat(10_000) + &"{% endif %}".repeat(10_000);
    let forever = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}\
                   {% endfor %}{% endfor %}";
    let deep = "{% set n = namespace(x=1) %}{% for a in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}";
    let cases: [(&str, Check); 11] = [
        (forever, &fuel),
        ("{{ 'a' * 4000000000 }}", &fuel),
        ("{{ 'abc'.center(4000000000) }}", &any),
        (
            "{% set n = namespace(x='a') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            &fuel,
        ),
        (
            "{% for a in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
            &output,
        ),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", &any),
        ("{{ [1] | tojson(indent=4000000000) }}", &any),
        ("{{ '%4000000000d' | format(1) }}", &any),
        (&nested, &any),
        (&blocks, &any),
        (deep, &any),
    ];
    let limits = Limits {
        output_bytes: 1 << 20,
        ..Limits::default()
    };
    for (source, expected) in cases {
        let found = ChatTemplate::new(source, TemplateTokens::default())
            .and_then(|template| template.with_limits(limits).render(&RenderInput::default()));
        let error = found.expect_err(&source[..source.len().min(80)]);
        assert!(
            expected(&error),
            "{}: {error}",
            &source[..source.len().min(80)]
        );
    }
}

#[test]
fn errors_name_the_line() {
    let error = ChatTemplate::new("a\nb{% if %}", TemplateTokens::default()).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    let template = ChatTemplate::new("a\n\n{{ x.y.z }}", TemplateTokens::default()).unwrap();
    let error = template.render(&RenderInput::default()).unwrap_err();
    assert!(error.to_string().contains("line 3"), "{error}");
}

/// The second call has the fuel of the first.
#[test]
fn fuel_is_for_each_call() {
    let limits = Limits {
        fuel: 2000,
        ..Limits::default()
    };
    let template = ChatTemplate::new(
        "{% for a in range(90) %}{{ a }}{% endfor %}",
        TemplateTokens::default(),
    )
    .unwrap()
    .with_limits(limits);
    let first = template.render(&RenderInput::default()).unwrap();
    for _ in 0..10 {
        assert_eq!(template.render(&RenderInput::default()).unwrap(), first);
    }
}

#[test]
fn numbers_keep_their_type() {
    let template = ChatTemplate::new("{{ tools | tojson }}", TemplateTokens::default()).unwrap();
    let tools = json!([1, -2, 1.0, u64::MAX, 0.1, {"z": 1, "a": 2}]);
    let text = template
        .render(&RenderInput {
            tools: Some(&tools),
            ..RenderInput::default()
        })
        .unwrap();
    assert_eq!(
        text,
        r#"[1, -2, 1.0, 18446744073709551615, 0.1, {"z": 1, "a": 2}]"#
    );
}
