//! Kernels of this library's own, which backends launch beside those of programs.

use std::sync::Arc;

use super::cache::KernelCache;
use super::context::Context;
use super::error::{CudaError, Result};
use super::module::{Function, Module};
use super::nvrtc::{Compilation, Cubin};
use super::sources;

/// A kernel: the name of its source, the text, and the name of the kernel in it.
pub(super) struct OwnKernel {
    pub(super) source: &'static str,
    pub(super) text: &'static str,
    pub(super) kernel: &'static str,
}

impl OwnKernel {
    /// Compiles the source, as it may be edited.
    ///
    /// # Errors
    /// Those of the compiler.
    pub(super) fn compile(&self, cache: &KernelCache, architecture: &str, options: &[String]) -> Result<Arc<Cubin>> {
        let source = sources::edited(self.source, self.text)
            .map_err(|text| CudaError::Nvrtc { call: "nvrtcCreateProgram", text })?;
        cache.compile(&Compilation { name: self.source, source: &source, architecture, options })
    }

    /// Compiles and loads it.
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub(super) fn load(&self, context: &Context, options: &[String]) -> Result<Function> {
        let cubin = self.compile(KernelCache::global(), &context.device().architecture(), options)?;
        Module::load(context, &cubin)?.function(self.kernel)
    }
}
