use fulgurite_ops_macros::operator;

use super::logit_rows::class_weight_fault;
use super::reduction::{
    Reduction, Rows, class_dim, class_loss, class_rows, classes_last, loss_meta, picked, target_shape,
};
use crate::core::arrays::log_softmax_row;
use crate::core::promotion::{accumulating, broadcast, cast, constant_like, differs_from};
use crate::nn::{log_normalizer, log_softmax, nll_loss, normalized_along, restored_along};
use crate::prims;

/// Cross entropy of logits `[N, C, d₁, ...]` or `[C]` and targets: classes `[N, d₁, ...]` (integers), or probabilities
/// of `input`'s shape. With `label_smoothing` ε the target is mixed with the uniform distribution, `(1 - ε) t + ε / C`.
/// Targets of `ignore_index` count nothing; the mean over classes is weighted, over probabilities it is not. Statistics
/// in f32 for f16 and bf16. A class out of range is an error when the program runs.
#[operator(torch = "nn.functional.cross_entropy", autocast = full)]
pub mod cross_entropy {
    fn cross_entropy(
        input: Tensor<Floating>,
        target: Tensor<Number>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(0.0)] label_smoothing: f64,
    ) -> Tensor;

    fn meta(Args { input, target, weight, reduction, label_smoothing, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected [N, C, ...] or [C]");
        let probabilities = target.dtype().is_floating();
        let expected = if probabilities { input.shape().to_vec() } else { target_shape(input.shape()) };
        require!(
            target.shape() == expected,
            TargetShape,
            "target has shape {:?}, expected {expected:?} for input {:?}",
            target.shape(),
            input.shape()
        );
        require!(
            !probabilities || target.dtype() == input.dtype(),
            TargetDType,
            "target is {}, expected integers or {}",
            target.dtype(),
            input.dtype()
        );
        let classes = input.shape()[class_dim(input.rank())];
        let fault = weight.and_then(|weight| class_weight_fault(weight, classes, input.dtype()));
        require!(fault.is_none(), WeightShape, "{}", fault.unwrap_or_default());
        require!(
            (0.0..=1.0).contains(&label_smoothing),
            Smoothing,
            "label_smoothing is {label_smoothing}, expected 0 to 1"
        );
        Ok(loss_meta(input, reduction))
    }

    fn decomposition(Args { input, target, weight, ignore_index, reduction, label_smoothing }: Args<Tensor>) -> Tensor {
        let (rank, dtype) = (input.rank(), input.dtype());
        let dim = class_dim(rank);
        let classes = input.size(dim as i64);
        let weight = weight.map(accumulating);
        if !target.dtype().is_floating() && label_smoothing == 0.0 && !input.meta().is_empty() {
            return cast(of_classes(accumulating(input), target, weight, ignore_index, reduction), dtype);
        }
        let log_probabilities = log_softmax(accumulating(input), dim as i64);
        if target.dtype().is_floating() {
            let rows = classes_last(log_probabilities);
            let mut target = classes_last(accumulating(target));
            if label_smoothing > 0.0 {
                let kept = prims::mul(target, 1.0 - label_smoothing);
                target = prims::add(kept, label_smoothing / classes as f64);
            }
            let mut terms = prims::mul(rows, target);
            if let Some(weight) = weight {
                terms = prims::mul(terms, broadcast(weight, &terms.shape()));
            }
            let losses = prims::neg(prims::sum(terms, [1]));
            let count = losses.size(0);
            let out = match reduction {
                Reduction::None => prims::reshape(losses, target_shape(&input.shape())),
                Reduction::Sum => prims::sum(losses, [0]),
                Reduction::Mean => {
                    let total = prims::sum(losses, [0]);
                    prims::div(total, count as f64)
                }
            };
            return cast(out, dtype);
        }
        let likelihood = nll_loss::with(log_probabilities, target)
            .weight(weight)
            .ignore_index(ignore_index)
            .reduction(reduction)
            .call();
        let shape = target.shape().to_vec();
        let count: usize = shape.iter().product();
        let flat = prims::reshape(target, [count]);
        let counted = differs_from(flat, ignore_index);
        let mut terms = classes_last(log_probabilities);
        if let Some(weight) = weight {
            terms = prims::mul(terms, broadcast(weight, &terms.shape()));
        }
        let uniform = prims::neg(prims::sum(terms, [1]));
        let uniform = prims::select(counted, uniform, 0.0);
        let uniform = match reduction {
            Reduction::None => prims::reshape(uniform, shape),
            Reduction::Sum => prims::sum(uniform, [0]),
            Reduction::Mean => {
                let class = prims::select(counted, flat, 0);
                let weights = match weight {
                    Some(weight) => prims::select(counted, prims::index_select(weight, 0, class), 0.0),
                    None => cast(counted, uniform.dtype()),
                };
                prims::div(prims::sum(uniform, [0]), prims::sum(weights, [0]))
            }
        };
        let hard = prims::mul(likelihood, 1.0 - label_smoothing);
        let soft = prims::mul(uniform, label_smoothing / classes as f64);
        cast(prims::add(hard, soft), dtype)
    }

    /// The loss of classes: of each row of logits two numbers are computed and one is picked, and nothing of its size
    /// is written.
    fn of_classes(
        input: Tensor,
        target: Tensor,
        weight: Option<Tensor>,
        ignore_index: i64,
        reduction: Reduction,
    ) -> Tensor {
        let (top, log_sum) = log_normalizer(input, class_dim(input.rank()) as i64);
        let logits = classes_last(input);
        class_loss(target, weight, ignore_index, reduction, |class| {
            let [top, log_sum] = [top, log_sum].map(|row| prims::reshape(row, [class.size(0)]));
            // The difference of logits first: nothing is lost to their size.
            prims::sub(log_sum, prims::sub(picked(logits, class), top))
        })
    }

    // Only the logits and two numbers of each row are saved, where the derived gradient keeps all log-probabilities.
    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = args.call();
        let Args { input, target, weight, ignore_index, reduction, label_smoothing } = args;
        let dim = class_dim(input.rank());
        let saved = (!input.meta().is_empty()).then(|| log_normalizer(accumulating(input), dim as i64));
        (out, move |d_out: Tensor| {
            let Some((top, log_sum)) = saved else {
                return Grads {
                    input: constant_like(input, 0.0),
                    target: constant_like(target, 0i64),
                    weight: weight.map(|weight| constant_like(weight, 0.0)),
                };
            };
            let x = accumulating(input);
            let (dtype, shape) = (x.dtype(), x.shape().to_vec());
            let classes = shape[dim];
            let log_probabilities = normalized_along(x, top, log_sum, dim as i64);
            let per_row = |row: Tensor| restored_along(row, x, dim as i64);
            let wide_weight = weight.map(accumulating);
            let weighted = |terms: Tensor| match wide_weight {
                Some(weight) => prims::mul(terms, prims::broadcast_in_dim(weight, &shape, [dim])),
                None => terms,
            };
            let smoothed = |terms: Tensor| {
                if label_smoothing == 0.0 {
                    return terms;
                }
                let kept = prims::mul(terms, 1.0 - label_smoothing);
                prims::add(kept, label_smoothing / classes as f64)
            };
            // Whether each row counts, and where its class is; `None` for probabilities.
            let hard = (!target.dtype().is_floating()).then(|| {
                let counted = differs_from(target, ignore_index);
                // The numbers of the classes are read once a row: half as many bytes count.
                let narrow = if classes < i32::MAX as usize { DType::I32 } else { target.dtype() };
                let numbers = prims::iota(classes, 0i64, 1i64, narrow, target.device());
                let class = prims::eq(prims::broadcast_in_dim(numbers, &shape, [dim]), per_row(cast(target, narrow)));
                (counted, class)
            });
            // A row's loss is `-Σ weight · wanted · log p`.
            let wanted = smoothed(match hard {
                Some((_, class)) => cast(class, dtype),
                None => cast(target, dtype),
            });
            let aimed = weighted(wanted);

            // How much a row's loss adds to the result, times the cotangent.
            let d = accumulating(d_out);
            let count = (reduction == Reduction::Mean).then(|| match hard {
                Some((counted, _)) => Operand::Tensor(total(match wide_weight {
                    Some(weight) => {
                        let class = prims::select(counted, target, 0);
                        let class = prims::reshape(class, [class.meta().len()]);
                        let weights = prims::reshape(prims::index_select(weight, 0, class), target.shape());
                        prims::select(counted, weights, 0.0)
                    }
                    None => cast(counted, dtype),
                })),
                None => Operand::from((x.meta().len() / classes) as f64),
            });
            let mut share = broadcast(count.map_or(d, |count| prims::div(d, count)), &top.shape());
            if let Some((counted, _)) = hard {
                share = prims::select(counted, share, 0.0);
            }

            let probabilities = prims::exp(log_probabilities);
            // What is wanted of a class sums to one, without weights.
            let expected = match (hard, wide_weight) {
                (Some(_), None) => probabilities,
                _ => prims::mul(probabilities, per_row(prims::sum(aimed, [dim]))),
            };
            let d_input = prims::mul(prims::sub(expected, aimed), per_row(share));
            let d_target = match hard {
                // Classes are integers, whose gradient nobody reads.
                Some(_) => target,
                None => {
                    let slope = prims::mul(weighted(log_probabilities), per_row(share));
                    cast(prims::mul(slope, label_smoothing - 1.0), target.dtype())
                }
            };
            let d_weight = weight.map(|weight| {
                let rows: Vec<usize> = (0..shape.len()).filter(|i| *i != dim).collect();
                let surprise = match hard {
                    // Other classes do not count, not even where their logarithms are infinite.
                    Some((_, class)) if label_smoothing == 0.0 => prims::select(class, log_probabilities, 0.0),
                    _ => prims::mul(wanted, log_probabilities),
                };
                let mut terms = prims::mul(surprise, per_row(share));
                if let Some((counted, _)) = hard {
                    // What is not counted may be infinite.
                    terms = prims::select(per_row(counted), terms, 0.0);
                }
                let mut d_weight = prims::neg(prims::sum(terms, &rows));
                if let (Some((counted, class)), Some(count)) = (hard, count) {
                    let seen = prims::select(per_row(counted), cast(class, dtype), 0.0);
                    let seen = prims::sum(seen, &rows);
                    let rate = prims::div(prims::mul(d, accumulating(out)), count);
                    let moved = prims::mul(seen, broadcast(rate, &seen.shape()));
                    // Where no row counts, the mean is no number, but no class has a part in it.
                    d_weight = prims::sub(d_weight, prims::select(prims::ne(seen, 0.0), moved, 0.0));
                }
                cast(d_weight, weight.dtype())
            });
            Grads { input: cast(d_input, input.dtype()), target: d_target, weight: d_weight }
        })
    }

    #[track_caller]
    fn total(rows: Tensor) -> Tensor {
        prims::sum(rows, (0..rows.rank()).collect::<Vec<_>>())
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, weight, ignore_index, reduction, label_smoothing } = args;
        let rows = class_rows(input);
        let classes = input.shape()[class_dim(input.ndim())];
        let of_class = |class: usize| weight.map_or(1.0, |weight| weight[[class]]);
        let smooth = |t: f64| (1.0 - label_smoothing) * t + label_smoothing / classes as f64;
        let mut losses = Vec::new();
        if target.dtype().is_floating() {
            for (row, target) in rows.iter().zip(class_rows(target.floats())) {
                let log_probabilities = log_softmax_row(row);
                let loss = (0..classes).map(|c| -smooth(target[c]) * of_class(c) * log_probabilities[c]).sum();
                losses.push((loss, 1.0));
            }
        } else {
            for (row, class) in rows.iter().zip(target.integers()) {
                if *class == ignore_index {
                    losses.push((0.0, 0.0));
                    continue;
                }
                let Some(class) = usize::try_from(*class).ok().filter(|class| *class < classes) else {
                    return Err(Failure::new(
                        "IndexOutOfRange",
                        format!("target holds {class}, there are {classes} classes"),
                    ));
                };
                let log_probabilities = log_softmax_row(row);
                let one_hot = |c: usize| f64::from(u8::from(c == class));
                // A class of no probability adds nothing, however improbable it is.
                let wanted = (0..classes).map(|c| (c, smooth(one_hot(c)))).filter(|(_, q)| *q != 0.0);
                let loss = wanted.map(|(c, q)| -q * of_class(c) * log_probabilities[c]).sum();
                losses.push((loss, of_class(class)));
            }
        }
        Ok(Rows { losses }.reduced(reduction, &target_shape(input.shape())))
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            for smoothing in [0.0, 0.1] {
                let plain = with(s.normal([6, 5]), s.integers(0, 5, [6]));
                s.case(plain.reduction(reduction).label_smoothing(smoothing).ignore_index(3));
                let weighted = with(s.normal([6, 5]), s.integers(0, 5, [6])).weight(s.uniform(0.5, 2.0, [5]));
                s.case(weighted.reduction(reduction).label_smoothing(smoothing).ignore_index(2));
            }
            let soft = with(s.normal([4, 3]), s.uniform(0.1, 0.6, [4, 3])).weight(s.uniform(0.5, 2.0, [3]));
            s.case(soft.reduction(reduction).label_smoothing(0.25));
        }
        s.case(with(s.normal([2, 5, 3, 2]), s.integers(0, 5, [2, 3, 2])));
        s.case(with(s.normal([2, 5, 3]), s.integers(0, 5, [2, 3])).label_smoothing(0.25));
        s.case(with(s.normal([5]), s.integers(0, 5, [])));
        s.case(with(s.normal([7, 311]), s.integers(0, 311, [7])));
        s.case(with(s.uniform(-50.0, 50.0, [4, 9]), s.integers(0, 9, [4])));
        s.case(with(s.normal([3, 5]), s.integers(0, 5, [3]).cast(DType::I32)));
        s.case(with(s.normal([2, 3, 4]), s.integers(0, 3, [2, 4])).weight(s.uniform(0.5, 2.0, [3])));
        s.case(with(s.normal([5]), s.uniform(0.1, 0.6, [5])).weight(s.uniform(0.5, 2.0, [5])));
        s.case(with(s.normal([2, 3, 4]), s.uniform(0.1, 0.6, [2, 3, 4])));
        let masked = [0.5, f64::NEG_INFINITY, -1.0];
        s.case(with(s.values([2, 3], masked), s.integers(0, 1, [2]))).forward_only("infinities have no differences");
        s.case(with(s.normal([0, 5]), s.integers(0, 5, [0])).reduction(Reduction::Sum));
        // Of 156 classes the last but one has the bits of -100, which no u8 is.
        s.case(with(s.normal([3, 158]), s.values([3], [156.0, 157.0, 0.0]).cast(DType::U8)));
        // What is ignored has no class, whose number could be read instead.
        for (rows, classes, smoothing) in [(3, 1, 0.1), (3, 1, 0.0), (5, 4, 0.25)] {
            let target = s.values([rows], [0.0, -100.0, 0.0]).cast(DType::I64);
            let weighted = with(s.normal([rows, classes]), target).weight(s.uniform(0.5, 2.0, [classes]));
            s.case(weighted.label_smoothing(smoothing));
        }
        let none = with(s.normal([0, 5]), s.integers(0, 5, [0])).weight(s.uniform(0.5, 2.0, [5]));
        s.case(none.reduction(Reduction::Sum));
        s.case(with(s.normal([4, 3]), s.uniform(0.1, 0.6, [4, 3])));
        // More classes than the target's type counts: 3 and 3 + 256 are two.
        s.case(with(s.normal([2, 300]), s.values([2], [3.0, 43.0]).cast(DType::U8)));
        // Weights of the classes in f32 beside logits of 16 bits.
        if s.dtype().size() == 2 {
            let weight = s.uniform(0.5, 2.0, [7]).cast(s.dtype().accumulator());
            s.case(with(s.normal([5, 7]), s.integers(0, 7, [5])).weight(weight).label_smoothing(0.1));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([]), e.integers(0, 1, [])), "input is zero-dimensional");
        e.case(TargetShape, with(e.normal([6, 5]), e.integers(0, 5, [5])), "target has shape [5], expected [6]");
        e.case(TargetShape, with(e.normal([6, 5]), e.normal([6])), "target has shape [6], expected [6, 5]");
        e.case(TargetDType, with(e.normal([6, 5]), e.of(DType::F64, [6, 5])), "expected integers or");
        e.case(WeightShape, with(e.normal([6, 5]), e.integers(0, 5, [6])).weight(e.normal([6])), "[5]");
        let wide = e.of(DType::F64, [5]);
        e.case(WeightShape, with(e.normal([6, 5]), e.integers(0, 5, [6])).weight(wide), "weight is f64[5]");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 5]), target), "holds");
        }
        e.case(
            Smoothing,
            with(e.normal([6, 5]), e.integers(0, 5, [6])).label_smoothing(1.5),
            "is 1.5, expected 0 to 1",
        );
    }
}
