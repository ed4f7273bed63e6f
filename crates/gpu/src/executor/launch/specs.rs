//! What each spec binds, its params and its grid: one function for each kind of kernel.

use ingle_graph::kernel::{AttentionSpec, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use ingle_graph::ops::Rope;
use ingle_graph::plan::Buffer;
use ingle_kernels::{KernelKey, RopeWriteKey, params};

use super::{Arguments, Bound, Grid, Lowered};
use crate::executor::sharding::Shard;
use crate::executor::step::Role;
use crate::select;

type Dispatches = Result<Vec<Lowered>, String>;

/// The dispatches of a launch of `spec` with the kernel `key`.
pub(super) fn dispatches(
    arguments: &Arguments<'_, '_>,
    spec: &KernelSpec,
    key: &KernelKey,
) -> Dispatches {
    use {KernelKey as Key, KernelSpec as Spec};
    let count_word = arguments.count_word();
    match (spec, key) {
        (
            Spec::Embedding {
                layout,
                vocabulary,
                k,
            },
            Key::Embedding(_),
        ) => embedding(arguments, *layout, *vocabulary as u32, *k as u32),
        (Spec::Matmul(m), Key::MatVec(_) | Key::MatMul(_)) => product(arguments, m, key),
        (Spec::RopeWrite(w), Key::RopeWrite(key)) => rope_write(arguments, w, key),
        (Spec::Rope { op, width, factors }, Key::RopeWrite(key)) => {
            rope(arguments, op, *width, *factors, key)
        }
        (
            Spec::StateWrite {
                kv_heads, head_dim, ..
            },
            Key::RopeWrite(key),
        ) => state_write(arguments, *kv_heads as u32, *head_dim as u32, key),
        (Spec::Attention(a), Key::Attention(_)) => attention(arguments, a),
        (Spec::Elementwise { n, .. }, Key::Elementwise(key)) => {
            let (columns, threads) = (*n as u32, u32::from(key.threads));
            let params = params::ElementwiseParams {
                columns,
                count_word,
            };
            over(
                arguments,
                arguments.list,
                params.words(),
                Grid::Elements { columns, threads },
            )
        }
        (Spec::TakeRows { k }, Key::TakeRows(_)) => {
            let [x, index, out] = arguments.all()?;
            arguments.index(index, Role::OutputRows)?;
            let params = params::TakeRowsParams { k: *k as u32 };
            over(arguments, &[x, out], params.words(), Grid::X)
        }
        (Spec::RmsNorm { k, eps }, Key::RmsNorm(_)) => {
            let params = params::RmsNormParams {
                k: *k as u32,
                eps: *eps,
                count_word,
            };
            over(arguments, &arguments.all::<3>()?, params.words(), Grid::X)
        }
        (Spec::QuantizeActivations { k }, Key::QuantizeActivations(_)) => {
            let params = params::QuantizeActivationsParams {
                k: *k as u32,
                count_word,
            };
            over(arguments, &arguments.all::<2>()?, params.words(), Grid::X)
        }
        (Spec::Reduce { k, .. }, Key::Reduce(_)) => {
            let params = params::ReduceParams {
                k: *k as u32,
                count_word,
            };
            over(arguments, &arguments.all::<2>()?, params.words(), Grid::X)
        }
        (Spec::Softmax { k }, Key::Softmax(_)) => {
            let params = params::SoftmaxParams {
                k: *k as u32,
                count_word,
            };
            over(arguments, &arguments.all::<2>()?, params.words(), Grid::X)
        }
        (Spec::Slice { k, start, end }, Key::Slice(_)) => {
            let (start, columns) = (*start as u32, end.saturating_sub(*start) as u32);
            let params = params::SliceParams {
                k: *k as u32,
                start,
                columns,
                count_word,
            };
            over(arguments, &arguments.all::<2>()?, params.words(), Grid::X)
        }
        (Spec::Argmax { n }, Key::Argmax(_)) => {
            let params = params::ArgmaxParams {
                columns: *n as u32,
                count_word,
            };
            over(arguments, &arguments.all::<2>()?, params.words(), Grid::X)
        }
        (spec, key) => Err(format!("{} does not compute {}", key.id(), spec.name())),
    }
}

/// The rows of the table that each shard has.
fn embedding(
    arguments: &Arguments<'_, '_>,
    layout: WeightLayout,
    vocabulary: u32,
    k: u32,
) -> Dispatches {
    let [ids, weight, out] = arguments.all()?;
    arguments.index(ids, Role::Ids)?;
    let (weight, format) = (arguments.weight(weight)?, select::format(layout)?);
    let shard = |(i, shard): (usize, &Shard)| Lowered {
        bindings: vec![
            Bound::Shard(weight, i),
            Bound::Buffer(out),
            Bound::Step,
            Bound::Params,
        ],
        params: params::EmbeddingParams {
            k,
            vocabulary: shard.columns,
            scales_word: format.scales_word(shard.rows, k),
            scale: 1.0,
            first_row: shard.first,
            ids: vocabulary,
        }
        .words(),
        grid: Grid::X,
    };
    let shards = (arguments.context.shards)(weight);
    Ok(shards.iter().enumerate().map(shard).collect())
}

fn attention(arguments: &Arguments<'_, '_>, a: &AttentionSpec) -> Dispatches {
    let [q, kv, pos, seq, table, out] = arguments.all()?;
    arguments.index(pos, Role::Positions)?;
    arguments.index(seq, Role::Sequences)?;
    arguments.index(table, Role::Table)?;
    let params = params::AttentionParams {
        heads: a.op.heads as u32,
        kv_heads: a.kv_heads as u32,
        scale: a.op.scale,
        cap: a.op.softcap.unwrap_or_default(),
        window: a.op.window.unwrap_or_default() as u32,
    };
    over(
        arguments,
        &[q, kv, out],
        params.words(),
        Grid::Y(a.op.heads as u32),
    )
}

/// Writes keys and values as a layer without queries whose keys are not rotated.
fn state_write(
    arguments: &Arguments<'_, '_>,
    kv_heads: u32,
    head_dim: u32,
    key: &RopeWriteKey,
) -> Dispatches {
    let [k, v, slots, pool] = arguments.all()?;
    arguments.index(slots, Role::Slots)?;
    let width = kv_heads * head_dim;
    let params = params::RopeWriteParams {
        kv_heads,
        k_stride: width,
        v_stride: width,
        ..Default::default()
    };
    let [k, v, pool] = [k, v, pool].map(Bound::Buffer);
    let bindings = vec![Bound::Unread, k, v, Bound::Unread, Bound::Unwritten, pool];
    one(
        bindings,
        params.words(),
        Grid::Y(key.grid(0, kv_heads, 1)[0]),
    )
}

/// `out[t, first .. first + columns] = …` for each shard.
fn product(arguments: &Arguments<'_, '_>, m: &MatmulSpec, key: &KernelKey) -> Dispatches {
    let extras = m.epilogue.extras.len();
    let norm = usize::from(m.norm.is_some());
    let expected = 3 + norm + extras;
    if arguments.list.len() != expected {
        return Err(format!(
            "{expected} arguments expected, found {}",
            arguments.list.len()
        ));
    }
    let (x, out) = (arguments.list[0], arguments.list[expected - 1]);
    let (weight, format) = (
        arguments.weight(arguments.list[1 + norm])?,
        select::format(m.layout)?,
    );
    let limits = arguments.context.limits;
    let mut lowered = Vec::new();
    for (i, shard) in (arguments.context.shards)(weight).iter().enumerate() {
        let mut bindings = vec![Bound::Buffer(x)];
        for &weight in &arguments.list[1..1 + norm] {
            bindings.push(arguments.whole(weight)?);
        }
        bindings.push(Bound::Shard(weight, i));
        for &extra in &arguments.list[2 + norm..expected - 1] {
            bindings.push(arguments.whole(extra)?);
        }
        bindings.extend([Bound::Buffer(out), Bound::Step, Bound::Params]);
        let params = params::ProjectionParams {
            k: m.k as u32,
            rows: shard.columns,
            pair_rows: shard.columns,
            scales_word: format.scales_word(shard.rows, m.k as u32),
            x_stride: m.k as u32,
            x_offset: 0,
            out_stride: m.n as u32,
            out_offset: shard.first,
            eps: m.norm.unwrap_or_default(),
            count_word: arguments.count_word(),
        };
        let (grid, per) = match key {
            KernelKey::MatVec(key) => (key.grid(shard.columns, 1, &limits), u32::from(key.tokens)),
            KernelKey::MatMul(key) => (
                key.grid(shard.columns, 1, &limits),
                u32::from(key.tile.tokens),
            ),
            other => return Err(format!("{} is no matrix product", other.id())),
        };
        let grid = Grid::Z {
            xy: [grid[0], grid[1]],
            per,
        };
        lowered.push(Lowered {
            bindings,
            params: params.words(),
            grid,
        });
    }
    Ok(lowered)
}

fn rope_write(arguments: &Arguments<'_, '_>, w: &RopeWriteSpec, key: &RopeWriteKey) -> Dispatches {
    let sources = if w.packed { 1 } else { 3 };
    let expected = sources + 4 + usize::from(w.factors);
    if arguments.list.len() != expected {
        return Err(format!(
            "{expected} arguments expected, found {}",
            arguments.list.len()
        ));
    }
    arguments.index(arguments.list[sources], Role::Positions)?;
    arguments.index(arguments.list[sources + 1], Role::Slots)?;
    let factors = if w.factors {
        Some(arguments.weight(arguments.list[sources + 2])?)
    } else {
        None
    };
    let table =
        (arguments.context.rope_table)(&w.rope, factors).ok_or("a rotation without a table")?;
    let (kv, q_out) = (arguments.list[expected - 2], arguments.list[expected - 1]);
    let mut bindings: Vec<Bound> = arguments.list[..sources]
        .iter()
        .map(|&b| Bound::Buffer(b))
        .collect();
    bindings.extend([
        Bound::RopeTable(table),
        Bound::Buffer(q_out),
        Bound::Buffer(kv),
        Bound::Step,
        Bound::Params,
    ]);
    let params = params::RopeWriteParams {
        heads: w.heads as u32,
        kv_heads: w.kv_heads as u32,
        q_stride: w.widths[0] as u32,
        q_offset: w.starts[0] as u32,
        k_stride: w.widths[1] as u32,
        k_offset: w.starts[1] as u32,
        v_stride: w.widths[2] as u32,
        v_offset: w.starts[2] as u32,
    };
    Ok(vec![Lowered {
        bindings,
        params: params.words(),
        grid: Grid::Y(key.grid(w.heads as u32, w.kv_heads as u32, 1)[0]),
    }])
}

/// Rotates all heads of `x` as queries of a layer without keys.
fn rope(
    arguments: &Arguments<'_, '_>,
    op: &Rope,
    width: usize,
    factors: bool,
    key: &RopeWriteKey,
) -> Dispatches {
    let expected = 3 + usize::from(factors);
    if arguments.list.len() != expected || op.head_dim == 0 {
        return Err(format!(
            "{expected} arguments expected, found {}",
            arguments.list.len()
        ));
    }
    arguments.index(arguments.list[1], Role::Positions)?;
    let factors = if factors {
        Some(arguments.weight(arguments.list[2])?)
    } else {
        None
    };
    let table = (arguments.context.rope_table)(op, factors).ok_or("a rotation without a table")?;
    let [x, out] = [arguments.list[0], arguments.list[expected - 1]].map(Bound::Buffer);
    let heads = (width / op.head_dim) as u32;
    let params = params::RopeWriteParams {
        heads,
        q_stride: width as u32,
        ..Default::default()
    };
    let bindings = vec![x, Bound::RopeTable(table), out, Bound::Unwritten];
    one(bindings, params.words(), Grid::Y(key.grid(heads, 0, 1)[0]))
}

/// A single dispatch over whole buffers in the order of the kernel's bindings.
fn over(
    arguments: &Arguments<'_, '_>,
    buffers: &[Buffer],
    params: Vec<u32>,
    grid: Grid,
) -> Dispatches {
    let bindings = buffers
        .iter()
        .map(|&b| arguments.whole(b))
        .collect::<Result<_, _>>()?;
    one(bindings, params, grid)
}

/// A single dispatch that binds step data and params last.
fn one(mut bindings: Vec<Bound>, params: Vec<u32>, grid: Grid) -> Dispatches {
    bindings.extend([Bound::Step, Bound::Params]);
    Ok(vec![Lowered {
        bindings,
        params,
        grid,
    }])
}
