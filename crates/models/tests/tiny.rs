//! The tiny model from both kinds of files: graph, streamed weights, and logits against `hf_tiny.py`'s.

mod reference;

use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, compile, optimise};
use ingle_graph::{Tensor, interpret};
use ingle_models::GraphOptions;
use ingle_quant::{ElementType, LayoutRequest, Placement};
use reference::*;

/// Runs all tokens at once and gives the logits of these positions.
fn logits(
    loaded: &Loaded,
    target: &ReferenceTarget,
    tokens: &[u32],
    positions: &[usize],
) -> Vec<Vec<f32>> {
    let graph = loaded
        .model
        .graph(GraphOptions {
            kv: ElementType::F32,
        })
        .unwrap();
    let options = Options::decoder(Activations::F32, 64);
    let plan = compile(&graph, &options, target).unwrap();
    let weights = tensors(&plan, &load(&plan, loaded));
    let fused = optimise(&graph, &options, target, None).unwrap();

    let config = &loaded.model.config;
    let ints = |values: Vec<usize>| {
        Tensor::i32(
            &[values.len()],
            values.into_iter().map(|v| v as i32).collect(),
        )
    };
    let n = tokens.len();
    let mut inputs = vec![
        ints(tokens.iter().map(|&t| t as usize).collect()),
        ints((0..n).collect()),
        ints((0..n).collect()),
        ints(vec![0; n]),
        Tensor::i32(&[1, 1], vec![0]),
        ints(positions.to_vec()),
    ];
    let pool = [1, 2, config.kv_heads, 32, config.head_dim];
    inputs.extend((0..config.layers).map(|_| Tensor::f32(&pool, vec![0.0; pool.iter().product()])));
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let results = interpret(&fused, &inputs, |name| weights.get(name).cloned()).unwrap();
    results[1]
        .as_f32()
        .chunks_exact(config.vocabulary)
        .map(<[f32]>::to_vec)
        .collect()
}

fn check(loaded: &Loaded, wanted: &[Vec<f32>]) {
    let expected = expected();
    for request in [
        LayoutRequest {
            rows: 1,
            placement: Placement::Apart,
        },
        LayoutRequest {
            rows: 8,
            placement: Placement::Inline,
        },
        LayoutRequest {
            rows: 16,
            placement: Placement::Inline,
        },
    ] {
        let found = logits(
            loaded,
            &ReferenceTarget { request },
            &expected.tokens,
            &expected.positions,
        );
        for (found, wanted) in found.iter().zip(wanted) {
            let error = relative_error(found, wanted);
            assert!(error < 2e-6, "{request:?}: {error:e}");
        }
    }
}

#[test]
fn gguf_gives_the_logits() {
    check(&tiny_gguf(), &expected().default);
}

#[test]
fn a_hugging_face_folder_gives_the_logits() {
    check(&tiny_hf("config.json"), &expected().default);
}

#[test]
fn llama3_scaling_gives_the_logits() {
    check(&tiny_hf("llama3.json"), &expected().llama3);
}

#[test]
fn both_sources_give_the_same_graph_but_for_the_pairing() {
    let text = |loaded: &Loaded| {
        loaded
            .model
            .graph(GraphOptions::default())
            .unwrap()
            .to_string()
    };
    let (gguf, hf) = (text(&tiny_gguf()), text(&tiny_hf("config.json")));
    let nodes = |text: &str| {
        let lines = text
            .lines()
            .filter(|l| l.trim_start().starts_with(['%', 'r', 'i']));
        // Matrices are stored differently; everything that is computed must be the same.
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let (gguf, hf) = (nodes(&gguf), nodes(&hf));
    assert_eq!(gguf.len(), hf.len());
    for (a, b) in gguf.iter().zip(&hf) {
        assert_eq!(a.replace("interleaved", "halves"), *b);
    }
    assert!(gguf.iter().any(|l| l.contains("interleaved")), "{gguf:?}");
}
