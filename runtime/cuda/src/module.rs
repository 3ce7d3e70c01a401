//! Loaded code: modules and the kernels in them.

use super::call::driver;
use super::context::Context;
use super::cubin::KernelResources;
use super::error::{CudaError, Result};
use super::nvrtc::Cubin;
use cudarc::driver::sys::{CUfunction, CUfunction_attribute_enum as Attribute, CUmodule};
use fulgurite_kernels::launch::DeviceAddress;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Dynamic and static shared memory of a block, in bytes, above which a kernel must request more.
const DEFAULT_SHARED_BYTES: u32 = 48 * 1024;

/// A cubin loaded into a context. Clones are the same module; it is unloaded when the last of them and of its
/// [`Function`]s is dropped.
#[derive(Debug, Clone)]
pub struct Module(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    context: Context,
    raw: CUmodule,
    kernels: Vec<KernelResources>,
    /// For each kernel the dynamic shared memory that its blocks may have by now, in bytes. The driver has one such
    /// number for a kernel, for all its callers.
    dynamic_shared: Vec<AtomicU32>,
    /// Held while raising a limit.
    raising: Mutex<()>,
}

// SAFETY: the driver's functions may be called with a module from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A kernel, ready to launch.
#[derive(Debug)]
pub struct Function {
    module: Arc<Loaded>,
    raw: CUfunction,
    /// Index into the module's kernels.
    kernel: usize,
    max_threads: u32,
    local_bytes: u32,
}

// SAFETY: the driver's functions may be called with a function from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a cubin.
    ///
    /// # Errors
    /// The driver's: `CUDA_ERROR_NO_BINARY_FOR_GPU` if it was compiled for another architecture.
    pub fn load(context: &Context, cubin: &Cubin) -> Result<Module> {
        let _current = context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; a `Cubin`'s image was read as ELF, so the driver finds its length in it.
        unsafe { driver!(cuModuleLoadData(&mut raw, cubin.image().as_ptr().cast())) }?;
        let kernels = cubin.kernels().to_vec();
        let allowed =
            |kernel: &KernelResources| AtomicU32::new(DEFAULT_SHARED_BYTES.saturating_sub(kernel.shared_bytes));
        let dynamic_shared = kernels.iter().map(allowed).collect();
        let raising = Mutex::default();
        Ok(Module(Arc::new(Loaded { context: context.clone(), raw, kernels, dynamic_shared, raising })))
    }

    /// The kernels that the module has, sorted by name.
    pub fn kernels(&self) -> &[KernelResources] {
        &self.0.kernels
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// [`CudaError::NoSuchKernel`] with the names that there are.
    pub fn function(&self, name: &str) -> Result<Function> {
        let missing = || CudaError::NoSuchKernel {
            kernel: name.to_owned(),
            present: self.0.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
        };
        let kernel = self.0.kernels.iter().position(|kernel| kernel.name == name).ok_or_else(missing)?;
        let c_name = CString::new(name).map_err(|_| missing())?;
        let _current = self.0.context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded, and the pointers are valid for the call.
        unsafe { driver!(cuModuleGetFunction(&mut raw, self.0.raw, c_name.as_ptr())) }?;
        Ok(Function {
            module: self.0.clone(),
            raw,
            kernel,
            max_threads: attribute(raw, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            local_bytes: attribute(raw, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        })
    }

    /// Address and size in bytes of a `__device__` or `__constant__` variable with a C name.
    pub fn global(&self, name: &str) -> Result<(DeviceAddress, usize)> {
        let missing = CudaError::Cubin { reason: format!("{name:?} cannot be the name of a variable") };
        let name = CString::new(name).map_err(|_| missing)?;
        let _current = self.0.context.enter()?;
        let (mut address, mut bytes) = (DeviceAddress::NULL, 0);
        // SAFETY: the module is loaded, and the pointers are valid for the call.
        unsafe { driver!(cuModuleGetGlobal_v2(&mut address.0, &mut bytes, self.0.raw, name.as_ptr())) }?;
        Ok((address, bytes))
    }
}

fn attribute(function: CUfunction, attribute: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the function is of a loaded module whose context is current; the pointer is valid for the call.
    unsafe { driver!(cuFuncGetAttribute(&mut value, attribute, function)) }?;
    Ok(value.max(0) as u32)
}

impl Function {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.resources().name
    }

    /// What the kernel needs, as compiled.
    pub fn resources(&self) -> &KernelResources {
        &self.module.kernels[self.kernel]
    }

    /// Threads that a block may have at most.
    pub fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Local memory of a thread, in bytes, as the driver sees it.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    pub(super) fn raw(&self) -> CUfunction {
        self.raw
    }

    pub(super) fn context(&self) -> &Context {
        &self.module.context
    }

    /// Lets blocks have `bytes` bytes of dynamic shared memory, which beyond 48 KiB must be asked for. A launch does so
    /// by itself; [`Function::resident_blocks`] needs it before.
    ///
    /// # Errors
    /// [`CudaError::Launch`] if the device has not that much.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let allowed = &self.module.dynamic_shared[self.kernel];
        if bytes <= allowed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (most, fixed) = (self.context().device().shared_bytes_per_block, self.resources().shared_bytes as usize);
        if bytes as usize + fixed > most {
            let reason = format!(
                "{bytes} bytes of dynamic and {fixed} bytes of static shared memory exceed the {most} bytes of a block"
            );
            return Err(CudaError::Launch { kernel: self.name().to_owned(), reason });
        }
        let _turn = self.module.raising.lock().unwrap_or_else(PoisonError::into_inner);
        // It is never lowered: a launch that needs more may be enqueued, or recorded.
        if bytes > allowed.load(Ordering::Acquire) {
            self.set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
            allowed.store(bytes, Ordering::Release);
        }
        Ok(())
    }

    /// Lets clusters have more than the 8 blocks that every device with clusters can hold.
    pub fn allow_large_clusters(&self) -> Result<()> {
        self.set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    fn set(&self, attribute: Attribute, value: u32) -> Result<()> {
        let _current = self.context().enter()?;
        // SAFETY: the function's module is loaded, and its context is current.
        unsafe { driver!(cuFuncSetAttribute(self.raw, attribute, value as i32)) }
    }

    /// Blocks of `threads` threads and `shared_bytes` bytes of dynamic shared memory that a multiprocessor holds at
    /// once: the size of a grid that stays resident is that, times the multiprocessors.
    pub fn resident_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        self.allow_shared(shared_bytes)?;
        let _current = self.context().enter()?;
        let mut blocks = 0;
        // SAFETY: the function's module is loaded, and its context is current; the pointer is valid for the call.
        unsafe {
            driver!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw,
                threads as i32,
                shared_bytes as usize
            ))
        }?;
        Ok(blocks.max(0) as u32)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: loaded in `Module::load`; functions hold the module, so none is left.
        self.context.keep(self.context.enter().and_then(|_current| unsafe { driver!(cuModuleUnload(self.raw)) }));
    }
}
