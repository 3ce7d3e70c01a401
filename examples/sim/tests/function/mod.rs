//! What the tests of the fallback compile.

use fulgurite::compile::Options;
use fulgurite::ops::prelude::*;
use fulgurite::{Array, Device, Tensor, jit};

/// A layer of a network: its product, its bias and its softmax are run by the device, and `erf`, which is a part of
/// `gelu`, by the host.
fn layer((x, weight, bias): (Tensor, Tensor, Tensor)) -> Tensor {
    softmax(gelu(matmul(x, weight) + bias), -1)
}

/// The trace of [`layer`] for `sim:0`, after executors claimed its lines.
pub fn claimed() -> String {
    let zeros = |shape: &[usize]| Array::zeros(shape, fulgurite::DType::F32).unwrap();
    let options = Options { device: Some(Device::new("sim", 0)), ..Options::default() };
    let compiled = jit(layer).options(options).compile(&(zeros(&[4, 8]), zeros(&[8, 6]), zeros(&[6]))).unwrap();
    compiled.stage("claim").unwrap().to_string()
}
