//! Types of single elements.

use serde::{Deserialize, Serialize};

/// The type of one unquantised element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    F32,
    F16,
    Bf16,
    I32,
    U32,
    I8,
    U8,
    Bool,
}

impl ElementType {
    pub const ALL: [ElementType; 8] = [
        ElementType::F32,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::I32,
        ElementType::U32,
        ElementType::I8,
        ElementType::U8,
        ElementType::Bool,
    ];

    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::F32 | ElementType::I32 | ElementType::U32 => 4,
            ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::I8 | ElementType::U8 | ElementType::Bool => 1,
        }
    }

    /// The name used in text forms: `f32`, `bf16`, …
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::F32 => "f32",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::I32 => "i32",
            ElementType::U32 => "u32",
            ElementType::I8 => "i8",
            ElementType::U8 => "u8",
            ElementType::Bool => "bool",
        }
    }

    /// The element type called `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|e| e.name() == name)
    }
}
