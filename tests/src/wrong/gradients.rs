//! Wrong gradients.

use fulgurite_ops_macros::operator;

/// `input · tanh(input)`.
#[operator(name = "wrong::dropped_term")]
pub mod dropped_term {
    use fulgurite_ops::prims;

    fn dropped_term(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::mul(input, prims::tanh(input))
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let gate = prims::tanh(input);
        // Lacks input · (1 - gate²).
        (prims::mul(input, gate), move |d_out| Grads { input: prims::mul(d_out, gate) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * x.tanh())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}

/// `exp(input)`.
#[operator(name = "wrong::cotangent_ignored")]
pub mod cotangent_ignored {
    use fulgurite_ops::prims;

    fn cotangent_ignored(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        prims::exp(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = prims::exp(input);
        // Right for a cotangent of ones, which is what a careless test feeds it.
        (out, move |d_out| Grads { input: prims::add(out, prims::sub(d_out, d_out)) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::exp)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
    }
}
