//! One launch: binds the arguments in the order that the spec states, and calls the kernel.

use ingle_graph::kernel::{
    Activations, AttentionSpec, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout,
};
use ingle_graph::ops::Pairing;
use ingle_graph::plan::{Buffer as Place, Launch, Plan};
use ingle_graph::{Dims, Extra, Symbol};

use super::memory::{Memory, elements_mut};
use super::prepared::Kernels;
use crate::kernels::attention::{Attention, attention};
use crate::kernels::kv_pool::{KvPool, KvPoolMut, PoolShape};
use crate::kernels::matmul::{DenseMatrix, Epilogue, Input, PackedMatrix, Weight, matmul};
use crate::kernels::program::ExtraInput;
use crate::kernels::quantize_activations::{QuantizedRows, fake_quantize_rows, quantize_rows};
use crate::kernels::rms_norm::{Norm, rms_norm};
use crate::kernels::rope::{RotaryTable, rope};
use crate::kernels::{
    argmax, elementwise, embedding, reduce, rope_write, slice, softmax, state_write, take_rows,
};
use crate::{Buffer, CpuError, Machine, Rows, RowsMut};

/// The most extra inputs of a program.
const MAX_EXTRAS: usize = 8;

/// Runs one launch over `rows` rows.
pub(super) fn run(
    machine: &Machine,
    plan: &Plan,
    kernels: &mut Kernels,
    memory: &mut Memory,
    launch: &Launch,
    rows: usize,
    dims: &Dims,
) -> Result<(), CpuError> {
    let kernel = launch.kernel as usize;
    let step = Step {
        machine,
        kernel,
        arguments: &launch.arguments,
        rows,
        dims,
    };
    match &plan.kernels[kernel].spec {
        KernelSpec::Matmul(spec) => step.matmul(kernels, memory, spec),
        KernelSpec::RopeWrite(spec) => step.rope_write(kernels, memory, spec),
        KernelSpec::Attention(spec) => {
            step.writing(memory, 5, |memory, y| step.attention(memory, spec, y))
        }
        KernelSpec::Rope { op, width, factors } => {
            let at = if *factors { 3 } else { 2 };
            step.writing(memory, at, |memory, y| {
                let x = step.matrix(memory, 0, *width)?;
                let factors = if *factors {
                    Some(memory.f32(step.at(2)?, op.rotary_dim / 2)?)
                } else {
                    None
                };
                let table = kernels.table(kernel, memory.i32(step.at(1)?, rows)?, factors)?;
                let table = RotaryTable::new(Rows::new(table, rows, op.rotary_dim)?, op.pairing)?;
                rope(machine, x, table, op.head_dim, &mut step.output(y, *width)?)
            })
        }
        KernelSpec::StateWrite {
            kv_heads,
            head_dim,
            kv,
        } => {
            let width = kv_heads * head_dim;
            step.writing(memory, 3, |memory, pool| {
                let shape = PoolShape::new(*kv, memory.pool_blocks(), *kv_heads, *head_dim)?;
                let (k, v) = (
                    step.matrix(memory, 0, width)?,
                    step.matrix(memory, 1, width)?,
                );
                let slots = memory.i32(step.at(2)?, rows)?;
                let mut pool = KvPoolMut::new(shape, pool.as_mut_slice())?;
                state_write::state_write(machine, k, v, slots, &mut pool)
            })
        }
        KernelSpec::Embedding {
            layout,
            vocabulary,
            k,
        } => step.writing(memory, 2, |memory, y| {
            let weight = weight(memory.bytes(step.at(1)?)?, *layout, *vocabulary, *k)?;
            let ids = memory.i32(step.at(0)?, rows)?;
            embedding::embedding(machine, ids, weight, &mut step.output(y, *k)?)
        }),
        KernelSpec::RmsNorm { k, eps } => step.writing(memory, 2, |memory, y| {
            let norm = Norm {
                weight: memory.f32(step.at(1)?, *k)?,
                eps: *eps,
            };
            rms_norm(
                machine,
                step.matrix(memory, 0, *k)?,
                norm,
                &mut step.output(y, *k)?,
            )
        }),
        KernelSpec::QuantizeActivations { k } => step.writing(memory, 1, |memory, y| {
            fake_quantize_rows(
                machine,
                step.matrix(memory, 0, *k)?,
                &mut step.output(y, *k)?,
            )
        }),
        KernelSpec::Elementwise { n, program } => {
            let extras = program.extras.len();
            let prepared = kernels.program(kernel)?;
            step.writing(memory, extras, |memory, y| {
                let inputs = step.extras(memory, &program.extras, 0, *n)?;
                elementwise::elementwise(
                    machine,
                    prepared,
                    &inputs[..extras],
                    &mut step.output(y, *n)?,
                )
            })
        }
        KernelSpec::Reduce { k, kind } => step.writing(memory, 1, |memory, y| {
            reduce::reduce(
                machine,
                step.matrix(memory, 0, *k)?,
                *kind,
                &mut step.output(y, 1)?,
            )
        }),
        KernelSpec::Softmax { k } => step.writing(memory, 1, |memory, y| {
            softmax::softmax(
                machine,
                step.matrix(memory, 0, *k)?,
                &mut step.output(y, *k)?,
            )
        }),
        KernelSpec::Slice { k, start, end } => step.writing(memory, 1, |memory, y| {
            slice::slice(
                step.matrix(memory, 0, *k)?,
                *start,
                &mut step.output(y, end - start)?,
            )
        }),
        KernelSpec::TakeRows { k } => step.writing(memory, 2, |memory, y| {
            // The rows that are taken from are those of the whole step.
            let from = dims.get(Symbol::Tokens);
            let x = Rows::new(memory.f32(step.at(0)?, from * k)?, from, *k)?;
            take_rows::take_rows(x, memory.i32(step.at(1)?, rows)?, &mut step.output(y, *k)?)
        }),
        KernelSpec::Argmax { n } => step.writing(memory, 1, |memory, y| {
            argmax::argmax(machine, step.matrix(memory, 0, *n)?, elements_mut(y, rows)?)
        }),
    }
}

/// A launch and what it runs in.
struct Step<'a> {
    machine: &'a Machine,
    kernel: usize,
    arguments: &'a [Place],
    rows: usize,
    dims: &'a Dims,
}

impl Step<'_> {
    /// Argument `i`.
    fn at(&self, i: usize) -> Result<Place, CpuError> {
        let found = self.arguments.len();
        self.arguments.get(i).copied().ok_or(CpuError::Length {
            field: "arguments of a launch",
            expected: i + 1,
            found,
        })
    }

    /// Runs `work` with argument `i` taken out to be written.
    fn writing(
        &self,
        memory: &mut Memory,
        i: usize,
        work: impl FnOnce(&Memory, &mut Buffer) -> Result<(), CpuError>,
    ) -> Result<(), CpuError> {
        let place = self.at(i)?;
        let mut buffer = memory.take(place)?;
        let done = work(memory, &mut buffer);
        memory.put(place, buffer);
        done
    }

    /// Argument `i` as a matrix of the launch's rows.
    fn matrix<'m>(&self, memory: &'m Memory, i: usize, width: usize) -> Result<Rows<'m>, CpuError> {
        Rows::new(
            memory.f32(self.at(i)?, self.rows * width)?,
            self.rows,
            width,
        )
    }

    fn output<'m>(&self, buffer: &'m mut Buffer, width: usize) -> Result<RowsMut<'m>, CpuError> {
        RowsMut::new(elements_mut(buffer, self.rows * width)?, self.rows, width)
    }

    /// The extra inputs of a program, the first of them argument `first`.
    fn extras<'m>(
        &self,
        memory: &'m Memory,
        kinds: &[Extra],
        first: usize,
        n: usize,
    ) -> Result<[ExtraInput<'m>; MAX_EXTRAS], CpuError> {
        let mut inputs = [ExtraInput::Scalar(0.0); MAX_EXTRAS];
        for (i, kind) in kinds.iter().enumerate().take(MAX_EXTRAS) {
            let place = self.at(first + i)?;
            inputs[i] = match kind {
                Extra::Full => ExtraInput::Full(self.matrix(memory, first + i, n)?),
                Extra::Column => ExtraInput::Column(memory.f32(place, n)?),
                Extra::Row => ExtraInput::Row(memory.f32(place, self.rows)?),
                Extra::Scalar => ExtraInput::Scalar(memory.f32(place, 1)?[0]),
            };
        }
        Ok(inputs)
    }

    fn matmul(
        &self,
        kernels: &Kernels,
        memory: &mut Memory,
        spec: &MatmulSpec,
    ) -> Result<(), CpuError> {
        let weight_at = if spec.norm.is_some() { 2 } else { 1 };
        let output_at = weight_at + 1 + spec.epilogue.extras.len();
        if spec.norm.is_none() && spec.activations == Activations::F32 {
            return self.writing(memory, output_at, |memory, y| {
                let x = Input::F32(self.matrix(memory, 0, spec.k)?);
                self.product(kernels, memory, spec, x, weight_at, y)
            });
        }
        let workspace_at = self.at(output_at + 1)?;
        let mut workspace = memory.take(workspace_at)?;
        let done = self.writing(memory, output_at, |memory, y| {
            let x = self.prologue(memory, spec, &mut workspace)?;
            self.product(kernels, memory, spec, x, weight_at, y)
        });
        memory.put(workspace_at, workspace);
        done
    }

    /// The input as the product reads it: normalised, quantised, or both.
    fn prologue<'m>(
        &self,
        memory: &Memory,
        spec: &MatmulSpec,
        workspace: &'m mut Buffer,
    ) -> Result<Input<'m>, CpuError> {
        let x = self.matrix(memory, 0, spec.k)?;
        let weight = if spec.norm.is_some() {
            Some(memory.f32(self.at(1)?, spec.k)?)
        } else {
            None
        };
        let norm = spec
            .norm
            .zip(weight)
            .map(|(eps, weight)| Norm { weight, eps });
        match (spec.activations, norm) {
            (Activations::Int8, norm) => {
                let width = QuantizedRows::row_words(spec.k)?;
                let words = elements_mut(workspace, self.rows * width)?;
                quantize_rows(
                    self.machine,
                    x,
                    norm,
                    &mut RowsMut::new(words, self.rows, width)?,
                )?;
                Ok(Input::Int8(QuantizedRows::new(words, self.rows, spec.k)?))
            }
            (Activations::F32, Some(norm)) => {
                let normed = elements_mut(workspace, self.rows * spec.k)?;
                rms_norm(
                    self.machine,
                    x,
                    norm,
                    &mut RowsMut::new(normed, self.rows, spec.k)?,
                )?;
                Ok(Input::F32(Rows::new(normed, self.rows, spec.k)?))
            }
            (Activations::F32, None) => unreachable!("such a product reads its input itself"),
        }
    }

    fn product(
        &self,
        kernels: &Kernels,
        memory: &Memory,
        spec: &MatmulSpec,
        x: Input<'_>,
        weight_at: usize,
        y: &mut Buffer,
    ) -> Result<(), CpuError> {
        let rows = spec.n * usize::from(spec.epilogue.accumulators);
        let weight = weight(
            memory.bytes(self.at(weight_at)?)?,
            spec.layout,
            rows,
            spec.k,
        )?;
        let extras = self.extras(memory, &spec.epilogue.extras, weight_at + 1, spec.n)?;
        let extras = &extras[..spec.epilogue.extras.len()];
        let epilogue = Epilogue {
            program: kernels.program(self.kernel)?,
            extras,
        };
        matmul(
            self.machine,
            weight,
            x,
            epilogue,
            &mut self.output(y, spec.n)?,
        )
    }

    fn rope_write(
        &self,
        kernels: &mut Kernels,
        memory: &mut Memory,
        spec: &RopeWriteSpec,
    ) -> Result<(), CpuError> {
        let sources = if spec.packed { 1 } else { 3 };
        let pool_at = self.at(sources + 2 + usize::from(spec.factors))?;
        let mut pool = memory.take(pool_at)?;
        let output_at = sources + 3 + usize::from(spec.factors);
        let done = self.writing(memory, output_at, |memory, q_out| {
            let width = spec.heads * spec.head_dim;
            let widths = [
                width,
                spec.kv_heads * spec.head_dim,
                spec.kv_heads * spec.head_dim,
            ];
            let source = |i: usize| {
                let at = if spec.packed { 0 } else { i };
                self.matrix(memory, at, spec.widths[i])?
                    .columns(spec.starts[i], widths[i])
            };
            let qkv = [source(0)?, source(1)?, source(2)?];
            let pos = memory.i32(self.at(sources)?, self.rows)?;
            let slots = memory.i32(self.at(sources + 1)?, self.rows)?;
            let rotary = spec.rope.rotary_dim;
            let factors = if spec.factors {
                Some(memory.f32(self.at(sources + 2)?, rotary / 2)?)
            } else {
                None
            };
            let pairing: Pairing = spec.rope.pairing;
            let table = kernels.table(self.kernel, pos, factors)?;
            let table = RotaryTable::new(Rows::new(table, self.rows, rotary)?, pairing)?;
            let shape =
                PoolShape::new(spec.kv, memory.pool_blocks(), spec.kv_heads, spec.head_dim)?;
            let mut pool = KvPoolMut::new(shape, pool.as_mut_slice())?;
            rope_write::rope_write(
                self.machine,
                qkv,
                table,
                slots,
                &mut pool,
                &mut self.output(q_out, width)?,
            )
        });
        memory.put(pool_at, pool);
        done
    }

    fn attention(
        &self,
        memory: &Memory,
        spec: &AttentionSpec,
        y: &mut Buffer,
    ) -> Result<(), CpuError> {
        let width = spec.op.heads * spec.head_dim;
        let (batch, table_width) = (self.dims.get(Symbol::Batch), self.dims.get(Symbol::Table));
        let shape = PoolShape::new(spec.kv, memory.pool_blocks(), spec.kv_heads, spec.head_dim)?;
        let a = Attention {
            q: self.matrix(memory, 0, width)?,
            pool: KvPool::new(shape, memory.bytes(self.at(1)?)?)?,
            pos: memory.i32(self.at(2)?, self.rows)?,
            seq: memory.i32(self.at(3)?, self.rows)?,
            table: memory.i32(self.at(4)?, batch * table_width)?,
            table_width,
            scale: spec.op.scale,
            softcap: spec.op.softcap,
            window: spec.op.window,
        };
        attention(self.machine, &a, &mut self.output(y, width)?)
    }
}

/// A weight's bytes as kernels read them.
fn weight(
    bytes: &[u8],
    layout: WeightLayout,
    rows: usize,
    k: usize,
) -> Result<Weight<'_>, CpuError> {
    match layout {
        WeightLayout::Dense(element) => {
            DenseMatrix::new(element, bytes, rows, k).map(Weight::Dense)
        }
        WeightLayout::Packed(layout) => {
            PackedMatrix::new(layout, bytes, rows, k).map(Weight::Packed)
        }
    }
}
