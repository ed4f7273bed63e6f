//! The reference interpreter: every op's own reference, node by node, in program order.

use std::collections::HashMap;

use half::f16;
use ingle_quant::ElementType;

use crate::ops::KV_BLOCK;
use crate::{Data, Def, Dim, Graph, GraphError, Symbol, Tensor, ValueType};

/// Runs a verified graph on `inputs` (by position) with `leaf(name)` giving each weight's values, dequantised.
///
/// Gives the results by position; a state's last version is one of them. Values that do not have the graph's types, or
/// give a symbol two sizes, are refused.
pub fn interpret(
    graph: &Graph,
    inputs: &[&Tensor],
    mut leaf: impl FnMut(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, GraphError> {
    if inputs.len() != graph.inputs.len() {
        let expected = graph.inputs.len().to_string();
        return Err(GraphError::Arity {
            op: "interpret",
            expected,
            found: inputs.len(),
        });
    }
    let mut leaves = Vec::with_capacity(graph.leaves.len());
    for l in &graph.leaves {
        let missing = || GraphError::MissingLeaf {
            what: "interpret",
            name: l.name.clone(),
        };
        leaves.push(leaf(&l.name).ok_or_else(missing)?);
    }
    let mut sizes = HashMap::new();
    let given = graph.inputs.iter().zip(inputs.iter().copied());
    let given = given.chain(graph.leaves.iter().map(|l| &l.value).zip(&leaves));
    for (i, (&v, tensor)) in given.enumerate() {
        let ty = graph.ty(v);
        if !fits(ty, tensor, &mut sizes) {
            let kind = match tensor.data {
                Data::F32(_) => "floats",
                Data::I32(_) => "integers",
            };
            return Err(GraphError::Input {
                op: "interpret",
                input: i,
                expected: format!("{ty} for {:?}", graph.values[v.index()].name),
                found: format!("{kind} {:?}", tensor.shape),
            });
        }
    }
    Ok(run(graph, inputs, &leaves))
}

/// Whether a tensor has this type, with the sizes of symbols that are known; notes those that are new.
fn fits(ty: &ValueType, tensor: &Tensor, sizes: &mut HashMap<Symbol, usize>) -> bool {
    let integers = matches!(tensor.data, Data::I32(_));
    let mut same = |(dim, &size): (&Dim, &usize)| match *dim {
        Dim::Const(n) => n == size,
        Dim::Sym(Symbol::Context) => {
            size.is_multiple_of(KV_BLOCK)
                && *sizes.entry(Symbol::Table).or_insert(size / KV_BLOCK) == size / KV_BLOCK
        }
        Dim::Sym(s) => *sizes.entry(s).or_insert(size) == size,
    };
    (ty.element() == Some(ElementType::I32)) == integers
        && ty.shape.len() == tensor.shape.len()
        && ty.shape.iter().zip(&tensor.shape).all(&mut same)
}

/// Runs a region: a graph without leaves whose inputs have been checked.
pub(crate) fn region(graph: &Graph, inputs: &[&Tensor]) -> Vec<Tensor> {
    run(graph, inputs, &[])
}

fn run(graph: &Graph, inputs: &[&Tensor], leaves: &[Tensor]) -> Vec<Tensor> {
    let mut computed: Vec<Option<Tensor>> = vec![None; graph.values.len()];
    for node in &graph.nodes {
        let arguments: Vec<&Tensor> = node
            .inputs
            .iter()
            .map(|v| lookup(graph, &computed, inputs, leaves, v.index()))
            .collect();
        let outputs = node.op.reference(&arguments);
        for (value, mut tensor) in node.outputs.iter().zip(outputs) {
            round_to(graph.values[value.index()].ty.element(), &mut tensor);
            computed[value.index()] = Some(tensor);
        }
    }
    graph
        .results
        .iter()
        .map(|v| lookup(graph, &computed, inputs, leaves, v.index()).clone())
        .collect()
}

fn lookup<'a>(
    graph: &Graph,
    computed: &'a [Option<Tensor>],
    inputs: &[&'a Tensor],
    leaves: &'a [Tensor],
    value: usize,
) -> &'a Tensor {
    match graph.values[value].def {
        Def::Input(i) => inputs[i as usize],
        Def::Leaf(l) => &leaves[l.index()],
        Def::Node(..) => computed[value]
            .as_ref()
            .expect("nodes stand in an order that defines before it uses"),
    }
}

fn round_to(element: Option<ElementType>, tensor: &mut Tensor) {
    if let (Some(ElementType::F16), Data::F32(data)) = (element, &mut tensor.data) {
        for v in data {
            *v = f16::from_f32(*v).to_f32();
        }
    }
}
