//! Copies a graph's nodes into another graph: what undoes a region, and what decomposes composite ops.

use std::collections::HashMap;

use crate::ops::Op;
use crate::{Graph, GraphError, ValueId};

/// Adds the nodes of `region` to `graph` with `inputs` in place of the region's, and gives its results.
pub fn inline(
    region: &Graph,
    graph: &mut Graph,
    inputs: &[ValueId],
) -> Result<Vec<ValueId>, GraphError> {
    let mut map: HashMap<ValueId, ValueId> = region
        .inputs
        .iter()
        .copied()
        .zip(inputs.iter().copied())
        .collect();
    for node in &region.nodes {
        copy_node(node, graph, &mut map)?;
    }
    Ok(region.results.iter().map(|v| map[v]).collect())
}

/// Adds `node` to `graph` with its inputs mapped, and maps its outputs.
pub(super) fn copy_node(
    node: &crate::Node,
    graph: &mut Graph,
    map: &mut HashMap<ValueId, ValueId>,
) -> Result<(), GraphError> {
    let inputs: Vec<ValueId> = node.inputs.iter().map(|v| map[v]).collect();
    let outputs = graph.node(node.op.clone(), &inputs)?;
    map.extend(node.outputs.iter().copied().zip(outputs));
    Ok(())
}

/// Starts a copy of `graph`: the same inputs and leaves, no nodes.
pub(super) fn shell(graph: &Graph) -> Result<(Graph, HashMap<ValueId, ValueId>), GraphError> {
    let mut copy = Graph::new(graph.name.clone());
    let mut map = HashMap::new();
    for &input in &graph.inputs {
        let value = &graph.values[input.index()];
        map.insert(input, copy.input(value.name.clone(), value.ty.clone()));
    }
    for leaf in &graph.leaves {
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
    Ok((copy, map))
}

/// Declares the results of `graph` in its copy.
pub(super) fn finish(graph: &Graph, copy: &mut Graph, map: &HashMap<ValueId, ValueId>) {
    for &result in &graph.results {
        copy.result(graph.values[result.index()].name.clone(), map[&result]);
    }
}

/// Replaces every composite op by primitive ones; regions are opened.
pub fn decompose_all(graph: &Graph) -> Result<Graph, GraphError> {
    decompose(graph, &|_| true)
}

/// Replaces the composite ops that `open` admits by more primitive ones, and so on with those.
pub fn decompose(graph: &Graph, open: &dyn Fn(&Op) -> bool) -> Result<Graph, GraphError> {
    let (mut copy, mut map) = shell(graph)?;
    for node in &graph.nodes {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| map[v]).collect();
        let outputs = expand(&mut copy, &node.op, &inputs, open)?;
        map.extend(node.outputs.iter().copied().zip(outputs));
    }
    finish(graph, &mut copy, &map);
    Ok(copy)
}

/// Adds `op` to `graph`, decomposed as long as there are composite ops that `open` admits; gives its outputs.
fn expand(
    graph: &mut Graph,
    op: &Op,
    inputs: &[ValueId],
    open: &dyn Fn(&Op) -> bool,
) -> Result<Vec<ValueId>, GraphError> {
    let mut parts = Graph::new(op.name());
    let inner: Vec<ValueId> = inputs
        .iter()
        .map(|v| parts.input("", graph.ty(*v).clone()))
        .collect();
    let results = match open(op) {
        true => op.decompose(&mut parts, &inner)?,
        false => None,
    };
    let Some(results) = results else {
        return graph.node(op.clone(), inputs);
    };
    let mut map: HashMap<ValueId, ValueId> =
        inner.into_iter().zip(inputs.iter().copied()).collect();
    for node in &parts.nodes {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| map[v]).collect();
        let outputs = expand(graph, &node.op, &inputs, open)?;
        map.extend(node.outputs.iter().copied().zip(outputs));
    }
    Ok(results.iter().map(|v| map[v]).collect())
}

/// Whether a node is an element-wise op that a [`crate::Program`] can express.
pub(super) fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_) | Op::Binary(_) | Op::Swiglu(_) | Op::Softcap(_)
    )
}
