//! Reads a model from the header of a GGUF file.
//!
//! Keys are those of <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, after the architecture's prefix.

use ingle_formats::gguf::{Endian, Manifest, Metadata};
use ingle_formats::{FormatError, Optional};

use crate::families::Architecture;
use crate::names::ROPE_FACTORS;
use crate::{Biases, Config, Model, ModelError, RopeConfig, Sources};

/// The base of the rotary embedding where the file does not give one, as in llama.cpp.
const DEFAULT_ROPE_BASE: f32 = 10_000.0;

pub(crate) fn read(manifest: &Manifest) -> Result<Model, ModelError> {
    if manifest.endian == Endian::Big {
        return Err(ModelError::field(
            "byte order",
            "little-endian tensors",
            "big-endian",
        ));
    }
    let metadata = &manifest.metadata;
    let architecture = Architecture::by_name(metadata.str("general.architecture")?)?;
    let mut sources = Sources::default();
    sources.add_file(0, &manifest.tensors)?;
    let keys = Keys {
        metadata,
        prefix: architecture.name,
    };
    keys.refuse()?;

    let (width, heads) = (
        keys.size("embedding_length")?,
        keys.size("attention.head_count")?,
    );
    let head_dim = keys.head_dim(width, heads)?;
    let embedding = sources.require("token_embd.weight")?;
    let vocabulary = embedding.shape.first().copied().unwrap_or(0);
    let has = |name: &str| sources.contains(name);
    let config = Config {
        architecture: architecture.name,
        layers: keys.size("block_count")?,
        width,
        heads,
        kv_heads: keys
            .optional_size("attention.head_count_kv")?
            .unwrap_or(heads),
        head_dim,
        feed_forward: keys.size("feed_forward_length")?,
        vocabulary: usize::try_from(vocabulary).unwrap_or(usize::MAX),
        context: keys.size("context_length")?,
        norm_eps: metadata.f32(&keys.name("attention.layer_norm_rms_epsilon"))?,
        rope: RopeConfig {
            base: metadata
                .f32(&keys.name("rope.freq_base"))
                .optional()?
                .unwrap_or(DEFAULT_ROPE_BASE),
            rotary_dim: keys
                .optional_size("rope.dimension_count")?
                .unwrap_or(head_dim),
            scale: keys.rope_scale()?,
            pairing: architecture.gguf_pairing,
            factors: has(ROPE_FACTORS),
        },
        biases: Biases {
            qkv: architecture.qkv_bias || has("blk.0.attn_q.bias"),
            output: has("blk.0.attn_output.bias"),
            feed_forward: has("blk.0.ffn_gate.bias"),
        },
        tied: !has("output.weight"),
    };
    config.check(|field| keys.name(gguf_key(field)))?;
    Ok(Model { config, sources })
}

/// What GGUF calls a field of [`Config`].
fn gguf_key(field: &str) -> &str {
    match field {
        "layers" => "block_count",
        "width" => "embedding_length",
        "heads" => "attention.head_count",
        "kv_heads" => "attention.head_count_kv",
        "head_dim" => "attention.key_length",
        "feed_forward" => "feed_forward_length",
        "vocabulary" => "vocab_size",
        "context" => "context_length",
        "rotary_dim" => "rope.dimension_count",
        "rope_base" => "rope.freq_base",
        "rope_factor" => "rope.scaling.factor",
        "norm_eps" => "attention.layer_norm_rms_epsilon",
        other => other,
    }
}

/// The keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn size(&self, key: &str) -> Result<usize, FormatError> {
        // u32 is what GGUF's own tools write; it fits `usize` everywhere.
        self.metadata.u32(&self.name(key)).map(|n| n as usize)
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, FormatError> {
        self.size(key).optional()
    }

    fn head_dim(&self, width: usize, heads: usize) -> Result<usize, ModelError> {
        let keys = self.optional_size("attention.key_length")?;
        let values = self.optional_size("attention.value_length")?;
        match (keys, values) {
            (Some(k), Some(v)) if k != v => Err(ModelError::field(
                self.name("attention.value_length"),
                format!("the keys' {k}"),
                v,
            )),
            (Some(n), _) | (None, Some(n)) => Ok(n),
            (None, None) if heads > 0 && width.is_multiple_of(heads) => Ok(width / heads),
            (None, None) => {
                let expected = format!("a divisor of the width {width}");
                Err(ModelError::field(
                    self.name("attention.head_count"),
                    expected,
                    heads,
                ))
            }
        }
    }

    /// What positions are multiplied by.
    fn rope_scale(&self) -> Result<f32, ModelError> {
        let kind = self.name("rope.scaling.type");
        let legacy = self
            .metadata
            .f32(&self.name("rope.scale_linear"))
            .optional()?;
        match self.metadata.str(&kind).optional()? {
            Some("none") => Ok(1.0),
            None => Ok(legacy.unwrap_or(1.0).recip()),
            Some("linear") => Ok(self
                .metadata
                .f32(&self.name("rope.scaling.factor"))?
                .recip()),
            Some(other) => Err(ModelError::field(kind, "none or linear", other)),
        }
    }

    /// Refuses what would compute something else than the family does.
    fn refuse(&self) -> Result<(), ModelError> {
        let experts = self.optional_size("expert_count")?.unwrap_or(0);
        if experts != 0 {
            return Err(ModelError::field(self.name("expert_count"), "0", experts));
        }
        let window = self.optional_size("attention.sliding_window")?.unwrap_or(0);
        if window != 0 {
            return Err(ModelError::field(
                self.name("attention.sliding_window"),
                "0",
                window,
            ));
        }
        Ok(())
    }
}
