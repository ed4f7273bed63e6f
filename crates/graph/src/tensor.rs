//! Dense values for the reference interpreter and the tests.

use serde::{Deserialize, Serialize};

/// A dense value. Half-precision values are held as the `f32` they round to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Data,
}

/// The elements of a [`Tensor`], row-major.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Data {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Tensor {
    /// Panics if the shape and the number of elements differ: both are the caller's own.
    pub fn f32(shape: &[usize], data: Vec<f32>) -> Self {
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "shape {shape:?}"
        );
        Tensor {
            shape: shape.to_vec(),
            data: Data::F32(data),
        }
    }

    /// Panics if the shape and the number of elements differ: both are the caller's own.
    pub fn i32(shape: &[usize], data: Vec<i32>) -> Self {
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "shape {shape:?}"
        );
        Tensor {
            shape: shape.to_vec(),
            data: Data::I32(data),
        }
    }

    pub fn len(&self) -> usize {
        match &self.data {
            Data::F32(d) => d.len(),
            Data::I32(d) => d.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as `f32`. Panics on integers: shape inference has checked the type before anything runs.
    pub fn as_f32(&self) -> &[f32] {
        match &self.data {
            Data::F32(d) => d,
            Data::I32(_) => panic!("integer tensor where f32 was checked for"),
        }
    }

    /// The elements as `i32`. Panics on floats: shape inference has checked the type before anything runs.
    pub fn as_i32(&self) -> &[i32] {
        match &self.data {
            Data::I32(d) => d,
            Data::F32(_) => panic!("float tensor where i32 was checked for"),
        }
    }

    /// The size of the last dimension, at least 1: what rows are cut by.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1).max(1)
    }

    /// Rows when the last dimension is taken as the row's length.
    pub fn rows(&self) -> usize {
        self.len() / self.row_len()
    }

    /// The bytes in the machine's (little-endian) order.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.data {
            Data::F32(d) => d.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Data::I32(d) => d.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}
