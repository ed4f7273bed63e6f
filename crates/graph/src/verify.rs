//! The verifier. What holds of a verified graph, so that nothing later has to ask:
//!
//! 1. Every value is defined once, by the input, leaf or node that it names, and before it is used.
//! 2. Every output has the type that its op infers from its inputs; attributes are in range.
//! 3. Names of inputs, leaves and results are unique, not empty and without spaces; an input's is no number. Results are
//!    computed by nodes.
//! 4. A leaf's recipe gives as many rows as its type has, and is well formed.
//! 5. A state version is written at most once; every read of a version comes before the next write; the last version of
//!    every state input is a result.
//! 6. Regions have no leaves and are verified too; what a node reads from a region is one of its results.

use std::collections::HashSet;

use crate::ops::Op;
use crate::{Def, Graph, GraphError, LeafId, NodeId, ValueId};

/// Checks the invariants above.
pub fn verify(graph: &Graph) -> Result<(), GraphError> {
    let fail = |invariant: &'static str, found: String| {
        Err(GraphError::Invariant {
            graph: graph.name.clone(),
            invariant,
            found,
        })
    };
    ids(graph).or_else(|found| fail("ids name what exists", found))?;
    definitions(graph)
        .or_else(|found| fail("values are defined once and before they are used", found))?;
    for node in &graph.nodes {
        let types: Vec<_> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
        let inferred = node.op.infer(&types)?;
        let found: Vec<_> = node.outputs.iter().map(|v| graph.ty(*v).clone()).collect();
        if inferred != found {
            return fail(
                "outputs have the inferred types",
                format!("{}: {found:?}", node.op.name()),
            );
        }
        if let Op::Fused(f) = &node.op {
            if !f.region.leaves.is_empty() {
                return fail("regions have no leaves", f.region.leaves[0].name.clone());
            }
            verify_region(&f.region)?;
        }
    }
    names(graph).or_else(|found| fail("names are unique", found))?;
    leaves(graph)?;
    states(graph).or_else(|found| fail("states are versioned", found))
}

/// A region is a graph whose states are results of the node, not of the region's own inputs.
fn verify_region(region: &Graph) -> Result<(), GraphError> {
    verify(region)
}

fn ids(graph: &Graph) -> Result<(), String> {
    let exists = |v: &ValueId| v.index() < graph.values.len();
    let all = graph
        .nodes
        .iter()
        .flat_map(|n| n.inputs.iter().chain(&n.outputs));
    let all = all
        .chain(&graph.inputs)
        .chain(&graph.results)
        .chain(graph.leaves.iter().map(|l| &l.value));
    match all.into_iter().find(|v| !exists(v)) {
        Some(v) => Err(format!("value {} of {}", v.0, graph.values.len())),
        None => Ok(()),
    }
}

fn definitions(graph: &Graph) -> Result<(), String> {
    let mut defined = vec![false; graph.values.len()];
    let mut define = |v: ValueId, def: Def| {
        let twice = std::mem::replace(&mut defined[v.index()], true);
        let found = graph.values[v.index()].def;
        if twice || found != def {
            Err(format!("value {}: {found:?} and {def:?}", v.0))
        } else {
            Ok(())
        }
    };
    for (i, &v) in graph.inputs.iter().enumerate() {
        define(v, Def::Input(i as u32))?;
    }
    for (i, leaf) in graph.leaves.iter().enumerate() {
        define(leaf.value, Def::Leaf(LeafId(i as u32)))?;
    }
    let mut at = vec![0; graph.values.len()];
    for (i, node) in graph.nodes.iter().enumerate() {
        for (o, &v) in node.outputs.iter().enumerate() {
            define(v, Def::Node(NodeId(i as u32), o as u32))?;
            at[v.index()] = i + 1;
        }
        if let Some(v) = node
            .inputs
            .iter()
            .find(|v| matches!(graph.values[v.index()].def, Def::Node(n, _) if n.index() >= i))
        {
            return Err(format!(
                "{} reads value {} before it is defined",
                node.op.name(),
                v.0
            ));
        }
    }
    match defined.iter().position(|d| !d) {
        Some(v) => Err(format!("value {v} is never defined")),
        None => Ok(()),
    }
}

fn names(graph: &Graph) -> Result<(), String> {
    let inputs = graph
        .inputs
        .iter()
        .map(|v| ("input", graph.values[v.index()].name.as_str()));
    let leaves = graph.leaves.iter().map(|l| ("leaf", l.name.as_str()));
    let results = graph
        .results
        .iter()
        .map(|v| ("result", graph.values[v.index()].name.as_str()));
    if let Some(v) = graph
        .results
        .iter()
        .find(|v| !matches!(graph.values[v.index()].def, Def::Node(..)))
    {
        return Err(format!(
            "result {:?} is computed by no node",
            graph.values[v.index()].name
        ));
    }
    let mut seen = HashSet::new();
    for (kind, name) in inputs.chain(leaves).chain(results) {
        let number = kind == "input" && name.bytes().all(|b| b.is_ascii_digit());
        if name.is_empty()
            || number
            || name.contains(char::is_whitespace)
            || !seen.insert((kind, name))
        {
            return Err(format!("{kind} {name:?}"));
        }
    }
    Ok(())
}

fn leaves(graph: &Graph) -> Result<(), GraphError> {
    for leaf in &graph.leaves {
        leaf.recipe.check()?;
        let ty = graph.ty(leaf.value);
        let rows = ty.shape.first().and_then(|d| d.constant());
        if rows != Some(leaf.recipe.rows()) || ty.state {
            let found = format!(
                "@{}: {ty} from a recipe of {} rows",
                leaf.name,
                leaf.recipe.rows()
            );
            return Err(GraphError::Recipe { found });
        }
    }
    Ok(())
}

fn states(graph: &Graph) -> Result<(), String> {
    let mut written: HashSet<ValueId> = HashSet::new();
    for node in &graph.nodes {
        if let Some(v) = node.inputs.iter().find(|v| written.contains(v)) {
            return Err(format!(
                "{} reads version {} after it was written over",
                node.op.name(),
                v.0
            ));
        }
        if node.outputs.iter().any(|v| graph.ty(*v).state) {
            let versions: Vec<ValueId> = node
                .inputs
                .iter()
                .copied()
                .filter(|v| graph.ty(*v).state)
                .collect();
            match versions[..] {
                [version] => written.insert(version),
                _ => {
                    return Err(format!(
                        "{} writes a state from {} versions",
                        node.op.name(),
                        versions.len()
                    ));
                }
            };
        }
    }
    let last = (0..graph.values.len() as u32).map(ValueId).find(|v| {
        graph.ty(*v).state
            && !written.contains(v)
            && !graph.results.contains(v)
            && !graph.inputs.contains(v)
    });
    match last {
        Some(v) => Err(format!("the last version {} is no result", v.0)),
        None => Ok(()),
    }
}
