//! Pipelines: one for each text in the plan's kernel table, made while weights arrive.

use std::collections::HashMap;

use ingle_graph::backend::{BackendError, LocalFuture};
use ingle_graph::plan::Plan;

use crate::device::Device;

type Making<D> = LocalFuture<'static, Result<<D as Device>::Pipeline, BackendError>>;

/// The pipelines of a plan.
pub(super) struct Pipelines<D: Device> {
    layouts: Vec<D::Layout>,
    /// For each kernel of the plan, its pipeline.
    of_kernel: Vec<usize>,
    /// For each pipeline, its layout.
    of_pipeline: Vec<usize>,
    making: Vec<Making<D>>,
    made: Vec<D::Pipeline>,
}

impl<D: Device> Pipelines<D> {
    /// Starts making all of them.
    pub fn start(device: &D, plan: &Plan) -> Result<Self, BackendError> {
        let mut pipelines = Pipelines {
            layouts: vec![],
            of_kernel: vec![],
            of_pipeline: vec![],
            making: vec![],
            made: vec![],
        };
        let mut layouts: HashMap<&[bool], usize> = HashMap::new();
        let mut texts: HashMap<(&str, &str), usize> = HashMap::new();
        for kernel in &plan.kernels {
            let name = kernel.spec.name();
            let Some(text) = &kernel.text else {
                let key = crate::select::key(&kernel.spec, &kernel.candidate);
                let id = key.map_or_else(|e| e, |k| k.id());
                return Err(BackendError::Kernel {
                    name,
                    reason: format!("no text for kernel {id}"),
                });
            };
            let layout = *layouts.entry(&text.writes).or_insert_with(|| {
                pipelines.layouts.push(device.create_layout(&text.writes));
                pipelines.layouts.len() - 1
            });
            let pipeline = *texts.entry((&text.source, &text.entry)).or_insert_with(|| {
                pipelines.making.push(device.create_pipeline(
                    &name,
                    &pipelines.layouts[layout],
                    text,
                ));
                pipelines.of_pipeline.push(layout);
                pipelines.of_pipeline.len() - 1
            });
            pipelines.of_kernel.push(pipeline);
        }
        Ok(pipelines)
    }

    /// Waits for all of them.
    pub async fn finish(&mut self) -> Result<(), BackendError> {
        // They are all on their way already, so waiting for one after the other waits for the slowest.
        for making in std::mem::take(&mut self.making) {
            self.made.push(making.await?);
        }
        Ok(())
    }

    pub fn are_made(&self) -> bool {
        self.made.len() == self.of_pipeline.len()
    }

    pub fn of_kernel(&self, kernel: u32) -> usize {
        self.of_kernel[kernel as usize]
    }

    pub fn layout(&self, pipeline: usize) -> &D::Layout {
        &self.layouts[self.of_pipeline[pipeline]]
    }

    pub fn get(&self, pipeline: usize) -> &D::Pipeline {
        &self.made[pipeline]
    }
}
