//! Block formats of quantised tensors: exact (de)quantisation and repacking into kernel layouts.
//!
//! Pure: bytes and values in, bytes and values out.

mod element;
mod error;
pub mod ggml;
mod layout;
mod scheme;

pub use element::ElementType;
pub use error::QuantError;
pub use ggml::GgmlType;
pub use layout::{PackedLayout, Placement};
pub use scheme::{QuantScheme, ScaleType, Storage, SuperGroup};
