//! What several kernels share.

use cubecl::ir::dialect::vector::CompositeConstructOp;
use cubecl::prelude::*;

/// Four neighbouring `f32`, read with one load.
pub type Vec4 = Vector<f32, Const<4>>;

/// A word of `params` or of the step header.
#[cube]
pub fn word(buffer: &[u32], #[comptime] index: u32) -> u32 {
    buffer[comptime!(index as usize)]
}

/// A word of `params` that holds the bits of an `f32`.
#[cube]
pub fn float(buffer: &[u32], #[comptime] index: u32) -> f32 {
    f32::reinterpret(word(buffer, index))
}

/// The workgroup's number in a grid that may be two-dimensional.
#[cube]
pub fn workgroup_index() -> u32 {
    CUBE_POS_X + CUBE_POS_Y * CUBE_COUNT_X
}

/// The sum of `value` over the invocations of a workgroup, in each of them.
#[cube]
pub fn sum_over_workgroup(value: f32, #[comptime] threads: u32) -> f32 {
    let mut parts = Shared::<[f32]>::new_slice(comptime!(threads as usize));
    parts[UNIT_POS_X as usize] = value;
    sync_cube();
    #[unroll]
    for level in 1..comptime!(threads.ilog2() + 1) {
        let stride = comptime!(threads >> level);
        if UNIT_POS_X < stride {
            let other = parts[(UNIT_POS_X + stride) as usize];
            parts[UNIT_POS_X as usize] += other;
        }
        sync_cube();
    }
    parts[0]
}

/// The largest `value` over the invocations of a workgroup, in each of them.
#[cube]
pub fn max_over_workgroup(value: f32, #[comptime] threads: u32) -> f32 {
    let mut parts = Shared::<[f32]>::new_slice(comptime!(threads as usize));
    parts[UNIT_POS_X as usize] = value;
    sync_cube();
    #[unroll]
    for level in 1..comptime!(threads.ilog2() + 1) {
        let stride = comptime!(threads >> level);
        if UNIT_POS_X < stride {
            let other = parts[(UNIT_POS_X + stride) as usize];
            parts[UNIT_POS_X as usize] = max(parts[UNIT_POS_X as usize], other);
        }
        sync_cube();
    }
    parts[0]
}

/// The sum of the four elements.
#[cube]
pub fn sum4(v: Vec4) -> f32 {
    (v.extract(0usize) + v.extract(1usize)) + (v.extract(2usize) + v.extract(3usize))
}

/// A vector of four values.
#[cube]
#[allow(unused_variables)]
pub fn vec4<T: Scalar>(a: T, b: T, c: T, d: T) -> Vector<T, Const<4>> {
    intrinsic!(|scope| {
        let values = [a, b, c, d].map(|value| value.read_value(scope));
        let ty = Vector::<T, Const<4>>::__expand_as_type(scope);
        let op = CompositeConstructOp::new(scope.ctx_mut(), ty, values.to_vec());
        scope.register_with_result(&op).into()
    })
}

/// `count` variables that start at zero.
#[cube]
pub fn zeros(#[comptime] count: usize) -> Sequence<RuntimeCell<f32>> {
    let mut cells = Sequence::<RuntimeCell<f32>>::new();
    #[unroll]
    for _ in 0..count {
        cells.push(RuntimeCell::<f32>::new(f32::new(0.0)));
    }
    cells
}

/// Adds to a variable.
#[cube]
pub fn add_to(cell: &RuntimeCell<f32>, value: f32) {
    cell.store(cell.read() + value);
}
