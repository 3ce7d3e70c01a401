//! Random numbers of distributions with parameters.

use std::f64::consts::PI;

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, Failure, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor};

use super::arrays::spread;
use super::promotion::{broadcast, cast, common_shape, describe_shapes, largest_number, operands_in, promote_types};
use super::{
    MOST_DRAWN, centred, drawn_in, exponential_array, exponential_numbers, normal_numbers, probabilities, unit_array,
};
use crate::prims;
use crate::prims::checks;

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
        s.case(with(s.normal([5]), s.integers(0, 9, [3])).p(0.0));
        s.case(with(s.normal([0, 2]), s.integers(0, 9, [2])));
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
        Ok(ReferenceTensor::from_floats(dtype, super::super::normal_array(&shape, dtype, generator)? * std + mean))
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
    match dtype.limits() {
        Some((_, largest)) => largest.min(MOST_DRAWN as i64) as f64,
        None => largest_number(dtype),
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

/// Random numbers of Cauchy's distribution with `median` and half the distance `sigma` of its quartiles, of the shape
/// and the element type of `input`: `median + sigma · tan(π (u - ½))` of uniform numbers. The tangent is a quotient of
/// a sine and a cosine, whose last places may differ between devices.
#[operator(
    torch = "Tensor.cauchy_",
    effects(random),
    tolerance(consistency, factor = 8.0, reason = "the tangent is steep near a quarter of a turn"),
    waive(input = "its shape and its element type count, not its elements"),
    no_grad = "random numbers do not depend on anything differentiable"
)]
pub mod cauchy {
    fn cauchy(
        input: Tensor<Floating>,
        generator: Tensor<Integer>,
        #[default(0.0)] median: f64,
        #[default(1.0)] sigma: f64,
    ) -> Tensor;

    fn meta(input: &TensorMeta, generator: &TensorMeta, sigma: f64) -> Result<TensorMeta> {
        checks::generator(generator, Code::Generator)?;
        require!(sigma > 0.0, Parameter, "sigma is {sigma}, expected above 0");
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, generator: Tensor, median: f64, sigma: f64) -> Tensor {
        let angle = prims::mul(centred(&input.shape(), drawn_in(input.dtype()), generator), PI);
        let tangent = prims::div(prims::sin(angle), prims::cos(angle));
        cast(prims::add(prims::mul(tangent, sigma), median), input.dtype())
    }

    fn reference(input: &ReferenceTensor, generator: &ArrayD<i64>, median: f64, sigma: f64) -> Result<ReferenceTensor> {
        let drawn = probabilities(input.shape(), input.dtype(), generator)?;
        Ok(ReferenceTensor::from_floats(input.dtype(), drawn.mapv(|q| (PI * q).tan() * sigma + median)))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.integers(0, 1 << 40, [2])));
        s.case(with(s.normal([9]), s.integers(0, 9, [3])).median(-0.5).sigma(0.25));
    }

    fn errors(e: &mut ErrorSamples) {
        let none = with(e.normal([2]), e.integers(0, 9, [2])).sigma(0.0);
        e.case(Parameter, none, "sigma is 0, expected above 0");
        e.case(Generator, with(e.normal([2]), e.integers(0, 9, [4])), "generator is i64[4]");
    }
}
