//! A Hugging Face folder: `config.json`, safetensors files, `tokenizer.json` and what lies beside it.

use std::path::{Path, PathBuf};

use ingle_chat::{ChatError, Files, Opened};
use ingle_formats::{Parsed, index, safetensors};
use ingle_models::Model;
use ingle_text::{ChatTemplate, TemplateTokens, TextError, Tokenizer, TokenizerConfig};

use crate::error::CliError;
use crate::files::DiskFiles;

/// The largest of the JSON files that are read whole.
const MAX_JSON: u64 = 256 << 20;

/// Bytes of a header that are asked for first.
const FIRST_READ: u64 = 64 << 10;

pub fn open(folder: &Path) -> Result<(DiskFiles, Opened), CliError> {
    let config = required(folder, "config.json")?;
    let mut files = DiskFiles::open(shards(folder)?)?;
    let mut manifests = Vec::new();
    for file in 0..files.len() {
        manifests.push(header(&mut files, file)?);
    }
    let model = Model::from_hf(&config, &manifests).map_err(ChatError::from)?;
    let (tokenizer, template) = text(folder)?;
    Ok((
        files,
        Opened {
            model,
            tokenizer,
            template,
        },
    ))
}

/// The paths of all safetensors files that the index names, or of the only one.
fn shards(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    match optional(folder, "model.safetensors.index.json")? {
        Some(bytes) => {
            let index = index::parse(&bytes).map_err(ChatError::from)?;
            Ok(index.shards().map(|name| folder.join(name)).collect())
        }
        None => Ok(vec![folder.join("model.safetensors")]),
    }
}

fn header(files: &mut DiskFiles, file: usize) -> Result<safetensors::Manifest, CliError> {
    let size = files.size(file);
    let mut wanted = FIRST_READ.min(size);
    loop {
        let prefix = pollster::block_on(files.read(file, 0..wanted)).map_err(ChatError::from)?;
        match safetensors::parse(&prefix, size).map_err(ChatError::from)? {
            Parsed::Done(manifest) => return Ok(manifest),
            Parsed::NeedMore { at_least } => wanted = at_least.clamp(wanted, size),
        }
    }
}

fn text(folder: &Path) -> Result<(Tokenizer, Option<ChatTemplate>), CliError> {
    let file = required(folder, "tokenizer.json")?;
    let config = match optional(folder, "tokenizer_config.json")? {
        Some(bytes) => Some(TokenizerConfig::parse(&bytes).map_err(ChatError::from)?),
        None => None,
    };
    let mut tokenizer = Tokenizer::from_json(&file, config.as_ref()).map_err(ChatError::from)?;
    let ends = end_tokens(folder)?;
    tokenizer
        .add_end_of_generation(&ends)
        .map_err(ChatError::from)?;
    let source = template_source(folder, config.as_ref())?;
    let compile = |source: String| ChatTemplate::new(&source, TemplateTokens::of(&tokenizer));
    let template = source.map(compile).transpose().map_err(ChatError::from)?;
    Ok((tokenizer, template))
}

/// The template: a file of its own in newer folders, else a field of the tokenizer's configuration.
fn template_source(
    folder: &Path,
    config: Option<&TokenizerConfig>,
) -> Result<Option<String>, CliError> {
    if let Some(bytes) = optional(folder, "chat_template.jinja")? {
        let text = String::from_utf8(bytes)
            .map_err(|e| wrong(folder, "chat_template.jinja", "UTF-8", e))?;
        return Ok(Some(text));
    }
    match config.map(|c| c.chat_template("default")) {
        None | Some(Err(TextError::NoTemplate)) => Ok(None),
        Some(Ok(source)) => Ok(Some(source.to_owned())),
        Some(Err(error)) => Err(ChatError::from(error).into()),
    }
}

/// The tokens that `generation_config.json` ends an answer at: one id or a list.
fn end_tokens(folder: &Path) -> Result<Vec<u32>, CliError> {
    const NAME: &str = "generation_config.json";
    let Some(bytes) = optional(folder, NAME)? else {
        return Ok(vec![]);
    };
    let json: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|source| CliError::Json {
            path: folder.join(NAME),
            source,
        })?;
    let id = |value: &serde_json::Value| {
        let id = value.as_u64().and_then(|n| u32::try_from(n).ok());
        id.ok_or_else(|| wrong(folder, NAME, "ids in eos_token_id", value))
    };
    match &json["eos_token_id"] {
        serde_json::Value::Null => Ok(vec![]),
        serde_json::Value::Array(all) => all.iter().map(id).collect(),
        one => Ok(vec![id(one)?]),
    }
}

fn required(folder: &Path, name: &str) -> Result<Vec<u8>, CliError> {
    optional(folder, name)?.ok_or_else(|| CliError::Model {
        path: folder.to_owned(),
        expected: format!("a GGUF file, or a folder with {name}"),
        found: "a folder without it".into(),
    })
}

/// A whole file, if it is there.
fn optional(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, CliError> {
    let path = folder.join(name);
    match std::fs::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(CliError::file(&path, e)),
        Ok(found) if found.len() > MAX_JSON => Err(wrong(
            folder,
            name,
            &format!("at most {MAX_JSON} bytes"),
            found.len(),
        )),
        Ok(_) => std::fs::read(&path)
            .map(Some)
            .map_err(|e| CliError::file(&path, e)),
    }
}

fn wrong(folder: &Path, name: &str, expected: &str, found: impl ToString) -> CliError {
    CliError::Model {
        path: folder.join(name),
        expected: expected.into(),
        found: found.to_string(),
    }
}
