/// The product adds the residual as it is stored.
#[rewrite(executor = cublaslt, executor = super::tf32, keep_inner)]
mod linear_then_add {
    fn pattern(x: Tensor, w: Tensor, r: Tensor) -> Tensor {
        prims::add(prims::matmul(x, w), r)
    }

    fn replacement(x: Tensor, w: Tensor, r: Tensor) -> Tensor {
        product_plus(x, w, r)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 4]), s.normal([4, 3]), s.normal([2, 3])));
    }
}
