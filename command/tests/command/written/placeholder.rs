use fulgurite::prelude::*;

/// PLACEHOLDER: describe what `placeholder` computes, elementwise or along which dimensions, as a formula.
#[operator(torch = "nn.functional.softsign")]
pub mod placeholder {
    fn placeholder(input: Tensor<Floating>) -> Tensor;

    // PLACEHOLDER: the operator in terms of other operators. Its meta and its gradient are derived from this.
    fn decomposition(input: Tensor) -> Tensor {
        add(input, input)
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
