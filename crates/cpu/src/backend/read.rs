//! Reads under way. A result is copied when it is asked for, or before a step would overwrite it.

use std::ops::Range;

use ingle_graph::backend::{BackendError, Ticket, given_up};

use super::input;
use super::memory::Memory;

/// Two reads, in turn.
#[derive(Default)]
pub(super) struct Reads {
    begun: u64,
    slots: [Slot; 2],
}

#[derive(Default)]
struct Slot {
    /// 0 if there is none.
    ticket: u64,
    result: usize,
    range: Range<usize>,
    /// Whether `bytes` holds them: a step has run since.
    kept: bool,
    bytes: Vec<u8>,
}

impl Reads {
    pub fn begin(
        &mut self,
        memory: &Memory,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError> {
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(bytes)?))
            .filter(|range| result_bytes(memory, result, range).is_some());
        let range = range.ok_or_else(|| {
            input(
                "result",
                "bytes inside it",
                format!("{bytes} bytes at {offset} of result {result}"),
            )
        })?;
        self.begun += 1;
        let slot = &mut self.slots[(self.begun % 2) as usize];
        slot.ticket = self.begun;
        slot.result = result;
        slot.range = range;
        slot.kept = false;
        Ok(Ticket(self.begun))
    }

    /// Keeps what the next step may overwrite.
    pub fn keep(&mut self, memory: &Memory) {
        for slot in self.slots.iter_mut().filter(|s| s.ticket != 0 && !s.kept) {
            slot.bytes.clear();
            match result_bytes(memory, slot.result, &slot.range) {
                Some(bytes) => slot.bytes.extend_from_slice(bytes),
                // The bounds have shrunk below it.
                None => slot.ticket = 0,
            }
            slot.kept = true;
        }
    }

    pub fn finish(
        &mut self,
        memory: &Memory,
        ticket: &Ticket,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let slot = self.slots.iter_mut().find(|s| s.ticket == ticket.0);
        let slot = slot.ok_or_else(|| given_up(ticket))?;
        let bytes = if slot.kept {
            Some(slot.bytes.as_slice())
        } else {
            result_bytes(memory, slot.result, &slot.range)
        };
        let bytes = bytes.filter(|b| b.len() == out.len());
        let expected = || format!("{} bytes", slot.range.len());
        out.copy_from_slice(bytes.ok_or_else(|| input("read", expected(), out.len().to_string()))?);
        slot.ticket = 0;
        Ok(())
    }
}

fn result_bytes<'m>(memory: &'m Memory, result: usize, range: &Range<usize>) -> Option<&'m [u8]> {
    memory.result(result)?.as_slice().get(range.clone())
}
