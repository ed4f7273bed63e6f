//! `Plan`: how to compute a graph on one target.
//!
//! One layout per weight and one set of state buffers, shared by several entries (decode, prefill). An entry has a few
//! variants with guards on host-known dims; a variant is a flat list of launches. Running one is a dumb loop.

mod arguments;
mod check;
mod pack;
mod text;

pub use arguments::{Access, Argument, Needs};
pub use check::check;
pub use pack::{PackError, ReadRows, SourceRows, WriteBytes};

use ingle_quant::{ElementType, Storage};
use serde::{Deserialize, Serialize};

use crate::kernel::{KernelSpec, WeightLayout};
use crate::{Dims, Recipe, Shape, Symbol};

/// The version of the serialised form; a plan of another version is refused.
pub const PLAN_VERSION: u32 = 1;

/// How to compute a graph on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub version: u32,
    pub graph: String,
    /// The target's name and what it assumes, e.g. `cpu rows8`.
    pub target: String,
    pub weights: Vec<Weight>,
    pub states: Vec<State>,
    pub inputs: Vec<Port>,
    pub results: Vec<Port>,
    /// Buffers that live within a step.
    pub scratch: Vec<Scratch>,
    pub kernels: Vec<Kernel>,
    pub entries: Vec<Entry>,
}

/// A weight: where it comes from and how its bytes lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weight {
    pub name: String,
    pub recipe: Recipe,
    /// What the recipe's rows are before packing.
    pub storage: Storage,
    pub rows: usize,
    /// Elements of a row.
    pub k: usize,
    pub layout: WeightLayout,
    pub bytes: u64,
}

/// A state buffer (one layer's KV pool): written in place, kept from step to step, grown by the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub name: String,
    pub element: ElementType,
    /// `[pool, …]`: grows along the first dimension, which keeps what is there in place.
    pub shape: Shape,
}

/// An input or a result, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub name: String,
    pub element: ElementType,
    pub shape: Shape,
}

/// A buffer that is reused within a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scratch {
    pub bytes: Size,
}

/// A size as a linear function of one symbol: `constant + per · symbol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub constant: u64,
    pub per: u64,
    pub symbol: Symbol,
}

impl Size {
    pub const fn constant(bytes: u64) -> Self {
        Size {
            constant: bytes,
            per: 0,
            symbol: Symbol::Tokens,
        }
    }

    /// The value under `dims`; `None` on overflow.
    pub fn resolve(&self, dims: &Dims) -> Option<u64> {
        self.per
            .checked_mul(dims.get(self.symbol) as u64)?
            .checked_add(self.constant)
    }
}

/// A row of the kernel table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    pub spec: KernelSpec,
    /// Which of the target's candidates was chosen, e.g. `rows8` or `matvec t64 r4`; data for the backend.
    pub candidate: String,
    /// Why it was chosen.
    pub why: String,
    /// The shader, on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<KernelText>,
}

/// The source of a GPU kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelText {
    pub language: Language,
    pub source: String,
    pub entry: String,
    pub workgroup: [u32; 3],
    /// For each binding, whether the kernel writes it.
    pub writes: Vec<bool>,
}

/// The language of a [`KernelText`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    Wgsl,
    Spirv,
    Msl,
    Cuda,
}

/// A way to run the plan: `decode`, `prefill`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    /// An input that is taken from the last step's result instead (the token fed back): `(input, result)`.
    pub fed: Option<(u32, u32)>,
    /// In order; the first whose guard holds runs.
    pub variants: Vec<Variant>,
}

/// A list of launches for a range of dims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// All must hold: `low ≤ symbol ≤ high`.
    pub guards: Vec<Guard>,
    pub launches: Vec<Launch>,
}

/// `low ≤ symbol ≤ high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub symbol: Symbol,
    pub low: usize,
    pub high: usize,
}

impl Variant {
    pub fn admits(&self, dims: &Dims) -> bool {
        self.guards
            .iter()
            .all(|g| (g.low..=g.high).contains(&dims.get(g.symbol)))
    }
}

/// One launch: which kernel, on which buffers, over how many rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Index into [`Plan::kernels`].
    pub kernel: u32,
    /// In the order that the spec states.
    pub arguments: Vec<Buffer>,
    /// The symbol that counts the launch's rows.
    pub rows: Rows,
    /// Where in the graph it comes from, e.g. `blk.0 attn_q + attn_k + attn_v`.
    pub label: String,
}

/// How many rows a launch computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    Const(usize),
    Sym(Symbol),
}

impl Rows {
    pub fn resolve(self, dims: &Dims) -> usize {
        match self {
            Rows::Const(n) => n,
            Rows::Sym(s) => dims.get(s),
        }
    }
}

/// A buffer that a launch binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    Weight(u32),
    State(u32),
    Input(u32),
    Result(u32),
    Scratch(u32),
}
