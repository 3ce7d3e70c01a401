//! Wrong kernels, of an executor that must be named.

use fulgurite_ops_macros::{executor, implementation, operator};

/// Has a wrong kernel for each operator.
#[executor(device = "cpu")]
pub mod careless {}

/// Has a wrong kernel as well, on a device.
#[executor(device = "cuda")]
pub mod careless_cuda {}

/// Declares negations, each of which gets a wrong kernel.
macro_rules! negations {
    ($($name:ident = $text:literal;)*) => {$(
        /// `-input`.
        #[operator(name = $text, no_grad = "of no interest here")]
        pub mod $name {
            fn $name(input: Tensor<Floating>) -> Tensor;

            fn decomposition(input: Tensor) -> Tensor {
                fulgurite_ops::prims::neg(input)
            }

            fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
                -input
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([3, 5])));
            }
        }
    )*};
}

negations! {
    last_row_unwritten = "wrong::last_row_unwritten";
    input_mutated = "wrong::input_mutated";
    write_past_the_end = "wrong::write_past_the_end";
    strides_ignored = "wrong::strides_ignored";
    gaps_overwritten = "wrong::gaps_overwritten";
    last_at_the_start = "wrong::last_at_the_start";
    accepts_too_much = "wrong::accepts_too_much";
    alignment_ignored = "wrong::alignment_ignored";
}

/// Loads four elements at once, from the multiple of sixteen bytes before wherever the operand is.
#[implementation(of = alignment_ignored, by = careless_cuda)]
mod alignment_ignored_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(source_files!["loads_four.cu"]);
        plan.launch("negate", LaunchShape::linear(1, 32), binds![input, out, input.meta.len() as u64])
    }
}

/// `input · other`, of which one may be a number.
#[operator(prim, name = "wrong::number_left_unrounded", no_grad = "of no interest here")]
pub mod number_left_unrounded {
    fn number_left_unrounded(input: Operand<Floating>, other: Operand<Floating>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input * other
    }

    fn reference(input: &Operand<ReferenceTensor>, other: &Operand<ReferenceTensor>) -> ArrayD<f64> {
        let [input, other] = filled([input, other]);
        input.floats() * other.floats()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5]), s.normal([3, 5])));
    }
}

/// Multiplies by the number as it was written, not by that of the element type.
#[implementation(of = number_left_unrounded, by = careless)]
mod number_left_unrounded_by_careless {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: Operand<TensorRef>, other: Operand<TensorRef>, out: &mut TensorMut) -> Result<()> {
        use fulgurite_runtime::kernels::access::read_f64;
        let values = |operand: &Operand<TensorRef<'_>>, count: usize| match operand {
            Operand::Tensor(tensor) => read_f64(tensor),
            Operand::Scalar(number) => vec![number.to_f64(); count],
        };
        let count = out.shape().iter().product();
        let (input, other) = (values(&input, count), values(&other, count));
        let products: Vec<f64> = input.iter().zip(&other).map(|(a, b)| a * b).collect();
        fulgurite_kernels::access::write_f64(out, &products);
        Ok(())
    }
}

fn negate(input: &fulgurite_runtime::rules::TensorRef<'_>) -> Vec<f64> {
    fulgurite_runtime::kernels::access::read_f64(input).iter().map(|value| -value).collect()
}

#[implementation(of = last_row_unwritten, by = careless)]
mod last_row_unwritten_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = super::negate(&input);
        let row = input.shape()[1];
        let out = out.as_mut_slice::<f32>().ok_or_else(|| Failure::new("Layout", "not contiguous"))?;
        for (out, value) in out.iter_mut().zip(&values[..values.len() - row]) {
            *out = *value as f32;
        }
        Ok(())
    }
}

#[implementation(of = input_mutated, by = careless)]
mod input_mutated_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = super::negate(&input);
        fulgurite_kernels::access::write_f64(out, &values);
        // SAFETY: not safe at all, which is the point: the first element exists, but it is not ours to write.
        unsafe { input.as_ptr().cast_mut().cast::<f32>().write(7.0) };
        Ok(())
    }
}

#[implementation(of = write_past_the_end, by = careless)]
mod write_past_the_end_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = super::negate(&input);
        fulgurite_kernels::access::write_f64(out, &values);
        // SAFETY: 15 f32 are in a buffer of 64 bytes, so that the sixteenth is memory of the buffer, but not of the
        // tensor.
        unsafe { out.as_mut_ptr().cast::<f32>().add(values.len()).write(7.0) };
        Ok(())
    }
}

#[implementation(of = gaps_overwritten, by = careless, strided)]
mod gaps_overwritten_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        for (i, value) in super::negate(&input).into_iter().enumerate() {
            // SAFETY: strides are positive here, so that the result reaches at least as far as its number of elements.
            unsafe { out.as_mut_ptr().cast::<f32>().add(i).write(value as f32) };
        }
        Ok(())
    }
}

#[implementation(of = last_at_the_start, by = careless, strided)]
mod last_at_the_start_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let mut values = super::negate(&input);
        if let (false, Some(last)) = (out.is_contiguous(), values.last().copied()) {
            values[0] = last;
        }
        fulgurite_kernels::access::write_f64(out, &values);
        Ok(())
    }
}

#[implementation(of = strides_ignored, by = careless, strided)]
mod strides_ignored_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let strides = fulgurite_kernels::view::contiguous_strides(input.shape());
        let out = out.as_mut_slice::<f32>().ok_or_else(|| Failure::new("Layout", "not contiguous"))?;
        // Only the first row, wherever it is, and then as if the others followed: memory there is read no further than
        // the widest stride reaches.
        let reach: isize = input.shape().iter().zip(input.strides()).map(|(n, s)| (*n as isize - 1) * s).sum();
        for (i, out) in out.iter_mut().enumerate() {
            let at = (i as isize * strides[1]).min(reach);
            // SAFETY: an element between the first and the last of the view is in its buffer.
            *out = -unsafe { input.as_ptr().cast::<f32>().offset(at).read() };
        }
        Ok(())
    }
}

#[implementation(of = accepts_too_much, by = careless)]
mod accepts_too_much_by_careless {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = super::negate(&input);
        let out = out.as_mut_slice::<f32>().ok_or_else(|| Failure::new("DType", "only f32 is implemented"))?;
        for (out, value) in out.iter_mut().zip(&values) {
            *out = *value as f32;
        }
        Ok(())
    }
}

/// The sum of all elements.
#[operator(name = "wrong::unstable_order", no_grad = "of no interest here")]
pub mod unstable_order {
    fn unstable_order(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::sum(input, [0])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        ArrayD::from_elem(IxDyn(&[]), input.sum())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([1001])));
    }
}

#[implementation(of = unstable_order, by = careless)]
mod unstable_order_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = input.as_slice::<f32>().ok_or_else(|| Failure::new("Layout", "not contiguous"))?;
        // As many parts as there are threads: another machine, another sum.
        let parts = rayon::current_num_threads().max(1);
        let sum: f32 = values.chunks(values.len().div_ceil(parts)).map(|part| part.iter().sum::<f32>()).sum();
        fulgurite_kernels::access::write_f64(out, &[f64::from(sum)]);
        Ok(())
    }
}

/// An executor whose kernels are compiled, never run.
#[executor(device = "cuda")]
pub mod wrong_cuda {}

const TWICE: &str = r#"
#include "fulgurite/elements.cuh"

extern "C" __global__ void twice(const float* input, float* out, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = input[i] + input[i];
}
"#;

/// `2 · input` by a kernel that does not exist, with a parameter too few.
#[operator(executor = wrong_cuda, name = "wrong::misspelt_kernel", dtypes(f32), no_grad = "of no interest here")]
pub mod misspelt_kernel {
    fn misspelt_kernel(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE));
        plan.launch("twise", LaunchShape::linear(1, 256), binds![input, out])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input` by a kernel that is not given the number of elements.
#[operator(executor = wrong_cuda, name = "wrong::missing_bind", dtypes(f32), no_grad = "of no interest here")]
pub mod missing_bind {
    fn missing_bind(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE));
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input` by a kernel whose count is 32 bits wide in the launch and 64 in the kernel.
#[operator(executor = wrong_cuda, name = "wrong::narrow_bind", dtypes(f32), no_grad = "of no interest here")]
pub mod narrow_bind {
    fn narrow_bind(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE));
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out, out.meta.len() as u32])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input` by a kernel whose operands are of f64.
#[operator(executor = wrong_cuda, name = "wrong::wide_input", dtypes(f32), no_grad = "of no interest here")]
pub mod wide_input {
    fn wide_input(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE.replace("const float*", "const double*")));
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out, out.meta.len() as u64])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input` by a kernel whose results are of f64.
#[operator(executor = wrong_cuda, name = "wrong::wide_result", dtypes(f32), no_grad = "of no interest here")]
pub mod wide_result {
    fn wide_result(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE.replace("float* out", "double* out")));
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out, out.meta.len() as u64])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input` by a source that does not compile.
#[operator(executor = wrong_cuda, name = "wrong::broken_source", dtypes(f32), no_grad = "of no interest here")]
pub mod broken_source {
    fn broken_source(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE.replace("out[i]", "result[i]")));
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out, out.meta.len()])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input`, right: names that the shared headers' own text uses may be defined.
#[operator(executor = wrong_cuda, name = "wrong::defines_t", dtypes(f32), no_grad = "of no interest here")]
pub mod defines_t {
    fn defines_t(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(SourceText::new("twice.cu", super::TWICE.replace("float", "T")));
        plan.define("T", "float");
        plan.launch("twice", LaunchShape::linear(1, 256), binds![input, out, out.meta.len()])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x + x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `2 · input`, whatever the scale is: no rule says what the kernel is to compute.
#[operator(name = "wrong::nothing_computes", executor = careless, no_grad = "of no interest here")]
pub mod nothing_computes {
    fn nothing_computes(input: Tensor<Floating>, scale: f64) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = fulgurite_kernels::access::read_f64(&input);
        fulgurite_kernels::access::write_f64(out, &values.iter().map(|x| 2.0 * x).collect::<Vec<f64>>());
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), 2.0));
        s.case(with(s.normal([3, 4]), 3.0));
    }
}

/// `-input` of weights that something can be drawn by.
#[operator(name = "wrong::data_accepted", no_grad = "of no interest here")]
pub mod data_accepted {
    fn data_accepted(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(fulgurite_ops::prims::check_weights(input))
    }

    fn reference(input: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        match input.iter().any(|weight| *weight < 0.0) {
            true => Err(Failure::new("Weights", "a weight is negative")),
            false => Ok(-input),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 1.0, [2, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.when_run("Weights", with(e.values([1, 3], [1.0, -1.0, 0.5])), "row 0 of the weights holds -1");
    }
}

/// Does not look at the data.
#[implementation(of = data_accepted, by = careless)]
mod data_accepted_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let out = out.as_mut_slice::<f32>().ok_or_else(|| Failure::new("Layout", "not contiguous"))?;
        out.iter_mut().zip(super::negate(&input)).for_each(|(out, value)| *out = value as f32);
        Ok(())
    }
}
