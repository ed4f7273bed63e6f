//! `PackedLayout`: how a kernel wants the bytes of a quantised matrix `[rows, k]`.
//!
//! One family serves every backend. A *group* is `group` consecutive `k` of one row, sharing a scale (and a min). Rows
//! are taken in *tiles* of `rows`; within a tile and group the codes lie in chunks, each holding, for every row of the
//! tile in turn, one *run* of 4 consecutive code bytes:
//!
//! - 8-bit codes: chunk `c` holds `k = 4c … 4c+3` of the group; a byte is the signed code (`offset` already applied).
//! - 4-bit codes: chunk `c` holds bytes `b = 4c … 4c+3`; the low nibble of byte `b` is the code of `k = b`, the high
//!   nibble that of `k = b + group/2` (the order of ggml's Q4_0 and Q4_1, so with `rows = 1` they are copied as they
//!   are). Nibbles are unsigned; `offset` is subtracted by the kernel.
//!
//! `weight = scale · (code − offset) + min`.
//!
//! Scales lie either after the codes of each tile and group (`Placement::Inline`: codes, then `rows` scales, then
//! `rows` mins) or after all codes of the matrix (`Placement::Apart`: for every row, for every group, the scale, then
//! the min if there is one; rows = 1 only, and the section starts at a multiple of 16 bytes).
//!
//! The last tile is padded with rows of zero codes, zero scales and zero mins.

use serde::{Deserialize, Serialize};

use crate::ScaleType;

/// Where scales and mins lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// After the codes of their tile and group. What CPU kernels stream.
    Inline,
    /// In one section after all codes. What GPU kernels index.
    Apart,
}

/// How the bytes of a quantised matrix lie for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PackedLayout {
    /// Bits of a stored code: 4 or 8.
    pub bits: u8,
    /// Subtracted from a 4-bit code by the kernel; 0 for 8-bit codes, which are stored signed.
    pub offset: u8,
    /// Elements of a row that share a scale: 16 or 32.
    pub group: u16,
    /// Rows in a tile: 1, 4, 8 or 16.
    pub rows: u8,
    pub scale: ScaleType,
    /// Whether a min of the same type follows each scale.
    pub min: bool,
    pub placement: Placement,
}
