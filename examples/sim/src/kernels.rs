//! Kernels of the device: closures of the host on the bytes of operands and results.

use std::fmt;
use std::sync::Arc;

use fulgurite::DType;
use fulgurite::argument::Operand;
use fulgurite::device::{Address, DeviceTensor, Plan};
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
    /// The function that computes the results.
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

/// Memory that a kernel reads or writes: a contiguous tensor, or a piece of workspace.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The first byte.
    pub address: Address,
    /// Size in bytes.
    pub bytes: usize,
}

impl From<&DeviceTensor> for Span {
    fn from(tensor: &DeviceTensor) -> Span {
        Span { address: tensor.address, bytes: tensor.meta.bytes() }
    }
}

/// A piece of workspace for as many numbers in f64.
pub fn workspace(plan: &mut Plan, numbers: usize) -> Span {
    let bytes = numbers * size_of::<f64>();
    Span { address: plan.workspace(bytes as u64), bytes }
}

/// Writes down a kernel.
pub fn launch(
    plan: &mut Plan,
    name: &'static str,
    inputs: &[Span],
    out: impl Into<Span>,
    function: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static,
) {
    let reads = inputs.iter().map(|input| input.bytes).collect();
    let operands = inputs.iter().copied().chain([out.into()]).map(|span| Some(span.address));
    plan.library(Kernel { name, reads, function: Arc::new(function) }, operands);
}

/// Writes down an elementwise kernel: computed in f64, and rounded once.
pub fn unary(plan: &mut Plan, name: &'static str, f: fn(f64) -> f64, input: &DeviceTensor, out: &DeviceTensor) {
    let dtype = input.dtype();
    launch(plan, name, &[input.into()], out, move |operands| {
        written(dtype, &read(dtype, &operands[0]).into_iter().map(f).collect::<Vec<f64>>())
    });
}

/// Writes down an elementwise kernel of two operands, of which a number stands for as many elements as the result has.
/// It is rounded to the element type first, as the elements are, or to the type of its arithmetic where it accumulates.
pub fn binary(
    plan: &mut Plan,
    name: &'static str,
    (f, accumulates): (fn(f64, f64) -> f64, [bool; 2]),
    [left, right]: [&Operand<DeviceTensor>; 2],
    out: &DeviceTensor,
) {
    let (dtype, count) = (out.dtype(), out.meta.len());
    let inputs: Vec<Span> = [left, right].into_iter().filter_map(Operand::tensor).map(Span::from).collect();
    let number = |operand: &Operand<DeviceTensor>, accumulates: bool| match operand {
        Operand::Tensor(_) => None,
        Operand::Scalar(number) => {
            let held = if accumulates { dtype.accumulator() } else { dtype };
            Some(read(held, &written(held, &[number.to_f64()]))[0])
        }
    };
    let numbers = [number(left, accumulates[0]), number(right, accumulates[1])];
    launch(plan, name, &inputs, out, move |operands| {
        let mut tensors = operands.iter();
        let [left, right] = numbers.map(|number| match number {
            Some(number) => vec![number; count],
            None => tensors.next().map_or_else(Vec::new, |bytes| read(dtype, bytes)),
        });
        written(dtype, &left.into_iter().zip(right).map(|(left, right)| f(left, right)).collect::<Vec<f64>>())
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
        DType::BF16 => values.iter().flat_map(|value| half::bf16::from_f32(*value as f32).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| half::f16::from_f32(*value as f32).to_le_bytes()).collect(),
        other => unreachable!("the checkers take floating-point numbers alone, not {other}"),
    }
}
