use fulgurite::prelude::*;

use super::sim;

/// PLACEHOLDER: describe what `halves` computes, elementwise or along which dimensions, as a formula.
#[operator(executor = sim, dtypes(f32), no_grad = "what calls it has the gradient")]
pub mod halves {
    fn halves(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: shapes and element types of the results. (Several have names: `#[results(out, mean)]` above a
    // signature that returns a tuple, and kernels take each by its name.)
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    // PLACEHOLDER: the device work: fills, copies, and library calls (`plan.library`) with payloads of the
    // kind `sim`. (An underscore marks an unused argument.)
    fn plan(_plan: &mut Plan, _input: &DeviceTensor, _out: &DeviceTensor) -> Result<()> {
        todo!("{}: write the device work at PLACEHOLDER", file!())
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
