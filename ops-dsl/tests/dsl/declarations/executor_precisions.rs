/// Products by a library.
#[executor(device = "cuda", priority = 10, strided, precisions(rounded = tf32))]
pub mod products {}
