//! Random numbers. Each operator is a function of an explicit `generator`, i64[2] of seed and offset, or i64[3] of
//! seed, offset and offset + n for part n of a larger tensor; see [`mod@prims::uniform`]. PyTorch draws other numbers
//! of the same distributions. Two calls of one program draw different numbers from one generator; give each run an
//! offset of its own. On every device the numbers have the same bits, unless an operator says otherwise: they are
//! counters that Philox mixes, and what is computed of them takes sums, products, quotients, roots and comparisons
//! alone.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::rules::{ArrayD, Failure, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor};

use super::arrays::spread;
use super::promotion::{broadcast, cast, common_shape, describe_shapes, largest_number, operands_in, promote_types};
use crate::prims;
use crate::prims::checks;

/// The type that numbers are drawn in before they are rounded to `dtype`.
fn drawn_in(dtype: DType) -> DType {
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
fn unit_array(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    crate::nn::draws(size, drawn_in(dtype), generator)
}

/// For references: what [`centred`] draws, as a probability.
fn probabilities(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
    Ok(unit_array(size, dtype, generator)?.mapv(|u| u - 0.5 + half_a_place(drawn_in(dtype))))
}

/// For references: standard normal numbers.
fn normal_array(size: &[usize], dtype: DType, generator: &ArrayD<i64>) -> Result<ArrayD<f64>, Failure> {
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
const MOST: u64 = 1 << 53;

/// What is wrong with the bounds of random integers of `dtype`, if anything.
fn wrong_bounds(low: i64, high: i64, dtype: DType) -> Option<String> {
    if low >= high {
        return Some(format!("low is {low}, high is {high}, expected low < high"));
    }
    let count = high.abs_diff(low);
    if count > MOST {
        return Some(format!("low is {low}, high is {high}, which are {count} numbers, expected at most {MOST}"));
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
    let (places, count) = (MOST as f64, i128::from(high) - i128::from(low));
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
            DType::U8 => 255.0,
            DType::I32 => f64::from(i32::MAX),
            DType::BF16 => 256.0,
            DType::F16 => 2048.0,
            DType::F32 => 16_777_216.0,
            _ => MOST as f64,
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
        e.case(Generator, with(2, e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
    }
}

/// One with the probability that the element of `input` is, otherwise zero, in the element type of `input`: where a
/// uniform number is below it. With `p` every element has this probability, and only the shape and the type of `input`
/// count. An element that is no probability is an error when the program runs.
#[operator(torch = "bernoulli", effects(random), no_grad = "what is drawn has no gradient by its probabilities")]
pub mod bernoulli {
    fn bernoulli(input: Tensor, generator: Tensor<Integer>, #[default(None)] p: Option<f64>) -> Tensor;

    fn meta(input: &TensorMeta, generator: &TensorMeta, p: Option<f64>) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        if let Some(p) = p {
            require!((0.0..=1.0).contains(&p), Probability, "p is {p}, expected a probability from 0 to 1");
        }
        let dtype = input.dtype();
        require!(
            p.is_some() || dtype.is_floating() || input.is_empty(),
            FloatingDType,
            "input is {dtype}, expected probabilities of a floating-point dtype, or p"
        );
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, generator: Tensor, p: Option<f64>) -> Tensor {
        let (shape, dtype) = (input.shape(), input.dtype());
        let wide = drawn_in(dtype);
        let drawn = prims::uniform(&*shape, 0.0, 1.0, wide, generator);
        let ones = match p {
            Some(p) => prims::lt(drawn, p),
            None if shape.contains(&0) => return input,
            None => {
                let probabilities = cast(input, wide);
                let all: Vec<usize> = (0..shape.len()).collect();
                // Negative if one is below 0 or above 1, NaN if one is.
                let margin = prims::minimum(probabilities, prims::sub(1.0, probabilities));
                let least = if all.is_empty() { margin } else { prims::amin(margin, all) };
                let one = prims::full([1, 1], 1.0, wide, input.device());
                let checked = prims::check_weights(prims::cat(vec![prims::reshape(least, [1, 1]), one], 1));
                // That 1 again, which is there once the margin is known to be none below 0.
                let one = prims::reshape(prims::slice(checked, [0, 1], [1, 2], [1, 1]), []);
                prims::lt(drawn, prims::mul(probabilities, broadcast(one, &shape)))
            }
        };
        cast(ones, dtype)
    }

    fn reference(input: &ReferenceTensor, generator: &ArrayD<i64>, p: Option<f64>) -> Result<ReferenceTensor> {
        let dtype = drawn_in(input.dtype());
        let drawn = unit_array(input.shape(), input.dtype(), generator)?;
        let probabilities = match p {
            Some(p) => ArrayD::from_elem(input.shape(), dtype.nearest(p)),
            None => input.floats().clone(),
        };
        if let Some(wrong) = probabilities.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Err(Failure::new("Weights", format!("input holds {wrong}, expected probabilities")));
        }
        let ones = ndarray::Zip::from(&drawn).and(&probabilities).map_collect(|u, p| i64::from(u < p));
        Ok(match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), ones.mapv(|one| one as f64)),
            false => ReferenceTensor::from_integers(input.dtype(), ones),
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.integers(0, 1 << 40, [2])).p(0.3));
        s.case(with(s.normal([5]), s.integers(0, 9, [3])).p(1.0));
        if s.dtype().is_floating() {
            for shape in [&[][..], &[0, 3], &[33, 5]] {
                s.case(with(s.uniform(0.0, 1.0, shape), s.integers(0, 9, [2])));
            }
            s.case(with(s.values([4], [0.0, 1.0, 0.5, 1.0]), s.integers(0, 9, [3])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        e.case(Probability, with(e.normal([2]), generator()).p(1.5), "p is 1.5, expected a probability from 0 to 1");
        e.case(FloatingDType, with(e.of(DType::I64, [2]), generator()), "input is i64, expected probabilities");
        e.case(Generator, with(e.normal([2]), e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
        for wrong in [-0.25, 1.25, f64::NAN] {
            e.when_run("Weights", with(e.values([3], [0.0, wrong, 1.0]), generator()), "");
        }
    }
}

/// Random numbers of the normal distribution with `mean` and standard deviation `std`, which broadcast: tensors, or
/// numbers for a tensor of `size`. Without tensors the result is f32 unless `dtype` says otherwise, and otherwise of
/// the type that they meet in. It is `mean + std · randn`, rounded once. As in PyTorch it has no gradient; write the
/// sum for that. An element of `std` below zero acts as its magnitude.
#[operator(torch = "normal", effects(random), no_grad = "drawn numbers have no gradient, as in PyTorch")]
pub mod normal {
    fn normal(
        mean: Operand<Floating>,
        std: Operand<Floating>,
        generator: Tensor<Integer>,
        #[default(None)] size: Option<Vec<usize>>,
        #[default(None)] dtype: Option<DType>,
    ) -> Tensor;

    fn meta(
        mean: Operand<&TensorMeta>,
        std: Operand<&TensorMeta>,
        generator: &TensorMeta,
        size: Option<&[usize]>,
        dtype: Option<DType>,
    ) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        if let Operand::Scalar(std) = std {
            let std = std.to_f64();
            require!(std >= 0.0, Deviation, "std is {std}, expected at least 0");
        }
        let operands = [mean, std];
        let tensors = operands.iter().any(|operand| operand.tensor().is_some());
        require!(
            tensors != size.is_some(),
            Size,
            "size is {}, expected it where mean and std are numbers, and only there",
            if size.is_some() { "given" } else { "absent" }
        );
        let shape = size.map(<[usize]>::to_vec).or_else(|| common_shape(&operands));
        let Some(shape) = shape else {
            return Err(Failure::new(
                Code::Broadcast.name(),
                format!("shapes {} do not broadcast", describe_shapes(&operands)),
            ));
        };
        let dtype = super::normal_dtype(&operands, dtype);
        require!(dtype.is_floating(), FloatingDType, "dtype is {dtype}, expected a floating-point dtype");
        Ok(TensorMeta::new(shape, dtype, generator.device()))
    }

    fn decomposition(
        mean: Operand<Tensor>,
        std: Operand<Tensor>,
        generator: Tensor,
        size: Option<&[usize]>,
        dtype: Option<DType>,
    ) -> Tensor {
        let dtype = super::normal_dtype(&[mean, std], dtype);
        let wide = drawn_in(dtype);
        let shape = size.map(<[usize]>::to_vec).or_else(|| common_shape(&[mean, std])).unwrap_or_default();
        let numbers = Operand::Tensor(normal_numbers(&shape, dtype, generator));
        let [numbers, mean, std] = operands_in([numbers, mean, std], wide);
        cast(prims::add(prims::mul(numbers, std), mean), dtype)
    }

    fn reference(
        mean: &Operand<ReferenceTensor>,
        std: &Operand<ReferenceTensor>,
        generator: &ArrayD<i64>,
        size: Option<&[usize]>,
        dtype: Option<DType>,
    ) -> Result<ReferenceTensor> {
        let of = |operand: &Operand<ReferenceTensor>| match operand {
            Operand::Tensor(tensor) => (tensor.floats().clone(), Some(tensor.dtype())),
            Operand::Scalar(number) => (ndarray::arr0(number.to_f64()).into_dyn(), None),
        };
        let ((mean, first), (std, second)) = (of(mean), of(std));
        let met = [first, second].into_iter().flatten().reduce(promote_types);
        let dtype = dtype.or(met).unwrap_or(DType::F32);
        let shape = super::super::promotion::broadcast_shapes(&[mean.shape(), std.shape()]).unwrap_or_default();
        let shape = size.map_or(shape, <[usize]>::to_vec);
        let [mean, std] = [mean, std].map(|array| spread(&array, &shape));
        Ok(ReferenceTensor::from_floats(dtype, super::normal_array(&shape, dtype, generator)? * std + mean))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.uniform(0.5, 2.0, [8]), s.integers(0, 1 << 40, [2])));
        s.case(with(s.normal([3, 1]), 0.5, s.integers(0, 9, [3])));
        s.case(with(-1.5, s.uniform(0.5, 2.0, [0, 3]), s.integers(0, 9, [2])));
        s.case(with(2.0, 0.25, s.integers(0, 9, [2])).size(vec![5]));
        if s.dtype().is_floating() {
            s.case(with(2.0, 0.0, s.integers(0, 9, [2])).size(vec![]).dtype(s.dtype()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        e.case(Deviation, with(e.normal([2]), -1.0, generator()), "std is -1, expected at least 0");
        e.case(Size, with(0.0, 1.0, generator()), "size is absent, expected it where mean and std are numbers");
        e.case(Size, with(e.normal([2]), 1.0, generator()).size(vec![2]), "size is given");
        e.case(Broadcast, with(e.normal([2]), e.normal([3]), generator()), "shapes [2] and [3] do not broadcast");
        let whole = with(0.0, 1.0, generator()).size(vec![2]).dtype(DType::I64);
        e.case(FloatingDType, whole, "dtype is i64, expected a floating-point dtype");
        e.case(Generator, with(e.normal([2]), 1.0, e.integers(0, 9, [4])), "generator is i64[4]");
    }
}

/// The type of normal numbers: `dtype`, or that in which the tensors meet, or f32.
fn normal_dtype<V: super::promotion::HasMeta>(operands: &[Operand<V>; 2], dtype: Option<DType>) -> DType {
    let metas = operands.iter().filter_map(|operand| operand.tensor().map(|tensor| tensor.tensor_meta().dtype()));
    dtype.or(metas.reduce(promote_types)).unwrap_or(DType::F32)
}

// Declares numbers of a distribution with one parameter, like a tensor.
operators! {
    #[operator(
        torch = $torch,
        effects(random),
        waive(input = "its shape and its element type count, not its elements"),
        no_grad = "random numbers do not depend on anything differentiable"
    )]
    pub mod $name {
        fn $name(input: Tensor<$class>, $parameter: f64, generator: Tensor<Integer>) -> Tensor;

        fn meta(input: &TensorMeta, $parameter: f64, generator: &TensorMeta) -> Result<TensorMeta> {
            checks::generator(generator, Code::Generator)?;
            require!($allowed, Parameter, "{} is {}, expected {}", stringify!($parameter), $parameter, $expected);
            Ok(input.clone())
        }

        fn decomposition(input: Tensor, $parameter: f64, generator: Tensor) -> Tensor {
            let dtype = input.dtype();
            let wide = if dtype.is_floating() { dtype } else { DType::F64 };
            let numbers = exponential_numbers(&input.shape(), wide, generator);
            cast($numbers, dtype)
        }

        fn reference(input: &ReferenceTensor, $parameter: f64, generator: &ArrayD<i64>) -> Result<ReferenceTensor> {
            let dtype = input.dtype();
            let wide = if dtype.is_floating() { dtype } else { DType::F64 };
            let numbers = exponential_array(input.shape(), wide, generator)?;
            let numbers = numbers.mapv($reference);
            Ok(match dtype.is_floating() {
                true => ReferenceTensor::from_floats(dtype, numbers),
                false => ReferenceTensor::from_integers(dtype, numbers.mapv(|number| number as i64)),
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 8]), 0.5, s.integers(0, 1 << 40, [2])));
            s.case(with(s.normal([33]), 0.25, s.integers(0, 9, [3])));
            s.case(with(s.normal([]), 0.75, s.integers(0, 9, [2])));
        }

        fn errors(e: &mut ErrorSamples) {
            let generator = || e.integers(0, 9, [2]);
            e.case(Parameter, with(e.normal([2]), 0.0, generator()), $message);
            e.case(Generator, with(e.normal([2]), 0.5, e.integers(0, 9, [4])), "generator is i64[4]");
        }
    }

    table($name, $torch, $class, $parameter, $allowed, $expected, $message, $numbers, $reference) {
        /// Random numbers of the exponential distribution of rate `lambd`, of the shape and the element type of
        /// `input`. None is zero, none above 17.4 / `lambd` (37.5 / `lambd` in f64).
        exponential, "Tensor.exponential_", Floating, lambd,
            lambd > 0.0,
            "a rate above 0",
            "lambd is 0, expected a rate above 0",
            prims::div(numbers, lambd),
            |number| number / lambd;
        /// Random numbers of trials up to the first success, each with the probability `p`: whole numbers from 1 on, of
        /// the shape and the element type of `input`, at most the largest that it holds and 2⁵³.
        geometric, "Tensor.geometric_", Number, p,
            p > 0.0 && p < 1.0,
            "a probability between 0 and 1",
            "p is 0, expected a probability between 0 and 1",
            prims::minimum(
                prims::neg(prims::floor(prims::div(numbers, (-p).ln_1p()))),
                largest_integer(dtype)
            ),
            |number: f64| (number / -(-p).ln_1p()).ceil();
    }
}

/// The largest whole number of trials that is told in `dtype`.
fn largest_integer(dtype: DType) -> f64 {
    match dtype {
        DType::U8 => 255.0,
        DType::I32 => f64::from(i32::MAX),
        DType::I64 => MOST as f64,
        _ => largest_number(dtype),
    }
}

/// Random numbers whose logarithms have the normal distribution with `mean` and standard deviation `std`, of the shape
/// and the element type of `input`. The exponential is `prims::exp`, whose last place may differ between devices.
#[operator(
    torch = "Tensor.log_normal_",
    effects(random),
    waive(input = "its shape and its element type count, not its elements"),
    no_grad = "random numbers do not depend on anything differentiable"
)]
pub mod log_normal {
    fn log_normal(
        input: Tensor<Floating>,
        generator: Tensor<Integer>,
        #[default(1.0)] mean: f64,
        #[default(2.0)] std: f64,
    ) -> Tensor;

    fn meta(input: &TensorMeta, generator: &TensorMeta, std: f64) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        require!(std > 0.0, Parameter, "std is {std}, expected above 0");
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, generator: Tensor, mean: f64, std: f64) -> Tensor {
        let q = centred(&input.shape(), drawn_in(input.dtype()), generator);
        cast(prims::exp(prims::add(prims::mul(prims::normal_quantile(q), std), mean)), input.dtype())
    }

    fn reference(input: &ReferenceTensor, generator: &ArrayD<i64>, mean: f64, std: f64) -> Result<ReferenceTensor> {
        let drawn = probabilities(input.shape(), input.dtype(), generator)?;
        Ok(ReferenceTensor::from_floats(
            input.dtype(),
            drawn.mapv(|q| (prims::normal_by_halving(q) * std + mean).exp()),
        ))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.integers(0, 1 << 40, [2])));
        s.case(with(s.normal([33]), s.integers(0, 9, [3])).mean(-0.5).std(0.25));
        s.case(with(s.normal([]), s.integers(0, 9, [2])));
    }

    fn errors(e: &mut ErrorSamples) {
        let none = with(e.normal([2]), e.integers(0, 9, [2])).std(0.0);
        e.case(Parameter, none, "is 0, expected above 0");
        e.case(Generator, with(e.normal([2]), e.integers(0, 9, [4])), "generator is i64[4]");
    }
}
