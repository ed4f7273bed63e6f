//! GraphTensor (what to compute) and Plan (how to compute it on one target).
