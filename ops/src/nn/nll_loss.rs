use fulgurite_ops_macros::operator;

use super::reduction::{
    Reduction, Rows, class_dim, class_loss, class_rows, classes_last, loss_meta, picked, target_shape,
};
use crate::prims;

/// Negative log-likelihood: `-weight[t] · input[t]` of each target class t; `input` holds log-probabilities
/// `[N, C, d₁, ...]` or `[C]`, `target` the classes `[N, d₁, ...]` or `[]`. Targets of `ignore_index` count nothing;
/// the mean is over weights. A class out of range is an error when the program runs.
#[operator(torch = "nn.functional.nll_loss", autocast = full)]
pub mod nll_loss {
    fn nll_loss(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(-100)] ignore_index: i64,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, weight, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() > 0, InputRank, "input is zero-dimensional, expected [N, C, ...] or [C]");
        let expected = target_shape(input.shape());
        require!(
            target.shape() == expected,
            TargetShape,
            "target has shape {:?}, expected {expected:?} for input {:?}",
            target.shape(),
            input.shape()
        );
        let classes = input.shape()[class_dim(input.rank())];
        if let Some(weight) = weight {
            require!(
                weight.shape() == [classes] && weight.dtype() == input.dtype(),
                WeightShape,
                "weight is {weight}, expected {}[{classes}]",
                input.dtype()
            );
        }
        Ok(loss_meta(input, reduction))
    }

    fn decomposition(Args { input, target, weight, ignore_index, reduction }: Args<Tensor>) -> Tensor {
        let log_probabilities = classes_last(input);
        class_loss(target, weight, ignore_index, reduction, |class| prims::neg(picked(log_probabilities, class)))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, weight, ignore_index, reduction } = args;
        let mut losses = Vec::new();
        for (row, class) in class_rows(input).iter().zip(target) {
            if *class == ignore_index {
                losses.push((0.0, 0.0));
                continue;
            }
            let Some(value) = usize::try_from(*class).ok().and_then(|class| row.get(class)) else {
                return Err(Failure::new(
                    "IndexOutOfRange",
                    format!("target holds {class}, there are {} classes", row.len()),
                ));
            };
            let weight = weight.map_or(1.0, |weight| weight[[*class as usize]]);
            losses.push((-value * weight, weight));
        }
        Ok(Rows { losses }.reduced(reduction, target.shape()))
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            s.case(with(s.normal([6, 5]), s.integers(0, 5, [6])).reduction(reduction));
            let weighted = with(s.normal([6, 5]), s.integers(0, 5, [6])).weight(s.uniform(0.5, 2.0, [5]));
            s.case(weighted.reduction(reduction).ignore_index(2));
        }
        s.case(with(s.normal([2, 5, 3]), s.integers(0, 5, [2, 3])));
        s.case(with(s.normal([5]), s.integers(0, 5, [])));
        s.case(with(s.normal([0, 5]), s.integers(0, 5, [0])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.normal([]), e.integers(0, 1, [])), "input is zero-dimensional");
        e.case(TargetShape, with(e.normal([6, 5]), e.integers(0, 5, [5])), "target has shape [5], expected [6]");
        e.case(WeightShape, with(e.normal([6, 5]), e.integers(0, 5, [6])).weight(e.normal([6])), "[5]");
        let wide = e.of(DType::F64, [5]);
        e.case(WeightShape, with(e.normal([6, 5]), e.integers(0, 5, [6])).weight(wide), "weight is f64[5]");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 5]), target), "holds");
        }
    }
}
