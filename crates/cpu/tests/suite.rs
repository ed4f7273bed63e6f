//! The op suite on the CPU: with every instruction set that this machine has and one and three threads, and in wasm with
//! its one.

use ingle_cpu::{CpuBackend, CpuTarget, Level, Machine};
use ingle_graph::suite::{Case, suite};

async fn run(case: &Case, level: Level, threads: usize) -> Result<(), String> {
    let machine = Machine::with_level(level, threads).map_err(|e| e.to_string())?;
    let plan = case
        .compile(&CpuTarget::new(&machine))
        .map_err(|e| e.to_string())?;
    let mut backend = CpuBackend::new(machine, plan).map_err(|e| e.to_string())?;
    case.run(&mut backend).await.map_err(|e| e.to_string())
}

/// Runs all cases, and gives how many there are.
async fn check(level: Level, threads: usize) -> usize {
    let cases = suite();
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(e) = run(case, level, threads).await {
            wrong.push(format!("{}: {e}", case.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases on {}:\n{}",
        wrong.len(),
        cases.len(),
        level.name(),
        wrong.join("\n")
    );
    cases.len()
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::io::Write;

    use super::*;

    fn checked(level: Level, threads: usize) {
        let cases = pollster::block_on(check(level, threads));
        let Some(path) = std::env::var_os("INGLE_SUITE_COUNTS") else {
            return;
        };
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .expect("the counts can be written");
        let threads = if threads > 1 { "-threads" } else { "" };
        writeln!(file, "cpu-{}{threads} {cases}", level.name()).expect("the counts can be written");
    }

    #[test]
    fn scalar_agrees_with_the_reference() {
        checked(Level::Scalar, 1);
    }

    #[test]
    fn the_best_instruction_set_agrees_with_the_reference() {
        checked(Level::detect(), 1);
    }

    #[test]
    fn threads_agree_with_the_reference() {
        checked(Level::detect(), 3);
    }
}

#[cfg(target_arch = "wasm32")]
mod wasm {
    use wasm_bindgen_test::{console_log, wasm_bindgen_test};

    use super::*;

    #[wasm_bindgen_test]
    async fn the_instruction_set_agrees_with_the_reference() {
        let level = Level::detect();
        assert_eq!(level, Level::Simd128);
        // No test of wasm sees the environment: scripts/test reads this line.
        console_log!("op suite on wasm-cpu: {} cases", check(level, 1).await);
    }
}
