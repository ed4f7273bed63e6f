//! Random graphs: every pass keeps what a graph means, every rewrite fires often, and wrong rewrites are seen.

mod support;

use std::collections::BTreeMap;

use ingle_graph::backend::{Backend, ReadBack};
use ingle_graph::kernel::Activations;
use ingle_graph::ops::{Op, QuantizeActivations};
use ingle_graph::passes::{Options, PASSES, Stage, decompose, lower, stages};
use ingle_graph::plan::Plan;
use ingle_graph::suite::Case;
use ingle_graph::{Graph, Tensor, ValueId, plan, verify};
use support::executor::{Executor, now};
use support::{AnyTarget, Fusing, differs, random, wrong};

/// Enough that each rewrite fires at least [`FIRINGS`] times.
const GRAPHS: u64 = 900;
const FIRINGS: usize = 50;

/// Whether a pass that made `after` of `before` kept what it means; else what differs.
fn keeps_meaning(case: &Case, before: &Graph, pass: &str, after: &Graph) -> Result<(), String> {
    let expected = results(case, &meaning(before, pass, case.activations));
    let found = results(case, after);
    // Only these compute the same in another order; the others must not change a bit.
    let tolerance = match pass {
        "fold" | "recognise" => 1e-5,
        _ => 0.0,
    };
    match differs(&expected, &found, tolerance) {
        Some(difference) => Err(format!("after {pass}: {difference}")),
        None => Ok(()),
    }
}

fn stages_of(case: &Case) -> Vec<Stage> {
    let options = Options::plain(case.activations);
    stages(&case.graph, &options, &AnyTarget)
        .unwrap_or_else(|e| panic!("{}: {e}\n{}", case.name, case.graph))
}

fn results(case: &Case, graph: &Graph) -> Vec<Tensor> {
    case.results_of(graph).expect("the graph was verified")
}

/// What a pass must give: the same, except that one pass quantises activations.
fn meaning(graph: &Graph, pass: &str, activations: Activations) -> Graph {
    if pass != "quantize" || activations == Activations::F32 {
        return graph.clone();
    }
    // Every product of a quantised weight reads its own quantised copy.
    let mut copy = graph.clone();
    copy.nodes.clear();
    let mut map: Vec<Option<ValueId>> = (0..graph.values.len() as u32)
        .map(|v| graph.producer(ValueId(v)).is_none().then_some(ValueId(v)))
        .collect();
    for node in &graph.nodes {
        let mut inputs: Vec<ValueId> = node
            .inputs
            .iter()
            .map(|v| map[v.index()].unwrap())
            .collect();
        if matches!(node.op, Op::Matmul(_)) && graph.ty(node.inputs[1]).is_quantised() {
            inputs[0] = copy.push(QuantizeActivations {}, &inputs[..1]).unwrap();
        }
        let outputs = copy.node(node.op.clone(), &inputs).unwrap();
        for (old, new) in node.outputs.iter().zip(outputs) {
            map[old.index()] = Some(new);
        }
    }
    copy.results = graph
        .results
        .iter()
        .map(|v| map[v.index()].unwrap())
        .collect();
    copy
}

/// Runs the plan of an optimised graph on the references. Element-wise ops become steps that round one by one, so the
/// graph is taken apart as far before it is compared.
fn plan_keeps_meaning(case: &Case, graph: &Graph, plan: Plan) -> Result<(), String> {
    let elementwise = |op: &Op| matches!(op, Op::Fused(_) | Op::Swiglu(_) | Op::Softcap(_));
    let apart = decompose(graph, &elementwise).map_err(|e| e.to_string())?;
    let expected = case.expected_of(&apart).map_err(|e| e.to_string())?;
    let mut backend = Executor::new(plan);
    case.load(&mut backend).map_err(|e| e.to_string())?;
    backend.resize_pool(2).map_err(|e| e.to_string())?;
    let bytes: Vec<Vec<u8>> = case.inputs.iter().map(Tensor::bytes).collect();
    let inputs: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    backend
        .run(0, &case.dims, &inputs)
        .map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    for (i, want) in expected.iter().enumerate() {
        let mut out = vec![0u8; want.bytes().len()];
        now(backend.read(i, 0, &mut out)).map_err(|e| e.to_string())?;
        let words = out.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        found.push(Tensor::f32(
            &want.shape,
            words.map(f32::from_le_bytes).collect(),
        ));
    }
    match differs(&expected, &found, 0.0) {
        Some(difference) => Err(format!("the plan: {difference}")),
        None => Ok(()),
    }
}

fn plan_of(case: &Case, graph: &Graph, number: u64) -> Plan {
    let target = Fusing::ALL[number as usize / 4 % Fusing::ALL.len()];
    lower(graph, &Options::plain(case.activations), &target)
        .unwrap_or_else(|e| panic!("{}: {e}\n{graph}", case.name))
}

#[test]
fn every_pass_keeps_the_meaning_and_every_rewrite_fires() {
    let mut fired: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..GRAPHS {
        let case = random::case(number);
        let mut before = &case.graph;
        let stages = stages_of(&case);
        for stage in &stages {
            keeps_meaning(&case, before, stage.pass, &stage.graph)
                .unwrap_or_else(|e| panic!("{}: {e}\n{before}\n{}", case.name, stage.graph));
            before = &stage.graph;
            for (rewrite, count) in stage.trace.iter() {
                *fired.entry(rewrite).or_default() += count;
            }
        }
        let plan = plan_of(&case, before, number);
        plan::check(&plan).unwrap_or_else(|e| panic!("{}: {e}\n{plan}", case.name));
        plan_keeps_meaning(&case, before, plan.clone())
            .unwrap_or_else(|e| panic!("{}: {e}\n{before}\n{plan}", case.name));
    }
    for rewrite in PASSES.iter().flat_map(|p| (p.rewrites)()) {
        let count = fired.get(rewrite).copied().unwrap_or_default();
        assert!(count >= FIRINGS, "{rewrite} fired {count} times: {fired:?}");
    }
}

/// How often each wrong rewrite is tried, and how often the comparison above must see it: now and then one changes
/// nothing, as where both halves of what it exchanges are equal.
const TRIES: usize = 12;
const SEEN: usize = 10;

#[test]
fn wrong_rewrites_are_seen() {
    let mut counts = vec![(0, 0); wrong::REWRITES.len()];
    for number in 0..GRAPHS {
        if counts.iter().all(|c| c.0 >= TRIES) {
            break;
        }
        let case = random::case(number);
        let mut before = case.graph.clone();
        for stage in stages_of(&case) {
            let here = wrong::REWRITES.iter().zip(&mut counts);
            for (wrong, count) in here.filter(|(w, c)| w.pass == stage.pass && c.0 < TRIES) {
                let mut graph = stage.graph.clone();
                if (wrong.change)(&mut graph) {
                    verify(&graph).unwrap_or_else(|e| panic!("{}: {e}", wrong.name));
                    count.0 += 1;
                    let kept = keeps_meaning(&case, &before, stage.pass, &graph);
                    count.1 += usize::from(kept.is_err());
                }
            }
            before = stage.graph;
        }
    }
    for (wrong, (tried, seen)) in wrong::REWRITES.iter().zip(counts) {
        let name = format!("{} in {}", wrong.name, wrong.pass);
        assert!(
            tried == TRIES && seen >= SEEN,
            "{name}: seen {seen} of {tried} times"
        );
    }
}

#[test]
fn wrong_plans_are_seen() {
    let mut counts = vec![(0, 0); wrong::PLANS.len()];
    for number in 0..GRAPHS {
        if counts.iter().all(|c| c.0 >= TRIES) {
            break;
        }
        let case = random::case(number);
        let stages = stages_of(&case);
        let graph = &stages[stages.len() - 1].graph;
        let plan = plan_of(&case, graph, number);
        let here = wrong::PLANS.iter().zip(&mut counts);
        for ((_, change), count) in here.filter(|(_, c)| c.0 < TRIES) {
            let mut plan = plan.clone();
            if change(&mut plan) {
                count.0 += 1;
                let kept = plan_keeps_meaning(&case, graph, plan);
                count.1 += usize::from(kept.is_err());
            }
        }
    }
    for ((name, _), (tried, seen)) in wrong::PLANS.iter().zip(counts) {
        assert!(
            tried == TRIES && seen >= SEEN,
            "{name}: seen {seen} of {tried} times"
        );
    }
}
