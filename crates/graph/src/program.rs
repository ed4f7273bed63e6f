//! `Program`: a chain of element-wise ops as data, the epilogue of a matmul or a kernel of its own.
//!
//! A short SSA list over, per output element: the accumulators of the launch, extra inputs and constants. Kernels are
//! templates over it, so an op that no fusion has seen needs no new kernel.

use serde::{Deserialize, Serialize};

use crate::ops::EltOp;

/// How an extra input is indexed by an output element `(row, column)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    /// `[rows, n]`: element `(row, column)`.
    Full,
    /// `[n]` or `[1, n]`: element `column`.
    Column,
    /// `[rows, 1]`: element `row`.
    Row,
    /// One element.
    Scalar,
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    /// Accumulator `i` of the launch.
    Acc(u8),
    /// Extra input `i`.
    Extra(u8),
    /// The result of an earlier step.
    Step(u16),
    Const(f32),
}

/// One element-wise op; `b` repeats `a` where the op takes one operand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub op: EltOp,
    pub a: Operand,
    pub b: Operand,
}

/// An element-wise program. Its value is `result`; an empty program with `Acc(0)` passes the accumulator on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Accumulators that the launch provides: 0 for a stand-alone kernel, 1 for a matmul, 2 for gate and up.
    pub accumulators: u8,
    pub extras: Vec<Extra>,
    pub steps: Vec<Step>,
    pub result: Operand,
}

impl Program {
    /// The program that stores the accumulator as it is.
    pub fn identity() -> Self {
        Program {
            accumulators: 1,
            extras: vec![],
            steps: vec![],
            result: Operand::Acc(0),
        }
    }

    /// The reference, for one element.
    pub fn evaluate(&self, acc: &[f32], extra: &[f32]) -> f32 {
        let mut values: Vec<f32> = Vec::with_capacity(self.steps.len());
        let get = |o: Operand, values: &[f32]| match o {
            Operand::Acc(i) => acc[usize::from(i)],
            Operand::Extra(i) => extra[usize::from(i)],
            Operand::Step(i) => values[usize::from(i)],
            Operand::Const(c) => c,
        };
        for s in &self.steps {
            let v = s.op.apply(get(s.a, &values), get(s.b, &values));
            values.push(v);
        }
        get(self.result, &values)
    }

    /// Checks that every operand exists.
    pub fn is_valid(&self) -> bool {
        let ok = |o: Operand, step: usize| match o {
            Operand::Acc(i) => i < self.accumulators,
            Operand::Extra(i) => usize::from(i) < self.extras.len(),
            Operand::Step(i) => usize::from(i) < step,
            Operand::Const(c) => c.is_finite(),
        };
        self.steps
            .iter()
            .enumerate()
            .all(|(i, s)| ok(s.a, i) && ok(s.b, i))
            && ok(self.result, self.steps.len())
            && self.extras.len() <= usize::from(u8::MAX)
            && self.steps.len() <= usize::from(u16::MAX)
    }
}
