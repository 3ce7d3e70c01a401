//! What references share of complex numbers: plain ndarray in complex f64, apart from the decompositions.

use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor};
use num_complex::Complex64;

use super::arrays::{joined, zip};

/// Each element by the function of complex numbers if they are, by that of real ones otherwise.
pub fn each(
    input: &ReferenceTensor,
    real: impl Fn(f64) -> f64,
    complex: impl Fn(Complex64) -> Complex64,
) -> ReferenceTensor {
    match input.imaginary() {
        Some(_) => input.complex().mapv(complex).into(),
        None => input.floats().mapv(real).into(),
    }
}

/// As [`each`], of functions of complex numbers that give real ones.
pub fn each_to_real(
    input: &ReferenceTensor,
    real: impl Fn(f64) -> f64,
    complex: impl Fn(Complex64) -> f64,
) -> ReferenceTensor {
    match input.imaginary() {
        Some(_) => input.complex().mapv(complex).into(),
        None => input.floats().mapv(real).into(),
    }
}

/// Two tensors, broadcast against each other, by the function of complex numbers if either is complex.
pub fn both(
    input: &ReferenceTensor,
    other: &ReferenceTensor,
    real: impl Fn(f64, f64) -> f64,
    complex: impl Fn(Complex64, Complex64) -> Complex64,
) -> ReferenceTensor {
    match input.imaginary().or(other.imaginary()) {
        Some(_) => zip(&input.complex(), &other.complex(), complex).into(),
        None => zip(input.floats(), other.floats(), real).into(),
    }
}

/// A product that is linear in both operands, of complex numbers by their parts.
pub fn bilinear(
    input: &ReferenceTensor,
    other: &ReferenceTensor,
    product: impl Fn(&ArrayD<f64>, &ArrayD<f64>) -> ArrayD<f64>,
) -> ReferenceTensor {
    if input.imaginary().is_none() && other.imaginary().is_none() {
        return product(input.floats(), other.floats()).into();
    }
    let parts = |tensor: &ReferenceTensor| {
        let numbers = tensor.complex();
        [numbers.mapv(|z| z.re), numbers.mapv(|z| z.im)]
    };
    let ([a, b], [c, d]) = (parts(input), parts(other));
    joined(&(product(&a, &c) - product(&b, &d)), &(product(&a, &d) + product(&b, &c)))
}

pub fn exp(z: Complex64) -> Complex64 {
    Complex64::new(z.re.exp() * z.im.cos(), z.re.exp() * z.im.sin())
}

/// The principal logarithm: imaginary parts from -π to π.
pub fn log(z: Complex64) -> Complex64 {
    Complex64::new(z.re.hypot(z.im).ln(), z.im.atan2(z.re))
}

/// The principal square root, in polar form: real parts are not negative.
pub fn sqrt(z: Complex64) -> Complex64 {
    let (root, half) = (z.re.hypot(z.im).sqrt(), 0.5 * z.im.atan2(z.re));
    Complex64::new(root * half.cos(), root * half.sin())
}

/// `a^b` in polar form, of `a` that is not zero; see [`super::complex_functions::power`] of zero.
pub fn power(a: Complex64, b: Complex64) -> Complex64 {
    if a.re == 0.0 && a.im == 0.0 {
        return match b.re.partial_cmp(&0.0) {
            Some(std::cmp::Ordering::Greater) => Complex64::new(0.0, 0.0),
            Some(std::cmp::Ordering::Less) => Complex64::new(f64::INFINITY, f64::NAN),
            _ => Complex64::new(f64::NAN, f64::NAN),
        };
    }
    let (size, angle) = (a.re.hypot(a.im), a.im.atan2(a.re));
    let turned = b.re * angle + b.im * size.ln();
    let size = size.powf(b.re) * (-b.im * angle).exp();
    Complex64::new(size * turned.cos(), size * turned.sin())
}

/// `a / b` by the squared magnitude of `b`.
pub fn quotient(a: Complex64, b: Complex64) -> Complex64 {
    let square = b.re * b.re + b.im * b.im;
    Complex64::new((a.re * b.re + a.im * b.im) / square, (a.im * b.re - a.re * b.im) / square)
}

/// `z` with `i · z` for a function, whose value is turned back: `-i · f(i · z)`.
pub fn turned(z: Complex64, function: impl Fn(Complex64) -> Complex64) -> Complex64 {
    let value = function(Complex64::new(-z.im, z.re));
    Complex64::new(value.im, -value.re)
}

/// The hyperbolic sine, by exponentials.
pub fn sinh(z: Complex64) -> Complex64 {
    Complex64::new(z.re.sinh() * z.im.cos(), z.re.cosh() * z.im.sin())
}

/// The hyperbolic cosine.
pub fn cosh(z: Complex64) -> Complex64 {
    Complex64::new(z.re.cosh() * z.im.cos(), z.re.sinh() * z.im.sin())
}

/// The hyperbolic tangent, as a quotient.
pub fn tanh(z: Complex64) -> Complex64 {
    quotient(sinh(z), cosh(z))
}

/// The inverse hyperbolic sine by its logarithm, `log(z + √(z² + 1))`, of the half plane where nothing cancels.
pub fn asinh(z: Complex64) -> Complex64 {
    if z.re < 0.0 || (z.re == 0.0 && z.im < 0.0) {
        return -asinh(-z);
    }
    log(z + sqrt(z * z + 1.0))
}

/// The inverse cosine by its logarithm: `-i · log(z + i · √(1 - z) · √(1 + z))`.
pub fn acos(z: Complex64) -> Complex64 {
    let root = sqrt(Complex64::new(1.0, 0.0) - z) * sqrt(Complex64::new(1.0, 0.0) + z);
    let value = log(z + Complex64::new(-root.im, root.re));
    Complex64::new(value.im, -value.re)
}

/// The inverse hyperbolic cosine by its logarithm: `log(z + √(z - 1) · √(z + 1))`.
pub fn acosh(z: Complex64) -> Complex64 {
    log(z + sqrt(z - 1.0) * sqrt(z + 1.0))
}

/// The inverse hyperbolic tangent by logarithms: `½ · (log(1 + z) - log(1 - z))`.
pub fn atanh(z: Complex64) -> Complex64 {
    (log(Complex64::new(1.0, 0.0) + z) - log(Complex64::new(1.0, 0.0) - z)) * 0.5
}

/// An operand as a tensor; a number has no dimensions.
pub fn as_array(operand: &Operand<ReferenceTensor>) -> ReferenceTensor {
    match operand {
        Operand::Tensor(tensor) => tensor.clone(),
        Operand::Scalar(number) => ReferenceTensor::scalar(number.to_f64()),
    }
}
