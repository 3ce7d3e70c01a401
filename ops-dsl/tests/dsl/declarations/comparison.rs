/// Whether `input` is larger.
#[operator(prim, no_grad = "is a predicate")]
pub mod gt {
    fn gt(input: Tensor<Number>, other: Tensor<Number>) -> Tensor;

    fn scalar(input: Expr, other: Expr) -> Expr {
        input.gt(other)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL)
    }
}
