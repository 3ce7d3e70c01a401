use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::linear;
use crate::core::promotion::cast;
use crate::prims;

/// [`linear`] of matrices whose operands an executor may round to 8 bits by factors that are known before the operands
/// are read: *delayed* scaling. `largest`, f32[3], has the largest magnitudes that are expected of `input`, of `weight`
/// and of the result's gradient. What is larger is cut off there; 0 stands for the largest number of the 8-bit format.
///
/// The gradient of `largest` is no derivative: it has the largest magnitudes of `input`, of `weight` and of the
/// result's gradient, as they were. The training loop passes these, or the largest of the last steps, to the next step;
/// but not those that are infinite or NaN, with which every result would be NaN. The first step needs figures from
/// elsewhere. Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
#[operator(
    autocast = low,
    autocast_keeps(largest),
    waive(largest = "kernels that compute in more than 8 bits need no factors")
)]
pub mod delayed_linear {
    fn delayed_linear(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        largest: Tensor<Floating>,
        #[default(None)] bias: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn meta(Args { input, weight, largest, bias }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let weight_shape = super::matrices(input, weight);
        require!(weight_shape.is_ok(), Matrices, "{}", weight_shape.err().unwrap_or_default());
        let outputs = weight.shape()[0];
        for (name, other) in [("weight", Some(weight)), ("bias", bias)] {
            let Some(other) = other else { continue };
            require!(other.dtype() == input.dtype(), SameDType, "{name} is {}, input {}", other.dtype(), input.dtype());
        }
        if let Some(bias) = bias {
            require!(bias.shape() == [outputs], BiasShape, "bias has shape {:?}, expected [{outputs}]", bias.shape());
        }
        require!(super::is_largest(largest), Largest, "largest is {largest}, expected f32[3]");
        Ok(input.with_shape([input.shape()[0], outputs]))
    }

    fn decomposition(input: Tensor, weight: Tensor, _largest: Tensor, bias: Option<Tensor>) -> Tensor {
        linear::with(input, weight).bias(bias).call()
    }

    fn grad(Args { input, weight, largest, bias }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = delayed_linear::with(input, weight, largest).bias(bias).call();
        (out, move |d_out: Tensor| {
            let (d_input, d_weight, seen) = delayed_linear_backward(d_out, weight, input, largest);
            Grads { input: d_input, weight: d_weight, largest: seen, bias: bias.map(|_| prims::sum(d_out, [0])) }
        })
    }

    fn reference(Args { input, weight, bias, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let product = crate::core::arrays::product(input, &weight.t().to_owned());
        bias.map_or(product.clone(), |bias| product + bias)
    }

    fn samples(s: &mut Samples) {
        // The cotangents of the result are 1, 2, 3 and 4.
        let (input, weight) = (s.values([2, 2], [1.0, -2.0, 4.0, 0.5]), s.values([2, 2], [1.0, 0.25, -8.0, 2.0]));
        let known = s.values([3], [4.0, 8.0, 4.0]).cast(DType::F32);
        s.case(with(input, weight, known).bias(s.values([2], [1.0, -1.0])))
            .forward_only("the gradient of largest is no derivative")
            .gradients([&[-15.0, 4.25, -29.0, 8.75], &[13.0, -0.5, 18.0, -2.0], &[4.0, 8.0, 4.0], &[4.0, 6.0]]);
        for (rows, inputs, outputs) in [(32, 48, 16), (64, 16, 80), (7, 3, 5), (0, 8, 16)] {
            let layer =
                with(s.normal([rows, inputs]), s.normal([outputs, inputs]), s.uniform(4.0, 5.0, [3]).cast(DType::F32));
            s.case(layer.bias(s.normal([outputs]))).forward_only("the gradient of largest is no derivative");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let known = || e.of(DType::F32, [3]);
        e.case(Matrices, with(e.normal([4, 8]), e.normal([8]), known()), "weight has shape [8], expected [out, in]");
        e.case(Matrices, with(e.normal([2, 4, 8]), e.normal([3, 8]), known()), "input has shape [2, 4, 8], expected");
        e.case(
            Matrices,
            with(e.normal([4, 7]), e.normal([3, 8]), known()),
            "input has shape [4, 7], expected [rows, 8]",
        );
        e.case(SameDType, with(e.normal([4, 8]), e.of(DType::F64, [3, 8]), known()), "weight is f64, input");
        let bias = with(e.normal([4, 8]), e.normal([3, 8]), known()).bias(e.normal([4]));
        e.case(BiasShape, bias, "bias has shape [4], expected [3]");
        let two = with(e.normal([4, 8]), e.normal([3, 8]), e.of(DType::F32, [2]));
        e.case(Largest, two, "largest is f32[2]");
    }
}

/// What the gradient rule of [`delayed_linear`] computes: the gradients of input [rows, in] and weight [out, in] for
/// the gradient `grad_output` [rows, out] of the result, and the largest magnitudes of input, weight and `grad_output`,
/// f32[3]. `largest` has those that are expected.
#[operator(
    no_grad = "gradients of layers of 8 bits are not differentiated again",
    autocast = keep,
    waive(largest = "kernels that compute in more than 8 bits need no factors")
)]
pub mod delayed_linear_backward {
    #[results(d_input, d_weight, seen)]
    fn delayed_linear_backward(
        grad_output: Tensor<Floating>,
        weight: Tensor<Floating>,
        input: Tensor<Floating>,
        largest: Tensor<Floating>,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { grad_output, weight, input, largest } = args;
        let weight_shape = super::matrices(input, weight);
        require!(weight_shape.is_ok(), Matrices, "{}", weight_shape.err().unwrap_or_default());
        let expected = input.with_shape([input.shape()[0], weight.shape()[0]]);
        require!(*grad_output == expected, GradOutput, "grad_output is {grad_output}, expected {expected}");
        require!(weight.dtype() == input.dtype(), SameDType, "weight is {}, input {}", weight.dtype(), input.dtype());
        require!(super::is_largest(largest), Largest, "largest is {largest}, expected f32[3]");
        Ok((input.clone(), weight.clone(), largest.clone()))
    }

    fn decomposition(grad_output: Tensor, weight: Tensor, input: Tensor, _largest: Tensor) -> (Tensor, Tensor, Tensor) {
        let d_input = prims::matmul(grad_output, weight);
        let d_weight = prims::matmul(prims::permute(grad_output, [1, 0]), input);
        let seen = prims::cat([input, weight, grad_output].map(super::magnitude), 0);
        (d_input, d_weight, seen)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { grad_output, weight, input, .. } = args;
        let product = crate::core::arrays::product;
        let seen = [input, weight, grad_output].map(|array| array.iter().fold(0.0, |most: f64, x| most.max(x.abs())));
        let seen = ArrayD::from_shape_vec(IxDyn(&[3]), seen.to_vec()).unwrap_or_default();
        (product(grad_output, weight), product(&grad_output.t().to_owned(), input), seen)
    }

    fn samples(s: &mut Samples) {
        for (rows, inputs, outputs) in [(32, 48, 16), (64, 16, 80), (80, 144, 96), (7, 3, 5), (0, 8, 16)] {
            let (weight, input) = (s.normal([outputs, inputs]), s.normal([rows, inputs]));
            s.case(with(s.normal([rows, outputs]), weight, input, s.uniform(4.0, 5.0, [3]).cast(DType::F32)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let known = || e.of(DType::F32, [3]);
        let of = |d: &[usize], w: &[usize], x: &[usize]| with(e.normal(d), e.normal(w), e.normal(x), known());
        e.case(Matrices, of(&[4, 3], &[8], &[4, 8]), "weight has shape [8], expected [out, in]");
        e.case(GradOutput, of(&[4, 2], &[3, 8], &[4, 8]), "grad_output is");
        let differ = with(e.normal([4, 3]), e.of(DType::F64, [3, 8]), e.normal([4, 8]), known());
        e.case(SameDType, differ, "weight is f64, input");
        let two = with(e.normal([4, 3]), e.normal([3, 8]), e.normal([4, 8]), e.of(DType::F32, [2]));
        e.case(Largest, two, "largest is f32[2]");
    }
}

/// What is wrong with the shapes of a layer's input [rows, in] and weight [out, in].
fn matrices(input: &fulgurite_runtime::TensorMeta, weight: &fulgurite_runtime::TensorMeta) -> Result<(), String> {
    let &[_, inputs] = weight.shape() else {
        return Err(format!("weight has shape {:?}, expected [out, in]", weight.shape()));
    };
    match input.shape() {
        [_, width] if *width == inputs => Ok(()),
        other => Err(format!("input has shape {other:?}, expected [rows, {inputs}], as wide as weight's rows")),
    }
}

fn is_largest(largest: &fulgurite_runtime::TensorMeta) -> bool {
    largest.shape() == [3] && largest.dtype() == fulgurite_runtime::DType::F32
}

/// The largest magnitude of a tensor, f32[1]; 0 of no elements.
#[track_caller]
fn magnitude(tensor: Tensor) -> Tensor {
    if tensor.meta().is_empty() {
        return prims::full([1_usize], 0.0, fulgurite_runtime::DType::F32, tensor.device());
    }
    let dims: Vec<usize> = (0..tensor.rank()).collect();
    prims::reshape(cast(prims::amax(prims::abs(tensor), dims), fulgurite_runtime::DType::F32), [1])
}
