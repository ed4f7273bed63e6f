//! `rope_write`: turns queries and keys, and writes keys and values to the KV pool: what follows the projections of a layer,
//! in one launch.

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::kernels::kv_pool::{KvPoolMut, Which, check_slots};
use crate::kernels::rope::{RotaryTable, check_heads, rope};
use crate::{CpuError, Machine, Rows, RowsMut};

/// Values that are worth waking a thread for.
const GRAIN: usize = 16 << 10;

/// The largest head: a turned key waits on the stack.
pub const MAX_HEAD_DIM: usize = 1024;

/// `q`, `k` and `v` are `[rows, heads · head_dim]` each, with as many heads as `q_out` and the pool have.
pub fn rope_write(
    machine: &Machine,
    [q, k, v]: [Rows<'_>; 3],
    table: RotaryTable<'_>,
    slots: &[i32],
    pool: &mut KvPoolMut<'_>,
    q_out: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    let shape = *pool.shape();
    let head_dim = shape.head_dim();
    if head_dim > MAX_HEAD_DIM {
        return Err(CpuError::Limit {
            field: "head size",
            limit: MAX_HEAD_DIM,
            found: head_dim,
        });
    }
    for x in [k, v] {
        check_length("rows of keys and values", slots.len(), x.rows())?;
        check_length(
            "width of keys and values",
            shape.heads() * head_dim,
            x.width(),
        )?;
    }
    check_length("rows of the rotary table", slots.len(), table.rows())?;
    check_heads(table, head_dim, k.width())?;
    check_slots(slots, &shape)?;
    rope(machine, q, table, head_dim, q_out)?;
    let (level, pool) = (machine.level(), &*pool);
    let grain = GRAIN.div_ceil((slots.len() * head_dim).max(1));
    machine.pool().split(shape.heads(), grain, &|heads| {
        for head in heads {
            level
                .run_any(TurnAndWrite {
                    k,
                    v,
                    table,
                    slots,
                    pool,
                    head,
                })
                .expect("a machine has its level");
        }
    });
    Ok(())
}

/// One head of all rows.
struct TurnAndWrite<'a> {
    k: Rows<'a>,
    v: Rows<'a>,
    table: RotaryTable<'a>,
    slots: &'a [i32],
    pool: &'a KvPoolMut<'a>,
    head: usize,
}

impl Kernel for TurnAndWrite<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let d = self.pool.shape().head_dim();
        let mut key = [0.0; MAX_HEAD_DIM];
        for (row, &slot) in self.slots.iter().enumerate() {
            let columns = self.head * d..(self.head + 1) * d;
            self.table
                .turn(isa, row, &self.k.row(row)[columns.clone()], &mut key[..d]);
            // SAFETY: a head belongs to one thread.
            unsafe {
                self.pool
                    .write(isa, Which::Keys, self.head, slot as usize, &key[..d]);
                self.pool.write(
                    isa,
                    Which::Values,
                    self.head,
                    slot as usize,
                    &self.v.row(row)[columns],
                );
            }
        }
    }
}
