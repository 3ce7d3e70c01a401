//! Cross entropy of classes: the logits are read once forward, and read and written once backward.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::{DType, TensorMeta};

use super::{are_aligned, has_kernels_for, index_type_of, llmc, pack_anywhere, takes};
use fulgurite_executor_cuda::rows::streamed;
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::core::arrays::array;
use fulgurite_ops::nn::Reduction;
use fulgurite_runtime::rules::{DeviceTensor, Failure, LaunchShape, Parameter, Plan, Result};

/// Threads of a block, which has a row.
const THREADS: usize = 512;
/// The longest row: places in it are counted by an `int`, a little past its end.
const LONGEST: usize = 1 << 30;

/// Whether the kernels are written for these rows.
fn kernel_fits(input: &TensorMeta) -> fulgurite_runtime::executor::Claim {
    fulgurite_runtime::refuse_unless!(
        has_kernels_for(input.dtype()),
        "input is {}, takes f32, bf16, f16",
        input.dtype()
    );
    let columns = input.shape().last().copied().unwrap_or(0);
    fulgurite_runtime::refuse_unless!((1..=LONGEST).contains(&columns), "takes 1 to {LONGEST} classes, not {columns}");
    Ok(())
}

/// Takes the following kernels from the source of this file.
fn kernels(plan: &mut Plan, logits: &[&DeviceTensor], target: &DeviceTensor, reduction: Reduction) {
    let input = logits[0];
    plan.source(streamed("cross_entropy.cu", include_str!("cross_entropy.cu")));
    plan.define("ELEMENT", type_of(input.dtype()));
    plan.define("COLUMNS", input.shape()[1]);
    // Rows need not start at packs.
    let pack = pack_anywhere(0, input.dtype().size());
    plan.define("PACK", pack);
    plan.define("ALIGNED", u8::from(are_aligned(pack, logits)));
    plan.define("THREADS", THREADS);
    plan.define("TARGET", index_type_of(target));
    plan.define("MEAN", u8::from(reduction == Reduction::Mean));
    plan.define("PER_ROW", u8::from(reduction == Reduction::None));
}

/// A block for each row.
fn block_a_row(rows: usize) -> LaunchShape {
    LaunchShape::linear(rows as u32, THREADS as u32)
}

/// The share that a row has in the result: one by the number of targets that count, for a mean.
fn share(target: &ndarray::ArrayD<i64>, ignore_index: i64, reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Mean => 1.0 / target.iter().filter(|class| **class != ignore_index).count() as f64,
        Reduction::None | Reduction::Sum => 1.0,
    }
}

/// For references: the kernels refuse classes that there are not, but for the one that counts nothing.
fn classes_fit(target: &ndarray::ArrayD<i64>, ignore_index: i64, classes: usize) -> Result<()> {
    let is_class = |class: &i64| usize::try_from(*class).is_ok_and(|class| class < classes);
    match target.iter().find(|class| **class != ignore_index && !is_class(class)) {
        Some(class) => {
            let message = format!("target holds {class}, there are {classes} classes");
            Err(Failure::new("IndexOutOfRange", message))
        }
        None => Ok(()),
    }
}

/// The cross entropy of logits `[N, C]` and classes `[N]` in the element type of the logits, each row's log-sum-exp
/// (`f32[N]`), and the share of a row in the result (`f32[]`). Rows of class `ignore_index` count nothing.
#[operator(
    executor = llmc,
    dtypes(f32, bf16, f16),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod crossentropy {
    #[results(loss, log_sum_exp, share)]
    fn crossentropy(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        ignore_index: i64,
        reduction: Reduction,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(Args { input, target, reduction, .. }: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let rows = input.shape().first().copied().unwrap_or(0);
        let fits = input.rank() == 2 && target.shape() == [rows];
        require!(fits, Rows, "input is {input}, target {target}, expected [N, C] and [N]");
        super::kernel_fits(input).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        let loss = if reduction == Reduction::None { input.with_shape([rows]) } else { input.with_shape([]) };
        let number = |shape: &[usize]| TensorMeta::new(shape, DType::F32, input.device());
        Ok((loss, number(&[rows]), number(&[])))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, target, ignore_index, reduction } = args;
        super::classes_fit(target, ignore_index, input.shape()[1])?;
        let (rows, classes) = (input.shape()[0], input.shape()[1]);
        let (mut losses, mut sums) = (Vec::new(), Vec::new());
        for i in 0..rows {
            let top = (0..classes).map(|c| input[[i, c]]).fold(f64::NEG_INFINITY, f64::max);
            let sum = top + (0..classes).map(|c| (input[[i, c]] - top).exp()).sum::<f64>().ln();
            let class = target[[i]];
            losses.push(if class == ignore_index { 0.0 } else { sum - input[[i, class as usize]] });
            sums.push(sum);
        }
        let share = super::share(target, ignore_index, reduction);
        let loss = match reduction {
            Reduction::None => array(&[rows], losses),
            Reduction::Sum => array(&[], vec![losses.iter().sum()]),
            Reduction::Mean if share.is_infinite() => array(&[], vec![f64::NAN]),
            Reduction::Mean => array(&[], vec![losses.iter().sum::<f64>() * share]),
        };
        Ok((loss, array(&[rows], sums), array(&[], vec![share])))
    }

    fn plan(
        plan: &mut Plan,
        Args { input, target, ignore_index, reduction }: Args<&DeviceTensor>,
        loss: &DeviceTensor,
        log_sum_exp: &DeviceTensor,
        share: &DeviceTensor,
    ) -> Result<()> {
        let rows = input.shape()[0];
        super::kernels(plan, &[input], target, reduction);
        let losses = plan.workspace((rows.max(1) * size_of::<f32>()) as u64);
        if rows > 0 {
            let fault = plan.fault("target");
            let parameters = binds![input, target, losses, log_sum_exp, ignore_index, fault, Parameter::FaultCode];
            plan.launch("crossentropy_rows", super::block_a_row(rows), parameters)?;
        }
        if reduction == Reduction::None {
            // One thread at least, which writes the share.
            let blocks = rows.max(1).div_ceil(THREADS);
            let shape = LaunchShape::linear(blocks as u32, THREADS as u32);
            return plan.launch("crossentropy_losses", shape, binds![losses, loss, share, rows]);
        }
        let parameters = binds![losses, target, loss, share, rows, ignore_index];
        plan.launch("crossentropy_total", super::block_a_row(1), parameters)
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            s.case(with(s.normal([6, 5]), s.integers(0, 5, [6]), -100, reduction));
            s.case(with(s.normal([7, 311]), s.integers(0, 4, [7]), 3, reduction));
            // Each row starts at another place of a pack, and is longer than a block is wide.
            s.case(with(s.normal([9, 20001]), s.integers(0, 20001, [9]), -1, reduction));
            s.case(with(s.normal([0, 5]), s.integers(0, 5, [0]), -100, reduction));
        }
        s.case(with(s.normal([600, 8]), s.integers(0, 8, [600]), 2, Reduction::Mean));
        let masked = [f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY, 2.0];
        s.case(with(s.values([2, 4], masked), s.values([2], [1.0, 3.0]).cast(DType::I64), -100, Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |classes: usize, rows: usize| {
            with(e.of(DType::F32, [6, classes]), e.integers(0, 5, [rows]), -100, Reduction::Mean)
        };
        e.case(Rows, call(5, 5), "expected [N, C] and [N]");
        e.case(Kernel, call(0, 6), "not 0");
    }
}

/// `(softmax(row) - one at its class) · share · d_loss` for each row of logits [N, C]; `d_loss` has a number for each
/// row if the losses were not reduced. Rows of class `ignore_index` get zeros.
#[operator(executor = llmc, dtypes(f32, bf16, f16), in_place, no_grad = "a gradient is not differentiated again")]
pub mod crossentropy_softmax_backward {
    fn crossentropy_softmax_backward(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        log_sum_exp: Tensor<Floating>,
        share: Tensor<Floating>,
        d_loss: Tensor<Floating>,
        ignore_index: i64,
    ) -> Tensor;

    fn meta(Args { input, target, log_sum_exp, share, d_loss, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let rows = input.shape().first().copied().unwrap_or(0);
        let fits = input.rank() == 2 && target.shape() == [rows] && log_sum_exp.shape() == [rows];
        require!(fits, Rows, "input is {input}, target {target}, log_sum_exp {log_sum_exp}, expected [N, C], [N], [N]");
        super::kernel_fits(input).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        let floats = log_sum_exp.dtype() == DType::F32 && share.dtype() == DType::F32 && share.rank() == 0;
        require!(floats, Statistics, "log_sum_exp is {log_sum_exp}, share {share}, expected f32[N] and f32[]");
        let cotangent = d_loss.dtype() == input.dtype() && (d_loss.rank() == 0 || d_loss.shape() == [rows]);
        require!(cotangent, Cotangent, "d_loss is {d_loss}, expected {}, [] or [{rows}]", input.dtype());
        Ok(input.clone())
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, target, log_sum_exp, share, d_loss, ignore_index } = args;
        super::classes_fit(target, ignore_index, input.shape()[1])?;
        Ok(ArrayD::from_shape_fn(IxDyn(input.shape()), |at| {
            let (i, c) = (at[0], at[1]);
            if target[[i]] == ignore_index {
                return 0.0;
            }
            let hit = f64::from(u8::from(target[[i]] == c as i64));
            let d = if d_loss.ndim() == 0 { d_loss.sum() } else { d_loss[[i]] };
            ((input[[i, c]] - log_sum_exp[[i]]).exp() - hit) * share.sum() * d
        }))
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { input, target, log_sum_exp, share, d_loss, ignore_index } = args;
        if input.is_empty() {
            return Ok(());
        }
        let reduction = if d_loss.rank() == 0 { Reduction::Sum } else { Reduction::None };
        super::kernels(plan, &[input, out], target, reduction);
        let fault = plan.fault("target");
        let code = Parameter::FaultCode;
        let parameters = binds![input, target, log_sum_exp, share, d_loss, out, ignore_index, fault, code];
        plan.launch("crossentropy_softmax_backward", super::block_a_row(input.shape()[0]), parameters)
    }

    fn samples(s: &mut Samples) {
        for (rows, classes, ignored) in [(6, 5, -100), (7, 311, 3), (5, 20001, -1), (0, 5, -100)] {
            for per_row in [false, true] {
                let input = s.uniform(-1.0, 1.0, [rows, classes]);
                // Close to what the forward symbol gives, so that the exponentials stay within reach.
                let sums = s.uniform(1.0, 2.0, [rows]).cast(DType::F32);
                let share = s.values([], [0.25]).cast(DType::F32);
                let d_loss = if per_row { s.normal([rows]) } else { s.normal([]) };
                let target = s.integers(0, classes as i64, [rows]);
                s.case(with(input, target, sums, share, d_loss, ignored));
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[6, 5]), e.integers(0, 5, [6]), of(&[6]), of(&[]), of(&[]), -100);
        e.case(Rows, ARGUMENTS.target.set(good(), e.integers(0, 5, [5])), "expected [N, C], [N], [N]");
        e.case(Kernel, ARGUMENTS.input.set(good(), of(&[6, 0])), "not 0");
        e.case(Statistics, ARGUMENTS.share.set(good(), of(&[6])), "expected f32[N] and f32[]");
        e.case(Cotangent, ARGUMENTS.d_loss.set(good(), of(&[5])), "[] or [6]");
    }
}

#[implementation(of = fulgurite_ops::nn::cross_entropy, by = llmc)]
mod cross_entropy_by_llmc {
    fn checker(input: &TensorMeta, target: &TensorMeta, weight: Option<&TensorMeta>, label_smoothing: f64) -> Claim {
        takes(input)?;
        refuse_unless!(input.rank() == 2, "input has rank {}, takes [N, C]", input.rank());
        refuse_unless!(target.dtype().is_integer(), "takes classes, not probabilities");
        refuse_unless!(weight.is_none(), "takes no class weights");
        refuse_unless!(label_smoothing == 0.0, "label_smoothing is {label_smoothing}, takes 0");
        super::kernel_fits(input)
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _ } = args;
        crossentropy(input, target, ignore_index, reduction).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, target, weight: _, ignore_index, reduction, label_smoothing: _ } = args;
        let (loss, sums, share) = crossentropy(input, target, ignore_index, reduction);
        (loss, move |d_loss: Tensor| {
            let d_input = crossentropy_softmax_backward(input, target, sums, share, d_loss, ignore_index);
            // Classes are integers, whose gradient nobody reads.
            Grads { input: d_input, target, weight: None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_refuse_classes_that_there_are_not() {
        let of = |classes: [i64; 2]| {
            let target = ndarray::ArrayD::from_shape_vec(ndarray::IxDyn(&[2]), classes.to_vec()).unwrap();
            classes_fit(&target, -100, 5).map_err(|failure| failure.message)
        };
        assert_eq!(of([4, -100]), Ok(()));
        for class in [5, -1] {
            assert_eq!(of([0, class]), Err(format!("target holds {class}, there are 5 classes")));
        }
    }
}
