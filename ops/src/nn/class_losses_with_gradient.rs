use fulgurite_ops_macros::operator;

use super::logit_rows::{RowOptions, check_rows, losses_meta, plain_gradient, plain_losses, with_options};
use super::reduction::Reduction;
use crate::core::arrays::array;
use crate::nn::{class_losses, class_losses_backward};

/// [`class_losses`] and its gradient by the logits for the cotangents `d_losses` [N] of the losses:
/// (losses [N], the gradient [N, C]). A kernel reads the logits once, and may write the gradient over them.
#[operator(autocast = keep)]
pub mod class_losses_with_gradient {
    #[results(losses, d_input)]
    fn class_losses_with_gradient(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        d_losses: Tensor<Floating>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.0)] label_smoothing: f64,
        #[default(0.0)] lse_square_scale: f64,
        #[default(None)] softcap: Option<f64>,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { input, target, d_losses, weight, label_smoothing, softcap, .. } = args;
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([input, target], weight, label_smoothing, softcap, codes)?;
        let losses = losses_meta(input, Reduction::None);
        require!(*d_losses == losses, Cotangent, "d_losses is {d_losses}, expected {losses}");
        Ok((losses, input.clone()))
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = with_options!(class_losses::with(input, target), weight, options);
        let call = class_losses_backward::with(input, target, d_losses);
        (losses, with_options!(call, weight, options))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        let losses = plain_losses(input, target, weight, options)?;
        let losses = array(&[losses.len()], losses.into_iter().map(|(loss, _)| loss).collect());
        Ok((losses, plain_gradient(input, target, d_losses, weight, options)))
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, [rows, classes]: [usize; 2]| {
            let wide = s.dtype().accumulator();
            with(s.normal([rows, classes]), s.integers(0, classes as i64, [rows]), s.normal([rows]).cast(wide))
        };
        for smoothing in [0.0, 0.1] {
            let plain = of(s, [6, 5]).ignore_index(3).label_smoothing(smoothing);
            s.case(plain);
            let weighted = of(s, [6, 5]).weight(s.uniform(0.5, 2.0, [5])).label_smoothing(smoothing);
            s.case(weighted.lse_square_scale(0.25).softcap(2.5).ignore_index(2));
        }
        let [none, one, many] = [[0, 5], [3, 1], [300, 9]].map(|shape| of(s, shape));
        s.case(none);
        s.case(one);
        s.case(many);
        // Weights of the classes in f32 beside logits of 16 bits.
        if s.dtype().size() == 2 {
            let weight = s.uniform(0.5, 2.0, [40]).cast(s.dtype().accumulator());
            s.case(of(s, [5, 40]).weight(weight).label_smoothing(0.1));
        }
        // Rows that registers hold, that shared memory holds, and that neither does.
        let [short, long, longest] = [[5, 1031], [3, 20_001], [2, 130_003]].map(|shape| of(s, shape));
        s.case(short.softcap(3.0));
        s.case(long);
        s.case(longest.lse_square_scale(0.01));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.of(DType::F32, [6, 5]), e.integers(0, 5, [6]), e.of(DType::F32, [6]));
        let rows = ARGUMENTS.target.set(good(), e.integers(0, 5, [5]));
        e.case(Rows, rows, "expected [N, C] with C > 0 and [N]");
        e.case(WeightShape, good().weight(e.of(DType::F32, [6])), "[5]");
        e.case(Smoothing, good().label_smoothing(1.5), "is 1.5, expected 0 to 1");
        e.case(Cap, good().softcap(0.0), "softcap is 0, expected a finite number above 0");
        e.case(Cotangent, ARGUMENTS.d_losses.set(good(), e.of(DType::F32, [5])), "expected f32[6]");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            let call = with(e.of(DType::F32, [2, 5]), target, e.of(DType::F32, [2]));
            e.when_run("IndexOutOfRange", call, "holds");
        }
    }
}
