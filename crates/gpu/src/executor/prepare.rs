//! What is made once so that a step only walks a list: params and bind groups of every launch of every variant.

use std::collections::HashMap;

use ingle_graph::backend::BackendError;
use ingle_graph::plan::{Plan, Rows};

use super::launch::{self, Bound, Context, Grid, Lowered};
use super::memory::{Buffers, Held};
use super::pipelines::Pipelines;
use super::step::StepInputs;
use crate::device::{Binding, Device};

/// A launch that is ready to go.
pub(super) struct Ready<D: Device> {
    /// Its place in the variant's list; launches of a sharded weight share one.
    pub launch: usize,
    pub pipeline: usize,
    pub bind_group: D::BindGroup,
    pub grid: Grid,
    pub rows: Rows,
}

/// All launches, by entry and variant, and the params they read.
pub(super) struct Prepared<D: Device> {
    pub entries: Vec<Vec<Vec<Ready<D>>>>,
    params: Held<D>,
}

impl<D: Device> Prepared<D> {
    pub fn new(
        device: &D,
        plan: &Plan,
        pipelines: &Pipelines<D>,
        inputs: &StepInputs,
        buffers: &Buffers<'_, D>,
    ) -> Result<Self, BackendError> {
        let lowered = lower(device, plan, inputs, buffers)?;
        let alignment = device.limits().min_storage_buffer_offset_alignment.max(4);
        let mut params = Params {
            bytes: vec![],
            known: HashMap::new(),
            alignment: alignment as usize,
        };
        lowered
            .iter()
            .flatten()
            .flatten()
            .flat_map(|l| &l.2)
            .for_each(|l| {
                params.place(&l.params);
            });
        let held = Held::storage(device, "params", params.bytes.len() as u64)?;
        if !params.bytes.is_empty() {
            device.write_buffer(&held.buffer, 0, &params.bytes);
        }
        let binder = Binder {
            device,
            pipelines,
            buffers,
            params: &params,
            held: &held,
        };
        let entries = lowered
            .into_iter()
            .map(|variants| {
                variants
                    .into_iter()
                    .map(|launches| binder.variant(launches))
                    .collect()
            })
            .collect::<Result<_, _>>()?;
        Ok(Prepared {
            entries,
            params: held,
        })
    }

    pub fn destroy(&self, device: &D) {
        device.destroy_buffer(&self.params.buffer);
    }
}

/// A launch's kernel, rows and dispatches.
type LoweredLaunch = (u32, Rows, Vec<Lowered>);

fn lower<D: Device>(
    device: &D,
    plan: &Plan,
    inputs: &StepInputs,
    buffers: &Buffers<'_, D>,
) -> Result<Vec<Vec<Vec<LoweredLaunch>>>, BackendError> {
    let mut entries = Vec::with_capacity(plan.entries.len());
    for entry in &plan.entries {
        let context = Context {
            plan,
            limits: device.limits().kernel,
            inputs,
            fed: entry.fed,
            shards: &|w| buffers.weights.shards(w),
            rope_table: &|rope, factors| buffers.tables.find(rope, factors),
        };
        let mut variants = Vec::with_capacity(entry.variants.len());
        for variant in &entry.variants {
            let mut launches = Vec::with_capacity(variant.launches.len());
            for l in &variant.launches {
                let lowered =
                    launch::lower(&context, l).map_err(|reason| BackendError::Kernel {
                        name: format!("{} {}", entry.name, l.label),
                        reason,
                    })?;
                launches.push((l.kernel, l.rows, lowered));
            }
            variants.push(launches);
        }
        entries.push(variants);
    }
    Ok(entries)
}

/// The params of all launches in one buffer; equal ones lie there once.
struct Params {
    bytes: Vec<u8>,
    known: HashMap<Vec<u32>, u64>,
    alignment: usize,
}

impl Params {
    fn place(&mut self, words: &[u32]) {
        if self.known.contains_key(words) {
            return;
        }
        self.bytes
            .resize(self.bytes.len().next_multiple_of(self.alignment), 0);
        self.known.insert(words.to_vec(), self.bytes.len() as u64);
        self.bytes
            .extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
}

/// Makes bind groups.
struct Binder<'a, D: Device> {
    device: &'a D,
    pipelines: &'a Pipelines<D>,
    buffers: &'a Buffers<'a, D>,
    params: &'a Params,
    held: &'a Held<D>,
}

impl<D: Device> Binder<'_, D> {
    fn variant(&self, launches: Vec<LoweredLaunch>) -> Result<Vec<Ready<D>>, BackendError> {
        let mut ready = Vec::with_capacity(launches.len());
        for (launch, (kernel, rows, lowered)) in launches.into_iter().enumerate() {
            let pipeline = self.pipelines.of_kernel(kernel);
            for l in lowered {
                let bind_group = self.bind_group(pipeline, &l)?;
                ready.push(Ready {
                    launch,
                    pipeline,
                    bind_group,
                    grid: l.grid,
                    rows,
                });
            }
        }
        Ok(ready)
    }

    fn bind_group(&self, pipeline: usize, lowered: &Lowered) -> Result<D::BindGroup, BackendError> {
        let whole = |(buffer, bytes)| Binding {
            buffer,
            offset: 0,
            bytes,
        };
        let bindings = lowered.bindings.iter().map(|bound| match *bound {
            Bound::Buffer(b) => Ok(whole(self.buffers.get(b))),
            Bound::Shard(w, shard) => Ok(whole(self.buffers.weights.buffer(w, shard))),
            Bound::Step => Ok(whole((
                &self.buffers.memory.step_buffer.buffer,
                self.buffers.memory.step_buffer.bytes,
            ))),
            Bound::RopeTable(t) => match self.buffers.tables.get(t) {
                Some(held) => Ok(whole((&held.buffer, held.bytes))),
                None => Err(BackendError::Kernel {
                    name: "rope".into(),
                    reason: "its table is not made yet".into(),
                }),
            },
            Bound::Unread => Ok(whole(self.buffers.memory.unread())),
            Bound::Unwritten => Ok(whole(self.buffers.memory.unwritten())),
            Bound::Params => {
                let offset = self
                    .params
                    .known
                    .get(&lowered.params)
                    .copied()
                    .unwrap_or_default();
                Ok(Binding {
                    buffer: &self.held.buffer,
                    offset,
                    bytes: lowered.params.len() as u64 * 4,
                })
            }
        });
        let bindings: Vec<Binding<'_, D>> = bindings.collect::<Result<_, _>>()?;
        Ok(self
            .device
            .create_bind_group(self.pipelines.layout(pipeline), &bindings))
    }
}
