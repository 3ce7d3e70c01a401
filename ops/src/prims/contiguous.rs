use fulgurite_ops_macros::operator;

/// The same values in row-major order. A program may have them written so at once, in place of a copy.
#[operator(prim, exact, overload = Contiguous)]
pub mod contiguous {
    fn contiguous(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn scalar(input: Expr) -> Expr {
        input
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (contiguous(input), move |d_out: Tensor| Grads { input: d_out })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 8], &[3, 1, 5], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape)));
        }
    }
}
