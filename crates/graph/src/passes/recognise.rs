//! Recognises composite ops among primitive ones, so that an imported graph fuses as well as one that names them.
//!
//! Needs: a folded graph, in which nothing is computed twice. Gives: ops that kernels exist for. An op that has none is
//! decomposed; where nodes are what a composite op decomposes into, that op takes the place of the last of them.
//!
//! There is no matcher for any op. The pattern is the op's own decomposition: nodes that are arranged like it, attributes
//! aside, give an op; it is what they are if decomposing it gives exactly them. Operands of what commutes may stand in
//! either order. Whether others read the nodes in between does not matter: those that nobody needs any more go.

use super::Trace;
use super::fold::without_dead_nodes;
use super::inline::{copy_node, decompose, finish, shell};
use crate::ops::{EltOp, Op, Runs};
use crate::{Graph, GraphError, ValueId};

/// See the module.
pub fn recognise(graph: &Graph, trace: &mut Trace) -> Result<Graph, GraphError> {
    let no_kernel = |op: &Op| op.runs() == Runs::Decomposed;
    let apart = graph.nodes.iter().filter(|n| no_kernel(&n.op));
    apart.for_each(|_| trace.count("decompose"));
    let graph = decompose(graph, &no_kernel)?;
    let shapes = shapes()?;
    let (mut copy, mut map) = shell(&graph)?;
    for node in &graph.nodes {
        copy_node(node, &mut copy, &mut map)?;
        let [output] = node.outputs[..] else {
            continue;
        };
        let root = map[&output];
        if let Some((op, inputs)) = shapes.iter().find_map(|s| s.find(&copy, root)) {
            trace.count(op.name());
            map.insert(output, copy.push(op, &inputs)?);
        }
    }
    finish(&graph, &mut copy, &map);
    without_dead_nodes(&copy)
}

/// The names of the rewrites: of the ops that can be recognised.
pub(super) fn rewrites() -> Vec<&'static str> {
    let mut names = vec!["decompose"];
    names.extend(Op::patterns().iter().map(|p| p.example.name()));
    names.dedup();
    names
}

/// A pattern's example, decomposed.
struct Shape {
    graph: Graph,
    result: ValueId,
    read: fn(&[&Op]) -> Option<Op>,
}

/// All shapes, those of most nodes first: what a part of a larger op looks like on its own comes later.
fn shapes() -> Result<Vec<Shape>, GraphError> {
    let mut shapes = Vec::new();
    for pattern in Op::patterns() {
        let (graph, results) = decomposed(&pattern.example, &pattern.inputs)?;
        if let [result] = results[..] {
            let read = pattern.read;
            shapes.push(Shape {
                graph,
                result,
                read,
            });
        }
    }
    shapes.sort_by_key(|s| std::cmp::Reverse(s.graph.nodes.len()));
    Ok(shapes)
}

/// The decomposition of `op` in a graph of its own, and what is its result there; none for a primitive op.
fn decomposed(op: &Op, inputs: &[crate::ValueType]) -> Result<(Graph, Vec<ValueId>), GraphError> {
    let types: Vec<&crate::ValueType> = inputs.iter().collect();
    op.infer(&types)?;
    let mut graph = Graph::new(op.name());
    let inputs: Vec<ValueId> = inputs
        .iter()
        .map(|ty| graph.input("", ty.clone()))
        .collect();
    let results = op.decompose(&mut graph, &inputs)?.unwrap_or_default();
    Ok((graph, results))
}

/// Which value of the graph each value of the shape is.
type Match = Vec<Option<ValueId>>;

impl Shape {
    /// The op whose decomposition ends in `root`, and its inputs.
    fn find(&self, graph: &Graph, root: ValueId) -> Option<(Op, Vec<ValueId>)> {
        let start = vec![None; self.graph.values.len()];
        let matches = self.unify(graph, self.result, root, start);
        matches.iter().find_map(|found| self.confirm(graph, found))
    }

    /// All ways in which `value` of the graph can be `part` of the shape, given what is matched already.
    fn unify(&self, graph: &Graph, part: ValueId, value: ValueId, found: Match) -> Vec<Match> {
        match found[part.index()] {
            Some(known) if known == value => return vec![found],
            Some(_) => return vec![],
            None => {}
        }
        let mut bound = found;
        bound[part.index()] = Some(value);
        let Some(wanted) = self.graph.producer(part) else {
            return vec![bound];
        };
        let Some(node) = graph
            .producer(value)
            .filter(|n| n.op.name() == wanted.op.name() && n.inputs.len() == wanted.inputs.len())
        else {
            return vec![];
        };
        let all = |inputs: &mut dyn Iterator<Item = &ValueId>| {
            let pairs = wanted.inputs.iter().zip(inputs);
            pairs.fold(vec![bound.clone()], |found, (&part, &value)| {
                let next = |m| self.unify(graph, part, value, m);
                found.into_iter().flat_map(next).collect()
            })
        };
        let mut matches = all(&mut node.inputs.iter());
        if commutes(&node.op) {
            matches.extend(all(&mut node.inputs.iter().rev()));
        }
        matches
    }

    /// Reads the op off a match; it is the one if decomposing it gives the matched nodes.
    fn confirm(&self, graph: &Graph, found: &Match) -> Option<(Op, Vec<ValueId>)> {
        let value = |v: ValueId| found[v.index()];
        let nodes = self.graph.nodes.iter();
        let ops = nodes
            .map(|n| Some(&graph.producer(value(n.outputs[0])?)?.op))
            .collect::<Option<Vec<&Op>>>()?;
        let op = (self.read)(&ops)?;
        let inputs = self.graph.inputs.iter().map(|&v| value(v));
        let inputs = inputs.collect::<Option<Vec<ValueId>>>()?;
        let types: Vec<_> = inputs.iter().map(|v| graph.ty(*v).clone()).collect();
        let (again, results) = decomposed(&op, &types).ok()?;
        let same = results == [self.result]
            && again.nodes.len() == ops.len()
            && again
                .nodes
                .iter()
                .zip(&self.graph.nodes)
                .zip(&ops)
                .all(|((a, shape), op)| a.op == **op && a.inputs == shape.inputs);
        (same && inputs.iter().all(|v| is_current(graph, *v))).then_some((op, inputs))
    }
}

/// Whether `value` may still be read at the end of `graph`: it is no state that was written over since.
fn is_current(graph: &Graph, value: ValueId) -> bool {
    let writes = |n: &crate::Node| n.inputs.contains(&value) && graph.ty(n.outputs[0]).state;
    !graph.ty(value).state || !graph.nodes.iter().any(writes)
}

fn commutes(op: &Op) -> bool {
    let kinds = [EltOp::Add, EltOp::Mul, EltOp::Min, EltOp::Max];
    matches!(op, Op::Binary(b) if kinds.contains(&b.kind))
}
