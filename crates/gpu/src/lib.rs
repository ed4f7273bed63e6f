//! The GPU backend: a small device trait with its implementations, the target that compiles graphs for it, and the
//! executor of GPU plans.
//!
//! ```text
//! GpuTarget (target, select)   which kernel for which launch, with its text from a KernelSource
//! GpuBackend (executor)        buffers, pipelines, bind groups; running a step is a dumb loop
//! Device (device)              wgpu natively, WebGPU in the browser
//! ```

pub mod device;
mod executor;
mod select;
mod source;
mod target;

pub use executor::{GpuBackend, Timing};
#[cfg(feature = "compiler")]
pub use source::Compiler;
pub use source::{KernelSource, SourceError};
pub use target::GpuTarget;

/// Runs a future to its end on this thread. Natively only: a browser's page must never wait.
#[cfg(not(target_arch = "wasm32"))]
pub fn block_on<F: Future>(future: F) -> F::Output {
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::{self, Thread};

    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
