//! The op suite on Vulkan: every case is compiled, run and compared with the reference interpreter.

use std::io::Write;

use ingle_gpu::device::DeviceOptions;
use ingle_gpu::device::native::{Api, NativeDevice};
use ingle_gpu::{Compiler, GpuBackend, GpuTarget, block_on};
use ingle_graph::suite::{Case, suite};
use ingle_kernels::shapes::DeviceClass;

fn open() -> NativeDevice {
    NativeDevice::open(Api::Vulkan, DeviceOptions::default())
        .expect("these tests need a Vulkan device")
}

fn run(case: &Case, target: &GpuTarget) -> Result<(), String> {
    let plan = case.compile(target).map_err(|e| e.to_string())?;
    let device = open();
    let mut backend = GpuBackend::new(device, plan).map_err(|e| e.to_string())?;
    block_on(case.run(&mut backend)).map_err(|e| e.to_string())
}

#[test]
fn every_case_agrees_with_the_reference() {
    check(DeviceClass::Software, "vulkan");
}

#[test]
fn kernels_for_hardware_agree_too() {
    check(DeviceClass::Hardware, "vulkan-hardware");
}

/// Runs all cases with the kernels for a class of devices.
fn check(class: DeviceClass, name: &str) {
    let cases = suite();
    let target = GpuTarget::of(&open(), Compiler).with_class(class);
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(e) = run(case, &target) {
            wrong.push(format!("{}: {e}", case.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    if let Some(path) = std::env::var_os("INGLE_SUITE_COUNTS") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .expect("the counts can be written");
        writeln!(file, "{name} {}", cases.len()).expect("the counts can be written");
    }
}
