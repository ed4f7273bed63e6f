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

/// The text form: `q4-8.g32.f16`, `q4.g32.f16.min`, `q6-32.g16.f16.super256x8s`. It parses back with [`FromStr`].
///
/// [`FromStr`]: std::str::FromStr
impl std::fmt::Display for QuantScheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "q{}", self.bits)?;
        if self.signed {
            f.write_str("s")?;
        }
        if self.offset > 0 {
            write!(f, "-{}", self.offset)?;
        }
        let scale = match self.scale {
            ScaleType::F16 => "f16",
            ScaleType::F32 => "f32",
        };
        write!(f, ".g{}.{scale}", self.group)?;
        if self.min {
            f.write_str(".min")?;
        }
        if let Some(s) = self.super_group {
            let sign = if s.signed { "s" } else { "u" };
            write!(f, ".super{}x{}{sign}", s.elements, s.scale_bits)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for QuantScheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("a scheme such as q4.g32.f16.min, found {text:?}");
        let mut parts = text.split('.');
        let codes = parts
            .next()
            .and_then(|p| p.strip_prefix('q'))
            .ok_or_else(wrong)?;
        let (codes, offset) = match codes.split_once('-') {
            Some((codes, offset)) => (codes, offset.parse().map_err(|_| wrong())?),
            None => (codes, 0),
        };
        let (bits, signed) = codes
            .strip_suffix('s')
            .map_or((codes, false), |bits| (bits, true));
        let group = parts
            .next()
            .and_then(|p| p.strip_prefix('g'))
            .ok_or_else(wrong)?;
        let scale = match parts.next() {
            Some("f16") => ScaleType::F16,
            Some("f32") => ScaleType::F32,
            _ => return Err(wrong()),
        };
        let mut rest = parts.peekable();
        let min = rest.next_if_eq(&"min").is_some();
        let super_group = match rest.next() {
            None => None,
            Some(part) => {
                let (elements, bits) = part
                    .strip_prefix("super")
                    .and_then(|p| p.split_once('x'))
                    .ok_or_else(wrong)?;
                let (scale_bits, signed) = match bits.strip_suffix('s') {
                    Some(bits) => (bits, true),
                    None => (bits.strip_suffix('u').ok_or_else(wrong)?, false),
                };
                let elements = elements.parse().map_err(|_| wrong())?;
                let scale_bits = scale_bits.parse().map_err(|_| wrong())?;
                Some(SuperGroup {
                    elements,
                    scale_bits,
                    signed,
                })
            }
        };
        if rest.next().is_some() {
            return Err(wrong());
        }
        let (bits, group) = (
            bits.parse().map_err(|_| wrong())?,
            group.parse().map_err(|_| wrong())?,
        );
        Ok(QuantScheme {
            bits,
            offset,
            signed,
            group,
            scale,
            min,
            super_group,
        })
    }
}
