//! Reading results back: small ones from the staging buffers that the step filled, large ones by a copy of their own.

use ingle_graph::backend::BackendError;

use super::memory::{self, Held, SMALL};
use super::{GpuBackend, input};
use crate::device::{Copy, Device};

impl<D: Device> GpuBackend<D> {
    pub(super) async fn read_result(
        &mut self,
        result: usize,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.settle().await?;
        let Some(port) = self.plan.results.get(result) else {
            return Err(input(
                "result",
                format!("below {}", self.plan.results.len()),
                result,
            ));
        };
        let (Some(last), Some(memory)) = (self.last, &self.memory) else {
            return Err(input(&port.name, "a step before reading", "none"));
        };
        let bytes = memory::bytes_of(&port.shape, port.element.bytes(), &last.dims).unwrap_or(0);
        let end = offset.saturating_add(out.len() as u64);
        if end > bytes {
            return Err(input(
                &port.name,
                format!("a part of its {bytes} bytes"),
                format!("{offset}..{end}"),
            ));
        }
        if out.is_empty() {
            return Ok(());
        }
        let outcome = if bytes <= SMALL {
            let (start, at) = (offset / 8 * 8, result as u64 * SMALL);
            let mut words = [0; SMALL as usize];
            let words = &mut words[..(end - start) as usize];
            let read = self
                .device
                .read(memory.staging(last.turn), at + start, words)
                .await;
            out.copy_from_slice(&words[(offset - start) as usize..]);
            read
        } else {
            self.read_large(result, offset, out).await
        };
        if let Err(error) = outcome {
            return Err(self.fail(error));
        }
        self.check()
    }

    /// Reads through a staging buffer that stays, so that reading logits with every token makes nothing.
    async fn read_large(
        &mut self,
        result: usize,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let (from, bytes) = (offset / 4 * 4, offset % 4 + out.len() as u64);
        let bytes = bytes.next_multiple_of(4);
        if self.large.as_ref().is_none_or(|l| l.bytes < bytes) {
            self.scoped("reading a result", |this| {
                let held = Held::staging(&this.device, "reading", bytes)?;
                if let Some(old) = this.large.replace(held) {
                    this.device.destroy_buffer(&old.buffer);
                }
                Ok(())
            })?;
            self.settle().await?;
        }
        let (Some(large), Some(memory)) = (&self.large, &self.memory) else {
            return Ok(());
        };
        let source = &memory.result(result).buffer;
        let copy = Copy {
            from: source,
            from_offset: from,
            to: &large.buffer,
            to_offset: 0,
            bytes,
        };
        self.device
            .submit([copy].into_iter(), [].into_iter(), [].into_iter());
        if from == offset {
            return self.device.read(&large.buffer, 0, out).await;
        }
        let mut all = vec![0; bytes as usize];
        self.device.read(&large.buffer, 0, &mut all).await?;
        out.copy_from_slice(&all[(offset - from) as usize..][..out.len()]);
        Ok(())
    }
}
