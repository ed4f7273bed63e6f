//! Element-wise programs ([`ingle_graph::Program`]), run on vectors.
//!
//! A program is run on a chunk of up to [`CHUNK`] columns of one row at a time, step by step, each step over the whole
//! chunk: choosing the step's function then costs little, and steps stay in the first cache. Steps write to slots that
//! are reused as soon as their value is dead, so a long chain needs few.

use ingle_graph::ops::EltOp;
use ingle_graph::{Extra, Operand, Program};

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::{CpuError, Rows, math};

/// Columns that a program is run on at a time.
pub(crate) const CHUNK: usize = 64;

/// A row of values of one step, accumulator or padded extra.
pub(crate) type Chunk = [f32; CHUNK];

const MAX_SLOTS: usize = 16;
const MAX_EXTRAS: usize = 8;
pub(crate) const MAX_ACCUMULATORS: usize = 2;

/// A program with its steps' slots assigned. Made once per kernel of a plan.
#[derive(Clone, Debug)]
pub struct Prepared {
    accumulators: usize,
    extras: Vec<Extra>,
    steps: Vec<SlotStep>,
    result: Source,
}

#[derive(Clone, Copy, Debug)]
struct SlotStep {
    op: EltOp,
    a: Source,
    b: Source,
    slot: u8,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Acc(u8),
    Extra(u8),
    Slot(u8),
    Const(f32),
}

/// The values of an extra input, as [`Extra`] says that it is indexed.
#[derive(Clone, Copy, Debug)]
pub enum ExtraInput<'a> {
    Full(Rows<'a>),
    Column(&'a [f32]),
    Row(&'a [f32]),
    Scalar(f32),
}

impl Prepared {
    /// Assigns slots; refuses a program that is not valid or needs more room than a kernel has.
    pub fn new(program: &Program) -> Result<Self, CpuError> {
        if !program.is_valid() {
            return Err(CpuError::Unsupported {
                field: "element-wise program",
                expected: "operands that exist",
                found: format!("{program:?}"),
            });
        }
        limit(
            "accumulators of a program",
            MAX_ACCUMULATORS,
            program.accumulators.into(),
        )?;
        limit(
            "extra inputs of a program",
            MAX_EXTRAS,
            program.extras.len(),
        )?;
        let (slots, steps) = assign_slots(program);
        limit("values alive at a time in a program", MAX_SLOTS, slots)?;
        let result = source(program.result, &steps);
        Ok(Prepared {
            accumulators: program.accumulators.into(),
            extras: program.extras.clone(),
            steps,
            result,
        })
    }

    /// Accumulators that the launch provides.
    pub fn accumulators(&self) -> usize {
        self.accumulators
    }

    /// Whether it passes the only accumulator on.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self.result, Source::Acc(0)) && self.accumulators == 1
    }

    /// Checks that the extras are those of the program, for an output `[rows, n]`.
    pub(crate) fn check(
        &self,
        extras: &[ExtraInput<'_>],
        rows: usize,
        n: usize,
    ) -> Result<(), CpuError> {
        check_length("extra inputs of a program", self.extras.len(), extras.len())?;
        for (kind, input) in self.extras.iter().zip(extras) {
            match (kind, input) {
                (Extra::Full, ExtraInput::Full(m)) => {
                    check_length("rows of an extra input", rows, m.rows())?;
                    check_length("columns of an extra input", n, m.width())?;
                }
                (Extra::Column, ExtraInput::Column(v)) => {
                    check_length("columns of an extra input", n, v.len())?
                }
                (Extra::Row, ExtraInput::Row(v)) => {
                    check_length("rows of an extra input", rows, v.len())?
                }
                (Extra::Scalar, ExtraInput::Scalar(_)) => {}
                (kind, input) => {
                    let expected = "the kind that the program states";
                    let found = format!("{input:?} for {kind:?}");
                    return Err(CpuError::Unsupported {
                        field: "extra input",
                        expected,
                        found,
                    });
                }
            }
        }
        Ok(())
    }
}

/// The program's steps with their slots, and how many slots there are.
fn assign_slots(program: &Program) -> (usize, Vec<SlotStep>) {
    let mut last_use = vec![0; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        for operand in [step.a, step.b] {
            if let Operand::Step(s) = operand {
                last_use[usize::from(s)] = i;
            }
        }
    }
    if let Operand::Step(s) = program.result {
        last_use[usize::from(s)] = program.steps.len();
    }
    // `busy[slot]` is the last step that reads what the slot holds.
    let mut busy: Vec<usize> = Vec::new();
    let mut steps: Vec<SlotStep> = Vec::new();
    for (i, step) in program.steps.iter().enumerate() {
        // A step reads each element before it writes it, so its own operands' slots are free for its result.
        let slot = busy
            .iter()
            .position(|&until| until <= i)
            .unwrap_or(busy.len());
        let (a, b) = (source(step.a, &steps), source(step.b, &steps));
        if slot == busy.len() {
            busy.push(0);
        }
        busy[slot] = last_use[i];
        steps.push(SlotStep {
            op: step.op,
            a,
            b,
            slot: slot.min(MAX_SLOTS) as u8,
        });
    }
    (busy.len(), steps)
}

fn source(operand: Operand, steps: &[SlotStep]) -> Source {
    match operand {
        Operand::Acc(i) => Source::Acc(i),
        Operand::Extra(i) => Source::Extra(i),
        Operand::Step(i) => Source::Slot(steps[usize::from(i)].slot),
        Operand::Const(c) => Source::Const(c),
    }
}

fn limit(field: &'static str, limit: usize, found: usize) -> Result<(), CpuError> {
    if found <= limit {
        Ok(())
    } else {
        Err(CpuError::Limit {
            field,
            limit,
            found,
        })
    }
}

/// Where a program's values lie while it runs.
pub(crate) struct Slots {
    slots: [Chunk; MAX_SLOTS],
    /// Extras whose chunk ends inside a vector, which must not be read past their end.
    padded: [Chunk; MAX_EXTRAS],
}

impl Slots {
    pub(crate) fn new() -> Self {
        Slots {
            slots: [[0.0; CHUNK]; MAX_SLOTS],
            padded: [[0.0; CHUNK]; MAX_EXTRAS],
        }
    }
}

/// Runs a program on columns `column .. column + out.len()` of row `row`. The inputs have been checked.
pub(crate) struct RunChunk<'a> {
    pub program: &'a Prepared,
    pub extras: &'a [ExtraInput<'a>],
    pub accumulators: [&'a Chunk; MAX_ACCUMULATORS],
    pub row: usize,
    pub column: usize,
    pub slots: &'a mut Slots,
    pub out: &'a mut [f32],
}

/// One value for all columns, or `CHUNK` values of which those that are used may be read in whole vectors.
#[derive(Clone, Copy)]
enum Value {
    Same(f32),
    Each(*const f32),
}

impl Kernel for RunChunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let len = self.out.len();
        assert!(len <= CHUNK);
        let mut extras = [Value::Same(0.0); MAX_EXTRAS];
        for ((value, input), padded) in extras
            .iter_mut()
            .zip(self.extras)
            .zip(&mut self.slots.padded)
        {
            let mut part = |v: &[f32]| {
                let v = &v[self.column..][..len];
                if len.is_multiple_of(I::LANES) {
                    return Value::Each(v.as_ptr());
                }
                padded[..len].copy_from_slice(v);
                Value::Each(padded.as_ptr())
            };
            *value = match input {
                ExtraInput::Full(m) => part(m.row(self.row)),
                ExtraInput::Column(v) => part(v),
                ExtraInput::Row(v) => Value::Same(v[self.row]),
                ExtraInput::Scalar(v) => Value::Same(*v),
            };
        }
        let slots = &mut self.slots.slots;
        let value = |source: Source, slots: &[Chunk; MAX_SLOTS]| match source {
            Source::Acc(i) => Value::Each(self.accumulators[usize::from(i)].as_ptr()),
            Source::Extra(i) => extras[usize::from(i)],
            Source::Slot(i) => Value::Each(slots[usize::from(i)].as_ptr()),
            Source::Const(c) => Value::Same(c),
        };
        for step in &self.program.steps {
            let (a, b) = (value(step.a, slots), value(step.b, slots));
            let out = slots[usize::from(step.slot)].as_mut_ptr();
            // SAFETY: every value can be read, and the slot written, in whole vectors up to `len`.
            unsafe { step_over(isa, step.op, a, b, out, len) };
        }
        match value(self.program.result, slots) {
            Value::Same(c) => self.out.fill(c),
            // SAFETY: `len` values are readable, and none lies in `out`, which is borrowed alone.
            Value::Each(p) => unsafe {
                std::ptr::copy_nonoverlapping(p, self.out.as_mut_ptr(), len)
            },
        }
    }
}

/// # Safety
/// `len` rounded up to whole vectors is readable in `a` and `b`, writable in `out`, and at most `CHUNK`.
#[inline(always)]
unsafe fn step_over<I: Isa>(isa: I, op: EltOp, a: Value, b: Value, out: *mut f32, len: usize) {
    macro_rules! unary {
        ($x:ident => $f:expr) => {
            for i in (0..len).step_by(I::LANES) {
                let $x = unsafe { value_at(isa, a, i) };
                unsafe { isa.store(out.add(i), $f) };
            }
        };
    }
    macro_rules! binary {
        ($x:ident, $y:ident => $f:expr) => {
            for i in (0..len).step_by(I::LANES) {
                let ($x, $y) = unsafe { (value_at(isa, a, i), value_at(isa, b, i)) };
                unsafe { isa.store(out.add(i), $f) };
            }
        };
    }
    let one = isa.splat(1.0);
    match op {
        EltOp::Add => binary!(a, b => isa.add(a, b)),
        EltOp::Sub => binary!(a, b => isa.sub(a, b)),
        EltOp::Mul => binary!(a, b => isa.mul(a, b)),
        EltOp::Div => binary!(a, b => isa.div(a, b)),
        // As in the reference, the other operand wins over NaN.
        EltOp::Min => {
            binary!(a, b => isa.select(isa.is_nan(a), b, isa.select(isa.less(b, a), b, a)))
        }
        EltOp::Max => {
            binary!(a, b => isa.select(isa.is_nan(a), b, isa.select(isa.less(a, b), b, a)))
        }
        EltOp::Relu => unary!(a => isa.select(isa.less(isa.splat(0.0), a), a, isa.splat(0.0))),
        EltOp::Neg => unary!(a => math::negate(isa, a)),
        EltOp::Abs => unary!(a => isa.abs(a)),
        EltOp::Sqrt => unary!(a => isa.sqrt(a)),
        EltOp::Rsqrt => unary!(a => isa.div(one, isa.sqrt(a))),
        EltOp::Recip => unary!(a => isa.div(one, a)),
        EltOp::Exp => unary!(a => math::exp(isa, a)),
        EltOp::Tanh => unary!(a => math::tanh(isa, a)),
        EltOp::Sigmoid => unary!(a => math::sigmoid(isa, a)),
        EltOp::Silu => unary!(a => math::silu(isa, a)),
        EltOp::Gelu => unary!(a => math::gelu(isa, a)),
        EltOp::GeluTanh => unary!(a => math::gelu_tanh(isa, a)),
        EltOp::Erf => unary!(a => math::erf(isa, a)),
        EltOp::Log => unary!(a => math::each_lane(isa, a, f32::ln)),
        EltOp::Sin => unary!(a => math::each_lane(isa, a, f32::sin)),
        EltOp::Cos => unary!(a => math::each_lane(isa, a, f32::cos)),
    }
}

/// # Safety
/// If the value is different for each column, a whole vector can be read at `i`.
#[inline(always)]
unsafe fn value_at<I: Isa>(isa: I, value: Value, i: usize) -> I::F {
    match value {
        Value::Same(c) => isa.splat(c),
        Value::Each(p) => unsafe { isa.load(p.add(i)) },
    }
}
