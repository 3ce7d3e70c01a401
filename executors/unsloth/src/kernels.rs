//! The losses of rows of logits, which leave a number for each row, and the gradient from these numbers.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless};

use super::unsloth;
use fulgurite_executor_cuda::rows::streamed;
use fulgurite_executor_cuda::support::{are_aligned, has_kernels_for, pack_anywhere, type_of};
use fulgurite_ops::core::arrays::array;
use fulgurite_ops::prims::checks;

/// Columns whose log-sum-exp a block computes.
const CHUNK: usize = 65_536;
/// Columns whose gradient a block computes.
const PIECE: usize = 8192;
/// Threads of a block, and of one that has a row for each of them.
const THREADS: usize = 512;
const THREADS_OF_ROWS: usize = 128;
/// The longest row: places in it are counted by an `int`, a piece past its end.
const LONGEST: usize = 1 << 30;

/// Whether the kernels are written for these rows.
pub(super) fn kernels_fit(input: &TensorMeta, target: &TensorMeta) -> Claim {
    let dtype = input.dtype();
    refuse_unless!(has_kernels_for(dtype), "input is {dtype}, takes f32, bf16 and f16");
    refuse_unless!(input.rank() == 2, "input has rank {}, takes [N, C]", input.rank());
    refuse_unless!(target.dtype().is_integer(), "takes classes, not probabilities");
    let columns = input.shape()[1];
    refuse_unless!((1..=LONGEST).contains(&columns), "takes 1 to {LONGEST} classes, not {columns}");
    let blocks = input.shape()[0].saturating_mul(columns.div_ceil(PIECE));
    refuse_unless!(blocks <= i32::MAX as usize, "input is {input}, more pieces of rows than a launch has blocks");
    Ok(())
}

/// Takes the following kernels from the source beside this file.
fn kernels(
    plan: &mut Plan,
    input: &DeviceTensor,
    target: &DeviceTensor,
    softcap: Option<f64>,
    moved: &[&DeviceTensor],
) {
    let columns = input.shape()[1];
    // The pack is part of the order of sums, which addresses do not decide.
    let pack = pack_anywhere(columns, input.dtype().size());
    plan.source(streamed("cross_entropy.cu", include_str!("cross_entropy.cu")));
    plan.define("ELEMENT", type_of(input.dtype()));
    plan.define("TARGET", type_of(target.dtype()));
    plan.define("COLUMNS", columns);
    plan.define("CHUNK", CHUNK);
    plan.define("PIECE", PIECE);
    plan.define("PACK", pack);
    plan.define("ALIGNED", u8::from(are_aligned(pack, moved)));
    plan.define("THREADS", THREADS);
    plan.define("THREADS_OF_ROWS", THREADS_OF_ROWS);
    plan.define("CAPPED", u8::from(softcap.is_some()));
}

/// The factor and the bound of logits, as kernels take them.
fn numbers(scaling: f64, softcap: Option<f64>) -> [Parameter; 2] {
    [Parameter::from(scaling as f32), Parameter::from(softcap.unwrap_or(1.0) as f32)]
}

/// A logit as the loss sees it, and the derivative of that.
fn seen(logit: f64, scaling: f64, softcap: Option<f64>) -> [f64; 2] {
    let scaled = scaling * logit;
    match softcap {
        None => [scaled, scaling],
        Some(cap) => {
            let bent = (scaled / cap).tanh();
            [cap * bent, (1.0 - bent * bent) * scaling]
        }
    }
}

/// Of each row of logits [N, C] and its class the cross entropy, and the log-sum-exp of the row, f32[N] each. A logit
/// is multiplied by `scaling`, and, with `softcap` s, bounded: `s · tanh(x / s)`. A row of class `ignore_index` has the
/// loss 0. Rows longer than 65,536 are summed in chunks. A class out of range is an error when the program runs.
#[operator(
    executor = unsloth,
    name = "unsloth::cross_entropy",
    dtypes(f32, bf16, f16),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod cross_entropy {
    #[results(losses, logsumexp)]
    fn cross_entropy(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        ignore_index: i64,
        scaling: f64,
        softcap: Option<f64>,
    ) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, target: &TensorMeta, softcap: Option<f64>) -> Result<(TensorMeta, TensorMeta)> {
        super::kernels_fit(input, target).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(
            ("target", target),
            &input.with_shape([input.shape()[0]]).with_dtype(target.dtype()),
            Code::Rows,
        )?;
        let bounded = softcap.is_none_or(|cap| cap > 0.0 && cap.is_finite());
        require!(bounded, Cap, "softcap is {softcap:?}, expected a number above 0 or none");
        let row = TensorMeta::new([input.shape()[0]], DType::F32, input.device());
        Ok((row.clone(), row))
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { input, target, ignore_index, scaling, softcap } = args;
        let classes = input.shape()[1];
        let (mut losses, mut sums) = (Vec::new(), Vec::new());
        for (row, class) in input.outer_iter().zip(target) {
            let x: Vec<f64> = row.iter().map(|logit| super::seen(*logit, scaling, softcap)[0]).collect();
            let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum = top + x.iter().map(|x| (x - top).exp()).sum::<f64>().ln();
            sums.push(sum);
            if *class == ignore_index {
                losses.push(0.0);
                continue;
            }
            let at = usize::try_from(*class).ok().filter(|at| *at < classes).ok_or_else(|| {
                Failure::new("IndexOutOfRange", format!("target holds {class}, there are {classes} classes"))
            })?;
            losses.push(sum - x[at]);
        }
        let rows = [target.len()];
        Ok((array(&rows, losses), array(&rows, sums)))
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, losses: &DeviceTensor, logsumexp: &DeviceTensor) -> Result<()> {
        let Args { input, target, ignore_index, scaling, softcap } = args;
        let [rows, columns] = [input.shape()[0], input.shape()[1]];
        if rows == 0 {
            return Ok(());
        }
        super::kernels(plan, input, target, softcap, &[input]);
        let chunks = columns.div_ceil(super::CHUNK);
        let parts = plan.workspace((rows * chunks * size_of::<f32>()) as u64);
        let mut parameters = binds![input, parts];
        parameters.extend(super::numbers(scaling, softcap));
        let shape = LaunchShape::linear((rows * chunks) as u32, super::THREADS as u32);
        plan.launch("chunks_of_rows", shape, parameters)?;
        let fault = plan.fault("target");
        let mut parameters = binds![input, target, parts, losses, logsumexp, rows, ignore_index];
        parameters.extend(super::numbers(scaling, softcap));
        parameters.extend(binds![fault, Parameter::FaultCode]);
        let blocks = rows.div_ceil(super::THREADS_OF_ROWS);
        plan.launch("losses_of_rows", LaunchShape::linear(blocks as u32, super::THREADS_OF_ROWS as u32), parameters)
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, [rows, classes]: [usize; 2]| {
            with(s.normal([rows, classes]), s.integers(0, classes as i64, [rows]), 3, 1.0, None)
        };
        let cases = [call(s, [6, 5]), call(s, [7, 311]), call(s, [3, 1]), call(s, [0, 5]), call(s, [5, 5003])];
        for case in cases {
            s.case(case);
        }
        let changed = [
            with(s.normal([6, 9]), s.integers(0, 9, [6]), 2, 0.25, None),
            with(s.uniform(-50.0, 50.0, [4, 9]), s.integers(0, 9, [4]), -100, 1.0, Some(30.0)),
            with(s.normal([4, 40]), s.integers(0, 40, [4]).cast(DType::I32), -100, -2.0, Some(2.5)),
            // Several chunks, the last one shorter.
            with(s.normal([2, 140_001]), s.integers(0, 140_001, [2]), -100, 1.0, None),
        ];
        for case in changed {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let logits = || e.of(DType::F32, [6, 5]);
        let classes = |count: usize| e.integers(0, 5, [count]);
        e.case(Kernel, with(e.of(DType::F32, [5]), classes(5), -100, 1.0, None), "takes [N, C]");
        e.case(Rows, with(logits(), classes(5), -100, 1.0, None), "expected i64[6]");
        e.case(Cap, with(logits(), classes(6), -100, 1.0, Some(f64::INFINITY)), "expected a number above 0");
    }
}

/// The gradient of [`cross_entropy`] by the logits, for the cotangents `d_losses` f32[N]; a row of class `ignore_index`
/// has none, whatever its logits are.
#[operator(
    executor = unsloth,
    name = "unsloth::cross_entropy_backward",
    dtypes(f32, bf16, f16),
    in_place(input),
    no_grad = "a gradient is not differentiated again"
)]
pub mod cross_entropy_backward {
    fn cross_entropy_backward(
        d_losses: Tensor<Floating>,
        input: Tensor<Floating>,
        logsumexp: Tensor<Floating>,
        target: Tensor<Integer>,
        ignore_index: i64,
        scaling: f64,
        softcap: Option<f64>,
    ) -> Tensor;

    fn meta(Args { d_losses, input, logsumexp, target, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        super::kernels_fit(input, target).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        let row = TensorMeta::new([input.shape()[0]], DType::F32, input.device());
        checks::is_like(("d_losses", d_losses), &row, Code::Rows)?;
        checks::is_like(("logsumexp", logsumexp), &row, Code::Rows)?;
        checks::is_like(("target", target), &row.with_dtype(target.dtype()), Code::Rows)?;
        Ok(input.clone())
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { d_losses, input, logsumexp, target, ignore_index, scaling, softcap } = args;
        ArrayD::from_shape_fn(input.raw_dim(), |at| {
            let (row, column) = (at[0], at[1] as i64);
            if target[[row]] == ignore_index {
                return 0.0;
            }
            let [x, slope] = super::seen(input[&at], scaling, softcap);
            let hit = if target[[row]] == column { 1.0 } else { 0.0 };
            d_losses[[row]] * ((x - logsumexp[[row]]).exp() - hit) * slope
        })
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { d_losses, input, logsumexp, target, ignore_index, scaling, softcap } = args;
        let [rows, columns] = [input.shape()[0], input.shape()[1]];
        if rows == 0 {
            return Ok(());
        }
        super::kernels(plan, input, target, softcap, &[input, out]);
        let mut parameters = binds![d_losses, input, logsumexp, target, out, ignore_index];
        parameters.extend(super::numbers(scaling, softcap));
        let blocks = rows * columns.div_ceil(super::PIECE);
        plan.launch("gradient", LaunchShape::linear(blocks as u32, super::THREADS as u32), parameters)
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, [rows, classes]: [usize; 2], scaling: f64, softcap: Option<f64>| {
            let [d_losses, sums] = [s.normal([rows]), s.uniform(1.0, 3.0, [rows])].map(|row| row.cast(DType::F32));
            with(d_losses, s.normal([rows, classes]), sums, s.integers(0, classes as i64, [rows]), 3, scaling, softcap)
        };
        let cases = [
            call(s, [6, 5], 1.0, None),
            call(s, [7, 311], 0.25, None),
            call(s, [3, 1], 1.0, Some(2.5)),
            call(s, [0, 5], 1.0, None),
            call(s, [3, 20_003], -2.0, Some(1.5)),
        ];
        for case in cases {
            s.case(case);
        }
        // A row that does not count has no gradient, whatever is in it.
        let rows = |values: [f64; 2]| s.values([2], values).cast(DType::F32);
        let odd = s.values([2, 3], [f64::NAN, f64::INFINITY, 1.0, 0.5, 1.5, -1.0]);
        let target = s.values([2], [7.0, 1.0]).cast(DType::I64);
        s.case(with(rows([f64::INFINITY, 2.0]), odd, rows([f64::NAN, 2.0]), target, 7, 1.0, None));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[6]), of(&[6, 5]), of(&[6]), e.integers(0, 5, [6]), -100, 1.0, None);
        e.case(Kernel, ARGUMENTS.input.set(good(), of(&[6, 0])), "not 0");
        e.case(Rows, ARGUMENTS.d_losses.set(good(), of(&[5])), "expected f32[6]");
        e.case(Rows, ARGUMENTS.logsumexp.set(good(), of(&[7])), "expected f32[6]");
    }
}
