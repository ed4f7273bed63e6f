//! `Backend`: what executes plans.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Dims;
use crate::plan::Plan;

/// What can go wrong while a plan is loaded or run. Never silent, never zeros.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BackendError {
    #[error("no {device} device: {reason}")]
    NoDevice { device: String, reason: String },
    #[error("the device was lost: {reason}")]
    DeviceLost { reason: String },
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory { what: String, bytes: u64 },
    #[error("{what} needs {needed}, the device's limit is {limit}")]
    Limit {
        what: String,
        needed: u64,
        limit: u64,
    },
    #[error("kernel {name}: {reason}")]
    Kernel { name: String, reason: String },
    #[error("{field}: expected {expected}, found {found}")]
    Input {
        field: String,
        expected: String,
        found: String,
    },
    #[error("the device reported an error: {message}")]
    Device { message: String },
}

/// What the device is, for people and for `ingle.device`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceInfo {
    /// `cpu`, `webgpu`, `vulkan`, `metal`, `cuda`.
    pub kind: String,
    /// E.g. the adapter's name, or the instruction set.
    pub name: String,
    pub details: Vec<String>,
}

/// A future that stays on its thread: browsers have no other kind.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A read-back that has begun: see [`Backend::begin_read`]. Each has a number of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Executes one plan. Made with the plan; then weights are written, then steps run.
///
/// `run` only enqueues; finishing a read waits for what was enqueued before it began. After an error every later call gives
/// an error until the backend is made anew.
pub trait Backend {
    fn plan(&self) -> &Plan;

    fn device(&self) -> DeviceInfo;

    /// Whether a step runs while the host goes on: then enqueueing the next one before reading the last saves time.
    fn is_asynchronous(&self) -> bool;

    /// Writes bytes of weight `weight` (index into [`Plan::weights`]) in its kernel layout.
    fn write_weight(
        &mut self,
        weight: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError>;

    /// Waits until pipelines are made and weights have arrived; errors of either come out here.
    fn ready(&mut self) -> LocalFuture<'_, Result<(), BackendError>>;

    /// Sets the upper bounds of `tokens`, `outputs`, `batch` and `table` in one step, and allocates for them.
    fn set_bounds(&mut self, bounds: Dims) -> Result<(), BackendError>;

    /// Grows (or shrinks) every state to `pool` blocks; what the remaining blocks hold stays.
    fn resize_pool(&mut self, pool: usize) -> Result<(), BackendError>;

    /// Copies whole KV blocks `(from, to)` in every state, before anything enqueued later.
    fn copy_blocks(&mut self, pairs: &[(u32, u32)]) -> Result<(), BackendError>;

    /// Enqueues one step of entry `entry`. `inputs` are the plan's inputs by position, little-endian; the one that the
    /// entry takes from the last step's result is ignored.
    fn run(&mut self, entry: usize, dims: &Dims, inputs: &[&[u8]]) -> Result<(), BackendError>;

    /// Begins to read `bytes` bytes, at least one, of a result (index into [`Plan::results`]) from `offset`, as left by the last step; a
    /// step that is enqueued later does not change what will be read. A read that is not wanted any more needs no end.
    ///
    /// Two reads may be under way, of different steps. What else has begun before is given up: finishing it is an error.
    fn begin_read(
        &mut self,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError>;

    /// Ends a read: fills `out`, which has as many bytes as were asked for, or wakes the context when to ask again.
    fn poll_read(
        &mut self,
        ticket: &Ticket,
        out: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>>;
}

/// Reading as futures. They are made in place and need no allocation.
pub trait ReadBack: Backend {
    /// Waits for a read that has begun.
    fn finish_read(
        &mut self,
        ticket: Ticket,
        out: &mut [u8],
    ) -> impl Future<Output = Result<(), BackendError>> {
        poll_fn(move |context| self.poll_read(&ticket, out, context))
    }

    /// Reads `out.len()` bytes of a result from `offset`, as left by the last step.
    fn read(
        &mut self,
        result: usize,
        offset: u64,
        out: &mut [u8],
    ) -> impl Future<Output = Result<(), BackendError>> {
        async move {
            if out.is_empty() {
                return Ok(());
            }
            let ticket = self.begin_read(result, offset, out.len())?;
            self.finish_read(ticket, out).await
        }
    }
}

impl<B: Backend + ?Sized> ReadBack for B {}

/// What finishing a read gives that has been given up.
pub fn given_up(ticket: &Ticket) -> BackendError {
    BackendError::Input {
        field: "read".into(),
        expected: "one that is under way".into(),
        found: format!("number {}", ticket.0),
    }
}
