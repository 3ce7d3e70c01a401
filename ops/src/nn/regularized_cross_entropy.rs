use fulgurite_ops_macros::operator;

use super::logit_rows::{RowOptions, check_rows, losses_meta, plain_losses, reduced_losses, with_options};
use super::reduction::{Reduction, Rows};
use crate::nn::class_losses;

/// [`cross_entropy`](super::cross_entropy) of logits [N, C] and classes [N] with more options: logits are bounded by
/// `softcap`, and `lse_square_scale` times the squared log-sum-exp is added to the loss of each row, as
/// [`class_losses`] says. The mean divides by the number of targets other than `ignore_index`, or by the sum of the
/// weights of their classes. (In Liger's kernel the number divides the z-loss, whether or not classes have weights.) In
/// f32 for f16 and bf16.
#[operator(autocast = keep)]
pub mod regularized_cross_entropy {
    fn regularized_cross_entropy(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(0.0)] label_smoothing: f64,
        #[default(0.0)] lse_square_scale: f64,
        #[default(None)] softcap: Option<f64>,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { input, target, weight, reduction, label_smoothing, softcap, .. } = args;
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([input, target], weight, label_smoothing, softcap, codes)?;
        Ok(losses_meta(input, reduction))
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight, ignore_index, reduction, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = with_options!(class_losses::with(input, target), weight, options);
        reduced_losses(losses, target, weight, ignore_index, reduction)
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, weight, ignore_index, reduction, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = plain_losses(input, target, weight, options)?;
        Ok(Rows { losses }.reduced(reduction, &input.shape()[..1]))
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let plain = with(s.normal([6, 5]), s.integers(0, 5, [6])).ignore_index(3).reduction(reduction);
            s.case(plain);
            let weighted = with(s.normal([6, 5]), s.integers(0, 5, [6])).weight(s.uniform(0.5, 2.0, [5]));
            let weighted = weighted.label_smoothing(0.1).lse_square_scale(0.25).softcap(2.5).ignore_index(2);
            s.case(weighted.reduction(reduction));
        }
        s.case(with(s.normal([7, 311]), s.integers(0, 311, [7])));
        s.case(with(s.normal([0, 5]), s.integers(0, 5, [0])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([6, 5]), e.integers(0, 5, [6]));
        e.case(Rows, with(e.normal([6, 5]), e.integers(0, 5, [5])), "expected [N, C] with C > 0 and [N]");
        e.case(WeightShape, good().weight(e.normal([6])), "[5]");
        e.case(Smoothing, good().label_smoothing(1.5), "is 1.5, expected 0 to 1");
        e.case(Cap, good().softcap(f64::NAN), "softcap is NaN, expected a finite number above 0");
        let target = e.values([2], [0.0, 5.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(e.normal([2, 5]), target), "holds");
    }
}
