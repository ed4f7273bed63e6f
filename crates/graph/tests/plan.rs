//! A plan survives its JSON, and for each thing that `plan::check` promises there is a plan that breaks it.

mod support;

use ingle_graph::kernel::{Activations, KernelSpec, WeightLayout};
use ingle_graph::passes::{Options, compile};
use ingle_graph::plan::{Buffer, Guard, Launch, Plan, Rows, Scratch, Size, check};
use ingle_graph::{Operand, Recipe, Symbol};
use ingle_quant::ElementType;
use support::{AnyTarget, llama};

fn good() -> Plan {
    compile(
        &llama(1),
        &Options::decoder(Activations::Int8, 64),
        &AnyTarget,
    )
    .unwrap()
}

/// Breaks a plan, which must then be refused with these words.
fn broken(words: &str, breaks: impl FnOnce(&mut Plan)) {
    let mut plan = good();
    check(&plan).unwrap();
    breaks(&mut plan);
    let error = check(&plan).expect_err(words).to_string();
    assert!(error.contains(words), "{words:?} in {error:?}");
}

/// The first launch of the decode entry whose kernel is `wanted`, and that kernel.
fn launch<'a>(p: &'a mut Plan, wanted: &str) -> (&'a mut Launch, &'a mut KernelSpec) {
    let names: Vec<String> = p.kernels.iter().map(|k| k.spec.name()).collect();
    let launches = &mut p.entries[0].variants[0].launches;
    let mut all = launches.iter_mut();
    let launch = all.find(|l| names[l.kernel as usize].contains(wanted));
    let launch = launch.unwrap_or_else(|| panic!("no {wanted} in {names:?}"));
    let spec = &mut p.kernels[launch.kernel as usize].spec;
    (launch, spec)
}

#[test]
fn a_plan_survives_its_json() {
    let plan = good();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn versions_names_and_indices() {
    broken("version", |p| p.version += 1);
    broken("unique names", |p| p.inputs[1].name = "ids".into());
    broken("unique names", |p| p.weights.push(p.weights[0].clone()));
    broken("unique names", |p| p.entries.push(p.entries[0].clone()));
    broken("a kernel below", |p| launch(p, "argmax").0.kernel = 999);
    for buffer in [
        Buffer::Weight(99),
        Buffer::State(99),
        Buffer::Input(99),
        Buffer::Result(99),
        Buffer::Scratch(99),
    ] {
        broken("one of", |p| launch(p, "argmax").0.arguments[0] = buffer);
    }
}

#[test]
fn kernels_have_numbers_in_range() {
    let spec = |wanted: &'static str, change: fn(&mut KernelSpec)| {
        broken("numbers in range", |p| change(launch(p, wanted).1));
    };
    spec("matmul", |s| match s {
        KernelSpec::Matmul(m) => m.epilogue.result = Operand::Step(9),
        _ => unreachable!(),
    });
    spec("matmul", |s| match s {
        KernelSpec::Matmul(m) => m.epilogue.accumulators = 3,
        _ => unreachable!(),
    });
    spec("matmul", |s| match s {
        KernelSpec::Matmul(m) => m.norm = Some(f32::NAN),
        _ => unreachable!(),
    });
    spec("rope_write", |s| match s {
        KernelSpec::RopeWrite(r) => r.starts[2] += 1,
        _ => unreachable!(),
    });
    spec("rope_write", |s| match s {
        KernelSpec::RopeWrite(r) => r.rope.head_dim = 0,
        _ => unreachable!(),
    });
    spec("rope_write", |s| match s {
        KernelSpec::RopeWrite(r) => r.heads = usize::MAX,
        _ => unreachable!(),
    });
    spec("attention", |s| match s {
        KernelSpec::Attention(a) => a.kv_heads = 0,
        _ => unreachable!(),
    });
    spec("attention", |s| match s {
        KernelSpec::Attention(a) => a.op.heads = 3,
        _ => unreachable!(),
    });
    spec("take_rows", |s| *s = KernelSpec::TakeRows { k: 0 });
}

#[test]
fn weights_are_what_their_recipes_and_layouts_give() {
    broken("rows", |p| p.weights[0].recipe = Recipe::source("a", 7));
    broken("well-formed", |p| {
        p.weights[0].recipe = Recipe::Concat(vec![])
    });
    broken("bytes", |p| p.weights[0].bytes -= 1);
    broken("bytes", |p| {
        p.weights[0].k = usize::MAX;
    });
    broken("a layout of", |p| match &mut p.weights[0].layout {
        WeightLayout::Packed(packed) => packed.group = 16,
        WeightLayout::Dense(_) => unreachable!(),
    });
    broken("a layout of", |p| match &mut p.weights[0].layout {
        WeightLayout::Packed(packed) => packed.rows = 0,
        WeightLayout::Dense(_) => unreachable!(),
    });
}

#[test]
fn launches_bind_what_their_kernels_take() {
    broken("arguments", |p| {
        launch(p, "argmax").0.arguments.pop();
    });
    broken("arguments", |p| {
        let scratch = Buffer::Scratch(0);
        launch(p, "argmax").0.arguments.extend([scratch, scratch]);
    });
    broken("a scratch as workspace", |p| {
        let input = Buffer::Input(0);
        launch(p, "argmax").0.arguments.push(input);
    });
    // A wider row than the buffer has, or more rows.
    broken("PerRow", |p| match launch(p, "argmax").1 {
        KernelSpec::Argmax { n } => *n += 1,
        _ => unreachable!(),
    });
    broken("PerRow", |p| {
        launch(p, "argmax").0.rows = Rows::Sym(Symbol::Tokens)
    });
    broken("PerRow", |p| launch(p, "argmax").0.rows = Rows::Const(2));
    broken("PerRow", |p| {
        p.scratch[0].bytes = Size::constant(4);
    });
    // Integers for floats, a table for a row of positions, another pool, another weight.
    broken("PerRow", |p| {
        launch(p, "embedding").0.arguments[0] = Buffer::Weight(0)
    });
    broken("PerRow", |p| p.inputs[1].element = ElementType::F32);
    broken("Table", |p| {
        launch(p, "attention").0.arguments[4] = Buffer::Input(1)
    });
    broken("Pool", |p| p.states[0].element = ElementType::F32);
    broken("Pool", |p| p.states[0].shape[2] = 4.into());
    broken("Matrix", |p| {
        launch(p, "embedding").0.arguments[1] = Buffer::Weight(1)
    });
    broken("Matrix", |p| match launch(p, "embedding").1 {
        KernelSpec::Embedding { vocabulary, .. } => *vocabulary += 1,
        _ => unreachable!(),
    });
    broken("AnyRows", |p| match launch(p, "take_rows").1 {
        KernelSpec::TakeRows { k } => *k += 1,
        _ => unreachable!(),
    });
}

#[test]
fn buffers_are_written_and_read_in_order() {
    broken("written and bound again", |p| {
        // The residual is added in place.
        let (add, _) = launch(p, "matmul_add");
        add.arguments[3] = add.arguments[2];
    });
    broken("a scratch or a result to write", |p| {
        p.inputs.push(ingle_graph::plan::Port {
            name: "extra".into(),
            element: ElementType::F32,
            shape: vec![Symbol::Outputs.into(), 64.into()],
        });
        let input = Buffer::Input(p.inputs.len() as u32 - 1);
        launch(p, "take_rows").0.arguments[2] = input;
    });
    broken("a buffer that was written", |p| {
        p.scratch.push(Scratch {
            bytes: Size {
                constant: 0,
                per: 1 << 20,
                symbol: Symbol::Tokens,
            },
        });
        let fresh = Buffer::Scratch(p.scratch.len() as u32 - 1);
        launch(p, "attention").0.arguments[0] = fresh;
    });
    broken("a launch that writes", |p| {
        p.entries[1].variants[0].launches.pop();
    });
}

#[test]
fn guards_are_ranges_and_what_is_fed_back_fits() {
    let guard = |symbol, low, high| {
        move |p: &mut Plan| {
            let variant = &mut p.entries[0].variants[0];
            variant.guards.push(Guard { symbol, low, high });
        }
    };
    broken("a range of a given symbol", guard(Symbol::Batch, 2, 1));
    broken("a range of a given symbol", guard(Symbol::Context, 1, 2));
    broken("one range for each symbol", guard(Symbol::Tokens, 1, 2));
    broken("fed", |p| p.entries[0].fed = Some((99, 0)));
    broken("fed", |p| p.entries[0].fed = Some((0, 99)));
    // Logits are no ids.
    broken("fed", |p| p.entries[0].fed = Some((0, 0)));
}
