//! Memory plan: scratch buffers by liveness.
//!
//! Needs: the launches of a variant, with temporaries that say when they are first written and last read. Gives: a slot
//! for each, so that two temporaries share one only if their lives do not touch. Slots are whole buffers, not offsets:
//! WebGPU does not let one launch bind a buffer for reading and for writing, even at different offsets. Slots are shared
//! between all variants of a plan, since only one runs at a time.

use crate::plan::{Scratch, Size};

/// A temporary: its size, and the launches of its first write and last read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Temporary {
    pub bytes: Size,
    pub first: usize,
    pub last: usize,
}

/// Assigns a slot of `slots` to each temporary, adding and growing slots as needed.
pub(super) fn assign(temporaries: &[Temporary], slots: &mut Vec<Scratch>) -> Vec<u32> {
    let mut order: Vec<usize> = (0..temporaries.len()).collect();
    order.sort_by_key(|&t| temporaries[t].first);
    let mut busy_until: Vec<Option<usize>> = vec![None; slots.len()];
    let mut assigned = vec![0; temporaries.len()];
    for t in order {
        let temporary = temporaries[t];
        let free = (0..slots.len())
            .filter(|&s| busy_until[s].is_none_or(|last| last < temporary.first))
            .filter(|&s| same_kind(slots[s].bytes, temporary.bytes));
        let slot = match free.min_by_key(|&s| waste(slots[s].bytes, temporary.bytes)) {
            Some(slot) => slot,
            None => {
                slots.push(Scratch {
                    bytes: temporary.bytes,
                });
                busy_until.push(None);
                slots.len() - 1
            }
        };
        let bytes = &mut slots[slot].bytes;
        bytes.constant = bytes.constant.max(temporary.bytes.constant);
        bytes.per = bytes.per.max(temporary.bytes.per);
        busy_until[slot] = Some(temporary.last);
        assigned[t] = slot as u32;
    }
    assigned
}

fn same_kind(a: Size, b: Size) -> bool {
    (a.per == 0 && b.per == 0) || (a.per > 0 && b.per > 0 && a.symbol == b.symbol)
}

/// How badly a temporary fits a slot: growing a slot costs more than leaving some of it unused.
fn waste(slot: Size, need: Size) -> (bool, u64) {
    let (have, want) = (slot.constant + slot.per, need.constant + need.per);
    (have < want, have.abs_diff(want))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_that_touch_do_not_share() {
        let t = |first, last, bytes| Temporary {
            bytes: Size::constant(bytes),
            first,
            last,
        };
        let temporaries = [t(0, 1, 64), t(1, 2, 64), t(2, 3, 32), t(0, 3, 16)];
        let mut slots = Vec::new();
        let assigned = assign(&temporaries, &mut slots);
        for (i, a) in temporaries.iter().enumerate() {
            for (j, b) in temporaries.iter().enumerate().skip(i + 1) {
                let apart = a.last < b.first || b.last < a.first;
                assert!(
                    apart || assigned[i] != assigned[j],
                    "{i} and {j} share a slot"
                );
            }
        }
        assert_eq!(assigned[0], assigned[2]);
        assert_eq!(slots.len(), 3);
    }
}
