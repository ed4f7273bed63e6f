//! Block formats of quantised tensors: exact (de)quantisation and repacking into kernel layouts.
//!
//! Pure: bytes and values in, bytes and values out.

mod activation;
mod block;
mod dequantize;
mod element;
mod error;
pub mod ggml;
mod layout;
mod pack;
mod quantize;
mod scheme;

pub use activation::{
    ACTIVATION_GROUP, HIGH_TERM, LARGEST_CODE, activation_groups, dequantize_activations,
    fake_quantize, quantize_activations,
};
pub use dequantize::{convert_rows, dequantize};
pub use element::ElementType;
pub use error::QuantError;
pub use ggml::GgmlType;
pub use layout::{LayoutRequest, PackedLayout, PackedRanges, Placement};
pub use pack::{pack_rows, pack_tile, unpack, unpack_row};
pub use quantize::quantize;
pub use scheme::{QuantScheme, ScaleType, Storage, SuperGroup};
