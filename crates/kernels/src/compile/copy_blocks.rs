//! `kv[to] = kv[from]` for each pair of blocks, one workgroup per pair. No block may be both read and written.

use cubecl::prelude::*;

use super::builder::Builder;
use super::common::word;
use super::{KernelError, require_threads};
use crate::params::copy_blocks as p;
use crate::{CopyBlocksKey, DeviceLimits, KernelText};

pub fn build(
    id: String,
    key: &CopyBlocksKey,
    limits: &DeviceLimits,
) -> Result<KernelText, KernelError> {
    let threads = u32::from(key.threads);
    require_threads(&id, threads, 1, limits)?;
    let mut builder = Builder::new(id, "copy_blocks", threads);
    let mut kv = builder.buffer::<u32>("kv");
    let pairs = builder.buffer::<u32>("pairs");
    let params = builder.buffer::<u32>("params");
    copy_blocks::expand(builder.scope(), &mut kv, &pairs, &params, threads);
    builder.finish(limits)
}

#[cube]
fn copy_blocks(
    kv: &mut [u32], // [blocks, block_words]
    pairs: &[u32],  // [pairs, 2]
    params: &[u32],
    #[comptime] threads: u32,
) {
    let words = word(params, p::block_words);
    let from = pairs[(CUBE_POS_X * 2u32) as usize] * words;
    let to = pairs[(CUBE_POS_X * 2u32 + 1u32) as usize] * words;
    for i in range_stepped(UNIT_POS_X, words, threads) {
        kv[(to + i) as usize] = kv[(from + i) as usize];
    }
}
