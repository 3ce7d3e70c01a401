//! A device, a stream, and short ways to use them.

use crate::common;
use fulgurite_cuda::{Compilation, Context, DeviceMemory, Function, KernelCache, Module, Stream};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Tests take the device one after the other: counters and free memory are the process's.
static TURN: Mutex<()> = Mutex::new(());

pub struct Device {
    pub context: Context,
    pub stream: Stream,
    // Dropped last, after everything was given back.
    _turn: MutexGuard<'static, ()>,
}

/// The first device, alone; `None` if the test is skipped.
pub fn device() -> Option<Device> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Kept for all tests: making a context takes longer than most of them.
    static CONTEXT: OnceLock<Context> = OnceLock::new();
    let context = common::device()?;
    CONTEXT.get_or_init(|| context.clone());
    let stream = Stream::new(&context).unwrap();
    Some(Device { context, stream, _turn: turn })
}

impl Drop for Device {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.context.check().unwrap();
        }
    }
}

impl Device {
    pub fn is_hopper_or_newer(&self) -> bool {
        self.context.device().compute_capability.0 >= 9
    }

    pub fn module(&self, source: &str) -> Module {
        let architecture = self.context.device().architecture();
        let compilation = Compilation { name: "test.cu", source, architecture: &architecture, options: &[] };
        let cubin = KernelCache::in_memory().compile(&compilation).unwrap();
        Module::load(&self.context, &cubin).unwrap()
    }

    pub fn function(&self, source: &str, name: &str) -> Function {
        self.module(source).function(name).unwrap()
    }

    /// Device memory that holds `bytes`.
    pub fn upload(&self, bytes: &[u8]) -> DeviceMemory {
        let mut memory = DeviceMemory::new(&self.context, bytes.len()).unwrap();
        memory.write(&self.stream, 0, bytes).unwrap();
        memory
    }

    pub fn download(&self, memory: &DeviceMemory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        memory.read(&self.stream, 0, &mut bytes).unwrap();
        bytes
    }

    pub fn upload_of<T: bytemuck::NoUninit>(&self, values: &[T]) -> DeviceMemory {
        self.upload(bytemuck::cast_slice(values))
    }

    pub fn download_of<T: bytemuck::AnyBitPattern>(&self, memory: &DeviceMemory) -> Vec<T> {
        numbers(&self.download(memory))
    }
}

/// The numbers in `bytes`.
pub fn numbers<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Numbers in -1..1, the same for the same seed.
pub fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move || {
        // SplitMix64
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
