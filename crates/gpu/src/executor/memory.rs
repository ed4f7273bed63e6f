//! Buffers that live with the bounds: inputs, results, scratch, states, step data, rotation tables, staging.

use ingle_graph::backend::BackendError;
use ingle_graph::ops::Rope;
use ingle_graph::plan::{Buffer, Plan, Port, State};
use ingle_graph::{Dims, Shape, Symbol};
use ingle_kernels::rope;

use super::launch;
use super::step::{StepData, StepInputs};
use super::weights::{Weights, launches};
use crate::device::{Copy, Device, Usage};

/// Results of at most so many bytes are copied to staging with the step that computes them.
pub(super) const SMALL: u64 = 64;

/// Staging buffers, in turn: one may still be mapped while the next step runs.
const RING: usize = 3;

/// Rotation tables reach at least so far; they take kilobytes.
const POSITIONS: usize = 1 << 17;

/// A buffer that knows its size.
pub(super) struct Held<D: Device> {
    pub buffer: D::Buffer,
    pub bytes: u64,
}

impl<D: Device> Held<D> {
    /// A storage buffer that kernels can bind whole.
    pub fn storage(device: &D, label: &str, bytes: u64) -> Result<Self, BackendError> {
        let limits = device.limits();
        let limit = limits
            .max_buffer_size
            .min(limits.max_storage_buffer_binding_size);
        if bytes > limit {
            return Err(BackendError::Limit {
                what: label.into(),
                needed: bytes,
                limit,
            });
        }
        let bytes = bytes.max(16).next_multiple_of(4);
        Ok(Held {
            buffer: device.create_buffer(label, bytes, Usage::Storage),
            bytes,
        })
    }

    pub fn staging(device: &D, label: &str, bytes: u64) -> Result<Self, BackendError> {
        let limit = device.limits().max_buffer_size;
        if bytes > limit {
            return Err(BackendError::Limit {
                what: label.into(),
                needed: bytes,
                limit,
            });
        }
        let bytes = bytes.max(16).next_multiple_of(8);
        Ok(Held {
            buffer: device.create_buffer(label, bytes, Usage::Staging),
            bytes,
        })
    }

    /// Copies what fits of `from`.
    fn keep(&self, device: &D, from: &Held<D>) {
        let bytes = self.bytes.min(from.bytes);
        let copy = Copy {
            from: &from.buffer,
            from_offset: 0,
            to: &self.buffer,
            to_offset: 0,
            bytes,
        };
        device.submit([copy].into_iter(), [].into_iter(), [].into_iter());
    }
}

/// A table of rotation angles.
struct RopeTable<D: Device> {
    rope: Rope,
    factors: Option<u32>,
    held: Option<Held<D>>,
}

/// The buffers of a backend, but for its weights.
pub(super) struct Memory<D: Device> {
    pub bounds: Dims,
    pub step: StepData,
    pub step_buffer: Held<D>,
    inputs: Vec<Held<D>>,
    results: Vec<Held<D>>,
    scratch: Vec<Held<D>>,
    staging: Vec<Held<D>>,
    turn: usize,
    /// What is bound where a kernel declares something that it does not use: read, written.
    unused: [Held<D>; 2],
}

/// The state buffers.
pub(super) struct States<D: Device> {
    pub pool: usize,
    held: Vec<Held<D>>,
}

/// The rotation tables.
pub(super) struct Tables<D: Device> {
    tables: Vec<RopeTable<D>>,
    /// Positions that every table reaches.
    pub positions: usize,
}

impl<D: Device> Memory<D> {
    pub fn new(
        device: &D,
        plan: &Plan,
        bounds: Dims,
        inputs: &mut StepInputs,
    ) -> Result<Self, BackendError> {
        let port = |p: &Port| {
            let bytes = bytes_of(&p.shape, p.element.bytes(), &bounds);
            Held::storage(device, &p.name, bytes.ok_or_else(|| too_large(&p.name))?)
        };
        let step = StepData::new(&bounds, inputs)?;
        let step_buffer = Held::storage(device, "step", step.bytes())?;
        let mut memory = Memory {
            bounds,
            step,
            step_buffer,
            inputs: Vec::new(),
            results: Vec::new(),
            scratch: Vec::new(),
            staging: Vec::new(),
            turn: 0,
            unused: [
                Held::storage(device, "unread", 0)?,
                Held::storage(device, "unwritten", 0)?,
            ],
        };
        for (i, p) in (0..).zip(&plan.inputs) {
            // Kernels find what has a role in the step data.
            let empty = || Held::storage(device, &p.name, 0);
            memory.inputs.push(if inputs.role(i).is_some() {
                empty()?
            } else {
                port(p)?
            });
        }
        for p in &plan.results {
            memory.results.push(port(p)?);
        }
        for (i, s) in plan.scratch.iter().enumerate() {
            let name = format!("scratch {i}");
            let bytes = s.bytes.resolve(&bounds).ok_or_else(|| too_large(&name))?;
            memory.scratch.push(Held::storage(device, &name, bytes)?);
        }
        for _ in 0..RING {
            memory.staging.push(Held::staging(
                device,
                "staging",
                SMALL * plan.results.len() as u64,
            )?);
        }
        Ok(memory)
    }

    /// Keeps the results of the last step, which the next may be fed with.
    pub fn keep_results(&self, device: &D, from: &Memory<D>) {
        self.results
            .iter()
            .zip(&from.results)
            .for_each(|(to, from)| to.keep(device, from));
    }

    pub fn input(&self, index: usize) -> &Held<D> {
        &self.inputs[index]
    }

    pub fn result(&self, index: usize) -> &Held<D> {
        &self.results[index]
    }

    pub fn scratch(&self, index: usize) -> &Held<D> {
        &self.scratch[index]
    }

    /// Takes the next staging buffer of the ring.
    pub fn next_staging(&mut self) -> usize {
        self.turn = (self.turn + 1) % self.staging.len();
        self.turn
    }

    /// The staging buffer of the last step.
    pub fn turn(&self) -> usize {
        self.turn
    }

    pub fn staging(&self, turn: usize) -> &D::Buffer {
        &self.staging[turn].buffer
    }

    pub fn unread(&self) -> (&D::Buffer, u64) {
        (&self.unused[0].buffer, self.unused[0].bytes)
    }

    pub fn unwritten(&self) -> (&D::Buffer, u64) {
        (&self.unused[1].buffer, self.unused[1].bytes)
    }

    pub fn destroy(&self, device: &D) {
        let all = self
            .inputs
            .iter()
            .chain(&self.results)
            .chain(&self.scratch)
            .chain(&self.staging);
        all.chain([&self.step_buffer])
            .chain(&self.unused)
            .for_each(|h| device.destroy_buffer(&h.buffer));
    }
}

impl<D: Device> States<D> {
    pub fn new(device: &D, plan: &Plan, pool: usize) -> Result<Self, BackendError> {
        let state = |s: &State| {
            Held::storage(
                device,
                &s.name,
                block_bytes(s)
                    .and_then(|b| b.checked_mul(pool as u64))
                    .ok_or_else(|| too_large(&s.name))?,
            )
        };
        Ok(States {
            pool,
            held: plan.states.iter().map(state).collect::<Result<_, _>>()?,
        })
    }

    pub fn get(&self, index: usize) -> &Held<D> {
        &self.held[index]
    }

    /// Takes over the blocks that fit.
    pub fn keep(&self, device: &D, from: &States<D>) {
        self.held
            .iter()
            .zip(&from.held)
            .for_each(|(to, from)| to.keep(device, from));
    }

    pub fn destroy(&self, device: &D) {
        self.held
            .iter()
            .for_each(|h| device.destroy_buffer(&h.buffer));
    }
}

impl<D: Device> Tables<D> {
    /// The tables that the plan's rotations need, not made yet.
    pub fn of(plan: &Plan) -> Self {
        let mut tables: Vec<RopeTable<D>> = Vec::new();
        for l in launches(plan) {
            if let Some((rope, factors)) =
                launch::rotation(&plan.kernels[l.kernel as usize].spec, &l.arguments)
                && !tables
                    .iter()
                    .any(|t| t.rope == rope && t.factors == factors)
            {
                tables.push(RopeTable {
                    rope,
                    factors,
                    held: None,
                });
            }
        }
        Tables {
            tables,
            positions: 0,
        }
    }

    pub fn find(&self, rope: &Rope, factors: Option<u32>) -> Option<usize> {
        self.tables
            .iter()
            .position(|t| t.rope == *rope && t.factors == factors)
    }

    pub fn get(&self, index: usize) -> Option<&Held<D>> {
        self.tables.get(index)?.held.as_ref()
    }

    /// Makes the tables reach `positions`. The weights have arrived. Says whether anything was made.
    pub fn reach(
        &mut self,
        device: &D,
        weights: &Weights<D>,
        positions: usize,
    ) -> Result<bool, BackendError> {
        let positions = positions.max(POSITIONS);
        if positions <= self.positions {
            return Ok(false);
        }
        let count = u32::try_from(positions).map_err(|_| too_large("rotation table"))?;
        for table in &mut self.tables {
            let factors = table.factors.and_then(|w| weights.kept(w)).map(floats);
            let angles = rope::table(&table.rope.frequencies(factors.as_deref()), count, 1.0);
            let bytes: Vec<u8> = angles.iter().flat_map(|v| v.to_le_bytes()).collect();
            let held = Held::storage(device, "rotation table", bytes.len() as u64)?;
            device.write_buffer(&held.buffer, 0, &bytes);
            if let Some(old) = table.held.replace(held) {
                device.destroy_buffer(&old.buffer);
            }
        }
        self.positions = positions;
        Ok(true)
    }

    pub fn destroy(&self, device: &D) {
        self.tables
            .iter()
            .filter_map(|t| t.held.as_ref())
            .for_each(|h| device.destroy_buffer(&h.buffer));
    }
}

/// Everything a launch may bind.
pub(super) struct Buffers<'a, D: Device> {
    pub weights: &'a Weights<D>,
    pub memory: &'a Memory<D>,
    pub states: &'a States<D>,
    pub tables: &'a Tables<D>,
}

impl<'a, D: Device> Buffers<'a, D> {
    /// A buffer of the plan and its size; weights are bound by shard.
    pub fn get(&self, buffer: Buffer) -> (&'a D::Buffer, u64) {
        let held = match buffer {
            Buffer::Weight(w) => return self.weights.buffer(w, 0),
            Buffer::State(i) => self.states.get(i as usize),
            Buffer::Input(i) => self.memory.input(i as usize),
            Buffer::Result(i) => self.memory.result(i as usize),
            Buffer::Scratch(i) => self.memory.scratch(i as usize),
        };
        (&held.buffer, held.bytes)
    }
}

/// Bytes of a shape under `dims`; `None` on overflow.
pub(super) fn bytes_of(shape: &Shape, element: usize, dims: &Dims) -> Option<u64> {
    let elements = shape
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(d.resolve(dims)))?;
    u64::try_from(elements.checked_mul(element)?).ok()
}

/// Bytes of one block of a state.
pub(super) fn block_bytes(state: &State) -> Option<u64> {
    bytes_of(
        &state.shape,
        state.element.bytes(),
        &Dims::default().with(Symbol::Pool, 1),
    )
}

fn too_large(what: &str) -> BackendError {
    BackendError::Limit {
        what: what.into(),
        needed: u64::MAX,
        limit: i64::MAX as u64,
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}
