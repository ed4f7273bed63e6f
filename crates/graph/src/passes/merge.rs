//! Merges projections that share their input.
//!
//! Needs: a verified graph. Gives: matmuls of the same input whose weights have the same storage and no other use are one
//! matmul of the concatenated weight (queries, keys and values; gate and up), cut into columns by `slice`. Where each of
//! them is followed only by the addition of a bias vector, the biases are concatenated too.

use std::collections::HashMap;

use super::Trace;
use super::fold::drop_unused_leaves;
use super::inline::{copy_node, finish, shell};
use crate::ops::{Binary, EltOp, Matmul, Op, Slice};
use crate::{Dim, Graph, GraphError, NodeId, Recipe, ValueId, ValueType};

/// One projection of a group: the matmul, its weight, its bias, and the value that the rest of the graph reads.
struct Projection {
    weight: ValueId,
    bias: Option<ValueId>,
    output: ValueId,
    columns: usize,
}

/// See the module.
pub fn merge(graph: &Graph, trace: &mut Trace) -> Result<Graph, GraphError> {
    let groups = groups(graph);
    let member: HashMap<NodeId, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(g, (nodes, _))| nodes.iter().map(move |&n| (n, g)))
        .collect();
    let (mut copy, mut map) = shell(graph)?;
    let mut emitted = vec![false; groups.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        match member.get(&NodeId(i as u32)) {
            None => copy_node(node, &mut copy, &mut map)?,
            Some(&g) if !emitted[g] => {
                emitted[g] = true;
                trace.count(match groups[g].1[0].bias {
                    Some(_) => "merge_biased",
                    None => "merge_projections",
                });
                emit(graph, &mut copy, &mut map, node.inputs[0], &groups[g].1)?;
            }
            Some(_) => {}
        }
    }
    finish(graph, &mut copy, &map);
    drop_unused_leaves(&copy)
}

/// Groups of at least two: the nodes that go (matmuls and bias additions), and the projections.
fn groups(graph: &Graph) -> Vec<(Vec<NodeId>, Vec<Projection>)> {
    let uses = graph.uses();
    let mut found: Vec<(ValueId, ValueType, Vec<NodeId>, Vec<Projection>)> = Vec::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let (Op::Matmul(_), [x, weight]) = (&node.op, &node.inputs[..]) else {
            continue;
        };
        if graph.as_leaf(*weight).is_none() || uses[weight.index()] != 1 {
            continue;
        }
        let weight_ty = graph.ty(*weight);
        let (Some(columns), Some(&k)) = (weight_ty.shape[0].constant(), weight_ty.shape.last())
        else {
            continue;
        };
        let key = ValueType {
            shape: vec![k],
            ..weight_ty.clone()
        };
        let mut nodes = vec![NodeId(i as u32)];
        let (mut bias, mut output) = (None, node.outputs[0]);
        if let Some((n, b)) = bias_of(graph, &uses, output, columns) {
            nodes.push(n);
            (bias, output) = (Some(b), graph.nodes[n.index()].outputs[0]);
        }
        let projection = Projection {
            weight: *weight,
            bias,
            output,
            columns,
        };
        let same = |g: &&mut (ValueId, ValueType, Vec<NodeId>, Vec<Projection>)| {
            g.0 == *x && g.1 == key && g.3[0].bias.is_some() == bias.is_some()
        };
        match found.iter_mut().find(same) {
            Some(group) => {
                group.2.extend(nodes);
                group.3.push(projection);
            }
            None => found.push((*x, key, nodes, vec![projection])),
        }
    }
    found.retain(|g| g.3.len() > 1);
    found.into_iter().map(|g| (g.2, g.3)).collect()
}

/// The addition of a bias leaf that is the only use of `value`.
fn bias_of(
    graph: &Graph,
    uses: &[usize],
    value: ValueId,
    columns: usize,
) -> Option<(NodeId, ValueId)> {
    if uses[value.index()] != 1 {
        return None;
    }
    let (i, node) = graph
        .nodes
        .iter()
        .enumerate()
        .find(|(_, n)| n.inputs.contains(&value))?;
    let Op::Binary(Binary { kind: EltOp::Add }) = node.op else {
        return None;
    };
    let other = *node.inputs.iter().find(|&&v| v != value)?;
    let is_vector =
        graph.as_leaf(other).is_some() && graph.ty(other).shape == [Dim::Const(columns)];
    is_vector.then_some((NodeId(i as u32), other))
}

fn emit(
    graph: &Graph,
    copy: &mut Graph,
    map: &mut HashMap<ValueId, ValueId>,
    x: ValueId,
    projections: &[Projection],
) -> Result<(), GraphError> {
    let columns = projections.iter().map(|p| p.columns);
    let width = columns.fold(0, usize::saturating_add);
    let k = graph.ty(projections[0].weight).shape[1];
    let weight_ty = ValueType {
        shape: vec![width.into(), k],
        ..graph.ty(projections[0].weight).clone()
    };
    let weights: Vec<ValueId> = projections.iter().map(|p| p.weight).collect();
    let weight = concatenated(graph, copy, &weights, weight_ty)?;
    let mut y = copy.push(Matmul {}, &[map[&x], weight])?;
    let biases: Vec<ValueId> = projections.iter().filter_map(|p| p.bias).collect();
    if !biases.is_empty() {
        let bias = concatenated(graph, copy, &biases, ValueType::f32(vec![width.into()]))?;
        y = copy.push(Binary { kind: EltOp::Add }, &[y, bias])?;
    }
    let mut start = 0;
    for p in projections {
        let part = copy.push(
            Slice {
                start,
                end: start + p.columns,
            },
            &[y],
        )?;
        map.insert(p.output, part);
        start += p.columns;
    }
    Ok(())
}

fn concatenated(
    graph: &Graph,
    copy: &mut Graph,
    values: &[ValueId],
    ty: ValueType,
) -> Result<ValueId, GraphError> {
    let leaves: Vec<&crate::Leaf> = values.iter().filter_map(|&v| graph.as_leaf(v)).collect();
    let name = leaves
        .iter()
        .map(|l| l.name.as_str())
        .collect::<Vec<_>>()
        .join("+");
    let recipe = Recipe::Concat(leaves.iter().map(|l| l.recipe.clone()).collect());
    copy.leaf(name, ty, recipe)
}
