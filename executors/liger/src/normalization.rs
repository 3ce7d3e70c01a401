//! The kernels of normalizations by the root mean square, with and without a residual that is added first.

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{ArrayD, DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::testing::samples::round_to;
use fulgurite_runtime::{DType, Tensor, TensorMeta, binds, refuse_unless, source_files};

use super::rows::Walk;
use super::takes;
use fulgurite_executor_cuda::reducing::sum_rows;
use fulgurite_executor_cuda::support::{are_aligned, pack_anywhere, type_of};
use fulgurite_ops::core::arrays::{array, values};
use fulgurite_ops::nn::Casting;

/// The longest row: places in it are counted by an `int`, a little past its end.
const LONGEST: usize = 1 << 30;
/// Threads that a multiprocessor has at a time.
const RESIDENT_THREADS: usize = 1024;
/// Threads of a block that goes along a longer row.
const LONG_THREADS: usize = 1024;
/// Rows whose gradients of the weight a block sums at least, where rows are longer.
const SHORTEST_PIECE: usize = 32;

/// Whether the kernels are written for rows over the trailing `normalized_shape` of `input`.
///
/// # Errors
/// The reason why they are not.
pub fn kernels_fit(input: &TensorMeta, normalized_shape: &[usize], weight: &TensorMeta) -> Claim {
    takes("input", input)?;
    takes("weight", weight)?;
    let columns: usize = normalized_shape.iter().product();
    refuse_unless!((1..=LONGEST).contains(&columns), "takes rows of 1 to {LONGEST} elements, not {columns}");
    Ok(())
}

/// The meta of a number of each row.
pub(super) fn row_meta(input: &TensorMeta, normalized_shape: &[usize]) -> TensorMeta {
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
    /// How many elements of `size` bytes a thread keeps; backward it also has the sums of as many gradients.
    fn elements_of_a_thread(self, size: usize) -> usize {
        match self {
            Direction::Forward => 32 / size,
            Direction::Backward => 8,
        }
    }
}

/// Rows of a tensor that has elements, and the kernels that go over them.
struct Rows {
    count: usize,
    columns: usize,
    pack: usize,
    /// Bytes of an element.
    size: usize,
    direction: Direction,
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
        residual: bool,
    ) -> Rows {
        let columns = weight.len();
        let pack = pack_anywhere(columns, input.dtype().size());
        let size = input.dtype().size();
        let walk = Walk::new(columns, pack, direction.elements_of_a_thread(size), RESIDENT_THREADS);
        // Forward a block has one row, and others are at work while it waits.
        let walk = walk.map(|walk| if direction == Direction::Backward { walk.ahead(2, size) } else { walk });
        let count = input.len() / columns;
        match &walk {
            Some(walk) => {
                plan.source(match direction {
                    Direction::Forward => source_files!["rms_norm.cuh", "kept_rows.cuh", "rms_norm.cu"],
                    Direction::Backward => source_files!["rms_norm.cuh", "kept_rows.cuh", "rms_norm_backward.cu"],
                });
                walk.define(plan, count);
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
        plan.define("RESIDUAL", u8::from(residual));
        Rows { count, columns, pack, size, direction, walk }
    }

    /// A launch of the kernel that keeps rows, or of the one that does not.
    fn launch(&self, plan: &mut Plan, kernel: &str, parameters: Vec<Parameter>) -> Result<()> {
        let blocks = self.blocks(plan);
        match &self.walk {
            Some(walk) => plan.launch(kernel, walk.launch(blocks, 2, self.size), parameters),
            None => {
                let shape = LaunchShape::linear(blocks as u32, LONG_THREADS as u32);
                plan.launch(&format!("long_{kernel}"), shape, parameters)
            }
        }
    }

    /// Blocks of a launch.
    fn blocks(&self, plan: &Plan) -> usize {
        match &self.walk {
            Some(walk) if self.direction == Direction::Forward => walk.blocks_for_all(self.count),
            Some(walk) => walk.resident_blocks(plan, self.count),
            None => self.count.min(i32::MAX as usize),
        }
    }
}

/// A normalization of rows that have elements.
pub(super) struct Forward<'a> {
    pub(super) input: &'a DeviceTensor,
    /// What is added to the input first, and where the sum is written.
    pub(super) residual: Option<[&'a DeviceTensor; 2]>,
    pub(super) weight: &'a DeviceTensor,
    pub(super) eps: f64,
    pub(super) offset: f64,
    pub(super) casting: Casting,
    pub(super) out: &'a DeviceTensor,
    pub(super) rstd: &'a DeviceTensor,
}

impl Forward<'_> {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<()> {
        let Forward { input, residual, weight, eps, offset, casting, out, rstd } = *self;
        if input.is_empty() {
            return Ok(());
        }
        let of_input: Vec<&DeviceTensor> = [input, out].into_iter().chain(residual.into_iter().flatten()).collect();
        let rows = Rows::new(plan, input, &of_input, weight, casting, Direction::Forward, residual.is_some());
        let mut parameters = binds![input];
        parameters.extend(residual.iter().flatten().map(|tensor| Parameter::from(*tensor)));
        parameters.extend(binds![weight, out, rstd, rows.count, eps as f32, offset as f32]);
        rows.launch(plan, "rms_norm", parameters)
    }
}

/// The gradients of a normalization.
pub(super) struct Backward<'a> {
    pub(super) d_out: &'a DeviceTensor,
    /// The cotangent of the sum itself, if that has one.
    pub(super) d_sum: Option<&'a DeviceTensor>,
    /// The tensor that was normalized.
    pub(super) input: &'a DeviceTensor,
    pub(super) weight: &'a DeviceTensor,
    pub(super) rstd: &'a DeviceTensor,
    pub(super) offset: f64,
    pub(super) casting: Casting,
    pub(super) d_input: &'a DeviceTensor,
    /// `None` if nobody reads the weight's gradient: nothing is computed for it.
    pub(super) d_weight: Option<&'a DeviceTensor>,
}

impl Backward<'_> {
    pub(super) fn plan(&self, plan: &mut Plan) -> Result<()> {
        let Backward { d_out, d_sum, input, weight, rstd, offset, casting, d_input, d_weight } = *self;
        if input.is_empty() {
            if let Some(d_weight) = d_weight {
                plan.fill(d_weight, 0);
            }
            return Ok(());
        }
        let of_input: Vec<&DeviceTensor> = [d_out, input, d_input].into_iter().chain(d_sum).collect();
        let rows = Rows::new(plan, input, &of_input, weight, casting, Direction::Backward, d_sum.is_some());
        plan.define("WEIGHT_GRADIENT", u8::from(d_weight.is_some()));
        let pieces = match &rows.walk {
            Some(_) => rows.blocks(plan),
            None => rows.count.div_ceil(SHORTEST_PIECE).min(plan.typical().multiprocessors),
        };
        // The sums of the weight's gradient over the rows of each piece.
        let partial = d_weight.map(|_| plan.workspace((pieces * rows.columns * size_of::<f32>()) as u64));
        if let (None, Some(partial)) = (&rows.walk, partial) {
            // The weight's gradient comes before the input's, which may have the memory of an operand.
            let grid = (rows.columns / rows.pack).div_ceil(LONG_THREADS);
            let shape = LaunchShape::new([grid as u32, pieces as u32, 1], [LONG_THREADS as u32, 1, 1]);
            plan.launch("long_rms_norm_weight", shape, binds![d_out, input, rstd, partial, rows.count])?;
        }
        let mut parameters = binds![d_out];
        parameters.extend(d_sum.map(Parameter::from));
        parameters.extend(binds![input, weight, rstd, d_input]);
        if rows.walk.is_some() {
            parameters.extend(partial.map(Parameter::from));
        }
        parameters.extend(binds![rows.count, offset as f32]);
        rows.launch(plan, "rms_norm_backward", parameters)?;
        let (Some(d_weight), Some(partial)) = (d_weight, partial) else { return Ok(()) };
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
}

/// For references: the normalized rows of elements of `dtype`, and their scales, which are rounded as the type that
/// `casting` says.
pub(super) fn normalized(
    (input, dtype): (&ArrayD<f64>, DType),
    normalized_shape: &[usize],
    weight: &ArrayD<f64>,
    eps: f64,
    offset: f64,
    casting: Casting,
) -> (ArrayD<f64>, ArrayD<f64>) {
    let columns: usize = normalized_shape.iter().product();
    let weight = values(weight);
    let (mut out, mut rstds) = (Vec::new(), Vec::new());
    for row in values(input).chunks(columns) {
        let exact = 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / columns as f64 + eps).sqrt();
        let rstd = if casting == Casting::None { round_to(exact, dtype) } else { exact };
        out.extend(row.iter().zip(&weight).map(|(x, weight)| cast(x * rstd, dtype, casting) * (weight + offset)));
        rstds.push(rstd);
    }
    let rows = &input.shape()[..input.ndim() - normalized_shape.len()];
    (array(input.shape(), out), array(rows, rstds))
}

/// A number that is rounded to 16 bits before the result is, unless `casting` is that of Gemma.
fn cast(value: f64, dtype: DType, casting: Casting) -> f64 {
    if casting == Casting::Gemma { value } else { round_to(value, dtype) }
}

/// For references: the gradients of input and weight of [`normalized`].
pub(super) fn gradients(
    d_out: &ArrayD<f64>,
    (input, dtype): (&ArrayD<f64>, DType),
    normalized_shape: &[usize],
    weight: &ArrayD<f64>,
    rstd: &ArrayD<f64>,
    offset: f64,
    casting: Casting,
) -> (ArrayD<f64>, ArrayD<f64>) {
    let columns: usize = normalized_shape.iter().product();
    let (x, d, w, rstds) = (values(input), values(d_out), values(weight), values(rstd));
    let (mut d_input, mut d_weight) = (Vec::new(), vec![0.0; columns]);
    for (row, (x, d)) in x.chunks(columns).zip(d.chunks(columns)).enumerate() {
        let normal: Vec<f64> = x.iter().map(|x| x * rstds[row]).collect();
        let m: Vec<f64> = d.iter().zip(&w).map(|(d, w)| cast(d * (w + offset), dtype, casting)).collect();
        let along = m.iter().zip(&normal).map(|(m, n)| m * n).sum::<f64>() / columns as f64;
        for i in 0..columns {
            d_input.push((m[i] - normal[i] * along) * rstds[row]);
            d_weight[i] += d[i] * cast(normal[i], dtype, casting);
        }
    }
    (array(input.shape(), d_input), array(normalized_shape, d_weight))
}

/// What is added to a mean square; without a number the machine epsilon of the type that is computed in.
pub fn eps_or_default(input: Tensor, eps: Option<f64>) -> f64 {
    eps.unwrap_or(input.dtype().accumulator().epsilon())
}

/// The weight, which checkers ask for.
///
/// # Panics
/// Without a weight.
pub fn given(weight: Option<Tensor>) -> Tensor {
    match weight {
        Some(weight) => weight,
        None => unreachable!("the checker asks for a weight"),
    }
}
