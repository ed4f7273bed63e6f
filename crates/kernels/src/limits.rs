//! What a device allows a kernel.

use serde::{Deserialize, Serialize};

/// The limits that decide whether a kernel can exist on a device. The default is WebGPU's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceLimits {
    pub max_storage_buffers_per_shader_stage: u32,
    /// Bytes of workgroup memory.
    pub max_compute_workgroup_storage_size: u32,
    pub max_compute_invocations_per_workgroup: u32,
    pub max_compute_workgroups_per_dimension: u32,
}

impl Default for DeviceLimits {
    fn default() -> Self {
        DeviceLimits {
            max_storage_buffers_per_shader_stage: 8,
            max_compute_workgroup_storage_size: 16 * 1024,
            max_compute_invocations_per_workgroup: 256,
            max_compute_workgroups_per_dimension: 65_535,
        }
    }
}

impl DeviceLimits {
    /// A grid of at least `workgroups` along x and y: 1-D while it fits, else as square as it needs to be. Kernels
    /// compute their place as `x + y · width` and ignore what lies beyond their work.
    pub fn grid(&self, workgroups: u32) -> [u32; 2] {
        let limit = self.max_compute_workgroups_per_dimension.max(1);
        if workgroups <= limit {
            return [workgroups, 1];
        }
        let height = workgroups.div_ceil(limit);
        [workgroups.div_ceil(height), height]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_go_two_dimensional_past_the_limit() {
        let limits = DeviceLimits::default();
        assert_eq!(limits.grid(65_535), [65_535, 1]);
        let [x, y] = limits.grid(262_144);
        assert!(x <= 65_535 && y <= 65_535 && x * y >= 262_144 && x * y < 262_144 + y);
    }
}
