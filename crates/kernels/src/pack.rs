//! Kernel packs: texts made at build time, looked up by [`KernelKey::id`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{KernelKey, KernelText};

/// Changes whenever a kernel's bindings, parameters or step data change meaning.
const VERSION: u32 = 1;

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
    /// Reads a pack as [`Pack::to_json`] writes it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, PackError> {
        let pack: Pack = serde_json::from_slice(bytes)?;
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

    /// The pack as JSON, the same bytes for the same texts.
    pub fn to_json(&self) -> Result<Vec<u8>, PackError> {
        Ok(serde_json::to_vec(self)?)
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

#[cfg(test)]
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
        let bytes = pack.to_json().unwrap();
        assert_eq!(Pack::from_json(&bytes).unwrap(), pack);
        let renamed = String::from_utf8(bytes)
            .unwrap()
            .replacen("rms_norm.t64", "rms_norm.t65", 1);
        assert!(matches!(
            Pack::from_json(renamed.as_bytes()),
            Err(PackError::Id { .. })
        ));
    }
}
