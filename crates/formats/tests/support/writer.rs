//! A writer of GGUF that also writes what must be refused.

use ingle_formats::gguf::Endian;

/// Collects the pairs and tensors of a header. Sizes are given by the caller, so that they can lie.
#[derive(Clone)]
pub struct Writer {
    pub version: u32,
    pub endian: Endian,
    pairs: Vec<u8>,
    pub pair_count: u64,
    tensors: Vec<u8>,
    pub tensor_count: u64,
    pub alignment: u64,
}

impl Writer {
    pub fn new(version: u32, endian: Endian) -> Self {
        Writer {
            version,
            endian,
            pairs: Vec::new(),
            pair_count: 0,
            tensors: Vec::new(),
            tensor_count: 0,
            alignment: 32,
        }
    }

    pub fn v3() -> Self {
        Writer::new(3, Endian::Little)
    }

    /// The bytes of a number in the file's order, from its little-endian ones.
    pub fn number<const N: usize>(&self, mut little: [u8; N]) -> Vec<u8> {
        if self.endian == Endian::Big {
            little.reverse();
        }
        little.to_vec()
    }

    pub fn u32_bytes(&self, value: u32) -> Vec<u8> {
        self.number(value.to_le_bytes())
    }

    pub fn u64_bytes(&self, value: u64) -> Vec<u8> {
        self.number(value.to_le_bytes())
    }

    pub fn size(&self, value: u64) -> Vec<u8> {
        match self.version {
            1 => self.u32_bytes(u32::try_from(value).expect("a size of version 1")),
            _ => self.u64_bytes(value),
        }
    }

    pub fn string(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        let bytes = bytes.as_ref();
        [self.size(bytes.len() as u64), bytes.to_vec()].concat()
    }

    /// A pair of a key, the id of a type, and the bytes of a value.
    pub fn raw(mut self, key: impl AsRef<[u8]>, ty: u32, value: &[u8]) -> Self {
        let pair = [self.string(key), self.u32_bytes(ty), value.to_vec()].concat();
        self.pairs.extend(pair);
        self.pair_count += 1;
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        let bytes = self.u32_bytes(value);
        self.raw(key, 4, &bytes)
    }

    pub fn str(self, key: &str, value: impl AsRef<[u8]>) -> Self {
        let bytes = self.string(value);
        self.raw(key, 8, &bytes)
    }

    /// An array of the given type whose elements are already bytes.
    pub fn array(self, key: &str, ty: u32, elements: &[Vec<u8>]) -> Self {
        let count = elements.len() as u64;
        self.array_of(key, ty, count, &elements.concat())
    }

    pub fn array_of(self, key: &str, ty: u32, count: u64, bytes: &[u8]) -> Self {
        let value = [self.u32_bytes(ty), self.size(count), bytes.to_vec()].concat();
        self.raw(key, 9, &value)
    }

    pub fn strings(self, key: &str, values: &[&str]) -> Self {
        let elements: Vec<_> = values.iter().map(|value| self.string(value)).collect();
        self.array(key, 8, &elements)
    }

    pub fn tensor(mut self, name: impl AsRef<[u8]>, ne: &[u64], ty: u32, offset: u64) -> Self {
        let mut record = [self.string(name), self.u32_bytes(ne.len() as u32)].concat();
        for &n in ne {
            record.extend(self.size(n));
        }
        record.extend(self.u32_bytes(ty));
        record.extend(self.u64_bytes(offset));
        self.tensors.extend(record);
        self.tensor_count += 1;
        self
    }

    /// The header without padding.
    pub fn header(&self) -> Vec<u8> {
        [
            b"GGUF".to_vec(),
            self.u32_bytes(self.version),
            self.size(self.tensor_count),
            self.size(self.pair_count),
            self.pairs.clone(),
            self.tensors.clone(),
        ]
        .concat()
    }

    /// The header, padding, and `data` bytes of tensors.
    pub fn file(&self, data: usize) -> Vec<u8> {
        let mut bytes = self.header();
        let start = bytes.len().next_multiple_of(self.alignment as usize);
        bytes.resize(start + data, 0);
        bytes
    }
}
