//! `BlockPool`: which KV blocks are in use, and by how many sequences.

/// Blocks by number, with counts. Block `b` holds positions `32·i … 32·i+31` of whatever sequences list it at place `i`.
#[derive(Debug)]
pub(crate) struct BlockPool {
    /// How many sequences use each block.
    references: Vec<u32>,
    free: Vec<u32>,
    /// How many blocks are added at a time.
    growth: usize,
    /// The most blocks there may be.
    limit: usize,
}

impl BlockPool {
    pub fn new(growth: usize, limit: usize) -> Self {
        BlockPool {
            references: Vec::new(),
            free: Vec::new(),
            growth: growth.max(1),
            limit,
        }
    }

    /// Blocks that exist.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many blocks the pool must have so that `count` can be taken, in whole steps of growth; `None` above the limit.
    pub fn len_to_take(&self, count: usize) -> Option<usize> {
        let missing = count.saturating_sub(self.free.len());
        let needed = self.len() + missing;
        if missing == 0 {
            return Some(self.len());
        }
        (needed <= self.limit).then(|| needed.next_multiple_of(self.growth).min(self.limit))
    }

    /// Adds blocks up to `len`. The backend's pool must have them.
    pub fn grow(&mut self, len: usize) {
        // The lowest numbers are taken first, which keeps a short conversation in few pages.
        self.free
            .splice(0..0, (self.len() as u32..len as u32).rev());
        self.references.resize(len, 0);
    }

    /// Takes a free block. The caller has grown the pool far enough.
    pub fn take(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.references[block as usize] = 1;
        Some(block)
    }

    pub fn share(&mut self, block: u32) {
        self.references[block as usize] += 1;
    }

    pub fn is_shared(&self, block: u32) -> bool {
        self.references[block as usize] > 1
    }

    pub fn release(&mut self, block: u32) {
        let count = &mut self.references[block as usize];
        *count -= 1;
        if *count == 0 {
            self.free.push(block);
        }
    }

    /// Blocks that some sequence uses.
    pub fn in_use(&self) -> usize {
        self.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_steps_up_to_the_limit() {
        let mut pool = BlockPool::new(4, 10);
        assert_eq!(pool.len_to_take(1), Some(4));
        pool.grow(4);
        assert_eq!(
            (0..4).map(|_| pool.take()).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!(pool.take(), None);
        assert_eq!(pool.len_to_take(5), Some(10));
        assert_eq!(pool.len_to_take(7), None);
    }

    #[test]
    fn a_shared_block_is_free_when_both_let_go() {
        let mut pool = BlockPool::new(1, 1);
        pool.grow(1);
        let block = pool.take().unwrap();
        pool.share(block);
        assert!(pool.is_shared(block));
        pool.release(block);
        assert_eq!(pool.in_use(), 1);
        pool.release(block);
        assert_eq!((pool.in_use(), pool.take()), (0, Some(block)));
    }
}
