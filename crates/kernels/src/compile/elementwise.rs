//! `out[i] = program(inputs[i])`, one element per invocation.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::{word, workgroup_index};
use super::{KernelError, program, require_threads};
use crate::params::elementwise as p;
use crate::{DeviceLimits, ElementwiseKey, EltProgram, KernelText};

pub fn build(
    id: String,
    key: &ElementwiseKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    key.program
        .check(0)
        .map_err(|source| KernelError::Program {
            kernel: id.clone(),
            source,
        })?;
    let mut builder = Builder::new(id, "elementwise", threads);
    let inputs = builder.buffers::<f32>("input", key.program.inputs.len());
    let mut out = builder.buffer::<f32>("out");
    let step = builder.buffer::<u32>("step");
    let params = builder.buffer::<u32>("params");
    elementwise::expand(
        builder.scope(),
        &inputs,
        &mut out,
        &step,
        &params,
        key.program.clone(),
        threads,
    );
    builder.finish(limits)
}

#[cube]
fn elementwise(
    inputs: &Sequence<Box<[f32]>>, // [rows, columns] or as the program says
    out: &mut [f32],               // [rows, columns]
    step: &[u32],
    params: &[u32],
    #[comptime] program: EltProgram,
    #[comptime] threads: u32,
) {
    let columns = word(params, p::columns);
    let at = workgroup_index() * threads + UNIT_POS_X;
    if at < columns * step[word(params, p::count_word) as usize] {
        let none = Sequence::<f32>::new();
        out[at as usize] =
            program::evaluate(&none, inputs, at, at / columns, at % columns, program);
    }
}
