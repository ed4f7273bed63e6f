//! GPU kernels as CubeCL functions, the kernel pack and the kernel compiler.
