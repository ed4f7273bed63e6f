//! The llama family: pre-norm decoders with rotary positions, grouped queries and SwiGLU (Touvron et al. 2023,
//! arXiv 2302.13971). Qwen 2 is the same with biases on queries, keys and values.
//!
//! ```text
//! x = embedding ids
//! each layer:  n = rms_norm x;  q, k = rope(n Wqᵀ), rope(n Wkᵀ);  v = n Wvᵀ
//!              x = x + attention(q, kv ← k, v) Woᵀ
//!              n = rms_norm x;  x = x + swiglu(n Wgᵀ, n Wuᵀ) Wdᵀ
//! logits = rms_norm(take_rows x) Wᵀ;  next = argmax logits
//! ```

use ingle_graph::ops::{
    Argmax, Attention, Binary, EltOp, Embedding, KV_BLOCK, Matmul, RmsNorm, Rope, StateWrite,
    Swiglu, TakeRows,
};
use ingle_graph::{Graph, Recipe, Symbol, ValueId, ValueType, shape};
use ingle_quant::{ElementType, Storage};

use crate::families::GraphOptions;
use crate::names::{Naming, ROPE_FACTORS};
use crate::{Config, Model, ModelError};

/// The graph of a model of this family.
pub(super) fn graph(model: &Model, options: GraphOptions) -> Result<Graph, ModelError> {
    Builder::new(model, options)?.build()
}

/// The inputs that layers read.
struct Inputs {
    pos: ValueId,   // i32[tokens]
    slots: ValueId, // i32[tokens]
    seq: ValueId,   // i32[tokens]
    table: ValueId, // i32[batch, table]
}

struct Builder<'a> {
    model: &'a Model,
    config: &'a Config,
    naming: Naming,
    kv: ElementType,
    graph: Graph,
}

impl<'a> Builder<'a> {
    fn new(model: &'a Model, options: GraphOptions) -> Result<Self, ModelError> {
        if !matches!(options.kv, ElementType::F16 | ElementType::F32) {
            return Err(ModelError::field(
                "element of the KV pools",
                "f16 or f32",
                options.kv.name(),
            ));
        }
        let gguf = model.sources.contains("token_embd.weight");
        let naming = if gguf {
            Naming::Gguf
        } else {
            Naming::HuggingFace
        };
        let graph = Graph::new(model.config.architecture);
        Ok(Builder {
            model,
            config: &model.config,
            naming,
            kv: options.kv,
            graph,
        })
    }

    fn build(mut self) -> Result<Graph, ModelError> {
        let c = self.config;
        let rows = |symbol: Symbol| ValueType::i32(shape![symbol]);
        let ids = self.graph.input("ids", rows(Symbol::Tokens));
        let inputs = Inputs {
            pos: self.graph.input("pos", rows(Symbol::Tokens)),
            slots: self.graph.input("slots", rows(Symbol::Tokens)),
            seq: self.graph.input("seq", rows(Symbol::Tokens)),
            table: self.graph.input(
                "table",
                ValueType::i32(shape![Symbol::Batch, Symbol::Table]),
            ),
        };
        let output_rows = self.graph.input("output_rows", rows(Symbol::Outputs));
        let embedding = self.matrix("token_embd.weight", c.vocabulary, c.width)?;
        let mut x = self.graph.push(Embedding {}, &[ids, embedding])?; // [tokens, width]
        let mut last_versions = Vec::new();
        for layer in 0..c.layers {
            let pool = shape![Symbol::Pool, 2, c.kv_heads, KV_BLOCK, c.head_dim];
            let kv = self
                .graph
                .input(format!("kv.{layer}"), ValueType::state(self.kv, pool));
            let (y, written) = self.layer(layer, x, kv, &inputs)?;
            x = y;
            last_versions.push(written);
        }
        let x = self.graph.push(TakeRows {}, &[x, output_rows])?; // [outputs, width]
        let n = self.norm("output_norm.weight", x)?;
        let head = if c.tied {
            embedding
        } else {
            self.matrix("output.weight", c.vocabulary, c.width)?
        };
        let logits = self.graph.push(Matmul {}, &[n, head])?; // [outputs, vocabulary]
        let next = self.graph.push(Argmax {}, &[logits])?;
        self.graph.result("next", next);
        self.graph.result("logits", logits);
        for (layer, version) in last_versions.into_iter().enumerate() {
            self.graph.result(format!("kv.{layer}.next"), version);
        }
        Ok(self.graph)
    }

    /// One layer: its output and the pool's new version.
    fn layer(
        &mut self,
        i: usize,
        x: ValueId,
        kv: ValueId,
        inputs: &Inputs,
    ) -> Result<(ValueId, ValueId), ModelError> {
        let c = self.config;
        let (width, kv_width) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let name = |what: &str| format!("blk.{i}.{what}");

        let n = self.norm(&name("attn_norm.weight"), x)?;
        let q = self.project(&name("attn_q"), n, width, c.width, c.biases.qkv)?; // [tokens, heads · head_dim]
        let k = self.project(&name("attn_k"), n, kv_width, c.width, c.biases.qkv)?; // [tokens, kv_heads · head_dim]
        let v = self.project(&name("attn_v"), n, kv_width, c.width, c.biases.qkv)?;
        let q = self.rope(q, inputs.pos)?;
        let k = self.rope(k, inputs.pos)?;
        let kv = self.graph.push(StateWrite {}, &[kv, k, v, inputs.slots])?;
        let scale = (1.0 / (c.head_dim as f64).sqrt()) as f32;
        let attention = Attention {
            heads: c.heads,
            scale,
            softcap: None,
            window: None,
        };
        let a = self
            .graph
            .push(attention, &[q, kv, inputs.pos, inputs.seq, inputs.table])?;
        let a = self.project(&name("attn_output"), a, c.width, width, c.biases.output)?;
        let x = self.add(x, a)?; // [tokens, width]

        let n = self.norm(&name("ffn_norm.weight"), x)?;
        let gate = self.project(
            &name("ffn_gate"),
            n,
            c.feed_forward,
            c.width,
            c.biases.feed_forward,
        )?;
        let up = self.project(
            &name("ffn_up"),
            n,
            c.feed_forward,
            c.width,
            c.biases.feed_forward,
        )?;
        let f = self.graph.push(Swiglu {}, &[gate, up])?; // [tokens, feed_forward]
        let f = self.project(
            &name("ffn_down"),
            f,
            c.width,
            c.feed_forward,
            c.biases.feed_forward,
        )?;
        Ok((self.add(x, f)?, kv))
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Result<ValueId, ModelError> {
        let weight = self.vector(name, self.config.width)?;
        Ok(self.graph.push(
            RmsNorm {
                eps: self.config.norm_eps,
            },
            &[x, weight],
        )?)
    }

    fn rope(&mut self, x: ValueId, pos: ValueId) -> Result<ValueId, ModelError> {
        let rope = &self.config.rope;
        let op = Rope {
            head_dim: self.config.head_dim,
            rotary_dim: rope.rotary_dim,
            base: rope.base,
            scale: rope.scale,
            pairing: rope.pairing,
        };
        let mut inputs = vec![x, pos];
        if rope.factors {
            inputs.push(self.vector(ROPE_FACTORS, rope.rotary_dim / 2)?);
        }
        Ok(self.graph.push(op, &inputs)?)
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, ModelError> {
        Ok(self.graph.push(Binary { kind: EltOp::Add }, &[a, b])?)
    }

    /// `x Wᵀ`, plus the bias if there is one, with `stem.weight` of `[rows, k]`.
    fn project(
        &mut self,
        stem: &str,
        x: ValueId,
        rows: usize,
        k: usize,
        bias: bool,
    ) -> Result<ValueId, ModelError> {
        let weight = self.matrix(&format!("{stem}.weight"), rows, k)?;
        let y = self.graph.push(Matmul {}, &[x, weight])?;
        if !bias {
            return Ok(y);
        }
        let bias = self.vector(&format!("{stem}.bias"), rows)?;
        self.add(y, bias)
    }

    /// The leaf of a matrix, stored as the file stores it.
    fn matrix(&mut self, name: &str, rows: usize, k: usize) -> Result<ValueId, ModelError> {
        let source_name = self.naming.of(name);
        let source = self.model.sources.require(&source_name)?;
        if source.shape != [rows as u64, k as u64] {
            return Err(ModelError::tensor(
                source_name,
                format!("the shape [{rows}, {k}]"),
                format!("{:?}", source.shape),
            ));
        }
        let float = [ElementType::F32, ElementType::F16, ElementType::Bf16].map(Storage::Element);
        let storage = source
            .ty
            .storage()
            .filter(|s| matches!(s, Storage::Quant(_)) || float.contains(s));
        let storage = storage.ok_or_else(|| {
            ModelError::tensor(
                &source_name,
                "floats or a block type that can be read",
                source.ty.name(),
            )
        })?;
        source
            .ty
            .row_bytes(k)
            .map_err(|e| ModelError::tensor(&source_name, "rows of whole blocks", e))?;
        let ty = ValueType {
            storage,
            ..ValueType::f32(shape![rows, k])
        };
        Ok(self
            .graph
            .leaf(name, ty, Recipe::source(source_name, rows))?)
    }

    /// The leaf of a vector: always `f32`, which loading converts to.
    fn vector(&mut self, name: &str, len: usize) -> Result<ValueId, ModelError> {
        let source_name = self.naming.of(name);
        let source = self.model.sources.require(&source_name)?;
        if source.shape != [len as u64] {
            return Err(ModelError::tensor(
                source_name,
                format!("the shape [{len}]"),
                format!("{:?}", source.shape),
            ));
        }
        let float = [ElementType::F32, ElementType::F16, ElementType::Bf16];
        if !matches!(source.ty.storage(), Some(Storage::Element(e)) if float.contains(&e)) {
            return Err(ModelError::tensor(
                source_name,
                "F32, F16 or BF16",
                source.ty.name(),
            ));
        }
        Ok(self.graph.leaf(
            name,
            ValueType::f32(shape![len]),
            Recipe::source(source_name, len),
        )?)
    }
}
