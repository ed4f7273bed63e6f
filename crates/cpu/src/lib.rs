//! The CPU backend: SIMD kernels over one ISA trait, and the executor of CPU plans.
