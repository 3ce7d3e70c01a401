use fulgurite::prelude::*;

use super::placeholder_gpu;

/// PLACEHOLDER: describe what `placeholder_kernel` computes, elementwise or along which dimensions, as a formula.
#[operator(executor = placeholder_gpu, dtypes(f32), no_grad = "what calls it has the gradient")]
pub mod placeholder_kernel {
    fn placeholder_kernel(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: shapes and element types of the results. (Several have names: `#[results(out, mean)]` above a
    // signature that returns a tuple, and kernels take each by its name.)
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    // PLACEHOLDER: the launch of the kernel in placeholder_kernel.cu: its name, its grid, and its arguments.
    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count = out.meta.len();
        if count == 0 {
            return Ok(());
        }
        plan.source(source_files!["placeholder_kernel.cu"]);
        let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
        plan.launch("placeholder_kernel", shape, binds![input, out, count])
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
