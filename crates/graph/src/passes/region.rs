//! Reads a region as one launch: which spec, which arguments.

use std::collections::HashMap;

use super::fuse::extra_kind;
use super::inline::is_elementwise;
use crate::kernel::{Activations, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use crate::ops::{Op, Rope};
use crate::program::{Operand, Program, Step};
use crate::{Dim, Graph, Node, ValueId, ValueType};

/// A launch in terms of the region's values: what it reads, then what it writes.
#[derive(Debug)]
pub(super) struct Region {
    pub spec: KernelSpec,
    pub reads: Vec<ValueId>,
    pub writes: Vec<ValueId>,
    /// The dimension that counts the launch's rows.
    pub rows: Dim,
}

/// Reads `region` as one launch, or says why it is none. `layout` gives the layout of a weight by its region value.
pub(super) fn read(
    region: &Graph,
    layout: impl Fn(ValueId) -> Result<WeightLayout, String>,
) -> Result<Region, String> {
    let find = |wanted: fn(&Op) -> bool| region.nodes.iter().find(|n| wanted(&n.op));
    if let Some(matmul) = find(|op| matches!(op, Op::Matmul(_))) {
        read_matmul(region, matmul, layout(matmul.inputs[1])?)
    } else if let Some(write) = find(|op| matches!(op, Op::StateWrite(_))) {
        read_rope_write(region, write)
    } else if region
        .nodes
        .iter()
        .all(|n| is_elementwise(&n.op) || matches!(n.op, Op::Constant(_)))
    {
        read_elementwise(region)
    } else {
        Err("no launch computes this region".into())
    }
}

fn read_matmul(region: &Graph, matmul: &Node, layout: WeightLayout) -> Result<Region, String> {
    let mut x = matmul.inputs[0];
    let mut activations = Activations::F32;
    let mut norm = None;
    if let Some(Node {
        op: Op::QuantizeActivations(_),
        inputs,
        ..
    }) = region.producer(x)
    {
        activations = Activations::Int8;
        x = inputs[0];
    }
    if let Some(Node {
        op: Op::RmsNorm(n),
        inputs,
        ..
    }) = region.producer(x)
    {
        norm = Some((n.eps, inputs[1]));
        x = inputs[0];
    }
    let y = matmul.outputs[0];
    let mut builder = Builder::new(region, y);
    builder.accumulators(y)?;
    let result = builder.steps()?;
    let k = region
        .ty(matmul.inputs[0])
        .last()
        .ok_or("the width of x is not constant")?;
    let mut reads = vec![x];
    reads.extend(norm.map(|n| n.1));
    reads.push(matmul.inputs[1]);
    reads.extend(&builder.extras);
    let spec = KernelSpec::Matmul(MatmulSpec {
        layout,
        k,
        n: builder.n,
        norm: norm.map(|n| n.0),
        activations,
        epilogue: builder.program,
    });
    Ok(Region {
        spec,
        reads,
        writes: vec![result],
        rows: builder.rows,
    })
}

fn read_elementwise(region: &Graph) -> Result<Region, String> {
    let last = region.results.first().copied().ok_or("no result")?;
    let mut builder = Builder::new(region, last);
    let result = builder.steps()?;
    let spec = KernelSpec::Elementwise {
        n: builder.n,
        program: builder.program,
    };
    Ok(Region {
        spec,
        reads: builder.extras,
        writes: vec![result],
        rows: builder.rows,
    })
}

fn read_rope_write(region: &Graph, write: &Node) -> Result<Region, String> {
    let [kv, k, v, slots] = write.inputs[..] else {
        return Err("state_write takes four inputs".into());
    };
    let rows = region.ty(slots).shape[0];
    let shape = &region.ty(kv).shape;
    let (Some(kv_heads), Some(head_dim)) = (shape[2].constant(), shape[4].constant()) else {
        return Err("the pool's heads are not constant".into());
    };
    let element = region.ty(kv).element().ok_or("a quantised pool")?;
    let Some((query, key, rope)) = rotations(region, k)? else {
        let spec = KernelSpec::StateWrite {
            kv_heads,
            head_dim,
            kv: element,
        };
        return Ok(Region {
            spec,
            reads: vec![k, v, slots],
            writes: vec![write.outputs[0]],
            rows,
        });
    };
    let parts = [query.inputs[0], key.inputs[0], v].map(|value| source(region, value));
    let packed = parts.iter().all(|p| p.0 == parts[0].0);
    let width = |value: ValueId| region.ty(value).last().ok_or("a width is not constant");
    let sources = if packed { &parts[..1] } else { &parts[..] };
    let mut reads: Vec<ValueId> = sources.iter().map(|p| p.0).collect();
    reads.extend([key.inputs[1], slots]);
    let factors = key.inputs.get(2).copied();
    reads.extend(factors);
    let spec = KernelSpec::RopeWrite(RopeWriteSpec {
        packed,
        widths: [width(parts[0].0)?, width(parts[1].0)?, width(parts[2].0)?],
        starts: parts.map(|p| p.1),
        heads: width(query.outputs[0])? / head_dim,
        kv_heads,
        head_dim,
        rope: rope.clone(),
        factors: factors.is_some(),
        kv: element,
    });
    Ok(Region {
        spec,
        reads,
        writes: vec![write.outputs[0], query.outputs[0]],
        rows,
    })
}

/// The value and the column of it that `value` is cut from.
fn source(region: &Graph, value: ValueId) -> (ValueId, usize) {
    match region.producer(value) {
        Some(Node {
            op: Op::Slice(s),
            inputs,
            ..
        }) => (inputs[0], s.start),
        _ => (value, 0),
    }
}

/// The nodes that turn the queries and the keys `k`, and how; `None` in a region that turns nothing.
fn rotations(region: &Graph, k: ValueId) -> Result<Option<(&Node, &Node, &Rope)>, String> {
    let (mut query, mut key) = (None, None);
    for node in &region.nodes {
        match &node.op {
            Op::Rope(rope) if node.outputs[0] == k => key = Some((node, rope)),
            Op::Rope(_) => query = Some(node),
            _ => {}
        }
    }
    match (query, key) {
        (Some(query), Some((key, rope))) => Ok(Some((query, key, rope))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err("queries are not rotated".into()),
        (Some(_), None) => Err("keys are not rotated".into()),
    }
}

/// Builds the element-wise program of a region.
struct Builder<'a> {
    region: &'a Graph,
    rows: Dim,
    n: usize,
    program: Program,
    extras: Vec<ValueId>,
    operands: HashMap<ValueId, Operand>,
    last: ValueId,
}

impl<'a> Builder<'a> {
    fn new(region: &'a Graph, like: ValueId) -> Self {
        let ty = region.ty(like);
        let program = Program {
            accumulators: 0,
            extras: vec![],
            steps: vec![],
            result: Operand::Acc(0),
        };
        let (rows, n) = rows_and_columns(ty);
        Builder {
            region,
            rows,
            n,
            program,
            extras: vec![],
            operands: HashMap::new(),
            last: like,
        }
    }

    /// Makes `y` the accumulator, or its two halves the two accumulators if the region cuts it.
    fn accumulators(&mut self, y: ValueId) -> Result<(), String> {
        let mut slices: Vec<(&crate::ops::Slice, ValueId)> = Vec::new();
        for node in &self.region.nodes {
            if let (Op::Slice(s), true) = (&node.op, node.inputs.first() == Some(&y)) {
                slices.push((s, node.outputs[0]));
            }
        }
        slices.sort_by_key(|s| s.0.start);
        match slices[..] {
            [] => {
                self.operands.insert(y, Operand::Acc(0));
                self.program.accumulators = 1;
            }
            [(first, low), (second, high)]
                if first.end - first.start == second.end - second.start =>
            {
                self.operands
                    .extend([(low, Operand::Acc(0)), (high, Operand::Acc(1))]);
                self.n = first.end - first.start;
                self.program.accumulators = 2;
            }
            _ => return Err("a matmul cut into other than two halves".into()),
        }
        Ok(())
    }

    /// Turns the element-wise nodes into steps; gives the value that the last one defines.
    fn steps(&mut self) -> Result<ValueId, String> {
        for node in self.region.nodes.iter().filter(|n| is_elementwise(&n.op)) {
            let inputs = node
                .inputs
                .iter()
                .map(|&v| self.operand(v))
                .collect::<Result<Vec<Operand>, String>>()?;
            let value = match step(&node.op, &inputs) {
                Some(step) => self.step(step),
                None => self.parts(node, &inputs)?,
            };
            self.operands.insert(node.outputs[0], value);
            self.program.result = value;
            self.last = node.outputs[0];
        }
        Ok(self.last)
    }

    /// The steps of a composite element-wise op: those that it decomposes into.
    fn parts(&mut self, node: &Node, inputs: &[Operand]) -> Result<Operand, String> {
        let not = || format!("{} is not element-wise", node.op.name());
        let mut parts = Graph::new(node.op.name());
        let types = node.inputs.iter().map(|v| self.region.ty(*v).clone());
        let inner: Vec<ValueId> = types.map(|ty| parts.input("", ty)).collect();
        let results = node.op.decompose(&mut parts, &inner);
        let results = results.map_err(|e| e.to_string())?.ok_or_else(not)?;
        let mut operands: HashMap<ValueId, Operand> =
            inner.into_iter().zip(inputs.iter().copied()).collect();
        for part in &parts.nodes {
            let inputs: Vec<Operand> = part.inputs.iter().map(|v| operands[v]).collect();
            let value = match &part.op {
                Op::Constant(c) => Operand::Const(c.value),
                op => step(op, &inputs).map(|s| self.step(s)).ok_or_else(not)?,
            };
            operands.insert(part.outputs[0], value);
        }
        results.first().map(|v| operands[v]).ok_or_else(not)
    }

    fn step(&mut self, step: Step) -> Operand {
        self.program.steps.push(step);
        Operand::Step((self.program.steps.len() - 1) as u16)
    }

    fn operand(&mut self, value: ValueId) -> Result<Operand, String> {
        if let Some(&operand) = self.operands.get(&value) {
            return Ok(operand);
        }
        let operand = match self.region.producer(value) {
            Some(Node {
                op: Op::Constant(c),
                ..
            }) => Operand::Const(c.value),
            Some(node) => return Err(format!("an epilogue reads a {}", node.op.name())),
            None => {
                let kind =
                    extra_kind(self.region.ty(value), self.rows, self.n).ok_or_else(|| {
                        format!("{} is no input of an epilogue", self.region.ty(value))
                    })?;
                self.program.extras.push(kind);
                self.extras.push(value);
                Operand::Extra((self.extras.len() - 1) as u8)
            }
        };
        self.operands.insert(value, operand);
        Ok(operand)
    }
}

/// How an element-wise launch walks a value: a vector is one row, one number for each row is one column.
pub(super) fn rows_and_columns(ty: &ValueType) -> (Dim, usize) {
    match ty.shape[..] {
        [Dim::Const(n)] => (Dim::Const(1), n),
        _ => (
            ty.shape.first().copied().unwrap_or(Dim::Const(1)),
            ty.last().unwrap_or(1),
        ),
    }
}

/// A primitive element-wise op as a step.
fn step(op: &Op, inputs: &[Operand]) -> Option<Step> {
    match (op, inputs) {
        (Op::Unary(u), &[a]) => Some(Step {
            op: u.kind,
            a,
            b: a,
        }),
        (Op::Binary(b), &[x, y]) => Some(Step {
            op: b.kind,
            a: x,
            b: y,
        }),
        _ => None,
    }
}
