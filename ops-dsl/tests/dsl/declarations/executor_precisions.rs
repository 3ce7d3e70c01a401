/// Products by a library.
#[executor(device = "cuda", priority = 10, version = "13.1", strided, precisions(rounded = tf32))]
pub mod products {
    /// Bytes of workspace.
    #[option]
    pub static WORKSPACE: usize = 1 << 20;
}
