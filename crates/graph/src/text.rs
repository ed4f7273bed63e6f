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
//! A leaf without a recipe is the source of its own name. A region stands between `{` and `}`.

use std::collections::HashMap;
use std::fmt::{self, Write};

use ingle_quant::{ElementType, Storage};

use crate::ops::{Binary, EltOp, Fused, Op, Unary};
use crate::{Def, Dim, Graph, GraphError, Node, Recipe, Role, Symbol, ValueId, ValueType};

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

/// Parses the text form. The graph is type-checked on the way; call [`crate::verify`] for the rest.
pub fn parse(text: &str) -> Result<Graph, GraphError> {
    let mut lines = Lines {
        lines: text.lines().enumerate().collect(),
        next: 0,
    };
    let (number, header) = lines
        .take()
        .ok_or_else(|| error(0, "", "graph NAME", "the end"))?;
    let name = header
        .strip_prefix("graph ")
        .ok_or_else(|| error(number, header, "graph NAME", header))?;
    let graph = body(&mut lines, name.trim(), 0)?;
    match lines.take() {
        None => Ok(graph),
        Some((number, line)) => Err(error(number, line, "the end", line)),
    }
}

/// Lines with their numbers; blank lines and comments are passed over.
struct Lines<'a> {
    lines: Vec<(usize, &'a str)>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn take(&mut self) -> Option<(usize, &'a str)> {
        while let Some(&(number, line)) = self.lines.get(self.next) {
            self.next += 1;
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                return Some((number + 1, line));
            }
        }
        None
    }
}

fn error(line: usize, text: &str, expected: impl Into<String>, found: &str) -> GraphError {
    let column = text.find(found).map_or(1, |c| c + 1);
    let found: String = found.chars().take(80).collect();
    GraphError::Text {
        line,
        column,
        expected: expected.into(),
        found,
    }
}

/// Reads definitions up to the end or the `}` that closes the region.
fn body(lines: &mut Lines<'_>, name: &str, depth: usize) -> Result<Graph, GraphError> {
    let mut graph = Graph::new(name);
    let mut names: HashMap<String, ValueId> = HashMap::new();
    while let Some((number, line)) = lines.take() {
        if line == "}" && depth > 0 {
            return Ok(graph);
        }
        let wrong = |expected: &str, found: &str| error(number, line, expected, found);
        let id = |names: &HashMap<String, ValueId>, text: &str| {
            names
                .get(text)
                .copied()
                .ok_or_else(|| wrong("a value defined before", text))
        };
        if let Some(rest) = line.strip_prefix("input %") {
            let (name, ty) = rest
                .split_once(": ")
                .ok_or_else(|| wrong("input %NAME: TYPE", line))?;
            let value = graph.input(name, value_type(ty).ok_or_else(|| wrong("a type", ty))?);
            define(&mut names, format!("%{name}"), value).map_err(|n| wrong("a new name", &n))?;
        } else if let Some(rest) = line.strip_prefix("leaf @") {
            let (name, rest) = rest
                .split_once(": ")
                .ok_or_else(|| wrong("leaf @NAME: TYPE", line))?;
            let value = leaf(&mut graph, name, rest, &wrong)?;
            define(&mut names, format!("@{name}"), value).map_err(|n| wrong("a new name", &n))?;
        } else if let Some(rest) = line.strip_prefix("result ") {
            let (name, value) = rest
                .split_once(" = ")
                .ok_or_else(|| wrong("result NAME = %VALUE", line))?;
            let value = id(&names, value)?;
            graph.result(name, value);
        } else {
            let (outputs, rest) = line
                .split_once(" = ")
                .ok_or_else(|| wrong("a definition", line))?;
            let (op, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let (inputs, attributes) = match rest.find('{') {
                Some(at) => (rest[..at].trim(), &rest[at..]),
                None => (rest, ""),
            };
            let inputs = inputs.split(", ").filter(|t| !t.is_empty());
            let inputs = inputs
                .map(|t| id(&names, t.trim()))
                .collect::<Result<Vec<_>, _>>()?;
            let op = if op == "fused" {
                if attributes != "{" || depth > 0 {
                    return Err(wrong(
                        "a region that opens with { and is not inside another",
                        line,
                    ));
                }
                Fused {
                    region: Box::new(body(lines, "", depth + 1)?),
                }
                .into()
            } else {
                parse_op(op, attributes).map_err(|(expected, found)| wrong(&expected, &found))?
            };
            let values = graph.node(op, &inputs)?;
            let declared: Vec<&str> = outputs.split("; ").collect();
            if declared.len() != values.len() {
                return Err(wrong(&format!("{} outputs", values.len()), outputs));
            }
            for (text, value) in declared.into_iter().zip(values) {
                let (name, ty) = text
                    .split_once(": ")
                    .ok_or_else(|| wrong("%VALUE: TYPE", text))?;
                if value_type(ty).as_ref() != Some(graph.ty(value)) {
                    return Err(wrong(&graph.ty(value).to_string(), ty));
                }
                define(&mut names, name.to_owned(), value).map_err(|n| wrong("a new name", &n))?;
            }
        }
    }
    if depth > 0 {
        Err(error(
            lines.lines.len(),
            "",
            "} at the end of a region",
            "the end",
        ))
    } else {
        Ok(graph)
    }
}

fn define(
    names: &mut HashMap<String, ValueId>,
    name: String,
    value: ValueId,
) -> Result<(), String> {
    match names.insert(name.clone(), value) {
        None => Ok(()),
        Some(_) => Err(name),
    }
}

fn leaf(
    graph: &mut Graph,
    name: &str,
    rest: &str,
    wrong: &dyn Fn(&str, &str) -> GraphError,
) -> Result<ValueId, GraphError> {
    let (head, recipe) = rest
        .split_once(" = ")
        .map_or((rest, None), |(h, r)| (h, Some(r)));
    let (ty, role) = match head.strip_suffix(" trainable") {
        Some(ty) => (ty, Role::Trainable),
        None => head
            .strip_suffix(" adapter")
            .map_or((head, Role::Frozen), |ty| (ty, Role::Adapter)),
    };
    let ty = value_type(ty).ok_or_else(|| wrong("a type", ty))?;
    let recipe = match recipe {
        Some(text) => {
            serde_json::from_str(text).map_err(|e| wrong(&format!("a recipe ({e})"), text))?
        }
        None => Recipe::source(
            name,
            ty.shape.first().and_then(|d| d.constant()).unwrap_or(0),
        ),
    };
    let value = graph.leaf(name, ty, recipe)?;
    if let Some(l) = graph.leaves.last_mut() {
        l.role = role;
    }
    Ok(value)
}

fn parse_op(name: &str, attributes: &str) -> Result<Op, (String, String)> {
    if let Some(kind) = EltOp::from_name(name) {
        return Ok(if kind.arity() == 1 {
            Unary { kind }.into()
        } else {
            Binary { kind }.into()
        });
    }
    if !Op::NAMES.contains(&name) || matches!(name, "unary" | "binary") {
        return Err((format!("one of {}", Op::NAMES.join(" ")), name.to_owned()));
    }
    let attributes = if attributes.is_empty() {
        "{}"
    } else {
        attributes
    };
    serde_json::from_str(&format!("{{\"{name}\":{attributes}}}"))
        .map_err(|e| (format!("attributes of {name} ({e})"), attributes.to_owned()))
}

fn value_type(text: &str) -> Option<ValueType> {
    let (text, state) = text
        .strip_prefix("state ")
        .map_or((text, false), |t| (t, true));
    let (storage, shape) = text.strip_suffix(']')?.split_once('[')?;
    let storage = match ElementType::from_name(storage) {
        Some(element) => Storage::Element(element),
        None => Storage::Quant(storage.parse().ok()?),
    };
    let dim = |d: &str| match Symbol::from_name(d) {
        Some(s) => Some(Dim::Sym(s)),
        None => d.parse().ok().map(Dim::Const),
    };
    let shape = shape
        .split(", ")
        .filter(|d| !d.is_empty())
        .map(dim)
        .collect::<Option<Vec<_>>>()?;
    Some(ValueType {
        storage,
        shape,
        state,
    })
}
