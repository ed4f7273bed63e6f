//! `rotary_angles pos[rows]` (and optionally `factors[rotary_dim / 2]`): by how much [`super::Rope`] turns each element of
//! a row of `heads` heads, in radians, as `f32[rows, heads · head_dim]`.
//!
//! Both elements of pair `i` turn by `pos · scale · base^(−2i / rotary_dim) / factors[i]`; elements from `rotary_dim` on
//! turn by 0.

use serde::{Deserialize, Serialize};

use super::rope::{self, Pairing};
use super::{Operation, Rope, Runs, attribute, indices};
use crate::suite::Suite;
use crate::{Dim, GraphError, Symbol, Tensor, ValueType, shape};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RotaryAngles {
    pub heads: usize,
    pub rope: Rope,
}

impl Operation for RotaryAngles {
    const NAME: &'static str = "rotary_angles";
    const RUNS: Runs = Runs::Interpreted;

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let (pos, factors) = match inputs {
            [pos] => (*pos, None),
            [pos, factors] => (*pos, Some(*factors)),
            _ => return Err(rope::arity_of(Self::NAME, "1 or 2", inputs)),
        };
        self.rope.check(Self::NAME)?;
        indices(Self::NAME, 0, pos, 1)?;
        self.rope.check_factors(Self::NAME, 1, factors)?;
        let width = self.heads.checked_mul(self.rope.head_dim);
        match width.filter(|&w| w > 0) {
            Some(width) => Ok(vec![ValueType::f32(vec![pos.shape[0], Dim::Const(width)])]),
            None => Err(attribute(Self::NAME, "heads", "1 or more", self.heads)),
        }
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let pos = inputs[0].as_i32();
        let frequencies = self.rope.frequencies(inputs.get(1).map(|t| t.as_f32()));
        let mut head = vec![0.0; self.rope.head_dim];
        for (i, f) in frequencies.iter().enumerate() {
            let (a, b) = self.rope.pair(i);
            (head[a], head[b]) = (*f, *f);
        }
        let row = |&p: &i32| head.iter().map(move |f| (f64::from(p) * f) as f32);
        let data = pos
            .iter()
            .flat_map(|p| std::iter::repeat_n(p, self.heads).flat_map(row));
        let width = self.heads * self.rope.head_dim;
        vec![Tensor::f32(&[pos.len(), width], data.collect())]
    }

    fn cases(suite: &mut Suite) {
        let mut c = suite.case("rotary_angles").tokens(3);
        let pos = c.i32("pos", shape![Symbol::Tokens], vec![0, 5, 1000]);
        let rope = Rope {
            head_dim: 8,
            rotary_dim: 6,
            base: 1e4,
            scale: 0.5,
            pairing: Pairing::Halves,
        };
        let y = c.push(RotaryAngles { heads: 2, rope }, &[pos]);
        c.build(&[y]);
    }
}
