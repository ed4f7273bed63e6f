//! The policy on activations.
//!
//! Needs: a verified graph. Gives: with `int8`, every matmul of a quantised weight reads activations that went through
//! `quantize_activations`; with `f32`, the graph as it was.

use super::Trace;
use super::inline::{copy_node, finish, shell};
use crate::kernel::Activations;
use crate::ops::{Op, QuantizeActivations};
use crate::{Graph, GraphError, ValueId};

/// See the module.
pub fn quantize(
    graph: &Graph,
    policy: Activations,
    trace: &mut Trace,
) -> Result<Graph, GraphError> {
    if policy == Activations::F32 {
        return Ok(graph.clone());
    }
    let (mut copy, mut map) = shell(graph)?;
    let mut done: Vec<(ValueId, ValueId)> = Vec::new();
    for node in &graph.nodes {
        let x = node.inputs.first().map(|v| map[v]);
        let (Op::Matmul(_), Some(x), true) = (
            &node.op,
            x,
            node.inputs
                .get(1)
                .is_some_and(|&w| graph.ty(w).is_quantised()),
        ) else {
            copy_node(node, &mut copy, &mut map)?;
            continue;
        };
        let quantized = match (
            copy.producer(x).map(|n| &n.op),
            done.iter().find(|d| d.0 == x),
        ) {
            (Some(Op::QuantizeActivations(_)), _) => x,
            (_, Some(&(_, q))) => q,
            _ => {
                trace.count("quantize_activations");
                let q = copy.push(QuantizeActivations {}, &[x])?;
                done.push((x, q));
                q
            }
        };
        let y = copy.push(node.op.clone(), &[quantized, map[&node.inputs[1]]])?;
        map.insert(node.outputs[0], y);
    }
    finish(graph, &mut copy, &map);
    Ok(copy)
}
