//! Symbolic dims, shapes and value types.

use std::fmt;

use ingle_quant::{ElementType, Storage};
use serde::{Deserialize, Serialize};

use crate::ops::KV_BLOCK;

/// A dimension that is known only when a step runs. The host knows all of them before it launches anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Symbol {
    /// Packed rows of a step: tokens of any sequences together.
    Tokens,
    /// Rows whose logits are wanted.
    Outputs,
    /// Sequences in a step.
    Batch,
    /// Entries of one sequence's block table.
    Table,
    /// Blocks of the KV pool.
    Pool,
    /// Positions that one sequence's table reaches: `table · KV_BLOCK`. Derived, never given.
    Context,
}

impl Symbol {
    pub const ALL: [Symbol; 6] = [
        Symbol::Tokens,
        Symbol::Outputs,
        Symbol::Batch,
        Symbol::Table,
        Symbol::Pool,
        Symbol::Context,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Symbol::Tokens => "tokens",
            Symbol::Outputs => "outputs",
            Symbol::Batch => "batch",
            Symbol::Table => "table",
            Symbol::Pool => "pool",
            Symbol::Context => "context",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// One dimension of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dim {
    Const(usize),
    Sym(Symbol),
}

impl Dim {
    /// The dimension's size under `dims`.
    pub fn resolve(self, dims: &Dims) -> usize {
        match self {
            Dim::Const(n) => n,
            Dim::Sym(s) => dims.get(s),
        }
    }

    /// The size if it does not depend on a symbol.
    pub fn constant(self) -> Option<usize> {
        match self {
            Dim::Const(n) => Some(n),
            Dim::Sym(_) => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Dim::Const(n)
    }
}

impl From<Symbol> for Dim {
    fn from(s: Symbol) -> Self {
        Dim::Sym(s)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(n) => write!(f, "{n}"),
            Dim::Sym(s) => f.write_str(s.name()),
        }
    }
}

/// The values of all symbols in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dims {
    tokens: usize,
    outputs: usize,
    batch: usize,
    table: usize,
    pool: usize,
}

impl Dims {
    pub fn get(&self, symbol: Symbol) -> usize {
        match symbol {
            Symbol::Tokens => self.tokens,
            Symbol::Outputs => self.outputs,
            Symbol::Batch => self.batch,
            Symbol::Table => self.table,
            Symbol::Pool => self.pool,
            Symbol::Context => self.table.saturating_mul(KV_BLOCK),
        }
    }

    /// Sets a symbol; a context is given as the blocks that it takes.
    pub fn set(&mut self, symbol: Symbol, value: usize) {
        match symbol {
            Symbol::Tokens => self.tokens = value,
            Symbol::Outputs => self.outputs = value,
            Symbol::Batch => self.batch = value,
            Symbol::Table => self.table = value,
            Symbol::Pool => self.pool = value,
            Symbol::Context => self.table = value.div_ceil(KV_BLOCK),
        }
    }

    pub fn with(mut self, symbol: Symbol, value: usize) -> Self {
        self.set(symbol, value);
        self
    }
}

/// A shape, outermost dimension first, as in PyTorch: a weight is `[rows, k]`.
pub type Shape = Vec<Dim>;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueType {
    pub storage: Storage,
    pub shape: Shape,
    /// A version of a state buffer (the KV cache), which is written in place.
    pub state: bool,
}

impl ValueType {
    pub fn new(element: ElementType, shape: impl Into<Shape>) -> Self {
        ValueType {
            storage: Storage::Element(element),
            shape: shape.into(),
            state: false,
        }
    }

    pub fn f32(shape: impl Into<Shape>) -> Self {
        Self::new(ElementType::F32, shape)
    }

    pub fn i32(shape: impl Into<Shape>) -> Self {
        Self::new(ElementType::I32, shape)
    }

    pub fn state(element: ElementType, shape: impl Into<Shape>) -> Self {
        ValueType {
            state: true,
            ..Self::new(element, shape)
        }
    }

    /// The element type, if the value is not quantised.
    pub fn element(&self) -> Option<ElementType> {
        match self.storage {
            Storage::Element(e) => Some(e),
            Storage::Quant(_) => None,
        }
    }

    pub fn is_quantised(&self) -> bool {
        matches!(self.storage, Storage::Quant(_))
    }

    /// The size of the last dimension, which every value of rank ≥ 1 that the ops compute on has constant.
    pub fn last(&self) -> Option<usize> {
        self.shape.last().and_then(|d| d.constant())
    }

    /// Elements under `dims`; `None` on overflow.
    pub fn elements(&self, dims: &Dims) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul(d.resolve(dims)))
    }
}

/// Builds a shape from constants and symbols: `shape![Symbol::Tokens, 576]`.
#[macro_export]
macro_rules! shape {
    ($($d:expr),* $(,)?) => { vec![$($crate::Dim::from($d)),*] };
}
