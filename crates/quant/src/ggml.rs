//! `GgmlType`: how the bytes of a tensor lie in a GGUF file. One table row per type.
//!
//! The value is small and hashable, so that a weight in a graph can be `(GgmlType, byte range)`. Types that exist but
//! that this crate cannot read have a row too: an error can then name them and a manifest can check their sizes.

use serde::{Deserialize, Serialize};

use crate::{ElementType, QuantError, QuantScheme, ScaleType, Storage, SuperGroup};

/// Declares the enum and its table from one list, so that a type is added in one place.
macro_rules! ggml_types {
    ($($variant:ident = $id:literal, $elements:literal, $bytes:literal, $storage:expr;)*) => {
        /// A tensor type of the GGUF format. Names are ggml's own.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum GgmlType {
            $($variant = $id,)*
        }

        impl GgmlType {
            /// Every type that has a row.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            const fn row(self) -> Row {
                match self {
                    $(GgmlType::$variant => Row {
                        name: stringify!($variant),
                        elements: $elements,
                        bytes: $bytes,
                        storage: $storage,
                    },)*
                }
            }
        }
    };
}

/// What the table says about one type.
struct Row {
    name: &'static str,
    elements: usize,
    bytes: usize,
    storage: Option<Storage>,
}

// Columns: name = id in the file, elements of a block, bytes of a block, what it stores (`None`: known, not readable).
ggml_types! {
    F32      =  0,   1,   4, element(ElementType::F32);
    F16      =  1,   1,   2, element(ElementType::F16);
    Q4_0     =  2,  32,  18, one_level(4, 8, false);
    Q4_1     =  3,  32,  20, one_level(4, 0, true);
    Q5_0     =  6,  32,  22, one_level(5, 16, false);
    Q5_1     =  7,  32,  24, one_level(5, 0, true);
    Q8_0     =  8,  32,  34, SIGNED_8;
    Q8_1     =  9,  32,  40, None;
    Q2_K     = 10, 256,  84, None;
    Q3_K     = 11, 256, 110, None;
    Q4_K     = 12, 256, 144, two_levels(4);
    Q5_K     = 13, 256, 176, two_levels(5);
    Q6_K     = 14, 256, 210, SIGNED_6_OF_16;
    Q8_K     = 15, 256, 292, None;
    IQ2_XXS  = 16, 256,  66, None;
    IQ2_XS   = 17, 256,  74, None;
    IQ3_XXS  = 18, 256,  98, None;
    IQ1_S    = 19, 256,  50, None;
    IQ4_NL   = 20,  32,  18, None;
    IQ3_S    = 21, 256, 110, None;
    IQ2_S    = 22, 256,  82, None;
    IQ4_XS   = 23, 256, 136, None;
    I8       = 24,   1,   1, element(ElementType::I8);
    I16      = 25,   1,   2, None;
    I32      = 26,   1,   4, element(ElementType::I32);
    I64      = 27,   1,   8, None;
    F64      = 28,   1,   8, None;
    IQ1_M    = 29, 256,  56, None;
    BF16     = 30,   1,   2, element(ElementType::Bf16);
    Q4_0_4_4 = 31,  32,  18, None;
    Q4_0_4_8 = 32,  32,  18, None;
    Q4_0_8_8 = 33,  32,  18, None;
    TQ1_0    = 34, 256,  54, None;
    TQ2_0    = 35, 256,  66, None;
    IQ4_NL_4_4 = 36, 32, 18, None;
    IQ4_NL_4_8 = 37, 32, 18, None;
    IQ4_NL_8_8 = 38, 32, 18, None;
    MXFP4    = 39,  32,  17, None;
    NVFP4    = 40,  64,  36, None;
    Q1_0     = 41, 128,  18, None;
}

impl GgmlType {
    /// The type with the file's number `id`.
    pub fn from_id(id: u32) -> Result<Self, QuantError> {
        Self::ALL
            .iter()
            .copied()
            .find(|ty| ty.id() == id)
            .ok_or(QuantError::UnknownType { id })
    }

    /// The type called `name` (`Q4_1` or `q4_1`), if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// The number that stands for this type in a file.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// ggml's name: `F32`, `Q4_1`, …
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements in one block; a row is a whole number of blocks.
    pub const fn block_elements(self) -> usize {
        self.row().elements
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.row().bytes
    }

    /// What the type stores, or `None` if this crate cannot read it.
    pub const fn storage(self) -> Option<Storage> {
        self.row().storage
    }

    /// Whether the type has blocks with shared scales that this crate can read.
    pub const fn is_quantized(self) -> bool {
        matches!(self.storage(), Some(Storage::Quant(_)))
    }

    /// Bytes of a row of `k` elements. `k` must be a multiple of the block.
    pub fn row_bytes(self, k: usize) -> Result<usize, QuantError> {
        let elements = self.block_elements();
        if !k.is_multiple_of(elements) {
            return Err(QuantError::RowLength {
                what: self.name(),
                multiple: elements,
                found: k,
            });
        }
        crate::error::checked_mul("row bytes", k / elements, self.block_bytes())
    }
}

const fn element(element: ElementType) -> Option<Storage> {
    Some(Storage::Element(element))
}

/// Blocks of 32 with one f16 scale and perhaps one f16 min.
const fn one_level(bits: u8, offset: u8, min: bool) -> Option<Storage> {
    Some(Storage::Quant(QuantScheme {
        bits,
        offset,
        signed: false,
        group: 32,
        scale: ScaleType::F16,
        min,
        super_group: None,
    }))
}

/// Super-blocks of 256 with f16 `d` and `dmin`, and a 6-bit scale and min for each group of 32.
const fn two_levels(bits: u8) -> Option<Storage> {
    Some(Storage::Quant(QuantScheme {
        bits,
        offset: 0,
        signed: false,
        group: 32,
        scale: ScaleType::F16,
        min: true,
        super_group: Some(SuperGroup {
            elements: 256,
            scale_bits: 6,
            signed: false,
        }),
    }))
}

/// Q8_0: blocks of 32 two's complement bytes with one f16 scale.
const SIGNED_8: Option<Storage> = Some(Storage::Quant(QuantScheme {
    bits: 8,
    offset: 0,
    signed: true,
    group: 32,
    scale: ScaleType::F16,
    min: false,
    super_group: None,
}));

/// Q6_K: super-blocks of 256 with f16 `d`, and a signed 8-bit scale for each group of 16.
const SIGNED_6_OF_16: Option<Storage> = Some(Storage::Quant(QuantScheme {
    bits: 6,
    offset: 32,
    signed: false,
    group: 16,
    scale: ScaleType::F16,
    min: false,
    super_group: Some(SuperGroup {
        elements: 256,
        scale_bits: 8,
        signed: true,
    }),
}));
