//! The step data: which input of the plan plays which role, and packing a step into words.
//!
//! Kernels find positions, slots and the block table in one buffer ([`ingle_kernels::step`]), so that a step is one
//! small write. What does not change from step to step (the table, mostly) is not written again.

use std::ops::Range;

use ingle_graph::backend::BackendError;
use ingle_graph::plan::{Plan, Rows};
use ingle_graph::{Dim, Dims, Symbol};
use ingle_kernels::step::{self, StepLayout};

/// What an index input is to the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Ids,
    Positions,
    Slots,
    Sequences,
    OutputRows,
    Table,
}

const ROLES: usize = 6;

/// Bytes of a word.
const WORD: usize = 4;

/// The most rows, sequences, blocks or table words: far more than a step can use.
const MOST: u32 = (1 << 24) - 1;

/// Roles that have one element for each row of tokens, in the order of the step data.
const TOKEN_ROLES: [Role; 4] = [Role::Ids, Role::Positions, Role::Slots, Role::Sequences];

/// Which input plays which role.
#[derive(Clone, Debug, Default)]
pub(super) struct StepInputs {
    inputs: [Option<u32>; ROLES],
    tokens: Option<Rows>,
    outputs: Option<Rows>,
    /// Row counts that the header has no word for; their words follow the table.
    counts: Vec<Rows>,
    /// Where those words begin.
    counts_at: u32,
}

impl StepInputs {
    /// Gives `input` a role. Each role has one input, and each input one role.
    pub fn assign(&mut self, plan: &Plan, input: u32, role: Role) -> Result<(), String> {
        let port = &plan.inputs[input as usize];
        if self.role(input).is_some_and(|r| r != role) {
            return Err(format!(
                "input {} is {role:?} and {:?}",
                port.name,
                self.role(input)
            ));
        }
        if let Some(other) = self.inputs[role as usize].filter(|&other| other != input) {
            let other = &plan.inputs[other as usize].name;
            return Err(format!("both {other} and {} are {role:?}", port.name));
        }
        self.inputs[role as usize] = Some(input);
        let rows = match port.shape.first() {
            Some(Dim::Const(n)) => Rows::Const(*n),
            Some(Dim::Sym(s)) => Rows::Sym(*s),
            None => {
                return Err(format!(
                    "{role:?} must be a list, input {} is a scalar",
                    port.name
                ));
            }
        };
        let class = match role {
            Role::Table => return Ok(()),
            Role::OutputRows => &mut self.outputs,
            _ => &mut self.tokens,
        };
        match class.replace(rows) {
            Some(before) if before != rows => {
                Err(format!("{role:?} has {rows:?} rows, others {before:?}"))
            }
            _ => Ok(()),
        }
    }

    pub fn role(&self, input: u32) -> Option<Role> {
        const ALL: [Role; ROLES] = [
            Role::Ids,
            Role::Positions,
            Role::Slots,
            Role::Sequences,
            Role::OutputRows,
            Role::Table,
        ];
        ALL.into_iter()
            .find(|r| self.inputs[*r as usize] == Some(input))
    }

    /// Adds what is needed to count `rows`.
    pub fn count(&mut self, rows: Rows) {
        if self.header_word(rows).is_none() && !self.counts.contains(&rows) {
            self.counts.push(rows);
        }
    }

    /// The word of the step data that says how many rows there are.
    pub fn count_word(&self, rows: Rows) -> u32 {
        self.header_word(rows).unwrap_or_else(|| {
            let at = self
                .counts
                .iter()
                .position(|&r| r == rows)
                .unwrap_or(self.counts.len());
            self.counts_at + at as u32
        })
    }

    /// Checks that a launch whose kernel takes its rows from a role has those.
    pub fn check_rows(&self, role: Role, rows: Rows) -> Result<(), String> {
        let class = if role == Role::OutputRows {
            self.outputs
        } else {
            self.tokens
        };
        if class == Some(rows) {
            Ok(())
        } else {
            Err(format!("{rows:?} rows where {role:?} has {class:?}"))
        }
    }

    fn header_word(&self, rows: Rows) -> Option<u32> {
        if rows == self.tokens.unwrap_or(Rows::Sym(Symbol::Tokens)) {
            Some(step::N_TOKENS)
        } else if rows == self.outputs.unwrap_or(Rows::Sym(Symbol::Outputs)) {
            Some(step::N_OUTPUT_ROWS)
        } else {
            None
        }
    }

    fn tokens(&self, dims: &Dims) -> usize {
        self.tokens
            .map_or(dims.get(Symbol::Tokens), |r| r.resolve(dims))
    }

    fn outputs(&self, dims: &Dims) -> usize {
        self.outputs
            .map_or(dims.get(Symbol::Outputs), |r| r.resolve(dims))
    }
}

/// The step data on the host, as the device's little-endian words.
#[derive(Debug)]
pub(super) struct StepData {
    layout: StepLayout,
    bytes: Vec<u8>,
    /// Whether the device has what `bytes` holds; the rows are written with every step, the rest when it changes.
    written: bool,
}

impl StepData {
    /// Makes room for steps within `bounds` and says where the extra counts lie.
    pub fn new(bounds: &Dims, inputs: &mut StepInputs) -> Result<Self, BackendError> {
        let word = |n: u64, what: &str| match u32::try_from(n) {
            Ok(n) if n <= MOST => Ok(n),
            _ => Err(BackendError::Limit {
                what: what.into(),
                needed: n,
                limit: MOST.into(),
            }),
        };
        let layout = StepLayout {
            tokens: word(inputs.tokens(bounds) as u64, "rows of a step")?,
            output_rows: word(inputs.outputs(bounds) as u64, "output rows of a step")?,
            sequences: word(bounds.get(Symbol::Batch) as u64, "sequences of a step")?,
            max_blocks: word(bounds.get(Symbol::Table) as u64, "blocks of a sequence")?,
        };
        word(
            u64::from(layout.sequences) * u64::from(layout.max_blocks),
            "words of the block table",
        )?;
        inputs.counts_at = layout.words();
        let bytes = vec![0; (layout.words() as usize + inputs.counts.len()) * WORD];
        Ok(StepData {
            layout,
            bytes,
            written: false,
        })
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Where the ids lie, in bytes: a fed id is copied there.
    pub const fn ids_at() -> u64 {
        step::HEADER_WORDS as u64 * WORD as u64
    }

    /// Packs a step within the bounds, whose inputs have the lengths that `dims` say. `write` gets each range of bytes
    /// that changed; `fed` is the input that the device fills itself.
    pub fn pack(
        &mut self,
        inputs: &StepInputs,
        dims: &Dims,
        given: &[&[u8]],
        fed: Option<u32>,
        mut write: impl FnMut(u64, &[u8]),
    ) {
        let (tokens, outputs) = (inputs.tokens(dims), inputs.outputs(dims));
        self.header(tokens, outputs);
        let mut at = step::HEADER_WORDS as usize * WORD;
        for (role, rows) in TOKEN_ROLES
            .map(|r| (r, tokens))
            .into_iter()
            .chain([(Role::OutputRows, outputs)])
        {
            let part = &mut self.bytes[at..at + rows * WORD];
            at += part.len();
            match inputs.inputs[role as usize].filter(|&i| fed != Some(i)) {
                Some(input) => part.copy_from_slice(given[input as usize]),
                None => part.fill(0),
            }
        }
        let table = self.table(inputs, dims, given);
        let counts = self.counts(inputs, dims);
        for range in [Some(0..at), table, counts].into_iter().flatten() {
            write(range.start as u64, &self.bytes[range]);
        }
        self.written = true;
    }

    fn header(&mut self, tokens: usize, outputs: usize) {
        let (layout, n, at) = (self.layout, tokens as u32, step::HEADER_WORDS);
        for (word, value) in [
            (step::N_TOKENS, n),
            (step::N_OUTPUT_ROWS, outputs as u32),
            (step::N_SEQUENCES, layout.sequences),
            (step::MAX_BLOCKS, layout.max_blocks),
            (step::AT_IDS, at),
            (step::AT_POSITIONS, at + n),
            (step::AT_SLOTS, at + 2 * n),
            (step::AT_SEQUENCES, at + 3 * n),
            (step::AT_OUTPUT_ROWS, at + 4 * n),
            (step::AT_TABLE, layout.table_word()),
        ] {
            self.set(word as usize, value.to_le_bytes());
        }
    }

    /// Updates the block table; gives the bytes that changed.
    fn table(&mut self, inputs: &StepInputs, dims: &Dims, given: &[&[u8]]) -> Option<Range<usize>> {
        let input = inputs.inputs[Role::Table as usize]?;
        let (first, width) = (
            self.layout.table_word() as usize,
            self.layout.max_blocks as usize,
        );
        let blocks = dims.get(Symbol::Table);
        let mut changed: Option<Range<usize>> = None;
        for (i, value) in given[input as usize].as_chunks().0.iter().enumerate() {
            let at = first + i / blocks * width + i % blocks;
            if self.set(at, *value) || !self.written {
                let start = changed.map_or(at * WORD, |r| r.start);
                changed = Some(start..(at + 1) * WORD);
            }
        }
        changed
    }

    /// Updates the counts after the table; gives their bytes if any changed.
    fn counts(&mut self, inputs: &StepInputs, dims: &Dims) -> Option<Range<usize>> {
        let first = inputs.counts_at as usize;
        let mut changed = !self.written && !inputs.counts.is_empty();
        for (at, rows) in (first..).zip(&inputs.counts) {
            changed |= self.set(at, super::launch::rows_of(*rows, dims).to_le_bytes());
        }
        changed.then(|| first * WORD..self.bytes.len())
    }

    /// Sets a word and says whether that changed it.
    fn set(&mut self, at: usize, value: [u8; WORD]) -> bool {
        let word = &mut self.bytes[at * WORD..(at + 1) * WORD];
        let changed = word != value;
        word.copy_from_slice(&value);
        changed
    }
}
