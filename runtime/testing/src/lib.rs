//! The templates that declarations generate tests from, random programs, and changed plans. What a declaration is
//! tested with (samples, directives) is a part of every declaration, and is in [`fulgurite_ir::testing`].

pub mod testing;

// The floors below, under the names that their own files have.
use fulgurite_compile::transforms;
use fulgurite_ir::{Array, DType, Device, Error, Result, TensorMeta};
use fulgurite_ir::{
    argument, arithmetic, array, device, elementwise, error, executor, failure, fuel, kernel, meta, operator,
    precision, reference, registry, stream_kind, strided, trace, tracer,
};
use fulgurite_run::{choices, compile, program};
