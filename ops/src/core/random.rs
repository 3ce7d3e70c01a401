//! Random numbers. Each operator is a function of an explicit `generator`, i64[2] of seed and offset, or i64[3] of
//! seed, offset and offset + n for part n of a larger tensor; see [`mod@prims::uniform`]. PyTorch draws other numbers
//! of the same distributions. Two calls of one program draw different numbers from one generator; give each run an
//! offset of its own. On every device the numbers have the same bits, unless an operator says otherwise: they are
//! counters that Philox mixes, and what is computed of them takes sums, products, quotients, roots and comparisons
//! alone.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::rules::{ArrayD, Failure, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor};

use super::promotion::{cast, largest_number};
use crate::prims;
use crate::prims::checks;

/// The type that numbers are drawn in before they are rounded to `dtype`.
pub(crate) fn drawn_in(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Uniform numbers between -½ and ½, without both: odd multiples of half a place, so that they are symmetric and exact.
#[track_caller]
pub(crate) fn centred(size: &[usize], dtype: DType, generator: Tensor) -> Tensor {
    prims::add(prims::uniform(size, -0.5, 0.5, dtype, generator), half_a_place(dtype))
}

fn half_a_place(dtype: DType) -> f64 {
    if dtype == DType::F64 { -54f64 } else { -25f64 }.exp2()
}

/// Standard normal numbers in f32, or f64.
#[track_caller]
pub(crate) fn normal_numbers(size: &[usize], dtype: DType, generator: Tensor) -> Tensor {
    prims::normal_quantile(centred(size, drawn_in(dtype), generator))
}

/// Exponential numbers of rate 1 in f32, or f64. None is zero.
#[track_caller]
pub(crate) fn exponential_numbers(size: &[usize], dtype: DType, generator: Tensor) -> Tensor {
    prims::exponential_quantile(centred(size, drawn_in(dtype), generator))
}

/// For references: numbers in [0, 1), by the reference of `prims::uniform`.
pub(crate) fn unit_array(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    crate::nn::draws(size, drawn_in(dtype), generator)
}

/// For references: what [`centred`] draws, as a probability.
pub(crate) fn probabilities(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    Ok(unit_array(size, dtype, generator)?.mapv(|u| u - 0.5 + half_a_place(drawn_in(dtype))))
}

/// For references: standard normal numbers.
pub(crate) fn normal_array(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    Ok(probabilities(size, dtype, generator)?.mapv(prims::normal_by_halving))
}

/// For references: exponential numbers of rate 1.
pub(crate) fn exponential_array(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    Ok(probabilities(size, dtype, generator)?.mapv(prims::exponential_by_logarithm))
}

// Declares random tensors of a size.
operators! {
    #[operator(
        torch = $torch,
        effects(random),
        no_grad = "random numbers do not depend on anything differentiable"
    )]
    pub mod $name {
        fn $name(size: Vec<usize>, generator: Tensor<Integer>, #[default(None)] dtype: Option<DType>) -> Tensor;

        fn meta(size: &[usize], generator: &TensorMeta, dtype: Option<DType>) -> Result<TensorMeta> {
            checks::generator(generator, Code::Generator)?;
            let dtype = dtype.unwrap_or(DType::F32);
            require!(dtype.is_floating(), FloatingDType, "dtype is {dtype}, expected a floating-point dtype");
            Ok(TensorMeta::new(size, dtype, generator.device()))
        }

        fn decomposition(size: &[usize], generator: Tensor, dtype: Option<DType>) -> Tensor {
            let dtype = dtype.unwrap_or(DType::F32);
            $numbers
        }

        fn reference(size: &[usize], generator: &ArrayD<i64>, dtype: Option<DType>) -> Result<ReferenceTensor> {
            let dtype = dtype.unwrap_or(DType::F32);
            Ok(ReferenceTensor::from_floats(dtype, $array?))
        }

        fn samples(s: &mut Samples) {
            s.case(with([4, 8], s.integers(0, 1 << 40, [2])));
            if s.dtype().is_floating() {
                for size in [&[][..], &[0, 3], &[33, 5]] {
                    s.case(with(size, s.integers(0, 1 << 40, [2])).dtype(s.dtype()));
                }
                s.case(with([7], s.integers(0, 9, [3])).dtype(s.dtype()));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(FloatingDType, with([2], e.integers(0, 9, [2])).dtype(DType::I32), "dtype is i32");
            e.case(Generator, with([2], e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
        }
    }

    table($name, $torch, $numbers, $array) {
        /// Random numbers, uniform from 0 up to, not including, 1; f32 unless `dtype` says otherwise. f32 has multiples
        /// of 2⁻²⁴, f64 of 2⁻⁵³; see [`mod@prims::uniform`].
        rand, "rand",
            prims::uniform(size, 0.0, 1.0, dtype, generator),
            crate::nn::draws(size, dtype, generator);
        /// Random numbers of the standard normal distribution; f32 unless `dtype` says otherwise. f16 and bf16 are
        /// rounded from f32. Each is the quantile of one uniform number, [`mod@prims::normal_quantile`], so that its
        /// magnitude is at most 5.42 (8.29 in f64).
        randn, "randn",
            cast(normal_numbers(size, dtype, generator), dtype),
            normal_array(size, dtype, generator);
    }
}

// Declares random tensors of the size of another.
operators! {
    #[operator(
        torch = $torch,
        effects(random),
        waive(input = "its shape and its element type count, not its elements"),
        no_grad = "random numbers do not depend on anything differentiable"
    )]
    pub mod $name {
        fn $name(input: Tensor, generator: Tensor<Integer>, #[default(None)] dtype: Option<DType>) -> Tensor;

        fn meta(input: &TensorMeta, generator: &TensorMeta, dtype: Option<DType>) -> Result<TensorMeta> {
            checks::generator(generator, Code::Generator)?;
            let dtype = dtype.unwrap_or(input.dtype());
            require!(dtype.is_floating(), FloatingDType, "the result is {dtype}, expected a floating-point dtype");
            Ok(input.with_dtype(dtype))
        }

        fn decomposition(input: Tensor, generator: Tensor, dtype: Option<DType>) -> Tensor {
            $of::with(input.shape(), generator).dtype(dtype.unwrap_or(input.dtype())).call()
        }

        fn reference(
            input: &ReferenceTensor,
            generator: &ArrayD<i64>,
            dtype: Option<DType>,
        ) -> Result<ReferenceTensor> {
            let (size, dtype) = (input.shape(), dtype.unwrap_or(input.dtype()));
            Ok(ReferenceTensor::from_floats(dtype, $array?))
        }

        fn samples(s: &mut Samples) {
            if s.dtype().is_floating() {
                s.case(with(s.normal([4, 8]), s.integers(0, 1 << 40, [2])));
                s.case(with(s.normal([]), s.integers(0, 9, [3])));
            }
            s.case(with(s.normal([5]), s.integers(0, 9, [2])).dtype(DType::F64));
        }

        fn errors(e: &mut ErrorSamples) {
            let whole = e.of(DType::I64, [2]);
            e.case(FloatingDType, with(whole, e.integers(0, 9, [2])), "the result is i64, expected a floating-point");
            e.case(Generator, with(e.normal([2]), e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
        }
    }

    table($name, $torch, $of, $array) {
        /// As [`mod@rand`], of the shape of `input`, and of its element type unless `dtype` says otherwise.
        rand_like, "rand_like", rand, crate::nn::draws(size, dtype, generator);
        /// As [`mod@randn`], of the shape of `input`, and of its element type unless `dtype` says otherwise.
        randn_like, "randn_like", randn, normal_array(size, dtype, generator);
    }
}

/// The most numbers that one of is drawn: f64 has 53 bits.
pub(crate) const MOST_DRAWN: u64 = 1 << 53;

/// What is wrong with the bounds of random integers of `dtype`, if anything.
fn wrong_bounds(low: i64, high: i64, dtype: DType) -> Option<String> {
    if low >= high {
        return Some(format!("low is {low}, high is {high}, expected low < high"));
    }
    let count = high.abs_diff(low);
    if count > MOST_DRAWN {
        return Some(format!("low is {low}, high is {high}, which are {count} numbers, expected at most {MOST_DRAWN}"));
    }
    let largest = largest_number(dtype);
    let fits = |number: i64| match dtype {
        DType::Bool => (0..=1).contains(&number),
        DType::I64 => true,
        _ if dtype.is_floating() => (number as f64).abs() <= largest,
        _ => Scalar::Int(number).fits(dtype),
    };
    let last = high - 1;
    (!fits(low) || !fits(last)).then(|| format!("the numbers are {low} to {last}, expected numbers that {dtype} holds"))
}

/// Random integers from `low` up to, not including, `high`.
#[track_caller]
fn integers(size: &[usize], low: i64, high: i64, dtype: DType, generator: Tensor) -> Tensor {
    let count = high.abs_diff(low) as f64;
    let places = prims::floor(prims::mul(prims::uniform(size, 0.0, 1.0, DType::F64, generator), count));
    cast(prims::add(cast(places, DType::I64), low), dtype)
}

/// For references: as [`integers`].
fn integer_array(
    size: &[usize],
    low: i64,
    high: i64,
    dtype: DType,
    generator: &ArrayD<i64>,
) -> Result<ReferenceTensor, Failure> {
    let units = crate::nn::draws(size, DType::F64, generator)?;
    // 53 bits times the count, in integers.
    let (places, count) = (MOST_DRAWN as f64, i128::from(high) - i128::from(low));
    let number = |u: &f64| low + (((u * places) as i128 * count) >> 53) as i64;
    Ok(match dtype.is_floating() {
        true => ReferenceTensor::from_floats(dtype, units.map(|u| number(u) as f64)),
        false => ReferenceTensor::from_integers(dtype, units.map(number)),
    })
}

/// Random integers from `low` up to, not including, `high`, each with the same probability but for 2⁻⁵³ times the count
/// of them; i64 unless `dtype` says otherwise. There are at most 2⁵³ numbers between the bounds.
#[operator(torch = "randint", effects(random), no_grad = "random numbers do not depend on anything differentiable")]
pub mod randint {
    fn randint(
        low: i64,
        high: i64,
        size: Vec<usize>,
        generator: Tensor<Integer>,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(low: i64, high: i64, size: &[usize], generator: &TensorMeta, dtype: Option<DType>) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        let dtype = dtype.unwrap_or(DType::I64);
        let wrong = wrong_bounds(low, high, dtype);
        require!(wrong.is_none(), Bounds, "{}", wrong.unwrap_or_default());
        Ok(TensorMeta::new(size, dtype, generator.device()))
    }

    fn decomposition(low: i64, high: i64, size: &[usize], generator: Tensor, dtype: Option<DType>) -> Tensor {
        integers(size, low, high, dtype.unwrap_or(DType::I64), generator)
    }

    fn reference(
        low: i64,
        high: i64,
        size: &[usize],
        generator: &ArrayD<i64>,
        dtype: Option<DType>,
    ) -> Result<ReferenceTensor> {
        integer_array(size, low, high, dtype.unwrap_or(DType::I64), generator)
    }

    fn samples(s: &mut Samples) {
        s.case(with(-3, 5, [4, 8], s.integers(0, 1 << 40, [2])));
        s.case(with(0, 2, [5], s.integers(0, 9, [2])).dtype(s.dtype()));
        s.case(with(0, 1, [], s.integers(0, 9, [3])).dtype(s.dtype()));
        if s.dtype() == DType::I64 {
            s.case(with(7, 8, [0, 3], s.integers(0, 9, [2])));
            s.case(with(i64::MIN, i64::MIN + (1 << 53), [33], s.integers(0, 9, [2])));
            s.case(with(-1, 1 << 40, [7], s.integers(0, 9, [3])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        e.case(Bounds, with(3, 3, [2], generator()), "low is 3, high is 3, expected low < high");
        e.case(Bounds, with(i64::MIN, i64::MAX, [2], generator()), "expected at most 9007199254740992");
        e.case(Bounds, with(0, 257, [2], generator()).dtype(DType::U8), "0 to 256, expected numbers that u8 holds");
        e.case(Bounds, with(-1, 2, [2], generator()).dtype(DType::Bool), "-1 to 1, expected numbers that bool holds");
        e.case(Bounds, with(0, 70_000, [2], generator()).dtype(DType::F16), "expected numbers that f16 holds");
        e.case(Generator, with(0, 2, [2], e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
    }
}

/// As [`mod@randint`], of the shape of `input`, and of its element type unless `dtype` says otherwise.
#[operator(
    torch = "randint_like",
    effects(random),
    waive(input = "its shape and its element type count, not its elements"),
    no_grad = "random numbers do not depend on anything differentiable"
)]
pub mod randint_like {
    fn randint_like(
        input: Tensor,
        low: i64,
        high: i64,
        generator: Tensor<Integer>,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(
        input: &TensorMeta,
        low: i64,
        high: i64,
        generator: &TensorMeta,
        dtype: Option<DType>,
    ) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        let dtype = dtype.unwrap_or(input.dtype());
        let wrong = wrong_bounds(low, high, dtype);
        require!(wrong.is_none(), Bounds, "{}", wrong.unwrap_or_default());
        Ok(input.with_dtype(dtype))
    }

    fn decomposition(input: Tensor, low: i64, high: i64, generator: Tensor, dtype: Option<DType>) -> Tensor {
        randint::with(low, high, input.shape(), generator).dtype(dtype.unwrap_or(input.dtype())).call()
    }

    fn reference(
        input: &ReferenceTensor,
        low: i64,
        high: i64,
        generator: &ArrayD<i64>,
        dtype: Option<DType>,
    ) -> Result<ReferenceTensor> {
        integer_array(input.shape(), low, high, dtype.unwrap_or(input.dtype()), generator)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), 0, 2, s.integers(0, 9, [2])));
        s.case(with(s.normal([3]), -3, 5, s.integers(0, 9, [3])).dtype(DType::I32));
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        e.case(Bounds, with(e.normal([2]), 3, 2, generator()), "low is 3, high is 2, expected low < high");
        e.case(Bounds, with(e.of(DType::U8, [2]), -1, 2, generator()), "-1 to 1, expected numbers that u8 holds");
        e.case(Generator, with(e.normal([2]), 0, 2, e.integers(0, 9, [4])), "generator is i64[4]");
    }
}

/// The integers from 0 up to, not including, `n` in a random order: that of random numbers of 53 bits; of two equal
/// ones, which are improbable below 10⁷, the lower comes first. i64 unless `dtype` says otherwise. A generator of a
/// part gives a permutation of its own.
#[operator(torch = "randperm", effects(random), no_grad = "random numbers do not depend on anything differentiable")]
pub mod randperm {
    fn randperm(n: usize, generator: Tensor<Integer>, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn meta(n: usize, generator: &TensorMeta, dtype: Option<DType>) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        let dtype = dtype.unwrap_or(DType::I64);
        let largest = match dtype {
            DType::Bool => 1.0,
            DType::BF16 => 256.0,
            DType::F16 => 2048.0,
            DType::F32 => 16_777_216.0,
            _ => dtype.limits().map_or(MOST_DRAWN as f64, |(_, largest)| largest.min(MOST_DRAWN as i64) as f64),
        };
        require!(n as f64 - 1.0 <= largest, Count, "n is {n}, expected at most {}, for {dtype}", largest + 1.0);
        Ok(TensorMeta::new([n], dtype, generator.device()))
    }

    fn decomposition(n: usize, generator: Tensor, dtype: Option<DType>) -> Tensor {
        let keys = prims::uniform([n], 0.0, 1.0, DType::F64, generator);
        cast(prims::topk(keys, n, 0, false).1, dtype.unwrap_or(DType::I64))
    }

    fn reference(n: usize, generator: &ArrayD<i64>, dtype: Option<DType>) -> Result<ReferenceTensor> {
        let keys = crate::nn::draws(&[n], DType::F64, generator)?;
        let mut order: Vec<i64> = (0..n as i64).collect();
        order.sort_by(|a, b| keys[[*a as usize]].total_cmp(&keys[[*b as usize]]));
        let (order, dtype) = (super::super::arrays::array(&[n], order), dtype.unwrap_or(DType::I64));
        Ok(match dtype.is_floating() {
            true => ReferenceTensor::from_floats(dtype, order.mapv(|place| place as f64)),
            false => ReferenceTensor::from_integers(dtype, order),
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(2, s.integers(0, 1 << 40, [2])).dtype(s.dtype()));
        if s.dtype() == DType::I64 {
            s.case(with(0, s.integers(0, 9, [2])));
            s.case(with(33, s.integers(0, 9, [3])));
            s.case(with(1500, s.integers(0, 9, [2])));
        }
        if s.dtype().is_floating() {
            s.case(with(17, s.integers(0, 9, [2])).dtype(s.dtype()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Count, with(257, e.integers(0, 9, [2])).dtype(DType::U8), "n is 257, expected at most 256, for u8");
        e.case(Count, with(1 << 60, e.integers(0, 9, [2])), "expected at most 9007199254740992, for i64");
        for (n, dtype, text) in [
            (3, DType::Bool, "expected at most 2, for bool"),
            (258, DType::BF16, "expected at most 257, for bf16"),
            (2050, DType::F16, "expected at most 2049, for f16"),
            (16_777_218, DType::F32, "expected at most 16777217, for f32"),
        ] {
            e.case(Count, with(n, e.integers(0, 9, [2])).dtype(dtype), text);
        }
        e.case(Generator, with(2, e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
    }
}
