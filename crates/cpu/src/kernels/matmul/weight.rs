//! Weights as matmuls and gathers read them: checked once, so that kernels need not.

use ingle_quant::{ElementType, PackedLayout, Placement, ScaleType};

use crate::CpuError;
use crate::error::check_length;

/// A weight `[rows, k]`.
#[derive(Clone, Copy, Debug)]
pub enum Weight<'a> {
    Packed(PackedMatrix<'a>),
    Dense(DenseMatrix<'a>),
}

impl Weight<'_> {
    pub fn rows(&self) -> usize {
        match self {
            Weight::Packed(w) => w.rows(),
            Weight::Dense(w) => w.rows(),
        }
    }

    pub fn k(&self) -> usize {
        match self {
            Weight::Packed(w) => w.k(),
            Weight::Dense(w) => w.k(),
        }
    }
}

/// A quantised weight in tiles of rows, with its scales inline.
#[derive(Clone, Copy, Debug)]
pub struct PackedMatrix<'a> {
    layout: PackedLayout,
    bytes: &'a [u8],
    rows: usize,
    k: usize,
    tile_bytes: usize,
}

impl<'a> PackedMatrix<'a> {
    /// `bytes` holds the whole matrix `[rows, k]` in `layout`.
    pub fn new(
        layout: PackedLayout,
        bytes: &'a [u8],
        rows: usize,
        k: usize,
    ) -> Result<Self, CpuError> {
        layout.validate()?;
        if layout.placement != Placement::Inline {
            let found = format!("{:?}", layout.placement);
            return Err(CpuError::Unsupported {
                field: "placement of scales",
                expected: "inline",
                found,
            });
        }
        if k == 0 {
            return Err(CpuError::Length {
                field: "width of a weight",
                expected: 1,
                found: 0,
            });
        }
        let tile_bytes = layout.tile_bytes(k)?;
        check_length(
            "bytes of a packed weight",
            layout.bytes(rows, k)?,
            bytes.len(),
        )?;
        Ok(PackedMatrix {
            layout,
            bytes,
            rows,
            k,
            tile_bytes,
        })
    }

    pub fn layout(&self) -> &PackedLayout {
        &self.layout
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn tile_rows(&self) -> usize {
        self.layout.rows.into()
    }

    pub fn k(&self) -> usize {
        self.k
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The bytes of the tiles that hold rows `first .. first + len`; `first` starts a tile.
    #[inline(always)]
    pub(crate) fn tiles(&self, first: usize, len: usize) -> &'a [u8] {
        let tile_rows = self.tile_rows();
        debug_assert!(first.is_multiple_of(tile_rows));
        &self.bytes[first / tile_rows * self.tile_bytes..]
            [..len.div_ceil(tile_rows) * self.tile_bytes]
    }

    #[inline(always)]
    pub(crate) fn format(&self) -> Format {
        Format {
            tile_bytes: self.tile_bytes,
            groups: self.k / usize::from(self.layout.group),
            half_scales: self.layout.scale == ScaleType::F16,
            offset: self.layout.offset.into(),
            min: self.layout.min,
        }
    }
}

/// What the inner loops need to know about a packed weight besides bits and group.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub tile_bytes: usize,
    pub groups: usize,
    pub half_scales: bool,
    pub offset: f32,
    pub min: bool,
}

impl Format {
    /// The scales of a tile's rows (or their mins), and what follows them.
    ///
    /// # Safety
    /// `LANES` scales are readable at `p`.
    #[inline(always)]
    pub(crate) unsafe fn scales<I: crate::isa::Isa>(
        &self,
        isa: I,
        p: *const u8,
    ) -> (I::F, *const u8) {
        unsafe {
            if self.half_scales {
                (isa.load_f16(p.cast()), p.add(2 * I::LANES))
            } else {
                (isa.load(p.cast()), p.add(4 * I::LANES))
            }
        }
    }
}

/// A weight of plain elements, row after row.
#[derive(Clone, Copy, Debug)]
pub struct DenseMatrix<'a> {
    element: ElementType,
    bytes: &'a [u8],
    rows: usize,
    k: usize,
}

impl<'a> DenseMatrix<'a> {
    /// `bytes` holds `[rows, k]` of `f32`, `f16` or `bf16`, little-endian.
    pub fn new(
        element: ElementType,
        bytes: &'a [u8],
        rows: usize,
        k: usize,
    ) -> Result<Self, CpuError> {
        if !matches!(
            element,
            ElementType::F32 | ElementType::F16 | ElementType::Bf16
        ) {
            let found = element.name().into();
            return Err(CpuError::Unsupported {
                field: "element of a weight",
                expected: "f32, f16 or bf16",
                found,
            });
        }
        let expected = rows
            .checked_mul(k)
            .and_then(|n| n.checked_mul(element.bytes()));
        let expected = expected.ok_or(CpuError::Limit {
            field: "rows of a weight",
            limit: usize::MAX,
            found: rows,
        })?;
        check_length("bytes of a weight", expected, bytes.len())?;
        Ok(DenseMatrix {
            element,
            bytes,
            rows,
            k,
        })
    }

    pub fn element(&self) -> ElementType {
        self.element
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn k(&self) -> usize {
        self.k
    }

    /// The bytes of row `i`.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> &'a [u8] {
        let bytes = self.k * self.element.bytes();
        &self.bytes[i * bytes..][..bytes]
    }
}
