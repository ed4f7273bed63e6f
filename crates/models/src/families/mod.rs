//! The families: one file each, one row for each architecture name.

mod llama;

use ingle_graph::ops::Pairing;
use ingle_graph::{Graph, verify};
use ingle_quant::ElementType;

use crate::{Model, ModelError};

/// An architecture: what files call it, and what its family has to know about it.
pub struct Architecture {
    /// GGUF's `general.architecture`.
    pub name: &'static str,
    /// Hugging Face's `architectures[0]`.
    pub hugging_face: &'static str,
    /// How GGUF orders the rows of queries and keys. Hugging Face's are always halves.
    pub gguf_pairing: Pairing,
    /// Queries, keys and values always have a bias. Otherwise they have one where the file says so.
    pub qkv_bias: bool,
    build: fn(&Model, GraphOptions) -> Result<Graph, ModelError>,
}

/// All architectures.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        hugging_face: "LlamaForCausalLM",
        gguf_pairing: Pairing::Interleaved,
        qkv_bias: false,
        build: llama::graph,
    },
    Architecture {
        name: "qwen2",
        hugging_face: "Qwen2ForCausalLM",
        gguf_pairing: Pairing::Halves,
        qkv_bias: true,
        build: llama::graph,
    },
];

/// What the graph depends on besides the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// The element of the KV pools: `F16` or `F32`.
    pub kv: ElementType,
}

impl Default for GraphOptions {
    fn default() -> Self {
        GraphOptions {
            kv: ElementType::F16,
        }
    }
}

impl Architecture {
    pub(crate) fn by_name(name: &str) -> Result<&'static Self, ModelError> {
        let known = || {
            ARCHITECTURES
                .iter()
                .map(|a| a.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        ARCHITECTURES
            .iter()
            .find(|a| a.name == name)
            .ok_or_else(|| {
                ModelError::field("general.architecture", format!("one of {}", known()), name)
            })
    }

    pub(crate) fn by_hugging_face(name: &str) -> Result<&'static Self, ModelError> {
        let known = || {
            ARCHITECTURES
                .iter()
                .map(|a| a.hugging_face)
                .collect::<Vec<_>>()
                .join(", ")
        };
        ARCHITECTURES
            .iter()
            .find(|a| a.hugging_face == name)
            .ok_or_else(|| ModelError::field("architectures", format!("one of {}", known()), name))
    }
}

pub(crate) fn graph(model: &Model, options: GraphOptions) -> Result<Graph, ModelError> {
    let graph = (Architecture::by_name(model.config.architecture)?.build)(model, options)?;
    verify(&graph)?;
    all_tensors_used(model, &graph)?;
    Ok(graph)
}

/// A tensor that no leaf reads means that the model computes something else than the graph.
fn all_tensors_used(model: &Model, graph: &Graph) -> Result<(), ModelError> {
    let used: std::collections::HashSet<&str> = graph
        .leaves
        .iter()
        .flat_map(|l| l.recipe.sources())
        .collect();
    match model.sources.iter().find(|(name, _)| !used.contains(name)) {
        Some((name, _)) => {
            let expected = format!(
                "no tensor that the architecture {} does not have",
                model.config.architecture
            );
            Err(ModelError::tensor(name, expected, "it in the file"))
        }
        None => Ok(()),
    }
}
