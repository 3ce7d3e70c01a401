//! Tiles: short runs of elements in one of four arithmetic classes, held in the first-level cache while a program is
//! carried out on them instruction by instruction.

pub(crate) mod arithmetic;
pub(crate) mod chain;
pub(crate) mod class;
pub(crate) mod convert;
pub(crate) mod gelu;
pub(crate) mod load;
pub(crate) mod operand;
pub(crate) mod reduction;
pub(crate) mod store;
pub(crate) mod stream;

pub use class::Class;
pub(crate) use operand::Operand;
