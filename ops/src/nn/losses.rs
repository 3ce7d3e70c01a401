//! Losses of elements: a term of each input and its target, which broadcast and are promoted, reduced. Terms of f16 and
//! bf16 are computed and summed in f32. The mean of no terms is NaN.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::Reduction;
use super::soft_positive;
use crate::core::arrays::zip;
use crate::core::promotion::{
    accumulating, as_tensor, broadcast, cast, common_shape, constant_like, describe_shapes, elementwise_meta, floating,
    operands_in, promote_types, result_type,
};
use crate::prims::{self, abs, add, div, exp, gt, le, log, log1p, lt, mul, ne, neg, select, sub};

/// The terms of `compute`, in the accumulator of the type that the tensors meet in, reduced.
#[track_caller]
pub(crate) fn reduced_terms<const N: usize>(
    tensors: [Tensor; N],
    reduction: Reduction,
    compute: impl FnOnce([Tensor; N]) -> Tensor,
) -> Tensor {
    let operands = tensors.map(Operand::Tensor);
    let meta = elementwise_meta(&operands, floating(result_type(&operands)));
    let wide = operands_in(operands, meta.dtype()).map(|operand| accumulating(as_tensor(operand, &meta)));
    let terms = broadcast(compute(wide), meta.shape());
    let all: Vec<usize> = (0..meta.rank()).collect();
    let sum = |terms: Tensor| if all.is_empty() { terms } else { prims::sum(terms, &all) };
    let reduced = match reduction {
        Reduction::None => terms,
        Reduction::Sum => sum(terms),
        Reduction::Mean => div(sum(terms), meta.len() as f64),
    };
    cast(reduced, meta.dtype())
}

/// The meta of [`reduced_terms`], if the tensors broadcast; otherwise what to say of their shapes.
pub(crate) fn reduced_meta<const N: usize>(
    tensors: [&TensorMeta; N],
    reduction: Reduction,
) -> std::result::Result<TensorMeta, String> {
    let operands = tensors.map(Operand::Tensor);
    if common_shape(&operands).is_none() {
        return Err(format!("shapes {} do not broadcast", describe_shapes(&operands)));
    }
    let meta = elementwise_meta(&operands, floating(result_type(&operands)));
    Ok(if reduction == Reduction::None { meta } else { meta.with_shape([]) })
}

/// What is missing, where it is positive, else zero. NaN stays NaN; neither it nor zero has a gradient, as in PyTorch.
#[track_caller]
fn missing(short: Tensor) -> Tensor {
    let nan = constant_like(short, f64::NAN);
    select(gt(short, 0.0), short, select(ne(short, short), nan, 0.0))
}

/// For references: terms reduced.
pub(crate) fn reduced_array(terms: ndarray::ArrayD<f64>, reduction: Reduction) -> ndarray::ArrayD<f64> {
    match reduction {
        Reduction::None => terms,
        Reduction::Sum => ndarray::arr0(terms.sum()).into_dyn(),
        Reduction::Mean => ndarray::arr0(terms.sum() / terms.len() as f64).into_dyn(),
    }
}

/// The magnitudes of differences: `|input - target|`. The subgradient of equal elements is zero. Of integers they are
/// integers, and their sum is i64; in u8 differences wrap, as in PyTorch.
#[operator(torch = "nn.functional.l1_loss", autocast = full)]
pub mod l1_loss {
    fn l1_loss(
        input: Tensor<Number>,
        target: Tensor<Number>,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(input: &TensorMeta, target: &TensorMeta, reduction: Reduction) -> Result<TensorMeta> {
        let dtype = result_type(&[input, target].map(Operand::Tensor));
        require!(
            dtype.is_floating() || reduction != Reduction::Mean,
            MeanType,
            "the differences are {dtype}, whose mean is none: expected a floating-point dtype, or another reduction"
        );
        let reduced = super::reduced_meta([input, target], reduction);
        let reduced = reduced.map_err(|text| Failure::new(Code::Broadcast.name(), text))?;
        Ok(match (dtype.is_floating(), reduction) {
            (true, _) => reduced,
            (false, Reduction::None) => reduced.with_dtype(dtype),
            (false, _) => reduced.with_dtype(DType::I64),
        })
    }

    fn decomposition(input: Tensor, target: Tensor, reduction: Reduction) -> Tensor {
        let pair = [input, target].map(Operand::Tensor);
        let dtype = result_type(&pair);
        if dtype.is_floating() {
            return super::reduced_terms([input, target], reduction, |[x, t]| abs(sub(x, t)));
        }
        let meta = elementwise_meta(&pair, dtype);
        let [x, t] = operands_in(pair, dtype).map(|operand| as_tensor(operand, &meta));
        let difference = if dtype.is_unsigned() { sub(x, t) } else { abs(sub(x, t)) };
        let all: Vec<usize> = (0..meta.rank()).collect();
        match reduction {
            Reduction::None => difference,
            _ if all.is_empty() => cast(difference, DType::I64),
            _ => prims::sum(cast(difference, DType::I64), &all),
        }
    }

    fn reference(input: &ReferenceTensor, target: &ReferenceTensor, reduction: Reduction) -> ArrayD<f64> {
        let dtype = promote_types(input.dtype(), target.dtype());
        let of = |x: f64, t: f64| match dtype.limits() {
            Some((0, largest)) => (x - t).rem_euclid(largest as f64 + 1.0),
            _ => (x - t).abs(),
        };
        super::reduced_array(zip(input.floats(), target.floats(), of), reduction)
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            s.case(with(s.normal([3, 5]), s.uniform(1.0, 2.0, [5])).reduction(Reduction::None));
            s.case(with(s.normal([3, 5]), s.uniform(1.0, 2.0, [3, 5])).reduction(Reduction::Sum));
            return;
        }
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            s.case(with(s.normal([3, 5]), s.uniform(1.0, 2.0, [3, 5])).reduction(reduction));
        }
        s.case(with(s.normal([]), s.uniform(1.0, 2.0, [])));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduction::Sum));
        s.case(with(s.values([3], [1.0, -1.0, 30.0]), s.values([3], [1.0, 1.0, -1.0])).reduction(Reduction::None))
            .forward_only("kinks");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(MeanType, with(e.of(DType::I64, [2]), e.of(DType::I64, [2])), "the differences are i64");
    }
}

// Declares losses without parameters.
operators! {
    #[operator(torch = $torch, autocast = full)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            target: Tensor<Number>,
            #[default(Reduction::Mean)] reduction: Reduction,
        ) -> Tensor;

        fn meta(input: &TensorMeta, target: &TensorMeta, reduction: Reduction) -> Result<TensorMeta> {
            super::reduced_meta([input, target], reduction).map_err(|text| Failure::new(Code::Broadcast.name(), text))
        }

        fn decomposition(input: Tensor, target: Tensor, reduction: Reduction) -> Tensor {
            super::reduced_terms([input, target], reduction, |[x, t]| $term)
        }

        fn reference(input: &ArrayD<f64>, target: &ArrayD<f64>, reduction: Reduction) -> ArrayD<f64> {
            super::reduced_array(zip(input, target, $reference), reduction)
        }

        fn samples(s: &mut Samples) {
            for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
                s.case(with(s.normal([3, 5]), s.uniform(1.0, 2.0, [3, 5])).reduction(reduction));
            }
            s.case(with(s.normal([]), s.uniform(1.0, 2.0, [])));
            s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduction::Sum));
            s.case(with(s.values([3], [1.0, -1.0, 30.0]), s.values([3], [1.0, 1.0, -1.0])).reduction(Reduction::None))
                .forward_only("kinks");
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        }
    }

    table($name, $torch, $term, $reference) {
        /// The squares of differences: `(input - target)²`.
        mse_loss, "nn.functional.mse_loss", {
            let difference = sub(x, t);
            mul(difference, difference)
        }, |x: f64, t: f64| (x - t).powi(2);
        /// The logistic loss of two classes, whose `target` is 1 or -1: `log(1 + e^(-target · input))`. `target` has a
        /// gradient, which PyTorch refuses.
        soft_margin_loss, "nn.functional.soft_margin_loss",
            soft_positive(neg(mul(x, t))),
            |x: f64, t: f64| (-t * x).max(0.0) + (-(t * x).abs()).exp().ln_1p();
    }
}

// Declares losses with one parameter.
operators! {
    #[operator(torch = $torch, autocast = full)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            target: Tensor<Number>,
            #[default(Reduction::Mean)] reduction: Reduction,
            #[default(1.0)] $parameter: f64,
        ) -> Tensor;

        fn meta(
            input: &TensorMeta,
            target: &TensorMeta,
            reduction: Reduction,
            $parameter: f64,
        ) -> Result<TensorMeta> {
            require!($allowed, Parameter, "{} is {}, expected {}", stringify!($parameter), $parameter, $expected);
            super::reduced_meta([input, target], reduction).map_err(|text| Failure::new(Code::Broadcast.name(), text))
        }

        fn decomposition(input: Tensor, target: Tensor, reduction: Reduction, $parameter: f64) -> Tensor {
            super::reduced_terms([input, target], reduction, |[x, t]| $term)
        }

        fn reference(
            input: &ArrayD<f64>,
            target: &ArrayD<f64>,
            reduction: Reduction,
            $parameter: f64,
        ) -> ArrayD<f64> {
            super::reduced_array(zip(input, target, $reference), reduction)
        }

        fn samples(s: &mut Samples) {
            for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
                s.case(with(s.normal([3, 5]), s.normal([3, 5])).reduction(reduction).$parameter(0.7));
            }
            s.case(with(s.normal([]), s.normal([])));
            s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduction::Sum));
            s.case(with(s.values([4], [1.0, 2.0, 3.0, -4.0]), s.values([4], [1.0; 4])).reduction(Reduction::None))
                .forward_only("kinks");
            s.case(with(s.normal([3, 5]), s.normal([3, 5])).$parameter($least));
            s.case(with(s.normal([3, 5]), s.normal([3, 5])).$parameter(0.25));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
            e.case(Parameter, with(e.normal([2]), e.normal([2])).$parameter(-1.0), $expected);
            e.case(Parameter, with(e.normal([2]), e.normal([2])).$parameter($wrong), $expected);
        }
    }

    table($name, $torch, $parameter, $least, $wrong, $allowed, $expected, $term, $reference) {
        /// The squares of small differences `d = |input - target|` and the magnitudes of others: `d²/(2 beta)` below
        /// `beta`, `d - beta/2` from there on. Girshick, 2015.
        smooth_l1_loss, "nn.functional.smooth_l1_loss", beta, 0.0, -0.125, beta >= 0.0,
            "a number that is not negative", {
            let distance = abs(sub(x, t));
            let square = mul(mul(distance, distance), if beta > 0.0 { 0.5 / beta } else { 0.0 });
            select(lt(distance, beta), square, sub(distance, 0.5 * beta))
        }, |x: f64, t: f64| match (x - t).abs() {
            d if d < beta => d * d / (2.0 * beta),
            d => d - beta / 2.0,
        };
        /// The squares of small differences `d = |input - target|` and the magnitudes of others: `d²/2` up to `delta`,
        /// `delta (d - delta/2)` above. Huber, 1964.
        huber_loss, "nn.functional.huber_loss", delta, 0.125, 0.0, delta > 0.0, "a positive number", {
            let distance = abs(sub(x, t));
            let square = mul(mul(distance, distance), 0.5);
            select(le(distance, delta), square, mul(sub(distance, 0.5 * delta), delta))
        }, |x: f64, t: f64| match (x - t).abs() {
            d if d <= delta => d * d / 2.0,
            d => delta * (d - delta / 2.0),
        };
    }
}

/// The loss of distances `input` of pairs that are alike, whose `target` is 1, or unlike, whose `target` is -1:
/// `input`, or `max(0, margin - input)`.
#[operator(torch = "nn.functional.hinge_embedding_loss", autocast = full)]
pub mod hinge_embedding_loss {
    fn hinge_embedding_loss(
        input: Tensor<Floating>,
        target: Tensor<Number>,
        #[default(1.0)] margin: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(input: &TensorMeta, target: &TensorMeta, reduction: Reduction) -> Result<TensorMeta> {
        super::reduced_meta([input, target], reduction).map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(input: Tensor, target: Tensor, margin: f64, reduction: Reduction) -> Tensor {
        super::reduced_terms([input, target], reduction, |[x, t]| {
            let unlike = missing(sub(margin, x));
            add(select(ne(t, 1.0), unlike, 0.0), select(ne(t, -1.0), x, 0.0))
        })
    }

    fn reference(input: &ArrayD<f64>, target: &ArrayD<f64>, margin: f64, reduction: Reduction) -> ArrayD<f64> {
        let term = |x: f64, t: f64| {
            let (unlike, alike) = ((margin - x).max(0.0), x);
            if t == 1.0 {
                alike
            } else if t == -1.0 {
                unlike
            } else {
                unlike + alike
            }
        };
        super::reduced_array(zip(input, target, term), reduction)
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let target = s.values([4], [1.0, -1.0, -1.0, 1.0]);
            s.case(with(s.uniform(0.0, 2.0, [3, 4]), target).reduction(reduction).margin(1.3))
                .forward_only("constants");
        }
        s.case(with(s.values([3], [0.5, 3.0, 0.25]), s.values([3], [-1.0, -1.0, 1.0])));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduction::Sum));
        let at_margin = with(s.values([2], [1.0, 0.5]), s.values([2], [-1.0, -1.0])).reduction(Reduction::None);
        s.case(at_margin).forward_only("a kink").gradients([&[0.0, -2.0], &[0.0, 0.0]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// The cross entropy of probabilities `input` and `target`, of two classes: `-weight · (target log input + (1 - target)
/// log(1 - input))`, whose logarithms are at least -100. A probability outside of [0, 1] gives NaN;
/// PyTorch refuses it.
#[operator(torch = "nn.functional.binary_cross_entropy", autocast = full)]
pub mod binary_cross_entropy {
    fn binary_cross_entropy(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, weight, reduction }: Args<&TensorMeta>) -> Result<TensorMeta> {
        prims::checks::is_like(("target", target), input, Code::SameMeta)?;
        let all = super::reduced_meta([input, weight.unwrap_or(input)], reduction);
        all.map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input, target, weight, reduction }: Args<Tensor>) -> Tensor {
        let entropy = |x: Tensor, t: Tensor| {
            let of = |logarithm: Tensor| select(lt(logarithm, -100.0), -100.0, logarithm);
            neg(add(mul(t, of(log(x))), mul(sub(1.0, t), of(log1p(neg(x))))))
        };
        match weight {
            Some(weight) => super::reduced_terms([input, target, weight], reduction, |[x, t, w]| mul(entropy(x, t), w)),
            None => super::reduced_terms([input, target], reduction, |[x, t]| entropy(x, t)),
        }
    }

    fn reference(Args { input, target, weight, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let of = |logarithm: f64| if logarithm < -100.0 { -100.0 } else { logarithm };
        let terms = zip(input, target, |x: f64, t: f64| -(t * of(x.ln()) + (1.0 - t) * of((-x).ln_1p())));
        let terms = weight.map_or(terms.clone(), |weight| zip(&terms, weight, |term, w| term * w));
        super::reduced_array(terms, reduction)
    }

    fn samples(s: &mut Samples) {
        let of = |shape: &[usize]| with(s.uniform(0.1, 0.9, shape), s.uniform(0.0, 1.0, shape));
        let cases = [
            of(&[3, 5]).reduction(Reduction::None),
            of(&[3, 5]),
            of(&[3, 5]).reduction(Reduction::Sum).weight(s.uniform(0.5, 2.0, [5])),
            of(&[]),
            of(&[0, 3]).reduction(Reduction::Sum),
        ];
        for case in cases {
            s.case(case);
        }
        let certain = with(s.values([4], [0.0, 1.0, 0.0, 1.0]), s.values([4], [0.0, 1.0, 1.0, 0.0]));
        s.case(certain.reduction(Reduction::None)).forward_only("logarithms of zero");
        if s.dtype() == DType::F64 {
            // A logarithm at the bound is still one of the probability.
            let least = (-100f64).exp();
            let bound = with(s.values([1], [least]), s.values([1], [1.0])).reduction(Reduction::None);
            s.case(bound).forward_only("a logarithm at the bound").gradients([&[-1.0 / least], &[100.0]]);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([3])), "target is f32[3], expected f32[2, 3]");
        e.case(
            Broadcast,
            with(e.normal([2]), e.normal([2])).weight(e.normal([3])),
            "shapes [2] and [3] do not broadcast",
        );
    }
}

/// The cross entropy of the logistic function of `input` and of probabilities `target`, of two classes:
/// `weight · ((1 - target) x + (1 + (pos_weight - 1) target) log(1 + e⁻ˣ))`, in a form that is finite for all logits.
/// `pos_weight` has a gradient, which PyTorch refuses.
#[operator(torch = "nn.functional.binary_cross_entropy_with_logits", autocast = full)]
pub mod binary_cross_entropy_with_logits {
    fn binary_cross_entropy_with_logits(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(None)] pos_weight: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn meta(Args { input, target, weight, reduction, pos_weight }: Args<&TensorMeta>) -> Result<TensorMeta> {
        prims::checks::is_like(("target", target), input, Code::SameMeta)?;
        let all = super::reduced_meta([input, weight.unwrap_or(input), pos_weight.unwrap_or(input)], reduction);
        all.map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input, target, weight, reduction, pos_weight }: Args<Tensor>) -> Tensor {
        // What is absent is the target once more, which changes neither shape nor type.
        let all = [input, target, weight.unwrap_or(target), pos_weight.unwrap_or(target)];
        super::reduced_terms(all, reduction, |[x, t, w, p]| {
            let negative = soft_positive(neg(x));
            let scaled = match pos_weight {
                Some(_) => mul(negative, add(mul(sub(p, 1.0), t), 1.0)),
                None => negative,
            };
            let terms = add(mul(sub(1.0, t), x), scaled);
            if weight.is_some() { mul(terms, w) } else { terms }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { input, target, weight, reduction, pos_weight } = args;
        let positive = |x: f64| (-x).max(0.0) + (-x.abs()).exp().ln_1p();
        let of_one = zip(input, target, |x: f64, t: f64| t * positive(x));
        let of_one = pos_weight.map_or(of_one.clone(), |weight| zip(&of_one, weight, |term, w| term * w));
        let of_zero = zip(input, target, |x: f64, t: f64| (1.0 - t) * positive(-x));
        let terms = of_one + of_zero;
        let terms = weight.map_or(terms.clone(), |weight| zip(&terms, weight, |term, w| term * w));
        super::reduced_array(terms, reduction)
    }

    fn samples(s: &mut Samples) {
        let of = |shape: &[usize]| with(s.normal(shape), s.uniform(0.0, 1.0, shape));
        let cases = [
            of(&[3, 5]).reduction(Reduction::None),
            of(&[3, 5]).pos_weight(s.uniform(0.5, 2.0, [5])),
            of(&[3, 5]).reduction(Reduction::Sum).weight(s.uniform(0.5, 2.0, [5])),
            of(&[]),
            of(&[0, 3]).reduction(Reduction::Sum),
        ];
        for case in cases {
            s.case(case);
        }
        let large = with(s.values([4], [0.0, 80.0, -80.0, 1e4]), s.values([4], [1.0, 1.0, 1.0, 0.0]));
        s.case(large.reduction(Reduction::None)).forward_only("large logits");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameMeta, with(e.normal([2, 3]), e.normal([3])), "target is f32[3], expected f32[2, 3]");
        e.case(
            Broadcast,
            with(e.normal([2]), e.normal([2])).weight(e.normal([3])),
            "shapes [2] and [3] and [2] do not",
        );
    }
}

/// The negative logarithm of the probability of counts `target` by a Poisson distribution, without a constant: with
/// `log_input` `e^input - target · input`, else `input - target · log(input + eps)`. With `full` Stirling's
/// approximation of the constant is added for targets above 1: `t log t - t + ½ log 2πt`.
/// Integers become f32.
#[operator(torch = "nn.functional.poisson_nll_loss", autocast = full)]
pub mod poisson_nll_loss {
    fn poisson_nll_loss(
        input: Tensor<Number>,
        target: Tensor<Number>,
        #[default(true)] log_input: bool,
        #[default(false)] full: bool,
        #[default(1e-8)] eps: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        super::reduced_meta([input, target], reduction).map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input, target, log_input, full, eps, reduction }: Args<Tensor>) -> Tensor {
        super::reduced_terms([input, target], reduction, |[x, t]| {
            let terms = match log_input {
                true => sub(exp(x), mul(t, x)),
                false => sub(x, mul(t, log(add(x, eps)))),
            };
            if !full {
                return terms;
            }
            let many = gt(t, 1.0);
            let count = select(many, t, 1.0);
            let half = mul(log(mul(count, 2.0 * std::f64::consts::PI)), 0.5);
            let constant = add(sub(mul(count, log(count)), count), half);
            add(terms, select(many, constant, 0.0))
        })
    }

    fn reference(Args { input, target, log_input, full, eps, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let term = |x: f64, t: f64| {
            let stirling = t * t.ln() - t + (2.0 * std::f64::consts::PI * t).ln() / 2.0;
            let constant = if full && t > 1.0 { stirling } else { 0.0 };
            constant + if log_input { x.exp() - t * x } else { x - t * (x + eps).ln() }
        };
        super::reduced_array(zip(input.floats(), target.floats(), term), reduction)
    }

    fn samples(s: &mut Samples) {
        let of = || with(s.uniform(0.2, 2.0, [3, 5]), s.uniform(0.2, 5.0, [3, 5]));
        let cases = [
            of().reduction(Reduction::None),
            of().log_input(false).eps(0.1),
            of().full(true).reduction(Reduction::Sum),
            with(s.normal([]), s.uniform(0.2, 5.0, [])),
        ];
        for case in cases {
            s.case(case);
        }
        // One is not above one: nothing is added.
        let bound = with(s.values([3], [0.5, -0.5, 0.25]), s.values([3], [1.0, 2.0, 0.5])).full(true);
        s.case(bound.reduction(Reduction::None)).forward_only("the constant is not continuous");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}

/// The loss of two rankings, of which the first is to be higher where `target` is 1 and lower where it is -1:
/// `max(0, margin - target · (input1 - input2))`. The subgradient at the kink is zero. Integers with signs become f32.
#[operator(
    torch = "nn.functional.margin_ranking_loss",
    autocast = full,
    dtypes(i8, i16, i32, i64, f16, bf16, f32, f64)
)]
pub mod margin_ranking_loss {
    fn margin_ranking_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        #[default(0.0)] margin: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input1, input2, target, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let all = super::reduced_meta([input1, input2, target], reduction);
        all.map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input1, input2, target, margin, reduction }: Args<Tensor>) -> Tensor {
        super::reduced_terms([input1, input2, target], reduction, |[x, y, t]| {
            missing(add(mul(neg(t), sub(x, y)), margin))
        })
    }

    fn reference(Args { input1, input2, target, margin, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let above = zip(input1.floats(), input2.floats(), |x: f64, y: f64| x - y);
        super::reduced_array(zip(&above, target.floats(), |x: f64, t: f64| (margin - t * x).max(0.0)), reduction)
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let target = s.values([4], [1.0, -1.0, -1.0, 1.0]);
            s.case(with(s.normal([3, 4]), s.normal([3, 4]), target).margin(0.3).reduction(reduction));
        }
        s.case(with(s.normal([]), s.normal([]), s.values([], [1.0])));
        s.case(with(s.normal([0]), s.normal([0]), s.normal([0])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        let inputs = with(e.normal([2, 3]), e.normal([2, 3]), e.normal([4]));
        e.case(Broadcast, inputs, "shapes [2, 3] and [2, 3] and [4] do not broadcast");
    }
}
