//! `fused`: a region, a part of the graph that one launch computes.
//!
//! It holds its subgraph, so that the verifier, the text form and the interpreter work as before. The region's inputs
//! are the node's inputs, weights included; its results are the node's outputs.

use ingle_quant::{ElementType, GgmlType};
use serde::{Deserialize, Serialize};

use super::{
    Attention, Binary, Constant, EltOp, Matmul, Operation, Pairing, RmsNorm, Rope, Softcap,
    StateWrite, Swiglu, Unary,
};
use crate::suite::{CaseBuilder, Suite};
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fused {
    pub region: Box<Graph>,
}

impl Operation for Fused {
    const NAME: &'static str = "fused";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let region = &self.region;
        if inputs.len() != region.inputs.len() {
            let expected = region.inputs.len().to_string();
            return Err(GraphError::Arity {
                op: Self::NAME,
                expected,
                found: inputs.len(),
            });
        }
        for (i, (&found, &expected)) in inputs.iter().zip(&region.inputs).enumerate() {
            if found != region.ty(expected) {
                return Err(super::wrong(
                    Self::NAME,
                    i,
                    region.ty(expected).to_string(),
                    found,
                ));
            }
        }
        Ok(region
            .results
            .iter()
            .map(|&v| region.ty(v).clone())
            .collect())
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        crate::interpret::region(&self.region, inputs)
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        crate::passes::inline(&self.region, g, inputs).map(Some)
    }

    fn cases(suite: &mut Suite) {
        for int8 in [false, true] {
            for rows in [1, 5] {
                projections(suite, rows, int8);
                gate_and_up(suite, rows, int8);
                epilogues(suite, rows, int8);
                residual_of_the_norm(suite, rows, int8);
            }
        }
    }
}

fn start<'a>(suite: &'a mut Suite, what: &str, rows: usize, int8: bool) -> CaseBuilder<'a> {
    let policy = if int8 { "int8" } else { "f32" };
    let c = suite.case(format!("{what}, {rows} rows {policy}"));
    let c = c
        .dims(&[(Symbol::Tokens, rows), (Symbol::Pool, 2)])
        .tolerance(1e-4);
    // A value beside a rounding border may fall either way after a norm that rounds differently.
    if int8 { c.int8().tolerance(1e-2) } else { c }
}

/// Norm, queries, keys and values of three formats, rotation, write, attention, output and residual.
fn projections(suite: &mut Suite, rows: usize, int8: bool) {
    for (what, types) in [
        ("attention block", [GgmlType::Q4_1; 3]),
        (
            "attention block of mixed formats",
            [GgmlType::Q4_K, GgmlType::Q4_K, GgmlType::Q6_K],
        ),
    ] {
        let mut c = start(suite, what, rows, int8);
        let x = c.f32("x", shape![Symbol::Tokens, 256], 1.0);
        let kv = c.state("kv", ElementType::F32, 2, 64);
        let range = |from: usize| (from..from + rows).map(|i| i as i32).collect::<Vec<_>>();
        let pos = c.i32("pos", shape![Symbol::Tokens], range(0));
        let slots = c.i32("slots", shape![Symbol::Tokens], range(32));
        let seq = c.i32("seq", shape![Symbol::Tokens], vec![0; rows]);
        let table = c.i32("table", shape![Symbol::Batch, Symbol::Table], vec![1]);
        let norm = c.vector("norm", 256);
        let n = c.push(RmsNorm { eps: 1e-5 }, &[x, norm]);
        let rope = Rope {
            head_dim: 64,
            rotary_dim: 64,
            base: 1e4,
            scale: 1.0,
            pairing: Pairing::Interleaved,
        };
        let [q, k, v] = [
            ("q", 256, types[0]),
            ("k", 128, types[1]),
            ("v", 128, types[2]),
        ]
        .map(|(name, width, ty)| {
            let w = c.weight(name, ty, width, 256);
            c.push(Matmul {}, &[n, w])
        });
        let q = c.push(rope.clone(), &[q, pos]);
        let k = c.push(rope, &[k, pos]);
        let kv = c.push(StateWrite {}, &[kv, k, v, slots]);
        let attention = Attention {
            heads: 4,
            scale: 0.125,
            softcap: None,
            window: None,
        };
        let a = c.push(attention, &[q, kv, pos, seq, table]);
        let w = c.weight("o", types[0], 256, 256);
        let o = c.push(Matmul {}, &[a, w]);
        let y = c.push(Binary { kind: EltOp::Add }, &[o, x]);
        c.build(&[y, kv]);
    }
}

fn gate_and_up(suite: &mut Suite, rows: usize, int8: bool) {
    let mut c = start(suite, "feed-forward block", rows, int8);
    let x = c.f32("x", shape![Symbol::Tokens, 64], 1.0);
    let norm = c.vector("norm", 64);
    let n = c.push(RmsNorm { eps: 1e-5 }, &[x, norm]);
    let [gate, up] = ["gate", "up"].map(|name| {
        let w = c.weight(name, GgmlType::Q4_0, 96, 64);
        c.push(Matmul {}, &[n, w])
    });
    let f = c.push(Swiglu {}, &[gate, up]);
    let w = c.weight("down", GgmlType::Q8_0, 64, 96);
    let down = c.push(Matmul {}, &[f, w]);
    let y = c.push(Binary { kind: EltOp::Add }, &[x, down]);
    c.build(&[y]);
}

/// A bias, a soft cap, and element-wise ops that no fusion was written for.
fn epilogues(suite: &mut Suite, rows: usize, int8: bool) {
    let mut c = start(
        suite,
        "matmul with bias, soft cap, cosine and product",
        rows,
        int8,
    );
    let x = c.f32("x", shape![Symbol::Tokens, 64], 1.0);
    let other = c.f32("other", shape![Symbol::Tokens, 40], 1.0);
    let w = c.weight("w", GgmlType::Q4_1, 40, 64);
    let bias = c.vector("bias", 40);
    let y = c.push(Matmul {}, &[x, w]);
    let y = c.push(Binary { kind: EltOp::Add }, &[y, bias]);
    let y = c.push(Softcap { cap: 3.0 }, &[y]);
    let y = c.push(Unary { kind: EltOp::Cos }, &[y]);
    let y = c.push(Binary { kind: EltOp::Mul }, &[y, other]);
    c.build(&[y]);
}

/// An epilogue that reads a constant, and what the product's own prologue gives.
fn residual_of_the_norm(suite: &mut Suite, rows: usize, int8: bool) {
    let mut c = start(suite, "matmul, scaled, added to its norm", rows, int8);
    let x = c.f32("x", shape![Symbol::Tokens, 64], 1.0);
    let norm = c.vector("norm", 64);
    let n = c.push(RmsNorm { eps: 1e-5 }, &[x, norm]);
    let w = c.weight("w", GgmlType::Q8_0, 64, 64);
    let y = c.push(Matmul {}, &[n, w]);
    let scale = c.push(Constant { value: 0.25 }, &[]);
    let y = c.push(Binary { kind: EltOp::Mul }, &[y, scale]);
    let y = c.push(Binary { kind: EltOp::Add }, &[n, y]);
    c.build(&[y]);
}
