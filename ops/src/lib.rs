//! The operators of Fulgurite, each declared once. `prims` do not decompose and are strict: equal shapes, equal element
//! types. `core` has PyTorch's broadcasting and promoting forms, `nn` and `optim` what models are built of,
//! `collectives` what several ranks give each other. Executors are crates of their own.

pub mod collectives;
pub mod core;
pub mod nn;
pub mod optim;
pub mod prims;

/// Everything that traced code is written with.
pub mod prelude {
    pub use crate::collectives::*;
    pub use crate::core::*;
    pub use crate::nn::*;
    pub use crate::optim::*;
    pub use fulgurite_runtime::tracer::{checkpoint, map_trees, scope, value_and_grad, value_and_grad_aux};
    pub use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};
}
