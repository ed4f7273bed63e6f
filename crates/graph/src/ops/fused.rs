//! `fused`: a region, a part of the graph that one launch computes.
//!
//! It holds its subgraph, so that the verifier, the text form and the interpreter work as before. The region's inputs
//! are the node's inputs, weights included; its results are the node's outputs.

use serde::{Deserialize, Serialize};

use super::Operation;
use crate::{Graph, GraphError, Tensor, ValueId, ValueType};

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fused {
    pub region: Box<Graph>,
}

impl Operation for Fused {
    const NAME: &'static str = "fused";

    fn infer(&self, inputs: &[&ValueType]) -> Result<Vec<ValueType>, GraphError> {
        let region = &self.region;
        if inputs.len() != region.inputs.len() {
            let expected = region.inputs.len().to_string();
            return Err(GraphError::Arity { op: Self::NAME, expected, found: inputs.len() });
        }
        for (i, (&found, &expected)) in inputs.iter().zip(&region.inputs).enumerate() {
            if found != region.ty(expected) {
                return Err(super::wrong(Self::NAME, i, region.ty(expected).to_string(), found));
            }
        }
        Ok(region.results.iter().map(|&v| region.ty(v).clone()).collect())
    }

    fn reference(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        crate::interpret::region(&self.region, inputs)
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Option<Vec<ValueId>>, GraphError> {
        crate::passes::inline(&self.region, g, inputs).map(Some)
    }
}
