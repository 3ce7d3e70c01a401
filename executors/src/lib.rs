//! The executors that come with Fulgurite, each a crate that uses the public API of the runtime and of the operators,
//! as an executor from outside does. A program that names this crate links all of them, and so has them in its list.

pub use fulgurite_executor_cpu as cpu;
pub use fulgurite_executor_cublaslt as cublaslt;
pub use fulgurite_executor_cuda as cuda;
pub use fulgurite_executor_cudnn as cudnn;
pub use fulgurite_executor_decode as decode;
pub use fulgurite_executor_flash as flash;
pub use fulgurite_executor_liger as liger;
pub use fulgurite_executor_llmc as llmc;
pub use fulgurite_executor_nccl as nccl;
pub use fulgurite_executor_optim as optim;
pub use fulgurite_executor_regions as regions;
pub use fulgurite_executor_unsloth as unsloth;
