//! What kernels are planned by, and what compiled code has.

/// What kernels are planned by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// What people call the device: its product name and what matters about it.
    pub model: String,
    /// What code is compiled for, such as `sm_90a`; `None` if the kind has one architecture.
    pub architecture: Option<String>,
    /// Cores that run blocks of threads at a time.
    pub multiprocessors: usize,
    /// Threads that one of them holds at a time.
    pub threads_per_multiprocessor: usize,
    /// Shared memory of one of them, in bytes.
    pub shared_bytes_per_multiprocessor: usize,
    /// Shared memory that one block may have, in bytes.
    pub shared_bytes_per_block: usize,
    /// Threads that one block may have.
    pub threads_per_block: usize,
    /// Blocks that a grid may have along x, y, z.
    pub grid: [u32; 3],
    /// Whether blocks work in clusters that reach each other's shared memory.
    pub clusters: bool,
}

/// What a device does at most, for lower bounds of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Bytes that it reads and writes in a second.
    pub bytes_per_second: f64,
    /// Floating-point operations in a second, of products in its fastest type of 16 bits or more.
    pub flops_per_second: f64,
}

/// A kernel of a compiled source: its name and the size of each parameter, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As launches name it.
    pub name: String,
    /// Sizes of the parameters in order.
    pub parameters: Vec<usize>,
}
