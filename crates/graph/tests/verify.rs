//! One graph for each invariant of the verifier that breaks it, and it alone.

mod support;

use ingle_graph::ops::{
    Binary, Constant, EltOp, Fused, KV_BLOCK, Op, Slice, StateWrite, TakeRows, Unary,
};
use ingle_graph::{
    Def, Graph, GraphError, LeafId, NodeId, Recipe, Symbol, ValueId, ValueType, shape, verify,
};
use ingle_quant::ElementType;
use support::llama;

/// `y = silu(x) + @b`, in a region of its own.
fn good() -> Graph {
    let ty = ValueType::f32(shape![Symbol::Tokens, 8]);
    let mut region = Graph::new("");
    let a = region.input("a", ty.clone());
    let b = region.input("b", ValueType::f32(shape![8]));
    let s = region.push(Unary { kind: EltOp::Silu }, &[a]).unwrap();
    let r = region.push(Binary { kind: EltOp::Add }, &[s, b]).unwrap();
    region.result("r", r);
    let mut g = Graph::new("good");
    let x = g.input("x", ty);
    let b = g
        .leaf("b", ValueType::f32(shape![8]), Recipe::source("b", 8))
        .unwrap();
    let region = Box::new(region);
    let y = g.push(Fused { region }, &[x, b]).unwrap();
    let y = g.push(Unary { kind: EltOp::Neg }, &[y]).unwrap();
    g.result("y", y);
    g
}

fn region(g: &mut Graph) -> &mut Graph {
    match &mut g.nodes[0].op {
        Op::Fused(f) => &mut f.region,
        other => panic!("{}", other.name()),
    }
}

/// Breaks a graph, which must then be refused with these words.
fn broken(words: &str, mut graph: Graph, breaks: impl FnOnce(&mut Graph)) {
    verify(&graph).unwrap();
    breaks(&mut graph);
    let error = verify(&graph).expect_err(words).to_string();
    assert!(error.contains(words), "{words:?} in {error:?}");
}

#[test]
fn ids_name_what_exists() {
    let words = "ids name what exists";
    broken(words, good(), |g| g.nodes[0].inputs[0] = ValueId(99));
    broken(words, good(), |g| g.nodes[0].outputs[0] = ValueId(99));
    broken(words, good(), |g| g.inputs[0] = ValueId(99));
    broken(words, good(), |g| g.results[0] = ValueId(u32::MAX));
    broken(words, good(), |g| g.leaves[0].value = ValueId(99));
    broken(words, good(), |g| region(g).results[0] = ValueId(99));
}

#[test]
fn values_are_defined_once_and_before_they_are_used() {
    let words = "defined once and before";
    for def in [
        Def::Input(7),
        Def::Leaf(LeafId(0)),
        Def::Leaf(LeafId(9)),
        Def::Node(NodeId(9), 0),
        Def::Node(NodeId(0), 1),
    ] {
        broken(words, good(), |g| g.values[3].def = def);
    }
    broken(words, good(), |g| g.nodes.swap(0, 1));
    broken(words, good(), |g| g.inputs.push(g.inputs[0]));
    broken(words, good(), |g| {
        g.nodes[1].outputs = g.nodes[0].outputs.clone();
    });
    broken(words, good(), |g| {
        g.nodes.pop();
    });
    broken(words, good(), |g| {
        let y = g.nodes[1].outputs[0];
        g.nodes[1].inputs[0] = y;
    });
}

#[test]
fn outputs_have_the_inferred_types() {
    broken("have the inferred types", good(), |g| {
        g.values[3].ty = ValueType::f32(shape![Symbol::Tokens, 9]);
    });
    broken("cap must be", good(), |g| {
        g.nodes[1].op = ingle_graph::ops::Softcap { cap: -1.0 }.into();
    });
    broken("1 inputs expected", good(), |g| g.nodes[1].inputs.clear());
    broken("must be", good(), |g| {
        let kind = EltOp::Add;
        g.nodes[1].op = Unary { kind }.into();
    });
    broken("types have a size", good(), |g| {
        g.input("huge", ValueType::f32(shape![1 << 21, 1 << 20]));
    });
}

#[test]
fn names_are_unique_and_can_be_written() {
    let words = "names are unique";
    broken(words, good(), |g| {
        g.input("x", ValueType::f32(shape![2]));
    });
    for name in ["", "a b", "a{", "}", "7", "a\nb"] {
        broken(words, good(), |g| {
            let x = g.inputs[0];
            g.values[x.index()].name = name.into();
        });
    }
    for name in ["two\nlines", " spaces "] {
        broken(words, good(), |g| g.name = name.into());
    }
    broken(words, good(), |g| g.results.push(g.results[0]));
    broken(words, good(), |g| {
        g.results = vec![g.inputs[0]];
    });
    broken(words, good(), |g| g.leaves[0].name.clear());
}

#[test]
fn recipes_give_the_rows_of_their_leaves() {
    let with = |recipe: Recipe| move |g: &mut Graph| g.leaves[0].recipe = recipe;
    let source = |rows| Recipe::source("b", rows);
    broken("recipe of 7 rows", good(), with(source(7)));
    broken(
        "concatenation of nothing",
        good(),
        with(Recipe::Concat(vec![])),
    );
    let take = Recipe::Take {
        of: Box::new(source(8)),
        start: 2,
        end: 10,
    };
    broken("take 2..10 of 8", good(), with(take));
    let heads = Recipe::RotaryRows {
        of: Box::new(source(8)),
        head: 3,
        interleave: true,
    };
    broken("heads of 3", good(), with(heads));
    let many = Recipe::Concat(vec![source(usize::MAX), source(9)]);
    broken("more rows than can be", good(), with(many));
    let nan = Recipe::Affine {
        of: Box::new(source(8)),
        scale: f32::NAN,
        shift: 0.0,
    };
    broken("NaN", good(), with(nan));
    broken("from a recipe", good(), |g| {
        let ty = ValueType::state(ElementType::F32, shape![8]);
        g.leaf("kv", ty, source(8)).unwrap();
    });
}

#[test]
fn states_are_versioned() {
    let words = "states are versioned";
    let write = |g: &mut Graph, kv: ValueId| {
        let node = g.nodes.iter().find(|n| n.op.name() == "state_write");
        let mut inputs = node.unwrap().inputs.clone();
        inputs[0] = kv;
        g.push(StateWrite {}, &inputs).unwrap()
    };
    // The same version twice.
    broken(words, llama(1), |g| {
        let node = g.nodes.iter().find(|n| n.op.name() == "state_write");
        let first = node.unwrap().inputs[0];
        let kv = write(g, first);
        g.result("again", kv);
    });
    // The last version is no result.
    broken(words, llama(1), |g| {
        g.results.pop();
    });
    // A version that was written over is one.
    broken(words, llama(1), |g| {
        let last = *g.results.last().unwrap();
        let kv = write(g, last);
        g.result("again", kv);
    });
    // A version is read after it was written over.
    broken(words, llama(1), |g| {
        let last = g.results.pop().unwrap();
        let kv = write(g, last);
        g.result("kv.late", kv);
        let reader = g.nodes.iter().find(|n| n.op.name() == "attention");
        let reader = reader.unwrap().clone();
        let y = g.push(reader.op, &reader.inputs).unwrap();
        g.result("late", y);
    });
}

#[test]
fn regions_are_flat_and_hold_no_weights() {
    broken("regions have no name", good(), |g| {
        region(g).name = "r".into()
    });
    broken("regions have no leaves", good(), |g| {
        let r = region(g);
        r.leaf("w", ValueType::f32(shape![8]), Recipe::source("w", 8))
            .unwrap();
    });
    broken("regions have no regions", good(), |g| {
        let inner = Op::Fused(Fused {
            region: Box::new({
                let mut r = Graph::new("");
                let a = r.input("a", ValueType::f32(shape![Symbol::Tokens, 8]));
                let y = r.push(Unary { kind: EltOp::Abs }, &[a]).unwrap();
                r.result("r", y);
                r
            }),
        });
        region(g).nodes[0].op = inner;
    });
    broken("defined once and before", good(), |g| {
        region(g).nodes.swap(0, 1);
    });
    broken("fused: 2 inputs expected", good(), |g| {
        g.nodes[0].inputs.pop();
    });
}

/// Numbers at which a product would overflow.
#[test]
fn huge_attributes_are_errors() {
    let huge = usize::MAX / 2;
    let ty = ValueType::f32(shape![Symbol::Tokens, 8]);
    let pos = ValueType::i32(shape![Symbol::Tokens]);
    let pool = shape![Symbol::Pool, 2, huge, KV_BLOCK, 4];
    let pool = ValueType::state(ElementType::F16, pool);
    let table = ValueType::i32(shape![Symbol::Batch, huge]);
    let rope = ingle_graph::ops::Rope {
        head_dim: huge,
        rotary_dim: 2,
        base: 1e4,
        scale: 1.0,
        pairing: ingle_graph::ops::Pairing::Halves,
    };
    let attention = ingle_graph::ops::Attention {
        heads: huge,
        scale: 1.0,
        softcap: None,
        window: None,
    };
    let part = ingle_graph::ops::Part::Keys;
    let cases: Vec<(Op, Vec<&ValueType>)> = vec![
        (rope.clone().into(), vec![&ty, &pos]),
        (
            ingle_graph::ops::RotaryAngles { heads: huge, rope }.into(),
            vec![&pos],
        ),
        (attention.into(), vec![&ty, &pool, &pos, &pos, &table]),
        (StateWrite {}.into(), vec![&pool, &ty, &ty, &pos]),
        (
            ingle_graph::ops::StateRead { part }.into(),
            vec![&pool, &pos, &table],
        ),
        (
            ingle_graph::ops::HeadScores { heads: huge }.into(),
            vec![&ty, &ty],
        ),
        (
            Slice {
                start: 1,
                end: huge,
            }
            .into(),
            vec![&ty],
        ),
        (TakeRows {}.into(), vec![&ty, &table]),
        (
            Constant {
                value: f32::INFINITY,
            }
            .into(),
            vec![],
        ),
    ];
    for (op, types) in cases {
        let result: Result<_, GraphError> = op.infer(&types);
        assert!(result.is_err(), "{}: {result:?}", op.name());
    }
}
