//! Element-wise programs in the kernels' terms.

use ingle_graph::ops::EltOp;
use ingle_graph::{Extra, Operand, Program};
use ingle_kernels as kernels;
use ingle_kernels::{EltArg, EltInput, EltInstruction, EltProgram};

/// A program in the kernels' terms.
pub(super) fn program(p: &Program) -> Result<EltProgram, String> {
    let inputs = p.extras.iter().map(|extra| input(*extra)).collect();
    let arg = |operand: Operand| match operand {
        Operand::Acc(i) => Ok(EltArg::Acc(i)),
        Operand::Extra(i) => Ok(EltArg::Input(i)),
        Operand::Const(c) => Ok(EltArg::constant(c)),
        Operand::Step(i) => u8::try_from(i)
            .map(EltArg::Value)
            .map_err(|_| "a program of over 255 steps".to_owned()),
    };
    let mut instructions = Vec::with_capacity(p.steps.len());
    for step in &p.steps {
        let args = [step.a, step.b]
            .into_iter()
            .take(step.op.arity())
            .map(arg)
            .collect::<Result<_, _>>()?;
        instructions.push(EltInstruction {
            op: op(step.op),
            args,
        });
    }
    Ok(EltProgram {
        inputs,
        instructions,
        result: arg(p.result)?,
    })
}

fn input(extra: Extra) -> EltInput {
    match extra {
        Extra::Full => EltInput::Same,
        Extra::Column => EltInput::Column,
        Extra::Row => EltInput::Row,
        Extra::Scalar => EltInput::Scalar,
    }
}

fn op(op: EltOp) -> kernels::EltOp {
    use kernels::EltOp as K;
    match op {
        EltOp::Add => K::Add,
        EltOp::Sub => K::Sub,
        EltOp::Mul => K::Mul,
        EltOp::Div => K::Div,
        EltOp::Min => K::Min,
        EltOp::Max => K::Max,
        EltOp::Neg => K::Neg,
        EltOp::Exp => K::Exp,
        EltOp::Log => K::Log,
        EltOp::Sqrt => K::Sqrt,
        EltOp::Rsqrt => K::Rsqrt,
        EltOp::Recip => K::Recip,
        EltOp::Abs => K::Abs,
        EltOp::Tanh => K::Tanh,
        EltOp::Sigmoid => K::Sigmoid,
        EltOp::Silu => K::Silu,
        EltOp::Relu => K::Relu,
        EltOp::Gelu => K::GeluErf,
        EltOp::GeluTanh => K::GeluTanh,
        EltOp::Sin => K::Sin,
        EltOp::Cos => K::Cos,
        EltOp::Erf => K::Erf,
    }
}
