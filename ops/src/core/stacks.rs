//! Tensors put side by side, taken apart, and made after others.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::{Attribute, AttributeType, Operand, Scalar};
use fulgurite_runtime::rules::ReferenceTensor;
use fulgurite_runtime::{DType, Tensor, attribute_enum};

use super::arrays::rearranged;
use super::promotion::{cast, constant, fills, operand_number, position, result_type};
use super::{cut, full, pieces, read_as};
use crate::prims;

/// The most pieces of an empty dimension, which nothing else bounds.
const MOST_PIECES: usize = 1 << 16;

/// At most `chunks` pieces along `dim`, of one size but for the last. An empty dimension has that many empty pieces.
#[operator(torch = "chunk")]
pub mod chunk {
    fn chunk(input: Tensor, chunks: usize, #[default(0)] dim: i64) -> Vec<Tensor>;

    fn requires(input: &TensorMeta, chunks: usize, dim: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        let most = if input.shape()[dim] == 0 { MOST_PIECES } else { usize::MAX };
        require!(
            (1..=most).contains(&chunks),
            Chunks,
            "chunks is {chunks}, expected a positive number, at most {MOST_PIECES} of an empty dimension"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, chunks: usize, dim: i64) -> Vec<Tensor> {
        let dim = position(dim, input.rank());
        super::parted(input, &sizes(input.shape()[dim], chunks), dim)
    }

    fn sizes(extent: usize, chunks: usize) -> Vec<usize> {
        match extent.div_ceil(chunks) {
            0 => vec![0; chunks],
            size => (0..extent).step_by(size).map(|start| size.min(extent - start)).collect(),
        }
    }

    fn reference(input: &ReferenceTensor, chunks: usize, dim: i64) -> Vec<ReferenceTensor> {
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        let mut rest = input.shape()[dim];
        let size = rest.div_ceil(chunks);
        let mut sizes = Vec::new();
        while sizes.len() < chunks && (rest > 0 || size == 0) {
            sizes.push(size.min(rest));
            rest -= size.min(rest);
        }
        cut(input, &sizes, dim)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7, 2]), 3));
        s.case(with(s.normal([2, 6]), 4).dim(-1));
        s.case(with(s.normal([2]), 5));
        s.case(with(s.normal([0, 3]), 2));
        s.case(with(s.normal([3, 3]), 2).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 1), "input has no dimensions");
        e.case(Chunks, with(e.normal([2]), 0), "chunks is 0");
        e.case(Chunks, with(e.normal([0]), 1 << 20), "of an empty dimension");
    }
}

/// How [`mod@tensor_split`] divides a dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sections {
    /// Into so many sections, the first of which have one element more where the extent is no multiple.
    Count(i64),
    /// Before these positions; negative ones count from the end, those beyond it are its end.
    At(Vec<i64>),
}

impl AttributeType for Sections {
    fn type_name() -> String {
        "sections".into()
    }
    fn to_attribute(&self) -> Attribute {
        match self {
            Sections::Count(count) => count.to_attribute(),
            Sections::At(positions) => positions.to_attribute(),
        }
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        let count = i64::from_attribute(attribute).map(Sections::Count);
        count.or_else(|| Vec::from_attribute(attribute).map(Sections::At))
    }
}

/// Sections along `dim`: so many as a number says, or those between the positions of a list. (PyTorch takes a tensor of
/// positions as well; here shapes do not depend on data.)
#[operator(torch = "tensor_split")]
pub mod tensor_split {
    fn tensor_split(input: Tensor, indices_or_sections: Sections, #[default(0)] dim: i64) -> Vec<Tensor>;

    fn requires(input: &TensorMeta, indices_or_sections: &Sections, dim: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        normalize_dim(dim, input.rank())?;
        let fits = |count: i64| (1..=MOST_PIECES as i64).contains(&count);
        require!(
            matches!(indices_or_sections, Sections::At(_))
                || matches!(indices_or_sections, Sections::Count(count) if fits(*count)),
            SectionCount,
            "indices_or_sections is {indices_or_sections:?}, expected a number from 1 to {MOST_PIECES}"
        );
        Ok(())
    }

    fn decomposition(input: Tensor, indices_or_sections: Sections, dim: i64) -> Vec<Tensor> {
        let dim = position(dim, input.rank());
        super::between(input, &bounds(input.shape()[dim], &indices_or_sections), dim)
    }

    /// Where each section begins and ends.
    fn bounds(extent: usize, sections: &Sections) -> Vec<(usize, usize)> {
        let starts: Vec<usize> = match sections {
            Sections::Count(count) => {
                let count = *count as usize;
                (1..count).map(|i| i * (extent / count) + i.min(extent % count)).collect()
            }
            Sections::At(positions) => positions
                .iter()
                .map(|at| if *at < 0 { at.saturating_add(extent as i64).max(0) } else { *at })
                .map(|at| (at as usize).min(extent))
                .collect(),
        };
        let begins = std::iter::once(0).chain(starts.iter().copied());
        // A section whose end is before its beginning is empty.
        begins.zip(starts.iter().copied().chain([extent])).map(|(from, to)| (from, to.max(from))).collect()
    }

    fn reference(input: &ReferenceTensor, indices_or_sections: &Sections, dim: i64) -> Vec<ReferenceTensor> {
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        let extent = input.shape()[dim] as i64;
        match indices_or_sections {
            Sections::Count(count) => {
                let sizes: Vec<usize> =
                    (0..*count).map(|i| (extent / count + i64::from(i < extent % count)) as usize).collect();
                cut(input, &sizes, dim)
            }
            Sections::At(positions) => {
                let place = |at: i64| (if at < 0 { at + extent } else { at }).clamp(0, extent);
                let mut bounds: Vec<i64> = positions.iter().map(|at| place(*at)).collect();
                bounds.insert(0, 0);
                bounds.push(extent);
                let section = |pair: &[i64]| {
                    let mut shape = input.shape().to_vec();
                    shape[dim] = (pair[1] - pair[0]).max(0) as usize;
                    rearranged(input, &shape, 0.0, |at| {
                        let mut from = at.to_vec();
                        from[dim] += pair[0] as usize;
                        Some(from)
                    })
                };
                bounds.windows(2).map(section).collect()
            }
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([7, 2]), Sections::Count(3)));
        s.case(with(s.normal([3, 8]), Sections::At(vec![1, -3, 9])).dim(-1));
        s.case(with(s.normal([3, 3]), Sections::Count(2)).dim(1));
        s.case(with(s.normal([5]), Sections::At(vec![3, 1])));
        s.case(with(s.normal([0, 3]), Sections::Count(2)));
        s.case(with(s.normal([4]), Sections::At(vec![])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), Sections::Count(1)), "input has no dimensions");
        e.case(SectionCount, with(e.normal([2]), Sections::Count(0)), "expected a number from 1");
    }
}

// Declares tensors joined along a dimension after each got as many dimensions as that takes.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(tensors: Vec<Tensor>) -> Tensor;

        fn requires(tensors: &[TensorMeta]) -> Result<()> {
            require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
            let shapes: Vec<Vec<usize>> = tensors.iter().map(|meta| $raised(meta.shape())).collect();
            let first = &shapes[0];
            let joined: fn(usize) -> usize = $dim;
            for shape in &shapes {
                let along = joined(first.len());
                let fits = shape.len() == first.len()
                    && (0..shape.len()).all(|i| i == along || shape[i] == first[i]);
                require!(
                    fits,
                    Shapes,
                    "tensors have shapes {:?} and {:?}, expected equal extents but in the dimension that joins them",
                    first,
                    shape
                );
            }
            Ok(())
        }

        fn decomposition(tensors: &[Tensor]) -> Tensor {
            let joined: fn(usize) -> usize = $dim;
            let raised = |part: &Tensor| super::read_as(*part, &$raised(&part.shape()));
            super::joined_parts(tensors.iter().map(raised).collect(), joined)
        }

        fn reference(tensors: &[ReferenceTensor]) -> ReferenceTensor {
            let joined: fn(usize) -> usize = $dim;
            super::joined_references(tensors, $raised, joined)
        }

        fn samples(s: &mut Samples) {
            let shapes: [[&[usize]; 2]; 3] = $shapes;
            for [first, second] in shapes {
                s.case(with([s.normal(first), s.normal(second)]));
            }
            s.case(with([s.normal([])]));
            s.case(with([s.normal([3]), s.of(DType::F32, [3])]));
        }

        fn errors(e: &mut ErrorSamples) {
            let (first, second): (&[usize], &[usize]) = $mismatch;
            e.case(NoTensors, with([]), "tensors is empty");
            e.case(Shapes, with([e.normal(first), e.normal(second)]), "expected equal extents but in the dimension");
        }
    }

    table($name, $torch, $raised, $dim, $shapes, $mismatch) {
        /// Tensors joined along the second dimension, vectors and numbers along the first.
        hstack, "hstack", super::at_least_a_vector, |rank| usize::from(rank > 1),
            [[&[2, 3], &[2, 1]], [&[], &[4]], [&[0, 2], &[0, 2]]], (&[2, 3], &[3, 3]);
        /// Tensors joined along the first dimension, of two at least; vectors and numbers count as rows.
        vstack, "vstack", super::at_least_a_matrix, |_| 0,
            [[&[2, 3], &[3]], [&[], &[1]], [&[0, 2], &[3, 2]]], (&[2, 3], &[2]);
        /// Tensors joined along the third dimension, of three at least; a vector of n counts as `[1, n, 1]`, a matrix
        /// as `[m, n, 1]`.
        dstack, "dstack", super::at_least_a_list, |_| 2,
            [[&[2, 3], &[2, 3, 2]], [&[3], &[3]], [&[0, 2], &[0, 2]]], (&[2, 3], &[3, 2]);
        /// Tensors joined along the second dimension; vectors and numbers count as columns.
        column_stack, "column_stack", super::at_least_a_column, |_| 1,
            [[&[2, 3], &[2]], [&[], &[1]], [&[0, 2], &[0]]], (&[2, 3], &[3]);
    }
}

attribute_enum! {
    /// The dimensions of the first two tensors of a grid.
    pub enum Indexing {
        /// The first tensor has the first dimension.
        Matrix = "ij",
        /// The first tensor has the second dimension, as an x-axis has in a picture.
        Cartesian = "xy",
    }
}

/// For vectors (or numbers) of lengths n, m, ... tensors `[n, m, ...]`, each of which has the elements of one of them
/// along its own dimension.
#[operator(torch = "meshgrid")]
pub mod meshgrid {
    fn meshgrid(tensors: Vec<Tensor>, #[default(Indexing::Matrix)] indexing: Indexing) -> Vec<Tensor>;

    fn requires(tensors: &[TensorMeta]) -> Result<()> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        for meta in tensors {
            require!(meta.rank() <= 1, Rank, "a tensor has shape {:?}, expected one dimension at most", meta.shape());
            prims::checks::same_dtype(("the first tensor", &tensors[0]), ("another", meta), Code::SameDType)?;
        }
        Ok(())
    }

    fn decomposition(tensors: &[Tensor], indexing: Indexing) -> Vec<Tensor> {
        let mut shape: Vec<usize> = tensors.iter().map(|tensor| tensor.meta().len()).collect();
        let place = |i: usize| super::place_in_grid(i, tensors.len(), indexing);
        shape = (0..shape.len()).map(|i| shape[place(i)]).collect();
        let one = |i: usize| {
            let line = super::read_as(tensors[i], &[tensors[i].meta().len()]);
            if shape.len() == 1 { line } else { prims::broadcast_in_dim(line, &shape, [place(i)]) }
        };
        (0..tensors.len()).map(one).collect()
    }

    fn reference(tensors: &[ReferenceTensor], indexing: Indexing) -> Vec<ReferenceTensor> {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        if indexing == Indexing::Cartesian && order.len() > 1 {
            order.swap(0, 1);
        }
        let shape: Vec<usize> = order.iter().map(|i| tensors[*i].floats().len()).collect();
        let grid = |i: usize| {
            let along = order.iter().position(|own| *own == i).unwrap_or(0);
            let rank = tensors[i].shape().len();
            rearranged(&tensors[i], &shape, 0.0, |at| Some(vec![at[along]; rank]))
        };
        (0..tensors.len()).map(grid).collect()
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2]), s.normal([3]), s.normal([])]));
        s.case(with([s.normal([2]), s.normal([3]), s.normal([4])]).indexing(Indexing::Cartesian));
        s.case(with([s.normal([3])]).indexing(Indexing::Cartesian));
        s.case(with([s.normal([0]), s.normal([2])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Rank, with([e.normal([2, 3])]), "a tensor has shape [2, 3]");
        e.case(SameDType, with([e.of(DType::F32, [2]), e.of(DType::I64, [2])]), "another is i64");
    }
}

/// `input` in the element type of `other`.
#[operator(torch = "Tensor.type_as", waive(other = "its elements are not read"))]
pub mod type_as {
    fn type_as(input: Tensor, other: Tensor) -> Tensor;

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        cast(input, other.dtype())
    }

    fn reference(input: &ReferenceTensor, other: &ReferenceTensor) -> ReferenceTensor {
        match other.dtype() {
            dtype if dtype.is_floating() => ReferenceTensor::from_floats(dtype, input.floats().clone()),
            DType::Bool => ReferenceTensor::from_integers(DType::Bool, input.floats().mapv(|x| i64::from(x != 0.0))),
            dtype => ReferenceTensor::from_integers(dtype, input.floats().mapv(|x| x as i64)),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), s.of(DType::F32, [5])));
        s.case(with(s.uniform(-3.0, 3.0, [4]), s.of(DType::I64, []))).forward_only("a fraction is cut off");
        s.case(with(s.normal([0]), s.of(DType::F64, [2])));
    }
}

// Declares tensors of the shape of another, filled with a number.
operators! {
    #[operator(
        torch = $torch,
        complex,
        waive(input = "its elements are not read"),
        no_grad = "the result does not depend on the elements of input"
    )]
    pub mod $name {
        fn $name(input: Tensor, #[default(None)] dtype: Option<DType>) -> Tensor;

        fn decomposition(input: Tensor, dtype: Option<DType>) -> Tensor {
            let meta = input.meta();
            constant($value, &meta.with_dtype(dtype.unwrap_or(meta.dtype())))
        }

        fn reference(input: &ReferenceTensor) -> ArrayD<f64> {
            ArrayD::from_elem(IxDyn(input.shape()), f64::from($value as i32))
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 3])));
            s.case(with(s.normal([])).dtype(DType::I64));
            s.case(with(s.normal([0, 3])).dtype(DType::Bool));
        }
    }

    table($name, $torch, $value) {
        /// Zeros of the shape of `input`, in its element type unless `dtype` says otherwise.
        zeros_like, "zeros_like", 0i64;
        /// Ones of the shape of `input`, in its element type unless `dtype` says otherwise.
        ones_like, "ones_like", 1i64;
        /// A tensor of the shape of `input`, in its element type unless `dtype` says otherwise. Its elements are zeros,
        /// where PyTorch's are whatever the memory held.
        empty_like, "empty_like", 0i64;
    }
}

/// A tensor of the shape of `input`, every element `fill_value`, in its element type unless `dtype` says otherwise.
#[operator(
    torch = "full_like",
    complex,
    waive(input = "its elements are not read"),
    no_grad = "the result does not depend on the elements of input"
)]
pub mod full_like {
    fn full_like(input: Tensor, fill_value: Scalar, #[default(None)] dtype: Option<DType>) -> Tensor;

    fn requires(input: &TensorMeta, fill_value: Scalar, dtype: Option<DType>) -> Result<()> {
        fills("fill_value", fill_value, dtype.unwrap_or(input.dtype()), Code::FillValue.name())
    }

    fn decomposition(input: Tensor, fill_value: Scalar, dtype: Option<DType>) -> Tensor {
        let meta = input.meta();
        let meta = meta.with_dtype(dtype.unwrap_or(meta.dtype()));
        constant(operand_number(fill_value, meta.dtype()), &meta)
    }

    fn reference(input: &ReferenceTensor, fill_value: Scalar) -> ArrayD<f64> {
        ArrayD::from_elem(IxDyn(input.shape()), fill_value.to_f64())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), 3i64));
        s.case(with(s.normal([]), -2i64).dtype(DType::I64));
        s.case(with(s.normal([0, 3]), true));
        s.case(with(s.normal([2]), 1.5).dtype(DType::F32));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(FillValue, with(e.of(DType::U8, [2]), 256i64), "fill_value is 256, which u8 cannot hold");
        e.case(FillValue, with(e.normal([2]), f64::NAN).dtype(DType::I32), "which i32 cannot hold");
    }
}

/// A tensor of `size`, f32 unless `dtype` says otherwise. Its elements are zeros, where PyTorch's are whatever the
/// memory held.
#[operator(torch = "empty")]
pub mod empty {
    fn empty(size: Vec<usize>, #[default(None)] dtype: Option<DType>, #[default("cpu")] device: String) -> Tensor;

    fn requires(device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        Ok(())
    }

    fn decomposition(size: &[usize], dtype: Option<DType>, device: &str) -> Tensor {
        full::with(size, 0.0).dtype(dtype.unwrap_or(DType::F32)).device(device).call()
    }

    fn reference(size: &[usize]) -> ArrayD<f64> {
        ArrayD::zeros(IxDyn(size))
    }

    fn samples(s: &mut Samples) {
        s.case(with([2, 3]));
        s.case(with([]).dtype(s.dtype()));
        s.case(with([0]).dtype(s.dtype()));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with([2]).device("?"), "'?' is not a device");
    }
}

/// Pieces of `sizes` elements one after another along `dim`. All of it as one piece is the tensor itself.
#[track_caller]
fn parted(input: Tensor, sizes: &[usize], dim: usize) -> Vec<Tensor> {
    match sizes.iter().sum::<usize>() == input.shape()[dim] {
        true => super::split_with_sizes::with(input, sizes).dim(dim as i64).call(),
        false => pieces(input, sizes, dim),
    }
}

/// The pieces from the first to, not including, the second position of each pair.
#[track_caller]
fn between(input: Tensor, bounds: &[(usize, usize)], dim: usize) -> Vec<Tensor> {
    let side_by_side = bounds.windows(2).all(|pair| pair[0].1 == pair[1].0);
    if side_by_side {
        return parted(input, &bounds.iter().map(|(from, to)| to - from).collect::<Vec<_>>(), dim);
    }
    bounds.iter().map(|(from, to)| super::piece(input, dim, *from, to - from)).collect()
}

/// Tensors of as many dimensions joined along the one that `dim` says, in the type that they meet in.
#[track_caller]
fn joined_parts(parts: Vec<Tensor>, dim: fn(usize) -> usize) -> Tensor {
    let operands: Vec<Operand<Tensor>> = parts.iter().copied().map(Operand::Tensor).collect();
    let dtype = result_type(&operands);
    let dim = dim(parts[0].rank());
    let parts: Vec<Tensor> = parts.into_iter().map(|part| cast(part, dtype)).collect();
    if let [only] = parts.as_slice() { *only } else { prims::cat(&parts, dim) }
}

/// For references: tensors of the shapes that `raised` gives them, joined along the dimension that `dim` says.
fn joined_references(
    tensors: &[ReferenceTensor],
    raised: impl Fn(&[usize]) -> Vec<usize>,
    dim: fn(usize) -> usize,
) -> ReferenceTensor {
    let axis = ndarray::Axis(dim(raised(tensors[0].shape()).len()));
    let floating = tensors.iter().any(|part| part.dtype().is_floating());
    let fails = "the shapes were checked";
    if floating {
        let parts: Vec<_> =
            tensors.iter().map(|part| super::arrays::reshaped(part.floats(), &raised(part.shape()))).collect();
        let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
        ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{fails}")).into()
    } else {
        let parts: Vec<_> =
            tensors.iter().map(|part| super::arrays::reshaped(part.integers(), &raised(part.shape()))).collect();
        let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
        ndarray::concatenate(axis, &views).unwrap_or_else(|_| unreachable!("{fails}")).into()
    }
}

/// The dimension of tensor `i` of `count` in a grid; also the tensor of dimension `i`.
fn place_in_grid(i: usize, count: usize, indexing: Indexing) -> usize {
    match i {
        0 | 1 if indexing == Indexing::Cartesian && count > 1 => 1 - i,
        _ => i,
    }
}

fn at_least_a_vector(shape: &[usize]) -> Vec<usize> {
    if shape.is_empty() { vec![1] } else { shape.to_vec() }
}

fn at_least_a_matrix(shape: &[usize]) -> Vec<usize> {
    match shape {
        [] => vec![1, 1],
        [n] => vec![1, *n],
        _ => shape.to_vec(),
    }
}

fn at_least_a_list(shape: &[usize]) -> Vec<usize> {
    match shape {
        [] => vec![1, 1, 1],
        [n] => vec![1, *n, 1],
        [m, n] => vec![*m, *n, 1],
        _ => shape.to_vec(),
    }
}

fn at_least_a_column(shape: &[usize]) -> Vec<usize> {
    match shape {
        [] => vec![1, 1],
        [n] => vec![*n, 1],
        _ => shape.to_vec(),
    }
}
