//! Every case of the suite: its text parses back, every pass keeps its meaning, and it lowers.

use ingle_graph::kernel::{KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::passes::{Choice, Options, RowRange, Target, optimise, pass_names};
use ingle_graph::suite::suite;
use ingle_graph::{Data, Graph, parse, verify};
use ingle_quant::{ElementType, LayoutRequest, PackedLayout, Placement, Storage};

/// A target that takes everything.
struct AnyTarget;

impl Target for AnyTarget {
    fn name(&self) -> String {
        "any".into()
    }

    fn layout(&self, storage: Storage, _rows: usize, _k: usize) -> Result<WeightLayout, String> {
        match storage {
            Storage::Element(_) => Ok(WeightLayout::Dense(ElementType::F32)),
            Storage::Quant(scheme) => {
                let request = LayoutRequest {
                    rows: 8,
                    placement: Placement::Inline,
                };
                PackedLayout::for_scheme(&scheme, request)
                    .map(WeightLayout::Packed)
                    .ok_or_else(|| "no layout".into())
            }
        }
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        match layout {
            WeightLayout::Dense(e) => rows
                .checked_mul(k)?
                .checked_mul(e.bytes())
                .map(|b| b as u64),
            WeightLayout::Packed(p) => p.bytes(rows, k).ok().map(|b| b as u64),
        }
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, rows: RowRange) -> bool {
        rows.high == 1
    }

    fn max_extras(&self) -> usize {
        2
    }

    fn select(&self, _spec: &KernelSpec, _rows: RowRange) -> Result<Choice, String> {
        Ok(Choice {
            candidate: "any".into(),
            why: "the only one".into(),
            text: None,
            workspace: None,
        })
    }
}

fn round_trips(graph: &Graph) {
    let text = graph.to_string();
    let back = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&back).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_string(), text);
}

#[test]
fn the_text_of_every_case_parses_back() {
    for case in suite() {
        round_trips(&case.graph);
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
    for case in suite() {
        let expected = case.expected().unwrap();
        for pass in pass_names().skip_while(|p| *p == "fold") {
            let graph = optimise(
                &case.graph,
                &Options::plain(case.activations),
                &AnyTarget,
                Some(pass),
            )
            .unwrap();
            for (want, got) in expected.iter().zip(case.expected_of(&graph).unwrap()) {
                match (&want.data, &got.data) {
                    (Data::F32(a), Data::F32(b)) => {
                        let same = a
                            .iter()
                            .zip(b)
                            .all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()));
                        assert!(same, "{} after {pass}", case.name);
                    }
                    (a, b) => assert_eq!(a, b, "{} after {pass}", case.name),
                }
            }
        }
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
