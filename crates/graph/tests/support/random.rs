//! Random well-typed graphs of the ops that passes rewrite, with inputs and weights.
//!
//! Magnitudes are kept in bounds, so that results that were rounded in another order stay near each other.

use ingle_graph::ops::{
    Attention, Binary, Constant, EltOp, Geglu, KV_BLOCK, Matmul, Op, Pairing, Reduce, Reduction,
    RmsNorm, Rope, Slice, Softcap, Softmax, StateWrite, Swiglu, Unary,
};
use ingle_graph::passes::decompose_all;
use ingle_graph::suite::{Case, CaseBuilder, Suite};
use ingle_graph::{Symbol, ValueId, shape};
use ingle_quant::{ElementType, GgmlType};

const WIDTHS: [usize; 3] = [32, 64, 96];
const TYPES: [GgmlType; 5] = [
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::Q4_0,
    GgmlType::Q4_1,
    GgmlType::Q8_0,
];
/// Those that are recognised come more than once.
const UNARY: [EltOp; 18] = [
    EltOp::Neg,
    EltOp::Abs,
    EltOp::Tanh,
    EltOp::Sigmoid,
    EltOp::Silu,
    EltOp::Relu,
    EltOp::Gelu,
    EltOp::GeluTanh,
    EltOp::Sin,
    EltOp::Cos,
    EltOp::Erf,
    EltOp::Silu,
    EltOp::Gelu,
    EltOp::Gelu,
    EltOp::Gelu,
    EltOp::GeluTanh,
    EltOp::GeluTanh,
    EltOp::GeluTanh,
];
const BINARY: [EltOp; 5] = [EltOp::Add, EltOp::Sub, EltOp::Mul, EltOp::Min, EltOp::Max];

/// A matrix `[tokens, width]` of the graph, with about the largest magnitude that it holds.
#[derive(Clone, Copy)]
struct Matrix {
    id: ValueId,
    width: usize,
    size: f32,
}

/// The graph with this number; half of them are taken apart into primitive ops.
pub fn case(number: u64) -> Case {
    let mut suite = Suite::new(number.wrapping_mul(1 << 20));
    let mut generator = Generator::new(&mut suite, number);
    let steps = 4 + generator.below(10);
    (0..steps).for_each(|_| generator.step());
    generator.finish();
    let mut case = suite.into_cases().remove(0);
    if apart(number) {
        case.graph = decompose_all(&case.graph).expect("composite ops decompose");
    }
    case
}

fn apart(number: u64) -> bool {
    number % 2 == 1
}

struct Generator<'a> {
    c: CaseBuilder<'a>,
    rows: usize,
    /// Recognising will change it: the graph will be taken apart, or has ops that are decomposed.
    changes: bool,
    matrices: Vec<Matrix>,
    /// What was pushed, to be pushed again.
    pushed: Vec<(Op, Vec<ValueId>, Matrix)>,
    states: Vec<ValueId>,
    /// `pos`, `slots`, `seq` and `table`.
    indices: [ValueId; 4],
    names: usize,
}

impl<'a> Generator<'a> {
    fn new(suite: &'a mut Suite, number: u64) -> Self {
        let rows = 1 + number as usize % 4;
        let mut c = suite.case(format!("random {number}")).dims(&[
            (Symbol::Tokens, rows),
            (Symbol::Pool, 2),
            (Symbol::Table, 1),
        ]);
        if number % 4 >= 2 {
            c = c.int8();
        }
        let range = |from: usize| (from..from + rows).map(|i| i as i32).collect::<Vec<_>>();
        // Not from 0 on, where nothing is rotated and a row sees only itself.
        let indices = [
            c.i32("pos", shape![Symbol::Tokens], range(3)),
            c.i32("slots", shape![Symbol::Tokens], range(KV_BLOCK + 3)),
            c.i32("seq", shape![Symbol::Tokens], vec![0; rows]),
            c.i32("table", shape![Symbol::Batch, Symbol::Table], vec![1]),
        ];
        let mut matrices = Vec::new();
        for (i, width) in WIDTHS.into_iter().enumerate() {
            let id = c.f32(&format!("x{i}"), shape![Symbol::Tokens, width], 2.0);
            let size = 2.0;
            matrices.push(Matrix { id, width, size });
        }
        Generator {
            c,
            rows,
            changes: apart(number) || number % 4 == 2,
            matrices,
            pushed: vec![],
            states: vec![],
            indices,
            names: 0,
        }
    }

    fn step(&mut self) {
        let x = self.any();
        match self.below(18) {
            0 => self.unary(x),
            1 => self.binary(x),
            2 => self.with_constant(x),
            3 => self.with_vector(x),
            4 => self.with_row(x),
            5 => self.bounded(x),
            6 => {
                let y = self.matmul(x, false);
                self.residual(y);
            }
            7 => self.projections(x, false),
            8 => self.projections(x, true),
            9 => self.gate_up(x),
            10 | 11 => self.attention(x),
            12 => self.again(),
            13 => self.unused(x),
            14 => self.epilogue(x),
            15 | 16 => self.unary(x),
            _ => self.slice(x),
        }
    }

    /// Declares the last matrix and perhaps others as results, and adds the case.
    fn finish(self) {
        let mut results: Vec<ValueId> = Vec::new();
        let computed = self.matrices.iter().skip(WIDTHS.len()).rev();
        for (i, m) in computed.enumerate() {
            if (i == 0 || i % 3 == 1 && results.len() < 3) && !results.contains(&m.id) {
                results.push(m.id);
            }
        }
        let mut c = self.c;
        if results.is_empty() {
            results.push(c.push(unary(EltOp::Neg), &[self.matrices[0].id]));
        }
        results.extend(self.states);
        c.build(&results);
    }

    fn below(&mut self, n: usize) -> usize {
        self.c.random.below(n)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A matrix, a late one rather than an early one, of a size that ops can take.
    fn any(&mut self) -> Matrix {
        let from = self.matrices.len().saturating_sub(5);
        let late = self.matrices[from..].to_vec();
        let x = self.pick(&late);
        match x.size > 20.0 {
            true => self.norm(x),
            false => x,
        }
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId], width: usize, size: f32) -> Matrix {
        let op = op.into();
        let id = self.c.push(op.clone(), inputs);
        let m = Matrix { id, width, size };
        self.pushed.push((op, inputs.to_vec(), m));
        self.matrices.push(m);
        m
    }

    fn vector(&mut self, width: usize) -> ValueId {
        self.names += 1;
        self.c.vector(&format!("v{}", self.names), width)
    }

    fn weight(&mut self, ty: GgmlType, rows: usize, k: usize) -> ValueId {
        self.names += 1;
        self.c.weight(&format!("w{}", self.names), ty, rows, k)
    }

    fn unary(&mut self, x: Matrix) {
        let kind = self.pick(&UNARY);
        let bounded = matches!(
            kind,
            EltOp::Tanh | EltOp::Sigmoid | EltOp::Sin | EltOp::Cos | EltOp::Erf
        );
        let size = if bounded { 1.0 } else { x.size };
        self.push(unary(kind), &[x.id], x.width, size);
    }

    fn binary(&mut self, x: Matrix) {
        let fits = |m: &&Matrix| m.width == x.width;
        let others: Vec<Matrix> = self.matrices.iter().filter(fits).copied().collect();
        let y = self.pick(&others);
        if self.changes && self.below(3) == 0 {
            self.push(Geglu {}, &[x.id, y.id], x.width, x.size * y.size);
            return;
        }
        let kind = self.pick(&BINARY);
        let size = match kind {
            EltOp::Mul => x.size * y.size,
            _ => x.size + y.size,
        };
        self.push(binary(kind), &[x.id, y.id], x.width, size);
    }

    /// An op with a constant, which may be computed from others.
    fn with_constant(&mut self, x: Matrix) {
        let value = 0.5 + self.c.random.unit().abs();
        let mut c = self.c.push(Constant { value }, &[]);
        if self.below(3) > 0 {
            let other = self.c.push(Constant { value: 1.25 }, &[]);
            c = self.c.push(binary(EltOp::Add), &[c, other]);
            if self.below(2) == 0 {
                c = self.c.push(unary(EltOp::Tanh), &[c]);
            }
        }
        let kind = self.pick(&BINARY);
        self.push(binary(kind), &[x.id, c], x.width, 3.0 * x.size + 3.0);
    }

    /// An op with a vector of weights, to which something may have been added.
    fn with_vector(&mut self, x: Matrix) {
        let mut v = self.vector(x.width);
        if self.below(4) > 0 {
            v = self.edited(v);
        }
        let kind = self.pick(&BINARY);
        self.push(binary(kind), &[x.id, v], x.width, 4.0 * x.size + 4.0);
    }

    fn edited(&mut self, v: ValueId) -> ValueId {
        let value = 0.5 + self.c.random.unit().abs();
        let c = self.c.push(Constant { value }, &[]);
        match self.below(3) {
            0 => self.c.push(binary(EltOp::Sub), &[v, c]),
            1 => self.c.push(binary(EltOp::Mul), &[c, v]),
            _ => self.c.push(binary(EltOp::Add), &[v, c]),
        }
    }

    fn with_row(&mut self, x: Matrix) {
        let kind = self.pick(&[Reduction::Sum, Reduction::Mean, Reduction::Max]);
        let row = self.c.push(Reduce { kind }, &[x.id]);
        let row = self.c.push(unary(EltOp::Tanh), &[row]);
        self.push(binary(EltOp::Mul), &[x.id, row], x.width, x.size);
    }

    fn norm(&mut self, x: Matrix) -> Matrix {
        let mut w = self.vector(x.width);
        if self.below(3) == 0 {
            w = self.edited(w);
        }
        // A large epsilon, so that what is nearly zero is not blown up with its rounding errors.
        self.push(RmsNorm { eps: 0.01 }, &[x.id, w], x.width, 8.0)
    }

    fn bounded(&mut self, x: Matrix) {
        match self.below(3) {
            0 => {
                let cap = 1.0 + self.c.random.unit().abs();
                self.push(Softcap { cap }, &[x.id], x.width, cap);
            }
            1 => {
                self.push(Softmax {}, &[x.id], x.width, 1.0);
            }
            _ => {
                self.norm(x);
            }
        }
    }

    fn slice(&mut self, x: Matrix) {
        let width = 32 * (1 + self.below(x.width / 32));
        let start = self.below(x.width - width + 1);
        let end = start + width;
        self.push(Slice { start, end }, &[x.id], width, x.size);
    }

    fn matmul(&mut self, x: Matrix, bias: bool) -> Matrix {
        let ty = self.pick(&TYPES);
        let n = self.pick(&WIDTHS);
        let w = self.weight(ty, n, x.width);
        let size = 8.0 * x.size;
        let y = self.push(Matmul {}, &[x.id, w], n, size);
        if !bias {
            return y;
        }
        let b = self.vector(n);
        self.push(binary(EltOp::Add), &[y.id, b], n, size + 2.0)
    }

    fn residual(&mut self, y: Matrix) {
        let same = |m: &&Matrix| m.width == y.width && m.id != y.id;
        if let Some(x) = self.matrices.iter().rev().find(same).copied() {
            let size = x.size + y.size;
            self.push(binary(EltOp::Add), &[x.id, y.id], y.width, size);
        }
    }

    /// A product followed by element-wise ops.
    fn epilogue(&mut self, x: Matrix) {
        let bias = self.below(2) == 0;
        let y = self.matmul(x, bias);
        let y = match self.below(2) {
            0 => self.push(Softcap { cap: 3.0 }, &[y.id], y.width, 3.0),
            _ => self.push(unary(EltOp::Tanh), &[y.id], y.width, 1.0),
        };
        match self.below(3) {
            0 => self.residual(y),
            1 => self.unary(y),
            _ => {}
        }
    }

    /// Two or three products of one input, of weights that may or may not be of one type.
    fn projections(&mut self, x: Matrix, bias: bool) {
        let x = if self.below(2) == 0 { self.norm(x) } else { x };
        let ty = self.pick(&TYPES);
        for _ in 0..2 + self.below(2) {
            let ty = if self.below(8) == 0 {
                GgmlType::F32
            } else {
                ty
            };
            let n = self.pick(&WIDTHS);
            let w = self.weight(ty, n, x.width);
            if bias {
                let y = self.c.push(Matmul {}, &[x.id, w]);
                let b = self.vector(n);
                self.push(binary(EltOp::Add), &[y, b], n, 8.0 * x.size + 2.0);
            } else {
                self.push(Matmul {}, &[x.id, w], n, 8.0 * x.size);
            }
        }
    }

    fn gate_up(&mut self, x: Matrix) {
        let x = if self.below(2) == 0 { self.norm(x) } else { x };
        let (ty, n) = (self.pick(&TYPES), self.pick(&WIDTHS));
        let [gate, up] = [0, 1].map(|_| {
            let w = self.weight(ty, n, x.width);
            self.push(Matmul {}, &[x.id, w], n, 8.0 * x.size)
        });
        let size = gate.size * up.size;
        let y = match self.below(3) {
            0 => {
                let kind = self.pick(&[EltOp::GeluTanh, EltOp::Sigmoid, EltOp::Relu]);
                let bent = self.push(unary(kind), &[gate.id], n, gate.size);
                self.push(binary(EltOp::Mul), &[up.id, bent.id], n, size)
            }
            1 if self.changes => self.push(Geglu {}, &[gate.id, up.id], n, size),
            _ => self.push(Swiglu {}, &[gate.id, up.id], n, size),
        };
        let w = self.weight(ty, x.width, n);
        let y = self.norm(y);
        let y = self.push(Matmul {}, &[y.id, w], x.width, 64.0);
        if self.below(2) == 0 {
            self.residual(y);
        }
    }

    fn attention(&mut self, x: Matrix) {
        let (kv_heads, d) = (1 + self.below(2), 32);
        let heads = kv_heads * (1 + self.below(2));
        let x = self.norm(x);
        let ty = self.pick(&TYPES);
        let [q, k, v] = [heads, kv_heads, kv_heads].map(|h| {
            let w = self.weight(ty, h * d, x.width);
            self.push(Matmul {}, &[x.id, w], h * d, 64.0)
        });
        let [pos, slots, seq, table] = self.indices;
        let rope = Rope {
            head_dim: d,
            rotary_dim: self.pick(&[8, 32]),
            base: 100.0,
            scale: 1.0,
            pairing: self.pick(&[Pairing::Interleaved, Pairing::Halves]),
        };
        let mut inputs = vec![pos];
        if self.below(3) == 0 {
            inputs.push(self.vector(rope.rotary_dim / 2));
        }
        let [q, k] = [q, k].map(|x| {
            let inputs = [&[x.id], &inputs[..]].concat();
            self.push(rope.clone(), &inputs, x.width, x.size)
        });
        self.names += 1;
        // What recognising rounds otherwise can fall to either side in a pool of halves.
        let element = match self.changes {
            true => ElementType::F32,
            false => self.pick(&[ElementType::F32, ElementType::F16]),
        };
        let name = format!("kv{}", self.names);
        let kv = self.c.state(&name, element, kv_heads, d);
        let kv = self.c.push(StateWrite {}, &[kv, k.id, v.id, slots]);
        self.states.push(kv);
        let attention = Attention {
            heads,
            scale: 0.01,
            softcap: [None, Some(2.0)][self.below(2)],
            window: [None, Some(2)][self.below(2).min(self.rows - 1)],
        };
        self.push(attention, &[q.id, kv, pos, seq, table], heads * d, 64.0);
    }

    /// What was computed before, computed again and used beside it.
    fn again(&mut self) {
        let Some((op, inputs, m)) = self.pushed.last().cloned() else {
            return;
        };
        let twin = self.push(op, &inputs, m.width, m.size);
        self.push(binary(EltOp::Add), &[m.id, twin.id], m.width, 2.0 * m.size);
    }

    /// Nodes that nobody reads.
    fn unused(&mut self, x: Matrix) {
        let y = self.c.push(unary(EltOp::Neg), &[x.id]);
        self.c.push(Softmax {}, &[y]);
    }
}

pub fn unary(kind: EltOp) -> Unary {
    Unary { kind }
}

pub fn binary(kind: EltOp) -> Binary {
    Binary { kind }
}
