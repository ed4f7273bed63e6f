//! `Graph`: an SSA graph in an arena, in program order.
//!
//! Values are defined once: by an input, a leaf, or a node. Nodes stand in an order in which every value is defined
//! before it is used, so a pass walks the list once and builds a new graph. Nothing in a node is a pointer or a closure.

use serde::{Deserialize, Serialize};

use crate::ops::Op;
use crate::{GraphError, Recipe, ValueType};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A value of a graph.
    ValueId
}
id! {
    /// A node of a graph.
    NodeId
}
id! {
    /// A leaf (weight) of a graph.
    LeafId
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Def {
    Input(u32),
    Leaf(LeafId),
    Node(NodeId, u32),
}

/// A value: its type, its definition, and a name for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub ty: ValueType,
    pub def: Def,
    pub name: String,
}

/// What training may do with a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Frozen,
    Trainable,
    Adapter,
}

/// A weight without bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leaf {
    pub name: String,
    pub recipe: Recipe,
    pub role: Role,
    pub value: ValueId,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
}

/// What to compute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    pub name: String,
    pub values: Vec<Value>,
    pub leaves: Vec<Leaf>,
    pub nodes: Vec<Node>,
    pub inputs: Vec<ValueId>,
    pub results: Vec<ValueId>,
}

impl Graph {
    pub fn new(name: impl Into<String>) -> Self {
        Graph {
            name: name.into(),
            ..Graph::default()
        }
    }

    /// Adds an input. Inputs are given by position when the graph runs.
    pub fn input(&mut self, name: impl Into<String>, ty: ValueType) -> ValueId {
        let def = Def::Input(self.inputs.len() as u32);
        let id = self.value(name.into(), ty, def);
        self.inputs.push(id);
        id
    }

    /// Adds a leaf, or finds the one of this name (a tied weight) if it is the same.
    pub fn leaf(
        &mut self,
        name: impl Into<String>,
        ty: ValueType,
        recipe: Recipe,
    ) -> Result<ValueId, GraphError> {
        let name = name.into();
        if let Some(leaf) = self.leaves.iter().find(|l| l.name == name) {
            if leaf.recipe == recipe && self.values[leaf.value.index()].ty == ty {
                return Ok(leaf.value);
            }
            return Err(GraphError::Invariant {
                graph: self.name.clone(),
                invariant: "a leaf's name has one type and recipe",
                found: format!("two of @{name}"),
            });
        }
        self.new_leaf(name, ty, recipe, Role::Frozen)
    }

    /// Adds a leaf whose name is known to be new.
    pub(crate) fn new_leaf(
        &mut self,
        name: String,
        ty: ValueType,
        recipe: Recipe,
        role: Role,
    ) -> Result<ValueId, GraphError> {
        recipe.check()?;
        let id = LeafId(self.leaves.len() as u32);
        let value = self.value(name.clone(), ty, Def::Leaf(id));
        self.leaves.push(Leaf {
            name,
            recipe,
            role,
            value,
        });
        Ok(value)
    }

    /// Adds a node; its outputs' types come from the op's shape inference.
    pub fn node(
        &mut self,
        op: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, GraphError> {
        let op = op.into();
        let types: Vec<&ValueType> = inputs.iter().map(|v| &self.values[v.index()].ty).collect();
        let outputs = op.infer(&types)?;
        let node = NodeId(self.nodes.len() as u32);
        let outputs = (0u32..)
            .zip(outputs)
            .map(|(i, ty)| self.value(String::new(), ty, Def::Node(node, i)))
            .collect::<Vec<_>>();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
        });
        Ok(outputs)
    }

    /// Adds a node with exactly one output.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        let outputs = self.node(op, inputs)?;
        match outputs[..] {
            [one] => Ok(one),
            _ => Err(GraphError::Invariant {
                graph: self.name.clone(),
                invariant: "push is for ops with one output",
                found: format!("{} outputs", outputs.len()),
            }),
        }
    }

    /// Declares a result. Results are read by position and by name.
    pub fn result(&mut self, name: impl Into<String>, value: ValueId) {
        self.values[value.index()].name = name.into();
        self.results.push(value);
    }

    pub fn ty(&self, value: ValueId) -> &ValueType {
        &self.values[value.index()].ty
    }

    /// The node that defines `value`, if a node does.
    pub fn producer(&self, value: ValueId) -> Option<&Node> {
        match self.values[value.index()].def {
            Def::Node(n, _) => Some(&self.nodes[n.index()]),
            _ => None,
        }
    }

    /// The leaf that defines `value`, if a leaf does.
    pub fn as_leaf(&self, value: ValueId) -> Option<&Leaf> {
        match self.values[value.index()].def {
            Def::Leaf(l) => Some(&self.leaves[l.index()]),
            _ => None,
        }
    }

    /// How often each value is used, by nodes and as a result.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.values.len()];
        for value in self
            .nodes
            .iter()
            .flat_map(|n| &n.inputs)
            .chain(&self.results)
        {
            uses[value.index()] += 1;
        }
        uses
    }

    fn value(&mut self, name: String, ty: ValueType, def: Def) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { ty, def, name });
        id
    }
}
