//! The pipeline: one list on one screen.
//!
//! `compile(graph, target) -> Plan`: each pass is a function from graph to graph with a header that says what it needs
//! and gives; the graph is verified after each. The last step lowers the graph to a plan.

mod fold;
mod fuse;
mod inline;
mod launches;
mod lower;
mod memory;
mod merge;
mod outline;
mod quantize;
mod recognise;
mod region;
mod trace;

pub use inline::{decompose, decompose_all, inline};
pub use lower::lower;
pub use trace::{Stage, Trace};

use serde::{Deserialize, Serialize};

use crate::kernel::{Activations, KernelSpec, MatmulSpec, WeightLayout};
use crate::plan::{Guard, KernelText, Plan, Size};
use crate::{Graph, GraphError, Symbol, verify};

/// What a compilation depends on besides the graph and the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// How activations enter matmuls of quantised weights.
    pub activations: Activations,
    pub entries: Vec<EntryOptions>,
}

/// An entry to compile: its name, what is fed back, and the guards of its variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryOptions {
    pub name: String,
    /// `(input name, result name)`: the input is taken from the last step's result.
    pub fed: Option<(String, String)>,
    pub variants: Vec<Vec<Guard>>,
}

impl Options {
    /// The entries of a decoder: `decode` (one token, fed back) and `prefill` (any number up to `chunk`).
    pub fn decoder(activations: Activations, chunk: usize) -> Self {
        let guards = |tokens: (usize, usize), outputs: (usize, usize)| {
            vec![
                Guard {
                    symbol: Symbol::Tokens,
                    low: tokens.0,
                    high: tokens.1,
                },
                Guard {
                    symbol: Symbol::Outputs,
                    low: outputs.0,
                    high: outputs.1,
                },
            ]
        };
        let mut prefill = vec![guards((1, 1), (0, 1))];
        for tokens in [(2, 8), (9, chunk)] {
            if tokens.0 <= chunk {
                let high = tokens.1.min(chunk);
                prefill.push(guards((tokens.0, high), (0, 1)));
                prefill.push(guards((tokens.0, high), (2, high)));
            }
        }
        let entry = |name: &str, fed, variants| EntryOptions {
            name: name.into(),
            fed,
            variants,
        };
        Options {
            activations,
            entries: vec![
                entry(
                    "decode",
                    Some(("ids".into(), "next".into())),
                    vec![guards((1, 1), (0, 1))],
                ),
                entry("prefill", None, prefill),
            ],
        }
    }

    /// One entry without guards, for graphs that are not decoders.
    pub fn plain(activations: Activations) -> Self {
        Options {
            activations,
            entries: vec![EntryOptions {
                name: "run".into(),
                fed: None,
                variants: vec![vec![]],
            }],
        }
    }
}

/// What a target chose for a spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub candidate: String,
    pub why: String,
    pub text: Option<KernelText>,
    /// Workspace bytes, as a function of the launch's rows (`symbol` is replaced by the launch's).
    pub workspace: Option<Size>,
}

/// How many rows a launch may have, from the variant's guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRange {
    pub low: usize,
    pub high: usize,
}

/// What the passes ask a backend. Kernel selection is data there: ordered candidates with guards.
pub trait Target {
    fn name(&self) -> String;

    /// The layout for a weight `[rows, k]`, or why there is none.
    fn layout(
        &self,
        storage: ingle_quant::Storage,
        rows: usize,
        k: usize,
    ) -> Result<WeightLayout, String>;

    /// Bytes of a weight in this layout; `None` on overflow.
    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64>;

    /// Whether a matmul may compute its norm itself; otherwise the norm is a launch of its own.
    fn fuses_norm(&self, spec: &MatmulSpec, rows: RowRange) -> bool;

    /// Whether a matmul may quantise its activations itself; otherwise that is a launch of its own (and so
    /// is the norm before it), and the matmul reads its values as `f32`.
    fn fuses_quantize(&self, _spec: &MatmulSpec, _rows: RowRange) -> bool {
        true
    }

    /// How many extra inputs an epilogue may read.
    fn max_extras(&self) -> usize;

    /// Chooses a kernel for `spec`, or says why there is none.
    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String>;
}

/// The graph as the policy on activations makes it: what a backend must compute.
pub fn with_policy(graph: &Graph, activations: Activations) -> Result<Graph, GraphError> {
    quantize::quantize(graph, activations, &mut Trace::default())
}

/// One pass.
pub struct Pass {
    pub name: &'static str,
    /// The names of its rewrites, as a [`Trace`] counts them.
    pub rewrites: fn() -> Vec<&'static str>,
    run: fn(&Graph, &Options, &dyn Target, &mut Trace) -> Result<Graph, GraphError>,
}

/// All passes, in order.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "fold",
        rewrites: || vec!["drop_dead", "share_equal", "fold_constants", "edit_leaf"],
        run: |g, _, _, trace| fold::fold(g, trace),
    },
    Pass {
        name: "recognise",
        rewrites: recognise::rewrites,
        run: |g, _, _, trace| recognise::recognise(g, trace),
    },
    Pass {
        name: "quantize",
        rewrites: || vec!["quantize_activations"],
        run: |g, o, _, trace| quantize::quantize(g, o.activations, trace),
    },
    Pass {
        name: "merge",
        rewrites: || vec!["merge_projections", "merge_biased"],
        run: |g, _, _, trace| merge::merge(g, trace),
    },
    Pass {
        name: "fuse",
        rewrites: || vec!["prologue", "gate_up", "epilogue", "rope_write", "chain"],
        run: |g, _, t, trace| fuse::fuse(g, t.max_extras(), trace),
    },
];

/// The names of the passes, for `--dump-after`.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PASSES.iter().map(|p| p.name)
}

/// Runs the passes up to and including `last` (all of them if `None`), verifying after each.
pub fn optimise(
    graph: &Graph,
    options: &Options,
    target: &dyn Target,
    last: Option<&str>,
) -> Result<Graph, GraphError> {
    verify(graph)?;
    let mut graph = graph.clone();
    for pass in PASSES {
        graph = apply(pass, &graph, options, target)?.graph;
        if last == Some(pass.name) {
            break;
        }
    }
    Ok(graph)
}

/// Runs all passes, verifying after each, and gives what each made of the graph.
pub fn stages(
    graph: &Graph,
    options: &Options,
    target: &dyn Target,
) -> Result<Vec<Stage>, GraphError> {
    verify(graph)?;
    let mut stages: Vec<Stage> = Vec::with_capacity(PASSES.len());
    for pass in PASSES {
        let before = stages.last().map_or(graph, |s| &s.graph);
        stages.push(apply(pass, before, options, target)?);
    }
    Ok(stages)
}

fn apply(
    pass: &Pass,
    graph: &Graph,
    options: &Options,
    target: &dyn Target,
) -> Result<Stage, GraphError> {
    let mut trace = Trace::default();
    let graph = (pass.run)(graph, options, target, &mut trace)?;
    verify(&graph)?;
    Ok(Stage {
        pass: pass.name,
        graph,
        trace,
    })
}

/// Compiles a graph for a target.
pub fn compile(graph: &Graph, options: &Options, target: &dyn Target) -> Result<Plan, GraphError> {
    let graph = optimise(graph, options, target, None)?;
    let plan = lower(&graph, options, target)?;
    crate::plan::check(&plan)?;
    Ok(plan)
}
