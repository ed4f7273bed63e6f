//! The op suite on the CPU, with every instruction set that this machine has and one and three threads.

#![cfg(not(target_arch = "wasm32"))]

use std::io::Write;

use ingle_cpu::{CpuBackend, CpuTarget, Level, Machine};
use ingle_graph::suite::{Case, suite};

fn run(case: &Case, level: Level, threads: usize) -> Result<(), String> {
    let machine = Machine::with_level(level, threads).map_err(|e| e.to_string())?;
    let plan = case
        .compile(&CpuTarget::new(&machine))
        .map_err(|e| e.to_string())?;
    let mut backend = CpuBackend::new(machine, plan).map_err(|e| e.to_string())?;
    pollster::block_on(case.run(&mut backend)).map_err(|e| e.to_string())
}

fn check(level: Level, threads: usize) {
    let cases = suite();
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(e) = run(case, level, threads) {
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
    if let Some(path) = std::env::var_os("INGLE_SUITE_COUNTS") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .expect("the counts can be written");
        writeln!(file, "cpu-{} {}", level.name(), cases.len()).expect("the counts can be written");
    }
}

#[test]
#[cfg(not(target_arch = "wasm32"))]
fn scalar_agrees_with_the_reference() {
    check(Level::Scalar, 1);
}

#[test]
fn the_best_instruction_set_agrees_with_the_reference() {
    check(Level::detect(), 1);
}

#[test]
fn threads_agree_with_the_reference() {
    check(Level::detect(), 3);
}
