//! The choice of a device: WebGPU, or the CPU, and never one for the other without saying so.

use ingle_chat::{ChatError, LoadOptions, Opened};
use ingle_cpu::{CpuBackend, CpuTarget, Machine};
use ingle_gpu::device::DeviceOptions;
use ingle_gpu::device::web::WebDevice;
use ingle_gpu::{GpuBackend, GpuTarget};
use ingle_graph::backend::{Backend, BackendError};
use ingle_graph::passes::compile;
use ingle_graph::plan::Plan;
use ingle_kernels::{KernelText, Pack};
use js_sys::{Function, Promise};
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

use crate::types::{self, Device, DeviceChoice};

/// The texts of the kernels that the shipped formats and families need, made when the module was built.
static PACK: &[u8] = include_bytes!(env!("INGLE_KERNEL_PACK"));

/// A backend without weights yet.
pub struct Opening {
    pub backend: Box<dyn Backend>,
    pub device: Device,
}

/// Opens the device that the caller wants. `compile_kernels(keys)` gives a promise of the texts of kernels that the pack
/// lacks, both as JSON; it is called only then.
pub async fn open(
    opened: &Opened,
    options: &types::LoadOptions,
    settings: &LoadOptions,
    compile_kernels: &Function,
) -> Result<Opening, ChatError> {
    match options.device {
        DeviceChoice::Cpu => cpu(opened, settings, None),
        DeviceChoice::Webgpu => gpu(opened, settings, compile_kernels).await,
        DeviceChoice::Auto => match gpu(opened, settings, compile_kernels).await {
            Err(ChatError::Backend(
                reason @ (BackendError::NoDevice { .. } | BackendError::Limit { .. }),
            )) => cpu(opened, settings, Some(reason.to_string())),
            other => other,
        },
    }
}

fn cpu(
    opened: &Opened,
    settings: &LoadOptions,
    fallback: Option<String>,
) -> Result<Opening, ChatError> {
    let no_device = |e: ingle_cpu::CpuError| BackendError::NoDevice {
        device: "cpu".into(),
        reason: e.to_string(),
    };
    let machine = Machine::new(1).map_err(no_device)?;
    let (graph, passes) = opened.graph(settings)?;
    let plan = compile(&graph, &passes, &CpuTarget::new(&machine))?;
    Ok(opening(Box::new(CpuBackend::new(machine, plan)?), fallback))
}

async fn gpu(
    opened: &Opened,
    settings: &LoadOptions,
    compile_kernels: &Function,
) -> Result<Opening, ChatError> {
    let device = WebDevice::open(DeviceOptions::default()).await?;
    let pack = Pack::from_bytes(PACK).map_err(|e| kernel_error("pack", e.to_string()))?;
    let target = GpuTarget::of(&device, pack);
    let plan = gpu_plan(opened, settings, &target, compile_kernels).await?;
    Ok(opening(Box::new(GpuBackend::new(device, plan)?), None))
}

/// Compiles, asks for the texts that are missing, and compiles again: which kernels there are is known only then.
async fn gpu_plan(
    opened: &Opened,
    settings: &LoadOptions,
    target: &GpuTarget,
    compile_kernels: &Function,
) -> Result<Plan, ChatError> {
    let (graph, passes) = opened.graph(settings)?;
    let plan = compile(&graph, &passes, target)?;
    let missing = target.missing();
    if missing.is_empty() {
        return Ok(plan);
    }
    let failed = |reason: String| kernel_error("compiler", reason);
    let keys = serde_json::to_string(&missing).map_err(|e| failed(e.to_string()))?;
    let promise = compile_kernels.call1(&JsValue::NULL, &JsValue::from_str(&keys));
    let texts = JsFuture::from(Promise::resolve(
        &promise.map_err(|e| failed(format!("{e:?}")))?,
    ))
    .await;
    let texts = texts
        .map_err(|e| failed(format!("{e:?}")))?
        .as_string()
        .unwrap_or_default();
    let texts: Vec<KernelText> = serde_json::from_str(&texts).map_err(|e| failed(e.to_string()))?;
    texts.into_iter().for_each(|text| target.supply(text));
    Ok(compile(&graph, &passes, target)?)
}

fn kernel_error(name: &str, reason: String) -> ChatError {
    BackendError::Kernel {
        name: name.into(),
        reason,
    }
    .into()
}

fn opening(backend: Box<dyn Backend>, fallback: Option<String>) -> Opening {
    let info = backend.device();
    let device = Device {
        kind: info.kind,
        name: info.name,
        details: info.details,
        fallback,
    };
    Opening { backend, device }
}
