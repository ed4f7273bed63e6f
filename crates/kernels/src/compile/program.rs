//! Element-wise programs as kernel code.

use cubecl::prelude::*;

use crate::{EltArg, EltInput, EltOp, EltProgram};

/// The value of `program` for one element. `same` is the element's index in inputs shaped like the output.
#[cube]
pub fn evaluate(
    accumulators: &Sequence<f32>,
    inputs: &Sequence<Box<[f32]>>,
    same: u32,
    row: u32,
    column: u32,
    #[comptime] program: EltProgram,
) -> f32 {
    let mut loaded = Sequence::<f32>::new();
    #[unroll]
    for i in 0..comptime!(program.inputs.len()) {
        let at = match comptime!(program.inputs[i]) {
            EltInput::Same => same,
            EltInput::Column => column,
            EltInput::Row => row,
            EltInput::Scalar => 0u32.runtime(),
        };
        loaded.push(inputs[i][at as usize]);
    }
    let mut values = Sequence::<f32>::new();
    #[unroll]
    for i in 0..comptime!(program.instructions.len()) {
        let instruction = comptime!(program.instructions[i].clone());
        let a = argument(
            accumulators,
            &loaded,
            &values,
            comptime!(instruction.args[0]),
        );
        let b = argument(
            accumulators,
            &loaded,
            &values,
            comptime!(instruction.args[instruction.args.len() - 1]),
        );
        values.push(apply(a, b, comptime!(instruction.op)));
    }
    argument(accumulators, &loaded, &values, comptime!(program.result))
}

#[cube]
fn argument(
    accumulators: &Sequence<f32>,
    inputs: &Sequence<f32>,
    values: &Sequence<f32>,
    #[comptime] arg: EltArg,
) -> f32 {
    match arg {
        EltArg::Acc(index) => accumulators[comptime!(index as usize)],
        EltArg::Input(index) => inputs[comptime!(index as usize)],
        EltArg::Const(bits) => f32::new(comptime!(f32::from_bits(bits))),
        EltArg::Value(index) => values[comptime!(index as usize)],
    }
}

#[cube]
fn apply(a: f32, b: f32, #[comptime] op: EltOp) -> f32 {
    match op {
        EltOp::Add => a + b,
        EltOp::Sub => a - b,
        EltOp::Mul => a * b,
        EltOp::Div => a / b,
        EltOp::Max => max(a, b),
        EltOp::Min => min(a, b),
        EltOp::Neg => -a,
        EltOp::Abs => a.abs(),
        EltOp::Exp => a.exp(),
        EltOp::Log => a.ln(),
        EltOp::Tanh => tanh(a),
        EltOp::Sigmoid => sigmoid(a),
        EltOp::Silu => a * sigmoid(a),
        EltOp::GeluTanh => {
            let inner = (a + a * a * a * 0.044_715f32) * 0.797_884_6f32;
            a * 0.5f32 * (tanh(inner) + 1.0f32)
        }
        EltOp::GeluErf => a * 0.5f32 * (Erf::erf(a * core::f32::consts::FRAC_1_SQRT_2) + 1.0f32),
        EltOp::Relu => max(a, f32::new(0.0)),
        EltOp::Sqrt => a.sqrt(),
        EltOp::Rsqrt => a.inverse_sqrt(),
        EltOp::Sin => sine(a, 0),
        EltOp::Cos => sine(a, 1),
        EltOp::Recip => f32::new(1.0) / a,
        EltOp::Erf => Erf::erf(a),
    }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    f32::new(1.0) / (f32::new(1.0) + (-x).exp())
}

/// Some drivers compute `tanh` through `exp` and overflow for large arguments; a NaN stays a NaN.
#[cube]
pub fn tanh(x: f32) -> f32 {
    select(
        x > 10.0f32,
        f32::new(1.0),
        select(x < -10.0f32, f32::new(-1.0), x.tanh()),
    )
}

/// `sin(x + quarters · π/2)`. WGSL's own functions may be off by 2⁻¹¹. The argument is brought into ±π/4 (by π/2 in
/// three parts, after Cody and Waite); the polynomials are those of Cephes' `sinf` and `cosf`.
#[cube]
fn sine(x: f32, #[comptime] quarters: i32) -> f32 {
    let turns = (x * core::f32::consts::FRAC_2_PI).round();
    let r = x - turns * 1.570_312_5f32 - turns * 4.837_513e-4f32 - turns * 7.549_79e-8f32;
    let r2 = r * r;
    let sin = r + r * r2 * (r2 * (r2 * -1.951_529_6e-4f32 + 8.332_161e-3f32) - 1.666_665_5e-1f32);
    let cos = r2 * r2 * (r2 * (r2 * 2.443_315_7e-5f32 - 1.388_731_6e-3f32) + 4.166_664_6e-2f32)
        - r2 * 0.5f32
        + 1.0f32;
    let quadrant = i32::cast_from(turns) + quarters;
    let value = select((quadrant & 1i32) == 1i32, cos, sin);
    select((quadrant & 2i32) == 2i32, -value, value)
}
