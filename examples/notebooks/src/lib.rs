//! Fulgurite as one shared library, for notebooks.
//!
//! The kernel `evcxr` compiles each cell to a library of its own. What Fulgurite knows of operators and executors is
//! static, so all cells must share it: they link this library, which contains it, and no copies of it.

pub use fulgurite;
pub use fulgurite_models as models;
