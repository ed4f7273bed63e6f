//! Kernel packs: texts made at build time, looked up by [`KernelKey::id`].

use std::collections::BTreeMap;
use std::io::{self, Read};

use lzma_rust2::LzmaReader;
use serde::{Deserialize, Serialize};

use crate::{KernelKey, KernelText};

/// Changes whenever a kernel's bindings, parameters or step data change meaning.
const VERSION: u32 = 1;

/// Texts of kernels repeat each other over long distances, so the dictionary holds a whole pack of this size, in bytes.
#[cfg(feature = "compiler")]
const DICTIONARY: u32 = 16 << 20;

/// The most that reading a pack may take, in bytes: the texts, and the dictionary apart.
const MOST: u64 = 32 << 20;

/// A set of kernel texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    version: u32,
    texts: BTreeMap<String, KernelText>,
}

/// Why bytes are not a pack.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("kernel pack: {0}")]
    Compressed(#[from] io::Error),
    #[error("kernel pack: expected at most {MOST} bytes of texts")]
    Size,
    #[error("kernel pack: {0}")]
    Json(#[from] serde_json::Error),
    #[error("kernel pack: expected version {VERSION}, found {0}")]
    Version(u32),
    #[error("kernel pack: the text filed under `{filed}` says it is `{found}`")]
    Id { filed: String, found: String },
}

impl Default for Pack {
    fn default() -> Self {
        Pack {
            version: VERSION,
            texts: BTreeMap::new(),
        }
    }
}

impl Pack {
    /// Reads a pack as [`Pack::to_bytes`] writes it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PackError> {
        let reader = LzmaReader::new_mem_limit(bytes, (MOST >> 10) as u32, None)?;
        let mut json = Vec::new();
        reader.take(MOST + 1).read_to_end(&mut json)?;
        if json.len() as u64 > MOST {
            return Err(PackError::Size);
        }
        let pack: Pack = serde_json::from_slice(&json)?;
        if pack.version != VERSION {
            return Err(PackError::Version(pack.version));
        }
        for (id, text) in &pack.texts {
            if *id != text.id {
                return Err(PackError::Id {
                    filed: id.clone(),
                    found: text.id.clone(),
                });
            }
        }
        Ok(pack)
    }

    /// The pack as JSON in an LZMA stream: the same bytes for the same texts.
    #[cfg(feature = "compiler")]
    pub fn to_bytes(&self) -> Result<Vec<u8>, PackError> {
        let json = serde_json::to_vec(self)?;
        let mut options = lzma_rust2::LzmaOptions::with_preset(9);
        options.dict_size = (json.len() as u32).next_power_of_two().min(DICTIONARY);
        let size = Some(json.len() as u64);
        let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, size)?;
        io::Write::write_all(&mut writer, &json)?;
        Ok(writer.finish()?)
    }

    /// Adds a text, replacing one with the same id.
    pub fn insert(&mut self, text: KernelText) {
        self.texts.insert(text.id.clone(), text);
    }

    /// The text of a key, if it was generated.
    pub fn get(&self, key: &KernelKey) -> Option<&KernelText> {
        self.texts.get(&key.id())
    }

    /// The keys that have no text here.
    pub fn missing<'a>(&self, keys: impl IntoIterator<Item = &'a KernelKey>) -> Vec<&'a KernelKey> {
        keys.into_iter()
            .filter(|key| self.get(key).is_none())
            .collect()
    }

    /// All texts, by id.
    pub fn texts(&self) -> impl Iterator<Item = &KernelText> {
        self.texts.values()
    }
}

#[cfg(all(test, feature = "compiler"))]
mod tests {
    use super::*;
    use crate::RmsNormKey;

    #[test]
    fn packs_round_trip_and_check_their_ids() {
        let key = KernelKey::RmsNorm(RmsNormKey { threads: 64 });
        let text = KernelText {
            id: key.id(),
            wgsl: "fn main() {}".into(),
            entry: "main".into(),
            workgroup: [64, 1, 1],
            bindings: vec![],
            workgroup_bytes: 0,
            features: vec![],
        };
        let mut pack = Pack::default();
        assert_eq!(pack.missing([&key]), [&key]);
        pack.insert(text);
        let bytes = pack.to_bytes().unwrap();
        assert_eq!(Pack::from_bytes(&bytes).unwrap(), pack);
        let text = pack.texts.remove(&key.id()).unwrap();
        pack.texts.insert("rms_norm.t65".into(), text);
        let bytes = pack.to_bytes().unwrap();
        assert!(matches!(
            Pack::from_bytes(&bytes),
            Err(PackError::Id { .. })
        ));
        for len in 0..bytes.len() {
            assert!(Pack::from_bytes(&bytes[..len]).is_err(), "{len}");
        }
    }
}
