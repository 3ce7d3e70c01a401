//! Medians and modes: elements that their rank or number chooses.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::{DType, Tensor};

use super::arrays::reduce;
use super::promotion::{cast, position, reduced_shape};
use super::{flatten, read_as};
use crate::prims;

// Declares medians along a dimension and of all elements.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor<Number>, dim: i64, #[default(false)] keepdim: bool) -> (Tensor, Tensor);

        fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
            let dim = normalize_dim(dim, input.rank())?;
            require!(
                input.shape().get(dim) != Some(&0),
                EmptyReduction,
                "input has shape {:?}: there is no element along dimension {dim}",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
            if input.rank() == 0 {
                return (input, prims::full([], 0i64, DType::I64, input.device()));
            }
            let dim = position(dim, input.rank());
            let indices = middle(input, dim, $skips);
            let out = reduced_shape(&input.shape(), &[dim], keepdim);
            (read_as(prims::gather(input, dim, indices), &out), read_as(indices, &out))
        }

        fn reference(input: &ReferenceTensor, dim: i64, keepdim: bool) -> (ReferenceTensor, ArrayD<i64>) {
            let at = |row: &[f64]| middle_by_hand(row, $skips);
            let values = reduce(input.floats(), Some(&[dim]), keepdim, |row| row[at(row)]);
            let indices = reduce(input.floats(), Some(&[dim]), keepdim, |row| at(row) as i64);
            let values = match input.dtype().is_floating() {
                true => ReferenceTensor::from_floats(input.dtype(), values),
                false => ReferenceTensor::from_integers(input.dtype(), values.mapv(|x| x as i64)),
            };
            (values, indices)
        }

        fn samples(s: &mut Samples) {
            // Drawn integers are equal to each other, and PyTorch leaves open which of them is chosen.
            if s.dtype().is_floating() {
                s.case(with(s.normal([4, 7]), 1));
                s.case(with(s.normal([3, 8, 2]), -2).keepdim(true));
                let special = [1.0, f64::NAN, 3.0, f64::INFINITY, 2.0, f64::NEG_INFINITY, 0.5, 5.0, -1.0];
                s.case(with(s.values([3, 3], special), 0)).forward_only("special values");
                s.case(with(s.values([2, 2], [f64::NAN]), 1)).forward_only("special values");
            }
            s.case(with(s.values([2, 4], [3.0, 1.0, 7.0, 2.0]), 1));
            s.case(with(s.normal([]), 0));
            s.case(with(s.normal([0, 3]), 1));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(EmptyReduction, with(e.normal([2, 0]), 1), "no element along dimension 1");
        }
    }

    table($name, $torch, $skips) {
        /// The medians along `dim`, the lower ones of an even number of elements, and their positions: those of a
        /// stable order, where PyTorch gives any of equal elements. A row with NaN has the first NaN. Of all elements
        /// it is [`median_of_all`](mod@median_of_all).
        median, "median", false;
        /// The medians along `dim` of what is not NaN, the lower ones of an even number, and their positions: in a
        /// stable order of equal elements, where PyTorch gives any. A row of NaN has the first. Of all elements it is
        /// [`nanmedian_of_all`](mod@nanmedian_of_all).
        nanmedian, "nanmedian", true;
    }
}

// Declares the medians of all elements.
operators! {
    #[operator]
    pub mod $name {
        fn $name(input: Tensor<Number>) -> Tensor;

        fn requires(input: &TensorMeta) -> Result<()> {
            require!(
                input.dtype().is_floating() || !input.is_empty(),
                EmptyReduction,
                "input has shape {:?}: there is no element, and integers have no NaN",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor) -> Tensor {
            let line = flatten(input);
            if line.shape()[0] == 0 {
                return prims::full([], f64::NAN, input.dtype(), input.device());
            }
            read_as(prims::gather(line, 0, middle(line, 0, $skips)), &[])
        }

        /// Elements that are equal to the median share its cotangent.
        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input);
            (out, move |d_out: Tensor| {
                let median = prims::broadcast_in_dim(out, input.shape(), []);
                let both_nan = prims::logical_and(prims::ne(input, input), prims::ne(median, median));
                let chosen = prims::logical_or(prims::eq(input, median), both_nan);
                let dims: Vec<usize> = (0..input.rank()).collect();
                let number = prims::sum(prims::convert_element_type(chosen, DType::F32), dims);
                let each = prims::div(d_out, cast(number, d_out.dtype()));
                Grads { input: prims::select(chosen, prims::broadcast_in_dim(each, input.shape(), []), 0.0) }
            })
        }

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            reduce(input, None, false, |row| match row.is_empty() {
                true => f64::NAN,
                false => row[middle_by_hand(row, $skips)],
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 7])));
            s.case(with(s.normal([])));
            s.case(with(s.values([2, 4], [3.0, 1.0, 7.0, 2.0, 2.0]))).forward_only("ties");
            if s.dtype().is_floating() {
                let special = [1.0, f64::NAN, 3.0, f64::INFINITY, 2.0, f64::NEG_INFINITY];
                s.case(with(s.values([6], special))).forward_only("special values");
                s.case(with(s.normal([0, 3])));
                s.case(with(s.values([2], [f64::NAN]))).forward_only("special values").gradients([&[0.5, 0.5]]);
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(EmptyReduction, with(e.of(DType::I64, [2, 0])), "there is no element");
        }
    }

    table($name, $skips) {
        /// The median of all elements, the lower one of an even number, as PyTorch's `median` without a dimension: NaN
        /// if there is one, and of no elements. Equal elements share the gradient.
        median_of_all, false;
        /// The median of all elements that are not NaN, the lower one of an even number, as PyTorch's `nanmedian`
        /// without a dimension; NaN of none. Equal elements share the gradient.
        nanmedian_of_all, true;
    }
}

/// The elements along `dim` that are there most often, the smallest of several, and the position of the last of them.
/// Each NaN is an element of its own.
#[operator(torch = "mode")]
pub mod mode {
    #[results(values, indices)]
    fn mode(input: Tensor, #[default(-1)] dim: i64, #[default(false)] keepdim: bool) -> (Tensor, Tensor);

    fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
        let dim = normalize_dim(dim, input.rank())?;
        require!(
            input.shape().get(dim) != Some(&0),
            EmptyReduction,
            "input has shape {:?}: there is no element along dimension {dim}",
            input.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        if input.rank() == 0 {
            return (input, prims::full([], 0i64, DType::I64, input.device()));
        }
        let (shape, dim) = (input.shape().to_vec(), position(dim, input.rank()));
        let ordered = if input.dtype() == DType::Bool { cast(input, DType::U8) } else { input };
        let (sorted, order) = prims::topk(ordered, shape[dim], dim, false);
        // The number of elements since the last that differs from the one before it.
        let places = prims::iota(shape[dim], Scalar::Int(0), Scalar::Int(1), DType::I64, input.device());
        let places = prims::broadcast_in_dim(places, &*shape, [dim]);
        let starts = prims::select(differs_from_previous(sorted, dim), places, 0);
        let (starts, _) = prims::cummax(starts, dim);
        let best = prims::argmax(prims::sub(places, starts), dim);
        let one = reduced_shape(&shape, &[dim], true);
        let indices = prims::gather(order, dim, prims::reshape(best, one));
        let out = reduced_shape(&shape, &[dim], keepdim);
        (read_as(prims::gather(input, dim, indices), &out), read_as(indices, &out))
    }

    fn reference(input: &ReferenceTensor, dim: i64, keepdim: bool) -> (ReferenceTensor, ArrayD<i64>) {
        let at = |row: &[f64]| {
            let number = |x: &f64| row.iter().filter(|y| x == *y).count().max(1);
            let mut best = 0;
            for (i, x) in row.iter().enumerate() {
                let (own, most) = (number(x), number(&row[best]));
                let is_smaller = *x < row[best] || (row[best].is_nan() && !x.is_nan());
                if own > most || (own == most && (is_smaller || *x == row[best])) {
                    best = i;
                }
            }
            best
        };
        let values = reduce(input.floats(), Some(&[dim]), keepdim, |row| row[at(row)]);
        let indices = reduce(input.floats(), Some(&[dim]), keepdim, |row| at(row) as i64);
        let values = match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), values),
            false => ReferenceTensor::from_integers(input.dtype(), values.mapv(|x| x as i64)),
        };
        (values, indices)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 7])));
        s.case(with(s.values([3, 4], [2.0, 1.0, 2.0, 1.0, 0.0, 3.0, 3.0, 5.0, 4.0])).dim(0).keepdim(true))
            .forward_only("ties");
        s.case(with(s.values([2, 6], [2.0, 1.0, 2.0, 1.0, 0.0, 3.0, 3.0]))).forward_only("ties");
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 3])));
        if s.dtype().is_floating() {
            let special = [f64::NAN, 1.0, f64::NAN, f64::INFINITY, 1.0, f64::NAN];
            s.case(with(s.values([2, 3], special))).forward_only("special values");
            s.case(with(s.values([6], special))).forward_only("special values");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(EmptyReduction, with(e.normal([2, 0])), "no element along dimension 1");
    }
}

/// Whether each element along `dim` differs from the one before it, the first from none.
#[track_caller]
fn differs_from_previous(sorted: Tensor, dim: usize) -> Tensor {
    let shape = sorted.shape().to_vec();
    let part = |start: usize, end: usize| {
        let (mut starts, mut ends) = (vec![0; shape.len()], shape.clone());
        (starts[dim], ends[dim]) = (start, end);
        prims::slice(sorted, starts, ends, vec![1; shape.len()])
    };
    let differs = prims::ne(part(1, shape[dim]), part(0, shape[dim] - 1));
    let mut low = vec![0; shape.len()];
    low[dim] = 1;
    prims::pad(differs, low, vec![0; shape.len()], Scalar::Bool(false))
}

/// The positions of the medians along `dim`, which they keep with one element. If it does not skip NaN, a row that has
/// one has the first.
#[track_caller]
fn middle(input: Tensor, dim: usize, skips_nan: bool) -> Tensor {
    let shape = input.shape().to_vec();
    let (length, one) = (shape[dim], reduced_shape(&shape, &[dim], true));
    if !input.dtype().is_floating() || !skips_nan {
        let (_, order) = prims::topk(input, length.div_ceil(2), dim, false);
        let mut starts = vec![0; shape.len()];
        let mut ends = order.shape().to_vec();
        (starts[dim], ends[dim]) = (ends[dim] - 1, ends[dim]);
        let indices = prims::slice(order, starts, ends, vec![1; shape.len()]);
        if !input.dtype().is_floating() {
            return indices;
        }
        // NaN is the largest of all.
        let largest = prims::reshape(prims::argmax(input, dim), one);
        let top = prims::gather(input, dim, largest);
        return prims::select(prims::ne(top, top), largest, indices);
    }
    let (_, order) = prims::topk(input, length, dim, false);
    let known = prims::convert_element_type(prims::eq(input, input), DType::I64);
    let known = prims::reshape(prims::sum(known, [dim]), &*one);
    // The rank (n - 1) / 2, rounded down; of none that of the first NaN.
    let rank = prims::bitwise_right_shift(prims::maximum(prims::sub(known, 1), 0), 1);
    prims::gather(order, dim, rank)
}

/// For references: the position of the median of a row.
fn middle_by_hand(row: &[f64], skips_nan: bool) -> usize {
    let first_nan = row.iter().position(|x| x.is_nan());
    let mut known: Vec<usize> = (0..row.len()).filter(|i| !row[*i].is_nan()).collect();
    known.sort_by(|a, b| row[*a].total_cmp(&(row[*b])));
    match first_nan {
        Some(nan) if !skips_nan || known.is_empty() => nan,
        _ => known[(known.len() - 1) / 2],
    }
}
