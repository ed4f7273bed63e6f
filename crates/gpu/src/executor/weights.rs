//! Weights on the device: one buffer each, or several shards of rows where a buffer or binding would be too large.
//!
//! What the loader writes is in terms of the whole weight ([`super::sharding`] says where each part goes). Devices take
//! whole words, so bytes of a word whose other bytes have not come yet wait here.

use std::collections::BTreeMap;

use ingle_graph::backend::BackendError;
use ingle_graph::plan::{self, Buffer, Plan};

use super::launch;
use super::sharding::{Shard, Sharding, shard};
use crate::device::{Device, Usage};

/// Bytes that may wait in the device's queue before it is told to get on.
const FLUSH_BYTES: u64 = 32 << 20;

/// The bytes of a word, and which of them have come.
type PartialWord = ([u8; 4], [bool; 4]);

/// All weights.
pub(super) struct Weights<D: Device> {
    shardings: Vec<Sharding>,
    buffers: Vec<Vec<D::Buffer>>,
    /// Incomplete words, by weight, shard and word.
    partial: BTreeMap<(usize, usize, u64), PartialWord>,
    /// The bytes of weights that the host needs: factors of rotations.
    kept: BTreeMap<u32, Vec<u8>>,
    unflushed: u64,
}

impl<D: Device> Weights<D> {
    /// Makes the buffers.
    pub fn new(device: &D, plan: &Plan) -> Result<Self, BackendError> {
        let accumulators = accumulators(plan)?;
        let limits = device.limits();
        let mut weights = Weights {
            shardings: Vec::with_capacity(plan.weights.len()),
            buffers: Vec::with_capacity(plan.weights.len()),
            partial: BTreeMap::new(),
            kept: BTreeMap::new(),
            unflushed: 0,
        };
        for (weight, accumulators) in plan.weights.iter().zip(accumulators) {
            let sharding = shard(weight, accumulators, &limits)?;
            let create = |s: &Shard| device.create_buffer(&weight.name, s.bytes, Usage::Storage);
            weights
                .buffers
                .push(sharding.shards.iter().map(create).collect());
            weights.shardings.push(sharding);
        }
        for launch in launches(plan) {
            if let Some((_, Some(w))) = launch::rotation(
                &plan.kernels[launch.kernel as usize].spec,
                &launch.arguments,
            ) {
                weights
                    .kept
                    .insert(w, vec![0; plan.weights[w as usize].bytes as usize]);
            }
        }
        Ok(weights)
    }

    pub fn shards(&self, weight: u32) -> &[Shard] {
        &self.shardings[weight as usize].shards
    }

    pub fn buffer(&self, weight: u32, shard: usize) -> (&D::Buffer, u64) {
        let (weight, shards) = (weight as usize, &self.shardings[weight as usize].shards);
        (&self.buffers[weight][shard], shards[shard].bytes)
    }

    /// The bytes of a weight that the host keeps.
    pub fn kept(&self, weight: u32) -> Option<&[u8]> {
        self.kept.get(&weight).map(Vec::as_slice)
    }

    /// Writes bytes of the whole weight's layout.
    pub fn write(
        &mut self,
        device: &D,
        plan: &Plan,
        weight: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let Some(sharding) = self.shardings.get(weight) else {
            let (expected, found) = (
                format!("below {}", self.shardings.len()),
                weight.to_string(),
            );
            return Err(BackendError::Input {
                field: "weight".into(),
                expected,
                found,
            });
        };
        let range = offset..offset.saturating_add(bytes.len() as u64);
        if range.end > sharding.bytes {
            return Err(BackendError::Input {
                field: plan.weights[weight].name.clone(),
                expected: format!("bytes within 0..{}", sharding.bytes),
                found: format!("{range:?}"),
            });
        }
        if let Some(kept) = self.kept.get_mut(&(weight as u32)) {
            kept[range.start as usize..range.end as usize].copy_from_slice(bytes);
        }
        let first = sharding
            .segments
            .partition_point(|s| s.source.end <= range.start);
        for i in first..sharding.segments.len() {
            let s = &self.shardings[weight].segments[i];
            if s.source.start >= range.end {
                break;
            }
            let (start, end) = (s.source.start.max(range.start), s.source.end.min(range.end));
            let (shard, to) = (s.shard, s.to + (start - s.source.start));
            let part = &bytes[(start - offset) as usize..(end - offset) as usize];
            self.write_part(device, weight, shard, to, part);
        }
        self.unflushed += bytes.len() as u64;
        if self.unflushed >= FLUSH_BYTES {
            device.flush();
            self.unflushed = 0;
        }
        Ok(())
    }

    /// Writes the words that are still incomplete; what is missing of them is zero.
    pub fn finish(&mut self, device: &D) {
        for ((weight, shard, word), (bytes, _)) in std::mem::take(&mut self.partial) {
            device.write_buffer(&self.buffers[weight][shard], word * 4, &bytes);
        }
    }

    pub fn destroy(&self, device: &D) {
        self.buffers
            .iter()
            .flatten()
            .for_each(|b| device.destroy_buffer(b));
    }

    fn write_part(&mut self, device: &D, weight: usize, shard: usize, to: u64, bytes: &[u8]) {
        let head = (to.wrapping_neg() % 4).min(bytes.len() as u64) as usize;
        let tail = head + (bytes.len() - head) / 4 * 4;
        self.write_bytes(device, weight, shard, to, &bytes[..head]);
        if head < tail {
            device.write_buffer(
                &self.buffers[weight][shard],
                to + head as u64,
                &bytes[head..tail],
            );
        }
        self.write_bytes(device, weight, shard, to + tail as u64, &bytes[tail..]);
    }

    /// Writes fewer than four bytes, all in one word.
    fn write_bytes(&mut self, device: &D, weight: usize, shard: usize, to: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let key = (weight, shard, to / 4);
        let (word, known) = self.partial.entry(key).or_default();
        for (i, &byte) in (to as usize % 4..).zip(bytes) {
            (word[i], known[i]) = (byte, true);
        }
        if *known == [true; 4] {
            device.write_buffer(&self.buffers[weight][shard], key.2 * 4, word);
            self.partial.remove(&key);
        }
    }
}

/// All launches of a plan.
pub(super) fn launches(plan: &Plan) -> impl Iterator<Item = &plan::Launch> {
    plan.entries
        .iter()
        .flat_map(|e| &e.variants)
        .flat_map(|v| &v.launches)
}

/// For each weight, how many accumulators the launches that read it have.
fn accumulators(plan: &Plan) -> Result<Vec<u32>, BackendError> {
    let mut found: Vec<Option<u32>> = vec![None; plan.weights.len()];
    for launch in launches(plan) {
        let spec = &plan.kernels[launch.kernel as usize].spec;
        for buffer in &launch.arguments {
            let &Buffer::Weight(w) = buffer else { continue };
            let vector = plan.weights[w as usize].k == 1;
            let count = if vector {
                1
            } else {
                launch::accumulators(spec)
            };
            match found[w as usize].replace(count) {
                Some(other) if other != count => {
                    return Err(BackendError::Kernel {
                        name: plan.weights[w as usize].name.clone(),
                        reason: format!("read with {other} and with {count} accumulators"),
                    });
                }
                _ => {}
            }
        }
    }
    Ok(found.into_iter().map(|n| n.unwrap_or(1)).collect())
}
