//! The verifier. What holds of a verified graph, so that nothing later has to ask:
//!
//! 1. Every id names what exists.
//! 2. Every value is defined once, by the input, leaf or node that it names, and before it is used.
//! 3. Every output has the type that its op infers from its inputs; attributes are in range. No type has more than 2⁴⁰
//!    elements for each unit of its symbols.
//! 4. Names of inputs, leaves and results are unique, not empty, and without spaces and braces; an input's is no number.
//!    The graph's own name is one line. Results are computed by nodes.
//! 5. A leaf's recipe gives as many rows as its type has, and is well formed.
//! 6. A state version is written at most once; every read of a version comes before the next write; the last version of
//!    every state that is written is a result, and no other version is.
//! 7. Regions have no name, no leaves and no regions, and are verified too; what a node reads from a region is one of its
//!    results.

use std::collections::HashSet;

use crate::ops::Op;
use crate::{Def, Graph, GraphError, LeafId, NodeId, ValueId};

/// More elements than any tensor has; a few of them can be added up in 64 bits.
const MAX_ELEMENTS: u64 = 1 << 40;

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
    regions(graph)?;
    types(graph)?;
    sizes(graph).or_else(|found| fail("types have a size", found))?;
    names(graph).or_else(|found| fail("names are unique", found))?;
    leaves(graph)?;
    states(graph).or_else(|found| fail("states are versioned", found))
}

/// Verifies the regions, whose types the ops' inference relies on.
fn regions(graph: &Graph) -> Result<(), GraphError> {
    for node in &graph.nodes {
        let Op::Fused(fused) = &node.op else {
            continue;
        };
        let region = &fused.region;
        let wrong = if !region.name.is_empty() {
            Some(("regions have no name", region.name.clone()))
        } else if let Some(leaf) = region.leaves.first() {
            Some(("regions have no leaves", leaf.name.clone()))
        } else if region.nodes.iter().any(|n| matches!(n.op, Op::Fused(_))) {
            Some(("regions have no regions", "one inside another".into()))
        } else {
            None
        };
        if let Some((invariant, found)) = wrong {
            let graph = graph.name.clone();
            return Err(GraphError::Invariant {
                graph,
                invariant,
                found,
            });
        }
        verify(region)?;
    }
    Ok(())
}

fn types(graph: &Graph) -> Result<(), GraphError> {
    for node in &graph.nodes {
        let types: Vec<_> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
        let inferred = node.op.infer(&types)?;
        let found = node.outputs.iter().map(|v| graph.ty(*v));
        if !inferred.iter().eq(found.clone()) {
            let found: Vec<String> = found.map(ToString::to_string).collect();
            return Err(GraphError::Invariant {
                graph: graph.name.clone(),
                invariant: "outputs have the inferred types",
                found: format!("{}: {}", node.op.name(), found.join("; ")),
            });
        }
    }
    Ok(())
}

fn sizes(graph: &Graph) -> Result<(), String> {
    let fits = |ty: &crate::ValueType| {
        let constant = ty.shape.iter().filter_map(|d| d.constant());
        let mut elements = constant.map(|n| n as u64);
        let elements = elements.try_fold(1, u64::checked_mul);
        elements.is_some_and(|n| n <= MAX_ELEMENTS)
    };
    match graph.values.iter().find(|v| !fits(&v.ty)) {
        Some(v) => Err(v.ty.to_string()),
        None => Ok(()),
    }
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
    if graph.name.trim() != graph.name || graph.name.contains(char::is_control) {
        return Err(format!("the graph's own, {:?}", graph.name));
    }
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
            || name.contains(|c: char| c.is_whitespace() || matches!(c, '{' | '}'))
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
    if let Some(v) = graph.results.iter().find(|v| written.contains(v)) {
        return Err(format!("version {} is a result, and was written over", v.0));
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
