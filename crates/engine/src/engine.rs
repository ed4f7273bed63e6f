//! `Engine`: one backend, one pool of KV blocks, and the sequences that lie in it.

use ingle_graph::backend::{Backend, DeviceInfo};
use ingle_graph::ops::KV_BLOCK;
use ingle_graph::plan::Plan;
use ingle_graph::{Dims, Symbol};

use crate::EngineError;
use crate::inputs::StepInputs;
use crate::pool::BlockPool;

/// The bounds of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most tokens of a sequence. At most what the model was trained for.
    pub context: usize,
    /// The most sequences in one step.
    pub batch: usize,
    /// The most rows of one step whose logits are wanted.
    pub outputs: usize,
    /// Blocks of 32 positions that the KV pool grows by.
    pub growth: usize,
    /// The most blocks of the KV pool.
    pub blocks: usize,
}

impl EngineOptions {
    /// One conversation of up to `context` tokens.
    pub fn chat(context: usize) -> Self {
        // A fork of the conversation may exist beside it for a while.
        let blocks = 2 * context.div_ceil(KV_BLOCK);
        EngineOptions {
            context,
            batch: 1,
            outputs: 1,
            growth: 16,
            blocks,
        }
    }
}

/// A sequence of an [`Engine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceId {
    slot: u32,
    /// How often the slot had been used before, so that a released sequence is not taken for the one that follows it.
    generation: u32,
}

/// Executes steps of a decoder for any number of sequences.
pub struct Engine {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) options: EngineOptions,
    pub(crate) ports: Ports,
    pub(crate) pool: BlockPool,
    slots: Vec<Slot>,
    pub(crate) inputs: StepInputs,
    /// Steps that have been enqueued.
    pub(crate) steps: u64,
    /// What the device's `next[0]` holds, if the host has read it: then it need not be sent back.
    pub(crate) device_next: Option<u32>,
    /// Which sequence `next[0]` continues, and how long that is.
    pub(crate) continues: Option<(SequenceId, usize)>,
    /// A token that was appended before the host knew it.
    pub(crate) unknown: Option<Unknown>,
    /// Positions of the rows of the last step whose logits were wanted.
    pub(crate) output_positions: Vec<usize>,
    pub(crate) copies: Vec<(u32, u32)>,
    pub(crate) read_bytes: Vec<u8>,
    pub(crate) logits: Vec<f32>,
}

/// See [`Engine::forward_chosen`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown {
    /// The step that chose it.
    pub step: u64,
    pub sequence: SequenceId,
    /// Its place in the sequence.
    pub index: usize,
}

/// Where things are in the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub decode: usize,
    pub prefill: usize,
    pub next: usize,
    pub logits: usize,
    pub vocabulary: usize,
    /// The most tokens of a step.
    pub chunk: usize,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    sequence: Option<Sequence>,
}

/// Tokens whose keys and values are in the pool, or will be once what is enqueued has run.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub tokens: Vec<u32>,
    /// Block `i` holds positions from `32·i` on. There may be more than the tokens need.
    pub blocks: Vec<u32>,
}

impl Engine {
    /// Takes a backend whose weights have been written. Allocates the device's buffers for the options' bounds.
    pub fn new(mut backend: Box<dyn Backend>, options: EngineOptions) -> Result<Self, EngineError> {
        let ports = Ports::find(backend.plan())?;
        let positive = [
            options.context,
            options.batch,
            options.outputs,
            options.growth,
            options.blocks,
        ]
        .iter()
        .all(|&n| n > 0);
        if !positive || options.context > i32::MAX as usize {
            return Err(EngineError::Input {
                field: "options",
                expected: "bounds above 0, a context below 2^31".into(),
                found: format!("{options:?}"),
            });
        }
        let bounds = Dims::default()
            .with(Symbol::Tokens, ports.chunk)
            .with(Symbol::Outputs, options.outputs)
            .with(Symbol::Batch, options.batch)
            .with(Symbol::Table, options.context.div_ceil(KV_BLOCK));
        backend.set_bounds(bounds)?;
        Ok(Engine {
            backend,
            pool: BlockPool::new(options.growth, options.blocks),
            options,
            ports,
            slots: Vec::new(),
            inputs: StepInputs::with_room(&bounds),
            steps: 0,
            device_next: None,
            continues: None,
            unknown: None,
            output_positions: Vec::new(),
            copies: Vec::new(),
            read_bytes: Vec::new(),
            logits: Vec::new(),
        })
    }

    pub fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    pub fn plan(&self) -> &Plan {
        self.backend.plan()
    }

    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// The most tokens of one step.
    pub fn chunk(&self) -> usize {
        self.ports.chunk
    }

    pub fn vocabulary(&self) -> usize {
        self.ports.vocabulary
    }

    /// KV blocks that some sequence uses, and blocks that exist.
    pub fn blocks(&self) -> (usize, usize) {
        (self.pool.in_use(), self.pool.len())
    }

    /// A new, empty sequence.
    pub fn create(&mut self) -> SequenceId {
        let sequence = self.with_room(&Sequence::default());
        self.insert(sequence)
    }

    /// A sequence with the same tokens, which shares the blocks of this one until either writes to one.
    pub fn fork(&mut self, id: SequenceId) -> Result<SequenceId, EngineError> {
        let mut copy = self.with_room(self.sequence(id)?);
        // Blocks beyond the tokens are about to be written, by both.
        copy.blocks.truncate(copy.tokens.len().div_ceil(KV_BLOCK));
        copy.blocks.iter().for_each(|&block| self.pool.share(block));
        Ok(self.insert(copy))
    }

    /// A copy with room for the whole context, so that appending a token allocates nothing.
    fn with_room(&self, sequence: &Sequence) -> Sequence {
        let context = self.options.context;
        let mut copy = Sequence {
            tokens: Vec::with_capacity(context),
            blocks: Vec::with_capacity(context.div_ceil(KV_BLOCK)),
        };
        copy.tokens.extend_from_slice(&sequence.tokens);
        copy.blocks.extend_from_slice(&sequence.blocks);
        copy
    }

    /// Ends a sequence and frees the blocks that no other shares.
    pub fn release(&mut self, id: SequenceId) -> Result<(), EngineError> {
        self.sequence(id)?;
        let slot = &mut self.slots[id.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        for block in slot.sequence.take().unwrap_or_default().blocks {
            self.pool.release(block);
        }
        Ok(())
    }

    /// Goes back to the first `len` tokens. Does nothing if there are no more.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<(), EngineError> {
        self.sequence(id)?;
        let Some(sequence) = &mut self.slots[id.slot as usize].sequence else {
            return Ok(());
        };
        sequence.tokens.truncate(len);
        let needed = sequence.tokens.len().div_ceil(KV_BLOCK);
        self.unknown.take_if(|u| u.sequence == id && u.index >= len);
        for block in sequence.blocks.drain(needed.min(sequence.blocks.len())..) {
            self.pool.release(block);
        }
        Ok(())
    }

    /// Goes back to the longest prefix that the sequence shares with `tokens`, leaving at least one of `tokens` to run.
    /// Gives the prefix's length.
    pub fn reuse(&mut self, id: SequenceId, tokens: &[u32]) -> Result<usize, EngineError> {
        let held = &self.sequence(id)?.tokens;
        let common = held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        self.truncate(id, common)?;
        Ok(common)
    }

    /// The sequence's tokens.
    pub fn tokens(&self, id: SequenceId) -> Result<&[u32], EngineError> {
        Ok(&self.sequence(id)?.tokens)
    }

    pub(crate) fn sequence(&self, id: SequenceId) -> Result<&Sequence, EngineError> {
        let slot = self
            .slots
            .get(id.slot as usize)
            .filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.sequence.as_ref())
            .ok_or_else(|| EngineError::Input {
                field: "sequence",
                expected: "one that has not been released".into(),
                found: format!("{id:?}"),
            })
    }

    /// The sequence and the pool, to change both.
    pub(crate) fn sequence_and_pool(
        &mut self,
        id: SequenceId,
    ) -> Option<(&mut Sequence, &mut BlockPool)> {
        let sequence = self.slots.get_mut(id.slot as usize)?.sequence.as_mut()?;
        Some((sequence, &mut self.pool))
    }

    fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let free = self.slots.iter().position(|slot| slot.sequence.is_none());
        let slot = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        self.slots[slot].sequence = Some(sequence);
        SequenceId {
            slot: slot as u32,
            generation: self.slots[slot].generation,
        }
    }
}

impl Ports {
    fn find(plan: &Plan) -> Result<Self, EngineError> {
        let names: Vec<&str> = plan.inputs.iter().map(|p| p.name.as_str()).collect();
        if names != StepInputs::NAMES {
            return Err(EngineError::Plan {
                field: "inputs",
                expected: StepInputs::NAMES.join(", "),
                found: names.join(", "),
            });
        }
        let missing = |field, name: &str, all: Vec<&str>| EngineError::Plan {
            field,
            expected: format!("one named {name}"),
            found: all.join(", "),
        };
        let result = |name: &str| {
            let names = || plan.results.iter().map(|p| p.name.as_str()).collect();
            plan.results
                .iter()
                .position(|p| p.name == name)
                .ok_or_else(|| missing("results", name, names()))
        };
        let entry = |name: &str| {
            let names = || plan.entries.iter().map(|e| e.name.as_str()).collect();
            plan.entries
                .iter()
                .position(|e| e.name == name)
                .ok_or_else(|| missing("entries", name, names()))
        };
        let (logits, prefill) = (result("logits")?, entry("prefill")?);
        let vocabulary = match plan.results[logits].shape[..] {
            [_, n] => n.constant(),
            _ => None,
        };
        let vocabulary = vocabulary.ok_or_else(|| EngineError::Plan {
            field: "logits",
            expected: "the shape [outputs, vocabulary]".into(),
            found: format!("{:?}", plan.results[logits].shape),
        })?;
        let guards = plan.entries[prefill]
            .variants
            .iter()
            .flat_map(|v| &v.guards);
        let chunk = guards
            .filter(|g| g.symbol == Symbol::Tokens)
            .map(|g| g.high)
            .max();
        let chunk = chunk.filter(|&n| n > 0).ok_or_else(|| EngineError::Plan {
            field: "prefill",
            expected: "a variant that bounds the tokens".into(),
            found: format!("{chunk:?}"),
        })?;
        Ok(Ports {
            decode: entry("decode")?,
            prefill,
            next: result("next")?,
            logits,
            vocabulary,
            chunk,
        })
    }
}
