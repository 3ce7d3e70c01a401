//! Regions: what executors that fuse symbols share. `grouping` gathers symbols of a trace into regions, `rules` says
//! which regions compute what their operators say, `program` turns a region's body into the program that kernels are
//! made of, `again` lets regions compute what others would write for them, `widening` takes elements of 16-bit tensors
//! before they are widened, and `lists` gathers lines that do the same to many inputs.

pub mod again;
pub mod grouping;
mod limits;
pub mod lists;
pub mod program;
pub mod rules;
mod scattered;
pub mod widening;
