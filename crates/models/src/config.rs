//! `Config`: the numbers of a decoder, whichever file they come from.

use ingle_graph::ops::Pairing;

use crate::ModelError;

/// The numbers of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// A name of [`crate::ARCHITECTURES`].
    pub architecture: &'static str,
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Width inside the feed-forward.
    pub feed_forward: usize,
    pub vocabulary: usize,
    /// Positions that the model was trained for.
    pub context: usize,
    pub norm_eps: f32,
    pub rope: RopeConfig,
    pub biases: Biases,
    /// The head is the embedding.
    pub tied: bool,
}

/// Rotary position embedding: see `ingle_graph::ops::Rope`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    pub base: f32,
    /// Elements of a head that turn.
    pub rotary_dim: usize,
    /// Positions are multiplied by this; 1 for none.
    pub scale: f32,
    pub pairing: Pairing,
    /// Each pair's frequency is divided by its element of the leaf `rope_freqs.weight`.
    pub factors: bool,
}

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The attention's output.
    pub output: bool,
    /// Gate, up and down.
    pub feed_forward: bool,
}

impl Config {
    /// Checks what the graph relies on. `field` turns a name such as `heads` into what the file calls it.
    pub(crate) fn check(&self, field: impl Fn(&str) -> String) -> Result<(), ModelError> {
        let sizes = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("feed_forward", self.feed_forward),
            ("vocabulary", self.vocabulary),
            ("context", self.context),
        ];
        for (name, size) in sizes {
            // Positions, slots and columns are 32-bit integers everywhere below.
            if size == 0 || size > i32::MAX as usize {
                return Err(ModelError::field(
                    field(name),
                    format!("1 to {}", i32::MAX),
                    size,
                ));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.heads);
            return Err(ModelError::field(
                field("kv_heads"),
                expected,
                self.kv_heads,
            ));
        }
        if self
            .heads
            .checked_mul(self.head_dim)
            .is_none_or(|n| n > i32::MAX as usize)
        {
            return Err(ModelError::field(
                field("head_dim"),
                "heads · head_dim below 2^31",
                self.head_dim,
            ));
        }
        let rotary = self.rope.rotary_dim;
        if rotary == 0 || !rotary.is_multiple_of(2) || rotary > self.head_dim {
            let expected = format!("an even number up to the head's {}", self.head_dim);
            return Err(ModelError::field(field("rotary_dim"), expected, rotary));
        }
        let positive = |v: f32| v.is_finite() && v > 0.0;
        if !positive(self.rope.base) {
            return Err(ModelError::field(
                field("rope_base"),
                "a finite number above 0",
                self.rope.base,
            ));
        }
        if !positive(self.rope.scale) {
            return Err(ModelError::field(
                field("rope_factor"),
                "a finite number above 0",
                self.rope.scale.recip(),
            ));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps >= 0.0) {
            return Err(ModelError::field(
                field("norm_eps"),
                "a finite number of at least 0",
                self.norm_eps,
            ));
        }
        Ok(())
    }
}
