//! `GpuTarget`: what the passes ask of a GPU.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ingle_graph::kernel::{KernelSpec, MatmulSpec, WeightLayout};
use ingle_graph::passes::{Choice, RowRange, Target};
use ingle_graph::plan;
use ingle_kernels::shapes::DeviceClass;
use ingle_kernels::{Access, Feature, KernelKey, KernelText};
use ingle_quant::{ElementType, LayoutRequest, PackedLayout, Placement, Storage};

use crate::device::{Device, Limits};
use crate::select::{self, Candidate, Machine};
use crate::source::{KernelSource, SourceError};

/// Bindings of a matrix product besides its extra inputs: x, the norm's weight, the matrix, out, step, params.
const PRODUCT_BINDINGS: u32 = 6;

/// A GPU with these limits and features, and where its kernels come from.
pub struct GpuTarget {
    kind: String,
    class: DeviceClass,
    limits: Limits,
    features: Vec<Feature>,
    source: Box<dyn KernelSource>,
    texts: RefCell<BTreeMap<String, Result<KernelText, SourceError>>>,
    missing: RefCell<BTreeMap<String, KernelKey>>,
}

impl GpuTarget {
    /// `kind` is the device's kind, for people: `webgpu`, `vulkan`. A hardware device, unless told otherwise.
    pub fn new(
        kind: &str,
        limits: Limits,
        features: &[Feature],
        source: impl KernelSource + 'static,
    ) -> Self {
        GpuTarget {
            kind: kind.into(),
            class: DeviceClass::Hardware,
            limits,
            features: features.to_vec(),
            source: Box::new(source),
            texts: RefCell::default(),
            missing: RefCell::default(),
        }
    }

    /// The target that `device` is.
    pub fn of<D: Device>(device: &D, source: impl KernelSource + 'static) -> Self {
        Self::new(
            &device.info().kind,
            device.limits(),
            device.features(),
            source,
        )
        .with_class(device.class())
    }

    /// The same for a device of this class.
    pub fn with_class(self, class: DeviceClass) -> Self {
        GpuTarget { class, ..self }
    }

    fn machine(&self) -> Machine<'_> {
        Machine {
            class: self.class,
            features: &self.features,
            limits: &self.limits.kernel,
        }
    }

    /// The kernels that were chosen and have no text yet. A plan that holds one compiles, but cannot be loaded until
    /// their texts are supplied and it is compiled again.
    pub fn missing(&self) -> Vec<KernelKey> {
        self.missing.borrow().values().cloned().collect()
    }

    /// Adds a text, for example one that the compiler module made.
    pub fn supply(&self, text: KernelText) {
        self.missing.borrow_mut().remove(&text.id);
        self.texts.borrow_mut().insert(text.id.clone(), Ok(text));
    }

    fn text(&self, key: &KernelKey) -> Result<KernelText, SourceError> {
        let id = key.id();
        if let Some(known) = self.texts.borrow().get(&id) {
            return known.clone();
        }
        let text = self.source.text(key, &self.limits.kernel);
        if matches!(text, Err(SourceError::Missing { .. })) {
            self.missing.borrow_mut().insert(id.clone(), key.clone());
        }
        self.texts.borrow_mut().insert(id, text.clone());
        text
    }

    fn choose(&self, candidates: Vec<Candidate>) -> Result<Choice, String> {
        let mut refused = String::from("no candidate admits these rows on this device");
        for candidate in candidates {
            let choice = |text| Choice {
                candidate: candidate.name.into(),
                why: candidate.why.into(),
                text,
                workspace: None,
            };
            match self.text(&candidate.key) {
                Ok(text) => return Ok(choice(Some(plan_text(&text)))),
                Err(SourceError::Missing { .. }) => return Ok(choice(None)),
                Err(e @ SourceError::Refused { .. }) => refused = e.to_string(),
            }
        }
        Err(refused)
    }
}

impl Target for GpuTarget {
    fn name(&self) -> String {
        let features: String = self.features.iter().map(|f| format!(" {f:?}")).collect();
        format!("{} {:?}{features}", self.kind, self.class)
    }

    fn layout(&self, storage: Storage, rows: usize, k: usize) -> Result<WeightLayout, String> {
        let layout = match storage {
            Storage::Element(e @ (ElementType::F32 | ElementType::F16 | ElementType::Bf16)) => {
                WeightLayout::Dense(e)
            }
            Storage::Element(e) => return Err(format!("a matrix of {}", e.name())),
            Storage::Quant(scheme) => {
                let request = LayoutRequest {
                    rows: 1,
                    placement: Placement::Apart,
                };
                let layout = PackedLayout::for_scheme(&scheme, request);
                WeightLayout::Packed(layout.ok_or_else(|| format!("no layout holds {scheme}"))?)
            }
        };
        let group = select::format(layout)?.group() as usize;
        if !k.is_multiple_of(group) {
            return Err(format!(
                "rows of {k} elements of [{rows}, {k}], which GPU kernels read in groups of {group}"
            ));
        }
        Ok(layout)
    }

    fn weight_bytes(&self, layout: WeightLayout, rows: usize, k: usize) -> Option<u64> {
        let bytes = match layout {
            WeightLayout::Dense(element) => rows.checked_mul(k)?.checked_mul(element.bytes())?,
            WeightLayout::Packed(layout) => layout.bytes(rows, k).ok()?,
        };
        u64::try_from(bytes).ok()
    }

    /// A norm costs every workgroup a pass over `x`: right for one row, wasteful for many.
    fn fuses_norm(&self, _spec: &MatmulSpec, rows: RowRange) -> bool {
        rows.high <= 1
    }

    /// Where no kernel quantises what it reads: several rows, or rows too wide for workgroup memory.
    fn fuses_quantize(&self, spec: &MatmulSpec, rows: RowRange) -> bool {
        select::takes(spec, rows, &self.machine())
    }

    fn max_extras(&self) -> usize {
        self.limits
            .kernel
            .max_storage_buffers_per_shader_stage
            .saturating_sub(PRODUCT_BINDINGS) as usize
    }

    fn select(&self, spec: &KernelSpec, rows: RowRange) -> Result<Choice, String> {
        self.choose(select::candidates(spec, rows, &self.machine())?)
    }
}

/// The text as plans hold it.
fn plan_text(text: &KernelText) -> plan::KernelText {
    plan::KernelText {
        language: plan::Language::Wgsl,
        source: text.wgsl.clone(),
        entry: text.entry.clone(),
        workgroup: text.workgroup,
        writes: text
            .bindings
            .iter()
            .map(|b| b.access == Access::ReadWrite)
            .collect(),
    }
}
