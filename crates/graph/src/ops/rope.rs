//! `rope x[rows, heads · head_dim], pos[rows]` (and optionally `factors[rotary_dim / 2]`): rotary position embedding
//! (Su et al. 2021, arXiv 2104.09864).
//!
//! Pair `i` of each head turns by `pos · scale · base^(−2i / rotary_dim) / factors[i]`. `interleaved` pairs elements
//! `(2i, 2i + 1)`, as GGUF orders llama; `halves` pairs `(i, i + rotary_dim / 2)`, as Hugging Face does. Elements from
//! `rotary_dim` on stay as they are.

use serde::{Deserialize, Serialize};

use super::{
    Binary, EltOp, Op, Operation, Pattern, RotaryAngles, Rotate, Unary, attribute, indices, matrix,
    vector, wrong,
};
use crate::suite::Suite;
use crate::{Graph, GraphError, Symbol, Tensor, ValueId, ValueType, shape};

/// Which two elements turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    Interleaved,
    Halves,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    pub head_dim: usize,
    pub rotary_dim: usize,
    pub base: f32,
    /// Positions are multiplied by this (linear scaling); 1 for none.
    pub scale: f32,
    pub pairing: Pairing,
}

impl Rope {
    /// The angle per position of each pair, `[rotary_dim / 2]`, in double precision.
    pub fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f64> {
        let n = self.rotary_dim as f64;
        (0..self.rotary_dim / 2)
            .map(|i| {
                let factor = factors.map_or(1.0, |f| f64::from(f[i]));
                f64::from(self.scale) * f64::from(self.base).powf(-2.0 * i as f64 / n) / factor
            })
            .collect()
    }

    /// The two elements of pair `i` within a head.
    pub fn pair(&self, i: usize) -> (usize, usize) {
        pair_of(self.pairing, self.rotary_dim, i)
    }

    /// Checks the attributes, for `op`.
    pub(crate) fn check(&self, op: &'static str) -> Result<(), GraphError> {
        let even = self.rotary_dim.is_multiple_of(2);
        if self.rotary_dim == 0 || !even || self.rotary_dim > self.head_dim {
            return Err(attribute(
                op,
                "rotary_dim",
                "even, at most head_dim",
                self.rotary_dim,
            ));
        }
        if !(self.base.is_finite() && self.base > 0.0 && self.scale.is_finite()) {
            let found = format!("{}, {}", self.base, self.scale);
            return Err(attribute(op, "base, scale", "finite", found));
        }
        Ok(())
    }

    /// Checks that the factors, if there are any, are one for each pair.
    pub(super) fn check_factors(
        &self,
        op: &'static str,
        input: usize,
        factors: Option<&ValueType>,
    ) -> Result<(), GraphError> {
        factors.map_or(Ok(()), |f| vector(op, input, f, self.rotary_dim / 2))
    }
}

impl Operation for Rope {
    const NAME: &'static str = "rope";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let (x, pos, factors) = match inputs {
            [x, pos] => (*x, *pos, None),
            [x, pos, factors] => (*x, *pos, Some(*factors)),
            _ => return Err(arity_of(Self::NAME, "2 or 3", inputs)),
        };
        self.check(Self::NAME)?;
        if !matrix(Self::NAME, 0, x)?.is_multiple_of(self.head_dim) {
            let expected = format!("rows of heads of {}", self.head_dim);
            return Err(wrong(Self::NAME, 0, expected, x));
        }
        indices(Self::NAME, 1, pos, 1)?;
        if pos.shape[0] != x.shape[0] {
            let expected = format!("one position for each row of {x}");
            return Err(wrong(Self::NAME, 1, expected, pos));
        }
        self.check_factors(Self::NAME, 2, factors)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (x, pos) = (inputs[0], inputs[1].as_i32());
        let frequencies = self.frequencies(inputs.get(2).map(|t| t.as_f32()));
        let mut data = x.as_f32().to_vec();
        for (row, &p) in data.chunks_exact_mut(x.shape[1]).zip(pos) {
            for head in row.chunks_exact_mut(self.head_dim) {
                for (i, f) in frequencies.iter().enumerate() {
                    let (sin, cos) = (f64::from(p) * f).sin_cos();
                    let (a, b) = self.pair(i);
                    let (u, v) = (f64::from(head[a]), f64::from(head[b]));
                    head[a] = (u * cos - v * sin) as f32;
                    head[b] = (u * sin + v * cos) as f32;
                }
            }
        }
        vec![Tensor::f32(&x.shape, data)]
    }

    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let x = inputs[0];
        let heads = g.ty(x).last().unwrap_or_default() / self.head_dim.max(1);
        let angles = RotaryAngles {
            heads,
            rope: self.clone(),
        };
        let rotate = Rotate {
            head_dim: self.head_dim,
            rotary_dim: self.rotary_dim,
            pairing: self.pairing,
        };
        let angles = g.push(angles, &inputs[1..])?;
        let cos = g.push(Unary { kind: EltOp::Cos }, &[angles])?;
        let sin = g.push(Unary { kind: EltOp::Sin }, &[angles])?;
        let turned = g.push(rotate, &[x])?;
        let along = g.push(Binary { kind: EltOp::Mul }, &[x, cos])?;
        let across = g.push(Binary { kind: EltOp::Mul }, &[turned, sin])?;
        Ok(Some(vec![
            g.push(Binary { kind: EltOp::Add }, &[along, across])?,
        ]))
    }

    fn patterns() -> Vec<Pattern> {
        let rope = Rope {
            head_dim: 2,
            rotary_dim: 2,
            base: 1.0,
            scale: 1.0,
            pairing: Pairing::Halves,
        };
        let with = |factors: &[ValueType]| Pattern {
            example: rope.clone().into(),
            inputs: [
                &[ValueType::f32(shape![2, 2]), ValueType::i32(shape![2])],
                factors,
            ]
            .concat(),
            read: |ops| {
                ops.iter().find_map(|op| match op {
                    Op::RotaryAngles(angles) => Some(angles.rope.clone().into()),
                    _ => None,
                })
            },
        };
        vec![with(&[]), with(&[ValueType::f32(shape![1])])]
    }

    fn cases(suite: &mut Suite) {
        for pairing in [Pairing::Interleaved, Pairing::Halves] {
            for (rotary_dim, factors) in [(64, false), (32, true)] {
                let name = format!("rope {pairing:?} {rotary_dim} of 64, factors {factors}");
                let mut c = suite.case(name).tokens(3).tolerance(1e-4);
                let x = c.f32("x", shape![Symbol::Tokens, 192], 1.0);
                let pos = c.i32("pos", shape![Symbol::Tokens], vec![0, 5, 1000]);
                let mut inputs = vec![x, pos];
                if factors {
                    inputs.push(c.vector("factors", rotary_dim / 2));
                }
                let rope = Rope {
                    head_dim: 64,
                    rotary_dim,
                    base: 1e5,
                    scale: 1.0,
                    pairing,
                };
                let y = c.push(rope, &inputs);
                c.build(&[y]);
            }
        }
    }
}

/// The two elements of pair `i` within a head.
pub(super) fn pair_of(pairing: Pairing, rotary_dim: usize, i: usize) -> (usize, usize) {
    match pairing {
        Pairing::Interleaved => (2 * i, 2 * i + 1),
        Pairing::Halves => (i, i + rotary_dim / 2),
    }
}

/// An error about the number of inputs of an op that takes several numbers of them.
pub(super) fn arity_of(op: &'static str, expected: &str, inputs: &[&ValueType]) -> GraphError {
    GraphError::Arity {
        op,
        expected: expected.into(),
        found: inputs.len(),
    }
}
