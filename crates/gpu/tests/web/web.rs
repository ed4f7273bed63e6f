use ingle_gpu::device::DeviceOptions;
use ingle_gpu::device::web::WebDevice;
use ingle_gpu::{Compiler, GpuBackend, GpuTarget};
use ingle_graph::backend::{Backend, BackendError};
use ingle_graph::suite::{Case, suite};
use ingle_kernels::shapes::DeviceClass;
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

async fn open() -> WebDevice {
    WebDevice::open(DeviceOptions::default())
        .await
        .expect("this browser has WebGPU")
}

async fn run(case: &Case, target: &GpuTarget) -> Result<(), String> {
    let plan = case.compile(target).map_err(|e| e.to_string())?;
    let mut backend = GpuBackend::new(open().await, plan).map_err(|e| e.to_string())?;
    case.run(&mut backend).await.map_err(|e| e.to_string())
}

/// Runs all cases with the kernels for a class of devices.
async fn check(class: DeviceClass, name: &str) {
    let cases = suite();
    let target = GpuTarget::of(&open().await, Compiler).with_class(class);
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(e) = run(case, &target).await {
            console_log!("{}: {e}", case.name);
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
    console_log!("op suite on {name}: {} cases", cases.len());
}

#[wasm_bindgen_test]
async fn every_case_agrees_with_the_reference() {
    check(DeviceClass::Software, "webgpu").await;
}

#[wasm_bindgen_test]
async fn kernels_for_hardware_agree_too() {
    check(DeviceClass::Hardware, "webgpu-hardware").await;
}

#[wasm_bindgen_test]
async fn what_a_shader_compiler_says_is_an_error() {
    let case = suite().into_iter().next().expect("there are cases");
    let device = open().await;
    let mut plan = case
        .compile(&GpuTarget::of(&device, Compiler))
        .expect("the case compiles");
    let text = plan.kernels[0].text.as_mut().expect("kernels have texts");
    text.source.push_str("\nfn broken( {}\n");
    let mut backend = GpuBackend::new(device, plan).expect("pipelines are made later");
    let found = case.run(&mut backend).await;
    assert!(found.is_err(), "{found:?}");
    let ready = backend.ready().await;
    assert!(
        matches!(
            ready,
            Err(BackendError::Kernel { .. } | BackendError::Device { .. })
        ),
        "{ready:?}"
    );
}
