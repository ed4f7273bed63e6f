//! `model.safetensors.index.json`: which file of a folder holds which tensor.
//!
//! ```text
//! { "metadata": {…}, "weight_map": { tensor: file, … } }
//! ```
//!
//! A file's name is joined to the folder's address by whoever fetches it, so that it must not lead out of the folder
//! or change the address: letters, digits, `.`, `_` and `-` only, and `.safetensors` at the end.

use crate::FormatError;
use crate::budget::Budget;
use crate::error::shown;
use crate::json::{self, Text};

/// Different files that an index may name. The biggest open models have some 200.
const MAX_SHARDS: usize = 4096;

/// The longest name of a file on common file systems.
const MAX_NAME: usize = 255;

/// Which file holds which tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Names of the files, sorted.
    shards: Vec<Box<str>>,
    /// Sorted by the name of the tensor.
    tensors: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    tensor: Box<str>,
    /// An index into the files.
    shard: u32,
}

impl Index {
    /// The names of all files, sorted.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shards.iter().map(|name| &**name)
    }

    /// The name of the file that holds `tensor`.
    pub fn shard_of(&self, tensor: &str) -> Option<&str> {
        let found = self
            .tensors
            .binary_search_by(|entry| (*entry.tensor).cmp(tensor))
            .ok()?;
        Some(self.shard(&self.tensors[found]))
    }

    /// All tensors with the names of their files, sorted by tensor.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.tensors
            .iter()
            .map(|entry| (&*entry.tensor, self.shard(entry)))
    }

    fn shard(&self, entry: &Entry) -> &str {
        &self.shards[entry.shard as usize]
    }
}

/// Reads a whole index.
///
/// # Errors
///
/// JSON that is malformed or of another form, a tensor that comes twice, and names of files that are not plain.
pub fn parse(bytes: &[u8]) -> Result<Index, FormatError> {
    let text = json::check("index", bytes)?;
    let weight_map = find_weight_map(text)?;

    let mut shards: Vec<Box<str>> = Vec::new();
    let (mut count, mut name_bytes) = (0, 0);
    for_each_weight(weight_map, |tensor, shard| {
        count += 1;
        name_bytes += tensor.len();
        check_shard_name(tensor, shard)?;
        if let Err(place) = shards.binary_search_by(|known| (**known).cmp(shard)) {
            if shards.len() == MAX_SHARDS {
                return Err(FormatError::TooManyShards { limit: MAX_SHARDS });
            }
            shards.insert(place, shard.into());
        }
        Ok(())
    })?;
    let mut budget = Budget::new(bytes.len());
    let shard_bytes = shards.iter().map(|name| name.len()).sum();
    budget.take("names of files", shard_bytes, 1)?;
    budget.take("table of files", shards.capacity(), size_of::<Box<str>>())?;
    budget.take("names of tensors", name_bytes, 1)?;
    budget.take("table of tensors", count, size_of::<Entry>())?;
    let tensors = read_entries(weight_map, count, &shards)?;
    Ok(Index { shards, tensors })
}

/// The text of `weight_map`.
fn find_weight_map(text: &str) -> Result<&str, FormatError> {
    let mut weight_map = None;
    json::read_object("index", text, |key, value| {
        if key == "weight_map" && weight_map.replace(value).is_some() {
            return Err(FormatError::DuplicateKey { key: shown(key) });
        }
        Ok(())
    })?;
    weight_map.ok_or_else(|| FormatError::MissingKey {
        key: "weight_map".to_owned(),
    })
}

/// Gives each tensor and the name of its file to `sink`.
fn for_each_weight(
    weight_map: &str,
    mut sink: impl FnMut(&str, &str) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    json::read_object("weight_map", weight_map, |tensor, file| {
        let Text(file) = json::read_short(tensor, file)?;
        sink(tensor, &file)
    })
}

/// Builds the table of `count` tensors whose files are all among `shards`.
fn read_entries(
    weight_map: &str,
    count: usize,
    shards: &[Box<str>],
) -> Result<Vec<Entry>, FormatError> {
    let mut tensors = Vec::with_capacity(count);
    for_each_weight(weight_map, |tensor, file| {
        if let Ok(shard) = shards.binary_search_by(|known| (**known).cmp(file)) {
            tensors.push(Entry {
                tensor: tensor.into(),
                shard: shard as u32,
            });
        }
        Ok(())
    })?;
    tensors.sort_unstable_by(|a, b| a.tensor.cmp(&b.tensor));
    for pair in tensors.windows(2) {
        if pair[0].tensor == pair[1].tensor {
            return Err(FormatError::DuplicateTensor {
                name: shown(&pair[0].tensor),
            });
        }
    }
    Ok(tensors)
}

fn check_shard_name(tensor: &str, file: &str) -> Result<(), FormatError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let why = if file.len() > MAX_NAME {
        "longer than 255 bytes"
    } else if !file.chars().all(plain) {
        "other characters than letters, digits, '.', '_' and '-'"
    } else if file.starts_with('.') {
        "begins with '.'"
    } else if !file.ends_with(".safetensors") {
        "another ending"
    } else {
        return Ok(());
    };
    Err(FormatError::ShardName {
        name: shown(tensor),
        found: shown(file),
        why,
    })
}
