//! Complex numbers as pairs of real ones, for decompositions: what prims do for real tensors, of real and of complex
//! ones alike. The parts of complex numbers are a last dimension of two; prims compute with them as with any dimension.

use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::{DType, Tensor};

use crate::prims::{self, support::constant};

/// Whether the elements are complex.
pub fn is_complex(tensor: Tensor) -> bool {
    tensor.dtype().is_complex()
}

/// Whether any of the operands is a complex tensor.
pub fn any_complex(operands: &[Operand<Tensor>]) -> bool {
    operands.iter().any(|operand| operand.tensor().is_some_and(|tensor| is_complex(*tensor)))
}

/// `change` of a real tensor, or of the parts of a complex one; it is told the dimensions behind the tensor's own.
#[track_caller]
fn on_parts(tensor: Tensor, change: impl FnOnce(Tensor, &[usize]) -> Tensor) -> Tensor {
    match is_complex(tensor) {
        true => prims::view_as_complex(change(prims::view_as_real(tensor), &[2])),
        false => change(tensor, &[]),
    }
}

/// `change` of real numbers, or of both parts of complex ones, which it treats alike.
#[track_caller]
pub fn each(tensor: Tensor, change: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    on_parts(tensor, |parts, _| change(parts))
}

/// As [`prims::reshape`](fn@prims::reshape).
#[track_caller]
pub fn reshape(tensor: Tensor, shape: impl AsRef<[usize]>) -> Tensor {
    on_parts(tensor, |parts, pair| prims::reshape(parts, [shape.as_ref(), pair].concat()))
}

/// As [`prims::permute`](fn@prims::permute).
#[track_caller]
pub fn permute(tensor: Tensor, dims: impl AsRef<[usize]>) -> Tensor {
    let dims = dims.as_ref();
    let last = [dims.len()];
    on_parts(tensor, |parts, pair| prims::permute(parts, [dims, &last[..pair.len()]].concat()))
}

/// As [`prims::broadcast_in_dim`](fn@prims::broadcast_in_dim).
#[track_caller]
pub fn broadcast_in_dim(tensor: Tensor, shape: impl AsRef<[usize]>, dims: impl AsRef<[usize]>) -> Tensor {
    let (shape, dims) = (shape.as_ref(), dims.as_ref());
    let last = [shape.len()];
    on_parts(tensor, |parts, pair| {
        prims::broadcast_in_dim(parts, [shape, pair].concat(), [dims, &last[..pair.len()]].concat())
    })
}

/// As [`prims::slice`](fn@prims::slice).
#[track_caller]
pub fn slice(
    tensor: Tensor,
    starts: impl AsRef<[usize]>,
    ends: impl AsRef<[usize]>,
    steps: impl AsRef<[usize]>,
) -> Tensor {
    on_parts(tensor, |parts, pair| {
        let (from, by) = (&[0][..pair.len()], &[1][..pair.len()]);
        let starts = [starts.as_ref(), from].concat();
        prims::slice(parts, starts, [ends.as_ref(), pair].concat(), [steps.as_ref(), by].concat())
    })
}

/// As [`prims::cat`](fn@prims::cat).
#[track_caller]
pub fn cat(tensors: impl AsRef<[Tensor]>, dim: usize) -> Tensor {
    let tensors = tensors.as_ref();
    if !tensors.iter().any(|tensor| is_complex(*tensor)) {
        return prims::cat(tensors, dim);
    }
    let parts: Vec<Tensor> = tensors.iter().map(|tensor| prims::view_as_real(*tensor)).collect();
    prims::view_as_complex(prims::cat(parts, dim))
}

/// As [`prims::flip`](fn@prims::flip).
#[track_caller]
pub fn flip(tensor: Tensor, dims: impl AsRef<[usize]>) -> Tensor {
    each(tensor, |parts| prims::flip(parts, dims))
}

/// As [`prims::index_select`](fn@prims::index_select).
#[track_caller]
pub fn index_select(tensor: Tensor, dim: usize, index: Tensor) -> Tensor {
    each(tensor, |parts| prims::index_select(parts, dim, index))
}

/// As [`prims::gather`](fn@prims::gather).
#[track_caller]
pub fn gather(tensor: Tensor, dim: usize, index: Tensor) -> Tensor {
    on_parts(tensor, |parts, pair| {
        let places: Vec<usize> = (0..index.rank()).collect();
        let both = [&*index.shape(), pair].concat();
        prims::gather(parts, dim, if pair.is_empty() { index } else { prims::broadcast_in_dim(index, both, places) })
    })
}

/// As [`prims::prod`](fn@prims::prod). Complex numbers are multiplied by halves, two at a time, so that the gradient is
/// that of products, also where elements are zero.
#[track_caller]
pub fn prod(tensor: Tensor, dims: impl AsRef<[usize]>) -> Tensor {
    if !is_complex(tensor) {
        return prims::prod(tensor, dims);
    }
    let shape = tensor.shape().to_vec();
    let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..shape.len()).partition(|dim| dims.as_ref().contains(dim));
    let extents = |dims: &[usize]| dims.iter().map(|dim| shape[*dim]).collect::<Vec<_>>();
    let (outer, mut count) = (extents(&kept), extents(&reduced).iter().product::<usize>());
    if count == 0 {
        return Complex::real(prims::full(outer, 1i64, tensor.dtype().part(), tensor.device())).tensor();
    }
    let last = outer.len();
    let mut factors = reshape(permute(tensor, [&kept[..], &reduced].concat()), [&outer[..], &[count]].concat());
    let part = |factors: Tensor, from: usize, to: usize| {
        let (mut starts, mut ends) = (vec![0; last + 1], factors.shape().to_vec());
        (starts[last], ends[last]) = (from, to);
        slice(factors, starts, ends, vec![1; last + 1])
    };
    while count > 1 {
        let half = count / 2;
        let pairs = mul(part(factors, 0, half).into(), part(factors, half, 2 * half).into());
        factors = if count % 2 == 0 { pairs } else { cat([pairs, part(factors, 2 * half, count)], last) };
        count = half + count % 2;
    }
    reshape(factors, outer)
}

/// As [`prims::sum`](fn@prims::sum).
#[track_caller]
pub fn sum(tensor: Tensor, dims: impl AsRef<[usize]>) -> Tensor {
    each(tensor, |parts| prims::sum(parts, dims))
}

/// As [`prims::neg`](fn@prims::neg).
#[track_caller]
pub fn neg(tensor: Tensor) -> Tensor {
    each(tensor, prims::neg)
}

/// As [`prims::add`](fn@prims::add).
#[track_caller]
pub fn add(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    sum_of(input, other, |a, b| prims::add(a, b))
}

/// As [`prims::sub`](fn@prims::sub).
#[track_caller]
pub fn sub(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    sum_of(input, other, |a, b| prims::sub(a, b))
}

#[track_caller]
fn sum_of(
    input: Operand<Tensor>,
    other: Operand<Tensor>,
    combine: impl Fn(Operand<Tensor>, Operand<Tensor>) -> Tensor,
) -> Tensor {
    match (input, other) {
        (Operand::Tensor(a), Operand::Tensor(b)) if is_complex(a) => {
            let [a, b] = [a, b].map(|tensor| Operand::Tensor(prims::view_as_real(tensor)));
            prims::view_as_complex(combine(a, b))
        }
        _ if any_complex(&[input, other]) => {
            let [a, b] = pair([input, other]);
            Complex { re: combine(a.re.into(), b.re.into()), im: combine(a.im.into(), b.im.into()) }.tensor()
        }
        _ => combine(input, other),
    }
}

/// As [`prims::mul`](fn@prims::mul).
#[track_caller]
pub fn mul(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    match (input, other) {
        _ if !any_complex(&[input, other]) => prims::mul(input, other),
        (Operand::Tensor(tensor), Operand::Scalar(number)) | (Operand::Scalar(number), Operand::Tensor(tensor)) => {
            each(tensor, |parts| prims::mul(parts, number))
        }
        _ => {
            let [a, b] = pair([input, other]);
            a.times(b).tensor()
        }
    }
}

/// As [`prims::div`](fn@prims::div).
#[track_caller]
pub fn div(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    match (input, other) {
        _ if !any_complex(&[input, other]) => prims::div(input, other),
        (Operand::Tensor(tensor), Operand::Scalar(number)) => each(tensor, |parts| prims::div(parts, number)),
        _ => {
            let [a, b] = pair([input, other]);
            a.over(b).tensor()
        }
    }
}

/// As [`prims::select`](fn@prims::select), by a condition for each number.
#[track_caller]
pub fn select(condition: Tensor, input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    if !any_complex(&[input, other]) {
        return prims::select(condition, input, other);
    }
    let [a, b] = pair([input, other]);
    let part = |a: Tensor, b: Tensor| prims::select(condition, a, b);
    Complex { re: part(a.re, b.re), im: part(a.im, b.im) }.tensor()
}

/// As [`prims::eq`](fn@prims::eq): both parts are equal.
#[track_caller]
pub fn eq(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    if !any_complex(&[input, other]) {
        return prims::eq(input, other);
    }
    let [a, b] = pair([input, other]);
    prims::logical_and(prims::eq(a.re, b.re), prims::eq(a.im, b.im))
}

/// As [`prims::ne`](fn@prims::ne): a part differs.
#[track_caller]
pub fn ne(input: Operand<Tensor>, other: Operand<Tensor>) -> Tensor {
    if !any_complex(&[input, other]) {
        return prims::ne(input, other);
    }
    let [a, b] = pair([input, other]);
    prims::logical_or(prims::ne(a.re, b.re), prims::ne(a.im, b.im))
}

/// `product` of matrices in each of the ways that a product of complex numbers takes: of real ones once, of complex
/// ones of their parts.
#[track_caller]
pub fn bilinear(a: Tensor, b: Tensor, product: impl Fn(Tensor, Tensor) -> Tensor) -> Tensor {
    if !is_complex(a) {
        return product(a, b);
    }
    let [a, b] = [a, b].map(Complex::of);
    let re = prims::sub(product(a.re, b.re), product(a.im, b.im));
    let im = prims::add(product(a.re, b.im), product(a.im, b.re));
    Complex { re, im }.tensor()
}

/// A tensor of `size` in `dtype`, which is complex, every element the real number `value`.
#[track_caller]
pub fn full(value: Scalar, size: &[usize], dtype: DType, device: &str) -> Tensor {
    let re = prims::full(size, value, dtype.part(), device);
    Complex::real(re).tensor()
}

/// `tensor` in `dtype`, which is complex.
#[track_caller]
pub fn cast_to_complex(tensor: Tensor, dtype: DType) -> Tensor {
    let convert = |tensor: Tensor| match tensor.dtype() == dtype.part() {
        true => tensor,
        false => prims::convert_element_type(tensor, dtype.part()),
    };
    match is_complex(tensor) {
        true => each(tensor, convert),
        false => Complex::real(convert(tensor)).tensor(),
    }
}

/// Both operands in parts. One of them is a complex tensor; numbers are repeated as often as it has elements.
#[track_caller]
pub fn pair(operands: [Operand<Tensor>; 2]) -> [Complex; 2] {
    let parts = operands.map(|operand| operand.tensor().map(|tensor| Complex::of(*tensor)));
    let like = parts.iter().flatten().next().map(|known| known.re);
    let mut both = operands.into_iter().zip(parts).map(|(operand, known)| match (known, operand, like) {
        (Some(known), ..) => known,
        (None, Operand::Scalar(number), Some(like)) => Complex::real(constant(like, number.to_f64())),
        (None, ..) => unreachable!("one of the operands is a tensor"),
    });
    [(); 2].map(|()| both.next().unwrap_or_else(|| unreachable!("two operands")))
}

/// Complex numbers in parts: real tensors of one shape and type.
#[derive(Debug, Clone, Copy)]
pub struct Complex {
    /// The real part.
    pub re: Tensor,
    /// The imaginary part.
    pub im: Tensor,
}

impl Complex {
    /// The parts of a complex tensor; a real one has imaginary parts of zero.
    #[track_caller]
    pub fn of(tensor: Tensor) -> Complex {
        if !is_complex(tensor) {
            return Complex::real(tensor);
        }
        let parts = prims::view_as_real(tensor);
        let shape: &[usize] = &tensor.shape();
        let part = |which: usize| {
            let starts = [vec![0; shape.len()], vec![which]].concat();
            let ends = [shape, &[which + 1]].concat();
            prims::reshape(prims::slice(parts, starts, ends, vec![1; shape.len() + 1]), shape)
        };
        Complex { re: part(0), im: part(1) }
    }

    /// Real numbers.
    #[track_caller]
    pub fn real(re: Tensor) -> Complex {
        Complex { re, im: constant(re, 0.0) }
    }

    /// The complex tensor of these parts.
    #[track_caller]
    pub fn tensor(self) -> Tensor {
        let shape: &[usize] = &self.re.shape();
        let [re, im] = [self.re, self.im].map(|part| prims::reshape(part, [shape, &[1]].concat()));
        prims::view_as_complex(prims::cat([re, im], shape.len()))
    }

    /// The conjugate.
    #[track_caller]
    pub fn conjugate(self) -> Complex {
        Complex { im: prims::neg(self.im), ..self }
    }

    /// `a + b` of a real number.
    #[track_caller]
    pub fn shifted(self, by: f64) -> Complex {
        Complex { re: prims::add(self.re, by), ..self }
    }

    /// `a · b`.
    #[track_caller]
    pub fn times(self, other: Complex) -> Complex {
        let (Complex { re: a, im: b }, Complex { re: c, im: d }) = (self, other);
        Complex {
            re: prims::sub(prims::mul(a, c), prims::mul(b, d)),
            im: prims::add(prims::mul(a, d), prims::mul(b, c)),
        }
    }

    /// `i · a`.
    #[track_caller]
    pub fn turned(self) -> Complex {
        Complex { re: prims::neg(self.im), im: self.re }
    }

    /// `-i · a`.
    #[track_caller]
    pub fn turned_back(self) -> Complex {
        Complex { re: self.im, im: prims::neg(self.re) }
    }

    /// `-a`.
    #[track_caller]
    pub fn negated(self) -> Complex {
        Complex { re: prims::neg(self.re), im: prims::neg(self.im) }
    }

    /// `a / b` by the ratio of the parts of `b`, the smaller to the larger, so that no square leaves the range of the
    /// type (Smith, "Algorithm 116: Complex division", 1962). By zero it is what both parts divided by zero are.
    #[track_caller]
    pub fn over(self, other: Complex) -> Complex {
        let (Complex { re: a, im: b }, Complex { re: c, im: d }) = (self, other);
        let wide = prims::ge(prims::abs(c), prims::abs(d));
        let (larger, smaller) = (prims::select(wide, c, d), prims::select(wide, d, c));
        let zero = prims::eq(larger, 0.0);
        let ratio = prims::div(smaller, prims::select(zero, 1.0, larger));
        let size = prims::select(zero, 0.0, prims::add(larger, prims::mul(smaller, ratio)));
        let re = prims::select(wide, prims::add(a, prims::mul(b, ratio)), prims::add(prims::mul(a, ratio), b));
        let im = prims::select(wide, prims::sub(b, prims::mul(a, ratio)), prims::sub(prims::mul(b, ratio), a));
        Complex { re: prims::div(re, size), im: prims::div(im, size) }
    }

    /// Whether both parts are zero.
    #[track_caller]
    pub fn is_zero(self) -> Tensor {
        prims::logical_and(prims::eq(self.re, 0.0), prims::eq(self.im, 0.0))
    }

    /// The distance from zero, whose gradient there is zero.
    #[track_caller]
    pub fn magnitude(self) -> Tensor {
        let zero = self.is_zero();
        prims::select(zero, 0.0, hypotenuse(prims::select(zero, 1.0, self.re), self.im))
    }

    /// The angle with the axis of real numbers, whose gradient at zero is zero.
    #[track_caller]
    pub fn angle(self) -> Tensor {
        prims::atan2(self.im, self.re)
    }

    /// `a / |a|`; zero of zero, where the gradient is zero too.
    #[track_caller]
    pub fn sign(self) -> Complex {
        let zero = self.is_zero();
        let length = hypotenuse(prims::select(zero, 1.0, self.re), self.im);
        let part = |part: Tensor| prims::select(zero, 0.0, prims::div(part, length));
        Complex { re: part(self.re), im: part(self.im) }
    }
}

/// `√(a² + b²)` by the ratio of the smaller to the larger; infinite if either is, also beside NaN.
#[track_caller]
pub fn hypotenuse(a: Tensor, b: Tensor) -> Tensor {
    let (a, b) = (prims::abs(a), prims::abs(b));
    let (most, least) = (prims::maximum(a, b), prims::minimum(a, b));
    let ratio = prims::div(least, prims::select(prims::eq(most, 0.0), 1.0, most));
    let length = prims::mul(most, prims::sqrt(prims::add(prims::mul(ratio, ratio), 1.0)));
    let infinite = prims::logical_or(prims::eq(a, f64::INFINITY), prims::eq(b, f64::INFINITY));
    prims::select(infinite, f64::INFINITY, length)
}
