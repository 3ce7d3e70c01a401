use fulgurite_ops_macros::operator;

use crate::prims;

/// `total + grad_outputᵀ · input`: total [out, in], grad_output [rows, out], input [rows, in]. The gradient of a linear
/// layer's weight, added to that of other rows. `total` may be f32 for f16 and bf16, the type of the product's sums; an
/// executor may add to it where it is.
#[operator(autocast = keep)]
pub mod accumulate_weight_gradient {
    fn accumulate_weight_gradient(
        total: Tensor<Floating>,
        grad_output: Tensor<Floating>,
        input: Tensor<Floating>,
    ) -> Tensor;

    fn meta(total: &TensorMeta, grad_output: &TensorMeta, input: &TensorMeta) -> Result<TensorMeta> {
        let rank = grad_output.rank() == 2 && input.rank() == 2;
        require!(
            rank && grad_output.shape()[0] == input.shape()[0] && grad_output.dtype() == input.dtype(),
            Rows,
            "grad_output is {grad_output}, input {input}, expected [rows, out] and [rows, in] of one element type"
        );
        let sums = [input.dtype(), input.dtype().accumulator()];
        require!(
            total.shape() == [grad_output.shape()[1], input.shape()[1]] && sums.contains(&total.dtype()),
            Total,
            "total is {total}, expected {}[{}, {}]",
            input.dtype().accumulator(),
            grad_output.shape()[1],
            input.shape()[1]
        );
        Ok(total.clone())
    }

    fn decomposition(total: Tensor, grad_output: Tensor, input: Tensor) -> Tensor {
        let product = prims::matmul::with(prims::permute(grad_output, [1, 0]), input).out_dtype(total.dtype());
        prims::add(total, product.call())
    }

    fn reference(total: &ArrayD<f64>, grad_output: &ArrayD<f64>, input: &ArrayD<f64>) -> ArrayD<f64> {
        let rows = input.shape()[0];
        ArrayD::from_shape_fn(total.raw_dim(), |at| {
            let product: f64 = (0..rows).map(|row| grad_output[[row, at[0]]] * input[[row, at[1]]]).sum();
            total[at] + product
        })
    }

    fn samples(s: &mut Samples) {
        for [rows, outputs, inputs] in [[4, 16, 8], [7, 5, 3], [65, 72, 64], [1, 8, 8], [0, 4, 8], [6, 1, 5], [3, 8, 0]]
        {
            let sum = s.normal([outputs, inputs]).cast(s.dtype().accumulator());
            s.case(with(sum, s.normal([rows, outputs]), s.normal([rows, inputs])));
        }
        s.case(with(s.normal([16, 8]), s.normal([4, 16]), s.normal([4, 8])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rows, with(e.normal([5, 3]), e.normal([4, 5]), e.normal([6, 3])), "expected [rows, out] and [rows, in]");
        e.case(Total, with(e.normal([3, 5]), e.normal([4, 5]), e.normal([4, 3])), "expected f32[5, 3]");
    }
}
