//! Matrices as numbers of 8 bits, and products of them.

use fulgurite_runtime::backends::cuda::{Matmul, MatmulAddresses};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cublaslt::{
    EIGHT_BIT_MULTIPLE, Epilogue, Format, Operand, Problem, has_eight_bits,
};
use fulgurite_runtime::rules::{Address, DeviceTensor, Failure, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, refuse_unless, source_files};

use super::epilogue::{Product, WORKSPACE};
use fulgurite_executor_cuda::support::{THREADS, are_aligned, type_of};

/// Elements of a tile's side.
const TILE: usize = 64;
/// The most blocks in the second dimension of a grid.
const MOST_TILES: usize = 65_535;
/// Elements that a thread reads at once.
const PACK: usize = 8;
/// The most blocks that look for the largest number: each block that quantizes reads what they found.
const MOST_BLOCKS: usize = 528;

/// Whether the library multiplies matrices of this type and these extents, called so in messages, as 8 bits.
pub(super) fn takes(dtype: DType, extents: &[(&str, usize)]) -> Claim {
    refuse_unless!(
        matches!(dtype, DType::BF16 | DType::F16),
        "rounds operands of bf16 and f16 to 8 bits, these are {dtype}"
    );
    for (name, extent) in extents {
        refuse_unless!(
            *extent > 0 && extent.is_multiple_of(EIGHT_BIT_MULTIPLE),
            "multiplies matrices whose extents are multiples of {EIGHT_BIT_MULTIPLE}, {name} is {extent}"
        );
        // Rows and columns of every operand are extents; a grid has that many blocks of columns.
        refuse_unless!(
            extent.div_ceil(TILE) <= MOST_TILES,
            "rounds matrices of at most {} columns, {name} is {extent}",
            MOST_TILES * TILE
        );
    }
    Ok(())
}

/// The rows of a tensor, if those before the last dimension are one.
pub(super) fn rows_of(tensor: &TensorMeta) -> usize {
    tensor.shape().split_last().map_or(1, |(_, leading)| leading.iter().product())
}

/// Whether the target has products of 8 bits. The calls of architectures without are those of `cublaslt`.
pub(super) fn has_products(plan: &Plan) -> bool {
    plan.properties().architecture.as_deref().is_some_and(has_eight_bits)
}

/// A matrix in the workspace as numbers of a format, as it was, transposed, or both, and its factor.
#[derive(Clone, Copy)]
pub(super) struct Quantized {
    format: Format,
    /// Rows and columns of the matrix as it was.
    extents: [usize; 2],
    plain: Option<Address>,
    transposed: Option<Address>,
    factor: Address,
}

/// Which forms of a matrix products read.
#[derive(Clone, Copy)]
pub(super) struct Forms {
    /// The matrix in its own order.
    pub(super) plain: bool,
    /// Transposed.
    pub(super) transposed: bool,
}

/// The largest magnitude that is expected of a matrix, f32, and where that which it has is written, f32: the larger of
/// the two that are there then.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub(super) largest: Address,
    pub(super) seen: Option<Address>,
}

/// Sets up the kernels for a tensor that becomes numbers of a format, by a factor that is known before or not.
fn kernels(plan: &mut Plan, tensor: &DeviceTensor, format: Format, delayed: bool) {
    plan.source(source_files!["quantize.cu"]);
    plan.define("ELEMENT", type_of(tensor.dtype()));
    plan.define("THREADS", THREADS);
    plan.define("PACK", PACK);
    plan.define("ALIGNED", u8::from(are_aligned(PACK, &[tensor])));
    plan.define("E5M2", u8::from(format == Format::E5M2));
    plan.define("LARGEST", format!("{:.1}f", format.largest()));
    plan.define("DELAYED", u8::from(delayed));
}

/// The blocks that look for the largest number of a tensor.
fn blocks_of(tensor: &DeviceTensor) -> u32 {
    tensor.meta.len().div_ceil(THREADS as usize * PACK).clamp(1, MOST_BLOCKS) as u32
}

/// A form that nobody reads, or a number that nobody wants, has no address.
fn at(place: Option<Address>) -> Parameter {
    place.map_or(Parameter::Value(0u64.to_le_bytes().into()), Parameter::from)
}

impl Quantized {
    /// Rounds a contiguous tensor, seen as rows, to `format`, scaled so that its largest number is the format's: two
    /// launches, in the order of which nothing is summed.
    pub(super) fn new(plan: &mut Plan, tensor: &DeviceTensor, format: Format, forms: Forms) -> Result<Quantized> {
        let blocks = blocks_of(tensor);
        let partial = plan.workspace(u64::from(blocks) * size_of::<u32>() as u64);
        kernels(plan, tensor, format, false);
        let elements = tensor.meta.len() as u64;
        plan.launch("largest", LaunchShape::linear(blocks, THREADS), binds![tensor, elements, partial])?;
        Quantized::launch(plan, tensor, format, forms, binds![partial, blocks])
    }

    /// As [`Quantized::new`], scaled by the largest number that is expected, in one launch.
    pub(super) fn delayed(
        plan: &mut Plan,
        tensor: &DeviceTensor,
        format: Format,
        forms: Forms,
        expected: Expected,
    ) -> Result<Quantized> {
        kernels(plan, tensor, format, true);
        Quantized::launch(plan, tensor, format, forms, binds![expected.largest, at(expected.seen)])
    }

    /// Launches the kernel that rounds, whose factor comes from `scaling`.
    fn launch(
        plan: &mut Plan,
        tensor: &DeviceTensor,
        format: Format,
        forms: Forms,
        scaling: Vec<Parameter>,
    ) -> Result<Quantized> {
        let rows = rows_of(&tensor.meta);
        let columns = tensor.meta.len() / rows.max(1);
        let elements = tensor.meta.len() as u64;
        let [plain, transposed] =
            [forms.plain, forms.transposed].map(|wanted| wanted.then(|| plan.workspace(elements)));
        let factor = plan.workspace(size_of::<f32>() as u64);
        let grid = [rows.div_ceil(TILE) as u32, columns.div_ceil(TILE) as u32, 1];
        let shape = LaunchShape { grid, block: [THREADS, 1, 1], ..LaunchShape::linear(1, THREADS) };
        let mut parameters = binds![tensor, rows as u64, columns as u64];
        parameters.extend(scaling);
        parameters.extend(binds![at(plain), at(transposed), factor]);
        plan.launch("quantize", shape, parameters)?;
        Ok(Quantized { format, extents: [rows, columns], plain, transposed, factor })
    }

    /// Where the matrix is with rows of what is summed over, the number of these rows and their length. `by_columns`
    /// says that the matrix's rows are summed over.
    fn summed(&self, by_columns: bool) -> Option<(Address, usize, usize)> {
        let [rows, columns] = self.extents;
        match by_columns {
            false => Some((self.plain?, rows, columns)),
            true => Some((self.transposed?, columns, rows)),
        }
    }
}

/// Writes the larger of what is at `seen` and the largest magnitude of a tensor there.
pub(super) fn look(plan: &mut Plan, tensor: &DeviceTensor, seen: Address) -> Result<()> {
    kernels(plan, tensor, Format::E4M3, true);
    let elements = tensor.meta.len() as u64;
    plan.launch("largest", LaunchShape::linear(blocks_of(tensor), THREADS), binds![tensor, elements, seen])
}

/// Plans `d = a · bᵀ + bias` of two matrices with rows of what is summed over, each beside whether these are its
/// columns.
pub(super) fn product(
    plan: &mut Plan,
    (a, a_by_columns): (Quantized, bool),
    (b, b_by_columns): (Quantized, bool),
    bias: Option<&DeviceTensor>,
    d: &DeviceTensor,
    otherwise: Product<'_>,
) -> Result<()> {
    let missing = || Failure::new("Form", "a product reads a form of an operand that was not made");
    let (a_address, m, k) = a.summed(a_by_columns).ok_or_else(missing)?;
    let (b_address, n, _) = b.summed(b_by_columns).ok_or_else(missing)?;
    let problem = Problem {
        epilogue: if bias.is_some() { Epilogue::Bias } else { Epilogue::None },
        bias_alignment: bias.map_or(256, |bias| bias.alignment),
        ..Problem::eight_bit([a.format, b.format], d.dtype(), m, n, k)
    };
    let problem = Problem { d: Operand { alignment: d.alignment, ..problem.d }, ..problem };
    let workspace = plan.workspace(WORKSPACE);
    let addresses = MatmulAddresses {
        a: a_address,
        b: b_address,
        c: None,
        d: d.address,
        bias: bias.map(|bias| bias.address),
        aux: None,
        workspace,
        factors: [Some(a.factor), Some(b.factor)],
    };
    let instead = plan.aside(|plan| otherwise.plan(plan))?;
    plan.push(Matmul { problem, alpha: 1.0, workspace_bytes: WORKSPACE }.command(&addresses, instead));
    Ok(())
}
