//! Moves groups of nodes into regions.

use std::collections::{HashMap, HashSet};

use super::fold::without_dead_nodes;
use super::inline::{copy_node, finish, shell};
use crate::ops::Fused;
use crate::{Graph, GraphError, NodeId, ValueId};

/// Nodes that become one region. `copies` are computed inside as well as (if others need them) outside: cheap prologues
/// and constants.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub copies: Vec<NodeId>,
    pub nodes: Vec<NodeId>,
    /// The rewrites that made it, for the trace.
    pub rewrites: Vec<&'static str>,
}

/// Rebuilds `graph` with each group as one `fused` node, in an order that defines before it uses.
pub(super) fn outline(graph: &Graph, groups: &[Group]) -> Result<Graph, GraphError> {
    let member: HashMap<NodeId, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(g, group)| group.nodes.iter().map(move |&n| (n, g)))
        .collect();
    let last: Vec<Option<NodeId>> = groups
        .iter()
        .map(|g| g.nodes.iter().max().copied())
        .collect();
    let (mut copy, mut map) = shell(graph)?;
    let mut waiting: Vec<NodeId> = (0..graph.nodes.len() as u32).map(NodeId).collect();
    waiting.retain(|n| member.get(n).is_none_or(|&g| last[g] == Some(*n)));
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        for id in waiting {
            let node = &graph.nodes[id.index()];
            let group = member.get(&id).map(|&g| &groups[g]);
            let needs = group.map_or_else(|| node.inputs.clone(), |g| externals(graph, g));
            if needs.iter().any(|v| !map.contains_key(v)) {
                later.push(id);
            } else if let Some(group) = group {
                emit(graph, group, &needs, &mut copy, &mut map)?;
            } else {
                copy_node(node, &mut copy, &mut map)?;
            }
        }
        waiting = later;
        if waiting.len() == before {
            return Err(GraphError::Invariant {
                graph: graph.name.clone(),
                invariant: "regions do not depend on each other in a circle",
                found: format!("{before} nodes wait for each other"),
            });
        }
    }
    finish(graph, &mut copy, &map);
    without_dead_nodes(&copy)
}

/// The group's nodes and copies in program order.
fn ordered(group: &Group) -> Vec<NodeId> {
    let mut all: Vec<NodeId> = group.copies.iter().chain(&group.nodes).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Values that the group reads and does not define, in order of first use.
fn externals(graph: &Graph, group: &Group) -> Vec<ValueId> {
    let mut defined = HashSet::new();
    let mut needs = Vec::new();
    for id in ordered(group) {
        let node = &graph.nodes[id.index()];
        for &v in &node.inputs {
            if !defined.contains(&v) && !needs.contains(&v) {
                needs.push(v);
            }
        }
        defined.extend(node.outputs.iter().copied());
    }
    needs
}

fn emit(
    graph: &Graph,
    group: &Group,
    externals: &[ValueId],
    copy: &mut Graph,
    map: &mut HashMap<ValueId, ValueId>,
) -> Result<(), GraphError> {
    let mut region = Graph::new(String::new());
    let mut inner = HashMap::new();
    for (i, &v) in externals.iter().enumerate() {
        inner.insert(v, region.input(format!("a{i}"), graph.ty(v).clone()));
    }
    let all = ordered(group);
    for &id in &all {
        copy_node(&graph.nodes[id.index()], &mut region, &mut inner)?;
    }
    let outside: HashSet<ValueId> = (0..graph.nodes.len() as u32)
        .map(NodeId)
        .filter(|id| !group.nodes.contains(id))
        .flat_map(|id| graph.nodes[id.index()].inputs.iter().copied())
        .chain(graph.results.iter().copied())
        .collect();
    let defined = group
        .nodes
        .iter()
        .flat_map(|id| graph.nodes[id.index()].outputs.iter().copied());
    let results: Vec<ValueId> = defined.filter(|v| outside.contains(v)).collect();
    for (i, v) in results.iter().enumerate() {
        region.result(format!("r{i}"), inner[v]);
    }
    let inputs: Vec<ValueId> = externals.iter().map(|v| map[v]).collect();
    let outputs = copy.node(
        Fused {
            region: Box::new(region),
        },
        &inputs,
    )?;
    map.extend(results.into_iter().zip(outputs));
    Ok(())
}
