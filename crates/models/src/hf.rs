//! Reads a model from a Hugging Face folder: `config.json` and the headers of its safetensors files.
//!
//! Fields are those of `transformers`' configuration classes, with their defaults.

use std::f64::consts::PI;

use ingle_formats::safetensors::Manifest;
use ingle_graph::ops::Pairing;
use serde_json::{Map, Value};

use crate::families::Architecture;
use crate::names::ROPE_FACTORS;
use crate::{Biases, Config, Model, ModelError, RopeConfig, Sources};

/// The base of the rotary embedding where the file does not give one.
const DEFAULT_ROPE_BASE: f64 = 10_000.0;

/// A buffer that old checkpoints carry and that is computed from the configuration.
const INVERSE_FREQUENCIES: &str = ".rotary_emb.inv_freq";

pub(crate) fn read(config: &[u8], shards: &[Manifest]) -> Result<Model, ModelError> {
    let parsed: Value =
        serde_json::from_slice(config).map_err(|e| ModelError::field("config.json", "JSON", e))?;
    let object = parsed
        .as_object()
        .ok_or_else(|| ModelError::field("config.json", "an object", &parsed))?;
    let fields = Fields { object, path: "" };
    let architecture = architecture(&fields)?;
    let mut sources = sources(shards)?;

    let (width, heads) = (
        fields.size("hidden_size")?,
        fields.size("num_attention_heads")?,
    );
    let head_dim = match fields.optional_size("head_dim")? {
        Some(n) => n,
        None if heads > 0 && width.is_multiple_of(heads) => width / heads,
        None => {
            return Err(ModelError::field(
                "num_attention_heads",
                format!("a divisor of {width}"),
                heads,
            ));
        }
    };
    let (rope, factors) = rope(&fields, head_dim)?;
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(false);
    let config = Config {
        architecture: architecture.name,
        layers: fields.size("num_hidden_layers")?,
        width,
        heads,
        kv_heads: fields
            .optional_size("num_key_value_heads")?
            .unwrap_or(heads),
        head_dim,
        feed_forward: fields.size("intermediate_size")?,
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("max_position_embeddings")?,
        norm_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
        rope,
        biases: Biases {
            qkv: architecture.qkv_bias || attention_bias,
            output: attention_bias && !architecture.qkv_bias,
            feed_forward: fields.flag("mlp_bias")?.unwrap_or(false),
        },
        tied,
    };
    config.check(|field| hugging_face_key(field).to_owned())?;
    refuse(&fields)?;
    if let Some(factors) = factors {
        sources.computed(ROPE_FACTORS, &factors);
    }
    if tied {
        // A tied checkpoint may still carry the head: it is the embedding again.
        sources.remove("lm_head.weight");
    }
    Ok(Model { config, sources })
}

fn architecture(fields: &Fields) -> Result<&'static Architecture, ModelError> {
    match fields
        .object
        .get("architectures")
        .and_then(|v| v.as_array())
        .and_then(|a| a.first())
    {
        Some(Value::String(name)) => Architecture::by_hugging_face(name),
        other => Err(ModelError::field(
            "architectures",
            "a list of one name",
            shown(other),
        )),
    }
}

fn sources(shards: &[Manifest]) -> Result<Sources, ModelError> {
    let mut sources = Sources::default();
    for (file, shard) in shards.iter().enumerate() {
        sources.add_file(file, &shard.tensors)?;
    }
    let buffers: Vec<String> = sources
        .iter()
        .map(|s| s.0)
        .filter(|n| n.ends_with(INVERSE_FREQUENCIES))
        .map(str::to_owned)
        .collect();
    buffers.iter().for_each(|name| sources.remove(name));
    Ok(sources)
}

/// Refuses what would compute something else than the family does.
fn refuse(fields: &Fields) -> Result<(), ModelError> {
    match fields.object.get("hidden_act") {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) if name == "silu" => {}
        other => return Err(ModelError::field("hidden_act", "silu", shown(other))),
    }
    if fields.flag("use_sliding_window")?.unwrap_or(false) {
        return Err(ModelError::field("use_sliding_window", "false", "true"));
    }
    if fields
        .object
        .get("quantization_config")
        .is_some_and(|v| !v.is_null())
    {
        return Err(ModelError::field(
            "quantization_config",
            "none",
            "a quantised checkpoint",
        ));
    }
    Ok(())
}

/// What `config.json` calls a field of [`Config`].
fn hugging_face_key(field: &str) -> &str {
    match field {
        "layers" => "num_hidden_layers",
        "width" => "hidden_size",
        "heads" => "num_attention_heads",
        "kv_heads" => "num_key_value_heads",
        "feed_forward" => "intermediate_size",
        "vocabulary" => "vocab_size",
        "context" => "max_position_embeddings",
        "rotary_dim" => "partial_rotary_factor",
        "rope_base" => "rope_theta",
        "rope_factor" => "rope_scaling.factor",
        "norm_eps" => "rms_norm_eps",
        other => other,
    }
}

/// The rotary embedding, and the factors that each pair's frequency is divided by if there are any.
///
/// `transformers` 5 writes `rope_parameters`, which holds the base too; before, there were `rope_theta` and
/// `rope_scaling`.
fn rope(fields: &Fields, head_dim: usize) -> Result<(RopeConfig, Option<Vec<f32>>), ModelError> {
    let scaling = match fields.nested("rope_parameters")? {
        Some(nested) => Some(nested),
        None => fields.nested("rope_scaling")?,
    };
    let inner_base = scaling
        .as_ref()
        .map(|s| s.number("rope_theta"))
        .transpose()?
        .flatten();
    let base = inner_base
        .or(fields.number("rope_theta")?)
        .unwrap_or(DEFAULT_ROPE_BASE);
    let partial = fields.number("partial_rotary_factor")?.unwrap_or(1.0);
    let rotary_dim = (head_dim as f64 * partial) as usize;
    let mut rope = RopeConfig {
        base: base as f32,
        rotary_dim,
        scale: 1.0,
        pairing: Pairing::Halves,
        factors: false,
    };
    let Some(scaling) = scaling else {
        return Ok((rope, None));
    };
    match scaling.rope_type()? {
        "default" => Ok((rope, None)),
        "linear" => {
            rope.scale = scaling.required("factor")?.recip() as f32;
            Ok((rope, None))
        }
        "llama3" => {
            rope.factors = true;
            let factors = llama3_factors(&scaling, base, rotary_dim)?;
            Ok((rope, Some(factors)))
        }
        other => Err(ModelError::field(
            scaling.name("rope_type"),
            "default, linear or llama3",
            other,
        )),
    }
}

/// Llama 3.1's scaling (`transformers`' `_compute_llama3_parameters`): long wavelengths are slowed by `factor`, short ones
/// stay, those between are interpolated.
fn llama3_factors(scaling: &Fields, base: f64, rotary_dim: usize) -> Result<Vec<f32>, ModelError> {
    let factor = scaling.required("factor")?;
    let (low, high) = (
        scaling.required("low_freq_factor")?,
        scaling.required("high_freq_factor")?,
    );
    let context = scaling.required("original_max_position_embeddings")?;
    if low >= high {
        return Err(ModelError::field(
            scaling.name("high_freq_factor"),
            format!("more than {low}"),
            high,
        ));
    }
    let of_pair = |i: usize| {
        let wavelength = 2.0 * PI * base.powf(2.0 * i as f64 / rotary_dim as f64);
        let turns = context / wavelength;
        if turns > high {
            1.0
        } else if turns < low {
            factor as f32
        } else {
            let smooth = (turns - low) / (high - low);
            ((1.0 - smooth) / factor + smooth).recip() as f32
        }
    };
    Ok((0..rotary_dim / 2).map(of_pair).collect())
}

/// The fields of an object of `config.json`.
struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: &'static str,
}

impl<'a> Fields<'a> {
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|v| !v.is_null())
    }

    fn nested(&self, key: &'static str) -> Result<Option<Fields<'a>>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields { object, path: key })),
            other => Err(ModelError::field(key, "an object", shown(other))),
        }
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.map(Some)
            .ok_or_else(|| ModelError::field(self.name(key), "an integer of at least 0", value))
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.optional_size(key)?
            .ok_or_else(|| ModelError::field(self.name(key), "an integer", "nothing"))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_f64()
            .map(Some)
            .ok_or_else(|| ModelError::field(self.name(key), "a number", value))
    }

    /// A number above 0.
    fn required(&self, key: &str) -> Result<f64, ModelError> {
        match self.number(key)? {
            Some(n) if n.is_finite() && n > 0.0 => Ok(n),
            found => Err(ModelError::field(
                self.name(key),
                "a number above 0",
                format!("{found:?}"),
            )),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| ModelError::field(self.name(key), "true or false", value))
    }

    fn rope_type(&self) -> Result<&'a str, ModelError> {
        match self.get("rope_type").or(self.get("type")) {
            None => Ok("default"),
            Some(Value::String(name)) => Ok(name),
            other => Err(ModelError::field(
                self.name("rope_type"),
                "a name",
                shown(other),
            )),
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}
