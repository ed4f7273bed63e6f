//! Kernels that have an op of their own, against the op's reference.

mod common;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use common::{Random, machines};
use half::f16;
use ingle_cpu::kernels::argmax::argmax;
use ingle_cpu::kernels::attention::{Attention, attention};
use ingle_cpu::kernels::embedding::embedding;
use ingle_cpu::kernels::kv_pool::{KvPool, KvPoolMut, PoolShape};
use ingle_cpu::kernels::matmul::{DenseMatrix, PackedMatrix, Weight};
use ingle_cpu::kernels::reduce::reduce;
use ingle_cpu::kernels::rope::{RotaryTable, rope, rotary_table};
use ingle_cpu::kernels::rope_write::rope_write;
use ingle_cpu::kernels::slice::slice;
use ingle_cpu::kernels::softmax::softmax;
use ingle_cpu::kernels::state_write::state_write;
use ingle_cpu::kernels::take_rows::take_rows;
use ingle_cpu::{CpuError, Rows, RowsMut};
use ingle_graph::Tensor;
use ingle_graph::ops::{self, KV_BLOCK, Op, Pairing, Reduction};
use ingle_quant::{ElementType, unpack};

fn expected(op: impl Into<Op>, inputs: &[&Tensor]) -> Vec<f32> {
    op.into().reference(inputs)[0].as_f32().to_vec()
}

#[track_caller]
fn assert_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!(
            (f - e).abs() <= tolerance * e.abs().max(1.0),
            "{what}: element {i} is {f}, expected {e}"
        );
    }
}

fn rows(data: &[f32], rows: usize) -> Rows<'_> {
    Rows::new(data, rows, data.len() / rows).expect("whole rows")
}

fn rows_mut(data: &mut [f32], rows: usize) -> RowsMut<'_> {
    let width = data.len() / rows;
    RowsMut::new(data, rows, width).expect("whole rows")
}

/// A pool's bytes from its values.
fn pool_bytes(values: &[f32], element: ElementType) -> Vec<u8> {
    match element {
        ElementType::F16 => values
            .iter()
            .flat_map(|&v| f16::from_f32(v).to_le_bytes())
            .collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

fn pool_values(bytes: &[u8], element: ElementType) -> Vec<f32> {
    match element {
        ElementType::F16 => bytes
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect(),
    }
}

struct Case {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    softcap: Option<f32>,
    window: Option<usize>,
}

const CASES: [Case; 6] = [
    Case {
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        softcap: None,
        window: None,
    },
    Case {
        heads: 4,
        kv_heads: 4,
        head_dim: 20,
        softcap: Some(5.0),
        window: None,
    },
    Case {
        heads: 8,
        kv_heads: 2,
        head_dim: 8,
        softcap: None,
        window: Some(3),
    },
    Case {
        heads: 6,
        kv_heads: 1,
        head_dim: 24,
        softcap: Some(1.0),
        window: Some(40),
    },
    Case {
        heads: 2,
        kv_heads: 1,
        head_dim: 3,
        softcap: None,
        window: Some(1),
    },
    Case {
        heads: 7,
        kv_heads: 1,
        head_dim: 128,
        softcap: None,
        window: Some(usize::MAX),
    },
];

/// Two sequences of different length in one batch, blocks in no order.
#[test]
fn attention_matches_its_reference() {
    let mut random = Random::new(1);
    let (blocks, table_width) = (7, 3);
    let pos = [0, 5, 31, 32, 33, 70, 95, 12];
    let seq = [0, 0, 1, 1, 0, 1, 0, 1];
    let table = [3, 0, 6, 5, 1, 2];
    for case in &CASES {
        let Case {
            heads,
            kv_heads,
            head_dim,
            softcap,
            window,
        } = *case;
        let q: Vec<f32> = random
            .floats(pos.len() * heads * head_dim)
            .iter()
            .map(|v| v * 3.0)
            .collect();
        let shape = [blocks, 2, kv_heads, KV_BLOCK, head_dim];
        let values = random.floats(shape.iter().product());
        let scale = 1.0 / (head_dim as f32).sqrt();
        for element in [ElementType::F16, ElementType::F32] {
            let bytes = pool_bytes(&values, element);
            let op = ops::Attention {
                heads,
                scale,
                softcap,
                window,
            };
            let expected = expected(
                op,
                &[
                    &Tensor::f32(&[pos.len(), heads * head_dim], q.clone()),
                    &Tensor::f32(&shape, pool_values(&bytes, element)),
                    &Tensor::i32(&[pos.len()], pos.to_vec()),
                    &Tensor::i32(&[seq.len()], seq.to_vec()),
                    &Tensor::i32(&[2, table_width], table.to_vec()),
                ],
            );
            let shape = PoolShape::new(element, blocks, kv_heads, head_dim).expect("valid");
            let pool = KvPool::new(shape, &bytes).expect("fits");
            for machine in machines() {
                let mut y = vec![f32::NAN; q.len()];
                let a = Attention {
                    q: rows(&q, pos.len()),
                    pool,
                    pos: &pos,
                    seq: &seq,
                    table: &table,
                    table_width,
                    scale,
                    softcap,
                    window,
                };
                attention(&machine, &a, &mut rows_mut(&mut y, pos.len())).expect("fits");
                assert_near(
                    &y,
                    &expected,
                    2e-6,
                    &format!("{} heads {heads}", machine.level().name()),
                );
            }
        }
    }
}

#[test]
fn attention_refuses_what_lies_outside() {
    let shape = PoolShape::new(ElementType::F32, 2, 1, 8).expect("valid");
    let bytes = vec![0; 2 * 2 * KV_BLOCK * 8 * 4];
    let q = [0.5; 8];
    for (pos, seq, table) in [
        (-1, 0, [0, 1]),
        (64, 0, [0, 1]),
        (0, 1, [0, 1]),
        (0, -1, [0, 1]),
        (0, 0, [2, 0]),
        (40, 0, [0, -3]),
    ] {
        for machine in machines() {
            let a = Attention {
                q: rows(&q, 1),
                pool: KvPool::new(shape, &bytes).expect("fits"),
                pos: &[pos],
                seq: &[seq],
                table: &table,
                table_width: 2,
                scale: 1.0,
                softcap: None,
                window: None,
            };
            let mut y = [0.0; 8];
            let result = attention(&machine, &a, &mut rows_mut(&mut y, 1));
            assert!(
                matches!(result, Err(CpuError::Index { .. })),
                "{pos} {seq} {table:?}: {result:?}"
            );
        }
    }
}

#[test]
fn nan_reaches_the_output_of_attention() {
    let shape = PoolShape::new(ElementType::F32, 1, 1, 8).expect("valid");
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![0.25f32; 2 * KV_BLOCK * 8];
        values[8 * 2] = bad;
        let bytes = pool_bytes(&values, ElementType::F32);
        let q = [0.5; 8];
        for machine in machines() {
            let a = Attention {
                q: rows(&q, 1),
                pool: KvPool::new(shape, &bytes).expect("fits"),
                pos: &[9],
                seq: &[0],
                table: &[0],
                table_width: 1,
                scale: 1.0,
                softcap: None,
                window: None,
            };
            let mut y = [0.0; 8];
            attention(&machine, &a, &mut rows_mut(&mut y, 1)).expect("fits");
            assert!(y.iter().all(|v| v.is_nan()), "{y:?}");
        }
    }
}

#[test]
fn state_write_matches_its_reference() {
    let mut random = Random::new(2);
    let (blocks, kv_heads, head_dim) = (3, 2, 20);
    let slots = [5, 70, 31, 32, 95, 5];
    let (k, v) = (random.floats(6 * 40), random.floats(6 * 40));
    let before = random.floats(blocks * 2 * kv_heads * KV_BLOCK * head_dim);
    for element in [ElementType::F16, ElementType::F32] {
        let start = pool_bytes(&before, element);
        let round = |x: &[f32]| pool_values(&pool_bytes(x, element), element);
        let expected = expected(
            ops::StateWrite {},
            &[
                &Tensor::f32(&[blocks, 2, kv_heads, KV_BLOCK, head_dim], round(&before)),
                &Tensor::f32(&[6, 40], round(&k)),
                &Tensor::f32(&[6, 40], round(&v)),
                &Tensor::i32(&[6], slots.to_vec()),
            ],
        );
        let shape = PoolShape::new(element, blocks, kv_heads, head_dim).expect("valid");
        for machine in machines() {
            let mut bytes = start.clone();
            let mut pool = KvPoolMut::new(shape, &mut bytes).expect("fits");
            state_write(&machine, rows(&k, 6), rows(&v, 6), &slots, &mut pool).expect("fits");
            assert_eq!(pool_values(&bytes, element), expected);
            let mut pool = KvPoolMut::new(shape, &mut bytes).expect("fits");
            for slot in [-1, 96] {
                let result = state_write(
                    &machine,
                    rows(&k[..40], 1),
                    rows(&v[..40], 1),
                    &[slot],
                    &mut pool,
                );
                assert!(matches!(result, Err(CpuError::Index { limit: 96, .. })));
            }
        }
    }
}

#[test]
fn rope_matches_its_reference_and_rope_write_is_both() {
    let mut random = Random::new(3);
    let pos = [0, 1, 2047, 100_000];
    for (head_dim, rotary_dim) in [(64, 64), (40, 36), (6, 2)] {
        for pairing in [Pairing::Interleaved, Pairing::Halves] {
            let (heads, kv_heads) = (3, 2);
            let width = (heads + 2 * kv_heads) * head_dim;
            let qkv = random.floats(4 * width);
            let op = ops::Rope {
                head_dim,
                rotary_dim,
                base: 1e4,
                scale: 0.5,
                pairing,
            };
            let frequencies = op.frequencies(None);
            let mut table = vec![0.0; 4 * rotary_dim];
            rotary_table(&frequencies, &pos, &mut rows_mut(&mut table, 4)).expect("fits");
            let table = RotaryTable::new(rows(&table, 4), pairing).expect("even");
            let all = rows(&qkv, 4);
            let part = |start: usize, n: usize| {
                all.columns(start * head_dim, n * head_dim).expect("inside")
            };
            let (q, k, v) = (
                part(0, heads),
                part(heads, kv_heads),
                part(heads + kv_heads, kv_heads),
            );
            let dense = |x: Rows<'_>| (0..4).flat_map(|r| x.row(r).to_vec()).collect::<Vec<f32>>();
            let tensor = |x: Rows<'_>| Tensor::f32(&[4, x.width()], dense(x));
            let positions = Tensor::i32(&[4], pos.to_vec());
            let expected_q = expected(op.clone(), &[&tensor(q), &positions]);
            let expected_k = expected(op.clone(), &[&tensor(k), &positions]);
            for machine in machines() {
                let mut y = vec![0.0; 4 * heads * head_dim];
                rope(&machine, q, table, head_dim, &mut rows_mut(&mut y, 4)).expect("fits");
                assert_near(&y, &expected_q, 3e-7, "rope");

                let slots = [3, 2, 40, 1];
                let shape = PoolShape::new(ElementType::F16, 2, kv_heads, head_dim).expect("valid");
                let mut found = vec![0u8; 2 * 2 * kv_heads * KV_BLOCK * head_dim * 2];
                let mut pool = KvPoolMut::new(shape, &mut found).expect("fits");
                let mut y2 = vec![0.0; 4 * heads * head_dim];
                rope_write(
                    &machine,
                    [q, k, v],
                    table,
                    &slots,
                    &mut pool,
                    &mut rows_mut(&mut y2, 4),
                )
                .expect("fits");
                assert_eq!(y, y2);
                let mut turned = vec![0.0; 4 * kv_heads * head_dim];
                rope(&machine, k, table, head_dim, &mut rows_mut(&mut turned, 4)).expect("fits");
                assert_near(&turned, &expected_k, 3e-7, "keys");
                let mut separate = vec![0u8; found.len()];
                let mut pool = KvPoolMut::new(shape, &mut separate).expect("fits");
                state_write(&machine, rows(&turned, 4), v, &slots, &mut pool).expect("fits");
                assert_eq!(found, separate);
            }
        }
    }
}

#[test]
fn embedding_reads_what_matmul_reads() {
    let mut random = Random::new(4);
    let (n, k) = (37, 64);
    let ids = [0, 36, 17, -1, 37, i32::MAX];
    for machine in machines() {
        for layout in common::layouts(machine.level().tile_rows()) {
            let bytes = common::packed(layout, n, k, &mut random);
            let mut values = vec![0.0; n * k];
            unpack(&layout, &bytes, n, k, &mut values).expect("valid");
            let weight = Weight::Packed(PackedMatrix::new(layout, &bytes, n, k).expect("valid"));
            check_embedding(&machine, weight, &values, k, &ids);
        }
        let values = random.floats(n * k);
        for element in [ElementType::F16, ElementType::F32] {
            let bytes = pool_bytes(&values, element);
            let weight = Weight::Dense(DenseMatrix::new(element, &bytes, n, k).expect("valid"));
            check_embedding(&machine, weight, &pool_values(&bytes, element), k, &ids);
        }
    }
}

fn check_embedding(
    machine: &ingle_cpu::Machine,
    weight: Weight<'_>,
    values: &[f32],
    k: usize,
    ids: &[i32],
) {
    let mut y = vec![0.0; ids.len() * k];
    embedding(machine, ids, weight, &mut rows_mut(&mut y, ids.len())).expect("fits");
    for (&id, y) in ids.iter().zip(y.chunks_exact(k)) {
        match usize::try_from(id)
            .ok()
            .and_then(|i| values.chunks_exact(k).nth(i))
        {
            Some(row) => assert_eq!(y, row),
            None => assert!(y.iter().all(|v| v.is_nan())),
        }
    }
}

#[test]
fn copies_match_their_references() {
    let x = Random::new(5).floats(5 * 12);
    let tensor = Tensor::f32(&[5, 12], x.clone());
    let mut y = vec![0.0; 5 * 4];
    slice(rows(&x, 5), 3, &mut rows_mut(&mut y, 5)).expect("inside");
    assert_eq!(y, expected(ops::Slice { start: 3, end: 7 }, &[&tensor]));
    assert!(slice(rows(&x, 5), 9, &mut rows_mut(&mut y, 5)).is_err());

    let index = [4, 0, 4, 5];
    let mut y = vec![0.0; 4 * 12];
    take_rows(rows(&x, 5), &index, &mut rows_mut(&mut y, 4)).expect("fits");
    assert_eq!(
        y[..36],
        expected(
            ops::TakeRows {},
            &[&tensor, &Tensor::i32(&[3], index[..3].to_vec())]
        )
    );
    assert!(y[36..].iter().all(|v| v.is_nan()));
}

#[test]
fn rows_are_reduced_as_their_references_say() {
    let mut random = Random::new(6);
    for (n, k) in [(1, 1), (3, 37), (5, 1000)] {
        let x: Vec<f32> = random.floats(n * k).iter().map(|v| v * 8.0).collect();
        let tensor = Tensor::f32(&[n, k], x.clone());
        for machine in machines() {
            for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
                let mut y = vec![0.0; n];
                reduce(&machine, rows(&x, n), kind, &mut rows_mut(&mut y, n)).expect("fits");
                assert_near(
                    &y,
                    &expected(ops::Reduce { kind }, &[&tensor]),
                    1e-4,
                    &format!("{kind:?}"),
                );
            }
            let mut y = vec![0.0; n * k];
            softmax(&machine, rows(&x, n), &mut rows_mut(&mut y, n)).expect("fits");
            for (found, expected) in y.iter().zip(expected(ops::Softmax {}, &[&tensor])) {
                assert!(
                    (found - expected).abs() <= 2e-6 * expected,
                    "{found}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn argmax_takes_the_first_and_reports_what_is_not_finite() {
    let mut x = Random::new(7).floats(6 * 45);
    x[7] = 3.0;
    x[30] = 3.0;
    x[45 + 44] = 2.0;
    x[2 * 45 + 3] = f32::NAN;
    x[3 * 45 + 44] = f32::NEG_INFINITY;
    x[4 * 45 + 16] = f32::INFINITY;
    x[5 * 45..].fill(-1.5);
    let expected = ops::Op::from(ops::Argmax {}).reference(&[&Tensor::f32(&[6, 45], x.clone())])[0]
        .as_i32()
        .to_vec();
    assert_eq!(expected, [7, 44, -1, -1, -1, 0]);
    for machine in machines() {
        let mut y = [0; 6];
        argmax(&machine, rows(&x, 6), &mut y).expect("fits");
        assert_eq!(y[..], expected);
    }
}
