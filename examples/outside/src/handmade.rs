//! The executors, their kernels, and what they take.

use fulgurite::kernels::dtype::Element;
use fulgurite::prelude::*;

use crate::squareplus;

/// Kernels written by hand.
#[executor(device = "cpu", priority = 5)]
pub mod handmade {}

/// The same for an NVIDIA GPU.
#[executor(device = "cuda", priority = 5)]
pub mod handmade_cuda {}

/// `squareplus` and its slope, `(1 + x / √(x² + b)) / 2`, in one pass over `input`.
#[operator(
    executor = [handmade, handmade_cuda],
    dtypes(f32, f64),
    no_grad = "squareplus, which is run by it, has the gradient"
)]
pub mod squareplus_with_slope {
    #[results(out, slope)]
    fn squareplus_with_slope(input: Tensor<Floating>, b: f64) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        Ok((input.clone(), input.clone()))
    }

    fn cpu(input: TensorRef, b: f64, out: &mut TensorMut, slope: &mut TensorMut) -> Result<()> {
        match input.dtype() {
            DType::F32 => super::one_pass::<f32>(input, b, out, slope),
            _ => super::one_pass::<f64>(input, b, out, slope),
        }
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, b: f64, out: &DeviceTensor, slope: &DeviceTensor) -> Result<()> {
        let count = input.len();
        if count == 0 {
            return Ok(());
        }
        let (element, b) = match input.dtype() {
            DType::F32 => ("float", Parameter::from(b as f32)),
            _ => ("double", Parameter::from(b)),
        };
        plan.source(source_files!["squareplus.cu"]);
        plan.define("ELEMENT", element);
        plan.define("THREADS", super::THREADS);
        let shape = LaunchShape::linear(count.div_ceil(super::THREADS as usize) as u32, super::THREADS);
        plan.launch("squareplus_with_slope", shape, binds![input, b, out, slope, count])
    }

    fn reference(input: &ArrayD<f64>, b: f64) -> (ArrayD<f64>, ArrayD<f64>) {
        let root = input.mapv(|x| (x * x + b).sqrt());
        ((input + &root) / 2.0, (input / &root + 1.0) / 2.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), 4.0));
        s.case(with(s.normal([0, 3]), 0.25));
        s.case(with(s.normal([2051]), 1.0));
    }
}

/// Threads of a block on the GPU.
const THREADS: u32 = 256;

/// The host's kernel: operands and results are contiguous, since neither the executor nor the symbol says `strided`.
fn one_pass<T: Element>(
    input: fulgurite::kernels::TensorRef<'_>,
    b: f64,
    out: &mut fulgurite::kernels::TensorMut<'_>,
    slope: &mut fulgurite::kernels::TensorMut<'_>,
) -> Result<(), Failure> {
    let mismatch = || Failure::new("KernelDType", "the results are not of the input's dtype, or not contiguous");
    let input: &[T] = input.as_slice().ok_or_else(mismatch)?;
    let out: &mut [T] = out.as_mut_slice().ok_or_else(mismatch)?;
    let slope: &mut [T] = slope.as_mut_slice().ok_or_else(mismatch)?;
    for ((x, out), slope) in input.iter().zip(out).zip(slope) {
        let x = x.to_f64();
        let root = (x * x + b).sqrt();
        *out = T::from_f64((x + root) / 2.0);
        *slope = T::from_f64((1.0 + x / root) / 2.0);
    }
    Ok(())
}

#[implementation(of = squareplus, by = [handmade, handmade_cuda])]
mod squareplus_by_handmade {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(
            matches!(input.dtype(), DType::F32 | DType::F64),
            "the kernel is written for f32 and f64, input is {}",
            input.dtype()
        );
        Ok(())
    }

    fn execution(input: Tensor, b: f64) -> Tensor {
        squareplus_with_slope(input, b).0
    }

    fn grad(input: Tensor, b: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let (out, slope) = squareplus_with_slope(input, b);
        (out, move |d_out| Grads { input: d_out * slope })
    }
}
