//! The operators of Fulgurite, each declared once. `prims` do not decompose and are strict: equal shapes, equal element
//! types. `core` has PyTorch's broadcasting and promoting forms, `nn` and `optim` what models are built of, `executors`
//! who runs it all.

pub mod core;
pub mod executors;
pub mod nn;
pub mod optim;
pub mod prims;

/// Everything that traced code is written with.
pub mod prelude {
    pub use crate::core::*;
    pub use crate::nn::*;
    pub use crate::optim::*;
    pub use fulgurite::tracer::{scope, value_and_grad, value_and_grad_aux};
    pub use fulgurite::{DType, Device, Tensor, TensorMeta};
}
