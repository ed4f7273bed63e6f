//! How long each launch of a step takes, measured one by one.

use ingle_graph::Dims;
use ingle_graph::backend::{Backend, BackendError};

use super::{GpuBackend, input, launch};
use crate::device::{Device, Dispatch};

/// The time of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Where in the graph it comes from.
    pub label: String,
    /// What it computes, and with which candidate.
    pub kernel: String,
    pub seconds: f64,
}

impl<D: Device> GpuBackend<D> {
    /// Runs a step, then each of its launches `repeats` times by itself, waiting for the device after each. `now` is a
    /// clock in seconds. The times hold a share of the cost of submitting and waiting, which shrinks with `repeats`.
    pub async fn profile(
        &mut self,
        entry: usize,
        dims: &Dims,
        inputs: &[&[u8]],
        repeats: usize,
        now: &dyn Fn() -> f64,
    ) -> Result<Vec<Timing>, BackendError> {
        self.run(entry, dims, inputs)?;
        self.settle().await?;
        let variants = &self.plan.entries[entry].variants;
        let Some(variant) = variants.iter().position(|v| v.admits(dims)) else {
            let found = format!("{dims:?}");
            return Err(input("entry", "a variant that admits the step", found));
        };
        let (Some(memory), Some(prepared)) = (&self.memory, &self.prepared) else {
            return Err(input("profile", "bounds", "none set"));
        };
        let limits = self.device.limits().kernel;
        // The step itself must not be counted with its first launch.
        read_back(&self.device, memory.staging(0)).await?;
        let mut timings = Vec::new();
        for ready in &prepared.entries[entry][variant] {
            let rows = launch::rows_of(ready.rows, dims);
            if rows == 0 {
                continue;
            }
            let dispatch = |_| Dispatch {
                pipeline: self.pipelines.get(ready.pipeline),
                bind_group: &ready.bind_group,
                grid: ready.grid.resolve(rows, &limits),
            };
            let begun = now();
            let launches = (0..repeats).map(dispatch);
            self.device.submit([].into_iter(), launches, [].into_iter());
            read_back(&self.device, memory.staging(0)).await?;
            let seconds = (now() - begun) / repeats.max(1) as f64;
            let l = &self.plan.entries[entry].variants[variant].launches[ready.launch];
            let kernel = &self.plan.kernels[l.kernel as usize];
            timings.push(Timing {
                label: l.label.clone(),
                kernel: format!("{} [{}]", kernel.spec.name(), kernel.candidate),
                seconds,
            });
        }
        Ok(timings)
    }
}

/// Waits until everything submitted has run.
async fn read_back<D: Device>(device: &D, staging: &D::Buffer) -> Result<(), BackendError> {
    let mapped = device.map(staging, 0, 4).await;
    device.unmap(staging);
    mapped
}
