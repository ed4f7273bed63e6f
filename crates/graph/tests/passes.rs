//! Every case of the suite: its text parses back, every pass keeps its meaning, and it lowers.

mod support;

use std::io::Write;

use ingle_graph::backend::Backend;
use ingle_graph::passes::{Options, decompose_all, optimise, stages, with_policy};
use ingle_graph::suite::{interpreted_only, suite};
use ingle_graph::{Graph, parse, verify};
use support::executor::{Executor, now};
use support::{AnyTarget, Fusing, differs};

fn round_trips(graph: &Graph) {
    let text = graph.to_string();
    let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&back).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_string(), text);
}

#[test]
fn the_text_of_every_case_parses_back() {
    for case in interpreted_only() {
        round_trips(&case.graph);
    }
    for case in suite() {
        round_trips(&case.graph);
        round_trips(&decompose_all(&case.graph).unwrap());
        let fused = optimise(
            &case.graph,
            &Options::plain(case.activations),
            &AnyTarget,
            None,
        )
        .unwrap();
        round_trips(&fused);
    }
}

#[test]
fn every_pass_keeps_the_meaning_of_every_case() {
    let cases: Vec<_> = suite().into_iter().chain(interpreted_only()).collect();
    for case in &cases {
        let options = Options::plain(case.activations);
        let mut before = case.graph.clone();
        for stage in stages(&case.graph, &options, &AnyTarget).unwrap() {
            // Ops that have no kernel are decomposed here, which rounds in another order.
            let tolerance = match stage.pass {
                "recognise" => 1e-6,
                _ => 0.0,
            };
            if stage.pass == "quantize" {
                before = with_policy(&before, case.activations).unwrap();
            }
            let expected = case.expected_of(&before).unwrap();
            let found = case.expected_of(&stage.graph).unwrap();
            if let Some(difference) = differs(&expected, &found, tolerance) {
                panic!("{} after {}: {difference}", case.name, stage.pass);
            }
            before = stage.graph;
        }
    }
    if let Some(path) = std::env::var_os("INGLE_SUITE_COUNTS") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .expect("the counts can be written");
        writeln!(file, "reference {}", cases.len()).expect("the counts can be written");
    }
}

#[test]
fn every_case_compiles() {
    for case in suite() {
        let plan = case
            .compile(&AnyTarget)
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let text = serde_json::to_string(&plan).unwrap();
        let back: ingle_graph::plan::Plan = serde_json::from_str(&text).unwrap();
        assert_eq!(back, plan, "{}", case.name);
    }
}

#[test]
fn an_attention_block_is_four_launches() {
    let case = suite()
        .into_iter()
        .find(|c| c.name == "attention block, 1 rows int8")
        .unwrap();
    let plan = case.compile(&AnyTarget).unwrap();
    let launches = &plan.entries[0].variants[0].launches;
    let names: Vec<String> = launches
        .iter()
        .map(|l| plan.kernels[l.kernel as usize].spec.name())
        .collect();
    // `plain` has no guard on tokens, so the norm is a launch of its own.
    assert_eq!(
        names,
        [
            "rms_norm",
            "quantize_matmul",
            "rope_write",
            "attention",
            "quantize_matmul_add"
        ],
        "{plan}"
    );
}

#[test]
fn an_unseen_epilogue_is_one_launch() {
    let case = suite()
        .into_iter()
        .find(|c| c.name.starts_with("matmul with bias") && c.name.ends_with("1 rows f32"));
    let plan = case.unwrap().compile(&AnyTarget).unwrap();
    assert_eq!(plan.entries[0].variants[0].launches.len(), 1, "{plan}");
}

/// Lowering and the memory plan keep the meaning too.
#[test]
fn the_plan_of_every_case_computes_what_the_graph_means() {
    for mut case in suite() {
        // The launches are the references themselves: only the order of roundings in element-wise chains differs.
        case.tolerance = case.tolerance.min(1e-5);
        for target in Fusing::ALL {
            let mut backend = Executor::new(case.compile(&target).unwrap());
            now(case.run(&mut backend)).unwrap_or_else(|e| panic!("{e}\n{}", backend.plan()));
        }
    }
}
