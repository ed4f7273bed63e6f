//! Whole steps of a small decoder on Vulkan: prefill and decode, batches, forks, growth, shards, loss of the device,
//! and what a step costs.

mod support;

use ingle_gpu::device::native::{Api, NativeDevice};
use ingle_gpu::device::{DeviceOptions, Limits};
use ingle_gpu::{Compiler, GpuBackend, GpuTarget, KernelSource, block_on};
use ingle_graph::backend::{Backend, BackendError, ReadBack};
use ingle_graph::kernel::Activations;
use ingle_graph::suite::Case;
use ingle_kernels::Pack;
use ingle_kernels::shapes::DeviceClass;
use support::decoder::{LAYERS, Row, VOCABULARY, argmax, decoder, dims, inputs, plan, reference};
use support::{Counts, Watched};

const DECODE: usize = 0;
const PREFILL: usize = 1;
const NEXT: usize = 0;
const LOGITS: usize = 1;
const PROMPT: [i32; 5] = [17, 2999, 3, 1024, 512];

/// The decoder loaded on a device, with room for `pool` blocks.
fn load(case: &Case, device: Watched, pool: usize) -> GpuBackend<Watched> {
    let target = GpuTarget::of(&device, Compiler);
    let mut backend = GpuBackend::new(device, plan(case, &target)).expect("the plan is sound");
    case.load(&mut backend).expect("the weights load");
    backend
        .set_bounds(dims(16, 2, 2, 4, 0))
        .expect("the bounds fit");
    backend.resize_pool(pool).expect("the pool fits");
    block_on(backend.ready()).expect("the backend gets ready");
    backend
}

fn run(
    backend: &mut GpuBackend<Watched>,
    entry: usize,
    rows: &[Row],
    table: &[i32],
    batch: usize,
    outputs: &[i32],
) {
    let step = inputs(rows, table, outputs);
    let step: Vec<&[u8]> = step.iter().map(Vec::as_slice).collect();
    let dims = dims(rows.len(), outputs.len(), batch, table.len() / batch, 0);
    backend
        .run(entry, &dims, &step)
        .expect("the step is enqueued");
}

fn next(backend: &mut GpuBackend<Watched>, row: usize) -> i32 {
    let mut out = [0; 4];
    block_on(backend.read(NEXT, row as u64 * 4, &mut out)).expect("the token can be read");
    i32::from_le_bytes(out)
}

fn logits(backend: &mut GpuBackend<Watched>, row: usize) -> Vec<f32> {
    let mut out = vec![0; VOCABULARY * 4];
    block_on(backend.read(LOGITS, (row * VOCABULARY * 4) as u64, &mut out))
        .expect("the logits can be read");
    out.as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    let most = expected.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = found
        .iter()
        .zip(expected)
        .fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst <= tolerance * most, "off by {worst} of {most}");
}

/// Consecutive rows of sequence `sequence`, whose blocks are `blocks`.
fn rows(ids: &[i32], first: i32, sequence: i32, blocks: &[i32]) -> Vec<Row> {
    let slot = |p: i32| blocks[p as usize / 32] * 32 + p % 32;
    (first..)
        .zip(ids)
        .map(|(p, &id)| [id, p, slot(p), sequence])
        .collect()
}

/// Prefills the prompt and decodes some tokens, each fed by the one before; compares each step's logits.
fn generate(case: &Case, backend: &mut GpuBackend<Watched>, blocks: &[i32], tolerance: f32) {
    let mut ids = PROMPT.to_vec();
    run(
        backend,
        PREFILL,
        &rows(&ids, 0, 0, blocks),
        blocks,
        1,
        &[ids.len() as i32 - 1],
    );
    for _ in 0..4 {
        let expected = reference(case, &ids);
        assert_close(&logits(backend, 0), &expected, tolerance);
        let token = next(backend, 0);
        assert_eq!(token, argmax(&logits(backend, 0)));
        // The id given here is wrong on purpose: the device takes the one that it chose.
        run(
            backend,
            DECODE,
            &rows(&[0], ids.len() as i32, 0, blocks),
            blocks,
            1,
            &[0],
        );
        ids.push(token);
    }
}

#[test]
fn prefill_and_decode_agree_with_the_reference() {
    let case = decoder();
    generate(
        &case,
        &mut load(&case, Watched::open(|_| {}), 2),
        &[1],
        1e-4,
    );
}

#[test]
fn activations_of_8_bits_agree_with_the_reference() {
    let case = Case {
        activations: Activations::Int8,
        ..decoder()
    };
    // Keys and values are rounded to half precision, so a value beside a rounding border may fall either way.
    generate(
        &case,
        &mut load(&case, Watched::open(|_| {}), 2),
        &[1],
        2e-2,
    );
}

#[test]
fn kernels_for_hardware_agree_with_the_reference() {
    for activations in [Activations::F32, Activations::Int8] {
        let case = Case {
            activations,
            ..decoder()
        };
        let device = Watched::open(|_| {}).with_class(DeviceClass::Hardware);
        let tolerance = if activations == Activations::F32 {
            1e-4
        } else {
            2e-2
        };
        generate(&case, &mut load(&case, device, 2), &[1], tolerance);
    }
}

#[test]
fn sharded_weights_give_the_same() {
    let case = decoder();
    let device = Watched::open(|limits| limits.max_storage_buffer_binding_size = 128 << 10);
    let mut backend = load(&case, device, 2);
    let whole = load(&case, Watched::open(|_| {}), 2);
    let shards =
        backend.dispatches(DECODE, 0).expect("ready") - whole.dispatches(DECODE, 0).expect("ready");
    // The embedding, the head, and gate and up and down in each layer are cut.
    assert!(shards >= 2 + LAYERS, "{shards} more launches");
    generate(&case, &mut backend, &[1], 1e-4);
}

#[test]
fn sequences_of_different_length_share_a_step() {
    let case = decoder();
    let mut backend = load(&case, Watched::open(|_| {}), 4);
    let (short, long) = (&PROMPT[..2], &PROMPT[..]);
    let table = [3, 0, 1, 2];
    let mut step = rows(short, 0, 0, &table[..2]);
    step.extend(rows(long, 0, 1, &table[2..]));
    run(&mut backend, PREFILL, &step, &table, 2, &[1, 6]);
    assert_close(&logits(&mut backend, 0), &reference(&case, short), 1e-4);
    assert_close(&logits(&mut backend, 1), &reference(&case, long), 1e-4);
}

#[test]
fn forks_and_growth_keep_what_was_written() {
    let case = decoder();
    let mut backend = load(&case, Watched::open(|_| {}), 1);
    let (head, tail) = PROMPT.split_at(3);
    run(&mut backend, PREFILL, &rows(head, 0, 0, &[0]), &[0], 1, &[]);
    backend.resize_pool(6).expect("the pool grows");
    backend.copy_blocks(&[(0, 5)]).expect("the block is copied");
    run(
        &mut backend,
        PREFILL,
        &rows(tail, 3, 0, &[5]),
        &[5],
        1,
        &[1],
    );
    assert_close(&logits(&mut backend, 0), &reference(&case, &PROMPT), 1e-4);
    // The original was left alone: another continuation of it.
    run(
        &mut backend,
        PREFILL,
        &rows(&[99], 3, 0, &[0]),
        &[0],
        1,
        &[0],
    );
    let other = [head, &[99]].concat();
    assert_close(&logits(&mut backend, 0), &reference(&case, &other), 1e-4);
}

#[test]
fn the_token_is_fed_back_after_the_bounds_have_grown() {
    let case = decoder();
    let mut backend = load(&case, Watched::open(|_| {}), 2);
    run(
        &mut backend,
        PREFILL,
        &rows(&PROMPT, 0, 0, &[0]),
        &[0],
        1,
        &[4],
    );
    let token = next(&mut backend, 0);
    backend
        .set_bounds(dims(16, 2, 2, 8, 0))
        .expect("the bounds grow");
    run(&mut backend, DECODE, &rows(&[0], 5, 0, &[0]), &[0], 1, &[0]);
    let ids = [&PROMPT[..], &[token]].concat();
    assert_close(&logits(&mut backend, 0), &reference(&case, &ids), 1e-4);
}

#[test]
fn a_decode_step_costs_one_submit_and_makes_nothing() {
    let case = Case {
        activations: Activations::Int8,
        ..decoder()
    };
    let device = Watched::open(|_| {});
    let counts = device.counts();
    let mut backend = load(&case, device, 2);
    run(
        &mut backend,
        PREFILL,
        &rows(&PROMPT, 0, 0, &[0]),
        &[0],
        1,
        &[4],
    );
    for step in 0..40 {
        let before = counts.replace(Counts::default());
        assert!(step > 0 || before.created > 0);
        let blocks = [0, 1];
        run(
            &mut backend,
            DECODE,
            &rows(&[0], 5 + step, 0, &blocks),
            &blocks[..1 + (5 + step as usize) / 32],
            1,
            &[0],
        );
        next(&mut backend, 0);
        let c = counts.get();
        assert_eq!((c.created, c.submits, c.read), (0, 1, 4), "step {step}");
        assert!(c.written <= 256 && c.writes <= 2, "step {step}: {c:?}");
        assert!(
            c.launches <= 9 * LAYERS + 4,
            "step {step}: {} launches",
            c.launches
        );
    }
}

#[test]
fn a_lost_device_is_an_error_and_never_zeros() {
    let case = decoder();
    let mut backend = load(&case, Watched::open(|_| {}), 2);
    run(
        &mut backend,
        PREFILL,
        &rows(&PROMPT, 0, 0, &[0]),
        &[0],
        1,
        &[4],
    );
    next(&mut backend, 0);
    backend.gpu().lose();
    let step = inputs(&rows(&[0], 5, 0, &[0]), &[0], &[0]);
    let step: Vec<&[u8]> = step.iter().map(Vec::as_slice).collect();
    for _ in 0..2 {
        let run = backend.run(DECODE, &dims(1, 1, 1, 1, 0), &step);
        let mut out = [0; 4];
        let read = block_on(backend.read(NEXT, 0, &mut out));
        let resized = backend.resize_pool(9);
        for result in [run, read, resized] {
            assert!(
                matches!(result, Err(BackendError::DeviceLost { .. })),
                "{result:?}"
            );
        }
    }
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    let case = decoder();
    let mut backend = load(&case, Watched::open(|_| {}), 2);
    let mut try_rows = |rows: &[Row], table: &[i32]| {
        let step = inputs(rows, table, &[0]);
        let step: Vec<&[u8]> = step.iter().map(Vec::as_slice).collect();
        backend.run(PREFILL, &dims(rows.len(), 1, 1, table.len(), 0), &step)
    };
    for (wrong, field) in [
        ([1, 0, 64, 0], "slots"),
        ([1, -1, 0, 0], "pos"),
        ([1, 0, 0, 1], "seq"),
    ] {
        let found = try_rows(&[wrong], &[0]);
        assert!(
            matches!(&found, Err(BackendError::Input { field: f, .. }) if f == field),
            "{found:?}"
        );
    }
    let found = try_rows(&[[1, 0, 0, 0]], &[0; 5]);
    assert!(
        matches!(&found, Err(BackendError::Input { field, .. }) if field == "table"),
        "{found:?}"
    );
    let found = backend.resize_pool(1 << 20);
    assert!(
        matches!(&found, Err(BackendError::Limit { what, .. }) if what == "kv.0"),
        "{found:?}"
    );
    // What was refused left nothing behind.
    generate(&case, &mut backend, &[0], 1e-4);
}

#[test]
fn kernels_without_a_text_are_named() {
    let case = decoder();
    let device = Watched::open(|_| {});
    let target = GpuTarget::of(&device, Pack::default());
    let plan = plan(&case, &target);
    let missing: Vec<String> = target.missing().iter().map(|key| key.id()).collect();
    let found = GpuBackend::new(device, plan).err();
    let Some(BackendError::Kernel { reason, .. }) = &found else {
        panic!("{found:?}");
    };
    assert!(
        missing.iter().any(|id| reason.contains(id)),
        "{reason}: {missing:?}"
    );
    // Once the texts are supplied, the same target gives a plan that loads.
    for key in target.missing() {
        target.supply(
            Compiler
                .text(&key, &Limits::default().kernel)
                .expect("compiles"),
        );
    }
    assert!(target.missing().is_empty());
    GpuBackend::new(
        Watched::open(|_| {}),
        support::decoder::plan(&case, &target),
    )
    .expect("every kernel has a text");
}

#[cfg(target_os = "linux")]
#[test]
fn an_absent_device_is_named() {
    let found = NativeDevice::open(Api::Metal, DeviceOptions::default()).err();
    assert!(
        matches!(&found, Some(BackendError::NoDevice { device, .. }) if device == "metal"),
        "{found:?}"
    );
}
