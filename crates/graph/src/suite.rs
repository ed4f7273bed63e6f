//! The op suite as data: small graphs with inputs and weights, which every backend compiles, runs and compares with the
//! reference interpreter. A case that an op's file adds is picked up by all of them.

use std::borrow::Cow;
use std::collections::HashMap;

use ingle_quant::{ElementType, GgmlType, dequantize, quantize};

use crate::backend::{Backend, BackendError, ReadBack};
use crate::kernel::Activations;
use crate::ops::{KV_BLOCK, Op, Runs};
use crate::passes::{Options, Target, compile};
use crate::plan::{PackError, Plan, SourceRows};
use crate::{Dim, Dims, Graph, GraphError, Recipe, Symbol, Tensor, ValueId, ValueType, interpret};

/// A weight's bytes, as a file would hold them.
#[derive(Clone, Debug)]
pub struct Source {
    pub ty: GgmlType,
    pub rows: usize,
    pub k: usize,
    pub bytes: Vec<u8>,
}

/// One case: a graph, what it runs on, and how exactly a backend must agree.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub graph: Graph,
    pub dims: Dims,
    /// Values of the inputs that are not states, by position. States start as zeros.
    pub inputs: Vec<Tensor>,
    pub sources: HashMap<String, Source>,
    pub activations: Activations,
    /// Largest difference, relative to the largest magnitude of the expected result.
    pub tolerance: f32,
}

/// All cases that every backend runs: those of all ops that backends compute, and of fused combinations.
pub fn suite() -> Vec<Case> {
    cases_of(|runs| runs != Runs::Interpreted)
}

/// The cases of the ops that no backend computes, because composite ops are made of them: what decomposes into them has
/// kernels, and passes put it together again before lowering. They are run by the interpreter, through every pass and
/// through the text form, like the others.
pub fn interpreted_only() -> Vec<Case> {
    cases_of(|runs| runs == Runs::Interpreted)
}

fn cases_of(wanted: impl Fn(Runs) -> bool) -> Vec<Case> {
    let mut suite = Suite::new(1);
    Op::cases(&mut suite, wanted);
    suite.cases
}

impl Case {
    /// The expected results, states left out, on the graph as the activation policy makes it.
    pub fn expected(&self) -> Result<Vec<Tensor>, GraphError> {
        let graph = crate::passes::with_policy(&self.graph, self.activations)?;
        self.expected_of(&graph)
    }

    /// The results of another graph with the same inputs and sources, states left out.
    pub fn expected_of(&self, graph: &Graph) -> Result<Vec<Tensor>, GraphError> {
        let shown = graph.results.iter().map(|v| !graph.ty(*v).state);
        let results = self.results_of(graph)?.into_iter().zip(shown);
        Ok(results.filter(|r| r.1).map(|r| r.0).collect())
    }

    /// All results of a graph with the same inputs and sources, the last versions of states among them.
    pub fn results_of(&self, graph: &Graph) -> Result<Vec<Tensor>, GraphError> {
        let mut given = self.inputs.iter();
        let mut inputs = Vec::new();
        for &v in &graph.inputs {
            let ty = graph.ty(v);
            if ty.state {
                let shape: Vec<usize> = ty.shape.iter().map(|d| d.resolve(&self.dims)).collect();
                inputs.push(Cow::Owned(Tensor::f32(
                    &shape,
                    vec![0.0; shape.iter().product()],
                )));
            } else {
                let missing = || GraphError::MissingLeaf {
                    what: "suite",
                    name: graph.values[v.index()].name.clone(),
                };
                inputs.push(Cow::Borrowed(given.next().ok_or_else(missing)?));
            }
        }
        let inputs: Vec<&Tensor> = inputs.iter().map(|t| t.as_ref()).collect();
        interpret(graph, &inputs, |name| {
            let leaf = graph.leaves.iter().find(|l| l.name == name)?;
            self.leaf(&leaf.recipe, graph.ty(leaf.value))
        })
    }

    fn leaf(&self, recipe: &Recipe, ty: &ValueType) -> Option<Tensor> {
        let shape: Vec<usize> = ty.shape.iter().map(|d| d.resolve(&self.dims)).collect();
        let mut values = Vec::new();
        for piece in recipe.pieces(0..recipe.rows()) {
            let source = self.sources.get(piece.source)?;
            let row = source.ty.row_bytes(source.k).ok()?;
            let mut out = vec![0.0; piece.rows.len() * source.k];
            dequantize(
                source.ty,
                &source.bytes[piece.rows.start * row..piece.rows.end * row],
                &mut out,
            )
            .ok()?;
            let (scale, shift) = piece.affine;
            if piece.affine != (1.0, 0.0) {
                out.iter_mut().for_each(|v| *v = scale * *v + shift);
            }
            values.extend(out);
        }
        Some(Tensor::f32(&shape, values))
    }

    /// Compiles the case for `target`.
    pub fn compile(&self, target: &dyn Target) -> Result<Plan, GraphError> {
        compile(&self.graph, &Options::plain(self.activations), target)
    }

    /// Writes all weights of the backend's plan.
    pub fn load(&self, backend: &mut dyn Backend) -> Result<(), SuiteError> {
        let weights = backend.plan().weights.clone();
        for (i, weight) in weights.iter().enumerate() {
            let mut source =
                |name: &str, rows: std::ops::Range<usize>| -> Result<SourceRows<'_>, SuiteError> {
                    let s = self
                        .sources
                        .get(name)
                        .ok_or_else(|| SuiteError::Source(name.to_owned()))?;
                    let row =
                        s.ty.row_bytes(s.k)
                            .map_err(|e| SuiteError::Source(e.to_string()))?;
                    Ok(SourceRows {
                        ty: s.ty,
                        bytes: Cow::Borrowed(&s.bytes[rows.start * row..rows.end * row]),
                    })
                };
            weight.pack(0..weight.rows, &mut source, &mut |offset, bytes| {
                Ok(backend.write_weight(i, offset, bytes)?)
            })?;
        }
        Ok(())
    }

    /// Runs the case on a backend that was made with [`Case::compile`]'s plan, and compares.
    pub async fn run(&self, backend: &mut dyn Backend) -> Result<(), SuiteError> {
        self.load(backend)?;
        backend.set_bounds(self.dims)?;
        backend.resize_pool(self.dims.get(Symbol::Pool))?;
        backend.ready().await?;
        let bytes: Vec<Vec<u8>> = self.inputs.iter().map(Tensor::bytes).collect();
        let inputs: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        backend.run(0, &self.dims, &inputs)?;
        for (i, expected) in self.expected()?.into_iter().enumerate() {
            let mut out = vec![0u8; expected.bytes().len()];
            backend.read(i, 0, &mut out).await?;
            self.compare(&expected, &out)?;
        }
        Ok(())
    }

    fn compare(&self, expected: &Tensor, found: &[u8]) -> Result<(), SuiteError> {
        let differs = |at: usize, expected: String, found: String| {
            Err(SuiteError::Differs {
                case: self.name.clone(),
                at,
                expected,
                found,
            })
        };
        let words = found.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        match &expected.data {
            crate::Data::I32(want) => {
                for (i, (w, b)) in want.iter().zip(words).enumerate() {
                    let got = i32::from_le_bytes(b);
                    if got != *w {
                        return differs(i, w.to_string(), got.to_string());
                    }
                }
            }
            crate::Data::F32(want) => {
                let most = want
                    .iter()
                    .filter(|v| v.is_finite())
                    .fold(1e-20f32, |m, v| m.max(v.abs()));
                for (i, (w, b)) in want.iter().zip(words).enumerate() {
                    let got = f32::from_le_bytes(b);
                    let same =
                        (w.is_nan() && got.is_nan()) || (got - w).abs() <= self.tolerance * most;
                    if !same {
                        return differs(i, w.to_string(), got.to_string());
                    }
                }
            }
        }
        Ok(())
    }
}

/// What can go wrong in a case.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SuiteError {
    #[error("{case}: element {at}: expected {expected}, found {found}")]
    Differs {
        case: String,
        at: usize,
        expected: String,
        found: String,
    },
    #[error("no source {0}")]
    Source(String),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Collects cases.
pub struct Suite {
    cases: Vec<Case>,
    seed: u64,
}

impl Suite {
    /// No cases yet; `seed` decides what the random values will be.
    pub fn new(seed: u64) -> Self {
        Suite {
            cases: vec![],
            seed,
        }
    }

    pub fn into_cases(self) -> Vec<Case> {
        self.cases
    }

    /// Starts a case with 1 token; the builder's `build` adds it.
    pub fn case(&mut self, name: impl Into<String>) -> CaseBuilder<'_> {
        self.seed += 1;
        let random = Random(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let name = name.into();
        let case = Case {
            graph: Graph::new(name.clone()),
            name,
            dims: Dims::default()
                .with(Symbol::Tokens, 1)
                .with(Symbol::Outputs, 1)
                .with(Symbol::Batch, 1)
                .with(Symbol::Table, 1)
                .with(Symbol::Pool, 1),
            inputs: vec![],
            sources: HashMap::new(),
            activations: Activations::F32,
            tolerance: 2e-5,
        };
        CaseBuilder {
            suite: self,
            case,
            random,
        }
    }
}

/// A small linear congruential generator (Knuth's MMIX constants), so that cases are the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Uniform in `-1..1`.
    pub fn unit(&mut self) -> f32 {
        (f64::from(self.bits()) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n.max(1)
    }
}

/// Builds one case.
pub struct CaseBuilder<'a> {
    suite: &'a mut Suite,
    case: Case,
    pub random: Random,
}

impl CaseBuilder<'_> {
    pub fn dims(mut self, symbols: &[(Symbol, usize)]) -> Self {
        symbols.iter().for_each(|&(s, n)| self.case.dims.set(s, n));
        self
    }

    pub fn tokens(self, n: usize) -> Self {
        self.dims(&[(Symbol::Tokens, n)])
    }

    pub fn int8(mut self) -> Self {
        self.case.activations = Activations::Int8;
        self.tolerance(2e-5)
    }

    pub fn tolerance(mut self, tolerance: f32) -> Self {
        self.case.tolerance = tolerance;
        self
    }

    /// An `f32` input with random values in `±range`.
    pub fn f32(&mut self, name: &str, shape: Vec<Dim>, range: f32) -> ValueId {
        let resolved: Vec<usize> = shape.iter().map(|d| d.resolve(&self.case.dims)).collect();
        let data = (0..resolved.iter().product())
            .map(|_| self.random.unit() * range)
            .collect();
        self.given(name, ValueType::f32(shape), Tensor::f32(&resolved, data))
    }

    /// An input with these values.
    pub fn given(&mut self, name: &str, ty: ValueType, values: Tensor) -> ValueId {
        self.case.inputs.push(values);
        self.case.graph.input(name, ty)
    }

    pub fn i32(&mut self, name: &str, shape: Vec<Dim>, values: Vec<i32>) -> ValueId {
        let resolved: Vec<usize> = shape.iter().map(|d| d.resolve(&self.case.dims)).collect();
        self.given(name, ValueType::i32(shape), Tensor::i32(&resolved, values))
    }

    pub fn state(
        &mut self,
        name: &str,
        element: ElementType,
        heads: usize,
        head_dim: usize,
    ) -> ValueId {
        let shape = crate::shape![Symbol::Pool, 2, heads, KV_BLOCK, head_dim];
        self.case
            .graph
            .input(name, ValueType::state(element, shape))
    }

    /// A weight `[rows, k]` of a file type, with random contents.
    pub fn weight(&mut self, name: &str, ty: GgmlType, rows: usize, k: usize) -> ValueId {
        let bytes = self.blocks(ty, rows, k);
        self.case
            .sources
            .insert(name.into(), Source { ty, rows, k, bytes });
        let storage = ty.storage().expect("the suite names readable types");
        let ty = ValueType {
            storage,
            shape: crate::shape![rows, k],
            state: false,
        };
        self.case
            .graph
            .leaf(name, ty, Recipe::source(name, rows))
            .expect("names in a case are unique")
    }

    /// A vector `[n]` of `f32`.
    pub fn vector(&mut self, name: &str, n: usize) -> ValueId {
        let bytes = (0..n)
            .flat_map(|_| (1.0 + 0.5 * self.random.unit()).to_le_bytes())
            .collect();
        self.case.sources.insert(
            name.into(),
            Source {
                ty: GgmlType::F32,
                rows: n,
                k: 1,
                bytes,
            },
        );
        let ty = ValueType::f32(crate::shape![n]);
        self.case
            .graph
            .leaf(name, ty, Recipe::source(name, n))
            .expect("names in a case are unique")
    }

    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.case
            .graph
            .push(op, inputs)
            .expect("the suite's graphs are well typed")
    }

    /// Declares the result `y` (and states' last versions) and adds the case.
    pub fn build(mut self, results: &[ValueId]) {
        for (i, &v) in results.iter().enumerate() {
            let name = if i == 0 {
                "y".to_owned()
            } else {
                format!("y{i}")
            };
            self.case.graph.result(name, v);
        }
        self.suite.cases.push(self.case);
    }

    /// Random blocks: quantised from random values where the type can be, else random codes with sane scales.
    fn blocks(&mut self, ty: GgmlType, rows: usize, k: usize) -> Vec<u8> {
        let values: Vec<f32> = (0..rows * k).map(|_| self.random.unit()).collect();
        let mut bytes =
            vec![0u8; ty.row_bytes(k).expect("the suite's rows are whole blocks") * rows];
        if quantize(ty, &values, &mut bytes).is_ok() {
            return bytes;
        }
        bytes.iter_mut().for_each(|b| *b = self.random.bits() as u8);
        let scale = half_bytes(0.01);
        for block in bytes.chunks_exact_mut(ty.block_bytes()) {
            match ty {
                GgmlType::Q6_K => block[208..210].copy_from_slice(&scale),
                _ => {
                    [block[0], block[1], block[2], block[3]] =
                        [scale[0], scale[1], scale[0], scale[1]]
                }
            }
        }
        bytes
    }
}

fn half_bytes(value: f32) -> [u8; 2] {
    half::f16::from_f32(value).to_le_bytes()
}
