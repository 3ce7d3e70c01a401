//! A residual stream and its normalization in one pass.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::testing::samples::round_to;
use fulgurite_runtime::{DType, Failure};

use super::liger;
use super::norm::{Normalized, rms_norm_gradients};
use super::normalization::{Backward, Forward, eps_or_default, given, gradients, kernels_fit, normalized, row_meta};
use fulgurite_ops::core::promotion::constant_like;
use fulgurite_ops::nn::Casting;
use fulgurite_ops::prims::checks;

/// `sum = input + residual`, its normalization `sum / √(mean(sum²) + eps) · (weight + offset)` over the trailing
/// `normalized_shape`, and each row's `1 / √(mean(sum²) + eps)`, f32.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    cheap,
    in_place(input, residual),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod fused_add_rms_norm {
    #[results(out, sum, rstd)]
    fn fused_add_rms_norm(
        input: Tensor<Floating>,
        residual: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        eps: f64,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { input, residual, normalized_shape, weight, .. } = args;
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        checks::is_like(("residual", residual), input, Code::Residual)?;
        super::kernels_fit(input, &normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((input.clone(), input.clone(), super::row_meta(input, &normalized_shape)))
    }

    fn reference(
        input: &ReferenceTensor,
        residual: &ArrayD<f64>,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        eps: f64,
        offset: f64,
        casting: Casting,
    ) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let dtype = input.dtype();
        let sum = elementwise(&(input.floats() + residual), |sum| round_to(sum, dtype));
        let (out, rstd) = super::normalized((&sum, dtype), normalized_shape, weight, eps, offset, casting);
        (out, sum, rstd)
    }

    fn plan(
        plan: &mut Plan,
        Args { input, residual, weight, eps, offset, casting, .. }: Args<&DeviceTensor>,
        out: &DeviceTensor,
        sum: &DeviceTensor,
        rstd: &DeviceTensor,
    ) -> Result<()> {
        let residual = Some([residual, sum]);
        super::Forward { input, residual, weight, eps, offset, casting, out, rstd }.plan(plan)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], offset: f64, casting: Casting| {
            let shape = [rows, columns].concat();
            let weight = s.uniform(-offset, 2.0 - offset, columns);
            with(s.normal(&shape), s.normal(&shape), columns, weight, 1e-5, offset, casting)
        };
        let cases = [
            call(&[4], &[8], 0.0, Casting::Gemma),
            call(&[4], &[8], 1.0, Casting::Gemma),
            call(&[2], &[3, 5], 0.0, Casting::Llama),
            call(&[], &[7], 0.0, Casting::None),
            call(&[0], &[4], 0.0, Casting::Gemma),
            call(&[700, 8], &[96], 0.0, Casting::Gemma),
            call(&[300], &[2048], 0.0, Casting::Gemma),
            call(&[2], &[16387], 0.0, Casting::Gemma),
        ];
        for case in cases {
            s.case(case);
        }
        let small = with(
            s.values([2, 1], [1e-3, -2e-3]),
            s.values([2, 1], [1e-3, 0.0]),
            [1],
            s.values([1], [1.0]),
            1e-2,
            0.0,
            Casting::Gemma,
        );
        s.case(small);
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), 1e-5, 0.0, Casting::Gemma);
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        e.case(WeightShape, ARGUMENTS.weight.set(good(), of(&[7])), "expected [8]");
        e.case(Residual, ARGUMENTS.residual.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        let empty = with(of(&[4, 0]), of(&[4, 0]), [0], of(&[0]), 1e-5, 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
    }
}

/// The gradients of [`fused_add_rms_norm`]: of input and residual, which is one, and of weight.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    in_place(d_out, d_sum, sum),
    no_grad = "a gradient is not differentiated again"
)]
pub mod fused_add_rms_norm_backward {
    #[results(d_input, d_weight)]
    fn fused_add_rms_norm_backward(
        d_out: Tensor<Floating>,
        d_sum: Tensor<Floating>,
        sum: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        rstd: Tensor<Floating>,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { d_out, d_sum, sum, normalized_shape, weight, rstd, .. } = args;
        let whole = !normalized_shape.is_empty() && sum.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "sum is {sum}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(sum, &normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), sum, Code::Cotangent)?;
        checks::is_like(("d_sum", d_sum), sum, Code::Cotangent)?;
        checks::is_like(("rstd", rstd), &super::row_meta(sum, &normalized_shape), Code::Statistics)?;
        Ok((sum.clone(), weight.clone()))
    }

    fn reference(
        d_out: &ArrayD<f64>,
        d_sum: &ArrayD<f64>,
        sum: &ReferenceTensor,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        rstd: &ArrayD<f64>,
        offset: f64,
        casting: Casting,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        let of_sum = (sum.floats(), sum.dtype());
        let (d_input, d_weight) = super::gradients(d_out, of_sum, normalized_shape, weight, rstd, offset, casting);
        (d_input + d_sum, d_weight)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, d_input: &DeviceTensor, d_weight: &DeviceTensor) -> Result<()> {
        let Args { d_out, d_sum, sum, weight, rstd, offset, casting, .. } = args;
        let (d_sum, input, d_weight) = (Some(d_sum), sum, Some(d_weight));
        super::Backward { d_out, d_sum, input, weight, rstd, offset, casting, d_input, d_weight }.plan(plan)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], offset: f64, casting: Casting| {
            let shape = [rows, columns].concat();
            let weight = s.uniform(-offset, 2.0 - offset, columns);
            let rstd = s.uniform(0.8, 1.2, rows).cast(DType::F32);
            with(s.normal(&shape), s.normal(&shape), s.normal(&shape), columns, weight, rstd, offset, casting)
        };
        let cases = [
            call(&[4], &[8], 0.0, Casting::Gemma),
            call(&[4], &[8], 1.0, Casting::Gemma),
            call(&[2], &[3, 5], 0.0, Casting::Llama),
            call(&[], &[7], 0.0, Casting::None),
            call(&[0], &[4], 0.0, Casting::Gemma),
            call(&[700, 8], &[96], 0.0, Casting::Gemma),
            call(&[300], &[2048], 0.0, Casting::Gemma),
            call(&[2], &[8195], 0.0, Casting::Gemma),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), of(&[4]), 0.0, Casting::Gemma);
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        e.case(WeightShape, ARGUMENTS.weight.set(good(), of(&[9])), "expected [8]");
        e.case(Cotangent, ARGUMENTS.d_sum.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        e.case(Statistics, ARGUMENTS.rstd.set(good(), of(&[5])), "expected f32[4]");
        let empty = with(of(&[4, 0]), of(&[4, 0]), of(&[4, 0]), [0], of(&[0]), of(&[4]), 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
    }
}

#[implementation(of = fulgurite_ops::nn::fused_add_rms_norm, by = liger)]
mod fused_add_rms_norm_by_liger {
    fn checker(input: &TensorMeta, normalized_shape: &[usize], weight: Option<&TensorMeta>) -> Claim {
        let Some(weight) = weight else {
            return Err("takes a weight".into());
        };
        super::kernels_fit(input, normalized_shape, weight)
    }

    fn execution(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, residual, normalized_shape, weight, eps, offset, casting } = args;
        let (weight, eps) = (given(weight), eps_or_default(input, eps));
        let (out, sum, _) = fused_add_rms_norm(input, residual, normalized_shape, weight, eps, offset, casting);
        (out, sum)
    }

    fn grad(args: Args<Tensor>) -> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads) {
        let Args { input, residual, normalized_shape, weight, eps, offset, casting } = args;
        let (weight, eps) = (given(weight), eps_or_default(input, eps));
        let (out, sum, rstd) = fused_add_rms_norm(input, residual, &normalized_shape, weight, eps, offset, casting);
        let shape = normalized_shape;
        ((out, sum), move |cotangents: (Option<Tensor>, Option<Tensor>)| {
            let (d_input, d_weight) = match cotangents {
                (Some(d_out), Some(d_sum)) => {
                    let (d_input, d_weight) =
                        fused_add_rms_norm_backward(d_out, d_sum, sum, shape, weight, rstd, offset, casting);
                    (d_input, Some(d_weight))
                }
                (Some(d_out), None) => {
                    rms_norm_gradients(d_out, Normalized { input: sum, shape, weight, rstd, offset, casting })
                }
                (None, d_sum) => (d_sum.unwrap_or_else(|| constant_like(sum, 0.0)), Some(constant_like(weight, 0.0))),
            };
            Grads { input: d_input, residual: d_input, weight: d_weight }
        })
    }
}
