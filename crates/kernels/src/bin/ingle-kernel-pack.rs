//! Writes a kernel pack: `ingle-kernel-pack KEYS.json PACK`.
//!
//! `KEYS.json` is a list of [`KernelKey`]s; `-` reads it from standard input. Every key is compiled for WebGPU's default
//! limits, so that the pack runs on every device. A key that cannot be compiled fails the whole pack.

use std::io::Read;
use std::process::ExitCode;

use ingle_kernels::compile::{KernelError, compile};
use ingle_kernels::{DeviceLimits, KernelKey, Pack, PackError};

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: ingle-kernel-pack KEYS.json|- PACK")]
    Usage,
    #[error("{path}: {source}")]
    File {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    Keys {
        path: String,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Pack(#[from] PackError),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(summary) => {
            eprintln!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("ingle-kernel-pack: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<String, Failure> {
    let [keys_path, pack_path] = arguments else {
        return Err(Failure::Usage);
    };
    let file = |path: &str, source| Failure::File {
        path: path.into(),
        source,
    };
    let mut bytes = Vec::new();
    match keys_path.as_str() {
        "-" => std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(|source| file(keys_path, source))?,
        path => std::fs::File::open(path)
            .and_then(|mut keys| keys.read_to_end(&mut bytes))
            .map_err(|source| file(path, source))?,
    };
    let keys: Vec<KernelKey> = serde_json::from_slice(&bytes).map_err(|source| Failure::Keys {
        path: keys_path.clone(),
        source,
    })?;
    let mut pack = Pack::default();
    for key in &keys {
        pack.insert(compile(key, &DeviceLimits::default())?);
    }
    let packed = pack.to_bytes()?;
    std::fs::write(pack_path, &packed).map_err(|source| file(pack_path, source))?;
    Ok(format!(
        "{pack_path}: {} kernels, {} bytes",
        pack.texts().count(),
        packed.len()
    ))
}
