//! `CpuTarget`: what the passes ask of this CPU.

use ingle_graph::kernel::{Activations, KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::passes::{Choice, RowRange, Target};
use ingle_graph::plan::Size;
use ingle_quant::{ElementType, LayoutRequest, PackedLayout, Placement, Storage};

use crate::kernels::quantize_activations::QuantizedRows;
use crate::{Level, Machine};

/// Extra inputs that an epilogue may read.
const MAX_EXTRAS: usize = 6;

/// A CPU with an instruction set.
pub struct CpuTarget<'a> {
    machine: &'a Machine,
}

impl<'a> CpuTarget<'a> {
    pub fn new(machine: &'a Machine) -> Self {
        CpuTarget { machine }
    }

    fn level(&self) -> Level {
        self.machine.level()
    }

    /// Bytes of a row of a matmul's input as the kernel reads it; `None` if that is the input itself.
    fn workspace(&self, spec: &MatmulSpec) -> Result<Option<u64>, String> {
        match (spec.activations, spec.norm) {
            (Activations::Int8, _) => {
                let words = QuantizedRows::row_words(spec.k).map_err(|e| e.to_string())?;
                Ok(Some(words as u64 * 4))
            }
            (Activations::F32, Some(_)) => Ok(Some(spec.k as u64 * 4)),
            (Activations::F32, None) => Ok(None),
        }
    }
}

impl Target for CpuTarget<'_> {
    fn name(&self) -> String {
        format!(
            "cpu {}, tiles of {} rows",
            self.level().name(),
            self.level().tile_rows()
        )
    }

    fn layout(&self, storage: Storage, _rows: usize, _k: usize) -> Result<WeightLayout, String> {
        match storage {
            Storage::Element(
                element @ (ElementType::F32 | ElementType::F16 | ElementType::Bf16),
            ) => Ok(WeightLayout::Dense(element)),
            Storage::Element(element) => {
                Err(format!("no kernel reads weights of {}", element.name()))
            }
            Storage::Quant(scheme) => {
                let rows = self.level().tile_rows() as u8;
                let request = LayoutRequest {
                    rows,
                    placement: Placement::Inline,
                };
                let layout = PackedLayout::for_scheme(&scheme, request);
                layout
                    .map(WeightLayout::Packed)
                    .ok_or_else(|| format!("no kernel layout holds {scheme}"))
            }
        }
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        match layout {
            WeightLayout::Dense(element) => rows
                .checked_mul(k)?
                .checked_mul(element.bytes())
                .map(|n| n as u64),
            WeightLayout::Packed(packed) => packed.bytes(rows, k).ok().map(|n| n as u64),
        }
    }

    fn fuses_norm(&self, _spec: &MatmulSpec, _rows: RowRange) -> bool {
        true
    }

    fn max_extras(&self) -> usize {
        MAX_EXTRAS
    }

    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String> {
        let mut workspace = None;
        let mut why = "the only candidate";
        if let KernelSpec::Matmul(m) = spec {
            let tile = self.level().tile_rows();
            if m.epilogue.accumulators > 1 && !m.n.is_multiple_of(tile) {
                return Err(format!(
                    "{} columns of each part do not fill tiles of {tile} rows",
                    m.n
                ));
            }
            workspace = self.workspace(m)?.map(|per| Size {
                constant: 0,
                per,
                symbol: ingle_graph::Symbol::Tokens,
            });
            why = match (m.activations, rows.high) {
                (Activations::Int8, 1) => "one row: integer dot products, a tile of rows at a time",
                (Activations::Int8, _) => {
                    "integer dot products, each weight unpacked for four rows"
                }
                (Activations::F32, _) => "weights unpacked to f32",
            };
        }
        Ok(Choice {
            candidate: self.level().name().into(),
            why: why.into(),
            text: None,
            workspace,
        })
    }
}
