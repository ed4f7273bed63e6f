//! One step: checked, packed, submitted. Nothing is made here, and nothing looked up by name.

use ingle_graph::backend::BackendError;
use ingle_graph::{Dims, Symbol};
use ingle_kernels::step::BLOCK_LEN;

use super::memory::{self, SMALL};
use super::read::Place;
use super::step::{Role, StepData};
use super::{GpuBackend, Last, input, launch};
use crate::device::{Copy, Device, Dispatch};

impl<D: Device> GpuBackend<D> {
    /// Checks a step against plan and bounds, so that nothing in it is read or written out of place.
    pub(super) fn check_step(
        &self,
        dims: &Dims,
        inputs: &[&[u8]],
        fed: Option<u32>,
    ) -> Result<(), BackendError> {
        let Some(memory) = &self.memory else {
            return Err(input("run", "bounds", "none set"));
        };
        for symbol in [
            Symbol::Tokens,
            Symbol::Outputs,
            Symbol::Batch,
            Symbol::Table,
        ] {
            let (found, most) = (dims.get(symbol), memory.bounds.get(symbol));
            if found > most {
                return Err(input(symbol.name(), format!("at most {most}"), found));
            }
        }
        if inputs.len() != self.plan.inputs.len() {
            return Err(input("inputs", self.plan.inputs.len(), inputs.len()));
        }
        for (i, (port, bytes)) in (0..).zip(self.plan.inputs.iter().zip(inputs)) {
            if fed == Some(i) {
                continue;
            }
            let expected = memory::bytes_of(&port.shape, port.element.bytes(), dims);
            if expected != Some(bytes.len() as u64) {
                return Err(input(
                    &port.name,
                    format!("{expected:?} bytes"),
                    bytes.len(),
                ));
            }
            let below = match self.inputs.role(i) {
                Some(Role::Positions) if self.tables.positions > 0 => self.tables.positions,
                Some(Role::Slots) => self.states.pool * BLOCK_LEN as usize,
                Some(Role::Sequences) => dims.get(Symbol::Batch),
                _ => continue,
            };
            let words = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b));
            if let Some(bad) = words.into_iter().find(|w| *w as usize >= below) {
                return Err(input(
                    &port.name,
                    format!("indices below {below}"),
                    bad as i32,
                ));
            }
        }
        Ok(())
    }

    /// Writes the step and submits variant `variant` of entry `entry`; what it needs is prepared and checked.
    pub(super) fn enqueue(&mut self, entry: usize, variant: usize, dims: &Dims, inputs: &[&[u8]]) {
        if let Some(memory) = &mut self.memory {
            // Nothing is copied to a buffer that is mapped.
            let turn = memory.next_staging();
            self.give_up(Place::Small(turn));
        }
        let (Some(memory), Some(prepared)) = (&mut self.memory, &self.prepared) else {
            return;
        };
        let turn = memory.turn();
        let fed = self.plan.entries[entry].fed;
        let device = &self.device;
        for (i, bytes) in inputs.iter().enumerate() {
            if self.inputs.role(i as u32).is_none() && !bytes.is_empty() {
                device.write_buffer(&memory.input(i).buffer, 0, bytes);
            }
        }
        let step_buffer = &memory.step_buffer.buffer;
        memory
            .step
            .pack(&self.inputs, dims, inputs, fed.map(|f| f.0), |at, bytes| {
                device.write_buffer(step_buffer, at, bytes)
            });
        let memory = &*memory;
        // The token that the last step chose, into the place of the ids.
        let feed = fed.and_then(|(input, result)| {
            let port = &self.plan.inputs[input as usize];
            Some(Copy {
                from: &memory.result(result as usize).buffer,
                from_offset: 0,
                to: &memory.step_buffer.buffer,
                to_offset: StepData::ids_at(),
                bytes: memory::bytes_of(&port.shape, port.element.bytes(), dims)?,
            })
        });
        let limits = device.limits().kernel;
        let launches = prepared.entries[entry][variant].iter().filter_map(|ready| {
            let rows = launch::rows_of(ready.rows, dims);
            (rows > 0).then(|| Dispatch {
                pipeline: self.pipelines.get(ready.pipeline),
                bind_group: &ready.bind_group,
                grid: ready.grid.resolve(rows, &limits),
            })
        });
        let results = self
            .plan
            .results
            .iter()
            .enumerate()
            .filter_map(|(i, port)| {
                let bytes = memory::bytes_of(&port.shape, port.element.bytes(), dims)?;
                (bytes > 0 && bytes <= SMALL).then(|| Copy {
                    from: &memory.result(i).buffer,
                    from_offset: 0,
                    to: memory.staging(turn),
                    to_offset: i as u64 * SMALL,
                    bytes: bytes.next_multiple_of(4),
                })
            });
        device.submit(feed.into_iter(), launches, results);
        self.last = Some(Last { dims: *dims, turn });
    }
}
