//! Model families: a manifest and its configuration become a GraphTensor.
