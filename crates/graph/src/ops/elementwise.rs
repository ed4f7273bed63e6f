//! `add sub mul div min max` and `neg exp log sqrt rsqrt recip abs tanh sigmoid silu relu gelu gelu_tanh sin cos erf`:
//! element-wise ops.
//!
//! A binary op broadcasts like NumPy, from the last dimension. `gelu(x) = x · Φ(x)`; `gelu_tanh` is its tanh form
//! (Hendrycks and Gimpel 2016, arXiv 1606.08415); `silu(x) = x · sigmoid(x)`.

use serde::{Deserialize, Serialize};

use super::{Constant, Op, Operation, Pattern, arity, attribute, float, wrong};
use crate::suite::Suite;
use crate::{Dim, Graph, GraphError, Shape, Symbol, Tensor, ValueId, ValueType, shape};

macro_rules! elementwise {
    ($($variant:ident $name:literal $arity:literal $formula:expr;)*) => {
        /// An element-wise function. Also the instruction set of [`crate::Program`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum EltOp { $($variant,)* }

        impl EltOp {
            pub const ALL: &'static [EltOp] = &[$(EltOp::$variant),*];

            pub const fn name(self) -> &'static str {
                match self { $(EltOp::$variant => $name,)* }
            }

            /// Number of operands: 1 or 2.
            pub const fn arity(self) -> usize {
                match self { $(EltOp::$variant => $arity,)* }
            }

            /// The reference: `f64` inside, one operand ignored by unary functions.
            pub fn apply(self, a: f32, b: f32) -> f32 {
                let (a, b) = (f64::from(a), f64::from(b));
                let f: fn(f64, f64) -> f64 = match self { $(EltOp::$variant => $formula,)* };
                f(a, b) as f32
            }
        }
    };
}

elementwise! {
    Add "add" 2 |a, b| a + b;
    Sub "sub" 2 |a, b| a - b;
    Mul "mul" 2 |a, b| a * b;
    Div "div" 2 |a, b| a / b;
    Min "min" 2 |a, b| a.min(b);
    Max "max" 2 |a, b| a.max(b);
    Neg "neg" 1 |a, _| -a;
    Exp "exp" 1 |a, _| a.exp();
    Log "log" 1 |a, _| a.ln();
    Sqrt "sqrt" 1 |a, _| a.sqrt();
    Rsqrt "rsqrt" 1 |a, _| 1.0 / a.sqrt();
    Recip "recip" 1 |a, _| 1.0 / a;
    Abs "abs" 1 |a, _| a.abs();
    Tanh "tanh" 1 |a, _| a.tanh();
    Sigmoid "sigmoid" 1 |a, _| 1.0 / (1.0 + (-a).exp());
    Silu "silu" 1 |a, _| a / (1.0 + (-a).exp());
    Relu "relu" 1 |a, _| a.max(0.0);
    Gelu "gelu" 1 |a, _| 0.5 * a * (1.0 + erf(a * std::f64::consts::FRAC_1_SQRT_2));
    GeluTanh "gelu_tanh" 1 |a, _| 0.5 * a * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a)).tanh());
    Sin "sin" 1 |a, _| a.sin();
    Cos "cos" 1 |a, _| a.cos();
    Erf "erf" 1 |a, _| erf(a);
}

impl EltOp {
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }
}

/// The error function by its Maclaurin series near zero and by the continued fraction of `erfc` beyond
/// (Abramowitz and Stegun 7.1.5 and 7.1.14); good to about 1e-15.
pub fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 2.5 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= -z * z / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..=60).rev().fold(z, |f, k| z + f64::from(k) / 2.0 / f);
        1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// A unary element-wise op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unary {
    pub kind: EltOp,
}

/// A binary element-wise op that broadcasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    pub kind: EltOp,
}

impl Operation for Unary {
    const NAME: &'static str = "unary";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let name = self.kind.name();
        let [x] = arity(name, inputs)?;
        check_kind(self.kind, 1)?;
        float(name, 0, x)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let data = inputs[0]
            .as_f32()
            .iter()
            .map(|&a| self.kind.apply(a, 0.0))
            .collect();
        vec![Tensor::f32(&inputs[0].shape, data)]
    }

    /// The activation functions in terms of the others, as other frameworks write them out.
    fn decompose(
        &self,
        g: &mut Graph,
        inputs: &[ValueId],
    ) -> Result<Option<Vec<ValueId>>, GraphError> {
        let x = inputs[0];
        let y = match self.kind {
            EltOp::Silu => {
                let gate = g.push(unary(EltOp::Sigmoid), &[x])?;
                g.push(binary(EltOp::Mul), &[x, gate])?
            }
            EltOp::Gelu => {
                let scaled = with_constant(g, EltOp::Div, x, std::f32::consts::SQRT_2)?;
                let bent = g.push(unary(EltOp::Erf), &[scaled])?;
                half_of_one_plus(g, x, bent)?
            }
            EltOp::GeluTanh => {
                let square = g.push(binary(EltOp::Mul), &[x, x])?;
                let cube = g.push(binary(EltOp::Mul), &[square, x])?;
                let term = with_constant(g, EltOp::Mul, cube, 0.044715)?;
                let sum = g.push(binary(EltOp::Add), &[x, term])?;
                let factor = (2.0 / std::f64::consts::PI).sqrt() as f32;
                let scaled = with_constant(g, EltOp::Mul, sum, factor)?;
                let bent = g.push(unary(EltOp::Tanh), &[scaled])?;
                half_of_one_plus(g, x, bent)?
            }
            _ => return Ok(None),
        };
        Ok(Some(vec![y]))
    }

    fn patterns() -> Vec<Pattern> {
        let pattern = |kind, read| Pattern {
            example: unary(kind).into(),
            inputs: vec![ValueType::f32(shape![2, 2])],
            read,
        };
        vec![
            pattern(EltOp::Silu, |_| Some(unary(EltOp::Silu).into())),
            pattern(EltOp::Gelu, |_| Some(unary(EltOp::Gelu).into())),
            pattern(EltOp::GeluTanh, |_| Some(unary(EltOp::GeluTanh).into())),
        ]
    }

    fn cases(suite: &mut Suite) {
        for &kind in EltOp::ALL.iter().filter(|k| k.arity() == 1) {
            let mut c = suite.case(format!("{} alone", kind.name())).tokens(3);
            let positive = matches!(kind, EltOp::Log | EltOp::Sqrt | EltOp::Rsqrt | EltOp::Recip);
            let mut x = c.f32("x", shape![Symbol::Tokens, 100], 6.0);
            if positive {
                x = c.push(Unary { kind: EltOp::Exp }, &[x]);
            }
            let y = c.push(Unary { kind }, &[x]);
            c.build(&[y]);
        }
    }
}

impl Operation for Binary {
    const NAME: &'static str = "binary";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let name = self.kind.name();
        let [a, b] = arity(name, inputs)?;
        check_kind(self.kind, 2)?;
        float(name, 0, a)?;
        float(name, 1, b)?;
        let shape = broadcast(&a.shape, &b.shape)
            .ok_or_else(|| wrong(name, 1, format!("a shape that broadcasts with {a}"), b))?;
        Ok(vec![ValueType::f32(shape)])
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        let (a, b) = (inputs[0], inputs[1]);
        let rank = a.shape.len().max(b.shape.len());
        let at = |t: &Tensor, i: usize| {
            (i + t.shape.len())
                .checked_sub(rank)
                .map_or(1, |j| t.shape[j])
        };
        let shape: Vec<usize> = (0..rank)
            .map(|i| if at(a, i) == 1 { at(b, i) } else { at(a, i) })
            .collect();
        let total: usize = shape.iter().product();
        let offset = |t: &Tensor, mut flat: usize| {
            let (mut offset, mut stride) = (0, 1);
            for i in (0..rank).rev() {
                let (index, size) = (flat % shape[i], at(t, i));
                flat /= shape[i];
                offset += if size == 1 { 0 } else { index * stride };
                stride *= size;
            }
            offset
        };
        let (x, y) = (a.as_f32(), b.as_f32());
        let data = (0..total)
            .map(|i| self.kind.apply(x[offset(a, i)], y[offset(b, i)]))
            .collect();
        vec![Tensor::f32(&shape, data)]
    }

    fn cases(suite: &mut Suite) {
        for &kind in EltOp::ALL.iter().filter(|k| k.arity() == 2) {
            for (what, shape) in [
                ("full", shape![Symbol::Tokens, 100]),
                ("column", shape![100]),
                ("row", shape![Symbol::Tokens, 1]),
                ("scalar", shape![]),
            ] {
                let mut c = suite
                    .case(format!("{} with a {what}", kind.name()))
                    .tokens(3);
                let a = c.f32("a", shape![Symbol::Tokens, 100], 2.0);
                let mut b = c.f32("b", shape, 1.0);
                if kind == EltOp::Div && what == "full" {
                    b = c.push(Unary { kind: EltOp::Exp }, &[b]);
                }
                let y = c.push(Binary { kind }, &[a, b]);
                c.build(&[y]);
            }
        }
    }
}

fn unary(kind: EltOp) -> Unary {
    Unary { kind }
}

fn binary(kind: EltOp) -> Binary {
    Binary { kind }
}

/// `x kind value`.
pub(super) fn with_constant(
    g: &mut Graph,
    kind: EltOp,
    x: ValueId,
    value: f32,
) -> Result<ValueId, GraphError> {
    let constant = g.push(Constant { value }, &[])?;
    g.push(binary(kind), &[x, constant])
}

/// The value of the first constant among the nodes of a decomposition.
pub(super) fn constant_of(ops: &[&Op]) -> Option<f32> {
    ops.iter().find_map(|op| match op {
        Op::Constant(c) => Some(c.value),
        _ => None,
    })
}

/// `x · (0.5 · (1 + bent))`: no constant meets `x` itself, since folding would move it into a leaf.
fn half_of_one_plus(g: &mut Graph, x: ValueId, bent: ValueId) -> Result<ValueId, GraphError> {
    let shifted = with_constant(g, EltOp::Add, bent, 1.0)?;
    let half = with_constant(g, EltOp::Mul, shifted, 0.5)?;
    g.push(binary(EltOp::Mul), &[x, half])
}

fn check_kind(kind: EltOp, arity: usize) -> Result<(), GraphError> {
    if kind.arity() == arity {
        return Ok(());
    }
    Err(attribute(
        if arity == 1 { "unary" } else { "binary" },
        "kind",
        format!("a function of {arity}"),
        kind.name(),
    ))
}

fn broadcast(a: &Shape, b: &Shape) -> Option<Shape> {
    let rank = a.len().max(b.len());
    let at = |s: &Shape, i: usize| {
        (i + s.len())
            .checked_sub(rank)
            .map_or(Dim::Const(1), |j| s[j])
    };
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (Dim::Const(1), y) => Some(y),
            (x, Dim::Const(1)) => Some(x),
            _ => None,
        })
        .collect()
}
