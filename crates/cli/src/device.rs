//! Devices are chosen here and nowhere else.

use ingle_cpu::{CpuBackend, CpuTarget, Machine};
use ingle_graph::Graph;
use ingle_graph::backend::{Backend, BackendError};
use ingle_graph::passes::{Options, Target, compile};

use crate::args::{DeviceKind, TargetArgs};
use crate::error::CliError;

/// Something to compile for.
pub enum Device {
    Cpu(Machine),
    #[cfg(feature = "gpu")]
    Gpu(ingle_gpu::device::native::NativeDevice),
}

impl Device {
    /// Opens the device that the arguments name. What `auto` falls back to is said on standard error.
    pub fn open(args: &TargetArgs) -> Result<Self, CliError> {
        match args.device {
            DeviceKind::Cpu => Self::cpu(args),
            DeviceKind::Auto => match gpu::automatic() {
                Ok(device) => Ok(device),
                Err(reason) => {
                    eprintln!("ingle: no GPU ({reason}): using the CPU");
                    Self::cpu(args)
                }
            },
            DeviceKind::Cuda => Err(BackendError::NoDevice {
                device: "cuda".into(),
                reason: "this build has no CUDA backend".into(),
            }
            .into()),
            kind => gpu::open(kind),
        }
    }

    fn cpu(args: &TargetArgs) -> Result<Self, CliError> {
        let threads = args.threads();
        if threads == 0 {
            let expected = "at least 1".into();
            return Err(CliError::Usage {
                field: "--threads",
                expected,
                found: "0".into(),
            });
        }
        let machine = Machine::new(threads).map_err(|e| no_device("cpu", e.to_string()))?;
        Ok(Device::Cpu(machine))
    }

    /// The target that the passes ask.
    pub fn target(&self) -> Box<dyn Target + '_> {
        match self {
            Device::Cpu(machine) => Box::new(CpuTarget::new(machine)),
            #[cfg(feature = "gpu")]
            Device::Gpu(device) => Box::new(ingle_gpu::GpuTarget::of(device, ingle_gpu::Compiler)),
        }
    }

    /// A backend that executes `graph`.
    pub fn backend(self, graph: &Graph, options: &Options) -> Result<Box<dyn Backend>, CliError> {
        let plan = compile(graph, options, &*self.target())?;
        Ok(match self {
            Device::Cpu(machine) => Box::new(CpuBackend::new(machine, plan)?),
            #[cfg(feature = "gpu")]
            Device::Gpu(device) => Box::new(ingle_gpu::GpuBackend::new(device, plan)?),
        })
    }
}

/// Calls `look` with the target of a device that need not be here, to look at its plans.
pub fn with_target<T>(
    args: &TargetArgs,
    look: impl FnOnce(&dyn Target) -> T,
) -> Result<T, CliError> {
    match args.device {
        DeviceKind::Auto | DeviceKind::Cpu | DeviceKind::Cuda => {
            let device = Device::open(args)?;
            let target = device.target();
            Ok(look(&*target))
        }
        kind => Ok(look(&*gpu::target(kind)?)),
    }
}

fn no_device(device: &str, reason: String) -> CliError {
    BackendError::NoDevice {
        device: device.into(),
        reason,
    }
    .into()
}

#[cfg(feature = "gpu")]
mod gpu {
    use ingle_gpu::device::native::{Api, NativeDevice};
    use ingle_gpu::device::{Device as _, DeviceOptions, Limits};
    use ingle_gpu::{Compiler, GpuTarget};
    use ingle_graph::passes::Target;

    use super::Device;
    use crate::args::DeviceKind;
    use crate::error::CliError;

    fn api(kind: DeviceKind) -> Api {
        match kind {
            DeviceKind::Metal => Api::Metal,
            DeviceKind::Dx12 => Api::Dx12,
            _ => Api::Vulkan,
        }
    }

    pub fn open(kind: DeviceKind) -> Result<Device, CliError> {
        Ok(Device::Gpu(NativeDevice::open(
            api(kind),
            DeviceOptions::default(),
        )?))
    }

    /// A real GPU: one that is the CPU in disguise would only be slower.
    pub fn automatic() -> Result<Device, String> {
        let api = match std::env::consts::OS {
            "macos" | "ios" => Api::Metal,
            "windows" => Api::Dx12,
            _ => Api::Vulkan,
        };
        let device =
            NativeDevice::open(api, DeviceOptions::default()).map_err(|e| e.to_string())?;
        let info = device.info();
        if info.details.iter().any(|d| d == "Cpu") {
            return Err(format!("{} is a software device", info.name));
        }
        Ok(Device::Gpu(device))
    }

    /// With the limits that every device has.
    pub fn target(kind: DeviceKind) -> Result<Box<dyn Target>, CliError> {
        Ok(Box::new(GpuTarget::new(
            api(kind).name(),
            Limits::default(),
            &[],
            Compiler,
        )))
    }
}

#[cfg(not(feature = "gpu"))]
mod gpu {
    use ingle_graph::passes::Target;

    use super::{Device, no_device};
    use crate::args::DeviceKind;
    use crate::error::CliError;

    const REASON: &str = "this build has no GPU backend";

    pub fn open(kind: DeviceKind) -> Result<Device, CliError> {
        Err(no_device(
            &format!("{kind:?}").to_lowercase(),
            REASON.into(),
        ))
    }

    pub fn automatic() -> Result<Device, String> {
        Err(REASON.into())
    }

    pub fn target(kind: DeviceKind) -> Result<Box<dyn Target>, CliError> {
        Err(no_device(
            &format!("{kind:?}").to_lowercase(),
            REASON.into(),
        ))
    }
}
