//! What a kernel spec's arguments are: the argument lists that [`KernelSpec`] states, as data.

use ingle_quant::ElementType;

use crate::kernel::{KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use crate::program::Extra;

/// What a launch does with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Written in place: the KV pool.
    Update,
}

/// What an argument must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// This many elements for each row of the launch.
    PerRow(ElementType, usize),
    /// Rows of this many `f32`, any number of them: an index says which are read.
    AnyRows(usize),
    /// This many `f32`, whatever the rows.
    Vector(usize),
    /// A weight of this layout.
    Matrix {
        layout: WeightLayout,
        rows: usize,
        k: usize,
    },
    /// A KV pool.
    Pool {
        element: ElementType,
        kv_heads: usize,
        head_dim: usize,
    },
    /// A block table `i32[batch, table]`.
    Table,
}

/// One argument of a launch.
pub type Argument = (Access, Needs);

const F32: ElementType = ElementType::F32;
const I32: ElementType = ElementType::I32;

fn read(width: usize) -> Argument {
    (Access::Read, Needs::PerRow(F32, width))
}

fn write(width: usize) -> Argument {
    (Access::Write, Needs::PerRow(F32, width))
}

fn index() -> Argument {
    (Access::Read, Needs::PerRow(I32, 1))
}

fn vector(n: usize) -> Argument {
    (Access::Read, Needs::Vector(n))
}

impl KernelSpec {
    /// The arguments in order; a launch may have a workspace after them. Sizes saturate: what does not fit is refused as
    /// too large for its buffer.
    pub fn arguments(&self) -> Vec<Argument> {
        match self {
            KernelSpec::Embedding {
                layout,
                vocabulary,
                k,
            } => vec![index(), matrix(*layout, *vocabulary, *k), write(*k)],
            KernelSpec::RmsNorm { k, .. } => vec![read(*k), vector(*k), write(*k)],
            KernelSpec::QuantizeActivations { k } | KernelSpec::Softmax { k } => {
                vec![read(*k), write(*k)]
            }
            KernelSpec::Matmul(m) => matmul(m),
            KernelSpec::Rope { op, width, factors } => {
                let mut all = vec![read(*width), index()];
                all.extend(factors.then(|| vector(op.rotary_dim / 2)));
                all.push(write(*width));
                all
            }
            KernelSpec::RopeWrite(r) => rope_write(r),
            KernelSpec::StateWrite {
                kv_heads,
                head_dim,
                kv,
            } => {
                let width = kv_heads.saturating_mul(*head_dim);
                let pool = pool(Access::Update, *kv, *kv_heads, *head_dim);
                vec![read(width), read(width), index(), pool]
            }
            KernelSpec::Attention(a) => {
                let width = a.op.heads.saturating_mul(a.head_dim);
                let pool = pool(Access::Read, a.kv, a.kv_heads, a.head_dim);
                let table = (Access::Read, Needs::Table);
                vec![read(width), pool, index(), index(), table, write(width)]
            }
            KernelSpec::Elementwise { n, program } => {
                let mut all: Vec<Argument> = program.extras.iter().map(|e| extra(*e, *n)).collect();
                all.push(write(*n));
                all
            }
            KernelSpec::Reduce { k, .. } => vec![read(*k), write(1)],
            KernelSpec::Slice { k, start, end } => {
                vec![read(*k), write(end.saturating_sub(*start))]
            }
            KernelSpec::TakeRows { k } => {
                vec![(Access::Read, Needs::AnyRows(*k)), index(), write(*k)]
            }
            KernelSpec::Argmax { n } => vec![read(*n), (Access::Write, Needs::PerRow(I32, 1))],
        }
    }
}

fn matmul(m: &MatmulSpec) -> Vec<Argument> {
    let rows = m.n.saturating_mul(usize::from(m.epilogue.accumulators));
    let mut all = vec![read(m.k)];
    all.extend(m.norm.map(|_| vector(m.k)));
    all.push(matrix(m.layout, rows, m.k));
    all.extend(m.epilogue.extras.iter().map(|e| extra(*e, m.n)));
    all.push(write(m.n));
    all
}

fn rope_write(r: &RopeWriteSpec) -> Vec<Argument> {
    let sources = if r.packed { 1 } else { 3 };
    let mut all: Vec<Argument> = r.widths[..sources].iter().map(|w| read(*w)).collect();
    all.extend([index(), index()]);
    all.extend(r.factors.then(|| vector(r.rope.rotary_dim / 2)));
    all.push(pool(Access::Update, r.kv, r.kv_heads, r.head_dim));
    all.push(write(r.heads.saturating_mul(r.head_dim)));
    all
}

fn matrix(layout: WeightLayout, rows: usize, k: usize) -> Argument {
    (Access::Read, Needs::Matrix { layout, rows, k })
}

fn pool(access: Access, element: ElementType, kv_heads: usize, head_dim: usize) -> Argument {
    let needs = Needs::Pool {
        element,
        kv_heads,
        head_dim,
    };
    (access, needs)
}

fn extra(kind: Extra, n: usize) -> Argument {
    match kind {
        Extra::Full => read(n),
        Extra::Column => vector(n),
        Extra::Row => read(1),
        Extra::Scalar => vector(1),
    }
}
