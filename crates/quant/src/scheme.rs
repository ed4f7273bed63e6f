//! `QuantScheme`: what a quantised tensor means, as data.
//!
//! A scheme says how a weight is computed from its code and its scales. It does not say how the bytes lie in a
//! file (that is [`crate::ggml`]) nor how a kernel wants them ([`crate::PackedLayout`]).
//!
//! With one level of scales: `weight = scale · (code − offset) + min`.
//! With two levels (`super_group`): the group's scale is `d · sub_scale` and its min is `−dmin · sub_min`, where `d`
//! and `dmin` belong to the super-group and the sub-scales are small integers.

use serde::{Deserialize, Serialize};

/// The type that scales and mins are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleType {
    F16,
    F32,
}

impl ScaleType {
    pub const fn bytes(self) -> usize {
        match self {
            ScaleType::F16 => 2,
            ScaleType::F32 => 4,
        }
    }
}

/// The second level of scales: one `d` (and `dmin`) per super-group, small integers per group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SuperGroup {
    /// Elements that share one `d`.
    pub elements: u16,
    /// Bits of each group's integer sub-scale.
    pub scale_bits: u8,
    /// Whether the sub-scales are signed.
    pub signed: bool,
}

/// How a quantised weight is computed from its code and scales. Two tensors with equal schemes can share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuantScheme {
    /// Bits of one code.
    pub bits: u8,
    /// What is subtracted from the stored unsigned code; `0` for codes with a min, and for signed codes (see `signed`).
    pub offset: u8,
    /// Codes are two's complement rather than unsigned.
    pub signed: bool,
    /// Consecutive elements of a row that share one scale.
    pub group: u16,
    /// The type of the (outermost) scale.
    pub scale: ScaleType,
    /// Whether a min is added.
    pub min: bool,
    /// The second level of scales, if any.
    pub super_group: Option<SuperGroup>,
}

/// What a leaf of a graph stores: plain elements or a quantised scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    Element(crate::ElementType),
    Quant(QuantScheme),
}
