//! The kernels that write and read keys and values, against the slow obvious way.

mod common;

use common::Gpu;
use common::data::{Random, assert_close, bits, floats, step_words};
use half::f16;
use ingle_kernels::params::{AttentionParams, RopeWriteParams};
use ingle_kernels::step::{BLOCK_LEN, StepRows};
use ingle_kernels::{AttentionKey, KernelKey, KvElement, RopePairing, RopeWriteKey, rope};

/// Element of a state `[blocks, 2, kv_heads, 32, head_dim]`.
fn state_at(slot: u32, plane: usize, head: usize, kv_heads: usize, head_dim: usize) -> usize {
    let (block, place) = ((slot / BLOCK_LEN) as usize, (slot % BLOCK_LEN) as usize);
    (((block * 2 + plane) * kv_heads + head) * BLOCK_LEN as usize + place) * head_dim
}

fn state_floats(words: &[u32], kv: KvElement) -> Vec<f32> {
    match kv {
        KvElement::F32 => floats(words),
        KvElement::F16 => words
            .iter()
            .flat_map(|w| [*w as u16, (*w >> 16) as u16].map(|half| f16::from_bits(half).to_f32()))
            .collect(),
    }
}

fn state_words(values: &[f32], kv: KvElement) -> Vec<u32> {
    match kv {
        KvElement::F32 => bits(values),
        KvElement::F16 => {
            let half = |v: f32| u32::from(f16::from_f32(v).to_bits());
            values
                .chunks(2)
                .map(|pair| half(pair[0]) | half(pair[1]) << 16)
                .collect()
        }
    }
}

#[test]
fn rope_write_turns_and_writes() {
    let gpu = Gpu::new();
    let (heads, kv_heads) = (3usize, 2usize);
    for pairing in [RopePairing::Interleaved, RopePairing::Halves] {
        for kv in [KvElement::F32, KvElement::F16] {
            for (fused, head_dim, rotary) in [(true, 8usize, 8usize), (false, 20, 12)] {
                let key = RopeWriteKey {
                    head_dim: head_dim as u16,
                    rotary_dim: rotary as u16,
                    pairing,
                    kv,
                    fused,
                    threads: 32,
                };
                check_rope_write(&gpu, key, heads, kv_heads);
            }
        }
    }
}

fn check_rope_write(gpu: &Gpu, key: RopeWriteKey, heads: usize, kv_heads: usize) {
    let (head_dim, rotary) = (key.head_dim as usize, key.rotary_dim as usize);
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let positions = [5, 700, 0];
    let slots = [40, 3, 64];
    let mut random = Random::new(17);
    let frequencies = rope::frequencies(1e4, rotary as u32);
    let (strides, offsets) = if key.fused {
        (
            [q_width + 2 * kv_width + 2; 3],
            [2, 2 + q_width, 2 + q_width + kv_width],
        )
    } else {
        ([q_width, kv_width, kv_width + 1], [0, 0, 1])
    };
    let sources: Vec<Vec<f32>> = (0..if key.fused { 1 } else { 3 })
        .map(|i| random.floats(3 * strides[i]))
        .collect();
    let params = RopeWriteParams {
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        q_stride: strides[0] as u32,
        q_offset: offsets[0] as u32,
        k_stride: strides[1] as u32,
        k_offset: offsets[1] as u32,
        v_stride: strides[2] as u32,
        v_offset: offsets[2] as u32,
    };
    let zeros = [0; 3];
    let rows = StepRows {
        ids: &zeros,
        positions: &positions,
        slots: &slots,
        sequences: &zeros,
        output_rows: &[],
    };
    let state = key.kv.state_words(3, kv_heads as u32, head_dim as u32) as usize;
    let mut buffers = vec![];
    for (name, source) in (if key.fused {
        &["qkv"][..]
    } else {
        &["q", "k", "v"]
    })
    .iter()
    .zip(&sources)
    {
        buffers.push((*name, bits(source)));
    }
    let at = buffers.len();
    buffers.extend([
        ("rope_table", bits(&rope::table(&frequencies, 1024, 1.0))),
        ("q_out", vec![0; 3 * q_width]),
        ("kv", vec![0; state]),
        ("step", step_words(&rows, &[])),
        ("params", params.words()),
    ]);
    let id = KernelKey::RopeWrite(key.clone()).id();
    let grid = key.grid(heads as u32, kv_heads as u32, 3);
    let out = gpu.run(&KernelKey::RopeWrite(key.clone()), &buffers, grid);

    let head_of = |part: usize, t: usize, head: usize| -> Vec<f32> {
        let source = &sources[if key.fused { 0 } else { part }];
        source[t * strides[part] + offsets[part] + head * head_dim..][..head_dim].to_vec()
    };
    let turn = |mut head: Vec<f32>, position: u32| {
        for (i, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match key.pairing {
                RopePairing::Interleaved => (2 * i, 2 * i + 1),
                RopePairing::Halves => (i, i + rotary / 2),
            };
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (x, y) = (f64::from(head[a]), f64::from(head[b]));
            head[a] = (x * cos - y * sin) as f32;
            head[b] = (x * sin + y * cos) as f32;
        }
        head
    };
    let mut q_expected = Vec::new();
    let mut kv_expected = vec![0.0; 3 * 2 * kv_heads * 32 * head_dim];
    for t in 0..3 {
        for head in 0..heads {
            q_expected.extend(turn(head_of(0, t, head), positions[t]));
        }
        for head in 0..kv_heads {
            let key_head = turn(head_of(1, t, head), positions[t]);
            let value_head = head_of(2, t, head);
            for (plane, values) in [key_head, value_head].into_iter().enumerate() {
                let to = state_at(slots[t], plane, head, kv_heads, head_dim);
                kv_expected[to..to + head_dim].copy_from_slice(&values);
            }
        }
    }
    assert_close(&id, &floats(&out[at + 1]), &q_expected, 1e-6);
    let tolerance = if key.kv == KvElement::F16 { 6e-4 } else { 1e-6 };
    assert_close(
        &id,
        &state_floats(&out[at + 2], key.kv),
        &kv_expected,
        tolerance,
    );
}

#[test]
fn attention_sees_what_it_may() {
    let gpu = Gpu::new();
    for kv in [KvElement::F32, KvElement::F16] {
        for (head_dim, threads) in [(64, 16), (20, 8), (256, 64), (128, 128)] {
            for (window, soft_cap) in [(false, false), (true, true)] {
                check_attention(
                    &gpu,
                    AttentionKey {
                        head_dim,
                        kv,
                        window,
                        soft_cap,
                        threads,
                    },
                );
            }
        }
    }
}

fn check_attention(gpu: &Gpu, key: AttentionKey) {
    let (heads, kv_heads, head_dim) = (4usize, 2usize, key.head_dim as usize);
    // Two sequences of different length in one batch; the first needs several tiles of scores.
    let sequences = [0, 1, 1, 0];
    let positions = [599, 0, 33, 40];
    let table = vec![(0..20).map(|b| 21 - b).collect::<Vec<u32>>(), vec![1, 0]];
    let (cap, window, scale) = (2.5f32, 37u32, 0.3f32);
    let mut random = Random::new(19);
    let q = random.floats(4 * heads * head_dim);
    let state = random.floats(22 * 2 * kv_heads * 32 * head_dim);
    let words = state_words(&state, key.kv);
    let state = state_floats(&words, key.kv);
    let params = AttentionParams {
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        scale,
        cap,
        window,
    };
    let zeros = [0; 4];
    let rows = StepRows {
        ids: &zeros,
        positions: &positions,
        slots: &zeros,
        sequences: &sequences,
        output_rows: &[],
    };
    let buffers = [
        ("q", bits(&q)),
        ("kv", words),
        ("out", vec![0; q.len()]),
        ("step", step_words(&rows, &table)),
        ("params", params.words()),
    ];
    let id = KernelKey::Attention(key.clone()).id();
    let grid = key.grid(heads as u32, 4);
    let out = gpu
        .run(&KernelKey::Attention(key.clone()), &buffers, grid)
        .swap_remove(2);

    let mut expected = Vec::new();
    for t in 0..4 {
        for head in 0..heads {
            let q = &q[(t * heads + head) * head_dim..][..head_dim];
            let first = if key.window {
                (positions[t] + 1).saturating_sub(window)
            } else {
                0
            };
            let row = |position: u32, plane| {
                let block = table[sequences[t] as usize][(position / 32) as usize];
                let at = state_at(
                    block * 32 + position % 32,
                    plane,
                    head / 2,
                    kv_heads,
                    head_dim,
                );
                &state[at..at + head_dim]
            };
            let scores: Vec<f64> = (first..=positions[t])
                .map(|position| {
                    let dot: f64 = q
                        .iter()
                        .zip(row(position, 0))
                        .map(|(q, k)| f64::from(*q) * f64::from(*k))
                        .sum();
                    let score = dot * f64::from(scale);
                    if key.soft_cap {
                        f64::from(cap) * (score / f64::from(cap)).tanh()
                    } else {
                        score
                    }
                })
                .collect();
            let highest = scores.iter().cloned().fold(f64::MIN, f64::max);
            let total: f64 = scores.iter().map(|s| (s - highest).exp()).sum();
            let mut sum = vec![0.0f64; head_dim];
            for (position, score) in (first..).zip(&scores) {
                let weight = (score - highest).exp() / total;
                sum.iter_mut()
                    .zip(row(position, 1))
                    .for_each(|(s, v)| *s += weight * f64::from(*v));
            }
            expected.extend(sum.into_iter().map(|s| s as f32));
        }
    }
    assert_close(&id, &floats(&out), &expected, 1e-5);
}
