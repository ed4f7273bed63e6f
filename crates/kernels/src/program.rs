//! Element-wise programs: what a kernel does to each element before it writes it.
//!
//! A program is a list of instructions in single-assignment form. Its arguments are the accumulators of the kernel that
//! it ends (`Acc`), extra inputs (`Input`), constants and earlier results. A residual, a bias, a soft cap, SwiGLU or an
//! element-wise op no fusion has seen is therefore data, not kernel code.

use serde::{Deserialize, Serialize};

/// One operation on `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EltOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Neg,
    Abs,
    Exp,
    Log,
    Tanh,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
    /// `x · sigmoid(x)`
    Silu,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
    GeluTanh,
    /// `x/2 · (1 + erf(x/√2))`
    GeluErf,
    Relu,
    Sqrt,
    /// `1 / √x`
    Rsqrt,
    Sin,
    Cos,
    /// `1 / x`
    Recip,
    /// The error function.
    Erf,
}

impl EltOp {
    /// How many arguments it takes.
    pub const fn arity(self) -> usize {
        match self {
            EltOp::Add | EltOp::Sub | EltOp::Mul | EltOp::Div | EltOp::Max | EltOp::Min => 2,
            _ => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            EltOp::Add => "add",
            EltOp::Sub => "sub",
            EltOp::Mul => "mul",
            EltOp::Div => "div",
            EltOp::Max => "max",
            EltOp::Min => "min",
            EltOp::Neg => "neg",
            EltOp::Abs => "abs",
            EltOp::Exp => "exp",
            EltOp::Log => "log",
            EltOp::Tanh => "tanh",
            EltOp::Sigmoid => "sigmoid",
            EltOp::Silu => "silu",
            EltOp::GeluTanh => "gelu_tanh",
            EltOp::GeluErf => "gelu_erf",
            EltOp::Relu => "relu",
            EltOp::Sqrt => "sqrt",
            EltOp::Rsqrt => "rsqrt",
            EltOp::Sin => "sin",
            EltOp::Cos => "cos",
            EltOp::Recip => "recip",
            EltOp::Erf => "erf",
        }
    }
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EltArg {
    /// An accumulator of the kernel.
    Acc(u8),
    /// An extra input.
    Input(u8),
    /// The bits of an `f32`.
    Const(u32),
    /// The result of an earlier instruction.
    Value(u8),
}

impl EltArg {
    /// A constant.
    pub fn constant(value: f32) -> Self {
        EltArg::Const(value.to_bits())
    }
}

/// How an extra input is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EltInput {
    /// Same shape and strides as the output `[rows, columns]`, for example a residual.
    Same,
    /// One value per column of the output, `[columns]`, for example a bias.
    Column,
    /// One value per row of the output, `[rows]`.
    Row,
    /// One value.
    Scalar,
}

impl EltInput {
    const fn letter(self) -> char {
        match self {
            EltInput::Same => 's',
            EltInput::Column => 'c',
            EltInput::Row => 'r',
            EltInput::Scalar => 'o',
        }
    }
}

/// One instruction: `op` of the first [`EltOp::arity`] arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EltInstruction {
    pub op: EltOp,
    pub args: Vec<EltArg>,
}

/// A program over one element of the output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EltProgram {
    pub inputs: Vec<EltInput>,
    pub instructions: Vec<EltInstruction>,
    pub result: EltArg,
}

/// Why a program is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("instruction {instruction} ({op}): expected {expected} arguments, found {found}")]
    Arity {
        instruction: usize,
        op: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("instruction {instruction}: {what} {index} is used, but only {count} exist there")]
    Range {
        instruction: usize,
        what: &'static str,
        index: u8,
        count: usize,
    },
    #[error("accumulator {index} is used, but a kernel has at most {count}")]
    Accumulators { index: u8, count: usize },
    #[error("constant {0} is not finite")]
    Constant(String),
    #[error("the program is longer than 255 instructions: {0}")]
    Length(usize),
}

impl EltProgram {
    /// The program that hands its only accumulator through.
    pub fn identity() -> Self {
        EltProgram {
            inputs: vec![],
            instructions: vec![],
            result: EltArg::Acc(0),
        }
    }

    /// `acc0 + input0`, the input shaped like the output.
    pub fn add_residual() -> Self {
        let mut program = EltProgram::identity();
        let input = program.input(EltInput::Same);
        program.result = program.apply(EltOp::Add, &[EltArg::Acc(0), input]);
        program
    }

    /// `silu(acc0) · acc1`: gate rows first, then up rows.
    pub fn swiglu() -> Self {
        let mut program = EltProgram::identity();
        let gate = program.apply(EltOp::Silu, &[EltArg::Acc(0)]);
        program.result = program.apply(EltOp::Mul, &[gate, EltArg::Acc(1)]);
        program
    }

    /// Adds an extra input and returns it as an argument.
    pub fn input(&mut self, kind: EltInput) -> EltArg {
        self.inputs.push(kind);
        EltArg::Input((self.inputs.len() - 1) as u8)
    }

    /// Appends an instruction and returns its result as an argument. [`EltProgram::check`] reports what is wrong with it.
    pub fn apply(&mut self, op: EltOp, args: &[EltArg]) -> EltArg {
        self.instructions.push(EltInstruction {
            op,
            args: args.to_vec(),
        });
        EltArg::Value((self.instructions.len() - 1) as u8)
    }

    /// How many accumulators it reads: one more than the highest index.
    pub fn accumulators(&self) -> usize {
        let args = self
            .instructions
            .iter()
            .flat_map(|i| &i.args)
            .chain([&self.result]);
        let used = args.filter_map(|arg| match arg {
            EltArg::Acc(index) => Some(*index as usize + 1),
            _ => None,
        });
        used.max().unwrap_or(0)
    }

    /// Checks arities and that every argument exists where it is used. `accumulators` is how many there may be.
    pub fn check(&self, accumulators: usize) -> Result<(), ProgramError> {
        if self.instructions.len() > 255 {
            return Err(ProgramError::Length(self.instructions.len()));
        }
        for (at, instruction) in self.instructions.iter().enumerate() {
            let op = instruction.op;
            if instruction.args.len() != op.arity() {
                let (expected, found) = (op.arity(), instruction.args.len());
                return Err(ProgramError::Arity {
                    instruction: at,
                    op: op.name(),
                    expected,
                    found,
                });
            }
            for arg in &instruction.args {
                self.check_arg(at, *arg, accumulators)?;
            }
        }
        self.check_arg(self.instructions.len(), self.result, accumulators)
    }

    fn check_arg(&self, at: usize, arg: EltArg, accumulators: usize) -> Result<(), ProgramError> {
        let range = |what, index, count| {
            Err(ProgramError::Range {
                instruction: at,
                what,
                index,
                count,
            })
        };
        match arg {
            EltArg::Acc(index) if index as usize >= accumulators => {
                Err(ProgramError::Accumulators {
                    index,
                    count: accumulators,
                })
            }
            EltArg::Input(index) if index as usize >= self.inputs.len() => {
                range("input", index, self.inputs.len())
            }
            EltArg::Value(index) if index as usize >= at => range("value", index, at),
            EltArg::Const(bits) if !f32::from_bits(bits).is_finite() => {
                Err(ProgramError::Constant(f32::from_bits(bits).to_string()))
            }
            _ => Ok(()),
        }
    }

    /// A short name for ids, unique to the program: `silu(a0),mul(0,a1)`.
    pub fn label(&self) -> String {
        let arg = |arg: &EltArg| match arg {
            EltArg::Acc(index) => format!("a{index}"),
            EltArg::Input(index) => match self.inputs.get(*index as usize) {
                Some(kind) => format!("{}{index}", kind.letter()),
                None => format!("?{index}"),
            },
            EltArg::Const(bits) => format!("#{bits:x}"),
            EltArg::Value(index) => index.to_string(),
        };
        let mut parts: Vec<String> = Vec::new();
        for instruction in &self.instructions {
            let args: Vec<String> = instruction.args.iter().map(arg).collect();
            parts.push(format!("{}({})", instruction.op.name(), args.join(",")));
        }
        // The last value is the usual result; anything else is said, and so are inputs that nothing reads.
        let usual = EltArg::Value(self.instructions.len().wrapping_sub(1) as u8);
        if self.instructions.is_empty() || self.result != usual {
            parts.push(format!("={}", arg(&self.result)));
        }
        if !self.inputs.is_empty() {
            let kinds = self.inputs.iter().map(|kind| kind.letter());
            parts.insert(0, kinds.collect());
        }
        parts.join(";")
    }

    /// What the program computes, the slow obvious way. Missing arguments are NaN ([`EltProgram::check`] refuses them).
    pub fn evaluate(&self, accumulators: &[f32], inputs: &[f32]) -> f32 {
        let mut values: Vec<f32> = Vec::with_capacity(self.instructions.len());
        let get = |values: &[f32], arg: &EltArg| match arg {
            EltArg::Acc(index) => accumulators
                .get(*index as usize)
                .copied()
                .unwrap_or(f32::NAN),
            EltArg::Input(index) => inputs.get(*index as usize).copied().unwrap_or(f32::NAN),
            EltArg::Const(bits) => f32::from_bits(*bits),
            EltArg::Value(index) => values.get(*index as usize).copied().unwrap_or(f32::NAN),
        };
        for instruction in &self.instructions {
            let at = |n: usize| {
                instruction
                    .args
                    .get(n)
                    .map_or(f32::NAN, |arg| get(&values, arg))
            };
            values.push(evaluate_op(instruction.op, at(0), at(1)));
        }
        get(&values, &self.result)
    }
}

fn evaluate_op(op: EltOp, a: f32, b: f32) -> f32 {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    match op {
        EltOp::Add => a + b,
        EltOp::Sub => a - b,
        EltOp::Mul => a * b,
        EltOp::Div => a / b,
        EltOp::Max => a.max(b),
        EltOp::Min => a.min(b),
        EltOp::Neg => -a,
        EltOp::Abs => a.abs(),
        EltOp::Exp => a.exp(),
        EltOp::Log => a.ln(),
        EltOp::Tanh => a.tanh(),
        EltOp::Sigmoid => sigmoid(a),
        EltOp::Silu => a * sigmoid(a),
        EltOp::GeluTanh => 0.5 * a * (1.0 + (0.797_884_6 * (a + 0.044_715 * a * a * a)).tanh()),
        EltOp::GeluErf => 0.5 * a * (1.0 + erf(a * std::f32::consts::FRAC_1_SQRT_2)),
        EltOp::Relu => a.max(0.0),
        EltOp::Sqrt => a.sqrt(),
        EltOp::Rsqrt => 1.0 / a.sqrt(),
        EltOp::Sin => a.sin(),
        EltOp::Cos => a.cos(),
        EltOp::Recip => 1.0 / a,
        EltOp::Erf => erf(a),
    }
}

/// Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let polynomial = ((((1.061_405_4 * t - 1.453_152_1) * t + 1.421_413_8) * t - 0.284_496_72) * t
        + 0.254_829_6)
        * t;
    (1.0 - polynomial * (-x * x).exp()).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_programs_apart() {
        let mut bias = EltProgram::identity();
        let column = bias.input(EltInput::Column);
        bias.result = bias.apply(EltOp::Add, &[EltArg::Acc(0), column]);
        assert_eq!(EltProgram::identity().label(), "=a0");
        assert_eq!(EltProgram::swiglu().label(), "silu(a0);mul(0,a1)");
        assert_eq!(EltProgram::add_residual().label(), "s;add(a0,s0)");
        assert_eq!(bias.label(), "c;add(a0,c0)");
    }

    #[test]
    fn wrong_programs_are_refused() {
        assert_eq!(EltProgram::swiglu().check(2), Ok(()));
        assert_eq!(
            EltProgram::swiglu().check(1),
            Err(ProgramError::Accumulators { index: 1, count: 1 })
        );
        let mut forward = EltProgram::identity();
        forward.apply(EltOp::Neg, &[EltArg::Value(0)]);
        assert!(matches!(
            forward.check(1),
            Err(ProgramError::Range { what: "value", .. })
        ));
        let mut short = EltProgram::identity();
        short.apply(EltOp::Add, &[EltArg::Acc(0)]);
        assert!(matches!(
            short.check(1),
            Err(ProgramError::Arity {
                expected: 2,
                found: 1,
                ..
            })
        ));
    }

    #[test]
    fn evaluates_swiglu() {
        let value = EltProgram::swiglu().evaluate(&[2.0, 3.0], &[]);
        assert!((value - 2.0 / (1.0 + (-2.0f32).exp()) * 3.0).abs() < 1e-6);
    }
}
