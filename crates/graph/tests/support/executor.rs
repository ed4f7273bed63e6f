//! A backend without kernels: each launch is the references of the ops that its spec stands for. Slow and obvious; it
//! shows what lowering and the memory plan made of a graph.
//!
//! Every buffer of a step starts as NaN, so that what nobody wrote is seen.

use std::collections::HashMap;
use std::task::{Context, Poll};

use half::f16;
use ingle_graph::backend::{Backend, BackendError, DeviceInfo, LocalFuture, Ticket};
use ingle_graph::kernel::{Activations, KernelSpec, MatmulSpec, RopeWriteSpec, WeightLayout};
use ingle_graph::ops::{
    Argmax, Embedding, Matmul, Op, QuantizeActivations, Reduce, RmsNorm, Slice, Softmax,
    StateWrite, TakeRows,
};
use ingle_graph::plan::{Access, Buffer, Launch, Plan};
use ingle_graph::{Data, Dim, Dims, Extra, Program, Symbol, Tensor};
use ingle_quant::{ElementType, unpack};

pub struct Executor {
    plan: Plan,
    weights: Vec<Vec<u8>>,
    states: Vec<Tensor>,
    /// What the last step left: inputs, results and scratch.
    buffers: HashMap<Buffer, Data>,
    dims: Dims,
    /// What is being read.
    read: Vec<u8>,
}

impl Executor {
    pub fn new(plan: Plan) -> Self {
        let weights = plan.weights.iter().map(|w| vec![0; w.bytes as usize]);
        Executor {
            weights: weights.collect(),
            states: vec![],
            buffers: HashMap::new(),
            dims: Dims::default(),
            read: vec![],
            plan,
        }
    }

    pub fn states(&self) -> &[Tensor] {
        &self.states
    }

    fn launch(&mut self, launch: &Launch) {
        let spec = self.plan.kernels[launch.kernel as usize].spec.clone();
        let rows = launch.rows.resolve(&self.dims);
        // A workspace may follow what is written.
        let written = spec.arguments();
        let written = written.iter().rposition(|a| a.0 == Access::Write);
        let arguments = &launch.arguments;
        let run = |op: Op, inputs: &[&Tensor]| op.reference(inputs).remove(0);
        let x = |this: &Self, i: usize, width: usize| this.matrix(arguments[i], rows, width);
        let y = match spec {
            KernelSpec::Embedding { .. } => {
                let ids = self.integers(arguments[0], &[rows]);
                run(Embedding {}.into(), &[&ids, &self.weight(arguments[1])])
            }
            KernelSpec::RmsNorm { k, eps } => {
                let weight = self.vector(arguments[1], k);
                run(RmsNorm { eps }.into(), &[&x(self, 0, k), &weight])
            }
            KernelSpec::QuantizeActivations { k } => {
                run(QuantizeActivations {}.into(), &[&x(self, 0, k)])
            }
            KernelSpec::Matmul(m) => self.matmul(&m, arguments, rows),
            KernelSpec::Rope { op, width, factors } => {
                let pos = self.integers(arguments[1], &[rows]);
                let mut inputs = vec![x(self, 0, width), pos];
                inputs.extend(factors.then(|| self.vector(arguments[2], op.rotary_dim / 2)));
                run(op.into(), &inputs.iter().collect::<Vec<_>>())
            }
            KernelSpec::RopeWrite(r) => self.rope_write(&r, arguments, rows),
            KernelSpec::StateWrite {
                kv_heads, head_dim, ..
            } => {
                let [k, v] = [0, 1].map(|i| x(self, i, kv_heads * head_dim));
                let slots = self.integers(arguments[2], &[rows]);
                return self.write_state(arguments[3], &k, &v, &slots);
            }
            KernelSpec::Attention(a) => {
                let [pos, seq] = [2, 3].map(|i| self.integers(arguments[i], &[rows]));
                let shape = [Symbol::Batch, Symbol::Table].map(|s| self.dims.get(s));
                let table = self.integers(arguments[4], &shape);
                let q = x(self, 0, a.op.heads * a.head_dim);
                let pool = self.pool(arguments[1]);
                run(a.op.into(), &[&q, pool, &pos, &seq, &table])
            }
            KernelSpec::Elementwise { n, program } => {
                let extras = &arguments[..program.extras.len()];
                self.program(&program, extras, rows, n, |_, _| vec![])
            }
            KernelSpec::Reduce { k, kind } => run(Reduce { kind }.into(), &[&x(self, 0, k)]),
            KernelSpec::Softmax { k } => run(Softmax {}.into(), &[&x(self, 0, k)]),
            KernelSpec::Slice { k, start, end } => {
                run(Slice { start, end }.into(), &[&x(self, 0, k)])
            }
            KernelSpec::TakeRows { k } => {
                let all = self.floats(arguments[0]);
                let all = self.matrix(arguments[0], all.len() / k, k);
                let index = self.integers(arguments[1], &[rows]);
                run(TakeRows {}.into(), &[&all, &index])
            }
            KernelSpec::Argmax { n } => run(Argmax {}.into(), &[&x(self, 0, n)]),
        };
        let written = written.expect("a kernel writes something");
        self.store(arguments[written], y.data);
    }

    fn matmul(&self, m: &MatmulSpec, arguments: &[Buffer], rows: usize) -> Tensor {
        let mut x = self.matrix(arguments[0], rows, m.k);
        let mut next = 1;
        if let Some(eps) = m.norm {
            let weight = self.vector(arguments[next], m.k);
            x = Op::from(RmsNorm { eps })
                .reference(&[&x, &weight])
                .remove(0);
            next += 1;
        }
        if m.activations == Activations::Int8 {
            x = Op::from(QuantizeActivations {}).reference(&[&x]).remove(0);
        }
        let weight = self.weight(arguments[next]);
        let product = Op::from(Matmul {}).reference(&[&x, &weight]).remove(0);
        let width = weight.shape[0];
        let accumulators = usize::from(m.epilogue.accumulators);
        let extras = &arguments[next + 1..][..m.epilogue.extras.len()];
        self.program(&m.epilogue, extras, rows, m.n, |row, column| {
            let at = |i| product.as_f32()[row * width + i * m.n + column];
            (0..accumulators).map(at).collect()
        })
    }

    fn program(
        &self,
        program: &Program,
        extras: &[Buffer],
        rows: usize,
        n: usize,
        accumulators: impl Fn(usize, usize) -> Vec<f32>,
    ) -> Tensor {
        let extras: Vec<(Extra, Vec<f32>)> = program
            .extras
            .iter()
            .zip(extras)
            .map(|(kind, b)| (*kind, self.floats(*b)))
            .collect();
        let mut out = Vec::with_capacity(rows * n);
        for (row, column) in (0..rows).flat_map(|r| (0..n).map(move |c| (r, c))) {
            let extra: Vec<f32> = extras
                .iter()
                .map(|(kind, data)| match kind {
                    Extra::Full => data[row * n + column],
                    Extra::Column => data[column],
                    Extra::Row => data[row],
                    Extra::Scalar => data[0],
                })
                .collect();
            out.push(program.evaluate(&accumulators(row, column), &extra));
        }
        Tensor::f32(&[rows, n], out)
    }

    fn rope_write(&mut self, r: &RopeWriteSpec, arguments: &[Buffer], rows: usize) -> Tensor {
        let sources = if r.packed { 1 } else { 3 };
        let part = |i: usize, heads: usize| {
            let source = self.matrix(arguments[i.min(sources - 1)], rows, r.widths[i]);
            let start = r.starts[i];
            let end = start + heads * r.head_dim;
            let slice = Op::from(Slice { start, end });
            slice.reference(&[&source]).remove(0)
        };
        let [q, k, v] = [part(0, r.heads), part(1, r.kv_heads), part(2, r.kv_heads)];
        let pos = self.integers(arguments[sources], &[rows]);
        let slots = self.integers(arguments[sources + 1], &[rows]);
        let next = sources + 2;
        let factors = r
            .factors
            .then(|| self.vector(arguments[next], r.rope.rotary_dim / 2));
        let turn = |x: &Tensor| {
            let inputs: Vec<&Tensor> = [x, &pos].into_iter().chain(&factors).collect();
            Op::from(r.rope.clone()).reference(&inputs).remove(0)
        };
        let (q, k) = (turn(&q), turn(&k));
        self.write_state(arguments[next + usize::from(r.factors)], &k, &v, &slots);
        q
    }

    fn write_state(&mut self, pool: Buffer, k: &Tensor, v: &Tensor, slots: &Tensor) {
        let Buffer::State(s) = pool else {
            panic!("{pool:?} is no state")
        };
        let state = &mut self.states[s as usize];
        let write = Op::from(StateWrite {});
        *state = write.reference(&[state, k, v, slots]).remove(0);
        if let (ElementType::F16, Data::F32(data)) =
            (self.plan.states[s as usize].element, &mut state.data)
        {
            for v in data {
                *v = f16::from_f32(*v).to_f32();
            }
        }
    }

    fn pool(&self, buffer: Buffer) -> &Tensor {
        match buffer {
            Buffer::State(s) => &self.states[s as usize],
            other => panic!("{other:?} is no state"),
        }
    }

    fn weight(&self, buffer: Buffer) -> Tensor {
        let Buffer::Weight(w) = buffer else {
            panic!("{buffer:?} is no weight")
        };
        let weight = &self.plan.weights[w as usize];
        let bytes = &self.weights[w as usize];
        let mut out = vec![0.0; weight.rows * weight.k];
        match weight.layout {
            WeightLayout::Packed(layout) => {
                // There may be more bytes than the layout takes.
                let bytes = &bytes[..layout.bytes(weight.rows, weight.k).unwrap()];
                unpack(&layout, bytes, weight.rows, weight.k, &mut out).unwrap();
            }
            WeightLayout::Dense(ElementType::F32) => {
                for (v, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            WeightLayout::Dense(other) => panic!("{other:?} is not what the test target asks for"),
        }
        Tensor::f32(&[weight.rows, weight.k], out)
    }

    fn floats(&self, buffer: Buffer) -> Vec<f32> {
        match buffer {
            Buffer::Weight(_) => self.weight(buffer).as_f32().to_vec(),
            _ => match &self.buffers[&buffer] {
                Data::F32(data) => data.clone(),
                // Words that were written as integers: a scratch has no type.
                Data::I32(data) => data.iter().map(|v| f32::from_bits(*v as u32)).collect(),
            },
        }
    }

    /// The first rows of a buffer: it may be larger than the step needs.
    fn matrix(&self, buffer: Buffer, rows: usize, width: usize) -> Tensor {
        let mut data = self.floats(buffer);
        data.truncate(rows * width);
        Tensor::f32(&[rows, width], data)
    }

    fn vector(&self, buffer: Buffer, n: usize) -> Tensor {
        let mut data = self.floats(buffer);
        data.truncate(n);
        Tensor::f32(&[n], data)
    }

    fn integers(&self, buffer: Buffer, shape: &[usize]) -> Tensor {
        let mut data = match &self.buffers[&buffer] {
            Data::I32(data) => data.clone(),
            Data::F32(data) => data.iter().map(|v| v.to_bits() as i32).collect(),
        };
        data.truncate(shape.iter().product());
        Tensor::i32(shape, data)
    }

    /// Writes the start of a buffer; what was behind it stays.
    fn store(&mut self, buffer: Buffer, data: Data) {
        let words = |data: &Data| -> Vec<u32> {
            match data {
                Data::F32(d) => d.iter().map(|v| v.to_bits()).collect(),
                Data::I32(d) => d.iter().map(|v| *v as u32).collect(),
            }
        };
        let old = words(&self.buffers[&buffer]);
        let mut new = words(&data);
        assert!(new.len() <= old.len(), "{buffer:?} is too small");
        new.extend_from_slice(&old[new.len()..]);
        let data = match data {
            Data::F32(_) => Data::F32(new.into_iter().map(f32::from_bits).collect()),
            Data::I32(_) => Data::I32(new.into_iter().map(|v| v as i32).collect()),
        };
        self.buffers.insert(buffer, data);
    }
}

impl Backend for Executor {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "reference".into(),
            name: "the ops' references".into(),
            details: vec![],
        }
    }

    fn write_weight(&mut self, weight: usize, offset: u64, b: &[u8]) -> Result<(), BackendError> {
        self.weights[weight][offset as usize..][..b.len()].copy_from_slice(b);
        Ok(())
    }

    fn ready(&mut self) -> LocalFuture<'_, Result<(), BackendError>> {
        Box::pin(async { Ok(()) })
    }

    fn set_bounds(&mut self, _bounds: Dims) -> Result<(), BackendError> {
        Ok(())
    }

    fn resize_pool(&mut self, pool: usize) -> Result<(), BackendError> {
        let zeros = |shape: &[Dim]| {
            let dims = Dims::default().with(Symbol::Pool, pool);
            let shape: Vec<usize> = shape.iter().map(|d| d.resolve(&dims)).collect();
            Tensor::f32(&shape, vec![0.0; shape.iter().product()])
        };
        self.states = self.plan.states.iter().map(|s| zeros(&s.shape)).collect();
        Ok(())
    }

    fn copy_blocks(&mut self, pairs: &[(u32, u32)]) -> Result<(), BackendError> {
        for state in &mut self.states {
            let block = state.len() / state.shape[0].max(1);
            if let Data::F32(data) = &mut state.data {
                for &(from, to) in pairs {
                    let from = from as usize * block;
                    data.copy_within(from..from + block, to as usize * block);
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, entry: usize, dims: &Dims, inputs: &[&[u8]]) -> Result<(), BackendError> {
        self.dims = *dims;
        let resolve = |shape: &[Dim]| shape.iter().map(|d| d.resolve(dims)).product::<usize>();
        let nan = |n: usize| Data::F32(vec![f32::NAN; n]);
        for (i, scratch) in (0..).zip(&self.plan.scratch) {
            let bytes = scratch.bytes.resolve(dims).unwrap() as usize;
            self.buffers.insert(Buffer::Scratch(i), nan(bytes / 4));
        }
        let fed = self.plan.entries[entry].fed;
        for (i, port) in (0..).zip(&self.plan.results) {
            if fed.is_none_or(|f| f.1 != i) {
                let elements = resolve(&port.shape);
                self.buffers.insert(Buffer::Result(i), nan(elements));
            }
        }
        for ((i, port), bytes) in (0..).zip(&self.plan.inputs).zip(inputs) {
            let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
            let data = match port.element {
                ElementType::I32 => Data::I32(words.map(i32::from_le_bytes).collect()),
                _ => Data::F32(words.map(f32::from_le_bytes).collect()),
            };
            self.buffers.insert(Buffer::Input(i), data);
        }
        let variants = &self.plan.entries[entry].variants;
        let variant = variants.iter().find(|v| v.admits(dims));
        let launches = variant.expect("dims that the test admits").launches.clone();
        launches.iter().for_each(|l| self.launch(l));
        Ok(())
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn begin_read(
        &mut self,
        result: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Ticket, BackendError> {
        let all: Vec<u8> = match &self.buffers[&Buffer::Result(result as u32)] {
            Data::F32(d) => d.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Data::I32(d) => d.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        self.read = all[offset as usize..][..bytes].to_vec();
        Ok(Ticket(0))
    }

    fn poll_read(
        &mut self,
        _: &Ticket,
        out: &mut [u8],
        _: &mut Context<'_>,
    ) -> Poll<Result<(), BackendError>> {
        out.copy_from_slice(&self.read);
        Poll::Ready(Ok(()))
    }
}

/// Runs a future of a backend that never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}
