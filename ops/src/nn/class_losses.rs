use fulgurite_ops_macros::operator;

use super::logit_rows::{LogitRows, RowOptions, check_rows, losses_meta, no_losses, plain_losses, with_options};
use super::reduction::Reduction;
use crate::core::arrays::array;
use crate::core::promotion::{cast, constant_like};
use crate::nn::class_losses_backward;

/// The cross entropy of each row of logits [N, C] and its class: losses [N] in f32 for f16 and bf16. With `softcap` s a
/// logit x is `s · tanh(x / s)`. With the log-sum-exp L of a row, its class t, the classes' weights w (ones if absent)
/// and `label_smoothing` ε, its loss is `(1 - ε) w_t (L - x_t) + ε / C · Σ w (L - x) + lse_square_scale · L²`; the last
/// term is the z-loss of Chowdhery and others, "PaLM", 2022. A row of class `ignore_index` has the loss 0. A class out
/// of range is an error when the program runs.
#[operator(autocast = keep)]
pub mod class_losses {
    fn class_losses(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.0)] label_smoothing: f64,
        #[default(0.0)] lse_square_scale: f64,
        #[default(None)] softcap: Option<f64>,
    ) -> Tensor;

    fn meta(Args { input, target, weight, label_smoothing, softcap, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([input, target], weight, label_smoothing, softcap, codes)?;
        Ok(losses_meta(input, Reduction::None))
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        if input.meta().is_empty() {
            return no_losses(input);
        }
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        LogitRows::new(input, target, weight, options).losses()
    }

    // Only the operands are saved: the gradient reads the logits in any case.
    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let losses = args.call();
        let Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        (losses, move |d_losses: Tensor| {
            let d_weight = weight.map(|weight| match input.meta().is_empty() {
                true => constant_like(weight, 0.0),
                false => {
                    let rows = LogitRows::new(input, target, Some(weight), options);
                    cast(rows.weight_gradient(d_losses), weight.dtype())
                }
            });
            let call = class_losses_backward::with(input, target, d_losses);
            Grads { input: with_options!(call, weight, options), weight: d_weight }
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = plain_losses(input, target, weight, options)?;
        Ok(array(&[losses.len()], losses.into_iter().map(|(loss, _)| loss).collect()))
    }

    fn samples(s: &mut Samples) {
        for smoothing in [0.0, 0.1] {
            for scale in [0.0, 0.25] {
                let plain = with(s.normal([6, 5]), s.integers(0, 5, [6])).ignore_index(3);
                s.case(plain.label_smoothing(smoothing).lse_square_scale(scale));
                let weighted = with(s.normal([6, 5]), s.integers(0, 5, [6])).weight(s.uniform(0.5, 2.0, [5]));
                s.case(weighted.label_smoothing(smoothing).lse_square_scale(scale).softcap(2.5).ignore_index(2));
            }
        }
        s.case(with(s.uniform(-50.0, 50.0, [4, 9]), s.integers(0, 9, [4])).softcap(30.0));
        s.case(with(s.normal([7, 311]), s.integers(0, 311, [7]).cast(DType::I32)));
        s.case(with(s.normal([3, 1]), s.integers(0, 1, [3])));
        s.case(with(s.normal([0, 5]), s.integers(0, 5, [0])).weight(s.uniform(0.5, 2.0, [5])));
        // Longer than a block is wide, and rows that start anywhere.
        s.case(with(s.normal([5, 5003]), s.integers(0, 5003, [5])));
        let masked = [0.5, f64::NEG_INFINITY, -1.0];
        s.case(with(s.values([2, 3], masked), s.integers(0, 1, [2]))).forward_only("infinities have no differences");
        // A class that a large number hides must not take the digits of others' distances. (f16 has no such number.)
        if [DType::F32, DType::BF16].contains(&s.dtype()) {
            let hidden: Vec<f64> = (0..3000).map(|c| if c == 0 { -1e9 } else { f64::from(c % 7) - 3.0 }).collect();
            let hidden = with(s.values([1, 3000], hidden), s.integers(1, 3000, [1])).label_smoothing(0.1);
            s.case(hidden).forward_only("differences of so large a number have no digits");
        }
        // A cap far beyond the logits changes nothing.
        s.case(with(s.normal([3, 40]), s.integers(0, 40, [3])).softcap(1e7));
        // Weights of the classes in f32 beside logits of 16 bits.
        if s.dtype().size() == 2 {
            let weight = s.uniform(0.5, 2.0, [40]).cast(s.dtype().accumulator());
            s.case(with(s.normal([5, 40]), s.integers(0, 40, [5])).weight(weight).label_smoothing(0.1));
        }
        // More classes than the target's type counts: 3 and 3 + 256 are two.
        s.case(with(s.normal([2, 300]), s.values([2], [3.0, 43.0]).cast(DType::U8)));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([6, 5]), e.integers(0, 5, [6]));
        e.case(Rows, with(e.normal([5]), e.integers(0, 5, [])), "expected [N, C] with C > 0 and [N]");
        e.case(Rows, with(e.normal([6, 5]), e.integers(0, 5, [5])), "expected [N, C] with C > 0 and [N]");
        e.case(Rows, with(e.normal([6, 0]), e.integers(0, 5, [6])), "expected [N, C] with C > 0 and [N]");
        e.case(WeightShape, good().weight(e.normal([6])), "[5]");
        e.case(WeightShape, good().weight(e.of(DType::F64, [5])), "weight is f64[5]");
        e.case(Smoothing, good().label_smoothing(1.5), "is 1.5, expected 0 to 1");
        e.case(Cap, good().softcap(0.0), "softcap is 0, expected a finite number above 0");
        e.case(Cap, good().softcap(f64::INFINITY), "softcap is inf, expected a finite number above 0");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 5]), target), "holds");
        }
    }
}
