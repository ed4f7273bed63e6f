//! The text form of graphs: one line a definition, in program order. It parses back to the same graph.
//!
//! ```text
//! graph decoder
//!   input %x: f32[tokens, 64]
//!   leaf @norm.weight: f32[64]
//!   leaf @qkv: q4.g32.f16.min[192, 64] = {"concat":[{"source":{"name":"q","rows":64}},…]}
//!   %2: f32[tokens, 64] = rms_norm %x, @norm.weight {"eps":1e-5}
//!   %3: f32[tokens, 192] = matmul %2, @qkv
//!   result y = %3
//! ```
//!
//! A leaf without a recipe is the source of its own name. A region stands between `{` and `}`. Blank lines, and lines that
//! start with `#`, are passed over.

mod parse;

use std::fmt::{self, Write};

use ingle_quant::Storage;

use crate::ops::Op;
use crate::{Def, Graph, Node, Recipe, Role, ValueId, ValueType};

pub use parse::parse;

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.state {
            f.write_str("state ")?;
        }
        match self.storage {
            Storage::Element(e) => f.write_str(e.name())?,
            Storage::Quant(q) => write!(f, "{q}")?,
        }
        f.write_str("[")?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

/// The text of a verified graph.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}", self.name)?;
        write_body(self, f, 1)
    }
}

fn write_body(graph: &Graph, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    let numbers = numbers(graph);
    let indent = "  ".repeat(depth);
    for &v in &graph.inputs {
        writeln!(
            f,
            "{indent}input {}: {}",
            reference(graph, &numbers, v),
            graph.ty(v)
        )?;
    }
    for leaf in &graph.leaves {
        let ty = graph.ty(leaf.value);
        write!(f, "{indent}leaf @{}: {ty}", leaf.name)?;
        match leaf.role {
            Role::Frozen => {}
            Role::Trainable => f.write_str(" trainable")?,
            Role::Adapter => f.write_str(" adapter")?,
        }
        let plain = Recipe::source(
            leaf.name.clone(),
            ty.shape.first().and_then(|d| d.constant()).unwrap_or(0),
        );
        if leaf.recipe != plain {
            write!(f, " = {}", json(&leaf.recipe)?)?;
        }
        writeln!(f)?;
    }
    for node in &graph.nodes {
        write_node(graph, &numbers, node, f, depth)?;
    }
    for &v in &graph.results {
        writeln!(
            f,
            "{indent}result {} = %{}",
            graph.values[v.index()].name,
            numbers[v.index()]
        )?;
    }
    Ok(())
}

fn write_node(
    graph: &Graph,
    numbers: &[u32],
    node: &Node,
    f: &mut fmt::Formatter<'_>,
    depth: usize,
) -> fmt::Result {
    let indent = "  ".repeat(depth);
    let mut line = String::new();
    for (i, &v) in node.outputs.iter().enumerate() {
        let comma = if i > 0 { "; " } else { "" };
        write!(line, "{comma}%{}: {}", numbers[v.index()], graph.ty(v))?;
    }
    write!(line, " = {}", node.op.name())?;
    for (i, &v) in node.inputs.iter().enumerate() {
        write!(
            line,
            "{}{}",
            if i > 0 { ", " } else { " " },
            reference(graph, numbers, v)
        )?;
    }
    if let Op::Fused(fused) = &node.op {
        writeln!(f, "{indent}{line} {{")?;
        write_body(&fused.region, f, depth + 1)?;
        return writeln!(f, "{indent}}}");
    }
    let attributes = attributes(&node.op)?;
    writeln!(
        f,
        "{indent}{line}{}{attributes}",
        if attributes.is_empty() { "" } else { " " }
    )
}

/// The op's attributes as JSON; empty if it has none or its name says them all.
fn attributes(op: &Op) -> Result<String, fmt::Error> {
    if matches!(op, Op::Unary(_) | Op::Binary(_)) {
        return Ok(String::new());
    }
    let text = json(op)?;
    let inner = text
        .split_once(':')
        .and_then(|(_, rest)| rest.strip_suffix('}'))
        .ok_or(fmt::Error)?;
    Ok(if inner == "{}" {
        String::new()
    } else {
        inner.to_owned()
    })
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, fmt::Error> {
    serde_json::to_string(value).map_err(|_| fmt::Error)
}

/// Numbers the values that nodes define, in program order.
fn numbers(graph: &Graph) -> Vec<u32> {
    let mut numbers = vec![0; graph.values.len()];
    for (number, v) in (0..).zip(graph.nodes.iter().flat_map(|n| &n.outputs)) {
        numbers[v.index()] = number;
    }
    numbers
}

fn reference(graph: &Graph, numbers: &[u32], v: ValueId) -> String {
    match graph.values[v.index()].def {
        Def::Input(_) => format!("%{}", graph.values[v.index()].name),
        Def::Leaf(l) => format!("@{}", graph.leaves[l.index()].name),
        Def::Node(..) => format!("%{}", numbers[v.index()]),
    }
}
