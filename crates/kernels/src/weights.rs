//! How a kernel reads the bytes of a weight matrix `[rows, k]`.

use ingle_quant::{PackedLayout, Placement, ScaleType};
use serde::{Deserialize, Serialize};

/// The storage of a weight matrix as kernels distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightFormat {
    /// [`PackedLayout`]: with `tile` 1 rows lie one after the other and scales apart, with larger tiles scales are inline.
    Packed {
        bits: u8,
        offset: u8,
        group: u16,
        scale: ScaleType,
        min: bool,
        /// Rows of a tile: 1, 4, 8 or 16.
        tile: u8,
    },
    /// Rows of `f32`.
    F32,
    /// Rows of `f16`, two to a word.
    F16,
    /// Rows of `bf16`, two to a word.
    Bf16,
}

/// Why a layout is none that kernels read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightFormatError {
    #[error("layout field `{field}`: kernels read {expected}, found {found}")]
    Layout {
        field: &'static str,
        expected: &'static str,
        found: String,
    },
}

impl WeightFormat {
    /// The format of a packed layout, if kernels read it.
    pub fn from_layout(layout: &PackedLayout) -> Result<Self, WeightFormatError> {
        let refuse = |field, expected, found: String| {
            Err(WeightFormatError::Layout {
                field,
                expected,
                found,
            })
        };
        if !matches!(layout.rows, 1 | 4 | 8 | 16) {
            return refuse("rows", "1, 4, 8 or 16", layout.rows.to_string());
        }
        let (placement, expected) = match layout.rows {
            1 => (Placement::Apart, "apart for rows of their own"),
            _ => (Placement::Inline, "inline for tiles of rows"),
        };
        if layout.placement != placement {
            return refuse("placement", expected, format!("{:?}", layout.placement));
        }
        if !matches!(layout.bits, 4 | 8) {
            return refuse("bits", "4 or 8", layout.bits.to_string());
        }
        if !matches!(layout.group, 16 | 32) {
            return refuse("group", "16 or 32", layout.group.to_string());
        }
        if layout.bits == 8 && layout.offset != 0 {
            return refuse("offset", "0 for 8-bit codes", layout.offset.to_string());
        }
        Ok(WeightFormat::Packed {
            bits: layout.bits,
            offset: layout.offset,
            group: layout.group,
            scale: layout.scale,
            min: layout.min,
            tile: layout.rows,
        })
    }

    /// Elements of a row that are read together: rows are a whole number of these.
    pub fn group(&self) -> u32 {
        match self {
            WeightFormat::Packed { group, .. } => u32::from(*group),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 4,
        }
    }

    /// Words of one group's codes or elements.
    pub fn group_words(&self) -> u32 {
        match self {
            WeightFormat::Packed { bits, group, .. } => u32::from(*group) * u32::from(*bits) / 32,
            WeightFormat::F32 => 4,
            WeightFormat::F16 | WeightFormat::Bf16 => 2,
        }
    }

    /// Rows whose groups lie side by side.
    pub fn tile(&self) -> u32 {
        match self {
            WeightFormat::Packed { tile, .. } => u32::from(*tile),
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => 1,
        }
    }

    /// Words of the scales (and mins) of one group of each row of a tile, when they are inline.
    pub fn inline_scale_words(&self) -> u32 {
        match self {
            WeightFormat::Packed {
                tile: 2..,
                scale,
                min,
                ..
            } => self.tile() * scale.bytes() as u32 / 4 * if *min { 2 } else { 1 },
            _ => 0,
        }
    }

    /// The word where the scales of a matrix `[rows, k]` begin, if they lie apart: after all codes, at a multiple of 16
    /// bytes. Formats without such a section have 0.
    pub fn scales_word(&self, rows: u32, k: u32) -> u32 {
        if !matches!(self, WeightFormat::Packed { tile: 1, .. }) {
            return 0;
        }
        let codes = u64::from(rows) * u64::from(k / self.group()) * u64::from(self.group_words());
        u32::try_from(codes.next_multiple_of(4)).unwrap_or(u32::MAX)
    }

    /// Bytes of a matrix `[rows, k]`, a whole number of words.
    pub fn matrix_bytes(&self, rows: u32, k: u32) -> u64 {
        let groups = u64::from(rows.next_multiple_of(self.tile())) * u64::from(k / self.group());
        match self {
            WeightFormat::Packed {
                tile: 1,
                scale,
                min,
                ..
            } => {
                let scales = groups * scale.bytes() as u64 * if *min { 2 } else { 1 };
                (groups * u64::from(self.group_words())).next_multiple_of(4) * 4
                    + scales.next_multiple_of(4)
            }
            _ => {
                groups * u64::from(self.group_words()) * 4
                    + groups / u64::from(self.tile()) * u64::from(self.inline_scale_words()) * 4
            }
        }
    }

    /// A short name for ids: `q4g32f16m`, `f16`, ….
    pub fn label(&self) -> String {
        match self {
            WeightFormat::Packed {
                bits,
                offset,
                group,
                scale,
                min,
                tile,
            } => {
                let scale = match scale {
                    ScaleType::F16 => "f16",
                    ScaleType::F32 => "f32",
                };
                let offset = if *offset == 0 {
                    String::new()
                } else {
                    format!("o{offset}")
                };
                {
                    let tile = if *tile == 1 {
                        String::new()
                    } else {
                        format!("x{tile}")
                    };
                    format!(
                        "q{bits}{offset}g{group}{scale}{}{tile}",
                        if *min { "m" } else { "" }
                    )
                }
            }
            WeightFormat::F32 => "f32".into(),
            WeightFormat::F16 => "f16".into(),
            WeightFormat::Bf16 => "bf16".into(),
        }
    }
}
