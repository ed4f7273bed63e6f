//! What the tests of models and engine share: a target without kernels, files in memory, and weights unpacked again.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ingle_formats::{Parsed, gguf, safetensors};
use ingle_graph::Tensor;
use ingle_graph::kernel::{KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::passes::{Choice, RowRange, Target};
use ingle_graph::plan::Plan;
use ingle_models::{LoadError, Model, WeightLoader};
use ingle_quant::ElementType;
use ingle_quant::{
    GgmlType, LayoutRequest, PackedLayout, Placement, Storage, convert_rows, unpack,
};

/// A target whose "kernels" are the reference interpreter, with any tiles.
pub struct ReferenceTarget {
    pub request: LayoutRequest,
}

impl Default for ReferenceTarget {
    fn default() -> Self {
        ReferenceTarget {
            request: LayoutRequest {
                rows: 8,
                placement: Placement::Inline,
            },
        }
    }
}

impl Target for ReferenceTarget {
    fn name(&self) -> String {
        "reference".into()
    }

    fn layout(&self, storage: Storage, _rows: usize, _k: usize) -> Result<WeightLayout, String> {
        match storage {
            Storage::Element(e) => Ok(WeightLayout::Dense(e)),
            Storage::Quant(scheme) => PackedLayout::for_scheme(&scheme, self.request)
                .map(WeightLayout::Packed)
                .ok_or_else(|| format!("no layout holds {scheme}")),
        }
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        let bytes = match layout {
            WeightLayout::Dense(e) => rows.checked_mul(k)?.checked_mul(e.bytes())?,
            WeightLayout::Packed(p) => p.bytes(rows, k).ok()?,
        };
        Some(bytes as u64)
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, _rows: RowRange) -> bool {
        true
    }

    fn max_extras(&self) -> usize {
        4
    }

    fn select(&self, _spec: &KernelSpec, _rows: RowRange) -> Result<Choice, String> {
        Ok(Choice {
            candidate: "reference".into(),
            why: "the only one".into(),
            text: None,
            workspace: None,
        })
    }
}

/// A model and the bytes of its files.
pub struct Loaded {
    pub model: Model,
    pub files: Vec<Vec<u8>>,
}

pub fn tiny_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/tiny")
}

pub fn tiny_gguf() -> Loaded {
    let bytes = std::fs::read(tiny_folder().join("tiny.gguf")).unwrap();
    let Parsed::Done(manifest) = gguf::parse(&bytes, bytes.len() as u64).unwrap() else {
        panic!("the whole file")
    };
    Loaded {
        model: Model::from_gguf(&manifest).unwrap(),
        files: vec![bytes],
    }
}

pub fn tiny_hf(config: &str) -> Loaded {
    let config = std::fs::read(tiny_folder().join(config)).unwrap();
    let (files, shards) = tiny_shards();
    Loaded {
        model: Model::from_hf(&config, &shards).unwrap(),
        files,
    }
}

pub fn tiny_shards() -> (Vec<Vec<u8>>, Vec<safetensors::Manifest>) {
    let files: Vec<Vec<u8>> = (1..=2)
        .map(|i| {
            std::fs::read(tiny_folder().join(format!("model-{i:05}-of-00002.safetensors"))).unwrap()
        })
        .collect();
    let header = |bytes: &Vec<u8>| match safetensors::parse(bytes, bytes.len() as u64).unwrap() {
        Parsed::Done(manifest) => manifest,
        Parsed::NeedMore { .. } => panic!("the whole file"),
    };
    let shards = files.iter().map(header).collect();
    (files, shards)
}

/// Streams all weights into buffers, checking what the loader promises about its reads.
pub fn load(plan: &Plan, loaded: &Loaded) -> Vec<Vec<u8>> {
    let mut buffers: Vec<Vec<u8>> = plan
        .weights
        .iter()
        .map(|w| vec![0xAA; w.bytes as usize])
        .collect();
    let mut written: Vec<u64> = vec![0; buffers.len()];
    let mut loader = WeightLoader::new::<String>(plan, &loaded.model.sources).unwrap();
    while let Some(read) = loader.next_read().cloned() {
        let bytes = &loaded.files[read.file][read.range.start as usize..read.range.end as usize];
        assert!(bytes.len() as u64 <= ingle_models::MAX_READ);
        let mut write = |weight: usize, offset: u64, bytes: &[u8]| -> Result<(), String> {
            buffers[weight][offset as usize..][..bytes.len()].copy_from_slice(bytes);
            written[weight] += bytes.len() as u64;
            Ok(())
        };
        loader
            .supply(bytes, &mut write)
            .unwrap_or_else(|e: LoadError<String>| panic!("{e}"));
    }
    for (weight, written) in plan.weights.iter().zip(written) {
        // Between codes and scales that lie apart there may be padding that nobody writes.
        assert!(
            written <= weight.bytes && written + 16 > weight.bytes,
            "{}: {written} of {}",
            weight.name,
            weight.bytes
        );
    }
    buffers
}

/// The values of loaded weights, by the leaf's name.
pub fn tensors(plan: &Plan, buffers: &[Vec<u8>]) -> HashMap<String, Tensor> {
    let value = |(weight, bytes): (&ingle_graph::plan::Weight, &Vec<u8>)| {
        let mut values = vec![0f32; weight.rows * weight.k];
        match weight.layout {
            WeightLayout::Packed(layout) => {
                unpack(&layout, bytes, weight.rows, weight.k, &mut values).unwrap()
            }
            WeightLayout::Dense(element) => {
                let ty = match element {
                    ElementType::F16 => GgmlType::F16,
                    ElementType::Bf16 => GgmlType::BF16,
                    _ => GgmlType::F32,
                };
                let mut wide = vec![0u8; values.len() * 4];
                convert_rows(ty, bytes, ElementType::F32, &mut wide).unwrap();
                values
                    .iter_mut()
                    .zip(wide.as_chunks::<4>().0)
                    .for_each(|(v, b)| *v = f32::from_le_bytes(*b));
            }
        }
        let shape = if weight.k == 1 {
            vec![weight.rows]
        } else {
            vec![weight.rows, weight.k]
        };
        (weight.name.clone(), Tensor::f32(&shape, values))
    };
    plan.weights.iter().zip(buffers).map(value).collect()
}

/// What `hf_tiny.py` computed.
pub struct Expected {
    pub tokens: Vec<u32>,
    /// Positions whose logits are given.
    pub positions: Vec<usize>,
    pub default: Vec<Vec<f32>>,
    pub llama3: Vec<Vec<f32>>,
    pub llama3_factors: Vec<f32>,
}

pub fn expected() -> Expected {
    let text = std::fs::read_to_string(tiny_folder().join("logits.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let numbers = |v: &serde_json::Value| -> Vec<f64> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_f64().unwrap())
            .collect()
    };
    let floats = |v: &serde_json::Value| {
        numbers(v)
            .into_iter()
            .map(|n| n as f32)
            .collect::<Vec<f32>>()
    };
    let rows = |key: &str| json[key].as_array().unwrap().iter().map(floats).collect();
    Expected {
        tokens: numbers(&json["tokens"])
            .into_iter()
            .map(|n| n as u32)
            .collect(),
        positions: numbers(&json["rows"])
            .into_iter()
            .map(|n| n as usize)
            .collect(),
        default: rows("default"),
        llama3: rows("llama3"),
        llama3_factors: floats(&json["llama3_factors"]),
    }
}

/// `‖a − b‖ / ‖b‖`.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let off: f64 = a
        .iter()
        .zip(b)
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    (off / b.iter().map(|&b| square(f64::from(b))).sum::<f64>()).sqrt()
}
