//! The text of one llama layer, with its embedding and head, after each pass and as plans. When a change is meant, write
//! the files anew with `INGLE_BLESS=1 cargo test -p ingle-graph --test golden` and read the difference.

mod support;

use std::path::PathBuf;

use ingle_graph::kernel::Activations;
use ingle_graph::passes::{Options, Target, compile, decompose_all, stages};
use ingle_graph::{Graph, parse, verify};
use support::{AnyTarget, LikeTarget, llama};

fn check(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("INGLE_BLESS").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = |(a, b): &(&str, &str)| a != b;
    let (mut old, mut new) = (expected.lines(), found.lines());
    let line = old.by_ref().zip(new.by_ref()).position(|l| differs(&l));
    assert!(
        expected == found,
        "{} differs from line {} on; bless it if that is meant:\n{found}",
        path.display(),
        line.map_or_else(|| "the end".into(), |l| (l + 1).to_string()),
    );
}

fn check_graph(name: &str, graph: &Graph) {
    let text = graph.to_string();
    check(name, &text);
    let back = parse(&text).unwrap();
    verify(&back).unwrap();
    assert_eq!(back.to_string(), text);
}

#[test]
fn the_graph_after_each_pass() {
    let layer = llama(1);
    check_graph("layer/0-built.txt", &layer);
    let options = Options::decoder(Activations::Int8, 64);
    let stages = stages(&layer, &options, &AnyTarget).unwrap();
    for (i, stage) in stages.iter().enumerate() {
        check_graph(&format!("layer/{}-{}.txt", i + 1, stage.pass), &stage.graph);
    }
}

/// As an import would give it; what is recognised in it is the layer as it was built.
#[test]
fn the_graph_in_primitive_ops() {
    let apart = decompose_all(&llama(1)).unwrap();
    check_graph("layer/apart.txt", &apart);
    let options = Options::decoder(Activations::Int8, 64);
    let of = |graph| stages(graph, &options, &AnyTarget).unwrap();
    let (named, found) = (of(&llama(1)), of(&apart));
    assert_eq!(found[1].graph.to_string(), named[1].graph.to_string());
}

#[test]
fn the_plan_of_each_kind_of_target() {
    for (target, activations) in [
        (LikeTarget::cpu(), Activations::Int8),
        (LikeTarget::gpu(), Activations::Int8),
        (LikeTarget::gpu(), Activations::F32),
    ] {
        let options = Options::decoder(activations, 64);
        let plan = compile(&llama(1), &options, &target).unwrap();
        let policy = match activations {
            Activations::F32 => "f32",
            Activations::Int8 => "int8",
        };
        let name = format!("layer/plan-{}-{policy}.txt", target.name());
        check(&name, &plan.to_string());
    }
}
