//! Settings that are unknown, of the wrong form, or contradict each other.
use fulgurite_ops_macros::operator;

#[operator(prim, torhc = "exp", no_grad, name = 3, prim, effects(randon, mutates(input), aliases(out, input)))]
pub mod copy {
    fn copy(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test", torch = "torch.exp")]
pub mod exp {
    fn exp(input: Tensor) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input.exp()
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = exp(input);
        (out, move |d_out| Grads { input: d_out * out })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {
    let _ = (copy, exp);
}
