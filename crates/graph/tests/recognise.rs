//! Composite ops, taken apart, are found again: the plan is the same as if they had been named.

mod support;

use ingle_graph::kernel::Activations;
use ingle_graph::ops::{Binary, Constant, EltOp, Pairing, RmsNorm, Rope, Rotate, Unary};
use ingle_graph::ops::{Op, Runs};
use ingle_graph::passes::{Options, compile, decompose_all, optimise, stages};
use ingle_graph::suite::suite;
use ingle_graph::{Graph, Symbol, ValueType, shape};
use support::{AnyTarget, differs, llama};

fn composites(graph: &Graph) -> Vec<&'static str> {
    let mut names: Vec<&str> = graph
        .nodes
        .iter()
        .filter(|n| n.op.runs() != Runs::Interpreted && !matches!(n.op, Op::Fused(_)))
        .filter(|n| {
            let mut scratch = Graph::new("");
            let inputs: Vec<_> = n
                .inputs
                .iter()
                .map(|v| scratch.input("", graph.ty(*v).clone()))
                .collect();
            n.op.decompose(&mut scratch, &inputs).unwrap().is_some()
        })
        .map(|n| n.op.name())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn same_plan(graph: &Graph, options: &Options) {
    let apart = decompose_all(graph).unwrap();
    assert_eq!(composites(&apart), [""; 0], "{apart}");
    let expected = compile(graph, options, &AnyTarget).unwrap();
    let found = compile(&apart, options, &AnyTarget).unwrap_or_else(|e| panic!("{e}\n{apart}"));
    assert_eq!(found, expected, "{expected}\n{found}");
}

#[test]
fn decomposing_every_case_and_compiling_again_gives_the_same_plan() {
    for case in suite() {
        same_plan(&case.graph, &Options::plain(case.activations));
    }
}

#[test]
fn decomposing_a_llama_and_compiling_again_gives_the_same_plan() {
    for activations in [Activations::F32, Activations::Int8] {
        same_plan(&llama(3), &Options::decoder(activations, 64));
    }
}

/// The decomposition is checked against the op's own reference, which it shares no code with.
#[test]
fn a_decomposition_means_what_the_op_means() {
    for case in suite() {
        let apart = decompose_all(&case.graph).unwrap();
        let found = case.expected_of(&apart).unwrap();
        let expected = case.expected_of(&case.graph).unwrap();
        // Angles are rounded to f32 before their sines are taken, as other frameworks do: at position 1000 that is 6e-5.
        if let Some(difference) = differs(&expected, &found, 1e-4) {
            panic!("{}: {difference}", case.name);
        }
    }
}

#[test]
fn every_composite_op_is_found_in_some_case() {
    let mut found: Vec<&str> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    for case in suite() {
        let apart = decompose_all(&case.graph).unwrap();
        known.extend(composites(&recognised(&case.graph)));
        let stages = stages(&apart, &Options::plain(case.activations), &AnyTarget).unwrap();
        for stage in stages.iter().filter(|s| s.pass == "recognise") {
            let rewrites = stage.trace.iter().map(|c| c.0);
            found.extend(rewrites.filter(|r| *r != "decompose"));
        }
    }
    for names in [&mut known, &mut found] {
        names.sort_unstable();
        names.dedup();
    }
    assert_eq!(found, known);
}

/// Operands of sums and products stand in any order in imported graphs.
#[test]
fn order_of_operands_does_not_matter() {
    for case in suite() {
        let mut apart = decompose_all(&case.graph).unwrap();
        for node in &mut apart.nodes {
            if matches!(node.op.name(), "add" | "mul")
                && apart.values[node.outputs[0].index()].ty.shape.len() == 2
            {
                node.inputs.reverse();
            }
        }
        let options = Options::plain(case.activations);
        let optimised = optimise(&apart, &options, &AnyTarget, Some("recognise")).unwrap();
        let named = recognised(&case.graph);
        assert_eq!(composites(&optimised), composites(&named), "{}", case.name);
    }
}

fn recognised(graph: &Graph) -> Graph {
    let options = Options::plain(Activations::F32);
    optimise(graph, &options, &AnyTarget, Some("recognise")).unwrap()
}

#[test]
fn a_soft_cap_with_two_caps_is_none() {
    let mut g = Graph::new("two caps");
    let x = g.input("x", ValueType::f32(shape![Symbol::Tokens, 8]));
    let [a, b] = [30.0, 31.0].map(|value| g.push(Constant { value }, &[]).unwrap());
    let y = g.push(Binary { kind: EltOp::Div }, &[x, a]).unwrap();
    let y = g.push(Unary { kind: EltOp::Tanh }, &[y]).unwrap();
    let y = g.push(Binary { kind: EltOp::Mul }, &[y, b]).unwrap();
    g.result("y", y);
    assert_eq!(composites(&recognised(&g)), [""; 0]);
}

#[test]
fn a_norm_of_one_value_by_the_mean_of_another_is_none() {
    let mut g = Graph::new("two values");
    let ty = ValueType::f32(shape![Symbol::Tokens, 8]);
    let [x, other] = ["x", "other"].map(|name| g.input(name, ty.clone()));
    let w = g.input("w", ValueType::f32(shape![8]));
    let y = g.push(RmsNorm { eps: 1e-5 }, &[x, w]).unwrap();
    g.result("y", y);
    let mut apart = decompose_all(&g).unwrap();
    apart.nodes[0].inputs = vec![other, other];
    assert_eq!(composites(&recognised(&apart)), [""; 0]);
}

#[test]
fn a_rotation_of_other_pairs_than_its_angles_is_none() {
    let mut g = Graph::new("two pairings");
    let x = g.input("x", ValueType::f32(shape![Symbol::Tokens, 16]));
    let pos = g.input("pos", ValueType::i32(shape![Symbol::Tokens]));
    let rope = Rope {
        head_dim: 8,
        rotary_dim: 8,
        base: 1e4,
        scale: 1.0,
        pairing: Pairing::Halves,
    };
    let y = g.push(rope, &[x, pos]).unwrap();
    g.result("y", y);
    let mut apart = decompose_all(&g).unwrap();
    assert_eq!(composites(&recognised(&apart)), ["rope"]);
    for node in &mut apart.nodes {
        if let Op::Rotate(Rotate { pairing, .. }) = &mut node.op {
            *pairing = Pairing::Interleaved;
        }
    }
    assert_eq!(composites(&recognised(&apart)), [""; 0]);
}

/// An attention that ends after its pool was written over would read the new version.
#[test]
fn attention_across_a_write_is_left_apart() {
    let case = suite()
        .into_iter()
        .find(|c| c.name == "attention f16")
        .unwrap();
    let mut apart = decompose_all(&case.graph).unwrap();
    let mix = apart.nodes.pop().unwrap();
    let write = apart.nodes[0].clone();
    let mut inputs = write.inputs.clone();
    inputs[0] = write.outputs[0];
    let old = apart.values.pop().unwrap();
    let kv = apart.push(write.op, &inputs).unwrap();
    let y = apart.push(mix.op, &mix.inputs).unwrap();
    apart.values[y.index()].name = old.name;
    apart.results = vec![y, kv];
    apart.values[kv.index()].name = "kv".into();
    apart.values[write.outputs[0].index()].name.clear();
    assert_eq!(composites(&recognised(&apart)), ["softmax"]);
}
