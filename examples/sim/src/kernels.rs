//! Kernels of the device: closures of the host on the bytes of operands and results.

use std::fmt;
use std::sync::Arc;

use fulgurite::DType;
use fulgurite::device::{DeviceTensor, Plan};
use fulgurite::kernels::dtype::Element;

/// From the bytes of operands to the bytes of the result.
pub type Function = dyn Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync;

/// A kernel. Operands of the call: what it reads, and what it writes.
#[derive(Clone)]
pub struct Kernel {
    /// What messages call it.
    pub name: &'static str,
    /// Bytes of each operand.
    pub reads: Vec<usize>,
    /// What it computes.
    pub function: Arc<Function>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?} bytes)", self.name, self.reads)
    }
}

impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        (self.name, &self.reads) == (other.name, &other.reads)
    }
}

/// Writes down a kernel over contiguous tensors.
pub fn launch(
    plan: &mut Plan,
    name: &'static str,
    inputs: &[&DeviceTensor],
    out: &DeviceTensor,
    function: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static,
) {
    let reads = inputs.iter().map(|input| input.meta.bytes()).collect();
    let operands = inputs.iter().chain([&out]).map(|tensor| Some(tensor.address));
    plan.library(Kernel { name, reads, function: Arc::new(function) }, operands);
}

/// Writes down an elementwise kernel: computed in f64, and rounded once.
pub fn unary(plan: &mut Plan, name: &'static str, f: fn(f64) -> f64, input: &DeviceTensor, out: &DeviceTensor) {
    let dtype = input.dtype();
    launch(plan, name, &[input], out, move |operands| {
        let values: Vec<f64> = read(dtype, &operands[0]).into_iter().map(f).collect();
        written(dtype, &values)
    });
}

/// Elements of a floating-point type.
pub fn read(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn of<T: Element, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|chunk| from(*chunk).to_f64()).collect()
    }
    match dtype {
        DType::F64 => of(bytes, f64::from_le_bytes),
        DType::F32 => of(bytes, f32::from_le_bytes),
        DType::BF16 => of(bytes, half::bf16::from_le_bytes),
        DType::F16 => of(bytes, half::f16::from_le_bytes),
        other => unreachable!("the checkers take floating-point numbers alone, not {other}"),
    }
}

/// Values rounded to a floating-point type.
pub fn written(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|value| half::bf16::from_f64(*value).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| half::f16::from_f64(*value).to_le_bytes()).collect(),
        other => unreachable!("the checkers take floating-point numbers alone, not {other}"),
    }
}
