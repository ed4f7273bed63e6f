//! Names of tensors: GGUF's, which the graph's leaves have, and Hugging Face's.

/// How the files name what the graph calls by GGUF's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Gguf,
    HuggingFace,
}

/// Tensors of the whole model: GGUF's name, Hugging Face's.
const MODEL: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

/// Tensors of a layer: what follows `blk.N.`, what follows `model.layers.N.`.
const LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// The frequency factors: Hugging Face computes them, so they have one name.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

impl Naming {
    /// The file's name of the tensor that GGUF calls `name`, e.g. `blk.3.attn_q.weight`.
    pub(crate) fn of(self, name: &str) -> String {
        match self {
            Naming::Gguf => name.to_owned(),
            Naming::HuggingFace => hugging_face(name).unwrap_or_else(|| name.to_owned()),
        }
    }
}

fn hugging_face(name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    let find = |table: &[(&str, &'static str)], stem: &str| {
        table.iter().find(|row| row.0 == stem).map(|row| row.1)
    };
    match stem
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
    {
        Some((layer, stem)) => Some(format!(
            "model.layers.{layer}.{}.{kind}",
            find(LAYER, stem)?
        )),
        None => Some(format!("{}.{kind}", find(MODEL, stem)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_kinds() {
        let of = |name| Naming::HuggingFace.of(name);
        assert_eq!(
            of("blk.12.attn_output.weight"),
            "model.layers.12.self_attn.o_proj.weight"
        );
        assert_eq!(
            of("blk.0.attn_q.bias"),
            "model.layers.0.self_attn.q_proj.bias"
        );
        assert_eq!(of("token_embd.weight"), "model.embed_tokens.weight");
        assert_eq!(of(ROPE_FACTORS), ROPE_FACTORS);
        assert_eq!(Naming::Gguf.of("blk.0.attn_q.bias"), "blk.0.attn_q.bias");
    }
}
