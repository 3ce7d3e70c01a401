use fulgurite_ops_macros::operator;

use super::logit_rows::{LogitRows, RowOptions, check_rows, divisor, losses_meta, plain_losses, reduced_losses};
use super::reduction::{Reduction, Rows};
use crate::core::promotion::{accumulating, broadcast, cast, constant, constant_like, differs_from};
use crate::nn::{accumulate_weight_gradient, class_losses, class_losses_with_gradient, linear};
use crate::prims;

/// [`regularized_cross_entropy`](super::regularized_cross_entropy) of a linear layer's results: hidden states `input`
/// [N, H], `weight` [C, H], `bias` [C], classes `target` [N]; `ce_weight` [C] are the classes' weights. The loss is f32
/// for f16 and bf16.
///
/// Rows are computed in chunks, so that the logits of all rows never exist: those of a chunk take about half as many
/// bytes as `weight`, and there are at most 32 chunks. For a sum or a mean the gradients are computed in the forward
/// pass, for a cotangent of one, while a chunk's logits exist; the backward pass multiplies them by the cotangent. They
/// are accumulated in f32, and rounded once. Losses that are not reduced have a cotangent each, so that their gradients
/// are computed in the backward pass, for which the logits are kept.
#[operator(autocast = low)]
pub mod fused_linear_cross_entropy {
    fn fused_linear_cross_entropy(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] bias: Option<Tensor<Floating>>,
        #[default(None)] ce_weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.0)] lse_square_scale: f64,
        #[default(0.0)] label_smoothing: f64,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(None)] softcap: Option<f64>,
    ) -> Tensor;

    fn meta(
        input: &TensorMeta,
        weight: &TensorMeta,
        target: &TensorMeta,
        bias: Option<&TensorMeta>,
        ce_weight: Option<&TensorMeta>,
        label_smoothing: f64,
        reduction: Reduction,
        softcap: Option<f64>,
    ) -> Result<TensorMeta> {
        let fits = input.rank() == 2 && weight.rank() == 2 && input.shape()[1] == weight.shape()[1];
        require!(
            fits && input.dtype() == weight.dtype(),
            Layer,
            "input is {input}, weight {weight}, expected [N, H] and [C, H] of one element type"
        );
        let logits = input.with_shape([input.shape()[0], weight.shape()[0]]);
        if let Some(bias) = bias {
            let expected = input.with_shape([weight.shape()[0]]);
            require!(*bias == expected, BiasShape, "bias is {bias}, expected {expected}");
        }
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([&logits, target], ce_weight, label_smoothing, softcap, codes)?;
        Ok(losses_meta(&logits, reduction))
    }

    fn decomposition(
        input: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Option<Tensor>,
        ce_weight: Option<Tensor>,
        ignore_index: i64,
        lse_square_scale: f64,
        label_smoothing: f64,
        reduction: Reduction,
        softcap: Option<f64>,
    ) -> Tensor {
        let losses = chunks(input.size(0), input.size(1)).map(|[from, to]| {
            let logits = linear::with(rows(input, from, to), weight).bias(bias).call();
            class_losses::with(logits, rows(target, from, to))
                .weight(ce_weight)
                .ignore_index(ignore_index)
                .label_smoothing(label_smoothing)
                .lse_square_scale(lse_square_scale)
                .softcap(softcap)
                .call()
        });
        let losses = joined(losses.collect());
        reduced_losses(losses, target, ce_weight, ignore_index, reduction)
    }

    /// Where the chunks of so many rows of this width begin and end: one at least.
    fn chunks(rows: usize, width: usize) -> impl Iterator<Item = [usize; 2]> {
        let each = width.div_ceil(2).max(rows.div_ceil(32)).max(1);
        (0..rows.div_ceil(each).max(1)).map(move |i| [i * each, rows.min((i + 1) * each)])
    }

    /// Rows `from` up to `to` of a tensor.
    #[track_caller]
    fn rows(tensor: Tensor, from: usize, to: usize) -> Tensor {
        if (from, to) == (0, tensor.size(0)) {
            return tensor;
        }
        let (mut starts, mut ends) = (vec![0; tensor.rank()], tensor.shape().to_vec());
        (starts[0], ends[0]) = (from, to);
        prims::slice(tensor, starts, ends, vec![1; tensor.rank()])
    }

    /// Chunks of rows one after the other.
    #[track_caller]
    fn joined(chunks: Vec<Tensor>) -> Tensor {
        if chunks.len() == 1 { chunks[0] } else { prims::cat(chunks, 0) }
    }

    /// The operands of the layer and of the losses.
    #[derive(Clone, Copy)]
    struct Operands {
        input: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Option<Tensor>,
        ce_weight: Option<Tensor>,
        options: RowOptions,
    }

    /// The losses, and gradients in the type that sums are accumulated in.
    struct Parts {
        losses: Tensor,
        input: Tensor,
        weight: Tensor,
        bias: Option<Tensor>,
        ce_weight: Option<Tensor>,
    }

    impl Operands {
        /// Chunk by chunk, for cotangents `d_losses` [N]: the logits and their gradient are dead at the chunk's end.
        #[track_caller]
        fn chunked(self, d_losses: Tensor) -> Parts {
            let Operands { input, weight, target, bias, ce_weight, options } = self;
            let wide = input.dtype().accumulator();
            let add = |total: &mut Option<Tensor>, part: Tensor| {
                *total = Some(total.map_or(part, |total| prims::add(total, part)));
            };
            let (mut losses, mut d_inputs) = (Vec::new(), Vec::new());
            let (mut d_weight, mut d_bias, mut d_ce_weight) = (None, None, None);
            for [from, to] in chunks(input.size(0), input.size(1)) {
                let [x, class, d] = [input, target, d_losses].map(|tensor| rows(tensor, from, to));
                let logits = linear::with(x, weight).bias(bias).call();
                let (loss, d_logits) = class_losses_with_gradient::with(logits, class, d)
                    .weight(ce_weight)
                    .ignore_index(options.ignore_index)
                    .label_smoothing(options.label_smoothing)
                    .lse_square_scale(options.lse_square_scale)
                    .softcap(options.softcap)
                    .call();
                losses.push(loss);
                d_inputs.push(prims::matmul::with(d_logits, weight).out_dtype(wide).call());
                d_weight = Some(match d_weight {
                    None => prims::matmul::with(prims::permute(d_logits, [1, 0]), x).out_dtype(wide).call(),
                    Some(total) => accumulate_weight_gradient(total, d_logits, x),
                });
                if bias.is_some() {
                    add(&mut d_bias, prims::sum(accumulating(d_logits), [0]));
                }
                if ce_weight.is_some() {
                    let rows = LogitRows::new(logits, class, ce_weight, options);
                    add(&mut d_ce_weight, rows.weight_gradient(d));
                }
            }
            Parts {
                losses: joined(losses),
                input: joined(d_inputs),
                weight: d_weight.unwrap_or(weight),
                bias: d_bias,
                ce_weight: d_ce_weight,
            }
        }
    }

    fn grad(
        input: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Option<Tensor>,
        ce_weight: Option<Tensor>,
        ignore_index: i64,
        lse_square_scale: f64,
        label_smoothing: f64,
        reduction: Reduction,
        softcap: Option<f64>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let operands = Operands { input, weight, target, bias, ce_weight, options };
        let wide = input.dtype().accumulator();
        let none = input.size(0) == 0;
        // With a cotangent for each row the gradients have to wait for it.
        let early = (reduction != Reduction::None && !none).then(|| {
            let parts = operands.chunked(constant(1.0, &target.meta().with_dtype(wide)));
            let out = reduced_losses(parts.losses, target, ce_weight, ignore_index, reduction);
            (parts, out)
        });
        let out = match &early {
            Some((_, out)) => *out,
            None => decomposition(
                input,
                weight,
                target,
                bias,
                ce_weight,
                ignore_index,
                lse_square_scale,
                label_smoothing,
                reduction,
                softcap,
            ),
        };
        (out, move |d_out: Tensor| {
            if none {
                let zeros = |tensor: Tensor| constant_like(tensor, 0.0);
                let (bias, ce_weight) = (bias.map(zeros), ce_weight.map(zeros));
                return Grads { input: zeros(input), weight: zeros(weight), bias, ce_weight };
            }
            let (parts, rate) = match early {
                None => (operands.chunked(d_out), None),
                Some((parts, _)) if reduction == Reduction::Sum => (parts, Some(d_out)),
                Some((parts, _)) => (parts, Some(prims::div(d_out, divisor(target, ce_weight, ignore_index, wide)))),
            };
            let scaled = |part: Tensor| rate.map_or(part, |rate| prims::mul(part, broadcast(rate, &part.shape())));
            let as_like = |part: Tensor, like: Tensor| cast(scaled(part), like.dtype());
            let of_ce_weight = parts.ce_weight.zip(ce_weight).map(|(part, ce_weight)| {
                let mut d_ce_weight = scaled(part);
                if let (Reduction::Mean, Some(rate)) = (reduction, rate) {
                    // The mean divides by the sum of the weights of the classes that rows have.
                    let each = prims::mul(rate, out);
                    let counted = differs_from(target, ignore_index);
                    let each = prims::select(counted, broadcast(each, &target.shape()), 0.0);
                    let class = prims::select(counted, target, 0);
                    let seen = prims::index_add(constant_like(d_ce_weight, 0.0), 0, class, each);
                    d_ce_weight = prims::sub(d_ce_weight, seen);
                }
                cast(d_ce_weight, ce_weight.dtype())
            });
            Grads {
                input: as_like(parts.input, input),
                weight: as_like(parts.weight, weight),
                bias: parts.bias.zip(bias).map(|(part, bias)| as_like(part, bias)),
                ce_weight: of_ce_weight,
            }
        })
    }

    fn reference(
        input: &ArrayD<f64>,
        weight: &ArrayD<f64>,
        target: &ArrayD<i64>,
        bias: Option<&ArrayD<f64>>,
        ce_weight: Option<&ArrayD<f64>>,
        ignore_index: i64,
        lse_square_scale: f64,
        label_smoothing: f64,
        reduction: Reduction,
        softcap: Option<f64>,
    ) -> Result<ArrayD<f64>> {
        let ([rows, width], classes) = ([input.shape()[0], input.shape()[1]], weight.shape()[0]);
        let logits = ArrayD::from_shape_fn(IxDyn(&[rows, classes]), |at| {
            let product: f64 = (0..width).map(|i| input[[at[0], i]] * weight[[at[1], i]]).sum();
            product + bias.map_or(0.0, |bias| bias[[at[1]]])
        });
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = plain_losses(&logits, target, ce_weight, options)?;
        Ok(Rows { losses }.reduced(reduction, &[rows]))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [rows, width, classes]: [usize; 3]| {
            let target = s.integers(0, classes as i64, [rows]);
            with(s.normal([rows, width]), s.uniform(-0.5, 0.5, [classes, width]), target)
        };
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            // Several chunks, the last one shorter.
            let plain = of(s, [7, 4, 5]).ignore_index(3).reduction(reduction);
            s.case(plain);
            let all = of(s, [5, 6, 9]).bias(s.normal([9])).ce_weight(s.uniform(0.5, 2.0, [9])).ignore_index(2);
            s.case(all.label_smoothing(0.1).lse_square_scale(0.03).softcap(2.5).reduction(reduction));
        }
        let [one, wide, none] = [[3, 16, 1], [33, 24, 130], [0, 4, 5]].map(|shape| of(s, shape));
        s.case(one);
        s.case(wide.bias(s.normal([130])));
        s.case(none.reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([6, 4]), e.normal([5, 4]), e.integers(0, 5, [6]));
        e.case(Layer, with(e.normal([6, 4]), e.normal([5, 3]), e.integers(0, 5, [6])), "expected [N, H] and [C, H]");
        let wide = with(e.normal([6, 4]), e.of(DType::F64, [5, 4]), e.integers(0, 5, [6]));
        e.case(Layer, wide, "of one element type");
        e.case(BiasShape, good().bias(e.normal([4])), "bias is f32[4], expected f32[5]");
        e.case(Rows, with(e.normal([6, 4]), e.normal([5, 4]), e.integers(0, 5, [5])), "expected [N, C]");
        e.case(WeightShape, good().ce_weight(e.normal([6])), "[5]");
        e.case(Smoothing, good().label_smoothing(1.5), "is 1.5, expected 0 to 1");
        e.case(Cap, good().softcap(0.0), "softcap is 0, expected more than 0");
        let target = e.values([2], [0.0, 5.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(e.normal([2, 4]), e.normal([5, 4]), target), "holds");
    }
}
