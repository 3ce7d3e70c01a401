//! Pools whose windows follow from the size of the result.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::rules::{ArrayD, Failure, IxDyn, Precondition, ReferenceTensor};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::placement::{
    Placement, addressable, fits_dimensions, for_each, last, moved_from_last, moved_last, positions_along,
};
use super::pooling::{check_shape, first_largest, largest, largest_of_windows, means, picked};
use crate::core::promotion::{accumulating, cast};
use crate::core::{RoundingMode, div, read_as};
use crate::prims;

/// A dimension of `extent` elements in `count` parts: part `i` from `⌊i · extent / count⌋` to
/// `⌈(i + 1) · extent / count⌉`. Where `count` divides `extent` they are windows side by side.
#[derive(Clone, Copy)]
struct Parts {
    extent: usize,
    count: usize,
}

impl Parts {
    /// Of the last dimensions; a size that is absent is the dimension's.
    fn all(shape: &[usize], sizes: &[Option<usize>], rank: usize) -> Vec<Parts> {
        let sizes = for_each(sizes, rank).unwrap_or_else(|| vec![None; rank]);
        let extents = &shape[shape.len() - rank..];
        (0..rank).map(|i| Parts { extent: extents[i], count: sizes[i].unwrap_or(extents[i]) }).collect()
    }

    /// The windows that the parts are, if they are equally large.
    fn windows(self) -> Option<Placement> {
        let Parts { extent, count } = self;
        let size = extent.checked_div(count).unwrap_or(1);
        let equal = count == 0 || extent.is_multiple_of(count);
        equal.then_some(Placement { extent, low: 0, size, step: size, dilation: 1, count })
    }

    /// The most elements of a part.
    fn most(self) -> usize {
        (self.extent / self.count.max(1)).saturating_add(2).min(self.extent)
    }

    /// The starts of the parts, and their numbers of elements.
    #[track_caller]
    fn starts(self, like: Tensor) -> [Tensor; 2] {
        let (shape, extent, count) = ([self.count], self.extent as i64, self.count as i64);
        let quotient = |numerator: Tensor| div::with(numerator, count).rounding_mode(Some(RoundingMode::Floor)).call();
        let start = quotient(positions_along(like, &shape, 0, 0, extent));
        let end = quotient(positions_along(like, &shape, 0, extent.saturating_add(count - 1), extent));
        [start, prims::sub(end, start)]
    }

    /// The elements of the parts of the last dimension, [..., count, most]: behind its last element a part has that
    /// element again.
    #[track_caller]
    fn elements(self, last: Tensor, [start, length]: [Tensor; 2]) -> Tensor {
        let grid = [self.count, self.most()];
        let inside = prims::minimum(
            positions_along(last, &grid, 1, 0, 1),
            prims::broadcast_in_dim(prims::sub(length, 1), grid, [0]),
        );
        let places = prims::add(prims::broadcast_in_dim(start, grid, [0]), inside);
        let shape = last.shape().to_vec();
        let leading = &shape[..shape.len() - 1];
        let taken = prims::index_select(last, leading.len(), read_as(places, &[grid[0].saturating_mul(grid[1])]));
        prims::reshape(taken, [leading, &grid].concat())
    }
}

/// For metas: fails with one of the caller's codes unless `sizes` has a number for each dimension, and memory holds the
/// elements of all parts.
fn check_parts(
    input: &TensorMeta,
    sizes: &[Option<usize>],
    rank: usize,
    [length, memory]: [Precondition; 2],
) -> Result<(), Failure> {
    fits_dimensions(("output_size", sizes), rank, length)?;
    let shape = input.shape();
    let parts = Parts::all(shape, sizes, rank).into_iter();
    let longest: Vec<usize> =
        parts.map(|parts| parts.count.saturating_mul(parts.most()).max(parts.count).max(parts.extent)).collect();
    if addressable(&[&shape[..shape.len() - rank], &longest].concat()) {
        return Ok(());
    }
    Err(memory.unmet(format_args!(
        "output_size is {sizes:?}, input has shape {shape:?}: the parts are larger than any memory"
    )))
}

/// The means of the parts of dimension `dim`.
#[track_caller]
fn means_of_parts(values: Tensor, dim: usize, parts: Parts) -> Tensor {
    let last = moved_last(values, dim);
    if let Some(placed) = parts.windows() {
        return moved_from_last(means(last, &[placed], true, None), dim);
    }
    let [start, length] = parts.starts(values);
    let elements = parts.elements(last, [start, length]);
    let (shape, rank) = (elements.shape().to_vec(), elements.rank());
    let grid = &shape[rank - 2..];
    let own = prims::lt(positions_along(values, grid, 1, 0, 1), prims::broadcast_in_dim(length, grid, [0]));
    let own = prims::broadcast_in_dim(own, &shape, [rank - 2, rank - 1]);
    let total = prims::sum(prims::select(own, elements, 0.0), [rank - 1]);
    let counts = prims::broadcast_in_dim(cast(length, total.dtype()), total.shape(), [rank - 2]);
    moved_from_last(prims::div(total, counts), dim)
}

/// Positions along dimension `dim` of the largest elements of its parts.
#[track_caller]
fn largest_of_parts(values: Tensor, dim: usize, parts: Parts) -> Tensor {
    if let Some(placed) = parts.windows() {
        return largest_of_windows(values, dim, &placed);
    }
    let [start, length] = parts.starts(values);
    let elements = parts.elements(moved_last(values, dim), [start, length]);
    // An element that is there again is not the first of equal ones.
    let best = moved_from_last(prims::argmax(elements, elements.rank() - 1), dim);
    prims::add(best, prims::broadcast_in_dim(start, best.shape(), [dim]))
}

/// For references: the places of the elements of each part, in row-major order.
fn of_parts<T>(
    input: &ArrayD<f64>,
    sizes: &[Option<usize>],
    rank: usize,
    compute: impl Fn(&[Vec<usize>]) -> T,
) -> ArrayD<T> {
    let leading = input.ndim() - rank;
    let extents = &input.shape()[leading..];
    let counts: Vec<usize> = (0..rank).map(|i| sizes[i % sizes.len()].unwrap_or(extents[i])).collect();
    let shape = [&input.shape()[..leading], &counts[..]].concat();
    ArrayD::from_shape_fn(IxDyn(&shape), |at| {
        let at = ndarray::Dimension::slice(&at);
        let mut places = vec![at[..leading].to_vec()];
        for ((&extent, &count), &part) in extents.iter().zip(&counts).zip(&at[leading..]) {
            let inside = part * extent / count..((part + 1) * extent).div_ceil(count);
            let longer = |place: &Vec<usize>| -> Vec<Vec<usize>> {
                inside.clone().map(|at| [&place[..], &[at]].concat()).collect()
            };
            places = places.iter().flat_map(longer).collect();
        }
        compute(&places)
    })
}

// Declares means of parts.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> Tensor;

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> Tensor {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let windows: Option<Vec<Placement>> = parts.iter().map(|parts| parts.windows()).collect();
            if let Some(placed) = windows {
                return super::means(input, &placed, true, None);
            }
            let (wide, leading) = (accumulating(input), input.rank() - $rank);
            let parts = parts.into_iter().enumerate();
            cast(parts.fold(wide, |all, (i, parts)| super::means_of_parts(all, leading + i, parts)), input.dtype())
        }

        fn reference(input: &ArrayD<f64>, output_size: &[Option<usize>]) -> ArrayD<f64> {
            super::of_parts(input, output_size, $rank, |places| {
                places.iter().map(|place| input[place.as_slice()]).sum::<f64>() / places.len() as f64
            })
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
            s.case(with(s.normal(shape(&[1, 2])), [Some(5)]));
            s.case(with(s.normal(shape(&[1, 2])), [Some(0)]));
            s.case(with(s.normal(shape(&[0, 2])), [None]));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The means of `output_size` parts of `input` [N, C, L] (or [C, L]); part i from `⌊i L / size⌋` to
        /// `⌈(i + 1) L / size⌉`. A size that is absent is L.
        adaptive_avg_pool1d, "nn.functional.adaptive_avg_pool1d", 1;
        /// As [`mod@adaptive_avg_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        adaptive_avg_pool2d, "nn.functional.adaptive_avg_pool2d", 2;
        /// As [`mod@adaptive_avg_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        adaptive_avg_pool3d, "nn.functional.adaptive_avg_pool3d", 3;
    }
}

// Declares largest elements of parts, with their positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> (Tensor, Tensor);

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> (Tensor, Tensor) {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let leading = input.rank() - $rank;
            super::largest(input, $rank, |values, i| super::largest_of_parts(values, leading + i, parts[i]))
        }

        fn reference(input: &ReferenceTensor, output_size: &[Option<usize>]) -> (ReferenceTensor, ArrayD<i64>) {
            let best = super::of_parts(input.floats(), output_size, $rank, |places| {
                places[super::first_largest(input.floats(), places)].clone()
            });
            super::picked(input, &best, $rank)
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
            s.case(with(s.normal(shape(&[1, 2])), [Some(5)]));
            s.case(with(s.normal(shape(&[0, 2])), [None]));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The largest elements of the parts of [`mod@adaptive_avg_pool1d`], and their positions: of equal ones the
        /// first; the first NaN if there is one.
        adaptive_max_pool1d_with_indices, "nn.functional.adaptive_max_pool1d_with_indices", 1;
        /// As [`mod@adaptive_max_pool1d_with_indices`], of two dimensions. Positions are those in H · W elements.
        adaptive_max_pool2d_with_indices, "nn.functional.adaptive_max_pool2d_with_indices", 2;
        /// As [`mod@adaptive_max_pool1d_with_indices`], of three dimensions. Positions are those in D · H · W elements.
        adaptive_max_pool3d_with_indices, "nn.functional.adaptive_max_pool3d_with_indices", 3;
    }
}

// Declares largest elements of parts.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>, output_size: Vec<Option<usize>>) -> Tensor;

        fn requires(input: &TensorMeta, output_size: &[Option<usize>]) -> Result<()> {
            super::check_shape(input, $rank, Code::InputShape)?;
            super::check_parts(input, output_size, $rank, [Code::OutputSize, Code::MemorySize])
        }

        fn decomposition(input: Tensor, output_size: &[Option<usize>]) -> Tensor {
            let parts = Parts::all(&input.shape(), output_size, $rank);
            let leading = input.rank() - $rank;
            super::largest(input, $rank, |values, i| super::largest_of_parts(values, leading + i, parts[i])).0
        }

        fn reference(input: &ReferenceTensor, output_size: &[Option<usize>]) -> ReferenceTensor {
            let best = super::of_parts(input.floats(), output_size, $rank, |places| {
                places[super::first_largest(input.floats(), places)].clone()
            });
            super::picked(input, &best, $rank).0
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [3, 4, 6])].concat();
            let some = |sizes: [Option<usize>; 3]| last($rank, sizes);
            s.case(with(s.normal(shape(&[2, 3])), some([Some(1), Some(2), Some(3)])));
            s.case(with(s.normal(shape(&[3])), some([Some(2), None, Some(4)])));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            e.case(InputShape, with(e.normal(shape(&[])), [Some(1)]), "none of them empty but that of a batch");
            e.case(OutputSize, with(e.normal(shape(&[2])), [None; 4]), "expected one number");
            let many = with(e.normal(shape(&[2])), [Some(1usize << 50)]);
            e.case(MemorySize, many, "the parts are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The values of [`mod@adaptive_max_pool1d_with_indices`].
        adaptive_max_pool1d, "nn.functional.adaptive_max_pool1d", 1;
        /// The values of [`mod@adaptive_max_pool2d_with_indices`].
        adaptive_max_pool2d, "nn.functional.adaptive_max_pool2d", 2;
        /// The values of [`mod@adaptive_max_pool3d_with_indices`].
        adaptive_max_pool3d, "nn.functional.adaptive_max_pool3d", 3;
    }
}
