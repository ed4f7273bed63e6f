//! `StepInputs`: the bytes of a step's inputs, in buffers that are used again.

use ingle_graph::{Dims, Symbol};

/// A list of `i32` as little-endian bytes.
#[derive(Debug, Default)]
pub(crate) struct Ints(Vec<u8>);

impl Ints {
    fn with_room(values: usize) -> Self {
        Ints(Vec::with_capacity(values * 4))
    }

    pub fn push(&mut self, value: usize) {
        // Everything here is bounded by the context, the vocabulary or the pool, all of them below 2^31.
        self.0.extend_from_slice(&(value as i32).to_le_bytes());
    }

    pub fn len(&self) -> usize {
        self.0.len() / 4
    }
}

/// The inputs of one step, in the order of the plan.
#[derive(Debug, Default)]
pub(crate) struct StepInputs {
    pub ids: Ints,         // [tokens]
    pub pos: Ints,         // [tokens]
    pub slots: Ints,       // [tokens]
    pub seq: Ints,         // [tokens]
    pub table: Ints,       // [batch, table]
    pub output_rows: Ints, // [outputs]
}

impl StepInputs {
    /// The inputs' names, in the order of the plan.
    pub const NAMES: [&'static str; 6] = ["ids", "pos", "slots", "seq", "table", "output_rows"];

    /// Inputs of steps within `bounds` will not allocate.
    pub fn with_room(bounds: &Dims) -> Self {
        let rows = || Ints::with_room(bounds.get(Symbol::Tokens));
        StepInputs {
            ids: rows(),
            pos: rows(),
            slots: rows(),
            seq: rows(),
            table: Ints::with_room(bounds.get(Symbol::Batch) * bounds.get(Symbol::Table)),
            output_rows: Ints::with_room(bounds.get(Symbol::Outputs)),
        }
    }

    pub fn clear(&mut self) {
        let all = [
            &mut self.ids,
            &mut self.pos,
            &mut self.slots,
            &mut self.seq,
            &mut self.table,
            &mut self.output_rows,
        ];
        all.into_iter().for_each(|ints| ints.0.clear());
    }

    pub fn bytes(&self) -> [&[u8]; 6] {
        [
            &self.ids,
            &self.pos,
            &self.slots,
            &self.seq,
            &self.table,
            &self.output_rows,
        ]
        .map(|ints| ints.0.as_slice())
    }
}
