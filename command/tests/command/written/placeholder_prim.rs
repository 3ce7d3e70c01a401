use fulgurite::prelude::*;

/// PLACEHOLDER: describe what `placeholder_prim` computes, elementwise or along which dimensions, as a formula.
#[operator(prim)]
pub mod placeholder_prim {
    fn placeholder_prim(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: its arithmetic. Kernels for host and device are generated from this, and its meta is derived from
    // this. (A prim that is not elementwise has `meta` instead, and implementations that run it.)
    fn scalar(input: Expr) -> Expr {
        input + input
    }

    // PLACEHOLDER: the outputs, and the cotangent of the input from the cotangent of the outputs.
    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (placeholder_prim(input), move |d_out: Tensor| Grads { input: add(d_out, d_out) })
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
