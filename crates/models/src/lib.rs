//! Model families: the header of a file (or of a folder of files) becomes a [`Config`], a table of [`Sources`] and a
//! `Graph`; and [`WeightLoader`] says which bytes of which file a plan's weights come from.
//!
//! ```text
//! GGUF header ─┐                      ┌─ graph(kv) ─ compile ─ Plan
//!              ├─ Model{config,sources}                          │
//! config.json ─┘                      └─ sources ── WeightLoader ┴─ writes of packed bytes
//! + safetensors headers
//! ```
//!
//! Leaves are named as GGUF names tensors, whatever the file is: from a Hugging Face folder only the recipes differ
//! (their sources have Hugging Face's names) and the rotary pairing. Pure: bytes and values in, values out.

mod config;
mod error;
mod families;
mod gguf;
mod hf;
mod load;
mod names;
mod source;

pub use config::{Biases, Config, RopeConfig};
pub use error::ModelError;
pub use families::{ARCHITECTURES, Architecture, GraphOptions};
pub use load::{LoadError, MAX_READ, Read, WeightLoader, WriteWeight};
pub use source::{Place, Source, Sources};

use ingle_formats::{gguf::Manifest, safetensors};
use ingle_graph::Graph;

/// A model: what its files say, without their weights.
#[derive(Clone, Debug)]
pub struct Model {
    pub config: Config,
    /// Every tensor that the graph's recipes name.
    pub sources: Sources,
}

impl Model {
    /// Reads the model that a GGUF file describes. The file has index 0 in [`Sources`].
    pub fn from_gguf(manifest: &Manifest) -> Result<Self, ModelError> {
        gguf::read(manifest)
    }

    /// Reads the model that a Hugging Face folder describes: the bytes of its `config.json`, and the headers of its
    /// safetensors files, whose positions in `shards` are their indices in [`Sources`].
    pub fn from_hf(config: &[u8], shards: &[safetensors::Manifest]) -> Result<Self, ModelError> {
        hf::read(config, shards)
    }

    /// The graph of the model, verified.
    ///
    /// Inputs, in this order: `ids`, `pos`, `slots`, `seq` (each `i32[tokens]`), `table` (`i32[batch, table]`),
    /// `output_rows` (`i32[outputs]`), then one state `kv.N` a layer. Results: `next` (`i32[outputs]`, the largest
    /// logit's index), `logits` (`f32[outputs, vocabulary]`), then the last version of every state.
    pub fn graph(&self, options: GraphOptions) -> Result<Graph, ModelError> {
        families::graph(self, options)
    }
}
