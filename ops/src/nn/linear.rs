use fulgurite_ops_macros::operator;

use crate::core::arrays::reshaped;
use crate::core::complex_references::{bilinear, both};
use crate::core::parts;
use crate::core::promotion::broadcast;
use crate::prims;

/// `input · weightᵀ + bias`: input `[..., in]`, weight `[out, in]`, bias `[out]`; out `[..., out]`. A weight `[in]`
/// without a bias gives one number a row: out `[...]`.
#[operator(
    torch = "nn.functional.linear",
    autocast = low,
    complex,
)]
pub mod linear {
    fn linear(input: Tensor<Number>, weight: Tensor<Number>, #[default(None)] bias: Option<Tensor<Number>>) -> Tensor;

    fn meta(input: &TensorMeta, weight: &TensorMeta, bias: Option<&TensorMeta>) -> Result<TensorMeta> {
        require!(
            weight.rank() == 2 || (weight.rank() == 1 && bias.is_none()),
            WeightRank,
            "weight has shape {:?}, expected [out, in]{}",
            weight.shape(),
            if bias.is_none() { " or [in]" } else { "" }
        );
        // The number of outputs; none of a vector.
        let outputs = (weight.rank() == 2).then(|| weight.shape()[0]);
        let inputs = weight.shape()[weight.rank() - 1];
        require!(
            input.shape().last() == Some(&inputs),
            InputWidth,
            "input has shape {:?}, expected its last extent to be {inputs}, weight's last",
            input.shape()
        );
        // A vector has no bias.
        if let (Some(bias), Some(expected)) = (bias, outputs) {
            require!(bias.shape() == [expected], BiasShape, "bias has shape {:?}, expected [{expected}]", bias.shape());
        }
        let others = [Some(weight), bias];
        let same = others.into_iter().flatten().all(|other| other.dtype() == input.dtype());
        require!(
            same,
            SameDType,
            "input is {}, weight {}, bias {}: expected equal dtypes",
            input.dtype(),
            weight.dtype(),
            bias.map_or("absent".to_owned(), |bias| bias.dtype().to_string())
        );
        let mut shape = input.shape()[..input.rank() - 1].to_vec();
        shape.extend(outputs);
        Ok(input.with_shape(shape))
    }

    fn decomposition(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
        let flat = rows_of(input);
        let mut shape = input.shape().to_vec();
        shape.pop();
        if weight.rank() == 1 {
            return parts::reshape(multiply(flat, parts::reshape(weight, [weight.size(0), 1])), shape);
        }
        shape.push(weight.size(0));
        let mut out = multiply(flat, parts::permute(weight, [1, 0]));
        if let Some(bias) = bias {
            out = parts::add(out.into(), broadcast(bias, &out.shape()).into());
        }
        if input.rank() == 2 { out } else { parts::reshape(out, shape) }
    }

    fn multiply(a: Tensor, b: Tensor) -> Tensor {
        parts::bilinear(a, b, |a, b| prims::matmul(a, b))
    }

    /// The leading dimensions as one.
    fn rows_of(tensor: Tensor) -> Tensor {
        let shape = tensor.shape().to_vec();
        match &shape[..] {
            [_, _] | [] => tensor,
            [leading @ .., width] => parts::reshape(tensor, [leading.iter().product(), *width]),
        }
    }

    /// Each gradient comes out in its parameter's own layout: `dW = dYᵀ · X` needs no transposed copy.
    fn grad(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = linear::with(input, weight).bias(bias).call();
        (out, move |d_out: Tensor| {
            if weight.rank() == 1 {
                let d_rows = prims::reshape(d_out, [d_out.meta().len(), 1]);
                let d_input = prims::matmul(d_rows, prims::reshape(weight, [1, weight.size(0)]));
                let d_weight = prims::matmul(prims::permute(d_rows, [1, 0]), rows_of(input));
                let (d_input, d_weight) =
                    (prims::reshape(d_input, input.shape()), prims::reshape(d_weight, weight.shape()));
                return Grads { input: d_input, weight: d_weight, bias: None };
            }
            let d_rows = rows_of(d_out);
            // One after the other, so that an executor may take both products as one symbol.
            let d_input = prims::matmul(d_rows, weight);
            let d_weight = prims::matmul(prims::permute(d_rows, [1, 0]), rows_of(input));
            let d_input = prims::reshape(d_input, input.shape());
            // Summed as it is, so that the sums can be computed beside what gives `d_out`; of more dimensions than
            // sequences have, as the product reads it.
            let rows = if (2..=3).contains(&d_out.rank()) { d_out } else { d_rows };
            let leading: Vec<usize> = (0..rows.rank() - 1).collect();
            Grads { input: d_input, weight: d_weight, bias: bias.map(|_| prims::sum(rows, leading)) }
        })
    }

    fn reference(input: &ReferenceTensor, weight: &ReferenceTensor, bias: Option<&ReferenceTensor>) -> ReferenceTensor {
        let product = bilinear(input, weight, product_of);
        bias.map_or(product.clone(), |bias| both(&product, bias, |a, b| a + b, |a, b| a + b))
    }

    fn product_of(input: &ArrayD<f64>, weight: &ArrayD<f64>) -> ArrayD<f64> {
        if weight.ndim() == 1 {
            let matrix = reshaped(weight, &[1, weight.len()]);
            return reshaped(&product_of(input, &matrix), &input.shape()[..input.ndim() - 1]);
        }
        let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
        let mut shape = input.shape().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = outputs;
        }
        ArrayD::from_shape_fn(IxDyn(&shape), |index| {
            let mut at: Vec<usize> = ndarray::Dimension::slice(&index).to_vec();
            let output = at.pop().unwrap_or(0);
            at.push(0);
            (0..inputs)
                .map(|i| {
                    let end = at.len() - 1;
                    at[end] = i;
                    input[at.as_slice()] * weight[[output, i]]
                })
                .sum()
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([3, 8])).bias(s.normal([3])));
        s.case(with(s.normal([2, 3, 5]), s.normal([7, 5])).bias(s.normal([7])));
        s.case(with(s.normal([2, 3, 5]), s.normal([7, 5])));
        s.case(with(s.normal([6]), s.normal([2, 6])));
        s.case(with(s.normal([0, 6]), s.normal([2, 6])).bias(s.normal([2])));
        s.case(with(s.normal([3, 0]), s.normal([2, 0])).bias(s.normal([2])));
        s.case(with(s.normal([33, 65]), s.normal([31, 65])).bias(s.normal([31])));
        s.case(with(s.normal([2, 4, 3]), s.normal([3])));
        s.case(with(s.normal([5]), s.normal([5])));
    }

    fn errors(e: &mut ErrorSamples) {
        let vector = with(e.normal([4, 8]), e.normal([8])).bias(e.normal([1]));
        e.case(WeightRank, vector, "weight has shape [8], expected [out, in]");
        e.case(WeightRank, with(e.normal([4, 8]), e.normal([2, 3, 8])), "expected [out, in] or [in]");
        e.case(InputWidth, with(e.normal([4, 7]), e.normal([3, 8])), "expected its last extent to be 8");
        e.case(InputWidth, with(e.normal([]), e.normal([3, 8])), "expected its last extent to be 8");
        e.case(BiasShape, with(e.normal([4, 8]), e.normal([3, 8])).bias(e.normal([4])), "expected [3]");
        e.case(SameDType, with(e.normal([4, 8]), e.of(DType::F64, [3, 8])), "expected equal dtypes");
    }
}
