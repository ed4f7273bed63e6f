//! `model.safetensors.index.json`: what it says, and names that must be refused.

mod support;

use ingle_formats::{FormatError, index};
use support::exercise;

#[track_caller]
fn refused(json: &str, expected: &str) {
    let error = index::parse(json.as_bytes()).expect_err("refused");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn finds_the_file_of_each_tensor() {
    let json = r#"{
        "metadata": { "total_size": 12.0, "other": [null] },
        "weight_map": {
            "model.norm.weight": "model-00002-of-00002.safetensors",
            "lm_head.weight": "model-00001-of-00002.safetensors",
            "model.\u00e9": "model-00002-of-00002.safetensors"
        }
    }"#;
    let index = index::parse(json.as_bytes()).expect("read");
    let [one, two] = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    assert_eq!(index.shards().collect::<Vec<_>>(), [one, two]);
    assert_eq!(index.shard_of("lm_head.weight"), Some(one));
    assert_eq!(index.shard_of("model.é"), Some(two));
    assert_eq!(index.shard_of("model"), None);
    assert_eq!(
        index.iter().collect::<Vec<_>>(),
        [
            ("lm_head.weight", one),
            ("model.norm.weight", two),
            ("model.é", two)
        ]
    );
    exercise::index(json.as_bytes());
}

#[test]
fn names_that_lead_elsewhere() {
    let other = "other characters than letters, digits, '.', '_' and '-'";
    let long = format!("{}.safetensors", "a".repeat(300));
    for (file, why) in [
        ("../x.safetensors", other),
        ("/etc/x.safetensors", other),
        ("a/b.safetensors", other),
        ("a\\\\b.safetensors", other),
        ("C:x.safetensors", other),
        ("https://host/x.safetensors", other),
        ("%2e%2e%2fx.safetensors", other),
        ("x.safetensors?a", other),
        ("x\\u0000.safetensors", other),
        ("é.safetensors", other),
        ("..safetensors", "begins with '.'"),
        (".safetensors", "begins with '.'"),
        ("..", "begins with '.'"),
        ("", "another ending"),
        ("model.bin", "another ending"),
        (&long, "longer than 255 bytes"),
    ] {
        let json = format!(r#"{{"weight_map":{{"t":"{file}"}}}}"#);
        let error = index::parse(json.as_bytes()).expect_err(file);
        assert!(
            matches!(&error, FormatError::ShardName { why: w, .. } if *w == why),
            "{error}"
        );
    }
    refused(
        r#"{"weight_map":{"t":"../x.safetensors"}}"#,
        &format!(
            "tensor \"t\": expected the plain name of a .safetensors file, found \"../x.safetensors\" ({other})"
        ),
    );
}

#[test]
fn other_forms() {
    refused("{}", "metadata weight_map: expected a value, found none");
    refused(
        r#"{"weight_map":{},"weight_map":{}}"#,
        "metadata key \"weight_map\" occurs twice",
    );
    refused(
        r#"{"weight_map":{"t":"a.safetensors","t":"b.safetensors"}}"#,
        "tensor \"t\" occurs twice",
    );
    for json in [
        "",
        "[]",
        "null",
        "{",
        r#"{"weight_map":[]}"#,
        r#"{"weight_map":{"t":1}}"#,
        "{}{}",
    ] {
        let error = index::parse(json.as_bytes()).expect_err(json);
        assert!(matches!(error, FormatError::Json { .. }), "{json}: {error}");
    }
    let many: Vec<_> = (0..5000)
        .map(|i| format!("\"{i}\":\"{i}.safetensors\""))
        .collect();
    refused(
        &format!("{{\"weight_map\":{{{}}}}}", many.join(",")),
        "weight_map: expected at most 4096 different files, found more",
    );
}
