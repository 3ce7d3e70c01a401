//! The largest or smallest element along a dimension with its position, and both at once.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Tensor};

use super::arrays::reduce;
use super::promotion::{MOST_NAMED, cast, position, reduced_shape};
use super::{amax, amin, argmax, read_as};
use crate::prims;

/// The position of the first of the smallest elements along `dim`, or among all elements in row-major order; NaN counts
/// as the smallest.
#[operator(torch = "argmin", no_grad = "a position has no gradient")]
pub mod argmin {
    fn argmin(input: Tensor<Number>, #[default(None)] dim: Option<i64>, #[default(false)] keepdim: bool) -> Tensor;

    fn requires(input: &TensorMeta, dim: Option<i64>) -> Result<()> {
        let dim = dim.map(|dim| normalize_dim(dim, input.rank())).transpose()?;
        require!(dim.is_none() || input.rank() <= MOST_NAMED, Rank, "input has more than {MOST_NAMED} dimensions");
        let chosen = dim.map_or(input.len(), |dim| input.shape().get(dim).copied().unwrap_or(1));
        require!(
            chosen > 0,
            EmptyReduction,
            "input has shape {:?}: cannot choose an element of an empty dimension",
            input.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, dim: Option<i64>, keepdim: bool) -> Tensor {
        // The order turned around, without a number that overflows.
        let turned = match input.dtype().limits() {
            Some((0, largest)) => prims::sub(largest, input),
            Some(_) => prims::sub(-1, input),
            None => prims::neg(input),
        };
        argmax::with(turned).dim(dim).keepdim(keepdim).call()
    }

    fn reference(input: &ArrayD<f64>, dim: Option<i64>, keepdim: bool) -> ArrayD<i64> {
        reduce(input, dim.map(|dim| vec![dim]).as_deref(), keepdim, |row| first_best(row, |a, b| a < b) as i64)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([])));
        s.case(with(s.normal([3, 5, 7])).dim(-2).keepdim(true));
        s.case(with(s.normal([2, 3])).keepdim(true));
        s.case(with(s.normal([0, 3])).dim(1));
        s.case(with(s.values([3, 4], [1.0, 0.0, 0.0, 2.0])).dim(1));
        if s.dtype().is_floating() {
            s.case(with(s.values([2, 3], [1.0, f64::NAN, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0])).dim(1));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([1; 65])).dim(0), "input has more than 64 dimensions");
        e.case(EmptyReduction, with(e.normal([0, 3])).dim(0), "an empty dimension");
        e.case(EmptyReduction, with(e.normal([0, 3])), "an empty dimension");
    }
}

// Declares the best element along a dimension and its position.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(input: Tensor, dim: i64, #[default(false)] keepdim: bool) -> (Tensor, Tensor);

        fn requires(input: &TensorMeta, dim: i64) -> Result<()> {
            let dim = normalize_dim(dim, input.rank())?;
            require!(
                input.shape().get(dim) != Some(&0),
                EmptyReduction,
                "input has shape {:?}: cannot choose an element of the empty dimension {dim}",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
            let ordered = if input.dtype() == DType::Bool { cast(input, DType::U8) } else { input };
            let best = $best::with(ordered).dim(dim).keepdim(true).call();
            taken(input, best, dim, keepdim)
        }

        fn reference(input: &ReferenceTensor, dim: i64, keepdim: bool) -> (ReferenceTensor, ArrayD<i64>) {
            let at = |row: &[f64]| first_best(row, $better);
            let values = reduce(input.floats(), Some(&[dim]), keepdim, |row| row[at(row)]);
            let indices = reduce(input.floats(), Some(&[dim]), keepdim, |row| at(row) as i64);
            let values = match input.dtype().is_floating() {
                true => ReferenceTensor::from_floats(input.dtype(), values),
                false => ReferenceTensor::from_integers(input.dtype(), values.mapv(|x| x as i64)),
            };
            (values, indices)
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 8]), 1));
            s.case(with(s.normal([3, 5, 7]), -2).keepdim(true));
            s.case(with(s.normal([]), 0));
            s.case(with(s.normal([0, 3]), 1));
            s.case(with(s.values([3, 4], [1.0, 2.0, 2.0, 0.0, 0.0]), 1)).forward_only("ties");
            if s.dtype().is_floating() {
                let special = [1.0, f64::NAN, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0];
                s.case(with(s.values([2, 3], special), 1)).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(EmptyReduction, with(e.normal([0, 3]), 0), "the empty dimension 0");
        }
    }

    table($name, $torch, $best, $better) {
        /// The largest elements along `dim` and their positions: the first of equal ones; NaN is the largest. PyTorch's
        /// `max(input)` of all elements is [`amax(input)`](mod@super::amax), its `max(input, other)` is
        /// [`maximum(input, other)`](mod@super::maximum): the gradients are the same.
        max, "max", argmax, |a, b| a > b;
        /// The smallest elements along `dim` and their positions: the first of equal ones; NaN is the smallest.
        /// PyTorch's `min(input)` of all elements is [`amin(input)`](mod@super::amin), its `min(input, other)` is
        /// [`minimum(input, other)`](mod@super::minimum): the gradients are the same.
        min, "min", argmin, |a, b| a < b;
    }
}

/// The smallest and the largest element along `dim`, of all elements if it is absent; NaN if there is one.
#[operator(torch = "aminmax")]
pub mod aminmax {
    #[results(min, max)]
    fn aminmax(input: Tensor, #[default(None)] dim: Option<i64>, #[default(false)] keepdim: bool) -> (Tensor, Tensor);

    fn requires(input: &TensorMeta, dim: Option<i64>) -> Result<()> {
        let dim = dim.map(|dim| normalize_dim(dim, input.rank())).transpose()?;
        let chosen = dim.map_or(input.len(), |dim| input.shape().get(dim).copied().unwrap_or(1));
        require!(chosen > 0, EmptyReduction, "input has shape {:?}: there is no element to choose", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor, dim: Option<i64>, keepdim: bool) -> (Tensor, Tensor) {
        let dims: Vec<i64> = dim.into_iter().collect();
        let least = amin::with(input).dim(dims.clone()).keepdim(keepdim).call();
        (least, amax::with(input).dim(dims).keepdim(keepdim).call())
    }

    fn reference(input: &ArrayD<f64>, dim: Option<i64>, keepdim: bool) -> (ArrayD<f64>, ArrayD<f64>) {
        let dims = dim.map(|dim| vec![dim]);
        let of =
            |better: fn(f64, f64) -> bool| reduce(input, dims.as_deref(), keepdim, |row| row[first_best(row, better)]);
        (of(|a, b| a < b), of(|a, b| a > b))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([3, 5, 7])).dim(-2).keepdim(true));
        s.case(with(s.normal([])));
        s.case(with(s.normal([0, 3])).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(EmptyReduction, with(e.normal([0, 3])), "there is no element to choose");
        e.case(EmptyReduction, with(e.normal([0, 3])).dim(0), "there is no element to choose");
    }
}

/// The elements at the positions `best`, which has the extent one in `dim`, and the positions.
#[track_caller]
fn taken(input: Tensor, best: Tensor, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
    let shape = input.shape().to_vec();
    if shape.is_empty() {
        return (input, best);
    }
    let dim = position(dim, shape.len());
    let kept = |tensor: Tensor| match keepdim {
        true => tensor,
        false => read_as(tensor, &reduced_shape(&shape, &[dim], false)),
    };
    (kept(prims::gather(input, dim, best)), kept(best))
}

/// For references: the position of the first element that is NaN, else of the first that no other is better than.
fn first_best(row: &[f64], better: impl Fn(f64, f64) -> bool) -> usize {
    let nan = row.iter().position(|x| x.is_nan());
    nan.unwrap_or_else(|| (1..row.len()).fold(0, |best, i| if better(row[i], row[best]) { i } else { best }))
}
