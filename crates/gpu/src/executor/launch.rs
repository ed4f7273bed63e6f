//! A plan's launch in the kernels' terms: what each binding is, the params, and the grid.
//!
//! One launch becomes one dispatch for each shard of its weight.

use ingle_graph::kernel::{KernelSpec, MatmulSpec, RopeWriteSpec};
use ingle_graph::ops::Rope;
use ingle_graph::plan::{Buffer, Kernel, Launch, Plan, Rows};
use ingle_kernels::{DeviceLimits, KernelKey, RopeWriteKey, params};

use super::step::{Role, StepInputs};
use super::weights::Shard;
use crate::select;

/// What a binding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Buffer(Buffer),
    /// A shard of a weight.
    Shard(u32, usize),
    RopeTable(usize),
    /// What a kernel declares and does not read here.
    Unread,
    /// What a kernel declares and does not write here.
    Unwritten,
    Step,
    Params,
}

/// The grid as a function of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// `[rows, 1, 1]`
    X,
    /// `[x, rows, 1]`
    Y(u32),
    /// `[x, y, rows / per]`
    Z { xy: [u32; 2], per: u32 },
    /// As many workgroups as `rows · columns` elements take.
    Elements { columns: u32, threads: u32 },
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lowered {
    pub bindings: Vec<Bound>,
    pub params: Vec<u32>,
    pub grid: Grid,
}

/// What lowering a launch depends on.
pub(super) struct Context<'a> {
    pub plan: &'a Plan,
    pub limits: DeviceLimits,
    pub inputs: &'a StepInputs,
    /// The input that the entry takes from a result: `(input, result)`.
    pub fed: Option<(u32, u32)>,
    pub shards: &'a dyn Fn(u32) -> &'a [Shard],
    /// The table for a rotation with these factors.
    pub rope_table: &'a dyn Fn(&Rope, Option<u32>) -> Option<usize>,
}

impl Grid {
    pub fn resolve(self, rows: u32, limits: &DeviceLimits) -> [u32; 3] {
        match self {
            Grid::X => [rows, 1, 1],
            Grid::Y(x) => [x, rows, 1],
            Grid::Z { xy: [x, y], per } => [x, y, rows.div_ceil(per)],
            Grid::Elements { columns, threads } => {
                let [x, y] = limits.grid(rows.saturating_mul(columns).div_ceil(threads));
                [x, y, 1]
            }
        }
    }
}

/// Lowers a launch, or says what is wrong with it.
pub(super) fn lower(context: &Context<'_>, launch: &Launch) -> Result<Vec<Lowered>, String> {
    let kernel = &context.plan.kernels[launch.kernel as usize];
    let key = select::key(&kernel.spec, &kernel.candidate)?;
    let lowered = dispatches(context, launch, kernel, &key)?;
    let declared = kernel.text.as_ref().map_or(0, |t| t.writes.len());
    match lowered.iter().find(|l| l.bindings.len() != declared) {
        Some(l) => Err(format!(
            "{} bindings for a text that declares {declared}",
            l.bindings.len()
        )),
        None => Ok(lowered),
    }
}

fn dispatches(
    context: &Context<'_>,
    launch: &Launch,
    kernel: &Kernel,
    key: &KernelKey,
) -> Result<Vec<Lowered>, String> {
    let arguments = Arguments {
        context,
        list: &launch.arguments,
    };
    let count_word = context.inputs.count_word(launch.rows);
    match (&kernel.spec, key) {
        (
            KernelSpec::Embedding {
                layout,
                vocabulary,
                k,
            },
            KernelKey::Embedding(_),
        ) => {
            let [ids, weight, out] = arguments.all()?;
            arguments.index(ids, Role::Ids)?;
            context.inputs.check_rows(Role::Ids, launch.rows)?;
            let (weight, format) = (arguments.weight(weight)?, select::format(*layout)?);
            let shard = |(i, shard): (usize, &Shard)| Lowered {
                bindings: vec![
                    Bound::Shard(weight, i),
                    Bound::Buffer(out),
                    Bound::Step,
                    Bound::Params,
                ],
                params: params::EmbeddingParams {
                    k: *k as u32,
                    vocabulary: shard.columns,
                    scales_word: format.scales_word(shard.rows, *k as u32),
                    scale: 1.0,
                    first_row: shard.first,
                    ids: *vocabulary as u32,
                }
                .words(),
                grid: Grid::X,
            };
            Ok((context.shards)(weight)
                .iter()
                .enumerate()
                .map(shard)
                .collect())
        }
        (KernelSpec::RmsNorm { k, eps }, KernelKey::RmsNorm(_)) => {
            let [x, weight, out] = arguments.all()?;
            let params = params::RmsNormParams {
                k: *k as u32,
                eps: *eps,
                count_word,
            }
            .words();
            one(
                vec![
                    Bound::Buffer(x),
                    arguments.whole(weight)?,
                    Bound::Buffer(out),
                ],
                params,
                Grid::X,
            )
        }
        (KernelSpec::Matmul(m), KernelKey::MatVec(_) | KernelKey::MatMul(_)) => {
            product(&arguments, m, key, count_word)
        }
        (KernelSpec::RopeWrite(w), KernelKey::RopeWrite(key)) => {
            context.inputs.check_rows(Role::Positions, launch.rows)?;
            let grid = key.grid(w.heads as u32, w.kv_heads as u32, 1);
            rope_write(&arguments, w, grid[0])
        }
        (KernelSpec::Attention(a), KernelKey::Attention(_)) => {
            let [q, kv, pos, seq, table, out] = arguments.all()?;
            for (buffer, role) in [
                (pos, Role::Positions),
                (seq, Role::Sequences),
                (table, Role::Table),
            ] {
                arguments.index(buffer, role)?;
            }
            context.inputs.check_rows(Role::Positions, launch.rows)?;
            let params = params::AttentionParams {
                heads: a.op.heads as u32,
                kv_heads: a.kv_heads as u32,
                scale: a.op.scale,
                cap: a.op.softcap.unwrap_or_default(),
                window: a.op.window.unwrap_or_default() as u32,
            };
            one(
                [q, kv, out].map(Bound::Buffer).to_vec(),
                params.words(),
                Grid::Y(a.op.heads as u32),
            )
        }
        (KernelSpec::Elementwise { n, .. }, KernelKey::Elementwise(key)) => {
            let bindings = arguments
                .list
                .iter()
                .map(|&b| arguments.whole(b))
                .collect::<Result<_, _>>()?;
            let columns = *n as u32;
            let params = params::ElementwiseParams {
                columns,
                count_word,
            }
            .words();
            one(
                bindings,
                params,
                Grid::Elements {
                    columns,
                    threads: u32::from(key.threads),
                },
            )
        }
        (KernelSpec::TakeRows { k }, KernelKey::TakeRows(_)) => {
            let [x, index, out] = arguments.all()?;
            arguments.index(index, Role::OutputRows)?;
            context.inputs.check_rows(Role::OutputRows, launch.rows)?;
            let params = params::TakeRowsParams { k: *k as u32 }.words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (KernelSpec::Rope { op, width, factors }, KernelKey::RopeWrite(key)) => {
            context.inputs.check_rows(Role::Positions, launch.rows)?;
            rope(&arguments, op, *width, *factors, key)
        }
        (
            KernelSpec::StateWrite {
                kv_heads, head_dim, ..
            },
            KernelKey::RopeWrite(key),
        ) => {
            context.inputs.check_rows(Role::Slots, launch.rows)?;
            let [k, v, slots, pool] = arguments.all()?;
            arguments.index(slots, Role::Slots)?;
            let width = (kv_heads * head_dim) as u32;
            let params = params::RopeWriteParams {
                kv_heads: *kv_heads as u32,
                k_stride: width,
                v_stride: width,
                ..Default::default()
            };
            let [k, v, pool] = [k, v, pool].map(Bound::Buffer);
            let bindings = vec![Bound::Unread, k, v, Bound::Unread, Bound::Unwritten, pool];
            one(
                bindings,
                params.words(),
                Grid::Y(key.grid(0, *kv_heads as u32, 1)[0]),
            )
        }
        (KernelSpec::QuantizeActivations { k }, KernelKey::QuantizeActivations(_)) => {
            let [x, out] = arguments.all()?;
            let params = params::QuantizeActivationsParams {
                k: *k as u32,
                count_word,
            }
            .words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (KernelSpec::Reduce { k, .. }, KernelKey::Reduce(_)) => {
            let [x, out] = arguments.all()?;
            let params = params::ReduceParams {
                k: *k as u32,
                count_word,
            }
            .words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (KernelSpec::Softmax { k }, KernelKey::Softmax(_)) => {
            let [x, out] = arguments.all()?;
            let params = params::SoftmaxParams {
                k: *k as u32,
                count_word,
            }
            .words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (KernelSpec::Slice { k, start, end }, KernelKey::Slice(_)) => {
            let [x, out] = arguments.all()?;
            let columns = end.saturating_sub(*start) as u32;
            let params = params::SliceParams {
                k: *k as u32,
                start: *start as u32,
                columns,
                count_word,
            }
            .words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (KernelSpec::Argmax { n }, KernelKey::Argmax(_)) => {
            let [x, out] = arguments.all()?;
            let params = params::ArgmaxParams {
                columns: *n as u32,
                count_word,
            }
            .words();
            one([x, out].map(Bound::Buffer).to_vec(), params, Grid::X)
        }
        (spec, key) => Err(format!("{} does not compute {}", key.id(), spec.name())),
    }
}

/// `out[t, first .. first + columns] = …` for each shard.
fn product(
    arguments: &Arguments<'_, '_>,
    m: &MatmulSpec,
    key: &KernelKey,
    count_word: u32,
) -> Result<Vec<Lowered>, String> {
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
            count_word,
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

fn rope_write(
    arguments: &Arguments<'_, '_>,
    w: &RopeWriteSpec,
    x: u32,
) -> Result<Vec<Lowered>, String> {
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
        grid: Grid::Y(x),
    }])
}

/// Rotates all heads of `x` as queries of a layer without keys.
fn rope(
    arguments: &Arguments<'_, '_>,
    op: &Rope,
    width: usize,
    factors: bool,
    key: &RopeWriteKey,
) -> Result<Vec<Lowered>, String> {
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

/// A single dispatch that binds step data and params last.
fn one(mut bindings: Vec<Bound>, params: Vec<u32>, grid: Grid) -> Result<Vec<Lowered>, String> {
    bindings.extend([Bound::Step, Bound::Params]);
    Ok(vec![Lowered {
        bindings,
        params,
        grid,
    }])
}

/// A launch's arguments.
struct Arguments<'a, 'c> {
    context: &'a Context<'c>,
    list: &'a [Buffer],
}

impl Arguments<'_, '_> {
    fn all<const N: usize>(&self) -> Result<[Buffer; N], String> {
        self.list
            .try_into()
            .map_err(|_| format!("{N} arguments expected, found {}", self.list.len()))
    }

    /// A buffer that is bound whole, which a sharded weight cannot be.
    fn whole(&self, buffer: Buffer) -> Result<Bound, String> {
        match buffer {
            Buffer::Weight(w) => match (self.context.shards)(w) {
                [_] => Ok(Bound::Shard(w, 0)),
                shards => Err(format!(
                    "a weight in {} shards where one buffer is bound",
                    shards.len()
                )),
            },
            other => Ok(Bound::Buffer(other)),
        }
    }

    fn weight(&self, buffer: Buffer) -> Result<u32, String> {
        match buffer {
            Buffer::Weight(w) => Ok(w),
            other => Err(format!("a weight expected, found {other:?}")),
        }
    }

    /// Checks that kernels find what `buffer` is in the step data at `role`.
    fn index(&self, buffer: Buffer, role: Role) -> Result<(), String> {
        let input = match (buffer, self.context.fed) {
            (Buffer::Input(i), _) => Some(i),
            (Buffer::Result(r), Some((input, result))) if r == result => Some(input),
            _ => None,
        };
        match input {
            Some(i) if self.context.inputs.role(i) == Some(role) => Ok(()),
            _ => Err(format!(
                "{role:?} must come from one input, found {buffer:?}"
            )),
        }
    }
}

/// The index arguments of a spec: the place in the argument list and the role there.
pub(super) fn index_arguments(spec: &KernelSpec) -> Vec<(usize, Role)> {
    match spec {
        KernelSpec::Embedding { .. } => vec![(0, Role::Ids)],
        KernelSpec::Rope { .. } => vec![(1, Role::Positions)],
        KernelSpec::RopeWrite(w) => {
            let sources = if w.packed { 1 } else { 3 };
            vec![(sources, Role::Positions), (sources + 1, Role::Slots)]
        }
        KernelSpec::StateWrite { .. } => vec![(2, Role::Slots)],
        KernelSpec::Attention(_) => {
            vec![(2, Role::Positions), (3, Role::Sequences), (4, Role::Table)]
        }
        KernelSpec::TakeRows { .. } => vec![(1, Role::OutputRows)],
        _ => vec![],
    }
}

/// The rotation that a spec needs a table for, and its factors.
pub(super) fn rotation(spec: &KernelSpec, arguments: &[Buffer]) -> Option<(Rope, Option<u32>)> {
    let weight = |at: usize| match arguments.get(at) {
        Some(Buffer::Weight(w)) => Some(*w),
        _ => None,
    };
    match spec {
        KernelSpec::RopeWrite(w) => {
            let at = if w.packed { 3 } else { 5 };
            Some((w.rope.clone(), if w.factors { weight(at) } else { None }))
        }
        KernelSpec::Rope { op, factors, .. } => {
            Some((op.clone(), if *factors { weight(2) } else { None }))
        }
        _ => None,
    }
}

/// Launches of a spec with two accumulators read rows `c` and `n + c` of their weight.
pub(super) fn accumulators(spec: &KernelSpec) -> u32 {
    match spec {
        KernelSpec::Matmul(m) => u32::from(m.epilogue.accumulators.max(1)),
        _ => 1,
    }
}

/// The rows of a launch in one step.
pub(super) fn rows_of(rows: Rows, dims: &ingle_graph::Dims) -> u32 {
    u32::try_from(rows.resolve(dims)).unwrap_or(u32::MAX)
}
