//! Reading results back: small ones from the staging buffers that the step filled, large ones by a copy of their own.
//!
//! A buffer is mapped when its read begins, so that the next step can be submitted while the mapping is on its way.

use std::task::{Context, Poll, ready};

use ingle_graph::backend::{BackendError, LocalFuture, Ticket, given_up};

use super::memory::{self, Held, SMALL};
use super::{Checking, GpuBackend, input};
use crate::device::{Copy, Device};

/// Reads under way, and where large results are read from.
pub(super) struct Reads<D: Device> {
    begun: u64,
    pending: Vec<Pending>,
    /// Kept, so that reading logits with every token makes nothing. The second is there once two reads are under way.
    large: [Option<Held<D>>; 2],
}

/// A buffer that results are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A staging buffer of the ring.
    Small(usize),
    Large(usize),
}

struct Pending {
    ticket: u64,
    place: Place,
    /// Where the mapped part begins.
    offset: u64,
    /// Bytes of that part before and after those that were asked for end.
    skip: usize,
    end: usize,
    /// What was submitted until then, and may still turn out to be wrong.
    checking: Vec<Checking>,
    mapping: LocalFuture<'static, Result<(), BackendError>>,
}

impl<D: Device> Default for Reads<D> {
    fn default() -> Self {
        Reads {
            begun: 0,
            pending: Vec::new(),
            large: [None, None],
        }
    }
}

impl<D: Device> Reads<D> {
    pub fn buffers(&self) -> impl Iterator<Item = &Held<D>> {
        self.large.iter().flatten()
    }

    fn is_free(&self, place: Place) -> bool {
        self.pending.iter().all(|p| p.place != place)
    }
}

impl<D: Device> GpuBackend<D> {
    /// Begins to read `bytes` bytes of a result of the last step.
    pub(super) fn begin(
        &mut self,
        result: usize,
        offset: u64,
        bytes: u64,
    ) -> Result<Ticket, BackendError> {
        let Some(port) = self.plan.results.get(result) else {
            return Err(input(
                "result",
                format!("below {}", self.plan.results.len()),
                result,
            ));
        };
        let Some(last) = self.last else {
            return Err(input(&port.name, "a step before reading", "none"));
        };
        let all = memory::bytes_of(&port.shape, port.element.bytes(), &last.dims).unwrap_or(0);
        let end = offset.saturating_add(bytes);
        if bytes == 0 || end > all {
            return Err(input(
                &port.name,
                format!("a part of its {all} bytes"),
                format!("{offset}..{end}"),
            ));
        }
        let (place, at, from) = if all <= SMALL {
            let from = offset / 8 * 8;
            (Place::Small(last.turn), result as u64 * SMALL + from, from)
        } else {
            let from = offset / 4 * 4;
            (self.copy_large(result, from, end - from)?, 0, from)
        };
        self.give_up(place);
        let Some(buffer) = self.staging(place) else {
            return Err(input("read", "bounds", "none set"));
        };
        let mapping = self
            .device
            .map(buffer, at, (end - from).next_multiple_of(4));
        self.reads.begun += 1;
        self.reads.pending.push(Pending {
            ticket: self.reads.begun,
            place,
            offset: at,
            skip: (offset - from) as usize,
            end: (end - from) as usize,
            checking: std::mem::take(&mut self.checking),
            mapping,
        });
        Ok(Ticket(self.reads.begun))
    }

    /// Waits for what was submitted before the read and for the mapping, then copies and unmaps.
    pub(super) fn poll(
        &mut self,
        ticket: &Ticket,
        out: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>> {
        let Some(at) = self.reads.pending.iter().position(|p| p.ticket == ticket.0) else {
            return Poll::Ready(self.check().and_then(|()| Err(given_up(ticket))));
        };
        let pending = &mut self.reads.pending[at];
        let Pending {
            place,
            offset,
            skip,
            end,
            ..
        } = *pending;
        if skip + out.len() != end {
            let wanted = format!("{} bytes", end - skip);
            return Poll::Ready(Err(input("read", wanted, out.len())));
        }
        let outcome = ready!(pending.poll(context));
        let outcome = outcome.and_then(|()| {
            self.check()?;
            let buffer = self.staging(place).ok_or_else(|| given_up(ticket))?;
            if skip == 0 {
                return self.device.read_mapped(buffer, offset, out);
            }
            let mut all = vec![0; end];
            self.device.read_mapped(buffer, offset, &mut all)?;
            out.copy_from_slice(&all[skip..]);
            Ok(())
        });
        let outcome = outcome.map_err(|error| self.fail(error));
        self.give_up(place);
        Poll::Ready(outcome)
    }

    /// Ends the read from a place, if there is one; what it was to check stays to be checked.
    pub(super) fn give_up(&mut self, place: Place) {
        let Some(at) = self.reads.pending.iter().position(|p| p.place == place) else {
            return;
        };
        let pending = self.reads.pending.remove(at);
        self.checking.extend(pending.checking);
        if let Some(buffer) = self.staging(place) {
            self.device.unmap(buffer);
        }
    }

    pub(super) fn give_up_reads(&mut self) {
        while let Some(place) = self.reads.pending.first().map(|p| p.place) {
            self.give_up(place);
        }
    }

    fn staging(&self, place: Place) -> Option<&D::Buffer> {
        match place {
            Place::Small(turn) => Some(self.memory.as_ref()?.staging(turn)),
            Place::Large(i) => Some(&self.reads.large[i].as_ref()?.buffer),
        }
    }

    /// Submits a copy of a part of a result to a buffer that can be mapped.
    fn copy_large(&mut self, result: usize, from: u64, bytes: u64) -> Result<Place, BackendError> {
        let bytes = bytes.next_multiple_of(4);
        let free = (0..2).find(|i| self.reads.is_free(Place::Large(*i)));
        let index = free.unwrap_or_else(|| self.oldest_large());
        self.give_up(Place::Large(index));
        if self.reads.large[index]
            .as_ref()
            .is_none_or(|l| l.bytes < bytes)
        {
            self.scoped("reading a result", |this| {
                let held = Held::staging(&this.device, "reading", bytes)?;
                if let Some(old) = this.reads.large[index].replace(held) {
                    this.device.destroy_buffer(&old.buffer);
                }
                Ok(())
            })?;
        }
        if let (Some(large), Some(memory)) = (&self.reads.large[index], &self.memory) {
            let copy = Copy {
                from: &memory.result(result).buffer,
                from_offset: from,
                to: &large.buffer,
                to_offset: 0,
                bytes,
            };
            self.device
                .submit([copy].into_iter(), [].into_iter(), [].into_iter());
        }
        Ok(Place::Large(index))
    }

    fn oldest_large(&self) -> usize {
        let mut places = self.reads.pending.iter().map(|p| p.place);
        places
            .find_map(|place| match place {
                Place::Large(i) => Some(i),
                Place::Small(_) => None,
            })
            .unwrap_or(0)
    }
}

impl Pending {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        while let Some(first) = self.checking.first_mut() {
            let outcome = ready!(first.as_mut().poll(context));
            drop(self.checking.remove(0));
            outcome?;
        }
        self.mapping.as_mut().poll(context)
    }
}
