use fulgurite_ops_macros::operator;

use super::chunked_linear::{ChunkedLinear, GradientSums, LayerGradients, added, joined, rows};
use super::logit_rows::{
    LogitRows, RowOptions, check_rows, divisor, losses_meta, plain_losses, reduced_losses, with_options,
};
use super::reduction::{Reduction, Rows};
use crate::core::promotion::{accumulating, broadcast, cast, constant, constant_like, differs_from};
use crate::nn::{class_losses, class_losses_with_gradient};
use crate::prims;

/// [`regularized_cross_entropy`](super::regularized_cross_entropy) of a linear layer's results: hidden states `input`
/// [N, H], `weight` [C, H], `bias` [C], classes `target` [N]; `ce_weight` [C] are the classes' weights. The loss is f32
/// for f16 and bf16.
///
/// Rows are computed in chunks, so that the logits of all rows never exist: those of a chunk take about half as many
/// bytes as `weight`, and there are at most 32 chunks. For a sum or a mean the gradients are computed in the forward
/// pass, for a cotangent of one, while a chunk's logits exist; the backward pass multiplies them by the cotangent.
/// The gradient of `weight` is added up in `weight`'s type, or in f32 if `accum_dtype` says so: for f16 and bf16 that
/// takes twice the memory, and rounds once instead of once a chunk. The other sums are f32. Losses that are not reduced
/// have a cotangent each, so that their gradients are computed in the backward pass, which computes the logits of each
/// chunk again.
///
/// Where no row counts, the mean is 0 / 0, NaN as PyTorch's, and all gradients are zero, as PyTorch's and Liger's are.
#[operator(
    autocast = low,
    autocast_keeps(ce_weight),
    waive(accum_dtype = "says what gradients are added up in, which a loss does not have"),
)]
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
        #[default(None)] accum_dtype: Option<DType>,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { input, weight, target, bias, ce_weight, label_smoothing, .. } = args;
        let Args { reduction, softcap, accum_dtype, .. } = args;
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
        let wide = weight.dtype().accumulator();
        let sums = accum_dtype.unwrap_or(wide);
        require!(sums == wide, Accumulator, "accum_dtype is {sums}, expected {wide} or none");
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([&logits, target], ce_weight, label_smoothing, softcap, codes)?;
        Ok(losses_meta(&logits, reduction))
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, weight, target, bias, ce_weight, ignore_index, lse_square_scale, .. } = args;
        // Gradients alone are accumulated in a type that is asked for.
        let Args { label_smoothing, reduction, softcap, accum_dtype: _, .. } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let layer = ChunkedLinear { input, weight, bias };
        let losses = layer.chunks().map(|chunk| {
            with_options!(class_losses::with(layer.logits(chunk), rows(target, chunk)), ce_weight, options)
        });
        let losses = joined(losses.collect());
        reduced_losses(losses, target, ce_weight, ignore_index, reduction)
    }

    /// The operands of the layer and of the losses.
    #[derive(Clone, Copy)]
    struct Operands {
        layer: ChunkedLinear,
        target: Tensor,
        ce_weight: Option<Tensor>,
        options: RowOptions,
        /// What the weight's gradient is added up in.
        sums: DType,
    }

    /// The losses, and gradients in the types that they are accumulated in.
    struct Parts {
        losses: Tensor,
        layer: LayerGradients,
        ce_weight: Option<Tensor>,
    }

    impl Operands {
        /// Chunk by chunk, for cotangents `d_losses` [N]: the logits and their gradient are dead at the chunk's end.
        /// `logits` computes those of a chunk.
        #[track_caller]
        fn chunked(self, d_losses: Tensor, logits: impl Fn([usize; 2]) -> Tensor) -> Parts {
            let Operands { layer, target, ce_weight, options, sums } = self;
            let (mut losses, mut sums, mut d_ce_weight) = (Vec::new(), GradientSums::new(layer, sums), None);
            for chunk in layer.chunks() {
                let [class, d] = [target, d_losses].map(|tensor| rows(tensor, chunk));
                let logits = logits(chunk);
                let call = class_losses_with_gradient::with(logits, class, d);
                let (loss, d_logits) = with_options!(call, ce_weight, options);
                losses.push(loss);
                sums.add(chunk, d_logits);
                if ce_weight.is_some() {
                    added(&mut d_ce_weight, LogitRows::new(logits, class, ce_weight, options).weight_gradient(d));
                }
            }
            Parts { losses: joined(losses), layer: sums.total(), ce_weight: d_ce_weight }
        }
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, weight, target, bias, ce_weight, ignore_index, lse_square_scale, .. } = args;
        let Args { label_smoothing, reduction, softcap, accum_dtype, .. } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let layer = ChunkedLinear { input, weight, bias };
        let sums = accum_dtype.unwrap_or(weight.dtype());
        let operands = Operands { layer, target, ce_weight, options, sums };
        let wide = input.dtype().accumulator();
        let none = input.size(0) == 0;
        // With a cotangent for each row the gradients have to wait for it.
        let early = (reduction != Reduction::None && !none).then(|| {
            let ones = constant(1.0, &target.meta().with_dtype(wide));
            let parts = operands.chunked(ones, |chunk| layer.logits(chunk));
            let out = reduced_losses(parts.losses, target, ce_weight, ignore_index, reduction);
            (parts, out)
        });
        let out = match &early {
            Some((_, out)) => *out,
            None => decomposition(args),
        };
        (out, move |d_out: Tensor| {
            if none {
                let zeros = |tensor: Tensor| constant_like(tensor, 0.0);
                let (bias, ce_weight) = (bias.map(zeros), ce_weight.map(zeros));
                return Grads { input: zeros(input), weight: zeros(weight), bias, ce_weight };
            }
            let (parts, rate) = match early {
                None => (operands.chunked(d_out, |chunk| recomputed(|| layer.logits(chunk))), None),
                Some((parts, _)) if reduction == Reduction::Sum => (parts, Some(d_out)),
                Some((parts, _)) => {
                    let count = divisor(target, ce_weight, ignore_index, wide);
                    // Where nothing counts, all parts are zero, and infinity times zero is not.
                    let rate = prims::select(prims::eq(count, 0.0), 0.0, prims::div(d_out, count));
                    (parts, Some(rate))
                }
            };
            let scaled =
                |part: Tensor| rate.map_or(part, |rate| prims::mul(accumulating(part), broadcast(rate, &part.shape())));
            let as_like = |part: Tensor, like: Tensor| cast(scaled(part), like.dtype());
            let of_ce_weight = parts.ce_weight.zip(ce_weight).map(|(part, ce_weight)| {
                let mut d_ce_weight = scaled(part);
                if let (Reduction::Mean, Some(rate)) = (reduction, rate) {
                    // The mean divides by the sum of the weights of the classes that rows have; that of none is NaN.
                    let loss = prims::select(prims::eq(rate, 0.0), 0.0, out);
                    let each = prims::mul(rate, loss);
                    let counted = differs_from(target, ignore_index);
                    let each = prims::select(counted, broadcast(each, &target.shape()), 0.0);
                    let class = prims::select(counted, target, 0);
                    let seen = prims::index_add(constant_like(d_ce_weight, 0.0), 0, class, each);
                    d_ce_weight = prims::sub(d_ce_weight, seen);
                }
                cast(d_ce_weight, ce_weight.dtype())
            });
            Grads {
                input: as_like(parts.layer.input, input),
                weight: as_like(parts.layer.weight, weight),
                bias: parts.layer.bias.zip(bias).map(|(part, bias)| as_like(part, bias)),
                ce_weight: of_ce_weight,
            }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, weight, target, bias, ce_weight, ignore_index, lse_square_scale, .. } = args;
        let Args { label_smoothing, reduction, softcap, .. } = args;
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
            s.case(all.label_smoothing(0.1).lse_square_scale(0.25).softcap(2.5).reduction(reduction));
        }
        let [one, wide, none] = [[3, 16, 1], [33, 24, 130], [0, 4, 5]].map(|shape| of(s, shape));
        s.case(one);
        s.case(wide.bias(s.normal([130])));
        s.case(none.reduction(Reduction::Sum));
        // Sums in both types; rows of which none counts.
        let wide = s.dtype().accumulator();
        s.case(of(s, [9, 4, 5]));
        s.case(of(s, [9, 4, 5]).accum_dtype(wide));
        // Weights of the classes in f32 beside logits of 16 bits.
        if s.dtype().size() == 2 {
            let weight = s.uniform(0.5, 2.0, [5]).cast(wide);
            s.case(of(s, [7, 4, 5]).ce_weight(weight).label_smoothing(0.1));
        }
        let ignored = with(s.normal([5, 4]), s.normal([3, 4]), s.values([5], [1.0; 5]).cast(DType::I64));
        s.case(ignored.ignore_index(1).reduction(Reduction::Sum));
        // A single class with a weight, and a row that does not count.
        let target = s.values([3], [0.0, -100.0, 0.0]).cast(DType::I64);
        let single = with(s.normal([3, 4]), s.uniform(-0.5, 0.5, [1, 4]), target);
        s.case(single.ce_weight(s.uniform(0.5, 2.0, [1])).lse_square_scale(0.25));
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
        e.case(Cap, good().softcap(0.0), "softcap is 0, expected a finite number above 0");
        e.case(Accumulator, good().accum_dtype(DType::I64), "accum_dtype is i64, expected");
        let target = e.values([2], [0.0, 5.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(e.normal([2, 4]), e.normal([5, 4]), target), "holds");
    }
}
