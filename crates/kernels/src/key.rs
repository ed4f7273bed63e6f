//! Kernel keys: what a kernel computes and in which variant, as plain data.
//!
//! A key holds only what changes the text: formats, head size, fused parts, workgroup shape. Model sizes are run-time
//! parameters ([`crate::params`]). [`KernelKey::id`] is a stable readable name; two keys have equal ids exactly when
//! they are equal.
//!
//! Every key type has `grid`, the workgroups to launch for given run-time sizes.

use serde::{Deserialize, Serialize};

use crate::{DeviceLimits, EltProgram, WeightFormat};

/// Any kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelKey {
    Embedding(EmbeddingKey),
    RmsNorm(RmsNormKey),
    MatVec(MatVecKey),
    MatMul(MatMulKey),
    RopeWrite(RopeWriteKey),
    Attention(AttentionKey),
    Elementwise(ElementwiseKey),
    Argmax(ArgmaxKey),
    TakeRows(TakeRowsKey),
    CopyBlocks(CopyBlocksKey),
    QuantizeActivations(QuantizeActivationsKey),
    Reduce(ReduceKey),
    Slice(SliceKey),
    Softmax(SoftmaxKey),
}

/// Where token ids come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The ids in the step data.
    Step,
    /// The output of `argmax` of the step before: row `t` takes id `t`.
    Feedback,
}

/// `out[t, :] = table[ids[t], :]`, dequantised. Ids out of range give NaN.
///
/// Bindings: `weights` `[vocabulary, k]`, `tokens` i32 `[rows]` (only with [`TokenSource::Feedback`]), `out` f32
/// `[tokens, k]`, `step`, `params` ([`crate::params::EmbeddingParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmbeddingKey {
    pub weights: WeightFormat,
    pub source: TokenSource,
    pub threads: u16,
}

/// `out[t, i] = x[t, i] · weight[i] / √(mean(x[t]²) + eps)`
///
/// Bindings: `x` f32 `[tokens, k]`, `norm_weight` f32 `[k]`, `out` f32 `[tokens, k]`, `step`, `params`
/// ([`crate::params::RmsNormParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RmsNormKey {
    pub threads: u16,
}

/// How activations enter a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activations {
    F32,
    /// Each group of 32 consecutive activations becomes codes of two 8-bit terms and a scale, as
    /// [`ingle_quant::quantize_activations`] defines.
    Int8,
}

/// What the matrix-product kernels share: `out[t, r] = epilogue(Σ_k W[r, k] · x[t, k], …)`.
///
/// With two accumulators, accumulator 1 belongs to row `r + pair_rows` of the same matrix: gate and up rows concatenated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Projection {
    pub weights: WeightFormat,
    pub activations: Activations,
    /// `x` is normalised first, as [`RmsNormKey`] does.
    pub norm: bool,
    pub epilogue: EltProgram,
}

/// How a [`MatVecKey`] divides its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatVecShape {
    /// Invocations of a workgroup, a power of two.
    pub threads: u16,
    /// Neighbouring invocations that share a row, a power of two: 1 needs no reduction, more read wider.
    pub lanes: u16,
    /// Rows that one invocation works on at a time, sharing what it read of `x`.
    pub rows: u8,
    /// Uses `dot4I8Packed` ([`crate::Feature::PackedIntegerDot`]); only with [`Activations::Int8`].
    pub packed_dot: bool,
}

/// A matrix product for few rows of `x`.
///
/// Bindings: `x` f32 `[tokens, k]` (16-byte aligned rows), `norm_weight` f32 `[k]` (with `norm`), `weights`, one buffer
/// `input0`, `input1`, … per extra input of the epilogue, `out` f32, `step`, `params`
/// ([`crate::params::ProjectionParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatVecKey {
    pub projection: Projection,
    /// Rows of `x` that one workgroup takes, 1 to 8.
    pub tokens: u8,
    pub shape: MatVecShape,
    /// With [`Activations::Int8`]: the largest `k` whose codes fit the workgroup's memory; otherwise 0.
    pub stage_k: u32,
}

/// How a [`MatMulKey`] divides its work. A workgroup computes a tile of `tokens × rows` outputs; each of its
/// `tokens/thread_tokens · rows/thread_rows` invocations a part of `thread_tokens × thread_rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatMulTile {
    pub tokens: u16,
    pub rows: u16,
    pub thread_tokens: u8,
    pub thread_rows: u8,
}

/// A matrix product for many rows of `x`: tiles of both operands pass through workgroup memory, 32 of `k` at a time.
///
/// Bindings as [`MatVecKey`]. Activations must be [`Activations::F32`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatMulKey {
    pub projection: Projection,
    pub tile: MatMulTile,
}

/// Which elements of a head rotary embedding pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopePairing {
    /// `(2i, 2i+1)`, as GGUF orders llama.
    Interleaved,
    /// `(i, i + rotary/2)`, as Hugging Face does.
    Halves,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvElement {
    F32,
    /// Pairs of `f16` in a word, the even element low.
    F16,
}

/// Rotates queries and keys and writes keys and values into the state.
///
/// State of a layer: `[blocks, 2 (key, value), kv_heads, 32 (slot in block), head_dim]`. Row `t` goes to slot
/// `slots[t] = block · 32 + place`. The angle of pair `i` at position `p` is found in `rope_table`
/// ([`crate::rope::table`]).
///
/// Bindings: `qkv` f32 `[tokens, …]` or (not `fused`) `q`, `k`, `v`; `rope_table`; `q_out` f32
/// `[tokens, heads, head_dim]`; `kv`; `step`; `params` ([`crate::params::RopeWriteParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RopeWriteKey {
    /// A multiple of 4.
    pub head_dim: u16,
    /// Leading elements of a head that are rotated, a multiple of 4.
    pub rotary_dim: u16,
    pub pairing: RopePairing,
    pub kv: KvElement,
    /// Query, key and value rows lie in one buffer.
    pub fused: bool,
    pub threads: u16,
}

/// `out[t, h] = Σ_p softmax_p(scale · q[t, h]·k[p, h/g]) v[p, h/g]` over the positions that row `t` may see.
///
/// Row `t` belongs to sequence `s = sequences[t]` and sees positions `0 ..= positions[t]`, with a window only the last
/// `window` of them; position `p` lies in block `table[s · max_blocks + p/32]`.
///
/// Bindings: `q` f32 `[tokens, heads, head_dim]`, `kv`, `out` f32 `[tokens, heads, head_dim]`, `step`, `params`
/// ([`crate::params::AttentionParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionKey {
    /// A multiple of 4, at most 256.
    pub head_dim: u16,
    pub kv: KvElement,
    /// Whether only the last `window` positions are seen.
    pub window: bool,
    /// Whether scores become `cap · tanh(score / cap)`.
    pub soft_cap: bool,
    /// Invocations of a workgroup, a power of two, at least `head_dim / 4`.
    pub threads: u16,
}

/// `out[i] = program(inputs[i])` over `[rows, columns]`.
///
/// Bindings: `input0`, …; `out`; `step`; `params` ([`crate::params::ElementwiseParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ElementwiseKey {
    pub program: EltProgram,
    pub threads: u16,
}

/// `out[r] = argmax_i x[r, i]`, the lowest index on ties, −1 if any element of the row is not finite.
///
/// Bindings: `x` f32 `[rows, columns]`, `out` i32 `[rows]`, `step`, `params` ([`crate::params::ArgmaxParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgmaxKey {
    pub threads: u16,
}

/// `out[r, :] = x[output_rows[r], :]`
///
/// Bindings: `x` f32, `out` f32, `step`, `params` ([`crate::params::TakeRowsParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TakeRowsKey {
    pub threads: u16,
}

/// Copies whole blocks of one state buffer onto others, for a fork.
///
/// Bindings: `kv` (any words), `pairs` u32 `[count, 2 (from, to)]`, `params` ([`crate::params::CopyBlocksParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyBlocksKey {
    pub threads: u16,
}

/// Each value of `x` becomes what its code stands for, as [`Activations::Int8`] says.
///
/// Bindings: `x` f32 `[rows, k]`, `out` f32 `[rows, k]`, `step`, `params`
/// ([`crate::params::QuantizeActivationsParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuantizeActivationsKey {
    pub threads: u16,
}

/// How the elements of a row are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    Sum,
    Mean,
    Max,
}

/// `out[r] = Σ_i x[r, i]`, its mean, or `max_i x[r, i]`.
///
/// Bindings: `x` f32 `[rows, k]`, `out` f32 `[rows]`, `step`, `params` ([`crate::params::ReduceParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReduceKey {
    pub kind: Reduction,
    pub threads: u16,
}

/// `out[r, i] = x[r, start + i]`
///
/// Bindings: `x` f32 `[rows, k]`, `out` f32 `[rows, columns]`, `step`, `params` ([`crate::params::SliceParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SliceKey {
    pub threads: u16,
}

/// `out[r, i] = exp(x[r, i] − max) / Σ_i exp(x[r, i] − max)`
///
/// Bindings: `x` f32 `[rows, k]`, `out` f32 `[rows, k]`, `step`, `params` ([`crate::params::SoftmaxParams`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxKey {
    pub threads: u16,
}

impl KernelKey {
    /// A stable readable name.
    pub fn id(&self) -> String {
        match self {
            KernelKey::Embedding(key) => {
                let source = if key.source == TokenSource::Step {
                    "step"
                } else {
                    "feedback"
                };
                format!(
                    "embedding.{}.{source}.t{}",
                    key.weights.label(),
                    key.threads
                )
            }
            KernelKey::RmsNorm(key) => format!("rms_norm.t{}", key.threads),
            KernelKey::MatVec(key) => {
                let MatVecShape {
                    threads,
                    lanes,
                    rows,
                    packed_dot,
                } = key.shape;
                let dot = if packed_dot { "dot4." } else { "" };
                let stage = if key.stage_k > 0 {
                    format!("k{}.", key.stage_k)
                } else {
                    String::new()
                };
                let tokens = key.tokens;
                format!(
                    "matvec.{}{stage}{dot}n{tokens}.t{threads}l{lanes}r{rows}",
                    key.projection.label()
                )
            }
            KernelKey::MatMul(key) => {
                let MatMulTile {
                    tokens,
                    rows,
                    thread_tokens,
                    thread_rows,
                } = key.tile;
                format!(
                    "matmul.{}{tokens}x{rows}.{thread_tokens}x{thread_rows}",
                    key.projection.label()
                )
            }
            KernelKey::RopeWrite(key) => format!(
                "rope_write.d{}r{}.{}.{}.{}.t{}",
                key.head_dim,
                key.rotary_dim,
                if key.pairing == RopePairing::Interleaved {
                    "interleaved"
                } else {
                    "halves"
                },
                key.kv.name(),
                if key.fused { "qkv" } else { "q_k_v" },
                key.threads
            ),
            KernelKey::Attention(key) => format!(
                "attention.d{}.{}{}{}.t{}",
                key.head_dim,
                key.kv.name(),
                if key.window { ".window" } else { "" },
                if key.soft_cap { ".cap" } else { "" },
                key.threads
            ),
            KernelKey::Elementwise(key) => {
                format!("elementwise.[{}].t{}", key.program.label(), key.threads)
            }
            KernelKey::Argmax(key) => format!("argmax.t{}", key.threads),
            KernelKey::TakeRows(key) => format!("take_rows.t{}", key.threads),
            KernelKey::CopyBlocks(key) => format!("copy_blocks.t{}", key.threads),
            KernelKey::QuantizeActivations(key) => format!("quantize_activations.t{}", key.threads),
            KernelKey::Reduce(key) => {
                let kind = match key.kind {
                    Reduction::Sum => "sum",
                    Reduction::Mean => "mean",
                    Reduction::Max => "max",
                };
                format!("reduce.{kind}.t{}", key.threads)
            }
            KernelKey::Slice(key) => format!("slice.t{}", key.threads),
            KernelKey::Softmax(key) => format!("softmax.t{}", key.threads),
        }
    }
}

impl KvElement {
    /// `f32` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            KvElement::F32 => "f32",
            KvElement::F16 => "f16",
        }
    }

    /// Words of a layer's state with `blocks` blocks.
    pub fn state_words(self, blocks: u32, kv_heads: u32, head_dim: u32) -> u64 {
        let elements = u64::from(blocks)
            * 2
            * u64::from(kv_heads)
            * u64::from(crate::step::BLOCK_LEN)
            * u64::from(head_dim);
        match self {
            KvElement::F32 => elements,
            KvElement::F16 => elements / 2,
        }
    }
}

impl Projection {
    fn label(&self) -> String {
        let activations = if self.activations == Activations::Int8 {
            "int8."
        } else {
            ""
        };
        let norm = if self.norm { "norm." } else { "" };
        format!(
            "{}.{activations}{norm}[{}].",
            self.weights.label(),
            self.epilogue.label()
        )
    }
}

impl EmbeddingKey {
    /// One workgroup per row of tokens.
    pub fn grid(&self, tokens: u32) -> [u32; 3] {
        [tokens, 1, 1]
    }
}

impl RmsNormKey {
    /// One workgroup per row.
    pub fn grid(&self, tokens: u32) -> [u32; 3] {
        [tokens, 1, 1]
    }
}

impl MatVecKey {
    /// Output columns that one workgroup computes.
    pub fn rows_per_workgroup(&self) -> u32 {
        u32::from(self.shape.threads) / u32::from(self.shape.lanes).max(1)
            * u32::from(self.shape.rows)
    }

    /// The grid for `rows` output columns and `tokens` rows of `x`.
    pub fn grid(&self, rows: u32, tokens: u32, limits: &DeviceLimits) -> [u32; 3] {
        let [x, y] = limits.grid(rows.div_ceil(self.rows_per_workgroup().max(1)));
        [x, y, tokens.div_ceil(u32::from(self.tokens).max(1))]
    }
}

impl MatMulKey {
    /// Invocations of a workgroup.
    pub fn threads(&self) -> u32 {
        let MatMulTile {
            tokens,
            rows,
            thread_tokens,
            thread_rows,
        } = self.tile;
        let across = u32::from(tokens) / u32::from(thread_tokens).max(1);
        across * (u32::from(rows) / u32::from(thread_rows).max(1))
    }

    /// The grid for `rows` output columns and `tokens` rows of `x`.
    pub fn grid(&self, rows: u32, tokens: u32, limits: &DeviceLimits) -> [u32; 3] {
        let [x, y] = limits.grid(rows.div_ceil(u32::from(self.tile.rows).max(1)));
        [x, y, tokens.div_ceil(u32::from(self.tile.tokens).max(1))]
    }
}

impl RopeWriteKey {
    /// The grid: four elements per invocation, one row of tokens per `y`.
    pub fn grid(&self, heads: u32, kv_heads: u32, tokens: u32) -> [u32; 3] {
        let units = (heads + 2 * kv_heads) * u32::from(self.head_dim) / 4;
        [units.div_ceil(u32::from(self.threads).max(1)), tokens, 1]
    }
}

impl AttentionKey {
    /// One workgroup per head and row of tokens.
    pub fn grid(&self, heads: u32, tokens: u32) -> [u32; 3] {
        [heads, tokens, 1]
    }
}

impl ElementwiseKey {
    /// The grid for `rows · columns` elements.
    pub fn grid(&self, elements: u32, limits: &DeviceLimits) -> [u32; 3] {
        let [x, y] = limits.grid(elements.div_ceil(u32::from(self.threads).max(1)));
        [x, y, 1]
    }
}

impl ArgmaxKey {
    /// One workgroup per row.
    pub fn grid(&self, rows: u32) -> [u32; 3] {
        [rows, 1, 1]
    }
}

impl TakeRowsKey {
    /// One workgroup per row.
    pub fn grid(&self, rows: u32) -> [u32; 3] {
        [rows, 1, 1]
    }
}

impl CopyBlocksKey {
    /// One workgroup per pair of blocks.
    pub fn grid(&self, pairs: u32) -> [u32; 3] {
        [pairs, 1, 1]
    }
}
