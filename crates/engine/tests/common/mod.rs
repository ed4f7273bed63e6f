//! `ReferenceBackend`: executes a plan's graph with the reference interpreter.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../models/tests/reference/mod.rs"]
pub mod reference;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::task::{Context, Poll};

use ingle_engine::{Engine, EngineOptions};
use ingle_graph::backend::{Backend, BackendError, DeviceInfo, LocalFuture, Ticket, given_up};
use ingle_graph::kernel::Activations;
use ingle_graph::ops::KV_BLOCK;
use ingle_graph::passes::{Options, compile, optimise};
use ingle_graph::plan::Plan;
use ingle_graph::{Dims, Graph, Symbol, Tensor, interpret};
use ingle_models::GraphOptions;
use ingle_quant::ElementType;
use reference::*;

/// What a backend was asked to do, for tests to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Run {
        entry: String,
        tokens: usize,
        outputs: usize,
    },
    ResizePool(usize),
    CopyBlocks(Vec<(u32, u32)>),
    /// A read of so many bytes that begins.
    Read(usize),
    /// One that has come.
    Finish,
}

pub struct ReferenceBackend {
    plan: Plan,
    graph: Graph,
    weights: HashMap<String, Tensor>,
    states: Vec<Tensor>,
    results: Vec<Tensor>,
    bounds: Dims,
    /// Whether steps count as running behind; what is read does not change by that.
    pub asynchronous: bool,
    begun: u64,
    reads: VecDeque<(u64, Vec<u8>)>,
    polled: Option<u64>,
    pub calls: Rc<RefCell<Vec<Call>>>,
}

/// The chunk that the tests compile prefill for.
pub const CHUNK: usize = 16;

impl ReferenceBackend {
    pub fn new(loaded: &Loaded) -> Self {
        let graph = loaded
            .model
            .graph(GraphOptions {
                kv: ElementType::F32,
            })
            .unwrap();
        let options = Options::decoder(Activations::F32, CHUNK);
        let target = ReferenceTarget::default();
        let plan = compile(&graph, &options, &target).unwrap();
        let weights = tensors(&plan, &load(&plan, loaded));
        let graph = optimise(&graph, &options, &target, None).unwrap();
        let states = plan.states.iter().map(|s| {
            let shape: Vec<usize> = s.shape.iter().map(|d| d.constant().unwrap_or(0)).collect();
            Tensor::f32(&shape, vec![])
        });
        ReferenceBackend {
            states: states.collect(),
            plan,
            graph,
            weights,
            results: Vec::new(),
            bounds: Dims::default(),
            asynchronous: false,
            begun: 0,
            reads: VecDeque::new(),
            polled: None,
            calls: Rc::default(),
        }
    }

    /// Overwrites a weight with NaN.
    pub fn spoil(&mut self, name: &str) {
        let old = &self.weights[name];
        let spoilt = Tensor::f32(&old.shape, vec![f32::NAN; old.len()]);
        self.weights.insert(name.to_owned(), spoilt);
    }
}

impl Backend for ReferenceBackend {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "reference".into(),
            name: "interpreter".into(),
            details: vec![],
        }
    }

    fn write_weight(&mut self, _: usize, _: u64, _: &[u8]) -> Result<(), BackendError> {
        Ok(())
    }

    fn ready(&mut self) -> LocalFuture<'_, Result<(), BackendError>> {
        Box::pin(async { Ok(()) })
    }

    fn set_bounds(&mut self, bounds: Dims) -> Result<(), BackendError> {
        self.bounds = bounds;
        Ok(())
    }

    fn resize_pool(&mut self, pool: usize) -> Result<(), BackendError> {
        self.calls.borrow_mut().push(Call::ResizePool(pool));
        for state in &mut self.states {
            let mut shape = state.shape.clone();
            let mut data = state.as_f32().to_vec();
            shape[0] = pool;
            // What was never written must never be read: NaN would show.
            data.resize(shape.iter().product(), f32::NAN);
            *state = Tensor::f32(&shape, data);
        }
        Ok(())
    }

    fn copy_blocks(&mut self, pairs: &[(u32, u32)]) -> Result<(), BackendError> {
        self.calls
            .borrow_mut()
            .push(Call::CopyBlocks(pairs.to_vec()));
        for state in &mut self.states {
            let size: usize = state.shape[1..].iter().product();
            let mut data = state.as_f32().to_vec();
            for &(from, to) in pairs {
                data.copy_within(
                    from as usize * size..(from as usize + 1) * size,
                    to as usize * size,
                );
            }
            *state = Tensor::f32(&state.shape.clone(), data);
        }
        Ok(())
    }

    fn run(&mut self, entry: usize, dims: &Dims, inputs: &[&[u8]]) -> Result<(), BackendError> {
        let entry = &self.plan.entries[entry];
        assert!(
            entry.variants.iter().any(|v| v.admits(dims)),
            "{}: no variant admits {dims:?}",
            entry.name
        );
        for symbol in [
            Symbol::Tokens,
            Symbol::Outputs,
            Symbol::Batch,
            Symbol::Table,
        ] {
            assert!(
                dims.get(symbol) <= self.bounds.get(symbol),
                "{symbol:?} is beyond its bound"
            );
        }
        let call = Call::Run {
            entry: entry.name.clone(),
            tokens: dims.get(Symbol::Tokens),
            outputs: dims.get(Symbol::Outputs),
        };
        self.calls.borrow_mut().push(call);
        let mut values = Vec::new();
        for (i, (port, bytes)) in self.plan.inputs.iter().zip(inputs).enumerate() {
            let shape: Vec<usize> = port.shape.iter().map(|d| d.resolve(dims)).collect();
            let fed = entry.fed.filter(|fed| fed.0 as usize == i);
            values.push(match fed {
                Some((_, result)) => self.results[result as usize].clone(),
                None => Tensor::i32(
                    &shape,
                    bytes
                        .as_chunks::<4>()
                        .0
                        .iter()
                        .map(|b| i32::from_le_bytes(*b))
                        .collect(),
                ),
            });
        }
        assert_eq!(self.states[0].shape[0], dims.get(Symbol::Pool));
        let all: Vec<&Tensor> = values.iter().chain(&self.states).collect();
        let mut results =
            interpret(&self.graph, &all, |name| self.weights.get(name).cloned()).unwrap();
        self.states = results.split_off(self.plan.results.len());
        self.results = results;
        Ok(())
    }

    fn is_asynchronous(&self) -> bool {
        self.asynchronous
    }

    fn begin_read(
        &mut self,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError> {
        self.calls.borrow_mut().push(Call::Read(bytes));
        let all = self.results[result].bytes();
        self.begun += 1;
        self.reads
            .push_back((self.begun, all[offset as usize..][..bytes].to_vec()));
        if self.reads.len() > 2 {
            self.reads.pop_front();
        }
        Ok(Ticket(self.begun))
    }

    fn poll_read(
        &mut self,
        ticket: &Ticket,
        out: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>> {
        // The first time it is not there yet, as with a device.
        if self.asynchronous && self.polled.replace(ticket.0) != Some(ticket.0) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(at) = self.reads.iter().position(|r| r.0 == ticket.0) else {
            return Poll::Ready(Err(given_up(ticket)));
        };
        let (_, bytes) = self.reads.remove(at).unwrap();
        self.calls.borrow_mut().push(Call::Finish);
        out.copy_from_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

/// An engine on the tiny model, and the list of what its backend is asked to do.
pub fn tiny_engine(options: EngineOptions) -> (Engine, Rc<RefCell<Vec<Call>>>) {
    let backend = ReferenceBackend::new(&tiny_gguf());
    let calls = backend.calls.clone();
    (Engine::new(Box::new(backend), options).unwrap(), calls)
}

/// The same, as on a device that runs behind.
pub fn asynchronous_engine(options: EngineOptions) -> (Engine, Rc<RefCell<Vec<Call>>>) {
    let mut backend = ReferenceBackend::new(&tiny_gguf());
    backend.asynchronous = true;
    let calls = backend.calls.clone();
    (Engine::new(Box::new(backend), options).unwrap(), calls)
}

/// Room for two sequences of the tiny model's whole context, and for forks.
pub fn options() -> EngineOptions {
    EngineOptions {
        context: 128,
        batch: 2,
        outputs: CHUNK,
        growth: 1,
        blocks: 16,
    }
}

pub fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 37 % 96) as u32).collect()
}

/// Positions of a block, for readers.
pub const BLOCK: usize = KV_BLOCK;
