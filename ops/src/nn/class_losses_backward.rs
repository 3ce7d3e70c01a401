use fulgurite_ops_macros::operator;

use super::logit_rows::{LogitRows, RowOptions, check_rows, losses_meta, plain_gradient};
use super::reduction::Reduction;
use crate::core::promotion::constant_like;

/// The gradient of [`class_losses`](super::class_losses) by its logits, for the cotangents `d_losses` [N] of the
/// losses, in the element type of `input`. It needs nothing of the forward pass but the logits, and may be written over
/// them. Rows of class `ignore_index` get zeros.
#[operator(autocast = keep)]
pub mod class_losses_backward {
    fn class_losses_backward(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        d_losses: Tensor<Floating>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(0.0)] label_smoothing: f64,
        #[default(0.0)] lse_square_scale: f64,
        #[default(None)] softcap: Option<f64>,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { input, target, d_losses, weight, label_smoothing, softcap, .. } = args;
        let codes = [Code::Rows, Code::WeightShape, Code::Smoothing, Code::Cap];
        check_rows([input, target], weight, label_smoothing, softcap, codes)?;
        let expected = losses_meta(input, Reduction::None);
        require!(*d_losses == expected, Cotangent, "d_losses is {d_losses}, expected {expected}");
        Ok(input.clone())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        if input.meta().is_empty() {
            return constant_like(input, 0.0);
        }
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        LogitRows::new(input, target, weight, options).gradient(d_losses, input.dtype())
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { input, target, d_losses, weight, ignore_index, label_smoothing, lse_square_scale, softcap } = args;
        let options = RowOptions { ignore_index, label_smoothing, lse_square_scale, softcap };
        plain_gradient(input, target, d_losses, weight, options)
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, shape: [usize; 2]| {
            let [rows, classes] = shape;
            let wide = s.dtype().accumulator();
            with(s.normal(shape), s.integers(0, classes as i64, [rows]), s.normal([rows]).cast(wide))
        };
        for smoothing in [0.0, 0.1] {
            for scale in [0.0, 0.25] {
                let plain = of(s, [6, 5]).ignore_index(3).label_smoothing(smoothing).lse_square_scale(scale);
                s.case(plain);
                let weighted = of(s, [6, 5]).weight(s.uniform(0.5, 2.0, [5])).label_smoothing(smoothing);
                s.case(weighted.lse_square_scale(scale).softcap(2.5).ignore_index(2));
            }
        }
        let [long, none, one] = [[5, 5003], [0, 5], [3, 1]].map(|shape| of(s, shape));
        s.case(long);
        s.case(none);
        s.case(one);
        // Weights of the classes in f32 beside logits of 16 bits.
        if s.dtype().size() == 2 {
            let weight = s.uniform(0.5, 2.0, [40]).cast(s.dtype().accumulator());
            s.case(of(s, [5, 40]).weight(weight).label_smoothing(0.1));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.of(DType::F32, [6, 5]), e.integers(0, 5, [6]), e.of(DType::F32, [6]));
        let rows = ARGUMENTS.target.set(good(), e.integers(0, 5, [5]));
        e.case(Rows, rows, "expected [N, C] with C > 0 and [N]");
        e.case(WeightShape, good().weight(e.of(DType::F32, [6])), "[5]");
        e.case(Smoothing, good().label_smoothing(-0.5), "is -0.5, expected 0 to 1");
        e.case(Cap, good().softcap(-1.0), "softcap is -1, expected a finite number above 0");
        e.case(Cotangent, ARGUMENTS.d_losses.set(good(), e.of(DType::F32, [5])), "expected f32[6]");
    }
}
