//! `GpuBackend`: executes a plan on a device.
//!
//! Loading starts all pipelines, makes buffers and takes weights. [`Backend::ready`] makes the params and bind groups
//! of every launch once. A step is then one small write, one walk over a list, one submit; small results are copied to
//! a staging buffer in the same submit and mapped when they are read.

mod launch;
mod memory;
mod pipelines;
mod prepare;
mod profile;
mod read;
mod run;
mod sharding;
mod step;
mod weights;

pub use profile::Timing;

use std::task::{Context, Poll};

use ingle_graph::backend::{Backend, BackendError, DeviceInfo, LocalFuture, Ticket};
use ingle_graph::plan::{Buffer, Plan, State};
use ingle_graph::{Dims, Symbol};
use ingle_kernels::step::BLOCK_LEN;

use crate::device::{Copy, Device, Scope};
use memory::{Buffers, Held, Memory, States, Tables};
use pipelines::Pipelines;
use prepare::Prepared;
use read::Reads;
use step::StepInputs;
use weights::Weights;

type Checking = LocalFuture<'static, Result<(), BackendError>>;

/// Executes one plan on one device.
pub struct GpuBackend<D: Device> {
    device: D,
    plan: Plan,
    inputs: StepInputs,
    pipelines: Pipelines<D>,
    weights: Weights<D>,
    tables: Tables<D>,
    states: States<D>,
    memory: Option<Memory<D>>,
    /// `None` when something it binds has changed.
    prepared: Option<Prepared<D>>,
    /// Where [`Backend::copy_blocks`] puts blocks between reading and writing: no copy may stay within a buffer.
    blocks: Option<Held<D>>,
    reads: Reads<D>,
    last: Option<Last>,
    /// Scopes that have ended and whose outcome is not known yet.
    checking: Vec<Checking>,
    failed: Option<BackendError>,
}

/// The last step.
#[derive(Clone, Copy, Debug)]
struct Last {
    dims: Dims,
    /// The staging buffer that holds its small results.
    turn: usize,
}

impl<D: Device> GpuBackend<D> {
    /// Starts making pipelines and buffers. Their errors come out of [`Backend::ready`].
    pub fn new(device: D, plan: Plan) -> Result<Self, BackendError> {
        ingle_graph::plan::check(&plan).map_err(|e| BackendError::Input {
            field: "plan".into(),
            expected: "a plan that passes its check".into(),
            found: e.to_string(),
        })?;
        let inputs = roles(&plan)?;
        let pipelines = Pipelines::start(&device, &plan)?;
        let bytes = plan.weights.iter().map(|w| w.bytes).sum();
        device.begin_scope(Scope::Everything);
        let made =
            Weights::new(&device, &plan).and_then(|w| Ok((w, States::new(&device, &plan, 0)?)));
        let checking = named(device.end_scope(Scope::Everything), "weights", bytes);
        let (weights, states) = made?;
        Ok(GpuBackend {
            tables: Tables::of(&plan),
            device,
            plan,
            inputs,
            pipelines,
            weights,
            states,
            memory: None,
            prepared: None,
            blocks: None,
            reads: Reads::default(),
            last: None,
            checking: vec![checking],
            failed: None,
        })
    }

    /// The device that the plan runs on.
    pub fn gpu(&self) -> &D {
        &self.device
    }

    /// Launches in variant `variant` of entry `entry`, counting each shard.
    pub fn dispatches(&self, entry: usize, variant: usize) -> Option<usize> {
        Some(
            self.prepared
                .as_ref()?
                .entries
                .get(entry)?
                .get(variant)?
                .len(),
        )
    }

    /// Gives the error that happened first, if any has; but that the device is lost says more than what it failed.
    fn check(&mut self) -> Result<(), BackendError> {
        match self.device.fault() {
            Some(lost @ BackendError::DeviceLost { .. }) => self.failed = Some(lost),
            fault if self.failed.is_none() => self.failed = fault,
            _ => {}
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Remembers an error of the device.
    fn fail(&mut self, error: BackendError) -> BackendError {
        let first = self.failed.get_or_insert(error).clone();
        self.check().err().unwrap_or(first)
    }

    /// Runs `make` within a scope whose outcome is checked later.
    fn scoped<T>(
        &mut self,
        what: &str,
        make: impl FnOnce(&mut Self) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        self.check()?;
        self.device.begin_scope(Scope::Everything);
        let made = make(self);
        let checking = named(self.device.end_scope(Scope::Everything), what, 0);
        self.checking.push(checking);
        made
    }

    /// Waits for the outcome of all scopes that have ended.
    async fn settle(&mut self) -> Result<(), BackendError> {
        for checking in std::mem::take(&mut self.checking) {
            if let Err(error) = checking.await {
                return Err(self.fail(error));
            }
        }
        self.check()
    }

    /// Makes params and bind groups if something that they depend on has changed.
    fn prepare(&mut self) -> Result<(), BackendError> {
        if self.prepared.is_some() {
            return Ok(());
        }
        if !self.pipelines.are_made() {
            return Err(input(
                "run",
                "after ready",
                "pipelines that are not made yet",
            ));
        }
        self.scoped("launches", |this| {
            let Some(memory) = &this.memory else {
                return Err(input("run", "bounds", "none set"));
            };
            let positions = memory
                .bounds
                .get(Symbol::Table)
                .saturating_mul(BLOCK_LEN as usize);
            this.tables.reach(&this.device, &this.weights, positions)?;
            let buffers = Buffers {
                weights: &this.weights,
                memory,
                states: &this.states,
                tables: &this.tables,
            };
            let prepared = Prepared::new(
                &this.device,
                &this.plan,
                &this.pipelines,
                &this.inputs,
                &buffers,
            )?;
            this.prepared = Some(prepared);
            Ok(())
        })
    }

    fn outdate(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            prepared.destroy(&self.device);
        }
    }

    /// Copies the blocks of one state to `held` and from there to where they go.
    fn copy_state_blocks(&self, state: usize, block: u64, pairs: &[(u32, u32)], held: &Held<D>) {
        let pool = &self.states.get(state).buffer;
        let out = (0u64..).zip(pairs).map(|(i, &(from, _))| Copy {
            from: pool,
            from_offset: u64::from(from) * block,
            to: &held.buffer,
            to_offset: i * block,
            bytes: block,
        });
        let back = (0u64..).zip(pairs).map(|(i, &(_, to))| Copy {
            from: &held.buffer,
            from_offset: i * block,
            to: pool,
            to_offset: u64::from(to) * block,
            bytes: block,
        });
        self.device.submit(out, [].into_iter(), back);
    }
}

impl<D: Device> Backend for GpuBackend<D> {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> DeviceInfo {
        self.device.info()
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn write_weight(
        &mut self,
        weight: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.check()?;
        self.weights
            .write(&self.device, &self.plan, weight, offset, bytes)
    }

    fn ready(&mut self) -> LocalFuture<'_, Result<(), BackendError>> {
        Box::pin(async move {
            self.settle().await?;
            self.scoped("weights", |this| {
                this.weights.finish(&this.device);
                Ok(())
            })?;
            if let Err(error) = self.pipelines.finish().await {
                return Err(self.fail(error));
            }
            if self.memory.is_some() {
                self.prepare()?;
            }
            self.settle().await
        })
    }

    fn set_bounds(&mut self, bounds: Dims) -> Result<(), BackendError> {
        if self.memory.as_ref().is_some_and(|m| m.bounds == bounds) {
            return self.check();
        }
        let limit = u64::from(
            self.device
                .limits()
                .kernel
                .max_compute_workgroups_per_dimension,
        );
        for symbol in [Symbol::Tokens, Symbol::Outputs] {
            if bounds.get(symbol) as u64 > limit {
                let (what, needed) = (symbol.name().to_owned(), bounds.get(symbol) as u64);
                return Err(BackendError::Limit {
                    what,
                    needed,
                    limit,
                });
            }
        }
        self.scoped("buffers of a step", |this| {
            this.give_up_reads();
            let memory = Memory::new(&this.device, &this.plan, bounds, &mut this.inputs)?;
            if let Some(old) = this.memory.take() {
                memory.keep_results(&this.device, &old);
                old.destroy(&this.device);
            }
            this.memory = Some(memory);
            this.last = None;
            this.outdate();
            Ok(())
        })
    }

    fn resize_pool(&mut self, pool: usize) -> Result<(), BackendError> {
        if pool == self.states.pool {
            return self.check();
        }
        self.scoped("the key-value pool", |this| {
            let states = States::new(&this.device, &this.plan, pool)?;
            states.keep(&this.device, &this.states);
            std::mem::replace(&mut this.states, states).destroy(&this.device);
            this.outdate();
            Ok(())
        })
    }

    fn copy_blocks(&mut self, pairs: &[(u32, u32)]) -> Result<(), BackendError> {
        self.check()?;
        let pool = self.states.pool;
        if let Some(bad) = pairs
            .iter()
            .find(|(from, to)| from.max(to) >= &(pool as u32))
        {
            return Err(input("blocks", format!("below {pool}"), format!("{bad:?}")));
        }
        let block = |s: &State| memory::block_bytes(s).unwrap_or(0);
        let largest = self.plan.states.iter().map(block).max().unwrap_or(0);
        if pairs.is_empty() || largest == 0 {
            return Ok(());
        }
        self.scoped("copies of blocks", |this| {
            let bytes = largest.saturating_mul(pairs.len() as u64);
            if this.blocks.as_ref().is_none_or(|b| b.bytes < bytes) {
                let held = Held::storage(&this.device, "blocks", bytes)?;
                if let Some(old) = this.blocks.replace(held) {
                    this.device.destroy_buffer(&old.buffer);
                }
            }
            if let Some(held) = &this.blocks {
                for (i, state) in this.plan.states.iter().enumerate() {
                    this.copy_state_blocks(i, block(state), pairs, held);
                }
            }
            Ok(())
        })
    }

    fn run(&mut self, entry: usize, dims: &Dims, inputs: &[&[u8]]) -> Result<(), BackendError> {
        self.check()?;
        let Some(chosen) = self.plan.entries.get(entry) else {
            return Err(input(
                "entry",
                format!("below {}", self.plan.entries.len()),
                entry,
            ));
        };
        let Some(variant) = chosen.variants.iter().position(|v| v.admits(dims)) else {
            return Err(input(
                &chosen.name,
                "dims that a variant admits",
                format!("{dims:?}"),
            ));
        };
        let fed = chosen.fed.map(|f| f.0);
        self.prepare()?;
        self.check_step(dims, inputs, fed)?;
        self.device.begin_scope(Scope::Validation);
        self.enqueue(entry, variant, dims, inputs);
        let checking = self.device.end_scope(Scope::Validation);
        self.checking.push(checking);
        Ok(())
    }

    fn begin_read(
        &mut self,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError> {
        self.check()?;
        self.begin(result, offset, bytes as u64)
    }

    fn poll_read(
        &mut self,
        ticket: &Ticket,
        out: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>> {
        self.poll(ticket, out, context)
    }
}

impl<D: Device> Drop for GpuBackend<D> {
    /// Garbage collection frees a browser's buffers late or never.
    fn drop(&mut self) {
        self.outdate();
        self.weights.destroy(&self.device);
        self.tables.destroy(&self.device);
        self.states.destroy(&self.device);
        if let Some(memory) = &self.memory {
            memory.destroy(&self.device);
        }
        self.blocks
            .iter()
            .chain(self.reads.buffers())
            .for_each(|h| self.device.destroy_buffer(&h.buffer));
    }
}

/// Finds which input plays which role, and the row counts that launches need.
fn roles(plan: &Plan) -> Result<StepInputs, BackendError> {
    let mut inputs = StepInputs::default();
    let of = |label: &str| {
        let name = label.to_owned();
        move |reason| BackendError::Kernel { name, reason }
    };
    for entry in &plan.entries {
        for l in entry.variants.iter().flat_map(|v| &v.launches) {
            for (at, role) in launch::index_arguments(&plan.kernels[l.kernel as usize].spec) {
                let input = match (l.arguments.get(at), entry.fed) {
                    (Some(Buffer::Input(i)), _) => *i,
                    (Some(Buffer::Result(r)), Some((input, result))) if *r == result => input,
                    (found, _) => {
                        return Err(of(&l.label)(format!(
                            "{role:?} must be an input, found {found:?}"
                        )));
                    }
                };
                inputs.assign(plan, input, role).map_err(of(&l.label))?;
            }
        }
    }
    weights::launches(plan).for_each(|l| inputs.count(l.rows));
    Ok(inputs)
}

/// Says what an error that a scope caught was about.
fn named(checking: Checking, what: &str, bytes: u64) -> Checking {
    let what = what.to_owned();
    Box::pin(async move {
        checking.await.map_err(|e| match e {
            BackendError::OutOfMemory { .. } => BackendError::OutOfMemory { what, bytes },
            other => other,
        })
    })
}

fn input(field: &str, expected: impl ToString, found: impl ToString) -> BackendError {
    BackendError::Input {
        field: field.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}
