//! `attention`: causal attention over the paged KV pool, one pass over the keys with a running softmax
//! (Milakov and Gimelshein 2018, arXiv 1805.02867).
//!
//! One piece of work is one row and one key head: up to four of the queries that share the head go over its blocks
//! together, so that a key or value is loaded and converted once for all of them. Per block of 32 positions: the scores,
//! their largest, the weights `exp(score − max)`, then the weighted values, added to what earlier blocks gave (scaled down when
//! the largest score rises). A query's result does not depend on which others go with it.

// Loops over registers index several arrays at once.
#![allow(clippy::needless_range_loop)]

use ingle_graph::ops::KV_BLOCK;

use crate::error::check_length;
use crate::isa::{Isa, Kernel};
use crate::kernels::kv_pool::{KvPool, Which};
use crate::{CpuError, Machine, Rows, RowsMut, math};

/// Multiplications that are worth waking a thread for.
const GRAIN: usize = 32 << 10;

/// Queries that go over the keys together, at most.
const QUERIES: usize = 4;

/// What a launch attends with.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// `[rows, heads · head_dim]`
    pub q: Rows<'a>,
    pub pool: KvPool<'a>,
    /// The position of each row.
    pub pos: &'a [i32],
    /// The sequence of each row: a row of `table`.
    pub seq: &'a [i32],
    /// `[batch, table_width]`: the pool's block for each 32 positions of a sequence.
    pub table: &'a [i32],
    pub table_width: usize,
    pub scale: f32,
    pub softcap: Option<f32>,
    /// How many positions a row sees, if not all.
    pub window: Option<usize>,
}

/// `y[rows, heads · head_dim]`. Row `r` sees positions `0 ..= pos[r]` of sequence `seq[r]`, the last `window` of them.
pub fn attention(
    machine: &Machine,
    a: &Attention<'_>,
    y: &mut RowsMut<'_>,
) -> Result<(), CpuError> {
    let shape = *a.pool.shape();
    let rows = a.q.rows();
    check_length("rows of the output", rows, y.rows())?;
    check_length("width of the output", a.q.width(), y.width())?;
    let per_head = shape.heads() * shape.head_dim();
    crate::error::check_multiple("width of queries", per_head, a.q.width())?;
    check_length("positions of queries", rows, a.pos.len())?;
    check_length("sequences of queries", rows, a.seq.len())?;
    let seen = check_blocks(a)?;
    let y = &*y;
    let level = machine.level();
    let work = seen.div_ceil(rows.max(1)) * a.q.width() / shape.heads() * 2;
    machine.pool().split(
        rows * shape.heads(),
        GRAIN.div_ceil(work.max(1)),
        &|items| {
            for i in items {
                let (row, head) = (i / shape.heads(), i % shape.heads());
                level
                    .run_any(Attend { a, row, head, y })
                    .expect("a machine has its level");
            }
        },
    );
    Ok(())
}

/// Checks every table entry that will be read; gives how many positions all rows see together.
fn check_blocks(a: &Attention<'_>) -> Result<usize, CpuError> {
    let batch = a.table.len().checked_div(a.table_width).unwrap_or(0);
    check_length(
        "entries of the block table",
        batch * a.table_width,
        a.table.len(),
    )?;
    let limit = a.pool.shape().blocks();
    let mut seen = 0;
    for (row, (&pos, &seq)) in a.pos.iter().zip(a.seq).enumerate() {
        let positions = a.table_width * KV_BLOCK;
        let index = |field, limit: usize, found: i32| match usize::try_from(found) {
            Ok(i) if i < limit => Ok(i),
            _ => Err(CpuError::Index {
                field,
                row,
                limit,
                found: found.into(),
            }),
        };
        let seq = index("sequence of row", batch, seq)?;
        let last = index("position of row", positions, pos)?;
        let first = first_seen(last, a.window);
        for &block in &a.table[seq * a.table_width..][first / KV_BLOCK..=last / KV_BLOCK] {
            index("block of the sequence of row", limit, block)?;
        }
        seen += last + 1 - first;
    }
    Ok(seen)
}

fn first_seen(last: usize, window: Option<usize>) -> usize {
    window.map_or(0, |w| (last + 1).saturating_sub(w.max(1)))
}

/// All queries of one row that read one key head. Everything has been checked.
struct Attend<'a> {
    a: &'a Attention<'a>,
    row: usize,
    head: usize,
    y: &'a RowsMut<'a>,
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (d, kv_heads) = (self.a.pool.shape().head_dim(), self.a.pool.shape().heads());
        let group = self.a.q.width() / d / kv_heads;
        let mut done = 0;
        while done < group {
            let first = (self.head * group + done) * d;
            let count = (group - done).min(QUERIES);
            let q = &self.a.q.row(self.row)[first..][..count * d];
            // SAFETY: the columns of a key head's queries belong to one piece of work.
            let y = unsafe { self.y.part(self.row, first, count * d) };
            let Attend { a, row, head, .. } = self;
            match (a.pool.shape().half(), count) {
                (true, 1) => isa.run(Queries::<1, true> { a, row, head, q, y }),
                (true, 2) => isa.run(Queries::<2, true> { a, row, head, q, y }),
                (true, 3) => isa.run(Queries::<3, true> { a, row, head, q, y }),
                (true, _) => isa.run(Queries::<4, true> { a, row, head, q, y }),
                (false, 1) => isa.run(Queries::<1, false> { a, row, head, q, y }),
                (false, 2) => isa.run(Queries::<2, false> { a, row, head, q, y }),
                (false, 3) => isa.run(Queries::<3, false> { a, row, head, q, y }),
                (false, _) => isa.run(Queries::<4, false> { a, row, head, q, y }),
            }
            done += count;
        }
    }
}

/// `Q` queries `[Q, d]` and their results `[Q, d]`; `HALF` tells whether the pool holds `f16`.
struct Queries<'a, const Q: usize, const HALF: bool> {
    a: &'a Attention<'a>,
    row: usize,
    head: usize,
    q: &'a [f32],
    y: &'a mut [f32],
}

/// Scores, then weights, of a block's positions.
type Scores = [f32; KV_BLOCK];

impl<const Q: usize, const HALF: bool> Kernel for Queries<'_, Q, HALF> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Queries { a, row, head, q, y } = self;
        let d = q.len() / Q;
        let last = a.pos[row] as usize;
        let first = first_seen(last, a.window);
        let table = &a.table[a.seq[row] as usize * a.table_width..];
        let mut max = [f32::NEG_INFINITY; Q];
        let mut total = [0.0; Q];
        y.fill(0.0);
        for index in first / KV_BLOCK..=last / KV_BLOCK {
            let block = table[index] as usize;
            let start = index * KV_BLOCK;
            let (from, to) = (first.saturating_sub(start), KV_BLOCK.min(last + 1 - start));
            let (keys, values) = (
                a.pool.block(block, Which::Keys, head),
                a.pool.block(block, Which::Values, head),
            );
            let mut scores = [[0.0; KV_BLOCK]; Q];
            for place in from..to {
                let dots = dot::<I, Q, HALF>(isa, vector::<HALF>(keys, place, d), q, d);
                for (scores, dot) in scores.iter_mut().zip(dots) {
                    scores[place] = dot * a.scale;
                }
            }
            for i in 0..Q {
                let shrink = weigh(
                    isa,
                    &mut scores[i],
                    from,
                    to,
                    a.softcap,
                    &mut max[i],
                    &mut total[i],
                );
                if shrink != 1.0 {
                    y[i * d..(i + 1) * d].iter_mut().for_each(|v| *v *= shrink);
                }
            }
            add_values::<I, Q, HALF>(isa, values, &scores, from, to, y, d);
        }
        for (y, total) in y.chunks_exact_mut(d).zip(total) {
            y.iter_mut().for_each(|v| *v /= total);
        }
    }
}

/// Turns a block's scores into weights, and moves the running maximum and total. Gives what earlier results are multiplied by.
#[inline(always)]
fn weigh<I: Isa>(
    isa: I,
    scores: &mut Scores,
    from: usize,
    to: usize,
    softcap: Option<f32>,
    max: &mut f32,
    total: &mut f32,
) -> f32 {
    if let Some(cap) = softcap {
        for at in (0..KV_BLOCK).step_by(I::LANES) {
            // SAFETY: LANES divides the block.
            unsafe {
                let v = isa.div(isa.load(scores.as_ptr().add(at)), isa.splat(cap));
                isa.store(
                    scores.as_mut_ptr().add(at),
                    isa.mul(isa.splat(cap), math::tanh(isa, v)),
                );
            }
        }
    }
    scores[..from].fill(f32::NEG_INFINITY);
    scores[to..].fill(f32::NEG_INFINITY);
    let mut largest = isa.splat(*max);
    for at in (0..KV_BLOCK).step_by(I::LANES) {
        // SAFETY: as above.
        largest = isa.max(largest, unsafe { isa.load(scores.as_ptr().add(at)) });
    }
    let largest = isa.max_lane(largest);
    let shrink = if *max == f32::NEG_INFINITY {
        0.0
    } else {
        (*max - largest).exp()
    };
    let mut sum = isa.splat(0.0);
    for at in (0..KV_BLOCK).step_by(I::LANES) {
        // SAFETY: as above.
        unsafe {
            let v = isa.sub(isa.load(scores.as_ptr().add(at)), isa.splat(largest));
            let weight = math::exp(isa, v);
            isa.store(scores.as_mut_ptr().add(at), weight);
            sum = isa.add(sum, weight);
        }
    }
    *max = largest;
    *total = *total * shrink + isa.sum(sum);
    shrink
}

/// The vector at a place of a block.
#[inline(always)]
fn vector<const HALF: bool>(block: &[u8], place: usize, d: usize) -> &[u8] {
    let bytes = d * if HALF { 2 } else { 4 };
    &block[place * bytes..][..bytes]
}

/// The dot products of a key with `Q` queries, `[Q, d]`.
#[inline(always)]
fn dot<I: Isa, const Q: usize, const HALF: bool>(
    isa: I,
    key: &[u8],
    q: &[f32],
    d: usize,
) -> [f32; Q] {
    assert!(q.len() == Q * d);
    let whole = d / I::LANES * I::LANES;
    let mut sums = [isa.splat(0.0); Q];
    for at in (0..whole).step_by(I::LANES) {
        // SAFETY: `at + LANES ≤ d`, the length of the key and of each query.
        unsafe {
            let k = load::<I, HALF>(isa, key, at);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = isa.mul_add(isa.load(q.as_ptr().add(i * d + at)), k, *sum);
            }
        }
    }
    let mut out = [0.0; Q];
    for i in 0..Q {
        out[i] = isa.sum(sums[i]);
        for at in whole..d {
            out[i] += q[i * d + at] * element::<HALF>(key, at);
        }
    }
    out
}

/// Adds the weighted values of places `from .. to` to the results `[Q, d]`.
#[inline(always)]
fn add_values<I: Isa, const Q: usize, const HALF: bool>(
    isa: I,
    values: &[u8],
    weights: &[Scores; Q],
    from: usize,
    to: usize,
    y: &mut [f32],
    d: usize,
) {
    assert!(y.len() == Q * d && to <= KV_BLOCK);
    let mut at = 0;
    while at + 2 * I::LANES <= d {
        add_columns::<I, Q, 2, HALF>(isa, values, weights, from, to, y, d, at);
        at += 2 * I::LANES;
    }
    while at + I::LANES <= d {
        add_columns::<I, Q, 1, HALF>(isa, values, weights, from, to, y, d, at);
        at += I::LANES;
    }
    for at in at..d {
        for i in 0..Q {
            for place in from..to {
                y[i * d + at] +=
                    weights[i][place] * element::<HALF>(vector::<HALF>(values, place, d), at);
            }
        }
    }
}

/// `C` vectors of columns from `at` on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn add_columns<I: Isa, const Q: usize, const C: usize, const HALF: bool>(
    isa: I,
    values: &[u8],
    weights: &[Scores; Q],
    from: usize,
    to: usize,
    y: &mut [f32],
    d: usize,
    at: usize,
) {
    assert!(at + C * I::LANES <= d && y.len() == Q * d);
    let mut sums = [[isa.splat(0.0); C]; Q];
    for i in 0..Q {
        for c in 0..C {
            // SAFETY: the columns lie inside a row of `y`.
            sums[i][c] = unsafe { isa.load(y.as_ptr().add(i * d + at + c * I::LANES)) };
        }
    }
    for place in from..to {
        let value = vector::<HALF>(values, place, d);
        for c in 0..C {
            // SAFETY: the columns lie inside the vector.
            let v = unsafe { load::<I, HALF>(isa, value, at + c * I::LANES) };
            for i in 0..Q {
                sums[i][c] = isa.mul_add(isa.splat(weights[i][place]), v, sums[i][c]);
            }
        }
    }
    for i in 0..Q {
        for c in 0..C {
            // SAFETY: as for loading.
            unsafe { isa.store(y.as_mut_ptr().add(i * d + at + c * I::LANES), sums[i][c]) };
        }
    }
}

/// # Safety
/// The vector has elements `at .. at + LANES`.
#[inline(always)]
unsafe fn load<I: Isa, const HALF: bool>(isa: I, vector: &[u8], at: usize) -> I::F {
    unsafe {
        if HALF {
            isa.load_f16(vector.as_ptr().add(2 * at).cast())
        } else {
            isa.load(vector.as_ptr().add(4 * at).cast())
        }
    }
}

#[inline(always)]
fn element<const HALF: bool>(vector: &[u8], at: usize) -> f32 {
    if HALF {
        half::f16::from_le_bytes([vector[2 * at], vector[2 * at + 1]]).to_f32()
    } else {
        f32::from_le_bytes([
            vector[4 * at],
            vector[4 * at + 1],
            vector[4 * at + 2],
            vector[4 * at + 3],
        ])
    }
}
