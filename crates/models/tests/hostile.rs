//! Wrong and missing metadata, and tensors of wrong shapes: typed errors that name what is wrong.

mod reference;

use ingle_formats::{Parsed, gguf};
use ingle_models::{GraphOptions, Model, ModelError};
use proptest::prelude::*;
use reference::*;
use serde_json::{Value, json};

fn config() -> Value {
    serde_json::from_slice(&std::fs::read(tiny_folder().join("config.json")).unwrap()).unwrap()
}

/// The error of reading the tiny folder with this change to its configuration.
fn with(key: &str, value: Value) -> String {
    let mut config = config();
    if value.is_null() {
        config.as_object_mut().unwrap().remove(key);
    } else {
        config[key] = value;
    }
    let model = Model::from_hf(config.to_string().as_bytes(), &tiny_shards().1);
    let error = model
        .and_then(|m| m.graph(GraphOptions::default()))
        .unwrap_err();
    assert!(
        matches!(error, ModelError::Field { .. } | ModelError::Tensor { .. }),
        "{error:?}"
    );
    error.to_string()
}

#[test]
fn fields_of_config_json() {
    for (key, value, says) in [
        (
            "hidden_size",
            Value::Null,
            "hidden_size: expected an integer, found nothing",
        ),
        (
            "hidden_size",
            json!("64"),
            "hidden_size: expected an integer",
        ),
        ("hidden_size", json!(-3), "hidden_size"),
        (
            "hidden_size",
            json!(32),
            "model.embed_tokens.weight: expected the shape [96, 32], found [96, 64]",
        ),
        (
            "num_attention_heads",
            json!(3),
            "num_attention_heads: expected a divisor of 64, found 3",
        ),
        ("num_attention_heads", json!(0), "num_attention_heads"),
        (
            "num_key_value_heads",
            json!(3),
            "num_key_value_heads: expected a divisor of the 4 query heads, found 3",
        ),
        (
            "num_hidden_layers",
            json!(3),
            "model.layers.2.input_layernorm.weight: expected to be in the file",
        ),
        (
            "num_hidden_layers",
            json!(1),
            "model.layers.1.input_layernorm.weight: expected no tensor",
        ),
        (
            "num_hidden_layers",
            json!(4_000_000_000u64),
            "num_hidden_layers: expected 1 to 2147483647",
        ),
        (
            "head_dim",
            json!(15),
            "partial_rotary_factor: expected an even number",
        ),
        ("vocab_size", json!(100), "the shape [100, 64]"),
        (
            "tie_word_embeddings",
            json!(false),
            "lm_head.weight: expected to be in the file",
        ),
        (
            "tie_word_embeddings",
            json!("yes"),
            "tie_word_embeddings: expected true or false",
        ),
        (
            "architectures",
            json!(["MambaForCausalLM"]),
            "architectures: expected one of LlamaForCausalLM, Qwen2ForCausalLM",
        ),
        (
            "architectures",
            json!([]),
            "architectures: expected a list of one name",
        ),
        (
            "rope_theta",
            json!(0.0),
            "rope_theta: expected a finite number above 0",
        ),
        (
            "rope_scaling",
            json!({"type": "yarn"}),
            "rope_scaling.rope_type: expected default, linear or llama3, found yarn",
        ),
        (
            "rope_scaling",
            json!({"type": "linear"}),
            "rope_scaling.factor: expected a number above 0",
        ),
        (
            "rope_scaling",
            json!({"type": "linear", "factor": 0}),
            "rope_scaling.factor: expected a number above 0",
        ),
        (
            "rms_norm_eps",
            json!(-1.0),
            "rms_norm_eps: expected a finite number of at least 0",
        ),
        ("hidden_act", json!("gelu"), "hidden_act: expected silu"),
        (
            "attention_bias",
            json!(true),
            "self_attn.q_proj.bias: expected to be in the file",
        ),
        (
            "use_sliding_window",
            json!(true),
            "use_sliding_window: expected false",
        ),
        (
            "quantization_config",
            json!({"bits": 4}),
            "quantization_config: expected none",
        ),
    ] {
        let error = with(key, value.clone());
        assert!(error.contains(says), "{key} = {value}: {error}");
    }
}

#[test]
fn linear_scaling_multiplies_positions() {
    let mut config = config();
    config["rope_scaling"] = json!({"rope_type": "linear", "factor": 4.0});
    let model = Model::from_hf(config.to_string().as_bytes(), &tiny_shards().1).unwrap();
    assert_eq!(model.config.rope.scale, 0.25);
}

#[test]
fn llama3_factors_are_those_of_transformers() {
    let wanted = expected().llama3_factors;
    let loaded = tiny_hf("llama3.json");
    let source = loaded.model.sources.get("rope_freqs.weight").unwrap();
    let ingle_models::Place::Bytes(bytes) = &source.place else {
        panic!("computed")
    };
    let found: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found / wanted - 1.0).abs() < 1e-6, "{found} {wanted}");
    }
    assert!(
        wanted.contains(&1.0) && wanted.iter().any(|&f| f > 7.9),
        "{wanted:?}"
    );
}

proptest! {
    /// Any byte of a GGUF header may be anything: the model is read, or there is an error; nothing panics.
    #[test]
    fn a_changed_byte_of_a_header_never_panics(at in 0usize..2600, byte: u8) {
        let mut bytes = std::fs::read(tiny_folder().join("tiny.gguf")).unwrap();
        bytes[at] = byte;
        if let Ok(Parsed::Done(manifest)) = gguf::parse(&bytes, bytes.len() as u64)
            && let Ok(model) = Model::from_gguf(&manifest)
        {
            let _ = model.graph(GraphOptions::default());
        }
    }

    #[test]
    fn any_config_json_never_panics(key in 0usize..16, value in prop_oneof![
        any::<f64>().prop_map(|v| json!(v)), any::<u64>().prop_map(|v| json!(v)), any::<i32>().prop_map(|v| json!(v)),
        Just(json!([])), Just(json!({})), Just(json!("x")), Just(json!(true)),
    ]) {
        let mut config = config();
        let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        config[keys[key % keys.len()].as_str()] = value;
        if let Ok(model) = Model::from_hf(config.to_string().as_bytes(), &tiny_shards().1) {
            let _ = model.graph(GraphOptions::default());
        }
    }
}
