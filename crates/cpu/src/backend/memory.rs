//! The buffers of a plan, by kind.

use std::ops::Range;

use ingle_graph::backend::BackendError;
use ingle_graph::plan::{Buffer as Place, Plan, Port};
use ingle_graph::{Dims, Symbol};
use ingle_quant::ElementType;

use super::input;
use crate::{Buffer, CpuError};

/// All buffers of a plan. A place is `None` only while the launch that writes it runs.
pub(super) struct Memory {
    weights: Weights,
    states: Vec<Option<Buffer>>,
    inputs: Vec<Option<Buffer>>,
    results: Vec<Option<Buffer>>,
    scratch: Vec<Option<Buffer>>,
    /// Bytes of one block of each state.
    block_bytes: Vec<usize>,
    bounds: Dims,
    pool: usize,
}

impl Memory {
    pub fn new(plan: &Plan) -> Result<Self, CpuError> {
        let block_bytes = plan.states.iter().map(|s| {
            let elements = s
                .shape
                .iter()
                .skip(1)
                .try_fold(1usize, |n, d| n.checked_mul(d.constant()?));
            elements
                .and_then(|n| n.checked_mul(s.element.bytes()))
                .ok_or(CpuError::Memory { bytes: usize::MAX })
        });
        Ok(Memory {
            weights: Weights::new(plan)?,
            states: plan
                .states
                .iter()
                .map(|_| zeroed(Some(0)))
                .collect::<Result<_, _>>()?,
            block_bytes: block_bytes.collect::<Result<_, _>>()?,
            inputs: vec![],
            results: vec![],
            scratch: vec![],
            bounds: Dims::default(),
            pool: 0,
        })
    }

    pub fn bounds(&self) -> &Dims {
        &self.bounds
    }

    pub fn pool_blocks(&self) -> usize {
        self.pool
    }

    pub fn weight_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let (buffer, range) = self.weights.places.get(index)?.clone();
        self.weights.buffers[buffer].as_mut_slice().get_mut(range)
    }

    pub fn result(&self, index: usize) -> Option<&Buffer> {
        self.results.get(index)?.as_ref()
    }

    /// Allocates inputs, results and scratch for steps within `bounds`.
    pub fn set_bounds(&mut self, plan: &Plan, bounds: Dims) -> Result<(), CpuError> {
        let port = |p: &Port| zeroed(port_bytes(p, &bounds).map(|n| n as u64));
        self.inputs = plan.inputs.iter().map(port).collect::<Result<_, _>>()?;
        self.results = plan.results.iter().map(port).collect::<Result<_, _>>()?;
        self.scratch = plan
            .scratch
            .iter()
            .map(|s| zeroed(s.bytes.resolve(&bounds)))
            .collect::<Result<_, _>>()?;
        self.bounds = bounds;
        Ok(())
    }

    /// Makes every state `pool` blocks long; what remains keeps its contents.
    pub fn resize_pool(&mut self, plan: &Plan, pool: usize) -> Result<(), CpuError> {
        let mut resized = Vec::with_capacity(plan.states.len());
        for (old, &block) in self.states.iter().zip(&self.block_bytes) {
            let bytes = block.checked_mul(pool).map(|n| n as u64);
            let mut new = zeroed(bytes)?;
            if let (Some(old), Some(new)) = (old, &mut new) {
                let kept = old.len().min(new.len());
                new.as_mut_slice()[..kept].copy_from_slice(&old.as_slice()[..kept]);
            }
            resized.push(new);
        }
        self.states = resized;
        self.pool = pool;
        Ok(())
    }

    /// Copies blocks inside every state. The blocks exist.
    pub fn copy_blocks(&mut self, pairs: &[(u32, u32)]) {
        for (state, &block) in self.states.iter_mut().zip(&self.block_bytes) {
            let Some(state) = state else { continue };
            for &(from, to) in pairs {
                let from = from as usize * block;
                state
                    .as_mut_slice()
                    .copy_within(from..from + block, to as usize * block);
            }
        }
    }

    /// Copies the step's inputs, but for the one that is fed back.
    pub fn write_inputs(
        &mut self,
        plan: &Plan,
        dims: &Dims,
        fed: Option<usize>,
        inputs: &[&[u8]],
    ) -> Result<(), BackendError> {
        if inputs.len() != plan.inputs.len() {
            return Err(input(
                "inputs",
                plan.inputs.len().to_string(),
                inputs.len().to_string(),
            ));
        }
        for (i, (port, bytes)) in plan.inputs.iter().zip(inputs).enumerate() {
            if fed == Some(i) {
                continue;
            }
            let expected = port_bytes(port, dims).unwrap_or(usize::MAX);
            let buffer = self.inputs.get_mut(i).and_then(Option::as_mut);
            match buffer.and_then(|b| b.as_mut_slice().get_mut(..expected)) {
                Some(target) if bytes.len() == expected => target.copy_from_slice(bytes),
                _ => {
                    return Err(input(
                        &port.name,
                        format!("{expected} bytes"),
                        bytes.len().to_string(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// A buffer that launches may write; weights are not.
    fn place(&self, place: Place) -> Option<&Option<Buffer>> {
        Some(match place {
            Place::Weight(_) => return None,
            Place::State(i) => &self.states[i as usize],
            Place::Input(i) => &self.inputs[i as usize],
            Place::Result(i) => &self.results[i as usize],
            Place::Scratch(i) => &self.scratch[i as usize],
        })
    }

    fn place_mut(&mut self, place: Place) -> Option<&mut Option<Buffer>> {
        Some(match place {
            Place::Weight(_) => return None,
            Place::State(i) => &mut self.states[i as usize],
            Place::Input(i) => &mut self.inputs[i as usize],
            Place::Result(i) => &mut self.results[i as usize],
            Place::Scratch(i) => &mut self.scratch[i as usize],
        })
    }

    /// Takes a buffer out to write it. [`Memory::put`] brings it back.
    pub fn take(&mut self, place: Place) -> Result<Buffer, CpuError> {
        self.place_mut(place)
            .and_then(Option::take)
            .ok_or_else(|| missing(place))
    }

    pub fn put(&mut self, place: Place, buffer: Buffer) {
        if let Some(home) = self.place_mut(place) {
            *home = Some(buffer);
        }
    }

    /// The bytes of a buffer that is read.
    pub fn bytes(&self, place: Place) -> Result<&[u8], CpuError> {
        let bytes = match place {
            Place::Weight(i) => Some(self.weights.bytes(i as usize)),
            _ => self
                .place(place)
                .and_then(Option::as_ref)
                .map(Buffer::as_slice),
        };
        bytes.ok_or_else(|| missing(place))
    }

    /// The first `len` elements of a buffer.
    pub fn f32(&self, place: Place, len: usize) -> Result<&[f32], CpuError> {
        elements(self.bytes(place)?, len)
    }

    /// The first `len` elements of a buffer.
    pub fn i32(&self, place: Place, len: usize) -> Result<&[i32], CpuError> {
        elements(self.bytes(place)?, len)
    }
}

/// The weights of a plan, many to a buffer: only long buffers lie in huge pages, and a step reads every weight.
struct Weights {
    buffers: Vec<Buffer>,
    /// For each weight, which buffer and where in it.
    places: Vec<(usize, Range<usize>)>,
}

/// Bytes after which another buffer begins: a heap in a browser has room for several of this size, but not for all of a
/// large model in one piece.
const WEIGHTS_PER_BUFFER: usize = 256 << 20;

/// Weights begin at a cache line.
const WEIGHT_ALIGN: usize = 64;

impl Weights {
    fn new(plan: &Plan) -> Result<Self, CpuError> {
        let too_large = CpuError::Memory { bytes: usize::MAX };
        let mut lengths = vec![0usize];
        let mut places = Vec::with_capacity(plan.weights.len());
        for weight in &plan.weights {
            let bytes = usize::try_from(weight.bytes).map_err(|_| too_large.clone())?;
            let last = lengths.len() - 1;
            let start = lengths[last].next_multiple_of(WEIGHT_ALIGN);
            match start.checked_add(bytes) {
                Some(end) if start == 0 || end <= WEIGHTS_PER_BUFFER => {
                    places.push((last, start..end));
                    lengths[last] = end;
                }
                _ => {
                    places.push((last + 1, 0..bytes));
                    lengths.push(bytes);
                }
            }
        }
        let buffers = lengths.into_iter().map(Buffer::zeroed);
        Ok(Weights {
            buffers: buffers.collect::<Result<_, _>>()?,
            places,
        })
    }

    fn bytes(&self, index: usize) -> &[u8] {
        let (buffer, range) = &self.places[index];
        &self.buffers[*buffer].as_slice()[range.clone()]
    }
}

fn missing(place: Place) -> CpuError {
    CpuError::Unsupported {
        field: "launch",
        expected: "buffers that it does not also write",
        found: format!("{place:?}"),
    }
}

/// The first `len` elements of these bytes, which begin at a cache line.
fn elements<T: bytemuck::Pod>(bytes: &[u8], len: usize) -> Result<&[T], CpuError> {
    let found = bytes.len() / size_of::<T>();
    let short = CpuError::Length {
        field: "elements of a buffer",
        expected: len,
        found,
    };
    let part = len
        .checked_mul(size_of::<T>())
        .and_then(|n| bytes.get(..n))
        .ok_or(short)?;
    Ok(bytemuck::cast_slice(part))
}

/// The first `len` elements of a buffer that was taken out.
pub(super) fn elements_mut<T: bytemuck::Pod>(
    buffer: &mut Buffer,
    len: usize,
) -> Result<&mut [T], CpuError> {
    let found = buffer.len() / size_of::<T>();
    let short = CpuError::Length {
        field: "elements of a buffer",
        expected: len,
        found,
    };
    let part = len
        .checked_mul(size_of::<T>())
        .and_then(|n| buffer.as_mut_slice().get_mut(..n))
        .ok_or(short)?;
    Ok(bytemuck::cast_slice_mut(part))
}

fn zeroed(bytes: Option<u64>) -> Result<Option<Buffer>, CpuError> {
    let bytes = bytes
        .and_then(|n| usize::try_from(n).ok())
        .ok_or(CpuError::Memory { bytes: usize::MAX })?;
    Buffer::zeroed(bytes).map(Some)
}

fn port_bytes(port: &Port, dims: &Dims) -> Option<usize> {
    debug_assert!(matches!(port.element, ElementType::I32 | ElementType::F32));
    debug_assert!(!port.shape.contains(&Symbol::Pool.into()));
    port.shape
        .iter()
        .try_fold(port.element.bytes(), |n, d| n.checked_mul(d.resolve(dims)))
}
