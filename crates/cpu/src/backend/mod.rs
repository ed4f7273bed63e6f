//! `CpuBackend`: executes CPU plans.
//!
//! Everything that a step needs is made when the plan is loaded or when bounds are set; running a step walks the launches
//! and allocates nothing. The buffer that a launch writes is taken out of its place while the launch runs, so that the
//! borrow checker sees what the plan's check has established: no launch reads what it writes.

mod launch;
mod memory;
mod prepared;
mod read;

use std::task::{Context, Poll};

use ingle_graph::backend::{Backend, BackendError, DeviceInfo, LocalFuture, Ticket};
use ingle_graph::plan::Plan;
use ingle_graph::{Dims, Symbol};

use crate::{CpuError, Machine};
use memory::Memory;
use prepared::Kernels;
use read::Reads;

/// Executes one plan on the CPU.
pub struct CpuBackend {
    machine: Machine,
    plan: Plan,
    kernels: Kernels,
    memory: Memory,
    /// The dims of the step under way or of the last one.
    dims: Dims,
    reads: Reads,
}

impl CpuBackend {
    /// Allocates the plan's weights, zeroed.
    pub fn new(machine: Machine, plan: Plan) -> Result<Self, BackendError> {
        ingle_graph::plan::check(&plan)
            .map_err(|e| input("plan", "one that checks", e.to_string()))?;
        let kernels = Kernels::prepare(&plan).map_err(kernel_error)?;
        let memory = Memory::new(&plan).map_err(memory_error)?;
        Ok(CpuBackend {
            machine,
            plan,
            kernels,
            memory,
            dims: Dims::default(),
            reads: Reads::default(),
        })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    fn check_dims(&self, dims: &Dims) -> Result<(), BackendError> {
        for symbol in Symbol::ALL {
            let (limit, found) = match symbol {
                Symbol::Pool => (self.memory.pool_blocks(), dims.get(symbol)),
                _ => (self.memory.bounds().get(symbol), dims.get(symbol)),
            };
            if found > limit {
                return Err(input(
                    symbol.name(),
                    format!("at most {limit}"),
                    found.to_string(),
                ));
            }
        }
        Ok(())
    }
}

fn input(field: &str, expected: impl Into<String>, found: String) -> BackendError {
    BackendError::Input {
        field: field.into(),
        expected: expected.into(),
        found,
    }
}

fn kernel_error(error: CpuError) -> BackendError {
    BackendError::Kernel {
        name: "cpu".into(),
        reason: error.to_string(),
    }
}

fn memory_error(error: CpuError) -> BackendError {
    match error {
        CpuError::Memory { bytes } => BackendError::OutOfMemory {
            what: "a buffer".into(),
            bytes: bytes as u64,
        },
        other => kernel_error(other),
    }
}

impl Backend for CpuBackend {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "cpu".into(),
            name: self.machine.level().name().into(),
            details: vec![format!("{} threads", self.machine.threads())],
        }
    }

    fn write_weight(
        &mut self,
        weight: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.kernels.forget_frequencies();
        let buffer = self.memory.weight_mut(weight);
        let expected = || format!("bytes inside weight {weight}");
        let len = bytes.len();
        let target = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(len)?;
            buffer?.get_mut(start..end)
        });
        let target = target
            .ok_or_else(|| input("weight", expected(), format!("{len} bytes at {offset}")))?;
        target.copy_from_slice(bytes);
        Ok(())
    }

    /// A step has run when `run` returns.
    fn is_asynchronous(&self) -> bool {
        false
    }

    fn ready(&mut self) -> LocalFuture<'_, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn set_bounds(&mut self, bounds: Dims) -> Result<(), BackendError> {
        self.reads.keep(&self.memory);
        self.memory
            .set_bounds(&self.plan, bounds)
            .map_err(memory_error)?;
        self.kernels
            .set_rows(bounds.get(Symbol::Tokens).max(bounds.get(Symbol::Outputs)));
        Ok(())
    }

    fn resize_pool(&mut self, pool: usize) -> Result<(), BackendError> {
        self.memory
            .resize_pool(&self.plan, pool)
            .map_err(memory_error)
    }

    fn copy_blocks(&mut self, pairs: &[(u32, u32)]) -> Result<(), BackendError> {
        let blocks = self.memory.pool_blocks();
        if let Some(pair) = pairs.iter().find(|p| p.0.max(p.1) as usize >= blocks) {
            return Err(input(
                "blocks",
                format!("below {blocks}"),
                format!("{pair:?}"),
            ));
        }
        self.memory.copy_blocks(pairs);
        Ok(())
    }

    fn run(&mut self, entry: usize, dims: &Dims, inputs: &[&[u8]]) -> Result<(), BackendError> {
        self.check_dims(dims)?;
        self.reads.keep(&self.memory);
        let CpuBackend {
            machine,
            plan,
            kernels,
            memory,
            ..
        } = self;
        let entry = plan
            .entries
            .get(entry)
            .ok_or_else(|| input("entry", "one of the plan", entry.to_string()))?;
        let fed = entry.fed.map(|f| f.0 as usize);
        memory.write_inputs(plan, dims, fed, inputs)?;
        let variant = entry.variants.iter().find(|v| v.admits(dims));
        let variant = variant
            .ok_or_else(|| input("dims", "a variant that admits them", format!("{dims:?}")))?;
        kernels.begin_step();
        for launch in &variant.launches {
            let rows = launch.rows.resolve(dims);
            if rows > 0 {
                launch::run(machine, plan, kernels, memory, launch, rows, dims).map_err(
                    |error| {
                        let kernel = &plan.kernels[launch.kernel as usize];
                        BackendError::Kernel {
                            name: kernel.spec.name(),
                            reason: format!("{}: {error}", launch.label),
                        }
                    },
                )?;
            }
        }
        self.dims = *dims;
        Ok(())
    }

    fn begin_read(
        &mut self,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError> {
        self.reads.begin(&self.memory, result, offset, bytes)
    }

    fn poll_read(
        &mut self,
        ticket: &Ticket,
        out: &mut [u8],
        _: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>> {
        Poll::Ready(self.reads.finish(&self.memory, ticket, out))
    }
}
