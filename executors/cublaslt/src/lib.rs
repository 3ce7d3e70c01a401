//! `cublaslt`: products of floating-point matrices by NVIDIA's library, in IEEE f32 and f64, and in f32 sums of bf16
//! and f16. `tf32` does those of f32 with operands rounded to TF32, `fp8` those of linear layers in bf16 and f16 with
//! operands rounded to 8 bits; both must be named.
//!
//! What the library does as it stores a product (bias, GELU and its gradient, the sum with a residual, a factor, the
//! gradient of a bias) has an operator here, and rewrites that make it of what autodiff leaves.

mod accumulated;
mod delayed;
mod eight_bits;
mod epilogue;
mod extents;
mod turned;

fulgurite_ops_macros::operator_files! {
    linear_gelu,
    linear_gradients,
    linear_residual,
    matmul_gelu_backward,
    scaled_matmul,
    weight_gradients,
}

use fulgurite_ops_macros::{executor, implementation};
use fulgurite_runtime::backends::cuda::{Matmul, MatmulAddresses};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::access::for_each_offset;
use fulgurite_runtime::kernels::cuda::cublaslt::{Compute, Epilogue, Format, Operand, Problem};
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::rules::{Address, Command, DeviceTensor, Failure, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use epilogue::WORKSPACE;
use turned::Side;

/// Products of floating-point matrices by cuBLASLt, in the element type's own precision.
#[executor(device = "cuda", priority = 10, strided, precisions(tf32 = tf32))]
pub mod cublaslt {}

/// Linear layers of bf16 and f16, and their gradients, by cuBLASLt with operands rounded to 8 bits: to E4M3 (3 bits of
/// fraction), and the gradients that come in to E5M2 (2 bits). Each operand is scaled by one factor, so that its
/// largest number is the format's; sums are in f32.
#[executor(device = "cuda", precision = fp8)]
pub mod fp8 {}

/// The products that are taken: in TF32 those alone whose operands would be rounded.
fn takes(precision: Precision, dtype: DType) -> Claim {
    match precision {
        Precision::Tf32 => refuse_unless!(dtype == DType::F32, "rounds operands of f32, input is {dtype}"),
        _ => refuse_unless!(dtype.is_floating(), "has no products of {dtype}"),
    }
    Ok(())
}

/// The library's hyperbolic tangent is the hardware's approximation, of 11 bits.
fn takes_approximations(precision: Precision, dtype: DType) -> Claim {
    refuse_unless!(
        dtype != DType::F32 || precision == Precision::Tf32,
        "approximates the hyperbolic tangent to 11 bits, and f32 is IEEE here; tf32 takes it"
    );
    Ok(())
}

fn compute(precision: Precision, dtype: DType) -> Compute {
    match (precision, dtype) {
        (Precision::Tf32, _) => Compute::Tf32,
        (_, DType::F64) => Compute::F64,
        _ => Compute::F32,
    }
}

/// The layout of the last two dimensions, if the library supports it: whether transposed, and the stride of rows.
fn matrix(shape: &[usize], strides: &[isize]) -> Option<(bool, usize)> {
    let [.., rows, columns] = shape else { return None };
    let [.., row, column] = strides else { return None };
    let (row, column) = (usize::try_from(*row).ok()?, usize::try_from(*column).ok()?);
    // A stride along one element says nothing; a row must not overlap the next.
    if (column == 1 || *columns == 1) && (row >= *columns || *rows == 1) {
        return Some((false, if *rows == 1 { row.max(*columns) } else { row }));
    }
    ((row == 1 || *rows == 1) && (column >= *rows || *columns == 1))
        .then_some((true, if *columns == 1 { column.max(*rows) } else { column }))
}

/// The batch dimensions merged into one, with one stride for each operand; leading dimensions that cannot be merged
/// stay separate.
fn merged(batch: &[usize], strides: [&[isize]; 3]) -> Option<(usize, [usize; 3])> {
    let mut count = 1usize;
    let mut step: [Option<isize>; 3] = [None; 3];
    for i in (0..batch.len()).rev().filter(|i| batch[*i] != 1) {
        for (operand, step) in step.iter_mut().enumerate() {
            let stride = strides[operand][i];
            match step {
                None => *step = Some(stride),
                Some(step) if stride == *step * count as isize => {}
                Some(_) => return None,
            }
        }
        count *= batch[i];
    }
    let [a, b, d] = step.map(|step| usize::try_from(step.unwrap_or(0)).ok());
    Some((count, [a?, b?, d?]))
}

/// Plans `out = input · other`, with a factor.
pub(crate) fn product(
    plan: &mut Plan,
    input: &DeviceTensor,
    other: &DeviceTensor,
    out: &DeviceTensor,
    compute: Compute,
    alpha: f64,
) -> Result<()> {
    let rank = out.shape().len();
    let [m, n] = [out.shape()[rank - 2], out.shape()[rank - 1]];
    let k = input.shape()[rank - 1];
    if out.meta.is_empty() {
        return Ok(());
    }
    if k == 0 {
        return zeros(plan, out);
    }
    let (input, other) = (laid_out(plan, input, rank - 2)?, laid_out(plan, other, rank - 2)?);
    let (input, other) = summed_along(plan, compute, input, other)?;
    let lost = || Failure::new("Layout", "an operand was laid out for the library and still does not fit it");
    let (a_transposed, a_leading) = matrix(input.shape(), &input.strides).ok_or_else(lost)?;
    let (b_transposed, b_leading) = matrix(other.shape(), &other.strides).ok_or_else(lost)?;
    let d_leading = usize::try_from(out.strides[rank - 2]).map_err(|_| lost())?;
    let batch = &out.shape()[..rank - 2];
    let workspace = plan.workspace(WORKSPACE);
    let leads = [&input.strides[..rank - 2], &other.strides[..rank - 2], &out.strides[..rank - 2]];
    // What cannot be one batch is several: the leading dimensions are walked.
    let apart = (0..=batch.len())
        .find(|apart| merged(&batch[*apart..], leads.map(|strides| &strides[*apart..])).is_some())
        .unwrap_or(batch.len());
    let (count, [a_step, b_step, d_step]) =
        merged(&batch[apart..], leads.map(|strides| &strides[apart..])).ok_or_else(lost)?;
    let dtype = out.meta.dtype();
    let operand = |tensor: &DeviceTensor, transposed, leading, batch_stride| Operand {
        dtype: tensor.meta.dtype(),
        transposed,
        leading,
        batch_stride,
        // Every walked matrix starts on a multiple of an element at least.
        alignment: if apart == 0 { tensor.alignment } else { tensor.meta.dtype().size() },
    };
    let problem = Problem {
        a: operand(&input, a_transposed, a_leading, a_step),
        b: operand(&other, b_transposed, b_leading, b_step),
        d: operand(out, false, if m == 1 { n } else { d_leading }, d_step),
        batch: count,
        compute,
        ..Problem::contiguous(dtype, m, n, k)
    };
    let walked: usize = batch[..apart].iter().product();
    let at = |tensor: &DeviceTensor, strides: &[isize], index: usize| -> Address {
        let mut rest = index;
        let mut elements = 0isize;
        for i in (0..apart).rev() {
            elements += (rest % batch[i]) as isize * strides[i];
            rest /= batch[i];
        }
        tensor.address.offset((elements * tensor.meta.dtype().size() as isize) as u64)
    };
    for index in 0..walked {
        let addresses = MatmulAddresses {
            a: at(&input, &input.strides, index),
            b: at(&other, &other.strides, index),
            c: None,
            d: at(out, &out.strides, index),
            bias: None,
            aux: None,
            workspace,
            factors: [None; 2],
        };
        let matmul = Matmul { problem: problem.clone(), alpha, workspace_bytes: WORKSPACE };
        plan.push(matmul.command(&addresses, Vec::new()));
    }
    Ok(())
}

/// The operands of a product of matrices, one of them transposed in memory where `turned` says that this saves time.
fn summed_along(
    plan: &mut Plan,
    compute: Compute,
    input: DeviceTensor,
    other: DeviceTensor,
) -> Result<(DeviceTensor, DeviceTensor)> {
    let ([m, k], [_, n]) = (input.shape(), other.shape()) else { return Ok((input, other)) };
    let lies = |tensor: &DeviceTensor| matrix(tensor.shape(), &tensor.strides).map(|(transposed, _)| transposed);
    if (lies(&input), lies(&other)) != (Some(true), Some(false)) {
        return Ok((input, other));
    }
    Ok(match turned::side(plan, compute, [*m, *n, *k]) {
        None => (input, other),
        Some(Side::Left) => (turned::turned(plan, &input)?, other),
        Some(Side::Right) => {
            let rows = turned::turned(plan, &turned::transposed(&other))?;
            (input, turned::transposed(&rows))
        }
    })
}

/// Products of nothing, in rows that may be apart.
fn zeros(plan: &mut Plan, out: &DeviceTensor) -> Result<()> {
    if out.is_contiguous() {
        plan.fill(out, 0);
        return Ok(());
    }
    let Some((columns, rows)) = out.shape().split_last() else { return Ok(()) };
    let bytes = columns * out.dtype().size();
    for_each_offset(rows, &out.strides[..rows.len()], |offset| {
        let to = out.address.offset((offset * out.dtype().size() as isize) as u64);
        plan.push(Command::Fill { to, byte: 0, bytes: bytes as u64 });
    });
    Ok(())
}

/// The operand as it is, or a contiguous copy of it in the workspace if the library cannot take its strides, or could
/// not take its leading `batch` dimensions as one: heads that are slices of rows, say. One small kernel takes less time
/// than a product for each sequence of the batch. What is broadcast along a batch is not multiplied out.
fn laid_out(plan: &mut Plan, tensor: &DeviceTensor, batch: usize) -> Result<DeviceTensor> {
    let aligned = tensor.strides.iter().all(|stride| *stride >= 0);
    let (sizes, strides) = (&tensor.shape()[..batch], &tensor.strides[..batch]);
    let broadcast = sizes.iter().zip(strides).any(|(size, stride)| *size > 1 && *stride == 0);
    let one_batch = broadcast || merged(sizes, [strides; 3]).is_some();
    if aligned && one_batch && matrix(tensor.shape(), &tensor.strides).is_some() {
        return Ok(tensor.clone());
    }
    fulgurite_executor_cuda::elementwise::contiguous_copy(plan, tensor)
}

use fulgurite_ops::nn::linear;
use fulgurite_ops::prims::matmul;

#[implementation(of = matmul, by = [cublaslt, tf32], strided, strided_results = 1)]
mod matmul_by_cublaslt {
    fn checker(input: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        other: &DeviceTensor,
        out: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        super::product(plan, input, other, out, compute(precision, out.dtype()), 1.0)
    }

    fn padded(input: &Strided, other: &Strided, precision: Precision) -> Option<Vec<Vec<usize>>> {
        crate::extents::of_matmul(crate::extents::of(precision, input.meta.dtype())?, input, other)
    }
}

/// Whether the library has a product of rows with `weight` [out, in], and a bias of its own for it.
fn takes_linear(weight: &TensorMeta) -> Claim {
    refuse_unless!(weight.rank() == 2, "multiplies by matrices, weight is {weight}");
    refuse_unless!(weight.shape()[1] > 0, "has nothing to multiply, weight is {weight}");
    // The library stores a bias of one column with no epilogue of its own.
    refuse_unless!(weight.shape()[0] > 1, "has no bias for a single output, weight is {weight}");
    Ok(())
}

#[implementation(of = linear, by = [cublaslt, tf32])]
mod linear_by_cublaslt {
    fn checker(input: &TensorMeta, weight: &TensorMeta, precision: Precision) -> Claim {
        takes(precision, input.dtype())?;
        super::takes_linear(weight)
    }

    fn plan(
        plan: &mut Plan,
        Args { input, weight, bias }: Args<&DeviceTensor>,
        out: &DeviceTensor,
        precision: Precision,
    ) -> Result<()> {
        let epilogue = if bias.is_some() { Epilogue::Bias } else { Epilogue::None };
        let product = super::epilogue::Product::linear(input, weight, out, compute(precision, out.dtype()));
        super::epilogue::Product { epilogue, bias, ..product }.plan(plan)
    }

    fn padded(
        input: &Strided,
        weight: &Strided,
        bias: Option<&Strided>,
        precision: Precision,
    ) -> Option<Vec<Vec<usize>>> {
        crate::extents::of_linear(crate::extents::of(precision, input.meta.dtype())?, input, weight, bias)
    }
}

/// input and weight are rounded to E4M3.
#[implementation(of = linear, by = fp8)]
mod linear_by_fp8 {
    use super::eight_bits::{Forms, Quantized, has_products, product, takes};

    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::takes_linear(weight)?;
        refuse_unless!(!input.is_empty(), "has nothing to multiply, input is {input}");
        takes(input.dtype(), &[("weight's rows", weight.shape()[0]), ("its columns", weight.shape()[1])])
    }

    fn plan(plan: &mut Plan, Args { input, weight, bias }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let epilogue = if bias.is_some() { Epilogue::Bias } else { Epilogue::None };
        let plain = super::epilogue::Product::linear(input, weight, out, super::compute(Precision::Exact, out.dtype()));
        let plain = super::epilogue::Product { epilogue, bias, ..plain };
        if !has_products(plan) {
            return plain.plan(plan);
        }
        let as_it_is = Forms { plain: true, transposed: false };
        let input = Quantized::new(plan, input, Format::E4M3, as_it_is)?;
        let weight = Quantized::new(plan, weight, Format::E4M3, as_it_is)?;
        product(plan, (input, false), (weight, false), bias, out, plain)
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_runtime::device::Place;
    use fulgurite_runtime::kernels::cuda::cublaslt::Compute;
    use fulgurite_runtime::rules::{Address, Command, DeviceTensor, Plan};
    use fulgurite_runtime::{DType, Device, TensorMeta};

    use super::{matrix, merged, product};

    /// What a memory plan gives an operand beyond what kernels read at once must not be part of what is measured.
    #[test]
    fn a_product_is_one_call_wherever_its_operands_lie() {
        let call = |alignments: [usize; 3]| {
            let tensor = |shape: [usize; 2], place: Place, alignment: usize| DeviceTensor {
                meta: TensorMeta::new(shape, DType::BF16, Device::new("cuda", 0)),
                strides: vec![shape[1] as isize, 1],
                address: Address { place, offset: 0 },
                alignment,
            };
            let mut plan = Plan::of(&"cuda:sm_90a".parse().unwrap()).unwrap();
            let input = tensor([8, 16], Place::Operand(0), alignments[0]);
            let other = tensor([16, 32], Place::Operand(1), alignments[1]);
            let out = tensor([8, 32], Place::Result(0), alignments[2]);
            product(&mut plan, &input, &other, &out, Compute::F32, 1.0).unwrap();
            match &plan.into_commands()[..] {
                [Command::Library(call)] => call.clone(),
                other => panic!("{other:?}"),
            }
        };
        let usual = call([16; 3]);
        for alignments in [[256, 16, 16], [16, 256, 16], [16, 16, 256], [64, 128, 32], [256; 3]] {
            assert_eq!(call(alignments), usual, "{alignments:?}");
        }
        assert_ne!(call([8, 16, 16]), usual, "kernels read less at once");
    }

    #[test]
    fn matrices_are_recognized_by_their_strides() {
        assert_eq!(matrix(&[4, 3], &[3, 1]), Some((false, 3)));
        assert_eq!(matrix(&[4, 3], &[1, 4]), Some((true, 4)));
        assert_eq!(matrix(&[4, 3], &[8, 1]), Some((false, 8)));
        assert_eq!(matrix(&[4, 3], &[0, 1]), None, "rows that are one");
        assert_eq!(matrix(&[4, 3], &[6, 2]), None);
        assert_eq!(matrix(&[1, 3], &[0, 1]), Some((false, 3)));
        assert_eq!(matrix(&[4, 1], &[2, 7]), Some((false, 2)));
    }

    #[test]
    fn batches_are_merged_where_each_operand_has_one_stride() {
        assert_eq!(merged(&[2, 3], [&[30, 10], &[60, 20], &[36, 12]]), Some((6, [10, 20, 12])));
        assert_eq!(merged(&[2, 3], [&[30, 10], &[0, 20], &[36, 12]]), None, "one is repeated");
        assert_eq!(merged(&[2, 3], [&[30, 10], &[0, 0], &[36, 12]]), Some((6, [10, 0, 12])));
        assert_eq!(merged(&[], [&[], &[], &[]]), Some((1, [0, 0, 0])));
    }
}
