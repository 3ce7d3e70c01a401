//! From an acquired trace to a planned one: the transforms, autodiff, rewriting, the executor of each call, the order
//! of the stages; and what a running program registers. It makes no program and runs nothing.

pub mod choices;
pub mod compile;
pub mod registration;
pub mod transforms;

/// Operators that the tests of `ir` declare, for traces that are written here.
#[cfg(test)]
#[path = "../../ir/src/trace/test_support.rs"]
#[allow(dead_code, reason = "the tests of `ir` use all of it")]
mod test_support;
#[cfg(test)]
use fulgurite_ir::attribute_enum;

// The floors below, under the names that their own files have.
use fulgurite_ir::{DType, Error, TensorMeta};
use fulgurite_ir::{
    argument, arithmetic, cost, device, elementwise, error, executor, expansion, failure, fuel, kernel, mesh, meta,
    operator, precision, reference, refusal, registered, registry, rules, stream_kind, strided, testing, trace, tracer,
};
