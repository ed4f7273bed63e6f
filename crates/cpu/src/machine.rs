//! `Machine`: the instruction set and the threads that kernels run with.

use crate::isa::Level;
use crate::{CpuError, Pool};

/// What kernels run on. Every kernel takes one.
pub struct Machine {
    level: Level,
    pool: Pool,
}

impl Machine {
    /// The CPU's best instruction set and `threads` threads.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with_level(Level::detect(), threads)
    }

    /// A given instruction set, e.g. the scalar reference.
    pub fn with_level(level: Level, threads: usize) -> Result<Self, CpuError> {
        if !level.is_available() {
            return Err(CpuError::Level {
                level: level.name(),
                lanes: level.tile_rows(),
            });
        }
        Ok(Machine {
            level,
            pool: Pool::new(threads)?,
        })
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }
}
