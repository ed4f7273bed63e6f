//! What is made once per kernel of a plan: element-wise programs with their slots, and rotary tables.

use ingle_graph::kernel::KernelSpec;
use ingle_graph::ops::Rope;
use ingle_graph::plan::Plan;

use crate::CpuError;
use crate::RowsMut;
use crate::kernels::program::Prepared;
use crate::kernels::rope::rotary_table;

/// The kernels of a plan, prepared, by their index in the plan's table.
pub(super) struct Kernels {
    programs: Vec<Option<Prepared>>,
    /// Which table a kernel that rotates uses.
    table_of: Vec<Option<usize>>,
    tables: Vec<Table>,
}

/// Cosines and sines for the rows of a step, shared by all launches that rotate in the same way.
struct Table {
    rope: Rope,
    /// Whether frequencies are divided by a weight's elements.
    factors: bool,
    /// Per pair; empty until the weights are there.
    frequencies: Vec<f64>,
    values: Vec<f32>,
    /// Rows that hold this step's positions; 0 at its beginning.
    rows: usize,
}

impl Kernels {
    pub fn prepare(plan: &Plan) -> Result<Self, CpuError> {
        let mut kernels = Kernels {
            programs: vec![],
            table_of: vec![],
            tables: vec![],
        };
        for kernel in &plan.kernels {
            let program = match &kernel.spec {
                KernelSpec::Matmul(m) => Some(Prepared::new(&m.epilogue)?),
                KernelSpec::Elementwise { program, .. } => Some(Prepared::new(program)?),
                _ => None,
            };
            kernels.programs.push(program);
            let rope = match &kernel.spec {
                KernelSpec::Rope { op, factors, .. } => Some((op, *factors)),
                KernelSpec::RopeWrite(w) => Some((&w.rope, w.factors)),
                _ => None,
            };
            kernels
                .table_of
                .push(rope.map(|(rope, factors)| kernels.tables.table(rope, factors)));
        }
        Ok(kernels)
    }

    /// Makes room for tables of `rows` rows.
    pub fn set_rows(&mut self, rows: usize) {
        for table in &mut self.tables {
            table.values = vec![0.0; rows * table.rope.rotary_dim];
            table.rows = 0;
        }
    }

    /// Weights change: frequencies are computed anew.
    pub fn forget_frequencies(&mut self) {
        self.tables.iter_mut().for_each(|t| t.frequencies.clear());
    }

    /// Positions change.
    pub fn begin_step(&mut self) {
        self.tables.iter_mut().for_each(|t| t.rows = 0);
    }

    pub fn program(&self, kernel: usize) -> Result<&Prepared, CpuError> {
        self.programs[kernel]
            .as_ref()
            .ok_or_else(|| not_prepared("a program"))
    }

    /// The table of a kernel for these positions: made by the first launch of a step that needs it.
    pub fn table(
        &mut self,
        kernel: usize,
        pos: &[i32],
        factors: Option<&[f32]>,
    ) -> Result<&[f32], CpuError> {
        let index = self.table_of[kernel].ok_or_else(|| not_prepared("a rotary table"))?;
        let table = &mut self.tables[index];
        if table.frequencies.is_empty() {
            table.frequencies = table.rope.frequencies(factors);
        }
        let width = table.rope.rotary_dim;
        let values = table
            .values
            .get_mut(..pos.len() * width)
            .ok_or_else(|| not_prepared("rows of a rotary table"))?;
        if table.rows != pos.len() {
            rotary_table(
                &table.frequencies,
                pos,
                &mut RowsMut::new(values, pos.len(), width)?,
            )?;
            table.rows = pos.len();
        }
        Ok(values)
    }
}

/// Finds or adds a table.
trait FindTable {
    fn table(&mut self, rope: &Rope, factors: bool) -> usize;
}

impl FindTable for Vec<Table> {
    fn table(&mut self, rope: &Rope, factors: bool) -> usize {
        let found = self
            .iter()
            .position(|t| t.rope == *rope && t.factors == factors);
        found.unwrap_or_else(|| {
            self.push(Table {
                rope: rope.clone(),
                factors,
                frequencies: vec![],
                values: vec![],
                rows: 0,
            });
            self.len() - 1
        })
    }
}

fn not_prepared(expected: &'static str) -> CpuError {
    CpuError::Unsupported {
        field: "launch",
        expected,
        found: "none that was prepared".into(),
    }
}
