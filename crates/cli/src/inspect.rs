//! `ingle inspect`: what a model's files say.

use std::io::Write;
use std::path::Path;

use ingle_chat::{ChatError, Files, Opened};
use ingle_formats::Parsed;
use ingle_formats::gguf::{self, Value};
use ingle_models::Place;
use serde::Serialize;
use serde_json::json;

use crate::args::{InspectArgs, Reader};
use crate::error::CliError;
use crate::files::{self, DiskFiles};

/// What is shown of a file.
#[derive(Serialize)]
struct Report {
    reader: &'static str,
    format: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<serde_json::Value>,
    metadata: Vec<(String, String)>,
    tensors: Vec<TensorRow>,
}

#[derive(Serialize)]
struct TensorRow {
    name: String,
    r#type: String,
    /// Outermost dimension first.
    shape: Vec<u64>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

/// The longest value that is shown whole.
const LONGEST: usize = 72;

pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let report = match (args.with, args.model.is_dir()) {
        (Reader::Ingle, true) => of_folder(&args.model)?,
        (Reader::Ingle, false) => of_gguf(&args.model)?,
        (Reader::GgufRs, false) => by_gguf_rs(&args.model)?,
        (Reader::GgufRs, true) => {
            let (expected, found) = ("a GGUF file".into(), "a folder".into());
            return Err(CliError::Model {
                path: args.model.clone(),
                expected,
                found,
            });
        }
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    Ok(print(&report, &mut out)?)
}

fn print(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{} (read with {})", report.format, report.reader)?;
    if let Some(config) = report.config.as_ref().and_then(|c| c.as_object()) {
        writeln!(out, "\nconfiguration")?;
        for (key, value) in config {
            writeln!(out, "  {key:<24} {value}")?;
        }
    }
    if !report.metadata.is_empty() {
        writeln!(out, "\nmetadata")?;
    }
    for (key, value) in &report.metadata {
        writeln!(out, "  {key:<48} {value}")?;
    }
    writeln!(out, "\ntensors")?;
    for t in &report.tensors {
        let shape = format!("{:?}", t.shape);
        writeln!(
            out,
            "  {:<48} {:<6} {shape:<16} {:>12} bytes",
            t.name, t.r#type, t.bytes
        )?;
    }
    let total: u64 = report.tensors.iter().map(|t| t.bytes).sum();
    writeln!(out, "  {} tensors, {total} bytes", report.tensors.len())
}

/// The configuration, if the model is one that runs; why not, if not. Looking into a file works either way.
fn config(opened: Result<Opened, CliError>) -> Option<serde_json::Value> {
    match opened {
        Err(error) => Some(json!({ "cannot run": error.to_string() })),
        Ok(Opened {
            model,
            tokenizer,
            template,
        }) => {
            let c = model.config;
            Some(json!({
                "architecture": c.architecture,
                "layers": c.layers,
                "width": c.width,
                "heads": c.heads,
                "kv_heads": c.kv_heads,
                "head_dim": c.head_dim,
                "feed_forward": c.feed_forward,
                "vocabulary": c.vocabulary,
                "context": c.context,
                "norm_eps": c.norm_eps,
                "rope": format!("{:?}", c.rope),
                "biases": format!("{:?}", c.biases),
                "tied": c.tied,
                "tokens": tokenizer.vocabulary_size(),
                "ends_answers": tokenizer.end_of_generation(),
                "chat_template": template.is_some(),
            }))
        }
    }
}

fn of_gguf(path: &Path) -> Result<Report, CliError> {
    let mut files = DiskFiles::open(vec![path.to_owned()])?;
    let size = files.size(0);
    let mut wanted = size.min(256 << 10);
    let manifest = loop {
        let prefix = pollster::block_on(files.read(0, 0..wanted)).map_err(ChatError::from)?;
        match gguf::parse(&prefix, size).map_err(ChatError::from)? {
            Parsed::Done(manifest) => break manifest,
            Parsed::NeedMore { at_least } => wanted = at_least.clamp(wanted, size),
        }
    };
    let shown = |value: Value<'_>| match value {
        Value::String(text) => short(text),
        Value::Array(array) => {
            let first: Vec<String> = array
                .iter()
                .take(4)
                .map(|v| short(&v.to_string()))
                .collect();
            short(&format!("{array:?} {}…", first.join(", ")))
        }
        other => other.to_string(),
    };
    let row = |t: &ingle_formats::TensorInfo| TensorRow {
        name: t.name.clone(),
        r#type: t.ty.name().into(),
        shape: t.shape.clone(),
        bytes: t.byte_count(),
        offset: Some(t.range.start),
    };
    Ok(Report {
        reader: "ingle",
        format: format!(
            "GGUF version {}, {:?}-endian, aligned to {}",
            manifest.version, manifest.endian, manifest.alignment
        ),
        config: config(files::open(path).map(|o| o.1)),
        metadata: manifest
            .metadata
            .iter()
            .map(|(key, value)| (key.to_owned(), shown(value)))
            .collect(),
        tensors: manifest.tensors.iter().map(row).collect(),
    })
}

fn of_folder(path: &Path) -> Result<Report, CliError> {
    let (files, opened) = files::open(path)?;
    let row = |(name, source): (&str, &ingle_models::Source)| TensorRow {
        name: name.to_owned(),
        r#type: source.ty.name().into(),
        shape: source.shape.clone(),
        bytes: source.byte_count(),
        offset: match &source.place {
            Place::File { range, .. } => Some(range.start),
            Place::Bytes(_) => None,
        },
    };
    Ok(Report {
        reader: "ingle",
        format: format!("Hugging Face folder, {} safetensors files", files.len()),
        tensors: opened.model.sources.iter().map(row).collect(),
        config: config(Ok(opened)),
        metadata: vec![],
    })
}

fn by_gguf_rs(path: &Path) -> Result<Report, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::GgufRs(e.to_string());
    let name = path
        .to_str()
        .ok_or_else(|| CliError::GgufRs("a path that is not UTF-8".into()))?;
    let mut container = gguf_rs::get_gguf_container(name).map_err(|e| failed(&e))?;
    let model = container.decode().map_err(|e| failed(&e))?;
    let row = |t: &gguf_rs::Tensor| TensorRow {
        name: t.name.clone(),
        r#type: ingle_quant::GgmlType::from_id(t.kind)
            .map_or_else(|_| t.kind.to_string(), |ty| ty.name().into()),
        // gguf-rs has the innermost dimension first.
        shape: t.shape.iter().rev().copied().collect(),
        bytes: t.size,
        offset: Some(model.data_offset() + t.offset),
    };
    Ok(Report {
        reader: "gguf-rs",
        format: format!("GGUF version {}", model.get_version()),
        config: None,
        metadata: model
            .metadata()
            .iter()
            .map(|(key, value)| (key.clone(), short(&value.to_string())))
            .collect(),
        tensors: model.tensors().iter().map(row).collect(),
    })
}

fn short(text: &str) -> String {
    let text = text.replace('\n', "\\n");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
