//! Losses of pairs, triples and probabilities, and the Gaussian likelihood. Terms of f16 and bf16 are computed and
//! summed in f32. The mean of no terms is NaN.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};

use super::Reduction;
use super::{apart, differences, has_norm, last, norm, reduced_array, reduced_meta, row_norm, soft_positive};
use crate::core::arrays::{reduce, reshaped, zip};
use crate::core::detach;
use crate::core::promotion::{
    accumulating, broadcast, cast, common_shape, describe_shapes, elementwise_meta, floating, result_type,
};
use crate::prims::{self, add, div, eq, le, log, lt, minimum, mul, neg, select, sqrt, sub};

/// Tensors in the type that sums of the type they meet in are added up in, of integers f32, each of its own shape.
#[track_caller]
fn wide<const N: usize>(tensors: [Tensor; N]) -> [Tensor; N] {
    let dtype = floating(result_type(&tensors.map(Operand::Tensor)));
    tensors.map(|tensor| accumulating(cast(tensor, dtype)))
}

/// Terms, reduced and rounded to `dtype`.
#[track_caller]
pub(crate) fn reduced_and_rounded(terms: Tensor, reduction: Reduction, dtype: DType) -> Tensor {
    let (all, count): (Vec<usize>, usize) = ((0..terms.rank()).collect(), terms.shape().iter().product());
    let sum = |terms: Tensor| if all.is_empty() { terms } else { prims::sum(terms, &all) };
    cast(
        match reduction {
            Reduction::None => terms,
            Reduction::Sum => sum(terms),
            Reduction::Mean => div(sum(terms), count as f64),
        },
        dtype,
    )
}

/// The negative logarithm of the density of `target` under normal distributions with the means `input` and the
/// variances `var`, which are at least `eps`: `(log var + (input - target)² / var) / 2`, with `full` also
/// `log(2π) / 2`. `var` has the shape of `input`, or lacks its last dimension, or has an extent of 1 in one dimension.
/// A negative variance gives NaN; PyTorch refuses it. As in PyTorch, a variance below `eps` has the gradient of `eps`.
#[operator(torch = "nn.functional.gaussian_nll_loss")]
pub mod gaussian_nll_loss {
    fn gaussian_nll_loss(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        var: Tensor<Floating>,
        #[default(false)] full: bool,
        #[default(1e-6)] eps: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, var, eps, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let spread = super::variance_shape(input.shape(), var.shape());
        require!(
            spread.is_some(),
            VarianceShape,
            "var has shape {:?}, expected {:?}, or that without its last extent, or with an extent of 1",
            var.shape(),
            input.shape()
        );
        require!(eps > 0.0, Eps, "eps is {eps}, expected a positive number");
        let var = var.with_shape(spread.unwrap_or_default());
        super::reduced_meta([input, target, &var], reduction).map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input, target, var, full, eps, reduction }: Args<Tensor>) -> Tensor {
        let dtype = result_type(&[input, target, var].map(Operand::Tensor));
        let shape = super::variance_shape(&input.shape(), &var.shape()).unwrap_or_default();
        let [x, t, v] = super::wide([input, target, prims::reshape(var, shape)]);
        // Raised without a gradient of the difference.
        let v = add(v, detach(select(lt(v, 0.0), f64::NAN, select(lt(v, eps), sub(eps, v), 0.0))));
        let all = elementwise_meta(&[x, t, v].map(Operand::Tensor), v.dtype());
        let [x, t, v] = [x, t, v].map(|tensor| broadcast(tensor, all.shape()));
        let difference = sub(x, t);
        let terms = mul(add(log(v), div(mul(difference, difference), v)), 0.5);
        let constant = (2.0 * std::f64::consts::PI).ln() / 2.0;
        super::reduced_and_rounded(if full { add(terms, constant) } else { terms }, reduction, dtype)
    }

    fn reference(Args { input, target, var, full, eps, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let shape = super::variance_shape(input.shape(), var.shape()).unwrap_or_default();
        let var = reshaped(var, &shape).mapv(|v: f64| if v < 0.0 { f64::NAN } else { v.max(eps) });
        let squares = zip(input, target, |x: f64, t: f64| (x - t).powi(2));
        let constant = if full { (2.0 * std::f64::consts::PI).sqrt().ln() } else { 0.0 };
        let terms = zip(&squares, &var, |square: f64, v: f64| (v.ln() + square / v) / 2.0 + constant);
        super::reduced_array(terms, reduction)
    }

    fn samples(s: &mut Samples) {
        let of = |var: &[usize]| with(s.normal([3, 5]), s.normal([3, 5]), s.uniform(0.2, 2.0, var));
        let cases =
            [of(&[3, 5]).reduction(Reduction::None), of(&[3]).full(true), of(&[1, 5]).reduction(Reduction::Sum)];
        for case in cases {
            s.case(case);
        }
        s.case(with(s.normal([]), s.normal([]), s.uniform(0.2, 2.0, [])));
        s.case(with(s.normal([0]), s.normal([0]), s.normal([0])).reduction(Reduction::Sum));
        let small = with(s.values([2], [1.0, 2.0]), s.values([2], [0.0, 0.0]), s.values([2], [0.25, 0.0])).eps(0.5);
        s.case(small.reduction(Reduction::None)).forward_only("variances below eps").gradients([
            &[2.0, 8.0],
            &[-2.0, -8.0],
            &[-1.0, -14.0],
        ]);
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |target: &[usize], var: &[usize]| with(e.normal([2, 3]), e.normal(target), e.normal(var));
        e.case(VarianceShape, of(&[2, 3], &[3]), "var has shape [3], expected [2, 3]");
        e.case(Eps, of(&[2, 3], &[2, 3]).eps(0.0), "eps is 0");
        e.case(Broadcast, of(&[4], &[2, 3]), "shapes [2, 3] and [4] and [2, 3] do not broadcast");
    }
}

/// The shape of variances as they broadcast, if they fit `input`.
fn variance_shape(input: &[usize], var: &[usize]) -> Option<Vec<usize>> {
    if var == input {
        return Some(var.to_vec());
    }
    if input.split_last().is_some_and(|(_, others)| others == var) {
        return Some([var, &[1]].concat());
    }
    let unlike: Vec<usize> = input.iter().zip(var).filter(|(a, b)| a != b).map(|(_, b)| *b).collect();
    (input.len() == var.len() && unlike == [1]).then(|| var.to_vec())
}

/// The loss of pairs of vectors that are alike, whose `target` is 1, or unlike, whose `target` is -1: with the cosine c
/// of their angle `1 - c`, or `max(0, c - margin)`. Integers and booleans are f32.
#[operator(torch = "nn.functional.cosine_embedding_loss", autocast = full)]
pub mod cosine_embedding_loss {
    fn cosine_embedding_loss(
        input1: Tensor,
        input2: Tensor,
        target: Tensor,
        #[default(0.0)] margin: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input1, input2, target, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let rank = target.rank();
        require!(
            rank <= 1 && input1.rank() == rank + 1 && input2.rank() == rank + 1,
            Ranks,
            "input1 has shape {:?}, input2 {:?} and target {:?}, expected [N, D], [N, D] and [N], or [D], [D] and []",
            input1.shape(),
            input2.shape(),
            target.shape()
        );
        let both = [Operand::Tensor(input1), Operand::Tensor(input2)];
        require!(common_shape(&both).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
        let meta = elementwise_meta(&both, floating(result_type(&both)));
        let cosines = meta.with_shape(&meta.shape()[..rank]);
        let all = super::reduced_meta([&cosines, &target.with_dtype(meta.dtype())], reduction);
        all.map_err(|text| Failure::new(Code::Broadcast.name(), text))
    }

    fn decomposition(Args { input1, input2, target, margin, reduction }: Args<Tensor>) -> Tensor {
        let both = [input1, input2].map(Operand::Tensor);
        let meta = elementwise_meta(&both, floating(result_type(&both)));
        let [x, y] = super::wide([input1, input2]).map(|tensor| broadcast(tensor, meta.shape()));
        let dims = last(meta.rank());
        let sum = |terms: Tensor| prims::sum(terms, &dims);
        let lengths = mul(add(sum(mul(x, x)), 1e-12), add(sum(mul(y, y)), 1e-12));
        let cosine = div(sum(mul(x, y)), sqrt(lengths));
        let both = elementwise_meta(&[cosine, target].map(Operand::Tensor), cosine.dtype());
        let [cosine, target] = [cosine, target].map(|tensor| broadcast(tensor, both.shape()));
        let above = sub(cosine, margin);
        let alike = select(super::is(target, 1), sub(1.0, cosine), 0.0);
        let unlike = select(super::is(target, -1), select(le(above, 0.0), 0.0, above), 0.0);
        super::reduced_and_rounded(add(alike, unlike), reduction, meta.dtype())
    }

    fn reference(Args { input1, input2, target, margin, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let sum = |terms: &ArrayD<f64>| reduce(terms, Some(&[-1]), false, |row| row.iter().sum::<f64>());
        let [input1, input2] = [input1.floats(), input2.floats()];
        let products = sum(&zip(input1, input2, |a, b| a * b));
        let of = |x: &ArrayD<f64>| sum(&x.mapv(|a| a * a));
        let lengths = zip(&of(input1), &of(input2), |a: f64, b: f64| ((a + 1e-12) * (b + 1e-12)).sqrt());
        let cosines = zip(&products, &lengths, |product: f64, length: f64| product / length);
        let term = |c: f64, t: f64| match t {
            1.0 => 1.0 - c,
            -1.0 => (c - margin).max(0.0),
            _ => 0.0,
        };
        super::reduced_array(zip(&cosines, target.floats(), term), reduction)
    }

    fn samples(s: &mut Samples) {
        let target = s.values([4], [1.0, -1.0, -1.0, 1.0]);
        if !s.dtype().is_floating() {
            // Whose cosines are not near 1, from which they are subtracted.
            let first = [1.0, 2.0, 0.0, 0.0, 1.0, 3.0, 2.0, 0.0, 1.0, 1.0, 1.0, 0.0];
            let second = [0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 0.0, 3.0, 1.0, 0.0, 1.0, 1.0];
            for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
                let of = with(s.values([4, 3], first), s.values([4, 3], second), target.clone().cast(DType::I64));
                s.case(of.margin(-0.6).reduction(reduction));
            }
            let of = |values: [f64; 3]| s.values([3], values);
            s.case(with(of([1.0, 2.0, 0.0]), of([0.0, 1.0, 2.0]), s.values([], [1.0]).cast(DType::I64)));
            return;
        }
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let of = with(s.normal([4, 3]), s.normal([4, 3]), target.clone().cast(DType::I64));
            s.case(of.margin(-0.6).reduction(reduction));
        }
        s.case(with(s.uniform(0.5, 2.0, [4, 3]), s.uniform(0.5, 2.0, [1, 3]), target).margin(0.1))
            .forward_only("jumps of target");
        s.case(with(s.normal([3]), s.normal([3]), s.values([], [1.0]).cast(DType::I64)));
        // Booleans, of which none is -1.
        let truth = s.values([4], [1.0, 0.0, 1.0, 1.0]).cast(DType::Bool);
        s.case(with(s.normal([4, 3]), s.normal([4, 3]), truth).margin(-0.6));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Ranks, with(e.normal([3]), e.normal([2, 3]), e.normal([2])), "expected [N, D], [N, D] and [N]");
        let deep = || e.normal([2, 3, 4]);
        e.case(Ranks, with(deep(), deep(), e.normal([2, 3])), "expected [N, D], [N, D] and [N]");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([2, 4]), e.normal([2])), "do not broadcast");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([2, 3]), e.normal([3])), "do not broadcast");
    }
}

/// Whether elements of any type are `value`, 1 or -1.
#[track_caller]
fn is(target: Tensor, value: i64) -> Tensor {
    match target.dtype() {
        DType::Bool if value == 1 => target,
        dtype if value < 0 && (dtype == DType::Bool || dtype.is_unsigned()) => prims::ne(target, target),
        _ => eq(target, value),
    }
}

/// The loss of triples: `max(0, margin + d(anchor, positive) - d(anchor, negative))` with the distance
/// `d(a, b) = ‖a - b + eps‖` of order `p` along the last dimension; with `swap` the negative's distance is the smaller
/// one of those to the anchor and to the positive. That of integers is f32; their differences wrap in their type.
#[operator(
    torch = "nn.functional.triplet_margin_loss",
    autocast = full,
    skip(
        consistency,
        decomposition,
        dtype = u16,
        reason = "differences below zero are 65,000, and the distances cancel"
    ),
    tolerance(
        consistency,
        decomposition,
        factor = 10000.0,
        dtype = u8,
        reason = "differences below zero are 250, and the distances cancel"
    )
)]
pub mod triplet_margin_loss {
    fn triplet_margin_loss(
        anchor: Tensor<Number>,
        positive: Tensor<Number>,
        negative: Tensor<Number>,
        #[default(1.0)] margin: f64,
        #[default(2.0)] p: f64,
        #[default(1e-6)] eps: f64,
        #[default(false)] swap: bool,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { anchor, positive, negative, margin, p, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(margin > 0.0, Margin, "margin is {margin}, expected a positive number");
        let all = [anchor, positive, negative];
        require!(
            all.iter().all(|meta| meta.rank() == anchor.rank()),
            Ranks,
            "shapes {} have different numbers of dimensions",
            describe_shapes(&all.map(Operand::Tensor))
        );
        let shape = common_shape(&all.map(Operand::Tensor));
        let shapes = describe_shapes(&all.map(Operand::Tensor));
        require!(shape.is_some(), Broadcast, "shapes {shapes} do not broadcast");
        let (shape, dims) = (shape.unwrap_or_default(), last(anchor.rank()));
        require!(
            has_norm(&shape, p, &dims),
            Order,
            "p is {p} for vectors of shape {shape:?}, expected an order that their norms have"
        );
        let meta = elementwise_meta(&all.map(Operand::Tensor), floating(result_type(&all.map(Operand::Tensor))));
        Ok(match reduction {
            Reduction::None => meta.with_shape(&shape[..shape.len().saturating_sub(1)]),
            _ => meta.with_shape([]),
        })
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { anchor, positive, negative, margin, p, eps, swap, reduction } = args;
        let all = [anchor, positive, negative].map(Operand::Tensor);
        let meta = elementwise_meta(&all, result_type(&all));
        let distance = |a: Tensor, b: Tensor| {
            // Integers meet in pairs, as in PyTorch: their differences wrap in the type of both.
            let pair = result_type(&[Operand::Tensor(a), Operand::Tensor(b)]);
            let dtype = if meta.dtype().is_floating() { meta.dtype() } else { pair };
            norm(add(apart(a, b, &meta.with_dtype(dtype)), eps), p, &last(meta.rank()))
        };
        let (near, far) = (distance(anchor, positive), distance(anchor, negative));
        let far = if swap { minimum(far, distance(positive, negative)) } else { far };
        let short = sub(add(near, margin), far);
        super::reduced_and_rounded(select(le(short, 0.0), 0.0, short), reduction, floating(meta.dtype()))
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { anchor, positive, negative, margin, p, eps, swap, reduction } = args;
        let metas = [anchor, positive, negative].map(|x| TensorMeta::new(x.shape(), x.dtype(), Device::CPU));
        let dtype = result_type(&[&metas[0], &metas[1], &metas[2]].map(Operand::Tensor));
        let distance = |a: &ReferenceTensor, b: &ReferenceTensor| {
            let pair = [a, b].map(|x| TensorMeta::new(x.shape(), x.dtype(), Device::CPU));
            let pair = result_type(&[&pair[0], &pair[1]].map(Operand::Tensor));
            let dtype = if dtype.is_floating() { dtype } else { pair };
            reduce(&differences([a, b], dtype, eps), Some(&[-1]), false, |row| row_norm(row, p))
        };
        let (near, far) = (distance(anchor, positive), distance(anchor, negative));
        let far = if swap { zip(&far, &distance(positive, negative), f64::min) } else { far };
        super::reduced_array(zip(&near, &far, |near: f64, far: f64| (margin + near - far).max(0.0)), reduction)
    }

    fn samples(s: &mut Samples) {
        let of = || with(s.normal([3, 4]), s.normal([3, 4]), s.normal([3, 4])).margin(2.5);
        let cases = [
            of().reduction(Reduction::None),
            of(),
            of().reduction(Reduction::Sum),
            of().p(1.0).eps(0.2),
            of().swap(true).reduction(Reduction::None),
        ];
        for case in cases {
            s.case(case);
        }
        s.case(with(s.normal([3]), s.normal([3]), s.normal([3])));
        s.case(with(s.normal([2, 1, 3]), s.normal([1, 2, 3]), s.normal([1, 1, 3])).reduction(Reduction::None));
        s.case(with(s.normal([2, 3]), s.normal([2, 3]), s.normal([2, 3])).margin(0.25));
        let of = |dtype: DType, row: [f64; 2]| s.values([1, 2], row).cast(dtype);
        let mixed = with(of(DType::U8, [1.0, 200.0]), of(DType::U8, [3.0, 4.0]), of(DType::I64, [9.0, 4.0]));
        s.case(mixed.reduction(Reduction::None));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |a: &[usize], b: &[usize]| with(e.normal(a), e.normal(b), e.normal(a));
        e.case(Margin, of(&[2, 3], &[2, 3]).margin(0.0), "margin is 0");
        e.case(Ranks, of(&[2, 3], &[3]), "have different numbers of dimensions");
        e.case(Broadcast, of(&[2, 3], &[2, 4]), "do not broadcast");
        e.case(Order, of(&[2, 0], &[2, 0]).p(f64::INFINITY), "p is inf for vectors of shape [2, 0]");
    }
}

/// The mean over classes of cross entropies of the logistic function of `input` and of probabilities `target`, each of
/// two classes: `-weight · (target log σ(x) + (1 - target) log σ(-x))` along the last dimension.
#[operator(torch = "nn.functional.multilabel_soft_margin_loss")]
pub mod multilabel_soft_margin_loss {
    fn multilabel_soft_margin_loss(
        input: Tensor<Floating>,
        target: Tensor<Floating>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, weight, reduction }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected [..., C]");
        let all = [input, target, weight.unwrap_or(target)].map(Operand::Tensor);
        let shape = common_shape(&all);
        require!(shape.is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&all));
        let shape = shape.unwrap_or_default();
        require!(
            shape.len() == input.rank(),
            ClassesLast,
            "shapes {} meet in {shape:?}, expected as many dimensions as those of input",
            describe_shapes(&all)
        );
        let meta = elementwise_meta(&all, result_type(&all));
        Ok(match reduction {
            Reduction::None => meta.with_shape(&shape[..shape.len() - 1]),
            _ => meta.with_shape([]),
        })
    }

    fn decomposition(Args { input, target, weight, reduction }: Args<Tensor>) -> Tensor {
        // What is absent is the target once more, which changes neither shape nor type.
        let all = [input, target, weight.unwrap_or(target)];
        let meta = elementwise_meta(&all.map(Operand::Tensor), result_type(&all.map(Operand::Tensor)));
        let [x, t, w] = super::wide(all).map(|tensor| broadcast(tensor, meta.shape()));
        let terms = add(mul(t, soft_positive(neg(x))), mul(sub(1.0, t), soft_positive(x)));
        let terms = if weight.is_some() { mul(terms, w) } else { terms };
        let classes = input.shape()[input.rank() - 1];
        let losses = div(prims::sum(terms, last(meta.rank())), classes as f64);
        super::reduced_and_rounded(losses, reduction, meta.dtype())
    }

    fn reference(Args { input, target, weight, reduction }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let positive = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let terms = zip(input, target, |x: f64, t: f64| t * positive(-x) + (1.0 - t) * positive(x));
        let terms = weight.map_or(terms.clone(), |weight| zip(&terms, weight, |term, w| term * w));
        let classes = input.shape()[input.ndim() - 1] as f64;
        super::reduced_array(reduce(&terms, Some(&[-1]), false, |row| row.iter().sum::<f64>() / classes), reduction)
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            s.case(with(s.normal([3, 5]), s.uniform(0.0, 1.0, [3, 5])).reduction(reduction));
        }
        s.case(with(s.normal([2, 3, 4]), s.uniform(0.0, 1.0, [3, 4])).weight(s.uniform(0.5, 2.0, [4])));
        s.case(with(s.normal([3]), s.uniform(0.0, 1.0, [3])));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([]), e.normal([])), "input is zero-dimensional");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "do not broadcast");
        e.case(ClassesLast, with(e.normal([3]), e.normal([2, 3])), "expected as many dimensions");
    }
}
