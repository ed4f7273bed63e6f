//! One step: slices of sequences in, logits of the rows that ask for them out.

use std::ops::Range;

use ingle_graph::backend::{ReadBack, Ticket};
use ingle_graph::ops::KV_BLOCK;
use ingle_graph::{Dims, Symbol};

use crate::engine::Unknown;
use crate::{Engine, EngineError, SequenceId};

/// Tokens to append to a sequence, and whose logits are wanted.
#[derive(Clone, Copy, Debug)]
pub struct SequenceSlice<'a> {
    pub sequence: SequenceId,
    /// At least one.
    pub tokens: &'a [u32],
    /// Indices into `tokens`. The logits that follow token `i` predict the token after it.
    pub outputs: &'a [usize],
}

/// The likeliest token after the first row of a step, on its way to the host.
#[derive(Debug)]
pub struct ChosenToken {
    ticket: Ticket,
    step: u64,
    position: usize,
}

/// What a sequence holds in the place of a token that the host does not know yet: no token of any vocabulary.
const UNKNOWN: u32 = u32::MAX;

impl Engine {
    /// Enqueues one step that appends each slice to its sequence. The rows of logits come in the order of the slices and
    /// their outputs; [`Engine::next_tokens`] and [`Engine::logits`] wait for them.
    ///
    /// After an error of the backend the engine is of no more use; after any other, nothing has changed.
    pub fn forward(&mut self, slices: &[SequenceSlice<'_>]) -> Result<(), EngineError> {
        let fed = match slices {
            [one] if one.outputs.len() == 1 => {
                matches!(one.tokens, [token] if self.device_next == Some(*token))
            }
            _ => false,
        };
        self.enqueue(slices, fed)
    }

    /// Enqueues one step that appends the token which the last step chose for this sequence, whether the host has read it
    /// or not; it becomes known when its [`ChosenToken`] arrives. The logits after it are wanted.
    ///
    /// If it turns out to be unwanted, [`Engine::truncate`] takes the step back.
    pub fn forward_chosen(&mut self, sequence: SequenceId) -> Result<(), EngineError> {
        let len = self.sequence(sequence)?.tokens.len();
        let unknown = self.unknown.is_some_and(|u| u.sequence == sequence);
        if self.continues != Some((sequence, len)) || unknown {
            return Err(EngineError::Input {
                field: "sequence",
                expected: "the one that the last step chose a token for, all of it known".into(),
                found: format!("{sequence:?}"),
            });
        }
        let step = self.steps;
        let slice = SequenceSlice {
            sequence,
            // The device puts the token here.
            tokens: &[0],
            outputs: &[0],
        };
        let known = self.device_next;
        self.enqueue(&[slice], true)?;
        if known.is_none() {
            self.unknown = Some(Unknown {
                step,
                sequence,
                index: len,
            });
        }
        if let Some((sequence, _)) = self.sequence_and_pool(sequence) {
            sequence.tokens[len] = known.unwrap_or(UNKNOWN);
        }
        Ok(())
    }

    /// `fed`: the device takes the only token from the last step's result.
    fn enqueue(&mut self, slices: &[SequenceSlice<'_>], fed: bool) -> Result<(), EngineError> {
        self.check(slices)?;
        self.reserve(slices)?;
        let dims = self.fill(slices)?;
        let entry = if fed {
            self.ports.decode
        } else {
            self.ports.prefill
        };
        self.device_next = None;
        self.continues = None;
        self.backend.run(entry, &dims, &self.inputs.bytes())?;
        self.steps += 1;
        for slice in slices {
            if let Some((sequence, _)) = self.sequence_and_pool(slice.sequence) {
                sequence.tokens.extend_from_slice(slice.tokens);
            }
        }
        if let Some(first) = slices.iter().find(|s| !s.outputs.is_empty())
            && first.outputs[0] + 1 == first.tokens.len()
        {
            let len = self.sequence(first.sequence)?.tokens.len();
            self.continues = Some((first.sequence, len));
        }
        Ok(())
    }

    /// Whether it pays to enqueue the next step before the last one's token is read.
    pub fn is_asynchronous(&self) -> bool {
        self.backend.is_asynchronous()
    }

    /// Begins to read the most likely token after the first row of the last step. Other steps may be enqueued before
    /// [`Engine::chosen_token`] waits for it; one that is never waited for costs nothing.
    pub fn begin_chosen_token(&mut self) -> Result<ChosenToken, EngineError> {
        self.check_rows(&(0..1))?;
        Ok(ChosenToken {
            ticket: self.backend.begin_read(self.ports.next, 0, 4)?,
            step: self.steps,
            position: self.output_positions[0],
        })
    }

    /// Whether no step has been enqueued since the one that chose this token.
    pub fn is_of_last_step(&self, token: &ChosenToken) -> bool {
        token.step == self.steps
    }

    /// Waits for a token that is on its way.
    pub async fn chosen_token(&mut self, token: ChosenToken) -> Result<u32, EngineError> {
        let ChosenToken {
            ticket,
            step,
            position,
        } = token;
        let mut bytes = [0; 4];
        let unknown = self.unknown.take_if(|u| u.step == step);
        self.backend.finish_read(ticket, &mut bytes).await?;
        let token = self.token(bytes, position)?;
        if self.steps == step {
            self.device_next = Some(token);
        }
        if let Some(unknown) = unknown
            && let Some((sequence, _)) = self.sequence_and_pool(unknown.sequence)
            && let Some(place @ &mut UNKNOWN) = sequence.tokens.get_mut(unknown.index)
        {
            *place = token;
        }
        Ok(token)
    }

    /// The token that these bytes are, which follows `position`.
    fn token(&self, bytes: [u8; 4], position: usize) -> Result<u32, EngineError> {
        u32::try_from(i32::from_le_bytes(bytes))
            .ok()
            .filter(|&t| (t as usize) < self.ports.vocabulary)
            .ok_or(EngineError::NonFinite { position })
    }

    /// Rows of the last step whose logits were wanted.
    pub fn output_count(&self) -> usize {
        self.output_positions.len()
    }

    /// The most likely token after each of these rows of the last step: 4 bytes a row.
    pub async fn next_tokens(
        &mut self,
        rows: Range<usize>,
        out: &mut Vec<u32>,
    ) -> Result<(), EngineError> {
        self.check_rows(&rows)?;
        self.read_bytes.resize(rows.len() * 4, 0);
        self.backend
            .read(self.ports.next, rows.start as u64 * 4, &mut self.read_bytes)
            .await?;
        out.clear();
        for (row, bytes) in rows.clone().zip(self.read_bytes.as_chunks::<4>().0) {
            out.push(self.token(*bytes, self.output_positions[row])?);
        }
        if rows.start == 0 {
            self.device_next = out.first().copied();
        }
        Ok(())
    }

    /// The logits of these rows of the last step, `[rows, vocabulary]`, all of them finite.
    pub async fn logits(&mut self, rows: Range<usize>) -> Result<&[f32], EngineError> {
        self.check_rows(&rows)?;
        let vocabulary = self.ports.vocabulary;
        self.read_bytes.resize(rows.len() * vocabulary * 4, 0);
        let offset = (rows.start * vocabulary * 4) as u64;
        self.backend
            .read(self.ports.logits, offset, &mut self.read_bytes)
            .await?;
        self.logits.clear();
        self.logits.extend(
            self.read_bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b)),
        );
        for (row, logits) in rows.zip(self.logits.chunks_exact(vocabulary)) {
            if logits.iter().any(|v| !v.is_finite()) {
                return Err(EngineError::NonFinite {
                    position: self.output_positions[row],
                });
            }
        }
        Ok(&self.logits)
    }

    /// Checks everything that the caller can get wrong, before anything changes.
    fn check(&self, slices: &[SequenceSlice<'_>]) -> Result<(), EngineError> {
        let wrong = |field, expected: String, found: String| {
            Err(EngineError::Input {
                field,
                expected,
                found,
            })
        };
        let (mut tokens, mut outputs) = (0usize, 0usize);
        for (i, slice) in slices.iter().enumerate() {
            let held = self.sequence(slice.sequence)?.tokens.len();
            if slices[..i].iter().any(|s| s.sequence == slice.sequence) {
                return wrong(
                    "slices",
                    "each sequence once".into(),
                    format!("{:?} twice", slice.sequence),
                );
            }
            if slice.tokens.is_empty() {
                return wrong("tokens of a slice", "at least one".into(), "none".into());
            }
            let needed = held.saturating_add(slice.tokens.len());
            if needed > self.options.context {
                return Err(EngineError::ContextFull {
                    needed,
                    context: self.options.context,
                });
            }
            if let Some(token) = slice
                .tokens
                .iter()
                .find(|&&t| t as usize >= self.ports.vocabulary)
            {
                return wrong(
                    "token",
                    format!("one below {}", self.ports.vocabulary),
                    token.to_string(),
                );
            }
            if let Some(output) = slice.outputs.iter().find(|&&o| o >= slice.tokens.len()) {
                return wrong(
                    "outputs",
                    format!("indices below {}", slice.tokens.len()),
                    output.to_string(),
                );
            }
            tokens += slice.tokens.len();
            outputs += slice.outputs.len();
        }
        let bounds = [
            ("tokens of a step", tokens, 1, self.ports.chunk),
            ("sequences of a step", slices.len(), 1, self.options.batch),
            ("outputs of a step", outputs, 0, self.options.outputs),
        ];
        for (field, found, low, high) in bounds {
            if !(low..=high).contains(&found) {
                return wrong(field, format!("{low} to {high}"), found.to_string());
            }
        }
        Ok(())
    }

    fn check_rows(&self, rows: &Range<usize>) -> Result<(), EngineError> {
        if rows.start < rows.end && rows.end <= self.output_count() {
            return Ok(());
        }
        let expected = format!("some of the last step's {}", self.output_count());
        Err(EngineError::Input {
            field: "rows",
            expected,
            found: format!("{rows:?}"),
        })
    }

    /// Gives every sequence the blocks that its slice writes to, none of them shared.
    fn reserve(&mut self, slices: &[SequenceSlice<'_>]) -> Result<(), EngineError> {
        let mut wanted = 0;
        for slice in slices {
            let sequence = self.sequence(slice.sequence)?;
            let held = sequence.tokens.len();
            let total = (held + slice.tokens.len()).div_ceil(KV_BLOCK);
            let written = sequence.blocks.iter().take(total).skip(held / KV_BLOCK);
            wanted += written.filter(|b| self.pool.is_shared(**b)).count();
            wanted += total.saturating_sub(sequence.blocks.len());
        }
        let full = EngineError::PoolFull {
            needed: wanted,
            limit: self.pool.limit(),
        };
        let len = self.pool.len_to_take(wanted).ok_or_else(|| full.clone())?;
        if len > self.pool.len() {
            self.backend.resize_pool(len)?;
            self.pool.grow(len);
        }
        let mut copies = std::mem::take(&mut self.copies);
        copies.clear();
        for slice in slices {
            let Some((sequence, pool)) = self.sequence_and_pool(slice.sequence) else {
                continue;
            };
            let held = sequence.tokens.len();
            let total = (held + slice.tokens.len()).div_ceil(KV_BLOCK);
            for place in held / KV_BLOCK..total {
                let old = sequence.blocks.get(place).copied();
                if old.is_some_and(|block| !pool.is_shared(block)) {
                    continue;
                }
                let new = pool.take().ok_or_else(|| full.clone())?;
                match old {
                    None => sequence.blocks.push(new),
                    Some(old) => {
                        // Only a block that is partly filled has anything to keep.
                        if held > place * KV_BLOCK {
                            copies.push((old, new));
                        }
                        pool.release(old);
                        sequence.blocks[place] = new;
                    }
                }
            }
        }
        if !copies.is_empty() {
            self.backend.copy_blocks(&copies)?;
        }
        self.copies = copies;
        Ok(())
    }

    /// Writes the step's inputs.
    fn fill(&mut self, slices: &[SequenceSlice<'_>]) -> Result<Dims, EngineError> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.clear();
        self.output_positions.clear();
        let mut columns = 0;
        for slice in slices {
            let sequence = self.sequence(slice.sequence)?;
            columns = columns.max((sequence.tokens.len() + slice.tokens.len()).div_ceil(KV_BLOCK));
        }
        for (row, slice) in slices.iter().enumerate() {
            let sequence = self.sequence(slice.sequence)?;
            let (held, first) = (sequence.tokens.len(), inputs.ids.len());
            for (i, &token) in slice.tokens.iter().enumerate() {
                let position = held + i;
                inputs.ids.push(token as usize);
                inputs.pos.push(position);
                inputs.slots.push(
                    sequence.blocks[position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK,
                );
                inputs.seq.push(row);
            }
            for place in 0..columns {
                inputs.table.push(
                    sequence
                        .blocks
                        .get(place)
                        .map_or(0, |&block| block as usize),
                );
            }
            for &output in slice.outputs {
                inputs.output_rows.push(first + output);
            }
            self.output_positions
                .extend(slice.outputs.iter().map(|output| held + output));
        }
        let dims = Dims::default()
            .with(Symbol::Tokens, inputs.ids.len())
            .with(Symbol::Outputs, inputs.output_rows.len())
            .with(Symbol::Batch, slices.len())
            .with(Symbol::Table, columns)
            .with(Symbol::Pool, self.pool.len());
        self.inputs = inputs;
        Ok(dims)
    }
}
