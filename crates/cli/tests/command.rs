//! The command as a user meets it: exit codes and what they say, and with `model-tests` the real model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn ingle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ingle"))
        .args(arguments)
        .output()
        .unwrap()
}

fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../models/tests/tiny")
        .join(name)
}

fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = ingle(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(says), "{arguments:?}: {error}");
}

#[test]
fn help_teaches() {
    let output = ingle(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in [
        "run",
        "inspect",
        "graph",
        "logits",
        "bench",
        "Exit codes",
        "Hugging Face",
    ] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
}

#[test]
fn exit_codes_say_what_went_wrong() {
    fails(&[], 2, "Usage");
    fails(
        &["run", "no-such-file.gguf", "-p", "x"],
        3,
        "no-such-file.gguf",
    );
    fails(
        &["run", tiny("logits.json").to_str().unwrap(), "-p", "x"],
        3,
        "GGUF",
    );
    let folder = std::env::temp_dir();
    fails(
        &["inspect", folder.to_str().unwrap()],
        3,
        "expected a GGUF file, or a folder with config.json",
    );
    fails(
        &["graph", "--check", tiny("logits.json").to_str().unwrap()],
        3,
        "line 1",
    );
}

#[test]
fn both_readers_see_the_same_tensors() {
    let path = tiny("tiny.gguf");
    let read = |with: &str| -> serde_json::Value {
        let output = ingle(&["inspect", path.to_str().unwrap(), "--with", with, "--json"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (ours, theirs) = (read("ingle"), read("gguf-rs"));
    let sorted = |report: &serde_json::Value| {
        let mut rows: Vec<String> = report["tensors"]
            .as_array()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(sorted(&ours), sorted(&theirs));
    assert_eq!(sorted(&ours).len(), 20);
}

/// `ingle graph --check -` of this text.
fn check(text: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ingle"))
        .args(["graph", "--check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

#[test]
fn a_graph_is_checked_from_standard_input() {
    let good =
        "graph g\n  input %x: f32[tokens, 4]\n  %1: f32[tokens, 4] = silu %x\n  result y = %1\n";
    let output = check(good);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 nodes"));
    assert_eq!(
        check(&good.replace("%1: f32[tokens, 4]", "%1: f32[tokens, 5]"))
            .status
            .code(),
        Some(3)
    );
}

#[cfg(feature = "model-tests")]
mod model {
    use super::*;

    fn model() -> String {
        std::env::var("INGLE_TEST_MODEL")
            .expect("INGLE_TEST_MODEL names the model of scripts/setup")
    }

    /// The launches a layer that `text` says decode takes at most.
    fn decode_launches(text: &str) -> usize {
        let line = text.lines().find(|l| l.starts_with("decode variant 0:"));
        let line = line.unwrap_or_else(|| panic!("decode is not in\n{text}"));
        let (_, rest) = line.split_once(": ").unwrap();
        let (counts, _) = rest.split_once(" launches a layer").unwrap();
        counts.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn json(arguments: &[&str]) -> serde_json::Value {
        let output = ingle(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn the_capital_of_france() {
        let answer = json(&[
            "run",
            &model(),
            "-p",
            "What is the capital of France?",
            "--json",
        ]);
        assert_eq!(answer["text"], "The capital of France is Paris.");
        assert_eq!(answer["finish"], "stop");
        assert_eq!(answer["device"]["kind"], "cpu");
        assert!(
            answer["load_s"].as_f64().unwrap() > 0.0
                && answer["first_token_s"].as_f64().unwrap() > 0.0
        );
    }

    #[test]
    fn raw_text_goes_on_and_length_ends_it() {
        let prompt = "The quick brown fox jumps over the lazy dog. The";
        let answer = json(&["run", &model(), "--raw", "-p", prompt, "-n", "5", "--json"]);
        assert_eq!(answer["text"], " dog is a lazy dog");
        assert_eq!(
            (&answer["finish"], &answer["prompt_tokens"]),
            (&"length".into(), &11.into())
        );
    }

    #[test]
    fn the_fused_graph_parses_back_and_a_layer_takes_few_launches() {
        let without = std::env::var("INGLE_WITHOUT").unwrap_or_default();
        for device in ["cpu", "vulkan"] {
            if without.split(',').any(|w| w == device) {
                continue;
            }
            for activations in ["f32", "int8"] {
                let model = model();
                let target = ["--device", device, "--activations", activations];
                let dump = ["graph", &model, "--dump-after", "fuse"];
                let output = ingle(&[&dump[..], &target].concat());
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(output.status.success(), "{said}");
                let launches = decode_launches(&said);
                assert!(
                    (1..=9).contains(&launches),
                    "{device} {activations}: {said}"
                );

                let checked = check(&String::from_utf8(output.stdout).unwrap());
                let said = String::from_utf8(checked.stdout).unwrap();
                assert!(checked.status.success(), "{said}");
                assert!(
                    said.contains("36 inputs") && said.contains("verified"),
                    "{said}"
                );

                let output = ingle(&[&["graph", &model, "--plan"][..], &target].concat());
                let plan = String::from_utf8(output.stdout).unwrap();
                assert_eq!(decode_launches(&plan), launches);
            }
        }
    }

    #[test]
    fn a_plan_is_serialised_whole() {
        let plan = json(&["graph", &model(), "--plan", "--json"]);
        assert_eq!(plan["entries"][0]["name"], "decode");
        // The command links gguf-rs, which changes how serde_json reads numbers: a plan must survive that.
        let text = plan.to_string();
        let read: ingle_graph::plan::Plan = serde_json::from_str(&text).unwrap();
        ingle_graph::plan::check(&read).unwrap();
    }

    #[test]
    fn the_bench_reports_what_it_measured() {
        let figures = json(&[
            "bench",
            &model(),
            "--json",
            "--threads",
            "1",
            "--prompt",
            "32",
            "--gen",
            "4",
            "--rounds",
            "1",
        ]);
        assert!(
            figures["prefill_tok_s"].as_f64().unwrap() > 0.0
                && figures["decode_tok_s"].as_f64().unwrap() > 0.0
        );
    }

    #[test]
    fn devices_and_options_that_do_not_exist() {
        let model = model();
        fails(
            &["run", &model, "-p", "x", "--device", "cuda"],
            4,
            "no cuda device",
        );
        fails(
            &["run", &model, "-p", "x", "--threads", "0"],
            2,
            "--threads",
        );
        fails(
            &["run", &model, "-p", "x", "--context", "999999"],
            2,
            "context",
        );
        fails(
            &["run", &model, "-p", "x", "--temperature=-1"],
            2,
            "temperature",
        );
        fails(
            &["graph", &model, "--dump-after", "nothing"],
            2,
            "merge, fuse",
        );
    }
}
