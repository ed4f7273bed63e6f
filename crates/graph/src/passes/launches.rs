//! The launches of one variant: each node of a fused graph as a kernel spec with its arguments.

use std::collections::HashMap;

use super::inline::is_elementwise;
use super::memory::{Temporary, assign};
use super::region::{self, Region};
use super::{RowRange, Target};
use crate::kernel::{Activations, AttentionSpec, KernelSpec, MatmulSpec, WeightLayout};
use crate::ops::{Attention, Op, Runs};
use crate::plan::{Buffer, Guard, Kernel, Launch, Plan, Rows, Size};
use crate::{Def, Dim, Graph, GraphError, Node, Symbol, ValueId, ValueType};

/// Where a value lies: a buffer, or a temporary that has none yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Buffer(Buffer),
    Temporary(usize),
}

/// Lowers one variant.
pub(super) struct Lowering<'a> {
    graph: &'a Graph,
    target: &'a dyn Target,
    guards: &'a [Guard],
    plan: &'a mut Plan,
    places: HashMap<ValueId, Place>,
    launches: Vec<(u32, Vec<Place>, Rows, String)>,
    temporaries: Vec<Temporary>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        target: &'a dyn Target,
        guards: &'a [Guard],
        plan: &'a mut Plan,
        places: HashMap<ValueId, Place>,
    ) -> Self {
        Lowering {
            graph,
            target,
            guards,
            plan,
            places,
            launches: vec![],
            temporaries: vec![],
        }
    }

    /// Takes an input from a result of the last step instead.
    pub(super) fn feed(&mut self, input: u32, result: u32) {
        let from = Place::Buffer(Buffer::Input(input));
        for place in self.places.values_mut().filter(|p| **p == from) {
            *place = Place::Buffer(Buffer::Result(result));
        }
    }

    /// The launches, with a scratch slot for each temporary.
    pub(super) fn run(mut self) -> Result<Vec<Launch>, GraphError> {
        for node in &self.graph.nodes {
            self.node(node)?;
        }
        let slots = assign(&self.temporaries, &mut self.plan.scratch);
        let buffer = |place| match place {
            Place::Buffer(b) => b,
            Place::Temporary(t) => Buffer::Scratch(slots[t]),
        };
        let launches = self
            .launches
            .into_iter()
            .map(|(kernel, arguments, rows, label)| Launch {
                kernel,
                arguments: arguments.into_iter().map(buffer).collect(),
                rows,
                label,
            });
        Ok(launches.collect())
    }

    fn node(&mut self, node: &Node) -> Result<(), GraphError> {
        let spec = match &node.op {
            // A constant is part of every launch that reads it.
            Op::Constant(_) => return Ok(()),
            Op::Fused(f) => return self.region(node, &f.region),
            Op::Matmul(_) | Op::StateWrite(_) => None,
            op if is_elementwise(op) => None,
            _ => Some(self.spec(node)?),
        };
        let Some(spec) = spec else {
            let (region, node) = single(self.graph, node)?;
            return self.region(&node, &region);
        };
        let reads = node.inputs.iter().map(|&v| self.place(v));
        let reads = reads.collect::<Result<Vec<Place>, GraphError>>()?;
        let rows = self.graph.ty(node.outputs[0]).shape.first().copied();
        let rows = rows.unwrap_or(Dim::Const(1));
        let label = label(self.graph, node);
        self.launch(spec, reads, &node.outputs, rows, &label)
    }

    /// The kernel of an op that is a launch of its own, whose arguments are the node's inputs and output in order.
    fn spec(&self, node: &Node) -> Result<KernelSpec, GraphError> {
        let ty = |i: usize| self.graph.ty(node.inputs[i]);
        let width = |i: usize| match ty(i).shape[..] {
            [_, Dim::Const(width)] => Ok(width),
            _ => {
                let reason = format!("kernels read rows of a constant width, not {}", ty(i));
                Err(cannot(node.op.name(), reason))
            }
        };
        Ok(match &node.op {
            Op::Argmax(_) => KernelSpec::Argmax { n: width(0)? },
            Op::Attention(a) => KernelSpec::Attention(attention(a, ty(1))?),
            Op::Embedding(_) => KernelSpec::Embedding {
                layout: self.layout(node.inputs[1])?,
                vocabulary: ty(1).shape[0].constant().unwrap_or_default(),
                k: width(1)?,
            },
            Op::QuantizeActivations(_) => KernelSpec::QuantizeActivations { k: width(0)? },
            Op::Reduce(r) => KernelSpec::Reduce {
                k: width(0)?,
                kind: r.kind,
            },
            Op::RmsNorm(n) => KernelSpec::RmsNorm {
                k: width(0)?,
                eps: n.eps,
            },
            Op::Rope(r) => KernelSpec::Rope {
                op: r.clone(),
                width: width(0)?,
                factors: node.inputs.len() == 3,
            },
            Op::Slice(s) => KernelSpec::Slice {
                k: width(0)?,
                start: s.start,
                end: s.end,
            },
            Op::Softmax(_) => KernelSpec::Softmax { k: width(0)? },
            Op::TakeRows(_) => KernelSpec::TakeRows { k: width(0)? },
            op => {
                let reason = match op.runs() {
                    Runs::Interpreted => "no kernel computes it but as a part of another op",
                    _ => "there is no kernel for it",
                };
                return Err(cannot(op.name(), reason));
            }
        })
    }

    fn region(&mut self, node: &Node, region: &Graph) -> Result<(), GraphError> {
        let outer = |v: ValueId| match region.values[v.index()].def {
            Def::Input(i) => Some(node.inputs[i as usize]),
            _ => None,
        };
        let layout = |v: ValueId| {
            let value = outer(v).ok_or("a weight that the region computes")?;
            self.layout(value).map_err(|e| e.to_string())
        };
        let label = label(self.graph, node);
        let Region {
            spec,
            reads,
            writes,
            rows,
        } = region::read(region, layout).map_err(|reason| cannot(&label, reason))?;
        let mut places = Vec::new();
        for v in reads {
            let value = outer(v)
                .ok_or_else(|| cannot(&label, "a launch reads what its region computes"))?;
            places.push(self.place(value)?);
        }
        let mut outputs = Vec::new();
        for v in writes {
            let at = region.results.iter().position(|&r| r == v);
            outputs.push(
                node.outputs
                    [at.ok_or_else(|| cannot(&label, "a launch writes what is no result"))?],
            );
        }
        match spec {
            KernelSpec::Matmul(m) => self.matmul(m, places, &outputs, rows, &label),
            spec => {
                // A pool is written in place: it is bound where the spec says it is written.
                for &v in outputs.iter().filter(|v| self.graph.ty(**v).state) {
                    let pool = node.inputs.iter().find(|i| self.graph.ty(**i).state);
                    let pool =
                        pool.ok_or_else(|| cannot(&label, "a pool is written that is not read"))?;
                    self.places.insert(v, self.places[pool]);
                }
                self.launch(spec, places, &outputs, rows, &label)
            }
        }
    }

    fn matmul(
        &mut self,
        mut spec: MatmulSpec,
        mut reads: Vec<Place>,
        outputs: &[ValueId],
        rows: Dim,
        label: &str,
    ) -> Result<(), GraphError> {
        let range = self.range(rows);
        let bytes = bytes_of(&ValueType::f32(vec![rows, Dim::Const(spec.k)]), label)?;
        let quantize =
            spec.activations == Activations::Int8 && !self.target.fuses_quantize(&spec, range);
        if let Some(eps) = spec.norm
            && (quantize || !self.target.fuses_norm(&spec, range))
        {
            let normed = self.temporary(bytes);
            let norm = KernelSpec::RmsNorm { k: spec.k, eps };
            self.push(
                norm,
                vec![reads[0], reads[1], normed],
                rows,
                &format!("{label} (norm)"),
            )?;
            spec.norm = None;
            reads.splice(0..2, [normed]);
        }
        if quantize {
            let codes = self.temporary(bytes);
            let quantize = KernelSpec::QuantizeActivations { k: spec.k };
            self.push(
                quantize,
                vec![reads[0], codes],
                rows,
                &format!("{label} (two 8-bit terms)"),
            )?;
            spec.activations = Activations::F32;
            reads[0] = codes;
        }
        self.launch(KernelSpec::Matmul(spec), reads, outputs, rows, label)
    }

    fn place(&self, value: ValueId) -> Result<Place, GraphError> {
        self.places.get(&value).copied().ok_or_else(|| {
            let name = self.graph.producer(value).map_or("value", |n| n.op.name());
            cannot(name, "only element-wise ops can read it")
        })
    }

    /// Adds a launch that reads `reads` and writes `outputs`.
    fn launch(
        &mut self,
        spec: KernelSpec,
        reads: Vec<Place>,
        outputs: &[ValueId],
        rows: Dim,
        label: &str,
    ) -> Result<(), GraphError> {
        let mut arguments = reads;
        for &v in outputs {
            let ty = self.graph.ty(v);
            if !self.places.contains_key(&v) {
                let place = self.temporary(bytes_of(ty, label)?);
                self.places.insert(v, place);
            }
            arguments.push(self.places[&v]);
        }
        self.push(spec, arguments, rows, label)
    }

    fn push(
        &mut self,
        spec: KernelSpec,
        mut arguments: Vec<Place>,
        rows: Dim,
        label: &str,
    ) -> Result<(), GraphError> {
        let choice = self
            .target
            .select(&spec, self.range(rows))
            .map_err(|reason| cannot(label, reason))?;
        if let Some(size) = choice.workspace {
            let symbol = match rows {
                Dim::Sym(s) => s,
                Dim::Const(_) => Symbol::Tokens,
            };
            arguments.push(self.temporary(match rows {
                Dim::Const(n) => {
                    let bytes = size.per.saturating_mul(n as u64);
                    Size::constant(bytes.saturating_add(size.constant))
                }
                Dim::Sym(_) => Size { symbol, ..size },
            }));
        }
        let now = self.launches.len();
        for place in &arguments {
            if let Place::Temporary(t) = place {
                let t = &mut self.temporaries[*t];
                t.first = t.first.min(now);
                t.last = t.last.max(now);
            }
        }
        let kernel = self.kernel(Kernel {
            spec,
            candidate: choice.candidate,
            why: choice.why,
            text: choice.text,
        });
        let rows = match rows {
            Dim::Const(n) => Rows::Const(n),
            Dim::Sym(s) => Rows::Sym(s),
        };
        self.launches
            .push((kernel, arguments, rows, label.to_owned()));
        Ok(())
    }

    /// The kernel's row in the table, which has each kernel once.
    fn kernel(&mut self, kernel: Kernel) -> u32 {
        let kernels = &mut self.plan.kernels;
        let index = kernels.iter().position(|k| *k == kernel);
        index.unwrap_or_else(|| {
            kernels.push(kernel);
            kernels.len() - 1
        }) as u32
    }

    fn temporary(&mut self, bytes: Size) -> Place {
        self.temporaries.push(Temporary {
            bytes,
            first: usize::MAX,
            last: 0,
        });
        Place::Temporary(self.temporaries.len() - 1)
    }

    fn layout(&self, weight: ValueId) -> Result<WeightLayout, GraphError> {
        match self.places.get(&weight) {
            Some(Place::Buffer(Buffer::Weight(w))) => Ok(self.plan.weights[*w as usize].layout),
            _ => Err(cannot(
                self.graph.ty(weight).to_string(),
                "the matrix of a matmul must be a leaf",
            )),
        }
    }

    fn range(&self, rows: Dim) -> RowRange {
        match rows {
            Dim::Const(n) => RowRange { low: n, high: n },
            Dim::Sym(s) => {
                let guard = self.guards.iter().find(|g| g.symbol == s);
                guard.map_or(
                    RowRange {
                        low: 0,
                        high: usize::MAX,
                    },
                    |g| RowRange {
                        low: g.low,
                        high: g.high,
                    },
                )
            }
        }
    }
}

fn attention(op: &Attention, pool: &ValueType) -> Result<AttentionSpec, GraphError> {
    let (Some(kv_heads), Some(head_dim), Some(kv)) = (
        pool.shape[2].constant(),
        pool.shape[4].constant(),
        pool.element(),
    ) else {
        return Err(cannot("attention", "the pool's heads are not constant"));
    };
    Ok(AttentionSpec {
        op: op.clone(),
        kv_heads,
        head_dim,
        kv,
    })
}

/// Bytes of a value, as a function of its first dimension.
fn bytes_of(ty: &ValueType, label: &str) -> Result<Size, GraphError> {
    let overflow = || {
        cannot(
            label,
            format!("the size of {ty} is not linear in one symbol, or overflows"),
        )
    };
    let element = ty.element().ok_or_else(overflow)?.bytes();
    let (first, rest) = match ty.shape.split_first() {
        Some((first, rest)) => (*first, rest),
        None => (Dim::Const(1), &[][..]),
    };
    let per = rest
        .iter()
        .try_fold(element, |n, d| n.checked_mul(d.constant()?))
        .ok_or_else(overflow)? as u64;
    match first {
        Dim::Const(n) => (n as u64)
            .checked_mul(per)
            .map(Size::constant)
            .ok_or_else(overflow),
        Dim::Sym(symbol) => Ok(Size {
            constant: 0,
            per,
            symbol,
        }),
    }
}

/// A node as a region of its own, with the constants that it reads, and the node that stands for it.
fn single(graph: &Graph, node: &Node) -> Result<(Graph, Node), GraphError> {
    let mut region = Graph::new(String::new());
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for &v in &node.inputs {
        inner.push(match graph.producer(v).map(|n| &n.op) {
            Some(Op::Constant(c)) => region.push(c.clone(), &[])?,
            // A value that is read twice is two inputs here, so the node is rebuilt rather than copied by value.
            _ => {
                outer.push(v);
                region.input(format!("a{}", outer.len()), graph.ty(v).clone())
            }
        });
    }
    let outputs = region.node(node.op.clone(), &inner)?;
    for (i, v) in outputs.into_iter().enumerate() {
        region.result(format!("r{i}"), v);
    }
    let node = Node {
        inputs: outer,
        ..node.clone()
    };
    Ok((region, node))
}

/// What people see of a launch: the weights it reads, else the ops it computes.
fn label(graph: &Graph, node: &Node) -> String {
    let weights: Vec<&str> = node
        .inputs
        .iter()
        .filter_map(|&v| graph.as_leaf(v))
        .map(|l| l.name.as_str())
        .collect();
    let state = node
        .inputs
        .iter()
        .find(|v| graph.ty(**v).state)
        .map(|v| root_state(graph, *v));
    match (&weights[..], state) {
        ([], Some(name)) => format!("{} {name}", ops_of(node)),
        ([], None) => ops_of(node),
        (names, _) => names.join(", "),
    }
}

/// The ops that a node computes, without those that only cut.
fn ops_of(node: &Node) -> String {
    let Op::Fused(fused) = &node.op else {
        return node.op.name().to_owned();
    };
    let nodes = fused.region.nodes.iter();
    let mut names: Vec<&str> = nodes.map(|n| n.op.name()).collect();
    names.retain(|n| !matches!(*n, "slice" | "constant"));
    names.dedup();
    names.join(" + ")
}

/// The name of the state input that `value` is a version of.
fn root_state(graph: &Graph, mut value: ValueId) -> String {
    while let Some(node) = graph.producer(value) {
        match node.inputs.iter().find(|v| graph.ty(**v).state) {
            Some(&earlier) => value = earlier,
            None => break,
        }
    }
    graph.values[value.index()].name.clone()
}

pub(super) fn cannot(node: impl Into<String>, reason: impl Into<String>) -> GraphError {
    GraphError::Lower {
        node: node.into(),
        reason: reason.into(),
    }
}
