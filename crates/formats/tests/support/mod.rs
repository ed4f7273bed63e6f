//! What the tests share. Each of them uses a part.

#![allow(dead_code)]

pub mod exercise;
pub mod writer;
