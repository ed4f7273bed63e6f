//! Block formats of quantised tensors: exact (de)quantisation and repacking into kernel layouts.
//!
//! Pure: bytes and values in, bytes and values out.

mod block;
mod dequantize;
mod element;
mod error;
pub mod ggml;
mod layout;
mod quantize;
mod scheme;

pub use dequantize::{convert_rows, dequantize};
pub use element::ElementType;
pub use error::QuantError;
pub use ggml::GgmlType;
pub use layout::{PackedLayout, Placement};
pub use quantize::quantize;
pub use scheme::{QuantScheme, ScaleType, Storage, SuperGroup};
