//! Complex numbers: made of real ones, and taken apart again. Arithmetic and functions of complex numbers are those of
//! real ones, where these take them.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::Tensor;

use super::arrays::{joined, zip};
use super::complex_references::{each, each_to_real};
use super::detach;
use super::parts::{Complex, is_complex};
use super::promotion::{broadcast, broadcast_shapes, cast, constant_like, floating};
use crate::prims;
use crate::prims::checks::same_dtype;
use crate::prims::support::{in_parts, of_parts};

// Declares complex numbers of two real ones, which broadcast.
operators! {
    #[operator(torch = $torch, dtypes(f32, f64))]
    pub mod $name {
        fn $name($first: Tensor<Floating>, $second: Tensor<Floating>) -> Tensor;

        fn meta($first: &TensorMeta, $second: &TensorMeta) -> Result<TensorMeta> {
            same_dtype((stringify!($first), $first), (stringify!($second), $second), Code::SameDType)?;
            let shape = broadcast_shapes(&[$first.shape(), $second.shape()]);
            require!(
                shape.is_some(),
                Broadcast,
                "shapes {:?} and {:?} do not broadcast",
                $first.shape(),
                $second.shape()
            );
            let dtype = $first.dtype().complex().unwrap_or($first.dtype());
            Ok($first.with_shape(shape.unwrap_or_default()).with_dtype(dtype))
        }

        fn decomposition($first: Tensor, $second: Tensor) -> Tensor {
            let shape = broadcast_shapes(&[&$first.shape(), &$second.shape()]).unwrap_or_default();
            let [first, second] = [$first, $second].map(|part| broadcast(part, &shape));
            let parts: fn(Tensor, Tensor) -> Complex = $value;
            parts(first, second).tensor()
        }

        fn reference($first: &ArrayD<f64>, $second: &ArrayD<f64>) -> ReferenceTensor {
            joined(&zip($first, $second, $re), &zip($first, $second, $im))
        }

        fn samples(s: &mut Samples) {
            for (a, b) in [(&[][..], &[][..]), (&[0, 3], &[1]), (&[3, 1, 5], &[7, 5])] {
                s.case(with(s.uniform($least, 3.0, a), s.normal(b)));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(SameDType, with(e.normal([2]), e.of(DType::F64, [2])), "is f64");
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $first, $second, $least, $value, $re, $im) {
        /// The complex numbers with these real and imaginary parts.
        complex, "complex", real, imag, -3.0, |re: Tensor, im: Tensor| Complex { re, im }, |a, _| a, |_, b| b;
        /// The complex numbers at this distance from zero and this angle, in radians: `abs · e^(i · angle)`. The
        /// gradient by `abs` is that of the product, also of numbers that are no distances; PyTorch's is zero at zero,
        /// and has the other sign below it.
        polar, "polar", abs, angle, 0.1,
            |size: Tensor, angle: Tensor| Complex {
                re: prims::mul(size, prims::cos(angle)),
                im: prims::mul(size, prims::sin(angle)),
            },
            |size: f64, angle: f64| size * angle.cos(),
            |size: f64, angle: f64| size * angle.sin();
    }
}

/// The real and the imaginary parts of complex numbers, in a last dimension of two: the same memory.
#[operator(torch = "view_as_real")]
pub mod view_as_real {
    fn view_as_real(input: Tensor<Complex>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.in_parts())
    }

    fn decomposition(arguments: Arguments) -> Tensor {
        prims::view_as_real::call(arguments)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        in_parts(input)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[][..], &[4, 6], &[0, 3]] {
            s.case(with(s.normal(shape)));
        }
    }
}

/// The complex numbers whose real and imaginary parts are a last dimension of two: the same memory where they are
/// adjacent.
#[operator(torch = "view_as_complex", dtypes(f32, f64))]
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

    fn decomposition(arguments: Arguments) -> Tensor {
        prims::view_as_complex::call(arguments)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        of_parts(input)
    }

    fn samples(s: &mut Samples) {
        for shape in [&[2][..], &[4, 6, 2], &[0, 3, 2]] {
            s.case(with(s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Parts, with(e.normal([2, 3])), "input has shape [2, 3], expected a last dimension of two");
    }
}

/// The real part of each element; a real tensor is its own.
#[operator(torch = "real", complex)]
pub mod real {
    fn real(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(input.dtype().part()))
    }

    fn decomposition(input: Tensor) -> Tensor {
        if is_complex(input) { Complex::of(input).re } else { input }
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        super::real_part(input)
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// The imaginary part of each complex number.
#[operator(torch = "imag")]
pub mod imag {
    fn imag(input: Tensor<Complex>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(input.dtype().part()))
    }

    fn decomposition(input: Tensor) -> Tensor {
        Complex::of(input).im
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        each_to_real(input, |_| 0.0, |z| z.im)
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

// Declares the conjugate by its names. There are no lazy conjugates: each is computed.
operators! {
    #[operator(torch = $torch, complex)]
    pub mod $name {
        fn $name(input: Tensor) -> Tensor;

        fn meta(input: &TensorMeta) -> Result<TensorMeta> {
            Ok(input.clone())
        }

        fn decomposition(input: Tensor) -> Tensor {
            if is_complex(input) { Complex::of(input).conjugate().tensor() } else { input }
        }

        fn reference(input: &ReferenceTensor) -> ReferenceTensor {
            super::conjugate_of(input)
        }

        fn samples(s: &mut Samples) {
            s.composed_unary(Domain::ALL);
        }
    }

    table($name, $torch) {
        /// The conjugate of each complex number, `a - bi` of `a + bi`; a real tensor is its own.
        conj, "conj";
        /// The conjugate of each complex number: see [`conj`](super::conj), which computes it as well.
        conj_physical, "conj_physical";
    }
}

/// The tensor itself: conjugates are computed where they are asked for.
#[operator(torch = "resolve_conj", complex)]
pub mod resolve_conj {
    fn resolve_conj(input: Tensor) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
    }
}

/// The angle of each complex number with the axis of real ones, in radians from -π to π; of real numbers π below zero
/// and 0 from there on. The gradient at zero, and by real numbers, is zero, also at NaN.
#[operator(torch = "angle", complex)]
pub mod angle {
    fn angle(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.with_dtype(floating(input.dtype()).part()))
    }

    fn decomposition(input: Tensor) -> Tensor {
        if is_complex(input) {
            return Complex::of(input).angle();
        }
        let input = cast(input, floating(input.dtype()));
        let right = constant_like(input, 0.0);
        let angle = prims::select(prims::lt(input, 0.0), std::f64::consts::PI, right);
        prims::select(prims::ne(input, input), detach(input), angle)
    }

    fn reference(input: &ReferenceTensor) -> ReferenceTensor {
        let of_real = |x: f64| if x.is_nan() { x } else { f64::from(u8::from(x < 0.0)) * std::f64::consts::PI };
        each_to_real(input, of_real, |z| z.im.atan2(z.re))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        if s.dtype().is_floating() {
            s.case(with(s.values([3], [f64::NAN, -2.0, 3.0]))).forward_only("NaN").gradients([&[0.0; 3]]);
        }
    }
}

/// For references: the real part, and a real tensor as it is.
fn real_part(input: &fulgurite_runtime::rules::ReferenceTensor) -> fulgurite_runtime::rules::ReferenceTensor {
    match input.imaginary() {
        Some(_) => input.floats().clone().into(),
        None => input.clone(),
    }
}

/// For references: the conjugate, and a real tensor as it is.
fn conjugate_of(input: &fulgurite_runtime::rules::ReferenceTensor) -> fulgurite_runtime::rules::ReferenceTensor {
    match input.imaginary() {
        Some(_) => each(input, |x| x, |z| z.conj()),
        None => input.clone(),
    }
}
