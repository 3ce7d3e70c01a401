use fulgurite::prelude::*;

use super::placeholder_fast;

/// PLACEHOLDER: describe what `placeholder_symbol` computes, elementwise or along which dimensions, as a formula.
#[operator(executor = placeholder_fast, dtypes(f32), no_grad = "what calls it has the gradient")]
pub mod placeholder_symbol {
    fn placeholder_symbol(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: shapes and element types of the results. (Several have names: `#[results(out, mean)]` above a
    // signature that returns a tuple, and kernels take each by its name.)
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    // PLACEHOLDER: the kernel. Operands and results are contiguous; write every element of the result.
    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let input: &[f32] = input.contiguous("input")?;
        let out: &mut [f32] = out.contiguous_mut("out")?;
        for (x, y) in input.iter().zip(out) {
            *y = x + x;
        }
        Ok(())
    }

    // PLACEHOLDER: the same in f64, straight from the formula and written independently. The consistency tests fail
    // until it is written and the two agree.
    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |_| todo!("{}: write the rules, `reference` and `samples` at PLACEHOLDER", file!()))
    }

    // PLACEHOLDER: inputs on which the two must agree, with every argument: typical ones, zero-dimensional and empty
    // ones, odd sizes, extreme values. `s.case(with(s.normal([4, 8])))` adds one.
    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(0.5, 2.0));
    }
}
