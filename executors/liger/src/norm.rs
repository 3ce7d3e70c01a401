//! Normalization by the root mean square.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::wants_gradient;
use fulgurite_runtime::{DType, Failure, Tensor};

use super::liger;
use super::normalization::{Backward, Forward, eps_or_default, given, gradients, kernels_fit, normalized, row_meta};
use fulgurite_ops::nn::Casting;
use fulgurite_ops::prims::checks;

/// `input / √(mean(input²) + eps) · (weight + offset)` of rows over the trailing `normalized_shape`, and each row's
/// `1 / √(mean(input²) + eps)`, f32.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    cheap,
    in_place(input),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod rms_norm {
    #[results(out, rstd)]
    fn rms_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        eps: f64,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, normalized_shape: &[usize], weight: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(input, normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((input.clone(), super::row_meta(input, normalized_shape)))
    }

    fn reference(
        input: &ReferenceTensor,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        eps: f64,
        offset: f64,
        casting: Casting,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        super::normalized((input.floats(), input.dtype()), normalized_shape, weight, eps, offset, casting)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor, rstd: &DeviceTensor) -> Result<()> {
        let Args { input, weight, eps, offset, casting, .. } = args;
        super::Forward { input, residual: None, weight, eps, offset, casting, out, rstd }.plan(plan)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], offset: f64, casting: Casting, weight: DType| {
            let weight = s.uniform(-offset, 2.0 - offset, columns).cast(weight);
            with(s.normal([rows, columns].concat()), columns, weight, 1e-5, offset, casting)
        };
        let own = s.dtype();
        let cases = [
            call(&[4], &[8], 0.0, Casting::Gemma, own),
            call(&[4], &[8], 1.0, Casting::Gemma, own),
            call(&[4], &[8], 0.0, Casting::Llama, own),
            call(&[4], &[8], 0.5, Casting::None, own),
            call(&[2], &[3, 5], 0.0, Casting::Gemma, own),
            call(&[], &[7], 0.0, Casting::Gemma, own),
            call(&[0], &[4], 0.0, Casting::Gemma, own),
            call(&[3], &[515], 0.0, Casting::Llama, own),
            call(&[3], &[1], 0.0, Casting::Gemma, own),
            // More rows than the blocks have at a time.
            call(&[700, 8], &[96], 0.0, Casting::Gemma, DType::F32),
            call(&[1500], &[520], 1.0, Casting::Gemma, own),
            call(&[3], &[2048], 0.0, Casting::None, own),
            // Scales of the weight's form, over which they must not be written.
            call(&[1024], &[1024], 0.0, Casting::Gemma, DType::F32),
            call(&[300], &[4096], 0.0, Casting::Gemma, own),
            // Rows that a block cannot keep.
            call(&[2], &[16387], 0.0, Casting::Llama, own),
            call(&[3], &[20480], 1.0, Casting::Gemma, own),
        ];
        for case in cases {
            s.case(case);
        }
        s.case(with(
            s.values([2, 2], [1e-3, -1e-3, 1.0, 2.0]),
            [2],
            s.values([2], [1.0, 1.0]),
            1e-2,
            0.0,
            Casting::Gemma,
        ));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        e.case(TrailingShape, with(of(&[4, 8]), [7], of(&[7]), 1e-5, 0.0, Casting::Gemma), "end with [7]");
        e.case(WeightShape, with(of(&[4, 8]), [8], of(&[7]), 1e-5, 0.0, Casting::Gemma), "expected [8]");
        let empty = with(of(&[4, 0]), [0], of(&[0]), 1e-5, 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
    }
}

/// The gradients of [`rms_norm`]: of input and weight.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    in_place(d_out, input),
    no_grad = "a gradient is not differentiated again"
)]
pub mod rms_norm_backward {
    #[results(d_input, d_weight)]
    fn rms_norm_backward(
        d_out: Tensor<Floating>,
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        rstd: Tensor<Floating>,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { d_out, input, normalized_shape, weight, rstd, .. } = args;
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(input, &normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), input, Code::Cotangent)?;
        checks::is_like(("rstd", rstd), &super::row_meta(input, &normalized_shape), Code::Statistics)?;
        Ok((input.clone(), weight.clone()))
    }

    fn reference(
        d_out: &ArrayD<f64>,
        input: &ReferenceTensor,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        rstd: &ArrayD<f64>,
        offset: f64,
        casting: Casting,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        super::gradients(d_out, (input.floats(), input.dtype()), normalized_shape, weight, rstd, offset, casting)
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, d_input: &DeviceTensor, d_weight: &DeviceTensor) -> Result<()> {
        let Args { d_out, input, weight, rstd, offset, casting, .. } = args;
        let (d_sum, d_weight) = (None, Some(d_weight));
        super::Backward { d_out, d_sum, input, weight, rstd, offset, casting, d_input, d_weight }.plan(plan)
    }

    fn samples(s: &mut Samples) {
        // Sums over more rows than the blocks have at a time, of rows of other lengths.
        let own = s.dtype();
        let longer: [super::GradientSample; 2] =
            [(&[1500], &[520], 1.0, Casting::Gemma, own), (&[140], &[8192], 0.0, Casting::None, own)];
        for (rows, columns, offset, casting, weight) in super::gradient_samples(own).into_iter().chain(longer) {
            let shape = [rows, columns].concat();
            let weight = s.uniform(-offset, 2.0 - offset, columns).cast(weight);
            let rstd = s.uniform(0.8, 1.2, rows).cast(DType::F32);
            s.case(with(s.normal(&shape), s.normal(&shape), columns, weight, rstd, offset, casting));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), of(&[4]), 0.0, Casting::Gemma);
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        e.case(WeightShape, ARGUMENTS.weight.set(good(), of(&[9])), "expected [8]");
        let empty = with(of(&[4, 0]), of(&[4, 0]), [0], of(&[0]), of(&[4]), 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        e.case(Statistics, ARGUMENTS.rstd.set(good(), of(&[5])), "expected f32[4]");
    }
}

/// Rows, columns, offset, casting, and the type of the weight.
type GradientSample = (&'static [usize], &'static [usize], f64, Casting, DType);

/// What both gradients are tried with, of weights in `own` for the most part.
fn gradient_samples(own: DType) -> [GradientSample; 13] {
    [
        (&[4], &[8], 0.0, Casting::Gemma, own),
        (&[4], &[8], 1.0, Casting::Gemma, own),
        (&[4], &[8], 0.0, Casting::Llama, own),
        (&[4], &[8], 0.5, Casting::None, own),
        (&[2], &[3, 5], 0.0, Casting::Gemma, own),
        (&[], &[7], 0.0, Casting::Gemma, own),
        (&[0], &[4], 0.0, Casting::Gemma, own),
        (&[3], &[515], 0.0, Casting::Llama, own),
        (&[3], &[1], 0.0, Casting::Gemma, own),
        // More rows than the blocks have at a time.
        (&[700, 8], &[96], 0.0, Casting::Gemma, DType::F32),
        (&[300], &[4096], 0.0, Casting::Gemma, own),
        // Rows that a block cannot keep.
        (&[2], &[8195], 0.0, Casting::Llama, own),
        (&[70], &[20480], 1.0, Casting::Gemma, own),
    ]
}

/// The gradient of [`rms_norm`] by its input alone, for a weight that is frozen.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    in_place(d_out, input),
    no_grad = "a gradient is not differentiated again"
)]
pub mod rms_norm_input_gradient {
    fn rms_norm_input_gradient(
        d_out: Tensor<Floating>,
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        rstd: Tensor<Floating>,
        offset: f64,
        casting: Casting,
    ) -> Tensor;

    fn meta(Args { d_out, input, normalized_shape, weight, rstd, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(&normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(input, &normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), input, Code::Cotangent)?;
        checks::is_like(("rstd", rstd), &super::row_meta(input, &normalized_shape), Code::Statistics)?;
        Ok(input.clone())
    }

    fn reference(
        d_out: &ArrayD<f64>,
        input: &ReferenceTensor,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        rstd: &ArrayD<f64>,
        offset: f64,
        casting: Casting,
    ) -> ArrayD<f64> {
        super::gradients(d_out, (input.floats(), input.dtype()), normalized_shape, weight, rstd, offset, casting).0
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { d_out, input, weight, rstd, offset, casting, .. } = args;
        let (d_sum, d_input, d_weight) = (None, out, None);
        super::Backward { d_out, d_sum, input, weight, rstd, offset, casting, d_input, d_weight }.plan(plan)
    }

    fn samples(s: &mut Samples) {
        for (rows, columns, offset, casting, weight) in super::gradient_samples(s.dtype()) {
            let shape = [rows, columns].concat();
            let weight = s.uniform(-offset, 2.0 - offset, columns).cast(weight);
            let rstd = s.uniform(0.8, 1.2, rows).cast(DType::F32);
            s.case(with(s.normal(&shape), s.normal(&shape), columns, weight, rstd, offset, casting));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), of(&[4]), 0.0, Casting::Gemma);
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        e.case(WeightShape, ARGUMENTS.weight.set(good(), of(&[9])), "expected [8]");
        let empty = with(of(&[4, 0]), of(&[4, 0]), [0], of(&[0]), of(&[4]), 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        e.case(Statistics, ARGUMENTS.rstd.set(good(), of(&[5])), "expected f32[4]");
    }
}

/// The operands of [`rms_norm_gradients`].
pub struct Normalized {
    /// The tensor that was normalized.
    pub input: Tensor,
    /// The trailing dimensions of it.
    pub shape: Vec<usize>,
    /// What the normalized rows were multiplied with.
    pub weight: Tensor,
    /// The scale of each row, f32.
    pub rstd: Tensor,
    /// What was added to the weight.
    pub offset: f64,
    /// What was rounded on the way.
    pub casting: Casting,
}

/// In a rule: the gradients of input and weight for the cotangent `d_out`. A gradient of the weight that nobody reads
/// is not computed, and `None`.
#[track_caller]
pub fn rms_norm_gradients(d_out: Tensor, of: Normalized) -> (Tensor, Option<Tensor>) {
    let Normalized { input, shape, weight, rstd, offset, casting } = of;
    if !wants_gradient(weight) {
        return (rms_norm_input_gradient(d_out, input, shape, weight, rstd, offset, casting), None);
    }
    let (d_input, d_weight) = rms_norm_backward(d_out, input, shape, weight, rstd, offset, casting);
    (d_input, Some(d_weight))
}

#[implementation(of = fulgurite_ops::nn::rms_norm, by = liger)]
mod rms_norm_by_liger {
    fn checker(input: &TensorMeta, normalized_shape: &[usize], weight: Option<&TensorMeta>) -> Claim {
        let Some(weight) = weight else {
            return Err("takes a weight".into());
        };
        super::kernels_fit(input, normalized_shape, weight)
    }

    fn execution(Args { input, normalized_shape, weight, eps, offset, casting }: Args<Tensor>) -> Tensor {
        rms_norm(input, normalized_shape, given(weight), eps_or_default(input, eps), offset, casting).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, normalized_shape, weight, eps, offset, casting } = args;
        let weight = given(weight);
        let (out, rstd) = rms_norm(input, &normalized_shape, weight, eps_or_default(input, eps), offset, casting);
        let of = Normalized { input, shape: normalized_shape, weight, rstd, offset, casting };
        (out, move |d_out: Tensor| {
            let (d_input, d_weight) = rms_norm_gradients(d_out, of);
            Grads { input: d_input, weight: d_weight }
        })
    }
}
