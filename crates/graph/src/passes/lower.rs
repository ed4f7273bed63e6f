//! Lowering: layout choice, kernel selection, schedule and memory plan.
//!
//! Needs: a fused graph. Gives: a plan. Every node becomes one launch; where the target does not compute a norm inside a
//! matmul at this number of rows, the norm becomes a launch of its own.

use std::collections::HashMap;

use super::memory::{Temporary, assign};
use super::region::{self, Region};
use super::{EntryOptions, Options, RowRange, Target};
use crate::kernel::{AttentionSpec, KernelSpec, MatmulSpec, WeightLayout};
use crate::ops::Op;
use crate::plan::{
    Buffer, Entry, Guard, Kernel, Launch, PLAN_VERSION, Plan, Port, Rows, Size, State, Variant,
    Weight,
};
use crate::{Def, Dim, Graph, GraphError, Node, Symbol, ValueId, ValueType};

/// See the module.
pub fn lower(graph: &Graph, options: &Options, target: &dyn Target) -> Result<Plan, GraphError> {
    let mut plan = Plan {
        version: PLAN_VERSION,
        graph: graph.name.clone(),
        target: target.name(),
        weights: vec![],
        states: vec![],
        inputs: vec![],
        results: vec![],
        scratch: vec![],
        kernels: vec![],
        entries: vec![],
    };
    let mut places = HashMap::new();
    ports(graph, &mut plan, &mut places)?;
    weights(graph, target, &mut plan, &mut places)?;
    for entry in &options.entries {
        let fed = fed(entry, &plan)?;
        let mut variants = Vec::new();
        for guards in &entry.variants {
            let mut lowering = Lowering {
                graph,
                target,
                guards,
                plan: &mut plan,
                places: places.clone(),
                launches: vec![],
                temporaries: vec![],
            };
            if let Some((input, result)) = fed {
                lowering.feed(input, result);
            }
            let launches = lowering.run()?;
            variants.push(Variant {
                guards: guards.clone(),
                launches,
            });
        }
        plan.entries.push(Entry {
            name: entry.name.clone(),
            fed,
            variants,
        });
    }
    Ok(plan)
}

/// Where a value lies: a buffer, or a temporary that has none yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Buffer(Buffer),
    Temporary(usize),
}

fn cannot(node: impl Into<String>, reason: impl Into<String>) -> GraphError {
    GraphError::Lower {
        node: node.into(),
        reason: reason.into(),
    }
}

fn ports(
    graph: &Graph,
    plan: &mut Plan,
    places: &mut HashMap<ValueId, Place>,
) -> Result<(), GraphError> {
    let port = |v: ValueId| -> Result<Port, GraphError> {
        let value = &graph.values[v.index()];
        let element = value
            .ty
            .element()
            .ok_or_else(|| cannot(&value.name, "a quantised input or result"))?;
        Ok(Port {
            name: value.name.clone(),
            element,
            shape: value.ty.shape.clone(),
        })
    };
    for &v in &graph.inputs {
        let p = port(v)?;
        let buffer = if graph.ty(v).state {
            plan.states.push(State {
                name: p.name,
                element: p.element,
                shape: p.shape,
            });
            Buffer::State((plan.states.len() - 1) as u32)
        } else {
            plan.inputs.push(p);
            Buffer::Input((plan.inputs.len() - 1) as u32)
        };
        places.insert(v, Place::Buffer(buffer));
    }
    for &v in graph.results.iter().filter(|&&v| !graph.ty(v).state) {
        if places.contains_key(&v) || !matches!(graph.values[v.index()].def, Def::Node(..)) {
            return Err(cannot(
                &graph.values[v.index()].name,
                "a result that no node computes, or twice",
            ));
        }
        plan.results.push(port(v)?);
        places.insert(
            v,
            Place::Buffer(Buffer::Result((plan.results.len() - 1) as u32)),
        );
    }
    Ok(())
}

/// Decides each leaf's layout: matrices that matmuls and embeddings read as the target wants them, the rest as `f32`.
fn weights(
    graph: &Graph,
    target: &dyn Target,
    plan: &mut Plan,
    places: &mut HashMap<ValueId, Place>,
) -> Result<(), GraphError> {
    let matrices = matrix_leaves(graph);
    for leaf in &graph.leaves {
        let ty = graph.ty(leaf.value);
        let constant: Vec<usize> = ty.shape.iter().filter_map(|d| d.constant()).collect();
        let (rows, k) = match constant[..] {
            [n] if ty.shape.len() == 1 => (n, 1),
            [rows, k] if ty.shape.len() == 2 => (rows, k),
            _ => return Err(cannot(&leaf.name, format!("a weight of type {ty}"))),
        };
        let layout = if matrices.contains(&leaf.value) {
            target
                .layout(ty.storage, rows, k)
                .map_err(|reason| cannot(&leaf.name, reason))?
        } else {
            WeightLayout::Dense(ingle_quant::ElementType::F32)
        };
        let bytes = target
            .weight_bytes(layout, rows, k)
            .ok_or_else(|| cannot(&leaf.name, format!("the size of {ty} overflows")))?;
        places.insert(
            leaf.value,
            Place::Buffer(Buffer::Weight(plan.weights.len() as u32)),
        );
        plan.weights.push(Weight {
            name: leaf.name.clone(),
            recipe: leaf.recipe.clone(),
            storage: ty.storage,
            rows,
            k,
            layout,
            bytes,
        });
    }
    Ok(())
}

/// Leaves that are the matrix of a matmul or an embedding, inside regions too.
fn matrix_leaves(graph: &Graph) -> Vec<ValueId> {
    let is_matrix = |op: &Op| matches!(op, Op::Matmul(_) | Op::Embedding(_));
    let mut found = Vec::new();
    for node in &graph.nodes {
        match &node.op {
            op if is_matrix(op) => found.push(node.inputs[1]),
            Op::Fused(f) => {
                let inner = f
                    .region
                    .nodes
                    .iter()
                    .filter(|n| is_matrix(&n.op))
                    .map(|n| n.inputs[1]);
                found.extend(inner.filter_map(|v| match f.region.values[v.index()].def {
                    Def::Input(i) => Some(node.inputs[i as usize]),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found
}

fn fed(entry: &EntryOptions, plan: &Plan) -> Result<Option<(u32, u32)>, GraphError> {
    let Some((input, result)) = &entry.fed else {
        return Ok(None);
    };
    let find = |ports: &[Port], name: &str| {
        let at = ports.iter().position(|p| p.name == name);
        at.map(|i| i as u32)
            .ok_or_else(|| cannot(&entry.name, format!("no input or result named {name}")))
    };
    Ok(Some((
        find(&plan.inputs, input)?,
        find(&plan.results, result)?,
    )))
}

/// Lowers one variant.
struct Lowering<'a> {
    graph: &'a Graph,
    target: &'a dyn Target,
    guards: &'a [Guard],
    plan: &'a mut Plan,
    places: HashMap<ValueId, Place>,
    launches: Vec<(u32, Vec<Place>, Rows, String)>,
    temporaries: Vec<Temporary>,
}

impl Lowering<'_> {
    fn feed(&mut self, input: u32, result: u32) {
        let from = Place::Buffer(Buffer::Input(input));
        for place in self.places.values_mut().filter(|p| **p == from) {
            *place = Place::Buffer(Buffer::Result(result));
        }
    }

    fn run(mut self) -> Result<Vec<Launch>, GraphError> {
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
        let graph = self.graph;
        let ty = |i: usize| graph.ty(node.inputs[i]);
        let width = |i: usize| match ty(i).shape[..] {
            [_, Dim::Const(width)] => Ok(width),
            _ => {
                let reason = format!("kernels read rows of a constant width, not {}", ty(i));
                Err(cannot(node.op.name(), reason))
            }
        };
        let spec = match &node.op {
            // A constant is part of every launch that reads it.
            Op::Constant(_) => return Ok(()),
            Op::Fused(f) => return self.region(node, &f.region),
            Op::Matmul(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Swiglu(_)
            | Op::Softcap(_)
            | Op::StateWrite(_) => {
                let (region, node) = single(graph, node)?;
                return self.region(&node, &region);
            }
            Op::Embedding(_) => KernelSpec::Embedding {
                layout: self.layout(node.inputs[1])?,
                vocabulary: ty(1).shape[0].constant().unwrap_or_default(),
                k: width(1)?,
            },
            Op::RmsNorm(n) => KernelSpec::RmsNorm {
                k: width(0)?,
                eps: n.eps,
            },
            Op::QuantizeActivations(_) => KernelSpec::QuantizeActivations { k: width(0)? },
            Op::Rope(r) => KernelSpec::Rope {
                op: r.clone(),
                width: width(0)?,
                factors: node.inputs.len() == 3,
            },
            Op::Attention(a) => {
                let pool = &ty(1).shape;
                let (Some(kv_heads), Some(head_dim), Some(kv)) =
                    (pool[2].constant(), pool[4].constant(), ty(1).element())
                else {
                    return Err(cannot("attention", "the pool's heads are not constant"));
                };
                KernelSpec::Attention(AttentionSpec {
                    op: a.clone(),
                    kv_heads,
                    head_dim,
                    kv,
                })
            }
            Op::Reduce(r) => KernelSpec::Reduce {
                k: width(0)?,
                kind: r.kind,
            },
            Op::Softmax(_) => KernelSpec::Softmax { k: width(0)? },
            Op::Slice(s) => KernelSpec::Slice {
                k: width(0)?,
                start: s.start,
                end: s.end,
            },
            Op::TakeRows(_) => KernelSpec::TakeRows { k: width(0)? },
            Op::Argmax(_) => KernelSpec::Argmax { n: width(0)? },
            Op::CausalMask(_)
            | Op::HeadMix(_)
            | Op::HeadScores(_)
            | Op::RotaryAngles(_)
            | Op::Rotate(_)
            | Op::StateRead(_) => {
                return Err(cannot(
                    node.op.name(),
                    "no kernel computes it on its own, only as a part of attention or rope",
                ));
            }
        };
        let reads = node.inputs.iter().map(|&v| self.place(v));
        let reads = reads.collect::<Result<Vec<Place>, GraphError>>()?;
        let rows = graph.ty(node.outputs[0]).shape.first().copied();
        let rows = rows.unwrap_or(Dim::Const(1));
        self.launch(spec, reads, &node.outputs, rows, &label(graph, node))
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
        if let Some(eps) = spec.norm
            && !self.target.fuses_norm(&spec, self.range(rows))
        {
            let normed = self.temporary(bytes_of(
                &ValueType::f32(vec![rows, Dim::Const(spec.k)]),
                label,
            )?);
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
                Dim::Const(n) => Size::constant(size.constant + size.per * n as u64),
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
        let kernel = Kernel {
            spec,
            candidate: choice.candidate,
            why: choice.why,
            text: choice.text,
        };
        let index = self
            .plan
            .kernels
            .iter()
            .position(|k| *k == kernel)
            .unwrap_or_else(|| {
                self.plan.kernels.push(kernel);
                self.plan.kernels.len() - 1
            });
        let rows = match rows {
            Dim::Const(n) => Rows::Const(n),
            Dim::Sym(s) => Rows::Sym(s),
        };
        self.launches
            .push((index as u32, arguments, rows, label.to_owned()));
        Ok(())
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
