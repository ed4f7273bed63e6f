//! Lowering: layout choice, kernel selection, schedule and memory plan.
//!
//! Needs: a fused graph. Gives: a plan. Every node becomes one launch; where the target does not compute a norm inside a
//! matmul at this number of rows, the norm becomes a launch of its own.

use std::collections::HashMap;

use super::launches::{Lowering, Place, cannot};
use super::{EntryOptions, Options, Target};
use crate::kernel::WeightLayout;
use crate::ops::Op;
use crate::plan::{Buffer, Entry, PLAN_VERSION, Plan, Port, State, Variant, Weight};
use crate::{Def, Graph, GraphError, ValueId};

/// See the module.
pub fn lower(graph: &Graph, options: &Options, target: &dyn Target) -> Result<Plan, GraphError> {
    let mut plan = Plan {
        version: PLAN_VERSION,
        graph: graph.name.clone(),
        target: target.name(),
        weights: vec![],
        states: vec![],
        inputs: vec![],
        results: vec![],
        scratch: vec![],
        kernels: vec![],
        entries: vec![],
    };
    let mut places = HashMap::new();
    ports(graph, &mut plan, &mut places)?;
    weights(graph, target, &mut plan, &mut places)?;
    for entry in &options.entries {
        let fed = fed(entry, &plan)?;
        let mut variants = Vec::new();
        for guards in &entry.variants {
            let mut lowering = Lowering::new(graph, target, guards, &mut plan, places.clone());
            if let Some((input, result)) = fed {
                lowering.feed(input, result);
            }
            let launches = lowering.run()?;
            variants.push(Variant {
                guards: guards.clone(),
                launches,
            });
        }
        plan.entries.push(Entry {
            name: entry.name.clone(),
            fed,
            variants,
        });
    }
    Ok(plan)
}

fn ports(
    graph: &Graph,
    plan: &mut Plan,
    places: &mut HashMap<ValueId, Place>,
) -> Result<(), GraphError> {
    let port = |v: ValueId| -> Result<Port, GraphError> {
        let value = &graph.values[v.index()];
        let element = value
            .ty
            .element()
            .ok_or_else(|| cannot(&value.name, "a quantised input or result"))?;
        Ok(Port {
            name: value.name.clone(),
            element,
            shape: value.ty.shape.clone(),
        })
    };
    for &v in &graph.inputs {
        let p = port(v)?;
        let buffer = if graph.ty(v).state {
            plan.states.push(State {
                name: p.name,
                element: p.element,
                shape: p.shape,
            });
            Buffer::State((plan.states.len() - 1) as u32)
        } else {
            plan.inputs.push(p);
            Buffer::Input((plan.inputs.len() - 1) as u32)
        };
        places.insert(v, Place::Buffer(buffer));
    }
    for &v in graph.results.iter().filter(|&&v| !graph.ty(v).state) {
        if places.contains_key(&v) || !matches!(graph.values[v.index()].def, Def::Node(..)) {
            return Err(cannot(
                &graph.values[v.index()].name,
                "a result that no node computes, or twice",
            ));
        }
        plan.results.push(port(v)?);
        places.insert(
            v,
            Place::Buffer(Buffer::Result((plan.results.len() - 1) as u32)),
        );
    }
    Ok(())
}

/// Decides each leaf's layout: matrices that matmuls and embeddings read as the target wants them, the rest as `f32`.
fn weights(
    graph: &Graph,
    target: &dyn Target,
    plan: &mut Plan,
    places: &mut HashMap<ValueId, Place>,
) -> Result<(), GraphError> {
    let matrices = matrix_leaves(graph);
    for leaf in &graph.leaves {
        let ty = graph.ty(leaf.value);
        let constant: Vec<usize> = ty.shape.iter().filter_map(|d| d.constant()).collect();
        let (rows, k) = match constant[..] {
            [n] if ty.shape.len() == 1 => (n, 1),
            [rows, k] if ty.shape.len() == 2 => (rows, k),
            _ => return Err(cannot(&leaf.name, format!("a weight of type {ty}"))),
        };
        let layout = if matrices.contains(&leaf.value) {
            target
                .layout(ty.storage, rows, k)
                .map_err(|reason| cannot(&leaf.name, reason))?
        } else {
            WeightLayout::Dense(ingle_quant::ElementType::F32)
        };
        let bytes = target
            .weight_bytes(layout, rows, k)
            .ok_or_else(|| cannot(&leaf.name, format!("the size of {ty} overflows")))?;
        places.insert(
            leaf.value,
            Place::Buffer(Buffer::Weight(plan.weights.len() as u32)),
        );
        plan.weights.push(Weight {
            name: leaf.name.clone(),
            recipe: leaf.recipe.clone(),
            storage: ty.storage,
            rows,
            k,
            layout,
            bytes,
        });
    }
    Ok(())
}

/// Leaves that are the matrix of a matmul or an embedding, inside regions too.
fn matrix_leaves(graph: &Graph) -> Vec<ValueId> {
    let is_matrix = |op: &Op| matches!(op, Op::Matmul(_) | Op::Embedding(_));
    let mut found = Vec::new();
    for node in &graph.nodes {
        match &node.op {
            op if is_matrix(op) => found.push(node.inputs[1]),
            Op::Fused(f) => {
                let inner = f
                    .region
                    .nodes
                    .iter()
                    .filter(|n| is_matrix(&n.op))
                    .map(|n| n.inputs[1]);
                found.extend(inner.filter_map(|v| match f.region.values[v.index()].def {
                    Def::Input(i) => Some(node.inputs[i as usize]),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    found
}

fn fed(entry: &EntryOptions, plan: &Plan) -> Result<Option<(u32, u32)>, GraphError> {
    let Some((input, result)) = &entry.fed else {
        return Ok(None);
    };
    let find = |ports: &[Port], name: &str| {
        let at = ports.iter().position(|p| p.name == name);
        at.map(|i| i as u32)
            .ok_or_else(|| cannot(&entry.name, format!("no input or result named {name}")))
    };
    Ok(Some((
        find(&plan.inputs, input)?,
        find(&plan.results, result)?,
    )))
}
