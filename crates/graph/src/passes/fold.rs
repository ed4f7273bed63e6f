//! Canonicalise and fold.
//!
//! Needs: a verified graph. Gives: no node whose value nobody uses, no node computed twice from the same inputs, no
//! arithmetic on constants, and no arithmetic between a constant and an unquantised leaf: such a leaf's recipe is edited
//! instead (`weight + 1` of some norms).

use std::collections::HashMap;

use super::Trace;
use super::inline::{copy_node, finish, shell};
use crate::ops::{Constant, EltOp, Op};
use crate::{Graph, GraphError, Node, ValueId};

/// See the module.
pub fn fold(graph: &Graph, trace: &mut Trace) -> Result<Graph, GraphError> {
    let live = live_nodes(graph);
    live.iter()
        .filter(|l| !**l)
        .for_each(|_| trace.count("drop_dead"));
    let (mut copy, mut map) = shell(graph)?;
    let mut seen: Vec<usize> = Vec::new();
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| map[v]).collect();
        // A result keeps its node: leaves and constants cannot be results, nor one value two of them.
        let is_result = graph.results.iter().any(|r| node.outputs.contains(r));
        let shared = match is_result {
            true => None,
            false => replacement(&mut copy, node, &inputs, &seen)?,
        };
        if let Some((rewrite, values)) = shared {
            trace.count(rewrite);
            map.extend(node.outputs.iter().copied().zip(values));
            continue;
        }
        seen.push(copy.nodes.len());
        copy_node(node, &mut copy, &mut map)?;
    }
    finish(graph, &mut copy, &map);
    // What folded left its constants behind.
    without_dead_nodes(&copy)
}

/// Which nodes some result depends on.
fn live_nodes(graph: &Graph) -> Vec<bool> {
    let mut used = vec![false; graph.values.len()];
    graph.results.iter().for_each(|v| used[v.index()] = true);
    let mut live = vec![false; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        live[i] = node.outputs.iter().any(|v| used[v.index()]);
        if live[i] {
            node.inputs.iter().for_each(|v| used[v.index()] = true);
        }
    }
    live
}

/// The same graph without nodes and leaves that no result depends on.
pub(super) fn without_dead_nodes(graph: &Graph) -> Result<Graph, GraphError> {
    let live = live_nodes(graph);
    let (mut copy, mut map) = shell(graph)?;
    for (_, node) in graph.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        copy_node(node, &mut copy, &mut map)?;
    }
    finish(graph, &mut copy, &map);
    drop_unused_leaves(&copy)
}

/// The same graph without leaves that nothing uses.
pub(super) fn drop_unused_leaves(graph: &Graph) -> Result<Graph, GraphError> {
    let uses = graph.uses();
    let mut copy = Graph::new(graph.name.clone());
    let mut map = HashMap::new();
    for &input in &graph.inputs {
        let value = &graph.values[input.index()];
        map.insert(input, copy.input(value.name.clone(), value.ty.clone()));
    }
    for leaf in graph.leaves.iter().filter(|l| uses[l.value.index()] > 0) {
        let id = copy.leaf(
            leaf.name.clone(),
            graph.ty(leaf.value).clone(),
            leaf.recipe.clone(),
        )?;
        if let Some(l) = copy.leaves.last_mut() {
            l.role = leaf.role;
        }
        map.insert(leaf.value, id);
    }
    for node in &graph.nodes {
        copy_node(node, &mut copy, &mut map)?;
    }
    finish(graph, &mut copy, &map);
    Ok(copy)
}

fn writes_state(node: &Node) -> bool {
    matches!(node.op, Op::StateWrite(_))
}

/// The rewrite that makes a node unnecessary, and the values in place of its outputs.
fn replacement(
    graph: &mut Graph,
    node: &Node,
    inputs: &[ValueId],
    seen: &[usize],
) -> Result<Option<(&'static str, Vec<ValueId>)>, GraphError> {
    if let Some((rewrite, value)) = folded(graph, &node.op, inputs)? {
        return Ok(Some((rewrite, vec![value])));
    }
    let same = |n: &&Node| n.op == node.op && n.inputs == inputs;
    let twin = seen.iter().map(|&i| &graph.nodes[i]).find(same);
    Ok(twin
        .filter(|_| !writes_state(node))
        .map(|n| ("share_equal", n.outputs.clone())))
}

fn constant(graph: &Graph, value: ValueId) -> Option<f32> {
    match graph.producer(value)?.op {
        Op::Constant(Constant { value }) => Some(value),
        _ => None,
    }
}

/// The value that takes the node's place, if it folds, and the rewrite that gave it.
fn folded(
    graph: &mut Graph,
    op: &Op,
    inputs: &[ValueId],
) -> Result<Option<(&'static str, ValueId)>, GraphError> {
    let value = match (op, inputs) {
        (Op::Unary(u), &[x]) => constant(graph, x).map(|a| u.kind.apply(a, 0.0)),
        (Op::Binary(b), &[x, y]) => match (constant(graph, x), constant(graph, y)) {
            (Some(x), Some(y)) => Some(b.kind.apply(x, y)),
            (None, Some(c)) => return edited_leaf(graph, x, affine(b.kind, c)),
            (Some(c), None) if matches!(b.kind, EltOp::Add | EltOp::Mul) => {
                return edited_leaf(graph, y, affine(b.kind, c));
            }
            _ => None,
        },
        _ => None,
    };
    match value.filter(|v| v.is_finite()) {
        Some(value) => Ok(Some((
            "fold_constants",
            graph.push(Constant { value }, &[])?,
        ))),
        None => Ok(None),
    }
}

/// `x op c` as `scale · x + shift`.
fn affine(kind: EltOp, c: f32) -> Option<(f32, f32)> {
    match kind {
        EltOp::Add => Some((1.0, c)),
        EltOp::Sub => Some((1.0, -c)),
        EltOp::Mul => Some((c, 0.0)),
        _ => None,
    }
}

/// The leaf `scale · leaf + shift` in place of `leaf`, if it is one of plain `f32`.
fn edited_leaf(
    graph: &mut Graph,
    value: ValueId,
    affine: Option<(f32, f32)>,
) -> Result<Option<(&'static str, ValueId)>, GraphError> {
    let (Some(leaf), Some((scale, shift))) = (graph.as_leaf(value), affine) else {
        return Ok(None);
    };
    if graph.ty(value).element() != Some(ingle_quant::ElementType::F32) {
        return Ok(None);
    }
    let name = format!("{}*{scale}+{shift}", leaf.name);
    let recipe = leaf.recipe.affine(scale, shift);
    if recipe.check().is_err() {
        return Ok(None);
    }
    let ty = graph.ty(value).clone();
    Ok(Some(("edit_leaf", graph.leaf(name, ty, recipe)?)))
}
