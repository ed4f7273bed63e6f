//! GGUF and safetensors: bytes to a manifest with byte ranges. Parses and validates, does no IO.
//!
//! A caller fetches the first bytes of a file and hands them to [`gguf::parse`] or [`safetensors::parse`] together
//! with the size of the file. The answer is either [`Parsed::NeedMore`] (fetch at least so many bytes and ask again)
//! or [`Parsed::Done`] with a manifest: metadata, and for each tensor its type, shape and range of bytes in the file.
//! A folder whose tensors lie in several files has an index, read by [`index::parse`].
//!
//! # What holds for every parser
//!
//! - Files are hostile. Every length is checked against the size of the file and the bytes at hand before it is used;
//!   parsing allocates at most the size of its input plus 1 MiB, and it never panics.
//! - An error names the field, what was expected and what was found ([`FormatError`]).
//! - A header takes at most [`MAX_HEADER_BYTES`]; a longer one is refused, so that a file cannot make a browser hold
//!   it whole.
//! - Every range in a manifest lies inside the file, and no two overlap.

mod budget;
mod error;
pub mod gguf;
pub mod index;
mod json;
pub mod safetensors;
mod tensor;

pub use budget::MAX_HEADER_BYTES;
pub use error::{FormatError, Optional};
pub use tensor::{Parsed, TensorInfo, TensorTable};
