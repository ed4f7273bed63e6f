//! `state_write`: rows of keys and values to their slots of the KV pool. Of two rows with one slot the later one stays.

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::kernels::kv_pool::{KvPoolMut, Which, check_slots};
use crate::{CpuError, Machine, Rows};

/// Values that are worth waking a thread for.
const GRAIN: usize = 16 << 10;

/// Writes row `r` of `k` and `v`, `[rows, heads · head_dim]`, to slot `slots[r]`.
pub fn state_write(
    machine: &Machine,
    k: Rows<'_>,
    v: Rows<'_>,
    slots: &[i32],
    pool: &mut KvPoolMut<'_>,
) -> Result<(), CpuError> {
    let shape = *pool.shape();
    for x in [k, v] {
        check_length("rows of keys and values", slots.len(), x.rows())?;
        check_length(
            "width of keys and values",
            shape.heads() * shape.head_dim(),
            x.width(),
        )?;
    }
    check_slots(slots, &shape)?;
    let (level, pool) = (machine.level(), &*pool);
    let grain = GRAIN.div_ceil((slots.len() * shape.head_dim()).max(1));
    machine.pool().split(shape.heads(), grain, &|heads| {
        for head in heads {
            level
                .run_any(WriteHead {
                    k,
                    v,
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
struct WriteHead<'a> {
    k: Rows<'a>,
    v: Rows<'a>,
    slots: &'a [i32],
    pool: &'a KvPoolMut<'a>,
    head: usize,
}

impl Kernel for WriteHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let d = self.pool.shape().head_dim();
        for (row, &slot) in self.slots.iter().enumerate() {
            for (which, x) in [(Which::Keys, self.k), (Which::Values, self.v)] {
                let vector = &x.row(row)[self.head * d..][..d];
                // SAFETY: a head belongs to one thread.
                unsafe {
                    self.pool
                        .write(isa, which, self.head, slot as usize, vector)
                };
            }
        }
    }
}
