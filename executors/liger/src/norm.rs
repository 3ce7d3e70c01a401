//! Normalization by the root mean square.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{ArrayD, DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, Failure, TensorMeta, binds, refuse_unless, source_files};

use super::rows::Walk;
use super::{liger, takes};
use fulgurite_executor_cuda::reducing::sum_rows;
use fulgurite_executor_cuda::support::{are_aligned, pack_anywhere, type_of};
use fulgurite_ops::core::arrays::{array, values};
use fulgurite_ops::nn::Casting;
use fulgurite_ops::prims::checks;

/// The longest row: places in it are counted by an `int`, a little past its end.
const LONGEST: usize = 1 << 30;
/// Threads that a multiprocessor has at a time.
const RESIDENT_THREADS: usize = 1024;
/// Threads of a block that goes along a longer row.
const LONG_THREADS: usize = 1024;
/// Rows whose gradients of the weight a block sums at least, where rows are longer.
const SHORTEST_PIECE: usize = 32;

/// Whether the kernels are written for rows over the trailing `normalized_shape` of `input`.
fn kernels_fit(input: &TensorMeta, normalized_shape: &[usize], weight: &TensorMeta) -> Claim {
    takes("input", input)?;
    takes("weight", weight)?;
    let columns: usize = normalized_shape.iter().product();
    refuse_unless!((1..=LONGEST).contains(&columns), "takes rows of 1 to {LONGEST} elements, not {columns}");
    Ok(())
}

/// The meta of a number of each row.
fn row_meta(input: &TensorMeta, normalized_shape: &[usize]) -> TensorMeta {
    let leading = input.rank() - normalized_shape.len();
    TensorMeta::new(&input.shape()[..leading], DType::F32, input.device())
}

/// Which kernels go over the rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// How many elements a thread keeps; backward it also has the sums of as many gradients.
    fn elements_of_a_thread(self) -> usize {
        match self {
            Direction::Forward => 16,
            Direction::Backward => 8,
        }
    }
}

/// Rows of a tensor that has elements, and the kernels that go over them.
struct Rows {
    count: usize,
    columns: usize,
    pack: usize,
    /// `None` if a block cannot keep a row.
    walk: Option<Walk>,
}

impl Rows {
    /// Takes the following kernels from the sources beside this file.
    fn new(
        plan: &mut Plan,
        input: &DeviceTensor,
        of_input: &[&DeviceTensor],
        weight: &DeviceTensor,
        casting: Casting,
        direction: Direction,
    ) -> Rows {
        let columns = weight.len();
        let pack = pack_anywhere(columns, input.dtype().size());
        let walk = Walk::new(columns, pack, direction.elements_of_a_thread(), RESIDENT_THREADS);
        match &walk {
            Some(walk) => {
                plan.source(match direction {
                    Direction::Forward => source_files!["rms_norm.cuh", "kept_rows.cuh", "rms_norm.cu"],
                    Direction::Backward => source_files!["rms_norm.cuh", "kept_rows.cuh", "rms_norm_backward.cu"],
                });
                walk.define(plan);
            }
            None => {
                plan.source(source_files!["rms_norm.cuh", "long_rms_norm.cu"]);
                plan.define("COLUMNS", columns);
                plan.define("PACK", pack);
                plan.define("THREADS", LONG_THREADS);
            }
        }
        plan.define("ELEMENT", type_of(input.dtype()));
        plan.define("WEIGHT", type_of(weight.dtype()));
        plan.define("ALIGNED", u8::from(are_aligned(pack, of_input)));
        plan.define("WEIGHT_ALIGNED", u8::from(are_aligned(pack, &[weight])));
        let cast = match casting {
            Casting::Gemma => 0,
            Casting::Llama => 1,
            Casting::None => 2,
        };
        plan.define("CASTING", cast);
        Rows { count: input.len() / columns, columns, pack, walk }
    }

    /// A launch of the kernel that keeps rows, in `blocks` blocks.
    fn launch(&self, plan: &mut Plan, kernel: &str, blocks: usize, parameters: Vec<Parameter>) -> Result<()> {
        match &self.walk {
            Some(walk) => plan.launch(kernel, walk.launch(blocks), parameters),
            None => {
                let shape = LaunchShape::linear(blocks as u32, LONG_THREADS as u32);
                plan.launch(&format!("long_{kernel}"), shape, parameters)
            }
        }
    }

    /// Blocks of a launch.
    fn blocks(&self, plan: &Plan) -> usize {
        match &self.walk {
            Some(walk) => walk.blocks(plan, self.count),
            None => self.count.min(i32::MAX as usize),
        }
    }
}

/// `input / √(mean(input²) + eps) · (weight + offset)` of rows over the trailing `normalized_shape`, and each row's
/// `1 / √(mean(input²) + eps)`, f32.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    cheap,
    in_place,
    waive(casting = "it decides where numbers of 16 bits are rounded, which a test allows"),
    no_grad = "the implementation that uses it has a gradient of its own"
)]
pub mod rms_norm {
    #[results(out, rstd)]
    fn rms_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        eps: f64,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, normalized_shape: &[usize], weight: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(input, normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((input.clone(), super::row_meta(input, normalized_shape)))
    }

    fn reference(
        input: &ArrayD<f64>,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        eps: f64,
        offset: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        let columns: usize = normalized_shape.iter().product();
        let weight = values(weight);
        let (mut out, mut rstds) = (Vec::new(), Vec::new());
        for row in values(input).chunks(columns) {
            let rstd = 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / columns as f64 + eps).sqrt();
            out.extend(row.iter().zip(&weight).map(|(x, weight)| x * rstd * (weight + offset)));
            rstds.push(rstd);
        }
        let rows = &input.shape()[..input.ndim() - normalized_shape.len()];
        (array(input.shape(), out), array(rows, rstds))
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        weight: &DeviceTensor,
        eps: f64,
        offset: f64,
        casting: Casting,
        out: &DeviceTensor,
        rstd: &DeviceTensor,
    ) -> Result<()> {
        if input.is_empty() {
            return Ok(());
        }
        let rows = super::Rows::new(plan, input, &[input, out], weight, casting, Direction::Forward);
        let parameters = binds![input, weight, out, rstd, rows.count, eps as f32, offset as f32];
        let blocks = rows.blocks(plan);
        rows.launch(plan, "rms_norm", blocks, parameters)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], offset: f64, casting: Casting, weight: DType| {
            let weight = s.uniform(-offset, 2.0 - offset, columns).cast(weight);
            with(s.normal([rows, columns].concat()), columns, weight, 1e-5, offset, casting)
        };
        let own = s.dtype();
        let cases = [
            call(&[4], &[8], 0.0, Casting::Gemma, own),
            call(&[4], &[8], 1.0, Casting::Gemma, own),
            call(&[4], &[8], 0.0, Casting::Llama, own),
            call(&[4], &[8], 0.5, Casting::None, own),
            call(&[2], &[3, 5], 0.0, Casting::Gemma, own),
            call(&[], &[7], 0.0, Casting::Gemma, own),
            call(&[0], &[4], 0.0, Casting::Gemma, own),
            call(&[3], &[515], 0.0, Casting::Llama, own),
            call(&[3], &[1], 0.0, Casting::Gemma, own),
            // More rows than the blocks have at a time.
            call(&[700, 8], &[96], 0.0, Casting::Gemma, DType::F32),
            call(&[1500], &[520], 1.0, Casting::Gemma, own),
            call(&[3], &[2048], 0.0, Casting::None, own),
            call(&[300], &[4096], 0.0, Casting::Gemma, own),
            // Rows that a block cannot keep.
            call(&[2], &[16387], 0.0, Casting::Llama, own),
            call(&[3], &[20480], 1.0, Casting::Gemma, own),
        ];
        for case in cases {
            s.case(case);
        }
        s.case(with(
            s.values([2, 2], [1e-3, -1e-3, 1.0, 2.0]),
            [2],
            s.values([2], [1.0, 1.0]),
            1e-2,
            0.0,
            Casting::Gemma,
        ));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        e.case(TrailingShape, with(of(&[4, 8]), [7], of(&[7]), 1e-5, 0.0, Casting::Gemma), "end with [7]");
        e.case(WeightShape, with(of(&[4, 8]), [8], of(&[7]), 1e-5, 0.0, Casting::Gemma), "expected [8]");
        let empty = with(of(&[4, 0]), [0], of(&[0]), 1e-5, 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
    }
}

/// The gradients of [`rms_norm`]: of input and weight.
#[operator(
    executor = liger,
    dtypes(f32, bf16, f16),
    in_place,
    waive(casting = "it decides where numbers of 16 bits are rounded, which a test allows"),
    no_grad = "a gradient is not differentiated again"
)]
pub mod rms_norm_backward {
    #[results(d_input, d_weight)]
    fn rms_norm_backward(
        d_out: Tensor<Floating>,
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        weight: Tensor<Floating>,
        rstd: Tensor<Floating>,
        offset: f64,
        casting: Casting,
    ) -> (Tensor, Tensor);

    fn meta(
        d_out: &TensorMeta,
        input: &TensorMeta,
        normalized_shape: &[usize],
        weight: &TensorMeta,
        rstd: &TensorMeta,
    ) -> Result<(TensorMeta, TensorMeta)> {
        let whole = !normalized_shape.is_empty() && input.shape().ends_with(normalized_shape);
        require!(whole, TrailingShape, "input is {input}, expected it to end with {normalized_shape:?}");
        let fits = weight.shape() == normalized_shape;
        require!(fits, WeightShape, "weight is {weight}, expected {normalized_shape:?}");
        super::kernels_fit(input, normalized_shape, weight)
            .map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), input, Code::Cotangent)?;
        checks::is_like(("rstd", rstd), &super::row_meta(input, normalized_shape), Code::Statistics)?;
        Ok((input.clone(), weight.clone()))
    }

    fn reference(
        d_out: &ArrayD<f64>,
        input: &ArrayD<f64>,
        normalized_shape: &[usize],
        weight: &ArrayD<f64>,
        rstd: &ArrayD<f64>,
        offset: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        let columns: usize = normalized_shape.iter().product();
        let (x, d, w, rstds) = (values(input), values(d_out), values(weight), values(rstd));
        let (mut d_input, mut d_weight) = (Vec::new(), vec![0.0; columns]);
        for (row, (x, d)) in x.chunks(columns).zip(d.chunks(columns)).enumerate() {
            let normal: Vec<f64> = x.iter().map(|x| x * rstds[row]).collect();
            let m: Vec<f64> = d.iter().zip(&w).map(|(d, w)| d * (w + offset)).collect();
            let along = m.iter().zip(&normal).map(|(m, n)| m * n).sum::<f64>() / columns as f64;
            for i in 0..columns {
                d_input.push((m[i] - normal[i] * along) * rstds[row]);
                d_weight[i] += d[i] * normal[i];
            }
        }
        (array(input.shape(), d_input), array(normalized_shape, d_weight))
    }

    fn plan(
        plan: &mut Plan,
        d_out: &DeviceTensor,
        input: &DeviceTensor,
        weight: &DeviceTensor,
        rstd: &DeviceTensor,
        offset: f64,
        casting: Casting,
        d_input: &DeviceTensor,
        d_weight: &DeviceTensor,
    ) -> Result<()> {
        if input.is_empty() {
            plan.fill(d_weight, 0);
            return Ok(());
        }
        let rows = super::Rows::new(plan, input, &[d_out, input, d_input], weight, casting, Direction::Backward);
        let blocks = rows.blocks(plan);
        let pieces = match &rows.walk {
            Some(_) => blocks,
            None => rows.count.div_ceil(SHORTEST_PIECE).min(plan.typical().multiprocessors),
        };
        let partial = plan.workspace((pieces * rows.columns * size_of::<f32>()) as u64);
        let offset = offset as f32;
        if rows.walk.is_some() {
            let parameters = binds![d_out, input, weight, rstd, d_input, partial, rows.count, offset];
            rows.launch(plan, "rms_norm_backward", blocks, parameters)?;
        } else {
            // The weight's gradient first, and its sum last: results may have the memory of operands.
            let grid = (rows.columns / rows.pack).div_ceil(LONG_THREADS);
            let shape = LaunchShape::new([grid as u32, pieces as u32, 1], [LONG_THREADS as u32, 1, 1]);
            plan.launch("long_rms_norm_weight", shape, binds![d_out, input, rstd, partial, rows.count])?;
            let parameters = binds![d_out, input, weight, rstd, d_input, rows.count, offset];
            rows.launch(plan, "rms_norm_backward", blocks, parameters)?;
        }
        let sums = DeviceTensor {
            meta: TensorMeta::new([pieces, rows.columns], DType::F32, input.device()),
            strides: vec![rows.columns as isize, 1],
            address: partial,
            alignment: 256,
        };
        let d_weight =
            DeviceTensor { meta: d_weight.meta.with_shape([rows.columns]), strides: vec![1], ..d_weight.clone() };
        sum_rows(plan, &sums, &d_weight)
    }

    fn samples(s: &mut Samples) {
        let call = |rows: &[usize], columns: &[usize], offset: f64, casting: Casting, weight: DType| {
            let shape = [rows, columns].concat();
            let weight = s.uniform(-offset, 2.0 - offset, columns).cast(weight);
            let rstd = s.uniform(0.8, 1.2, rows).cast(DType::F32);
            with(s.normal(&shape), s.normal(&shape), columns, weight, rstd, offset, casting)
        };
        let own = s.dtype();
        let cases = [
            call(&[4], &[8], 0.0, Casting::Gemma, own),
            call(&[4], &[8], 1.0, Casting::Gemma, own),
            call(&[4], &[8], 0.0, Casting::Llama, own),
            call(&[4], &[8], 0.5, Casting::None, own),
            call(&[2], &[3, 5], 0.0, Casting::Gemma, own),
            call(&[], &[7], 0.0, Casting::Gemma, own),
            call(&[0], &[4], 0.0, Casting::Gemma, own),
            call(&[3], &[515], 0.0, Casting::Llama, own),
            call(&[3], &[1], 0.0, Casting::Gemma, own),
            // More rows than the blocks have at a time.
            call(&[700, 8], &[96], 0.0, Casting::Gemma, DType::F32),
            call(&[1500], &[520], 1.0, Casting::Gemma, own),
            call(&[300], &[4096], 0.0, Casting::Gemma, own),
            call(&[140], &[8192], 0.0, Casting::None, own),
            // Rows that a block cannot keep.
            call(&[2], &[8195], 0.0, Casting::Llama, own),
            call(&[70], &[20480], 1.0, Casting::Gemma, own),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(of(&[4, 8]), of(&[4, 8]), [8], of(&[8]), of(&[4]), 0.0, Casting::Gemma);
        e.case(TrailingShape, ARGUMENTS.normalized_shape.set(good(), vec![7]), "end with [7]");
        e.case(WeightShape, ARGUMENTS.weight.set(good(), of(&[9])), "expected [8]");
        let empty = with(of(&[4, 0]), of(&[4, 0]), [0], of(&[0]), of(&[4]), 0.0, Casting::Gemma);
        e.case(Kernel, empty, "takes rows of 1 to 1073741824 elements, not 0");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[4, 9])), "expected f32[4, 8]");
        e.case(Statistics, ARGUMENTS.rstd.set(good(), of(&[5])), "expected f32[4]");
    }
}

#[implementation(of = fulgurite_ops::nn::rms_norm, by = liger)]
mod rms_norm_by_liger {
    fn checker(input: &TensorMeta, normalized_shape: &[usize], weight: Option<&TensorMeta>) -> Claim {
        let Some(weight) = weight else {
            return Err("takes a weight".into());
        };
        super::kernels_fit(input, normalized_shape, weight)
    }

    fn execution(input: Tensor, normalized_shape: &[usize], weight: Option<Tensor>, eps: Option<f64>) -> Tensor {
        let eps = eps.unwrap_or(input.dtype().accumulator().epsilon());
        rms_norm(input, normalized_shape, given(weight), eps, 0.0, Casting::Gemma).0
    }

    fn grad(
        input: Tensor,
        normalized_shape: &[usize],
        weight: Option<Tensor>,
        eps: Option<f64>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let eps = eps.unwrap_or(input.dtype().accumulator().epsilon());
        let weight = given(weight);
        let (out, rstd) = rms_norm(input, normalized_shape, weight, eps, 0.0, Casting::Gemma);
        let normalized_shape = normalized_shape.to_vec();
        (out, move |d_out: Tensor| {
            let (d_input, d_weight) =
                rms_norm_backward(d_out, input, normalized_shape, weight, rstd, 0.0, Casting::Gemma);
            Grads { input: d_input, weight: Some(d_weight) }
        })
    }

    fn given(weight: Option<Tensor>) -> Tensor {
        match weight {
            Some(weight) => weight,
            None => unreachable!("the checker asks for it"),
        }
    }
}
