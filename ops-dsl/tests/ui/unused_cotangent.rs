//! Cotangents that are not used, and waivers that are wrong.
use fulgurite_ops_macros::operator;

#[operator(prim)]
pub mod first {
    #[results(out, indices, rest)]
    fn first(input: Tensor<Floating>) -> (Tensor, Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        Ok((input.clone(), input.clone(), input.clone()))
    }

    fn grad(input: Tensor) -> ((Tensor, Tensor, Tensor), impl FnOnce((Tensor, Tensor, Tensor)) -> Grads) {
        (first(input), move |(d_out, d_indices, _)| Grads { input: d_out })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, waive(d_out = "it is used", d_indeces = "no such thing"))]
pub mod second {
    #[results(out, indices)]
    fn second(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        Ok((input.clone(), input.clone()))
    }

    fn grad(input: Tensor) -> ((Tensor, Tensor), impl FnOnce((Tensor, Tensor)) -> Grads) {
        (second(input), move |(d_out, _d_indices)| Grads { input: d_out })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {}
