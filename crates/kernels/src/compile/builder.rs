//! From a `#[cube]` function to a [`KernelText`].

use cubecl::Compiler;
use cubecl::ir::settings::Dim3;
use cubecl::prelude::*;
use cubecl_wgpu::WgslCompiler;

use super::{KernelError, intrinsics};
use crate::{Access, BindingSpec, DeviceLimits, Feature, KernelText};

/// Declares a kernel's bindings in order and compiles what was expanded into its scope.
pub struct Builder {
    inner: KernelBuilder,
    id: String,
    entry: &'static str,
    threads: u32,
    names: Vec<String>,
}

impl Builder {
    pub fn new(id: String, entry: &'static str, threads: u32) -> Self {
        let settings = KernelSettings::new(
            Dim3::new_1d(threads),
            ExecutionMode::Unchecked,
            AddressType::U32,
        );
        let inner = KernelBuilder::new(settings.kernel_name(entry));
        intrinsics::mark_wgsl(&inner.scope);
        Builder {
            inner,
            id,
            entry,
            threads,
            names: Vec::new(),
        }
    }

    /// The next binding, an array of `T`.
    pub fn buffer<T: CubePrimitive>(&mut self, name: impl Into<String>) -> NativeExpand<[T]> {
        self.names.push(name.into());
        <[T] as LaunchArg>::expand(&BufferCompilationArg { inplace: None }, &mut self.inner)
    }

    /// The next `count` bindings, numbered `name0`, `name1`, …, as a sequence that may be empty.
    pub fn buffers<T: CubePrimitive>(
        &mut self,
        name: &str,
        count: usize,
    ) -> SequenceExpand<Box<[T]>> {
        let mut sequence = Sequence::<Box<[T]>>::__expand_new(&self.inner.scope);
        for index in 0..count {
            self.names.push(if count == 1 {
                name.into()
            } else {
                format!("{name}{index}")
            });
            let buffer = <Box<[T]> as LaunchArg>::expand(
                &BufferCompilationArg { inplace: None },
                &mut self.inner,
            );
            sequence.__expand_push_method(&self.inner.scope, buffer);
        }
        sequence
    }

    /// Where the kernel's function is expanded.
    pub fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    pub fn finish(self, limits: &DeviceLimits) -> Result<KernelText, KernelError> {
        let Builder {
            inner,
            id,
            entry,
            threads,
            names,
        } = self;
        let limit = |field, limit: u32, found: u32| match found <= limit {
            true => Ok(()),
            false => Err(KernelError::Limit {
                kernel: id.clone(),
                field,
                limit,
                found,
            }),
        };
        limit(
            "storage buffers",
            limits.max_storage_buffers_per_shader_stage,
            names.len() as u32,
        )?;
        let refused = |message: String| KernelError::Compiler {
            kernel: id.clone(),
            message,
        };
        let shader = WgslCompiler
            .compile(inner.build(), &Default::default())
            .map_err(|error| refused(error.to_string()))?;
        let workgroup_bytes = shader.shared_memory_size as u32;
        limit(
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size,
            workgroup_bytes,
        )?;
        if shader.buffers.len() != names.len() {
            return Err(refused(format!(
                "{} bindings were declared, {} exist",
                names.len(),
                shader.buffers.len()
            )));
        }
        let access = shader.buffers.iter().map(|visibility| match visibility {
            Visibility::Read => Access::Read,
            _ => Access::ReadWrite,
        });
        let bindings = names
            .into_iter()
            .zip(access)
            .map(|(name, access)| BindingSpec { name, access })
            .collect();
        let wgsl = without_info(&shader.to_string()).map_err(refused)?;
        let wgsl = intrinsics::substitute(&wgsl).map_err(refused)?;
        let mut features = Vec::new();
        if wgsl.contains("dot4I8Packed") {
            features.push(Feature::PackedIntegerDot);
        }
        let workgroup = [threads, 1, 1];
        Ok(KernelText {
            id,
            wgsl,
            entry: entry.into(),
            workgroup,
            bindings,
            workgroup_bytes,
            features,
        })
    }
}

/// CubeCL declares one more storage buffer with the lengths of the others. No kernel here reads it, so it is dropped.
fn without_info(wgsl: &str) -> Result<String, String> {
    let mut out = String::with_capacity(wgsl.len());
    for line in wgsl.lines() {
        if line.starts_with("struct info_st ")
            || (line.starts_with("@group(0)") && line.contains(" info_var:"))
        {
            continue;
        }
        if line.contains("info_var") {
            return Err(format!("the kernel reads CubeCL's metadata: {line}"));
        }
        if !line.is_empty() {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}
