/// Natural exponential, elementwise: `eˣ`.
#[operator(prim, torch = "exp", overload = Exp)]
pub mod exp {
    fn exp(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input.exp()
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = exp(input);
        (out, move |d_out| Grads { input: d_out * out })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::exp)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}
