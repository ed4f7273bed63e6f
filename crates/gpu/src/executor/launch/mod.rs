//! A plan's launch in the kernels' terms: what each binding is, the params, and the grid.
//!
//! One launch becomes one dispatch for each shard of its weight.

mod specs;

use ingle_graph::kernel::KernelSpec;
use ingle_graph::ops::Rope;
use ingle_graph::plan::{Buffer, Launch, Plan, Rows};
use ingle_kernels::DeviceLimits;

use super::sharding::Shard;
use super::step::{Role, StepInputs};
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
    let arguments = Arguments {
        context,
        list: &launch.arguments,
        rows: launch.rows,
    };
    let lowered = specs::dispatches(&arguments, &kernel.spec, &key)?;
    let declared = kernel.text.as_ref().map_or(0, |t| t.writes.len());
    match lowered.iter().find(|l| l.bindings.len() != declared) {
        Some(l) => Err(format!(
            "{} bindings for a text that declares {declared}",
            l.bindings.len()
        )),
        None => Ok(lowered),
    }
}

/// A launch's arguments.
struct Arguments<'a, 'c> {
    context: &'a Context<'c>,
    list: &'a [Buffer],
    rows: Rows,
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
            Some(i) if self.context.inputs.role(i) == Some(role) => {}
            _ => {
                return Err(format!(
                    "{role:?} must come from one input, found {buffer:?}"
                ));
            }
        }
        // Kernels that read a role count their rows by it.
        match role {
            Role::Table => Ok(()),
            role => self.context.inputs.check_rows(role, self.rows),
        }
    }

    /// The word of the step data that counts the launch's rows.
    fn count_word(&self) -> u32 {
        self.context.inputs.count_word(self.rows)
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
