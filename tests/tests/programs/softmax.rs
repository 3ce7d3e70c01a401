//! The gradient of softmax where `llmc` comes first: of long rows by a kernel, of others by the executors that take its
//! parts. No device is needed.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::{Block, BoundSymbol};
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta, tracer};

/// The step after the stage `claim`, of rows of so many elements.
fn claimed(columns: usize) -> Block {
    let meta = || TensorMeta::new([2, columns], DType::F32, Device::new("cuda", 0));
    let step = |(x, w): (Tensor, Tensor)| tracer::value_and_grad(x, |x| (softmax(*x, -1) * w).sum());
    let traced = trace("step", "cuda:sm_90a".parse().unwrap(), &Names::default(), (meta(), meta()), step).unwrap().0;
    let options = Options { verify: true, ..Options::default() }.with_executors(&["llmc", "fusion", "cuda"]).unwrap();
    let stages = stages(traced, &options).unwrap();
    stages.iter().find(|stage| stage.name == "claim").unwrap().trace.block.clone()
}

fn called<'a>(block: &'a Block, name: &str) -> Vec<&'a BoundSymbol> {
    block.symbols.iter().filter(|symbol| symbol.name() == name).collect()
}

#[test]
fn long_rows_have_a_kernel_that_is_given_the_result_and_its_cotangent() {
    let block = claimed(16_385);
    let (forward, backward) = (called(&block, "llmc::softmax"), called(&block, "llmc::softmax_backward"));
    let ([forward], [backward]) = (&forward[..], &backward[..]) else { panic!("{block:?}") };
    let operands: Vec<_> = backward.operands().collect();
    assert_eq!(operands[0], forward.results[0]);
    assert_ne!(operands[1], forward.results[0]);
    assert_eq!(block.results[1], backward.results[0]);
}

#[test]
fn shorter_rows_are_left_to_a_region() {
    let block = claimed(16_384);
    assert_eq!(called(&block, "llmc::softmax").len(), 1);
    assert!(called(&block, "llmc::softmax_backward").is_empty());
}
