//! Diagonals of matrices, and matrices made of diagonals and of positions.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::arrays::{array, rearranged};
use super::parts;
use super::promotion::{broadcast, cast, result_type};
use super::{atleast_2d, column_minus_row, movedim, piece, sum};
use crate::prims;

/// The diagonal of the matrices in the dimensions `dim1` and `dim2`, `offset` places above the main one (below it if
/// negative), as the last dimension of the result.
#[operator(torch = "diagonal", complex)]
pub mod diagonal {
    fn diagonal(input: Tensor, #[default(0)] offset: i64, #[default(0)] dim1: i64, #[default(1)] dim2: i64) -> Tensor;

    fn requires(input: &TensorMeta, dim1: i64, dim2: i64) -> Result<()> {
        require!(input.rank() >= 2, Rank, "input has shape {:?}, expected at least two dimensions", input.shape());
        let (first, second) = (normalize_dim(dim1, input.rank())?, normalize_dim(dim2, input.rank())?);
        require!(first != second, Dims, "dim1 is {dim1} and dim2 {dim2}, expected two dimensions");
        Ok(())
    }

    fn decomposition(input: Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        let moved = movedim(input, [dim1, dim2], [-2, -1]);
        let shape = moved.shape().to_vec();
        let (batch, rows, columns) = (shape.len() - 2, shape[shape.len() - 2], shape[shape.len() - 1]);
        let [row, column] = first_of(offset);
        let length = rows.saturating_sub(row).min(columns.saturating_sub(column));
        let square = piece(piece(moved, batch, row.min(rows), length), batch + 1, column.min(columns), length);
        // Neighbours on the diagonal of a square in row-major order are one row and one column apart.
        let flat = parts::reshape(square, [&shape[..batch], &[length * length]].concat());
        let mut steps = vec![1; batch + 1];
        steps[batch] = length + 1;
        parts::slice(flat, vec![0; batch + 1], &*flat.shape(), steps)
    }

    fn reference(input: &ReferenceTensor, offset: i64, dim1: i64, dim2: i64) -> ReferenceTensor {
        let rank = input.shape().len();
        let [first, second] = [dim1, dim2].map(|dim| dim.rem_euclid(rank as i64) as usize);
        let rest: Vec<usize> = (0..rank).filter(|dim| *dim != first && *dim != second).collect();
        let (rows, columns) = (input.shape()[first] as i64, input.shape()[second] as i64);
        let length = (0..rows).filter(|row| (0..columns).contains(&(row + offset))).count();
        let shape: Vec<usize> = rest.iter().map(|dim| input.shape()[*dim]).chain([length]).collect();
        rearranged(input, &shape, 0.0, |at| {
            let mut from = vec![0; rank];
            rest.iter().zip(at).for_each(|(dim, at)| from[*dim] = *at);
            from[first] = (at[rest.len()] as i64 + (-offset).max(0)) as usize;
            from[second] = (at[rest.len()] as i64 + offset.max(0)) as usize;
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
        s.case(with(s.normal([4, 4])).offset(-1));
        s.case(with(s.normal([4, 2, 5])).offset(2).dim1(-1).dim2(0));
        s.case(with(s.normal([3, 3])).dim1(1).dim2(0).offset(1));
        s.case(with(s.normal([2, 3])).offset(7));
        s.case(with(s.normal([0, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "at least two dimensions");
        e.case(Dims, with(e.normal([2, 3])).dim1(1).dim2(-1), "expected two dimensions");
    }
}

/// Matrices in the dimensions `dim1` and `dim2` of the result, whose diagonal `offset` is the last dimension of
/// `input`; their other elements are zero.
#[operator(torch = "diag_embed")]
pub mod diag_embed {
    fn diag_embed(
        input: Tensor,
        #[default(0)] offset: i64,
        #[default(-2)] dim1: i64,
        #[default(-1)] dim2: i64,
    ) -> Tensor;

    fn requires(input: &TensorMeta, dim1: i64, dim2: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let rank = input.rank() + 1;
        let (first, second) = (normalize_dim(dim1, rank)?, normalize_dim(dim2, rank)?);
        require!(first != second, Dims, "dim1 is {dim1} and dim2 {dim2}, expected two dimensions");
        Ok(())
    }

    fn decomposition(input: Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        let shape = input.shape().to_vec();
        let batch = shape.len() - 1;
        let [row, column] = first_of(offset);
        let extent = shape[batch] + row + column;
        let mut places = vec![0; batch + 1];
        let low = places.clone();
        places[batch] = column;
        // The element of a column is in each of its rows, of which the diagonal keeps one.
        let mut high = low;
        high[batch] = row;
        let wide = if row + column > 0 { prims::pad(input, places, high, zero(input)) } else { input };
        let square = [&shape[..batch], &[extent, extent]].concat();
        let dims: Vec<usize> = (0..batch).chain([batch + 1]).collect();
        let spread = prims::broadcast_in_dim(wide, &square, dims);
        let kept = prims::eq(column_minus_row(&spread.meta()), offset);
        let kept = broadcast(kept, &square);
        movedim(prims::select(kept, spread, zero(input)), [-2, -1], [dim1, dim2])
    }

    fn reference(input: &ReferenceTensor, offset: i64, dim1: i64, dim2: i64) -> ReferenceTensor {
        let rank = input.shape().len() + 1;
        let [first, second] = [dim1, dim2].map(|dim| dim.rem_euclid(rank as i64) as usize);
        let extent = input.shape()[rank - 2] + offset.unsigned_abs() as usize;
        let mut rest = input.shape().iter();
        let shape: Vec<usize> = (0..rank)
            .map(|dim| if dim == first || dim == second { extent } else { rest.next().copied().unwrap_or(1) })
            .collect();
        rearranged(input, &shape, 0.0, |at| {
            let (row, column) = (at[first] as i64, at[second] as i64);
            let others = (0..rank).filter(|dim| *dim != first && *dim != second).map(|dim| at[dim]);
            (column - row == offset).then(|| others.chain([row.min(column) as usize]).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
        s.case(with(s.normal([2, 3])).offset(1));
        s.case(with(s.normal([2, 3])).offset(-2).dim1(0).dim2(2));
        s.case(with(s.normal([3])).offset(1).dim1(1).dim2(0));
        s.case(with(s.normal([0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "input has no dimensions");
        e.case(Dims, with(e.normal([3])).dim1(1), "expected two dimensions");
    }
}

/// The diagonal of a matrix, or the matrix that has a vector as its diagonal.
#[operator(torch = "diag")]
pub mod diag {
    fn diag(input: Tensor, #[default(0)] diagonal: i64) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(
            matches!(input.rank(), 1 | 2),
            Rank,
            "input has shape {:?}, expected one or two dimensions",
            input.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, diagonal: i64) -> Tensor {
        match input.rank() {
            1 => super::diag_embed::with(input).offset(diagonal).call(),
            _ => super::diagonal::with(input).offset(diagonal).call(),
        }
    }

    fn reference(input: &ReferenceTensor, diagonal: i64) -> ReferenceTensor {
        let [row, column] = first_of(diagonal);
        match *input.shape() {
            [length] => {
                let extent = length + row + column;
                rearranged(input, &[extent, extent], 0.0, |at| {
                    (at[1] as i64 - at[0] as i64 == diagonal).then(|| vec![at[0] - row])
                })
            }
            ref shape => {
                let length = shape[0].saturating_sub(row).min(shape[1].saturating_sub(column));
                rearranged(input, &[length], 0.0, |at| Some(vec![at[0] + row, at[0] + column]))
            }
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])).diagonal(-1));
        s.case(with(s.normal([3])));
        s.case(with(s.normal([3, 5])).diagonal(1));
        s.case(with(s.normal([3, 2])));
        s.case(with(s.normal([0])).diagonal(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "expected one or two dimensions");
        e.case(Rank, with(e.normal([1, 2, 3])), "input has shape [1, 2, 3]");
    }
}

/// The sum of the diagonal of a matrix; of integers as i64.
#[operator(torch = "trace")]
pub mod trace {
    fn trace(input: Tensor<Number>) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(input.rank() == 2, Rank, "input has shape {:?}, expected two dimensions", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor) -> Tensor {
        sum(super::diagonal(input))
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let length = input.shape()[0].min(input.shape()[1]);
        ArrayD::from_elem(IxDyn(&[]), (0..length).map(|i| input[[i, i]]).sum::<f64>())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
        s.case(with(s.normal([4, 2])));
        s.case(with(s.normal([0, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3])), "input has shape [3]");
    }
}

/// Matrices along the diagonal of one matrix, whose other elements are zero; vectors count as rows.
#[operator(torch = "block_diag")]
pub mod block_diag {
    fn block_diag(tensors: Vec<Tensor>) -> Tensor;

    fn requires(tensors: &[TensorMeta]) -> Result<()> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        for meta in tensors {
            require!(meta.rank() <= 2, Rank, "a tensor has shape {:?}, expected two dimensions at most", meta.shape());
        }
        Ok(())
    }

    fn decomposition(tensors: &[Tensor]) -> Tensor {
        let operands: Vec<Operand<Tensor>> = tensors.iter().copied().map(Operand::Tensor).collect();
        let dtype = result_type(&operands);
        let blocks: Vec<Tensor> = tensors.iter().map(|block| cast(atleast_2d(*block), dtype)).collect();
        let columns: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let mut before = 0;
        let rows: Vec<Tensor> = blocks
            .into_iter()
            .map(|block| {
                let (low, own) = (before, block.shape()[1]);
                before += own;
                match own == columns {
                    true => block,
                    false => prims::pad(block, [0, low], [0, columns - low - own], zero(block)),
                }
            })
            .collect();
        if let [only] = rows.as_slice() { *only } else { prims::cat(&rows, 0) }
    }

    fn reference(tensors: &[ReferenceTensor]) -> ArrayD<f64> {
        let sides = |tensor: &ReferenceTensor| match *tensor.shape() {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            _ => (1, 1),
        };
        let all: Vec<(usize, usize)> = tensors.iter().map(sides).collect();
        let shape = all.iter().fold((0, 0), |total, own| (total.0 + own.0, total.1 + own.1));
        let mut out = ArrayD::zeros(IxDyn(&[shape.0, shape.1]));
        let mut corner = (0, 0);
        for (tensor, (rows, columns)) in tensors.iter().zip(all) {
            for (i, value) in tensor.floats().iter().enumerate() {
                out[[corner.0 + i / columns, corner.1 + i % columns]] = *value;
            }
            corner = (corner.0 + rows, corner.1 + columns);
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2, 3]), s.normal([]), s.normal([2])]));
        s.case(with([s.normal([2, 3])]));
        s.case(with([s.normal([0, 2]), s.of(DType::F32, [2, 1])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Rank, with([e.normal([1, 2, 3])]), "a tensor has shape [1, 2, 3]");
    }
}

/// A matrix of `n` rows and `m` columns (as many if absent) with ones on its diagonal and zeros elsewhere; f32 unless
/// `dtype` says otherwise.
#[operator(torch = "eye")]
pub mod eye {
    fn eye(
        n: usize,
        #[default(None)] m: Option<usize>,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        Ok(())
    }

    fn decomposition(n: usize, m: Option<usize>, dtype: Option<DType>, device: &str) -> Tensor {
        let device = device.parse().unwrap_or(fulgurite_runtime::Device::CPU);
        let meta = TensorMeta::new([n, m.unwrap_or(n)], DType::I64, device);
        cast(prims::eq(column_minus_row(&meta), 0), dtype.unwrap_or(DType::F32))
    }

    fn reference(n: usize, m: Option<usize>) -> ArrayD<f64> {
        let columns = m.unwrap_or(n);
        let values = (0..n * columns).map(|i| f64::from(u8::from(i / columns == i % columns))).collect();
        array(&[n, columns], values)
    }

    fn samples(s: &mut Samples) {
        s.case(with(3));
        s.case(with(2).m(5).dtype(s.dtype()));
        s.case(with(0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
    }
}

// Declares the positions in triangles of matrices, in row-major order: rows above columns.
operators! {
    #[operator(torch = $torch, no_grad = "a position has no gradient")]
    pub mod $name {
        fn $name(
            row: usize,
            col: usize,
            #[default(0)] offset: i64,
            #[default(DType::I64)] dtype: DType,
            #[default("cpu")] device: String,
        ) -> Tensor;

        fn requires(row: usize, col: usize, dtype: DType, device: &str) -> Result<()> {
            let matrix = TensorMeta::new([row, col], DType::I64, fulgurite_runtime::Device::CPU);
            require!(
                matrix.addressable().is_ok(),
                Size,
                "a matrix of {row} rows and {col} columns is larger than what can be addressed"
            );
            require!(
                matches!(dtype, DType::I32 | DType::I64),
                PositionType,
                "dtype is {dtype}, expected i32 or i64"
            );
            require!(
                device.parse::<Device>().is_ok(),
                UnknownDevice,
                "'{device}' is not a device, expected 'cpu', ..."
            );
            Ok(())
        }

        fn decomposition(row: usize, col: usize, offset: i64, dtype: DType, device: &str) -> Tensor {
            let device = device.parse().unwrap_or(fulgurite_runtime::Device::CPU);
            let meta = TensorMeta::new([row, col], DType::I64, device);
            let kept = prims::$keeps(column_minus_row(&meta), offset);
            let count = super::of_triangle(row, col, offset, $lower);
            // Of equal elements the first comes first, so these are the positions of what is kept, in order.
            let flat = cast(prims::reshape(kept, [row * col]), DType::U8);
            let (_, places) = prims::topk(flat, count, 0, true);
            let rows = prims::floor_divide(places, col.max(1) as i64);
            let columns = prims::sub(places, prims::mul(rows, col as i64));
            let both = [rows, columns].map(|line| prims::reshape(line, [1, count]));
            cast(prims::cat(both, 0), dtype)
        }

        fn reference(row: usize, col: usize, offset: i64) -> ArrayD<i64> {
            let all = (0..row as i64).flat_map(|row| (0..col as i64).map(move |column| (row, column)));
            let kept: Vec<(i64, i64)> =
                all.filter(|(row, column)| (column - row).$compares(&offset)).collect();
            let (rows, columns): (Vec<i64>, Vec<i64>) = kept.iter().copied().unzip();
            array(&[2, kept.len()], [rows, columns].concat())
        }

        fn samples(s: &mut Samples) {
            let _ = s.dtype();
            s.case(with(3, 5));
            s.case(with(4, 3).offset(1).dtype(DType::I32));
            s.case(with(4, 4).offset(-2));
            s.case(with(0, 3));
            s.case(with(3, 1));
            s.case(with(3, 0));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Size, with(1 << 40, 1 << 40), "is larger than what can be addressed");
            e.case(PositionType, with(2, 2).dtype(DType::F32), "dtype is f32");
            e.case(UnknownDevice, with(2, 2).device("?"), "'?' is not a device");
        }
    }

    table($name, $torch, $keeps, $compares, $lower) {
        /// The positions on and below the diagonal `offset` of a matrix of `row` rows and `col` columns, `[2, count]`.
        tril_indices, "tril_indices", le, le, true;
        /// The positions on and above the diagonal `offset` of a matrix of `row` rows and `col` columns, `[2, count]`.
        triu_indices, "triu_indices", ge, ge, false;
    }
}

/// How many elements of a matrix are on the given side of the diagonal `offset`, with it.
fn of_triangle(rows: usize, columns: usize, offset: i64, lower: bool) -> usize {
    let (rows, columns) = (rows as i128, columns as i128);
    // What is above a diagonal is what is not below the one before it.
    let offset = i128::from(offset) - i128::from(!lower);
    // Rows of none, then each with one more, from `offset + 1` in row 0 on, then rows of all columns.
    let none = (-offset).clamp(0, rows);
    let part = (columns - offset - 1).clamp(none, rows);
    let first = none + offset + 1;
    let below = (part - none) * (2 * first + (part - none) - 1) / 2 + (rows - part) * columns;
    (if lower { below } else { rows * columns - below }) as usize
}

/// Row and column where the diagonal `offset` begins.
fn first_of(offset: i64) -> [usize; 2] {
    [offset.saturating_neg().max(0) as usize, offset.max(0) as usize]
}

/// Zero in the element type of `like`, as a number.
fn zero(like: Tensor) -> fulgurite_runtime::argument::Scalar {
    super::promotion::number(fulgurite_runtime::argument::Scalar::Int(0), like.dtype())
}
