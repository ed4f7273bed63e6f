//! Text and JSON that strangers, or bit rot, may have changed: an error or a graph, never a panic.

mod support;

use std::sync::LazyLock;

use ingle_graph::backend::Backend;
use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, compile, decompose_all, optimise};
use ingle_graph::plan::{self, Plan};
use ingle_graph::suite::{Case, interpreted_only, suite};
use ingle_graph::{Graph, GraphError, Tensor, parse, verify};
use proptest::prelude::*;
use support::executor::Executor;
use support::{AnyTarget, llama};

/// One change to a text: where (as a fraction), what, and with which number.
type Edit = (u16, u8, u8);

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(any::<Edit>(), 1..5)
}

/// Pieces that mean something to the parsers, or are at the border of what a number can be.
const TOKENS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "3",
    "32",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "1e400",
    "NaN",
    "null",
    "%0",
    "%x",
    "@w",
    "tokens",
    "context",
    "f32[]",
    "q4-8.g32.f16[8, 32]",
    "i32[tokens]",
    "matmul",
    "fused",
    "{",
    "}",
    "\n",
];

/// Cuts a text into what may be replaced as one: words and numbers, or single other characters.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let end = match word(first) {
            true => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces
}

fn mutate(text: &str, edits: &[Edit]) -> String {
    let mut pieces = pieces(text);
    for &(at, what, number) in edits {
        let at = usize::from(at) * pieces.len() / (1 << 16);
        let token = TOKENS[usize::from(number) % TOKENS.len()];
        match what % 5 {
            0 => pieces[at] = token,
            1 => pieces.insert(at, token),
            2 => drop(pieces.remove(at)),
            3 => {
                let other = usize::from(number) * pieces.len() / 256;
                pieces.swap(at, other);
            }
            _ => pieces[at] = pieces[usize::from(number) * pieces.len() / 256],
        }
        if pieces.is_empty() {
            break;
        }
    }
    pieces.concat()
}

static GRAPHS: LazyLock<Vec<Graph>> = LazyLock::new(|| {
    let wanted = [
        "attention block",
        "matmul with bias",
        "rope",
        "attention f16",
    ];
    let cases = suite().into_iter().chain(interpreted_only());
    let mut graphs: Vec<Graph> = cases
        .filter(|c| wanted.iter().any(|w| c.name.starts_with(w)))
        .map(|c| c.graph)
        .chain([llama(1)])
        .collect();
    let options = Options::plain(Activations::Int8);
    let fused = optimise(&graphs[0], &options, &AnyTarget, None).unwrap();
    let apart = decompose_all(&graphs[0]).unwrap();
    graphs.extend([fused, apart]);
    graphs
});

static PLANS: LazyLock<Vec<(Case, Plan)>> = LazyLock::new(|| {
    let wanted = ["attention block", "feed-forward", "embedding q8_0", "rope"];
    suite()
        .into_iter()
        .filter(|c| wanted.iter().any(|w| c.name.starts_with(w)))
        .map(|c| {
            let plan = c.compile(&AnyTarget).unwrap();
            (c, plan)
        })
        .collect()
});

/// What is done with a graph that was read.
fn use_graph(graph: &Graph) {
    if verify(graph).is_err() {
        return;
    }
    let text = graph.to_string();
    let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_string(), text);
    for activations in [Activations::F32, Activations::Int8] {
        // An error is an answer; the plan of what compiles is checked on the way.
        let _ = compile(graph, &Options::plain(activations), &AnyTarget);
    }
}

fn use_plan(case: &Case, plan: Plan) {
    if plan::check(&plan).is_err() {
        return;
    }
    let _ = plan.to_string();
    let bytes = |n: u64| n < 1 << 24;
    let fits = plan.weights.iter().all(|w| bytes(w.bytes))
        && plan
            .scratch
            .iter()
            .all(|s| s.bytes.resolve(&case.dims).is_some_and(bytes));
    let admitted = plan
        .entries
        .first()
        .is_some_and(|e| e.variants.iter().any(|v| v.admits(&case.dims)));
    if !fits || !admitted {
        return;
    }
    let data: Vec<Vec<u8>> = case.inputs.iter().map(Tensor::bytes).collect();
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut backend = Executor::new(plan);
    let same_inputs = inputs.len() == backend.plan().inputs.len();
    // Weights stay zeros: what a changed recipe reads is the loader's to check.
    if same_inputs && ports_fit(&backend, case, &inputs) {
        backend.resize_pool(2).unwrap();
        backend.run(0, &case.dims, &inputs).unwrap();
    }
}

/// Whether the inputs have the bytes that the plan's ports say: what a backend checks before it runs.
fn ports_fit(backend: &Executor, case: &Case, inputs: &[&[u8]]) -> bool {
    let plan = backend.plan();
    let size = |shape: &[ingle_graph::Dim]| {
        let mut sizes = shape.iter().map(|d| d.resolve(&case.dims));
        sizes.try_fold(4usize, usize::checked_mul)
    };
    let inputs = plan.inputs.iter().zip(inputs);
    inputs.clone().all(|(p, i)| size(&p.shape) == Some(i.len()))
        && plan
            .results
            .iter()
            .all(|p| size(&p.shape).is_some_and(|n| n < 1 << 24))
        && plan
            .states
            .iter()
            .all(|s| size(&s.shape).is_some_and(|n| n < 1 << 24))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn changed_text_is_an_error_or_a_graph(which in any::<prop::sample::Index>(), edits in edits()) {
        let graph = &GRAPHS[which.index(GRAPHS.len())];
        match parse(&mutate(&graph.to_string(), &edits)) {
            Ok(graph) => use_graph(&graph),
            Err(GraphError::Text { line, .. }) => prop_assert!(line > 0),
            Err(_) => {}
        }
    }

    #[test]
    fn changed_graph_json_is_an_error_or_a_graph(which in any::<prop::sample::Index>(), edits in edits()) {
        let graph = &GRAPHS[which.index(GRAPHS.len())];
        let text = serde_json::to_string(graph).unwrap();
        if let Ok(graph) = serde_json::from_str::<Graph>(&mutate(&text, &edits)) {
            use_graph(&graph);
        }
    }

    #[test]
    fn changed_plan_json_is_an_error_or_runs(which in any::<prop::sample::Index>(), edits in edits()) {
        let (case, plan) = &PLANS[which.index(PLANS.len())];
        let text = serde_json::to_string(plan).unwrap();
        if let Ok(plan) = serde_json::from_str::<Plan>(&mutate(&text, &edits)) {
            use_plan(case, plan);
        }
    }

    #[test]
    fn any_text_is_an_error(text in "\\PC{0,200}") {
        prop_assert!(parse(&text).is_err());
        let inside = ["graph g\n", &text, "\n}"].concat();
        prop_assert!(parse(&inside).is_err());
    }
}

#[test]
fn depth_is_bounded() {
    let open = "%0: f32[] = fused {\n".repeat(100_000);
    assert!(parse(&format!("graph g\n{open}")).is_err());
    let deep = "{\"take\":{\"start\":0,\"end\":1,\"of\":".repeat(100_000);
    assert!(parse(&format!("graph g\nleaf @a: f32[1] = {deep}")).is_err());
    let deep = "[".repeat(100_000);
    assert!(parse(&format!("graph g\n%0: f32[] = constant {{\"value\":{deep}")).is_err());
}

/// Names are looked up, not searched: this would take minutes if each were compared with all others.
#[test]
fn many_definitions_take_time_in_proportion() {
    let mut text = String::from("graph g\n");
    for i in 0..100_000 {
        text += &format!("leaf @a{i}: f32[1]\n");
    }
    assert_eq!(parse(&text).unwrap().leaves.len(), 100_000);
}

#[test]
fn errors_say_where() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(
        error("graph g\n  input %x: f32[tokens, 8]\n\n  %0: f32[tokens, 8] = silu %y\n"),
        "line 4, column 27: expected a value defined before, found %y"
    );
    assert_eq!(
        error("graph g\n  input %x: f31[tokens]\n"),
        "line 2, column 11: expected a type such as f32[tokens, 576], found f31[tokens]"
    );
    let text = "graph g\n  input %x: f32[tokens, 8]\n  %0: f32[tokens, 9] = silu %x\n";
    assert_eq!(
        error(text),
        "line 3, column 5: expected f32[tokens, 8], found f32[tokens, 9]"
    );
}
