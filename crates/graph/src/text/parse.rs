//! Parses the text form. Whatever the text is, this takes memory in proportion to it and gives a graph or an error.

use std::collections::HashMap;
use std::fmt::Display;

use ingle_quant::{ElementType, Storage};

use crate::ops::{Binary, EltOp, Fused, Op, Unary};
use crate::{Dim, Graph, GraphError, Recipe, Role, Symbol, ValueId, ValueType};

/// Parses the text form. The graph is type-checked on the way; call [`crate::verify`] for the rest.
pub fn parse(text: &str) -> Result<Graph, GraphError> {
    let mut lines = Lines {
        lines: text.lines(),
        number: 0,
    };
    let header = lines.take();
    let header = header.ok_or_else(|| lines.end().wrong("graph NAME", "the end"))?;
    let name = header.text.strip_prefix("graph ");
    let name = name.ok_or_else(|| header.wrong("graph NAME", header.text))?;
    let mut parser = Parser::new(name);
    while let Some(line) = lines.take() {
        parser.definition(line, &mut lines)?;
    }
    Ok(parser.graph)
}

/// A line with its number.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// An error at `found`, which is a part of the line.
    fn wrong(self, expected: impl Display, found: &str) -> GraphError {
        let column = self.text.find(found).map_or(1, |c| c + 1);
        GraphError::Text {
            line: self.number,
            column,
            expected: expected.to_string(),
            found: found.chars().take(80).collect(),
        }
    }

    /// Cuts `text`, a part of the line, in two, or says what was expected.
    fn cut(
        self,
        text: &'a str,
        at: &str,
        expected: &str,
    ) -> Result<(&'a str, &'a str), GraphError> {
        text.split_once(at)
            .ok_or_else(|| self.wrong(expected, text))
    }
}

/// The lines that say something.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Lines<'a> {
    fn take(&mut self) -> Option<Line<'a>> {
        for text in self.lines.by_ref() {
            self.number += 1;
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                let number = self.number;
                return Some(Line { number, text });
            }
        }
        None
    }

    /// Where the text ends.
    fn end(&self) -> Line<'a> {
        Line {
            number: self.number,
            text: "",
        }
    }
}

/// Reads the definitions of one graph, or of a region.
struct Parser<'a> {
    graph: Graph,
    /// Values by the names under which the text knows them, with `%` or `@`.
    values: HashMap<&'a str, ValueId>,
}

impl<'a> Parser<'a> {
    fn new(name: &str) -> Self {
        Parser {
            graph: Graph::new(name),
            values: HashMap::new(),
        }
    }

    fn definition(&mut self, line: Line<'a>, lines: &mut Lines<'a>) -> Result<(), GraphError> {
        match line.text.split_once(' ') {
            Some(("input", rest)) => self.input(line, rest),
            Some(("leaf", rest)) => self.leaf(line, rest),
            Some(("result", rest)) => self.result(line, rest),
            _ => self.node(line, Some(lines)),
        }
    }

    /// Reads definitions up to the `}` that closes a region.
    fn region(mut self, open: Line<'a>, lines: &mut Lines<'a>) -> Result<Graph, GraphError> {
        while let Some(line) = lines.take() {
            match line.text.split_once(' ') {
                _ if line.text == "}" => return Ok(self.graph),
                Some(("input", rest)) => self.input(line, rest)?,
                Some(("result", rest)) => self.result(line, rest)?,
                Some(("leaf", _)) => return Err(line.wrong("no leaf in a region", line.text)),
                _ => self.node(line, None)?,
            }
        }
        Err(open.wrong("a region that ends with }", open.text))
    }

    /// `%NAME: TYPE`
    fn input(&mut self, line: Line<'a>, rest: &'a str) -> Result<(), GraphError> {
        let (name, ty) = line.cut(rest, ": ", "input %NAME: TYPE")?;
        let bare = name.strip_prefix('%');
        let bare = bare.ok_or_else(|| line.wrong("input %NAME: TYPE", name))?;
        let value = self.graph.input(bare, value_type(line, ty)?);
        self.define(line, name, value)
    }

    /// `@NAME: TYPE [trainable|adapter] [= RECIPE]`
    fn leaf(&mut self, line: Line<'a>, rest: &'a str) -> Result<(), GraphError> {
        let (name, rest) = line.cut(rest, ": ", "leaf @NAME: TYPE")?;
        let bare = name.strip_prefix('@');
        let bare = bare.ok_or_else(|| line.wrong("leaf @NAME: TYPE", name))?;
        let (head, recipe) = match rest.split_once(" = ") {
            Some((head, recipe)) => (head, Some(recipe)),
            None => (rest, None),
        };
        let (ty, role) = match head.rsplit_once(' ') {
            Some((ty, "trainable")) => (ty, Role::Trainable),
            Some((ty, "adapter")) => (ty, Role::Adapter),
            _ => (head, Role::Frozen),
        };
        let ty = value_type(line, ty)?;
        let rows = ty.shape.first().and_then(|d| d.constant()).unwrap_or(0);
        let recipe = match recipe {
            Some(text) => serde_json::from_str(text)
                .map_err(|e| line.wrong(format_args!("a recipe ({e})"), text))?,
            None => Recipe::source(bare, rows),
        };
        if self.values.contains_key(name) {
            return Err(line.wrong("a new name", name));
        }
        let value = self.graph.new_leaf(bare.to_owned(), ty, recipe, role)?;
        self.define(line, name, value)
    }

    /// `NAME = %VALUE`
    fn result(&mut self, line: Line<'a>, rest: &'a str) -> Result<(), GraphError> {
        let (name, value) = line.cut(rest, " = ", "result NAME = %VALUE")?;
        let value = self.value(line, value)?;
        self.graph.result(name, value);
        Ok(())
    }

    /// `%VALUE: TYPE[; …] = OP VALUES [ATTRIBUTES]`; with `lines`, the op may be a region, which they go on with.
    fn node(&mut self, line: Line<'a>, lines: Option<&mut Lines<'a>>) -> Result<(), GraphError> {
        let (outputs, rest) = line.cut(line.text, " = ", "a definition")?;
        let (op, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let (inputs, attributes) = match rest.find('{') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let inputs = inputs.trim().split(", ").filter(|t| !t.is_empty());
        let inputs = inputs
            .map(|t| self.value(line, t))
            .collect::<Result<Vec<_>, _>>()?;
        let op = match (op, lines) {
            ("fused", Some(lines)) if attributes == "{" => {
                let region = Box::new(Parser::new("").region(line, lines)?);
                Fused { region }.into()
            }
            ("fused", _) => {
                let expected = "a region that opens with { and is not inside another";
                return Err(line.wrong(expected, line.text));
            }
            _ => parse_op(line, op, attributes)?,
        };
        let values = self.graph.node(op, &inputs)?;
        self.outputs(line, outputs, &values)
    }

    /// Names the outputs of a node, which must be declared with the types that they have.
    fn outputs(
        &mut self,
        line: Line<'a>,
        text: &'a str,
        values: &[ValueId],
    ) -> Result<(), GraphError> {
        let declared: Vec<&str> = text.split("; ").collect();
        if declared.len() != values.len() {
            return Err(line.wrong(format_args!("{} outputs", values.len()), text));
        }
        for (text, &value) in declared.into_iter().zip(values) {
            let (name, ty) = line.cut(text, ": ", "%VALUE: TYPE")?;
            let inferred = self.graph.ty(value);
            if value_type(line, ty)? != *inferred {
                return Err(line.wrong(inferred, ty));
            }
            self.define(line, name, value)?;
        }
        Ok(())
    }

    fn value(&self, line: Line<'a>, name: &str) -> Result<ValueId, GraphError> {
        let value = self.values.get(name).copied();
        value.ok_or_else(|| line.wrong("a value defined before", name))
    }

    fn define(&mut self, line: Line<'a>, name: &'a str, value: ValueId) -> Result<(), GraphError> {
        match self.values.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(line.wrong("a new name", name)),
        }
    }
}

fn parse_op(line: Line<'_>, name: &str, attributes: &str) -> Result<Op, GraphError> {
    if let Some(kind) = EltOp::from_name(name) {
        return match (attributes.is_empty(), kind.arity()) {
            (true, 1) => Ok(Unary { kind }.into()),
            (true, _) => Ok(Binary { kind }.into()),
            (false, _) => Err(line.wrong("no attributes", attributes)),
        };
    }
    if !Op::NAMES.contains(&name) || matches!(name, "unary" | "binary") {
        return Err(line.wrong(format_args!("one of {}", Op::NAMES.join(" ")), name));
    }
    let given = if attributes.is_empty() {
        "{}"
    } else {
        attributes
    };
    serde_json::from_str(&format!("{{\"{name}\":{given}}}"))
        .map_err(|e| line.wrong(format_args!("attributes of {name} ({e})"), attributes))
}

fn value_type(line: Line<'_>, text: &str) -> Result<ValueType, GraphError> {
    parse_type(text).ok_or_else(|| line.wrong("a type such as f32[tokens, 576]", text))
}

fn parse_type(text: &str) -> Option<ValueType> {
    let (text, state) = match text.strip_prefix("state ") {
        Some(text) => (text, true),
        None => (text, false),
    };
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
