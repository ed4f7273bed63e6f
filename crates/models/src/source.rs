//! `Sources`: where the tensors that recipes name lie.

use std::collections::BTreeMap;
use std::ops::Range;

use ingle_formats::TensorInfo;
use ingle_quant::GgmlType;

use crate::ModelError;

/// One tensor of the model's files.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub ty: GgmlType,
    /// Outermost dimension first: a matrix is `[rows, k]`.
    pub shape: Vec<u64>,
    pub place: Place,
}

impl Source {
    /// Bytes of the tensor.
    pub fn byte_count(&self) -> u64 {
        match &self.place {
            Place::File { range, .. } => range.end - range.start,
            Place::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// Where a tensor's bytes are.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In file number `file`, at these bytes.
    File { file: usize, range: Range<u64> },
    /// Computed from the configuration.
    Bytes(Vec<u8>),
}

/// The tensors by name, in the files' own names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources(BTreeMap<String, Source>);

impl Sources {
    pub fn get(&self, name: &str) -> Option<&Source> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.0.iter().map(|(name, source)| (name.as_str(), source))
    }

    /// Adds a tensor, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, source: Source) {
        self.0.insert(name.into(), source);
    }

    pub(crate) fn require(&self, name: &str) -> Result<&Source, ModelError> {
        self.get(name)
            .ok_or_else(|| ModelError::tensor(name, "to be in the file", "nothing"))
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Adds a tensor that was computed.
    pub(crate) fn computed(&mut self, name: &str, values: &[f32]) {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let shape = vec![values.len() as u64];
        self.0.insert(
            name.to_owned(),
            Source {
                ty: GgmlType::F32,
                shape,
                place: Place::Bytes(bytes),
            },
        );
    }

    /// Adds the tensors of file number `file`. A name in two files is an error.
    pub(crate) fn add_file(
        &mut self,
        file: usize,
        tensors: &[TensorInfo],
    ) -> Result<(), ModelError> {
        for tensor in tensors {
            let place = Place::File {
                file,
                range: tensor.range.clone(),
            };
            let source = Source {
                ty: tensor.ty,
                shape: tensor.shape.clone(),
                place,
            };
            if self.0.insert(tensor.name.clone(), source).is_some() {
                return Err(ModelError::tensor(
                    &tensor.name,
                    "to be in one file",
                    "it in two",
                ));
            }
        }
        Ok(())
    }
}
