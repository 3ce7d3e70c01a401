//! Cross entropy of classes in two passes over the logits: one forward, one backward.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::kernels::indexing::IndexOutOfRange;
use fulgurite_runtime::kernels::row;
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta};

use super::cpu;
use fulgurite_ops::core::promotion::{broadcast, cast, differs_from};
use fulgurite_ops::nn::Reduction;
use fulgurite_ops::prims;

fn out_of_range(error: IndexOutOfRange) -> Failure {
    let IndexOutOfRange { index, size, .. } = error;
    Failure::new("IndexOutOfRange", format!("target holds {index}, there are {size} classes"))
}

/// For references: fails unless every class but `ignore_index` is one of `classes`.
fn check_classes(
    target: &fulgurite_runtime::rules::ArrayD<i64>,
    classes: usize,
    ignore_index: i64,
) -> Result<(), Failure> {
    let wrong =
        |class: &&i64| **class != ignore_index && usize::try_from(**class).map_or(true, |class| class >= classes);
    match target.iter().find(wrong) {
        Some(class) => Err(out_of_range(IndexOutOfRange { index: *class, size: classes, position: 0 })),
        None => Ok(()),
    }
}

/// Losses and log-sum-exps of rows of logits [N, C] and classes [N], both f32[N]; a row of `ignore_index` has loss 0.
#[operator(executor = cpu, strided, no_grad = "the implementation that uses it has a gradient of its own")]
pub mod cross_entropy_forward {
    #[results(losses, log_sum_exp)]
    fn cross_entropy_forward(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        ignore_index: i64,
        label_smoothing: f64,
    ) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, target: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        let rows = input.shape().first().copied().unwrap_or(0);
        require!(
            input.rank() == 2 && target.shape() == [rows],
            Rows,
            "input is {input}, target {target}, expected [N, C] and [N]"
        );
        let row = TensorMeta::new([rows], DType::F32, input.device());
        Ok((row.clone(), row))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, target, ignore_index, label_smoothing } = args;
        let (classes, rows) = (input.shape()[1], input.shape()[0]);
        super::check_classes(target, classes, ignore_index)?;
        let (mut losses, mut sums) = (Vec::new(), Vec::new());
        for i in 0..rows {
            // Less the largest, so that nothing overflows, and the loss of a row whose one class is certain is exactly
            // 0.
            let most = (0..classes).map(|c| input[[i, c]]).fold(f64::NEG_INFINITY, f64::max);
            let total = (0..classes).map(|c| (input[[i, c]] - most).exp()).sum::<f64>().ln() + most;
            let mean: f64 = (0..classes).map(|c| input[[i, c]]).sum::<f64>() / classes as f64;
            let class = target[[i]];
            let picked = if class == ignore_index { 0.0 } else { input[[i, class as usize]] };
            let loss = (1.0 - label_smoothing) * (total - picked) + label_smoothing * (total - mean);
            losses.push(if class == ignore_index { 0.0 } else { loss });
            sums.push(total);
        }
        Ok((fulgurite_ops::core::arrays::array(&[rows], losses), fulgurite_ops::core::arrays::array(&[rows], sums)))
    }

    fn cpu(args: Args<TensorRef>, losses: &mut TensorMut, log_sum_exp: &mut TensorMut) -> Result<()> {
        let Args { input, target, ignore_index, label_smoothing } = args;
        let (losses, sums) = (losses.reborrow(), log_sum_exp.reborrow());
        row::cross_entropy_forward(input, target, ignore_index, label_smoothing, losses, sums)
            .map_err(super::out_of_range)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6, 5]), s.integers(0, 5, [6]), -100, 0.0));
        s.case(with(s.normal([7, 311]), s.integers(0, 311, [7]), 3, 0.1));
        s.case(with(s.normal([0, 5]), s.integers(0, 5, [0]), -100, 0.0));
        // Exponentials of these are zero, or too large to be told from infinity.
        s.case(with(s.values([2, 2], [-2000.0, -2016.0, 2000.0, 2016.0]), s.integers(0, 2, [2]), -100, 0.1));
        // One class: every loss is exactly 0.
        s.case(with(s.normal([4, 1]), s.integers(0, 1, [4]), -100, 0.0));
        s.case(with(s.normal([4, 1]), s.integers(0, 1, [4]), -100, 0.1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rows, with(e.normal([6, 5]), e.integers(0, 5, [5]), -100, 0.0), "expected [N, C] and [N]");
        e.case(Rows, with(e.normal([6, 5, 2]), e.integers(0, 5, [6]), -100, 0.0), "expected [N, C] and [N]");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 5]), target, -100, 0.0), "there are 5 classes");
        }
    }
}

/// `(softmax(row) - target) · row_scale` for each row of logits [N, C], where target is smoothed one-hot; zeros where
/// ignored.
#[operator(executor = cpu, strided, no_grad = "a gradient is not differentiated again")]
pub mod cross_entropy_backward {
    fn cross_entropy_backward(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        log_sum_exp: Tensor<Floating>,
        row_scale: Tensor<Floating>,
        ignore_index: i64,
        label_smoothing: f64,
    ) -> Tensor;

    fn meta(Args { input, target, log_sum_exp, row_scale, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let rows = input.shape().first().copied().unwrap_or(0);
        let fits = [target, log_sum_exp, row_scale].iter().all(|row| row.shape() == [rows]);
        require!(input.rank() == 2 && fits, Rows, "input is {input}, expected [N, C] and the others [N]");
        let floats = log_sum_exp.dtype() == DType::F32 && row_scale.dtype() == DType::F32;
        require!(floats, RowDType, "log_sum_exp is {log_sum_exp}, row_scale {row_scale}, expected f32");
        Ok(input.clone())
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, log_sum_exp, row_scale, ignore_index, label_smoothing } = args;
        let classes = input.shape()[1];
        super::check_classes(target, classes, ignore_index)?;
        Ok(ArrayD::from_shape_fn(IxDyn(&[input.shape()[0], classes]), |at| {
            let (i, c) = (at[0], at[1]);
            if target[[i]] == ignore_index {
                return 0.0;
            }
            let hit = f64::from(u8::from(target[[i]] == c as i64));
            let wanted = (1.0 - label_smoothing) * hit + label_smoothing / classes as f64;
            ((input[[i, c]] - log_sum_exp[[i]]).exp() - wanted) * row_scale[[i]]
        }))
    }

    fn cpu(args: Args<TensorRef>, out: &mut TensorMut) -> Result<()> {
        let Args { input, target, log_sum_exp, row_scale, ignore_index, label_smoothing } = args;
        let d_input = out.reborrow();
        row::cross_entropy_backward(input, target, log_sum_exp, row_scale, ignore_index, label_smoothing, d_input)
            .map_err(super::out_of_range)
    }

    fn samples(s: &mut Samples) {
        let row = |values: SampleTensor| values.cast(DType::F32);
        for (rows, classes, ignored, smoothing) in [(6, 5, -100, 0.0), (7, 311, 3, 0.1), (0, 5, -100, 0.0)] {
            let input = s.uniform(-1.0, 1.0, [rows, classes]);
            // Close to what the forward symbol gives, so that the exponentials stay within reach.
            let sums = row(s.uniform(1.0, 2.0, [rows]));
            let target = s.integers(0, classes as i64, [rows]);
            s.case(with(input, target, sums, row(s.normal([rows])), ignored, smoothing));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let row = || e.of(DType::F32, [6]);
        e.case(Rows, with(e.normal([6, 5]), e.integers(0, 5, [5]), row(), row(), -100, 0.0), "the others [N]");
        e.case(Rows, with(e.normal([6, 5, 2]), e.integers(0, 5, [6]), row(), row(), -100, 0.0), "the others [N]");
        let wide = e.of(DType::F64, [6]);
        e.case(RowDType, with(e.normal([6, 5]), e.integers(0, 5, [6]), wide, row(), -100, 0.0), "expected f32");
        for class in [5.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            let (sums, scale) = (e.of(DType::F32, [2]), e.of(DType::F32, [2]));
            e.when_run(
                "IndexOutOfRange",
                with(e.normal([2, 5]), target, sums, scale, -100, 0.0),
                "there are 5 classes",
            );
        }
        let wide = e.of(DType::F64, [6]);
        e.case(RowDType, with(e.normal([6, 5]), e.integers(0, 5, [6]), row(), wide, -100, 0.0), "expected f32");
    }
}

/// 1 / number of targets that count, f32[].
#[track_caller]
fn reciprocal_count(target: Tensor, ignore_index: i64) -> Tensor {
    let counted = cast(differs_from(target, ignore_index), DType::F32);
    prims::reciprocal(prims::sum(counted, [0]))
}

#[implementation(of = fulgurite_ops::nn::cross_entropy, by = cpu)]
mod cross_entropy_by_cpu {
    fn checker(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
        refuse_unless!(input.rank() == 2, "input has rank {}, takes [N, C]", input.rank());
        refuse_unless!(input.dtype() == DType::F32, "input is {}, takes f32", input.dtype());
        refuse_unless!(target.dtype().is_integer(), "takes classes, not probabilities");
        refuse_unless!(weight.is_none(), "takes no class weights");
        Ok(())
    }

    fn execution(Args { input, target, weight: _, ignore_index, reduction, label_smoothing }: Args<Tensor>) -> Tensor {
        let (losses, _) = cross_entropy_forward(input, target, ignore_index, label_smoothing);
        match reduction {
            Reduction::None => losses,
            Reduction::Sum => prims::sum(losses, [0]),
            Reduction::Mean => prims::mul(prims::sum(losses, [0]), reciprocal_count(target, ignore_index)),
        }
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing } = args;
        let (losses, sums) = cross_entropy_forward(input, target, ignore_index, label_smoothing);
        let share = matches!(reduction, Reduction::Mean).then(|| reciprocal_count(target, ignore_index));
        let out = match (reduction, share) {
            (Reduction::None, _) => losses,
            (_, None) => prims::sum(losses, [0]),
            (_, Some(share)) => prims::mul(prims::sum(losses, [0]), share),
        };
        (out, move |d_out: Tensor| {
            let scale = share.map_or(d_out, |share| prims::mul(d_out, share));
            let scale = broadcast(scale, &losses.shape());
            let d_input = cross_entropy_backward(input, target, sums, scale, ignore_index, label_smoothing);
            // Classes are integers, whose gradient nobody reads.
            Grads { input: d_input, target, weight: None }
        })
    }
}
