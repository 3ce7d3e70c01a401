//! Interpolation, fused products and quotients, closeness, and parts of numbers, elementwise, with broadcasting. f16
//! and bf16 are computed in f32 and rounded once, as in PyTorch.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::zip;
use super::promotion::{
    accumulating, as_tensor, broadcast, cast, common_shape, constant, constant_like, describe_shapes, elementwise_meta,
    floating, largest_number, operand_number, operands_meet, promoted, result_type, sum_to,
};
use super::{mul, pow};
use crate::prims;

/// A tensor rounded to the type of `meta` and broadcast to its shape, in the type that sums of it are added up in.
#[track_caller]
fn wide(tensor: Tensor, meta: &TensorMeta) -> Tensor {
    accumulating(broadcast(cast(tensor, meta.dtype()), meta.shape()))
}

/// The cotangent of an operand from that of the result, which it was broadcast and promoted to.
#[track_caller]
fn narrowed(d: Tensor, like: Tensor) -> Tensor {
    cast(sum_to(d, &like.shape()), like.dtype())
}

/// The point between `input` and `end` at `weight`, a number or a tensor: `input + weight · (end - input)`, from a half
/// on `end - (1 - weight) · (end - input)`, so that both ends are exact.
#[operator(torch = "lerp")]
pub mod lerp {
    fn lerp(input: Tensor<Floating>, end: Tensor<Floating>, weight: Operand<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, end: &TensorMeta, weight: Operand<&TensorMeta>) -> Result<TensorMeta> {
        prims::checks::same_dtype(("input", input), ("end", end), Code::SameDType)?;
        if let Operand::Tensor(weight) = weight {
            prims::checks::same_dtype(("input", input), ("weight", weight), Code::SameDType)?;
        }
        let all = [Operand::Tensor(input), Operand::Tensor(end), weight];
        require!(common_shape(&all).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&all));
        Ok(elementwise_meta(&all, input.dtype()))
    }

    fn decomposition(input: Tensor, end: Tensor, weight: Operand<Tensor>) -> Tensor {
        let meta = elementwise_meta(&[input.into(), end.into(), weight], input.dtype());
        let [x, y] = [input, end].map(|tensor| super::wide(tensor, &meta));
        let difference = prims::sub(y, x);
        let early = |w: Operand<Tensor>| prims::add(x, prims::mul(w, difference));
        let late = |rest: Operand<Tensor>| prims::sub(y, prims::mul(difference, rest));
        let point = match weight {
            Operand::Scalar(number) if number.to_f64().abs() < 0.5 => early(number.to_f64().into()),
            Operand::Scalar(number) => late((1.0 - number.to_f64()).into()),
            Operand::Tensor(weight) => {
                let w = super::wide(weight, &meta);
                let near = prims::lt(prims::abs(w), 0.5);
                prims::select(near, early(w.into()), late(prims::sub(1.0, w).into()))
            }
        };
        cast(point, input.dtype())
    }

    fn grad(input: Tensor, end: Tensor, weight: Operand<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (lerp(input, end, weight), move |d_out: Tensor| {
            let meta = elementwise_meta(&[input.into(), end.into(), weight], input.dtype());
            let [x, y] = [input, end].map(|tensor| super::wide(tensor, &meta));
            let d = cast(d_out, x.dtype());
            let (w, rest): (Operand<Tensor>, Operand<Tensor>) = match weight {
                Operand::Scalar(number) => (number.to_f64().into(), (1.0 - number.to_f64()).into()),
                Operand::Tensor(weight) => {
                    let w = super::wide(weight, &meta);
                    (w.into(), prims::sub(1.0, w).into())
                }
            };
            Grads {
                input: super::narrowed(prims::mul(d, rest), input),
                end: super::narrowed(prims::mul(d, w), end),
                weight: weight.tensor().map(|like| super::narrowed(prims::mul(d, prims::sub(y, x)), *like)),
            }
        })
    }

    fn reference(input: &ArrayD<f64>, end: &ArrayD<f64>, weight: ArrayD<f64>) -> ArrayD<f64> {
        let ends = zip(input, end, |x, y| (x, y));
        let weight = weight.mapv(|w| (w, 0.0));
        zip(&ends, &weight, |(x, y), (w, _)| if w == 1.0 { y } else { x * (1.0 - w) + y * w })
    }

    fn samples(s: &mut Samples) {
        for weight in [0.3, 0.7, 1.0, -1.5] {
            s.case(with(s.normal([2, 3]), s.normal([2, 3]), weight));
        }
        s.case(with(s.normal([3, 1, 5]), s.normal([2, 5]), s.uniform(0.0, 1.0, [2, 1])));
        s.case(with(s.normal([]), s.normal([]), s.normal([])));
        s.case(with(s.normal([0, 3]), s.normal([3]), 0.5));
        // Beside a far end nothing is left of the difference: the near one is met exactly all the same.
        let far = largest_number(s.dtype()).sqrt();
        s.case(with(s.values([1], [far]), s.values([1], [1.0]), 1.0)).forward_only("steep");
        s.case(with(s.values([1], [1.0]), s.values([1], [far]), 0.0)).forward_only("steep");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameDType, with(e.normal([2]), e.of(DType::F64, [2]), 0.5), "expected equal dtypes");
        e.case(SameDType, with(e.normal([2]), e.normal([2]), e.of(DType::F64, [2])), "expected equal dtypes");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4]), 0.5), "shapes [2, 3] and [4] do not broadcast");
    }
}

// Declares sums of a tensor and of two others' product or quotient.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            input: Tensor,
            tensor1: Tensor,
            tensor2: Tensor,
            #[default(1i64)] value: Scalar,
        ) -> Tensor;

        fn meta(Args { input, tensor1, tensor2, value }: Args<&TensorMeta>) -> Result<TensorMeta> {
            let all = [input, tensor1, tensor2].map(Operand::Tensor);
            require!(common_shape(&all).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&all));
            let dtype = result_type(&all);
            require!(dtype != DType::Bool, Booleans, "all tensors hold booleans, expected a number among them");
            let (integers, of_integers): (bool, bool) = ($integers, !dtype.is_floating());
            let fraction = matches!(value, Scalar::Float(_));
            require!(
                !of_integers || (integers && !fraction),
                Integers,
                "all tensors hold integers, and {}",
                if integers { "value is a floating-point number" } else { "a quotient needs a floating-point one" }
            );
            Ok(elementwise_meta(&all, dtype))
        }

        fn decomposition(Args { input, tensor1, tensor2, value }: Args<Tensor>) -> Tensor {
            let all = [input, tensor1, tensor2].map(Operand::Tensor);
            let meta = elementwise_meta(&all, result_type(&all));
            let [x, a, b] = [input, tensor1, tensor2].map(|tensor| super::wide(tensor, &meta));
            let a = if value.to_f64() == 1.0 { a } else { prims::mul(a, operand_number(value, a.dtype())) };
            cast(prims::add(x, prims::$combine(a, b)), meta.dtype())
        }

        fn reference(
            input: &ArrayD<f64>,
            tensor1: &ArrayD<f64>,
            tensor2: &ArrayD<f64>,
            value: Scalar,
        ) -> ArrayD<f64> {
            zip(input, &zip(tensor1, tensor2, $reference), |x, term| x + value.to_f64() * term)
        }

        fn samples(s: &mut Samples) {
            // Integers have products alone, booleans nothing among themselves.
            let integers: bool = $integers;
            let is_own = s.dtype().is_floating() || (integers && s.dtype() != DType::Bool);
            let dtype = if is_own { s.dtype() } else { DType::F32 };
            let factor = |shape: &[usize]| s.of(dtype, shape);
            let divisor = |shape: &[usize]| s.uniform(1.0, 3.0, shape).cast(dtype);
            let mut cases = vec![
                with(s.normal([3, 1, 5]), factor(&[2, 1]), divisor(&[5])),
                with(s.normal([]), factor(&[3]), divisor(&[3])).value(2i64),
                with(s.normal([0, 3]), factor(&[3]), divisor(&[1])),
            ];
            if s.dtype().is_floating() {
                cases.push(with(s.normal([4]), factor(&[4]), divisor(&[4])).value(-0.3));
                cases.push(with(s.normal([4]), s.of(DType::F32, [4]), divisor(&[4])).value(1.5));
            }
            for case in cases {
                s.case(case);
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let apart = with(e.normal([2, 3]), e.normal([4]), e.normal([1]));
            e.case(Broadcast, apart, "shapes [2, 3] and [4] and [1] do not broadcast");
            let truth = || e.of(DType::Bool, [2]);
            e.case(Booleans, with(truth(), truth(), truth()), "expected a number among them");
            let integers = with(e.of(DType::I64, [2]), e.of(DType::I64, [2]), e.of(DType::I64, [2]));
            e.case(Integers, integers.value(0.5), "all tensors hold integers, and ");
        }
    }

    table($name, $torch, $combine, $reference, $integers) {
        /// `input + value · tensor1 · tensor2`, elementwise.
        addcmul, "addcmul", mul, |a, b| a * b, true;
        /// `input + value · tensor1 / tensor2`, elementwise, in a floating-point type.
        addcdiv, "addcdiv", div, |a, b| a / b, false;
    }
}

/// Whether elements are close: `|input - other| ≤ atol + rtol · |other|`, or equal. An infinity is close to itself
/// alone, NaN to NaN with `equal_nan`.
#[operator(torch = "isclose", no_grad = "a boolean has no gradient")]
pub mod isclose {
    fn isclose(
        input: Tensor,
        other: Tensor,
        #[default(1e-5)] rtol: f64,
        #[default(1e-8)] atol: f64,
        #[default(false)] equal_nan: bool,
    ) -> Tensor;

    fn meta(Args { input, other, rtol, atol, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        prims::checks::same_dtype(("input", input), ("other", other), Code::SameDType)?;
        require!(rtol >= 0.0, Tolerance, "rtol is {rtol}, expected a number that is not negative");
        require!(atol >= 0.0, Tolerance, "atol is {atol}, expected a number that is not negative");
        let both = [Operand::Tensor(input), Operand::Tensor(other)];
        require!(common_shape(&both).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
        Ok(elementwise_meta(&both, DType::Bool))
    }

    fn decomposition(Args { input, other, rtol, atol, equal_nan }: Args<Tensor>) -> Tensor {
        let both = [Operand::Tensor(input), Operand::Tensor(other)];
        let meta = elementwise_meta(&both, input.dtype());
        let [x, y] = promoted(both).map(|operand| as_tensor(operand, &meta));
        let mut close = prims::eq(x, y);
        if equal_nan && input.dtype().is_floating() {
            close = prims::logical_or(close, prims::logical_and(prims::ne(x, x), prims::ne(y, y)));
        }
        if rtol == 0.0 && atol == 0.0 {
            return close;
        }
        // Integers are compared in f32, as in PyTorch: their products with rtol are not integers.
        let [a, b] = [x, y].map(|tensor| cast(tensor, floating(input.dtype())));
        let distance = prims::abs(prims::sub(a, b));
        let allowed = prims::add(prims::abs(prims::mul(b, rtol)), atol);
        let near = prims::logical_and(prims::isfinite(distance), prims::le(distance, allowed));
        prims::logical_or(close, near)
    }

    fn reference(Args { input, other, rtol, atol, equal_nan }: Args<&ReferenceTensor>) -> ArrayD<bool> {
        zip(input.floats(), other.floats(), |a: f64, b: f64| {
            let near = (a - b).is_finite() && (a - b).abs() <= atol + rtol * b.abs();
            a == b || near || (equal_nan && a.is_nan() && b.is_nan())
        })
    }

    fn samples(s: &mut Samples) {
        let (x, y) = ([1.0, 2.0, 3.0, 100.0, 0.0, 7.0], [1.0, 2.5, 2.0, 104.0, 0.25, 9.0]);
        let of = || with(s.values([6], x), s.values([6], y));
        let mut cases = vec![of(), of().rtol(0.05), of().atol(0.3), of().rtol(0.0).atol(0.0)];
        if s.dtype().is_floating() {
            let (infinity, nan) = (f64::INFINITY, f64::NAN);
            let left = s.values([5], [infinity, infinity, nan, nan, 1.0]);
            let right = s.values([5], [infinity, -infinity, nan, 1.0, infinity]);
            cases.push(with(left.clone(), right.clone()).rtol(0.5));
            cases.push(with(left, right).equal_nan(true));
        }
        cases.push(with(s.values([3, 1], [1.0, 2.0, 3.0]), s.values([2], [1.0, 3.0])).atol(1.0));
        cases.push(with(s.values([0], [0.0]), s.values([1], [0.0])));
        cases.push(of().rtol(0.0).atol(0.25));
        cases.push(of().rtol(0.25).atol(0.0));
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameDType, with(e.normal([2]), e.of(DType::F64, [2])), "expected equal dtypes");
        e.case(Tolerance, with(e.normal([2]), e.normal([2])).rtol(-0.1), "rtol is -0.1");
        e.case(Tolerance, with(e.normal([2]), e.normal([2])).atol(-1.0), "atol is -1");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// `input · 2^other`, elementwise. With integers for `other` the product is in the type of `input` (f32 if that is an
/// integer, too), and exact where the type has it, however large the power is. Otherwise the power is rounded to the
/// type of `other`.
#[operator(torch = "ldexp")]
pub mod ldexp {
    fn ldexp(input: Tensor, other: Tensor) -> Tensor;

    fn requires(input: &TensorMeta, other: &TensorMeta) -> Result<()> {
        let both = [Operand::Tensor(input), Operand::Tensor(other)];
        operands_meet(&both, "other", [Code::Broadcast.name(); 2])
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        if other.dtype().is_floating() {
            return mul(input, pow(2.0, other));
        }
        let dtype = floating(input.dtype());
        let wide = dtype.accumulator();
        // The type has the third of each power that leaves a finite product.
        let most = if wide == DType::F64 { 2200.0 } else { 300.0 };
        let power = prims::minimum(prims::maximum(cast(other, wide), -most), most);
        let third = prims::floor(prims::div(power, 3.0));
        let rest = prims::sub(power, prims::add(third, third));
        let of_two = |power: Tensor| prims::pow(2.0, power);
        let scaled = mul(mul(mul(cast(input, wide), of_two(rest)), of_two(third)), of_two(third));
        cast(scaled, dtype)
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        zip(input, other, |x: f64, n: f64| x * (n / 2.0).floor().exp2() * (n - (n / 2.0).floor()).exp2())
    }

    fn samples(s: &mut Samples) {
        s.composed_binary(Domain::ALL, Domain::range(-3.0, 3.0));
        s.case(with(s.normal([2, 3]), s.integers(-3, 4, [3])));
        if s.dtype().epsilon() < 1e-5 && s.dtype().is_floating() {
            // The powers are beyond f32, the products are not.
            let powers = s.values([3], [140.0, -135.0, 400.0]).cast(DType::I64);
            s.case(with(s.values([3], [1e-20, 2e20, 1.0]), powers)).forward_only("large slopes");
        }
        if s.dtype() == DType::F32 {
            // From nearly the least number to nearly the largest.
            let powers = s.values([1], [270.0]).cast(DType::I64);
            s.case(with(s.values([1], [(-145f64).exp2()]), powers)).forward_only("large slopes");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// Fractions and exponents: `input = mantissa · 2^exponent` with magnitudes of fractions from 0.5 to 1, and exponents
/// in i32. Zeros, infinities and NaN are their own fractions, with the exponent 0.
#[operator(torch = "frexp")]
pub mod frexp {
    #[results(mantissa, exponent)]
    fn frexp(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn decomposition(input: Tensor) -> (Tensor, Tensor) {
        let mantissa = prims::mantissa(input);
        let wide = |tensor: Tensor| prims::log2(prims::abs(cast(tensor, input.dtype().accumulator())));
        // Both logarithms err by less than a quarter together: their difference is nearly an integer.
        let exponent = prims::round(prims::sub(wide(input), wide(mantissa)));
        let has_power = prims::logical_and(prims::isfinite(input), prims::ne(input, 0.0));
        (mantissa, cast(prims::select(has_power, exponent, 0.0), DType::I32))
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ReferenceTensor) {
        let exponent = input.mapv(|x| super::parts(x).1);
        (elementwise(input, |x| super::parts(x).0), ReferenceTensor::from_integers(DType::I32, exponent))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::range(2.1, 3.9));
        let values = [0.0, -0.0, 1.0, -1.0, 0.5, -3e4, 8191.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.25, -0.3];
        s.case(with(s.values([12], values))).forward_only("jumps");
        if s.dtype().epsilon() < 1e-5 {
            s.case(with(s.values([4], [3e38, 1e-44, -1.2e-38, 16_777_215.0]))).forward_only("jumps");
        }
    }
}

/// For references: the fraction and the exponent of a number, by halving and doubling.
fn parts(x: f64) -> (f64, i64) {
    let (mut fraction, mut exponent) = (x, 0);
    while fraction.is_finite() && fraction.abs() >= 1.0 {
        (fraction, exponent) = (fraction / 2.0, exponent + 1);
    }
    while fraction != 0.0 && fraction.abs() < 0.5 {
        (fraction, exponent) = (fraction * 2.0, exponent - 1);
    }
    (fraction, exponent)
}

/// The number after `input` in the direction of `other`, elementwise, of those that the element type has. The gradient
/// by `input` is 1, and 0 where both are equal; by `other` it is 0.
#[operator(torch = "nextafter", exact)]
pub mod nextafter {
    fn nextafter(input: Tensor<Floating>, other: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
        let both = [Operand::Tensor(input), Operand::Tensor(other)];
        require!(common_shape(&both).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
        Ok(elementwise_meta(&both, result_type(&both)))
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        let both = [Operand::Tensor(input), Operand::Tensor(other)];
        let dtype = result_type(&both);
        let meta = elementwise_meta(&both, dtype);
        let [x, y] = [input, other].map(|tensor| super::wide(tensor, &meta));
        let up = prims::gt(y, x);
        // Numbers near the least ones are made larger, where a distance of less than one place is a number.
        let (scale, least) = super::places(dtype);
        let is_small = prims::lt(prims::abs(x), scale.recip());
        let near = prims::select(is_small, prims::mul(x, scale), x);
        // From 5/8 to 5/4 of a place, which is rounded to one; below a power of two places are half as large.
        let step = prims::mul(prims::abs(near), 0.625 * dtype.epsilon());
        let step = prims::select(is_small, prims::maximum(step, least * scale), step);
        let moved = cast(prims::add(near, prims::select(up, step, prims::neg(step))), dtype);
        let small = prims::mul(cast(moved, x.dtype()), scale.recip());
        // Zero keeps the sign of the number before it.
        let small = prims::select(prims::eq(small, 0.0), prims::mul(x, 0.0), small);
        let moved = prims::select(is_small, small, cast(moved, x.dtype()));
        let largest = largest_number(dtype);
        let finite = prims::select(prims::lt(x, 0.0), constant(-largest, &x.meta()), largest);
        let moved = prims::select(prims::eq(prims::abs(x), f64::INFINITY), finite, moved);
        let is_known = prims::logical_and(prims::eq(x, x), prims::eq(y, y));
        let stays = prims::select(is_known, y, f64::NAN);
        cast(prims::select(prims::logical_and(is_known, prims::ne(x, y)), moved, stays), dtype)
    }

    fn grad(input: Tensor, other: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (nextafter(input, other), move |d_out: Tensor| {
            let meta = d_out.meta();
            let [x, y] = [input, other].map(|tensor| super::wide(tensor, &meta));
            let d = prims::select(prims::eq(x, y), 0.0, accumulating(d_out));
            Grads { input: super::narrowed(d, input), other: super::constant_like(other, 0.0) }
        })
    }

    fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ArrayD<f64> {
        let dtype = if input.dtype() == DType::F64 || other.dtype() == DType::F64 { DType::F64 } else { input.dtype() };
        zip(input.floats(), other.floats(), |x: f64, y: f64| super::following(x, y, dtype))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5, 7]), s.normal([7])));
        s.case(with(s.normal([]), s.normal([])));
        s.case(with(s.normal([0, 3]), s.normal([1])));
        let (infinity, nan) = (f64::INFINITY, f64::NAN);
        let x = [1.0, 1.0, 0.0, -0.0, infinity, -infinity, nan, 1.0, 2.0, -1.0, 0.0, -0.5];
        let y = [2.0, 0.0, 1.0, -1.0, 0.0, 0.0, 1.0, nan, 2.0, -2.0, -0.0, 0.0];
        let special = with(s.values([12], x), s.values([12], y));
        let slopes = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 10.0, 0.0, 12.0];
        s.case(special).forward_only("special numbers").gradients([&slopes, &[0.0; 12]]);
        let largest = largest_number(s.dtype());
        let least = match s.dtype() {
            DType::F64 => f64::MIN_POSITIVE,
            DType::F16 => 2f64.powi(-14),
            _ => f64::from(f32::MIN_POSITIVE),
        };
        let x = [largest, -largest, least, least, -least, 2.0 * least, 3.0 * least, 1e-30];
        let y = [infinity, -infinity, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0];
        // The last number is 0 in f16, as its neighbour is.
        let of_last = if s.dtype() == DType::F16 { 0.0 } else { 8.0 };
        let slopes = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, of_last];
        let special = with(s.values([8], x), s.values([8], y));
        s.case(special).forward_only("the least and the largest numbers").gradients([&slopes, &[0.0; 8]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// A power of two by which small numbers of `dtype` are multiplied, and the least number above zero. Numbers from its
/// reciprocal on have places whose fractions are normal numbers.
fn places(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (2f64.powi(500), f64::from_bits(1)),
        DType::BF16 => (2f64.powi(64), 2f64.powi(-133)),
        DType::F16 => (2f64.powi(10), 2f64.powi(-24)),
        _ => (2f64.powi(64), 2f64.powi(-149)),
    }
}

/// For references: the number after `x` in the direction of `y`, by the bits of f64, of f32 or of its upper part; of
/// f16 by its places.
fn following(x: f64, y: f64, dtype: DType) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    if x == y {
        return y;
    }
    let away = x == 0.0 || (y > x) == (x > 0.0);
    let sign = if x == 0.0 { y.signum() } else { x.signum() };
    let magnitude = match dtype {
        DType::F64 => f64::from_bits(x.abs().to_bits().wrapping_add_signed(if away { 1 } else { -1 })),
        DType::BF16 => f64::from(f32::from_bits((x.abs() as f32).to_bits().wrapping_add_signed(if away {
            0x1_0000
        } else {
            -0x1_0000
        }))),
        DType::F16 => {
            // Places of numbers below 2⁻¹⁴ are as those from there on; below a power of two they are half as large.
            let exponent = x.abs().max(2f64.powi(-14)).log2().floor();
            let below = x.abs() == exponent.exp2() && exponent > -14.0 && !away;
            let place = (exponent - if below { 11.0 } else { 10.0 }).exp2();
            let next = x.abs() + if away { place } else { -place };
            match x.is_infinite() {
                true => 65_504.0,
                false if next > 65_504.0 => f64::INFINITY,
                false => next,
            }
        }
        _ => f64::from(f32::from_bits((x.abs() as f32).to_bits().wrapping_add_signed(if away { 1 } else { -1 }))),
    };
    magnitude * sign
}
