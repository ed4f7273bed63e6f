//! The GPU backend: a small device trait, its implementations, and the executor of GPU plans.
