//! Properties of the texts themselves: valid, the same every time, within the bindings of WebGPU's default limits, and
//! equal to the golden files.
//!
//! `INGLE_BLESS=1 cargo test -p ingle-kernels --test texts` rewrites `tests/golden/` after an intended change.

use std::collections::HashSet;
use std::path::PathBuf;

use ingle_kernels::compile::{KernelError, compile};
use ingle_kernels::shapes::{self, DeviceClass};
use ingle_kernels::{
    Access, Activations, ArgmaxKey, AttentionKey, DeviceLimits, EltInput, EltOp, EltProgram,
    EmbeddingKey, Feature, KernelKey, KvElement, MatMulKey, MatVecKey, Pack, Projection,
    RopePairing, RopeWriteKey, TokenSource, WeightFormat,
};
use ingle_quant::ScaleType;

mod common;

const Q4_1: WeightFormat = WeightFormat::Packed {
    bits: 4,
    offset: 0,
    group: 32,
    scale: ScaleType::F16,
    min: true,
    tile: 1,
};

fn projection(activations: Activations, norm: bool, epilogue: EltProgram) -> Projection {
    Projection {
        weights: Q4_1,
        activations,
        norm,
        epilogue,
    }
}

/// The kernels of one llama layer, decode, with names for their golden files.
fn layer() -> Vec<(&'static str, KernelKey)> {
    let (class, int8) = (DeviceClass::Hardware, Activations::Int8);
    let product = |activations, norm, epilogue| {
        let staged = activations == Activations::Int8;
        KernelKey::MatVec(MatVecKey {
            projection: projection(activations, norm, epilogue),
            tokens: 1,
            shape: shapes::decode(class, activations, true),
            stage_k: if staged { 1024 } else { 0 },
        })
    };
    let embedding = EmbeddingKey {
        weights: Q4_1,
        source: TokenSource::Step,
        threads: 64,
    };
    let rope_write = RopeWriteKey {
        head_dim: 64,
        rotary_dim: 64,
        pairing: RopePairing::Interleaved,
        kv: KvElement::F16,
        fused: true,
        threads: 64,
    };
    let attention = AttentionKey {
        head_dim: 64,
        kv: KvElement::F16,
        window: false,
        soft_cap: false,
        threads: 64,
    };
    vec![
        ("embedding", KernelKey::Embedding(embedding)),
        ("norm_qkv", product(int8, true, EltProgram::identity())),
        ("rope_write", KernelKey::RopeWrite(rope_write)),
        ("attention", KernelKey::Attention(attention)),
        (
            "output_add",
            product(int8, false, EltProgram::add_residual()),
        ),
        (
            "norm_gate_up_swiglu",
            product(Activations::F32, true, EltProgram::swiglu()),
        ),
        ("argmax", KernelKey::Argmax(ArgmaxKey { threads: 256 })),
    ]
}

#[test]
fn the_texts_of_a_layer_are_the_golden_ones() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, key) in layer() {
        let text = compile(&key, &DeviceLimits::default()).expect("compiles");
        common::validate(&text);
        let path = folder.join(format!("{name}.wgsl"));
        let header = format!("// {}\n", text.id);
        let found = header + &text.wgsl;
        if std::env::var_os("INGLE_BLESS").is_some() {
            std::fs::create_dir_all(&folder).expect("the folder can be made");
            std::fs::write(&path, &found).expect("the file can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == expected,
            "{name} is not what {} says; INGLE_BLESS=1 rewrites it",
            path.display()
        );
    }
}

#[test]
fn compiling_again_gives_the_same_text() {
    for (_, key) in layer() {
        let again = || compile(&key, &DeviceLimits::default()).expect("compiles");
        assert_eq!(again(), again());
    }
}

#[test]
fn only_the_outputs_are_writable() {
    let outputs = ["out", "q_out", "kv"];
    for (name, key) in layer() {
        let text = compile(&key, &DeviceLimits::default()).expect("compiles");
        for binding in &text.bindings {
            let is_output = outputs.contains(&binding.name.as_str()) && name != "attention"
                || binding.name == "out";
            assert_eq!(
                binding.access == Access::ReadWrite,
                is_output,
                "{name}: {}",
                binding.name
            );
        }
        assert!(text.bindings.len() <= 8, "{name}");
    }
}

#[test]
fn packed_dot_products_are_asked_for() {
    let mut features = HashSet::new();
    for (name, key) in layer() {
        let text = compile(&key, &DeviceLimits::default()).expect("compiles");
        if text.features.contains(&Feature::PackedIntegerDot) {
            features.insert(name);
        }
    }
    assert_eq!(features, HashSet::from(["norm_qkv", "output_add"]));
}

#[test]
fn every_shape_of_the_tables_is_valid_at_default_limits() {
    let limits = DeviceLimits::default();
    for class in [DeviceClass::Software, DeviceClass::Hardware] {
        for activations in [Activations::F32, Activations::Int8] {
            for packed_dot in [false, true] {
                let key = MatVecKey {
                    projection: projection(activations, true, EltProgram::swiglu()),
                    tokens: 1,
                    shape: shapes::decode(class, activations, packed_dot),
                    stage_k: if activations == Activations::Int8 {
                        2048
                    } else {
                        0
                    },
                };
                common::validate(&compile(&KernelKey::MatVec(key), &limits).expect("compiles"));
            }
        }
        let key = MatVecKey {
            projection: projection(Activations::F32, false, EltProgram::add_residual()),
            tokens: 8,
            shape: shapes::rows8(class),
            stage_k: 0,
        };
        common::validate(&compile(&KernelKey::MatVec(key), &limits).expect("compiles"));
        for head_dim in [64, 80, 128, 256] {
            let key = AttentionKey {
                head_dim,
                kv: KvElement::F32,
                window: true,
                soft_cap: true,
                threads: shapes::attention_threads(class, head_dim),
            };
            common::validate(&compile(&KernelKey::Attention(key), &limits).expect("compiles"));
        }
    }
    let key = MatMulKey {
        projection: projection(Activations::F32, false, EltProgram::swiglu()),
        tile: shapes::tile(),
    };
    common::validate(&compile(&KernelKey::MatMul(key), &limits).expect("compiles"));
}

#[test]
fn too_many_bindings_and_too_much_memory_are_refused() {
    let limits = DeviceLimits::default();
    let mut program = EltProgram::identity();
    for _ in 0..3 {
        let input = program.input(EltInput::Same);
        program.result = program.apply(EltOp::Add, &[program.result, input]);
    }
    let mut key = MatVecKey {
        projection: projection(Activations::F32, true, program),
        tokens: 1,
        shape: shapes::decode(DeviceClass::Hardware, Activations::F32, false),
        stage_k: 0,
    };
    let refused = compile(&KernelKey::MatVec(key.clone()), &limits);
    assert!(
        matches!(
            &refused,
            Err(KernelError::Limit {
                field: "storage buffers",
                limit: 8,
                found: 9,
                ..
            })
        ),
        "{refused:?}"
    );
    key.projection = projection(Activations::Int8, false, EltProgram::identity());
    key.stage_k = 65_536;
    let refused = compile(&KernelKey::MatVec(key), &limits);
    assert!(
        matches!(
            &refused,
            Err(KernelError::Limit {
                field: "bytes of workgroup memory",
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn keys_survive_serialisation_and_packs_find_them() {
    let mut pack = Pack::default();
    let mut ids = HashSet::new();
    for (_, key) in layer() {
        let json = serde_json::to_string(&key).expect("serialises");
        let back: KernelKey = serde_json::from_str(&json).expect("parses");
        assert_eq!(back, key);
        assert!(ids.insert(key.id()), "{} twice", key.id());
        pack.insert(compile(&key, &DeviceLimits::default()).expect("compiles"));
        assert!(pack.get(&back).is_some());
    }
}
