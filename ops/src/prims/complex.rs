//! Complex numbers seen as their parts, and parts as complex numbers: the only prims that take or give them. A program
//! that is compiled has them at its inputs and outputs alone: see `docs/src/design.md`.

use fulgurite_ops_macros::operator;

use super::support::{in_parts, of_parts};

/// The real and the imaginary parts of complex numbers, in a last dimension of two.
#[operator(prim, torch = "view_as_real", overload = ViewAsReal)]
pub mod view_as_real {
    fn view_as_real(input: Tensor<Complex>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.in_parts())
    }

    fn view(input: &Strided) -> Option<View> {
        let strides = input.strides.iter().map(|stride| 2 * stride).chain([1]).collect();
        Some(View { strides, offset: 0 })
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (view_as_real(input), move |d_out: Tensor| Grads { input: super::view_as_complex(d_out) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        in_parts(input)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[7], &[4, 6], &[2, 1, 3], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape)));
        }
    }
}

/// The complex numbers whose real and imaginary parts are a last dimension of two. They take the memory of their parts.
#[operator(prim, exact, torch = "view_as_complex", dtypes(f32, f64), overload = ViewAsComplex)]
pub mod view_as_complex {
    fn view_as_complex(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        let complex = input.of_parts();
        require!(
            complex.is_some(),
            Parts,
            "input has shape {:?}, expected a last dimension of two: real and imaginary parts",
            input.shape()
        );
        Ok(complex.unwrap_or_else(|| input.clone()))
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (view_as_complex(input), move |d_out: Tensor| Grads { input: super::view_as_real(d_out) })
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        of_parts(input)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[2][..], &[7, 2], &[4, 6, 2], &[2, 1, 2], &[0, 3, 2], &[67, 65, 2]] {
            s.case(with(s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Parts, with(e.normal([2, 3])), "input has shape [2, 3], expected a last dimension of two");
        e.case(Parts, with(e.normal([])), "input has shape [], expected a last dimension of two");
    }
}
