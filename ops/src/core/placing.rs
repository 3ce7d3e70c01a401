//! Elements written at positions: those that an index or a mask names, and those of a slice or a diagonal.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::reference::ReferenceTensor;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::spread;
use super::promotion::{broadcast, broadcast_shapes, cast, fills, number, operand_number, position};
use super::{ScatterReduction, at_least_1d, cumsum, flatten, in_range, piece, read_as, reduced};
use crate::prims;
use crate::prims::checks::same_dtype;

fulgurite_runtime::attribute_enum! {
    /// What [`mod@scatter`] does with an element and what is put there.
    pub enum ScatterUpdate {
        /// Their sum; of booleans whether one of them holds.
        Add = "add",
        /// Their product.
        Multiply = "multiply",
    }
}

/// `input` with elements replaced where `index` says: `out[index[i][j]][j] = src[i][j]` for `dim = 0`, likewise for
/// other dimensions. `src` may be a number. Of several for one place the last in row-major order is kept, and it alone
/// has a gradient. With `reduce` they are added to what is there, or multiplied: see [`mod@super::scatter_reduce`]. A
/// position out of range is an error when the program runs.
#[operator(torch = "scatter", autocast = widest)]
pub mod scatter {
    fn scatter(
        input: Tensor,
        dim: i64,
        index: Tensor<Integer>,
        src: Operand,
        #[default(None)] reduce: Option<ScatterUpdate>,
    ) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, index: &TensorMeta, src: Operand<&TensorMeta>) -> Result<()> {
        let dim = normalize_dim(dim, input.rank())?;
        let one = |shape: &[usize]| if shape.is_empty() { vec![1] } else { shape.to_vec() };
        let (to, at) = (one(input.shape()), one(index.shape()));
        let from = match src {
            Operand::Tensor(src) => one(src.shape()),
            Operand::Scalar(_) => at.clone(),
        };
        let fits = at.contains(&0)
            || (at.len() == to.len()
                && from.len() == to.len()
                && (0..to.len()).all(|i| at[i] <= from[i] && (i == dim || at[i] <= to[i])));
        require!(
            fits,
            IndexShape,
            "index has shape {:?}, expected no extent above those of src, {from:?}, and of input, {:?}, but in \
             dimension {dim}",
            index.shape(),
            input.shape()
        );
        match src {
            Operand::Tensor(src) => same_dtype(("input", input), ("src", src), Code::SameDType)?,
            Operand::Scalar(value) => fills("src", value, input.dtype(), Code::Value.name())?,
        }
        Ok(())
    }

    fn decomposition(
        input: Tensor,
        dim: i64,
        index: Tensor,
        src: Operand<Tensor>,
        reduce: Option<ScatterUpdate>,
    ) -> Tensor {
        let (shape, dim) = (input.shape(), position(dim, input.rank()));
        if index.meta().is_empty() {
            return input;
        }
        let (own, index) = (at_least_1d(input), at_least_1d(index));
        let extents = index.shape();
        let src = match src {
            Operand::Tensor(src) => {
                let src = at_least_1d(src);
                (0..extents.len()).fold(src, |src, i| piece(src, i, 0, extents[i]))
            }
            Operand::Scalar(value) => {
                let value = operand_number(value, input.dtype());
                broadcast(prims::full([], number(value, input.dtype()), input.dtype(), input.device()), &extents)
            }
        };
        let out = match reduce {
            None => prims::scatter(own, dim, index, src),
            Some(ScatterUpdate::Add) => reduced(own, dim, index, src, (ScatterReduction::Sum, true)),
            Some(ScatterUpdate::Multiply) => reduced(own, dim, index, src, (ScatterReduction::Prod, true)),
        };
        read_as(out, &shape)
    }

    fn reference(
        input: &ReferenceTensor,
        dim: i64,
        index: &ArrayD<i64>,
        src: ArrayD<f64>,
        reduce: Option<ScatterUpdate>,
    ) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.shape().len());
        in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        let rank = input.shape().len();
        let mut out = input.floats().clone();
        for (at, target) in index.indexed_iter() {
            let mut to = ndarray::Dimension::slice(&at).to_vec();
            // A number has no dimensions.
            let mut from = to.clone();
            from.resize(src.ndim(), 0);
            let value = src[from.as_slice()];
            to.resize(rank, 0);
            if rank > 0 {
                to[dim] = *target as usize;
            }
            let place = &mut out[to.as_slice()];
            *place = match reduce {
                None => value,
                Some(ScatterUpdate::Add) => *place + value,
                Some(ScatterUpdate::Multiply) => *place * value,
            };
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(
            s.normal([4, 5]),
            0,
            s.values([2, 3], [0.0, 1.0, 3.0, 2.0, 0.0, 1.0]).cast(DType::I64),
            s.normal([3, 3]),
        ));
        s.case(with(s.normal([3, 4]), -1, s.integers(0, 4, [3, 2]), 2i64));
        s.case(with(s.normal([4, 4]), 1, s.values([1, 3], [0.0, 3.0, 1.0]).cast(DType::I64), s.normal([4, 4])));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), s.normal([2])));
        s.case(with(s.normal([3]), 0, s.integers(0, 3, [0]), s.normal([3])));
        for reduce in [ScatterUpdate::Add, ScatterUpdate::Multiply] {
            s.case(with(s.normal([4, 3]), 0, s.integers(0, 4, [2, 3]), s.normal([2, 3])).reduce(reduce));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let index = || e.integers(0, 2, [2, 3]);
        e.case(IndexShape, with(e.normal([2, 3]), 0, index(), e.normal([1, 3])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([2, 3]), 0, index(), e.normal([6])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([6]), 0, index(), e.normal([2, 3])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([2, 2]), 0, index(), 1i64), "and of input, [2, 2]");
        let one = with(e.normal([2, 3]), 0, e.integers(0, 2, [1, 4]), e.normal([1, 4]));
        e.case(IndexShape, one, "index has shape [1, 4]");
        e.case(SameDType, with(e.normal([2]), 0, e.integers(0, 2, [2]), e.of(DType::I32, [2])), "src is i32");
        e.case(Value, with(e.of(DType::I64, [2]), 0, e.integers(0, 2, [1]), f64::NAN), "src is nan");
        for index in [3.0, -1.0] {
            let index = e.values([1, 2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index, e.normal([1, 2])), "of size 3");
        }
    }
}

/// `input` with elements of `source`, one after another in row-major order, where `mask` holds. `input` and `mask`
/// broadcast. That `source` has fewer elements than `mask` asks for is an error when the program runs.
#[operator(torch = "masked_scatter")]
pub mod masked_scatter {
    fn masked_scatter(input: Tensor, mask: Tensor<Boolean>, source: Tensor) -> Tensor;

    fn requires(input: &TensorMeta, mask: &TensorMeta, source: &TensorMeta) -> Result<()> {
        let shape = broadcast_shapes(&[input.shape(), mask.shape()]);
        require!(
            shape.is_some(),
            Broadcast,
            "input has shape {:?}, mask {:?}: they do not broadcast",
            input.shape(),
            mask.shape()
        );
        same_dtype(("input", input), ("source", source), Code::SameDType)?;
        let count: usize = shape.unwrap_or_default().iter().product();
        require!(!source.is_empty() || count == 0, Empty, "source has shape {:?}, expected elements", source.shape());
        Ok(())
    }

    fn decomposition(input: Tensor, mask: Tensor, source: Tensor) -> Tensor {
        let shape = broadcast_shapes(&[&input.shape(), &mask.shape()]).unwrap_or_default();
        let (input, mask) = (broadcast(input, &shape), broadcast(mask, &shape));
        if shape.contains(&0) {
            return input;
        }
        let flat = flatten(mask);
        // The place of each element in the source: how many come before it.
        let taken = cumsum(cast(flat, DType::I64), 0);
        let places = prims::select(flat, prims::sub(taken, 1), 0);
        let elements = prims::index_select(flatten(source), 0, places);
        prims::select(mask, read_as(elements, &shape), input)
    }

    fn reference(input: &ArrayD<f64>, mask: &ArrayD<bool>, source: &ArrayD<f64>) -> Result<ArrayD<f64>> {
        let shape = broadcast_shapes(&[input.shape(), mask.shape()]).unwrap_or_default();
        let (mut out, mask) = (spread(input, &shape), spread(mask, &shape));
        let mut rest = source.iter();
        for (element, holds) in out.iter_mut().zip(&mask) {
            if *holds {
                let few =
                    || Failure::new("IndexOutOfRange", format!("index {} of size {}", source.len(), source.len()));
                *element = *rest.next().ok_or_else(few)?;
            }
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.booleans([3, 4]), s.normal([4, 4])));
        s.case(with(s.normal([3, 1]), s.booleans([4]), s.normal([12])));
        s.case(with(s.normal([2, 2]), s.booleans([2, 2]), s.normal([2, 2])));
        s.case(with(s.normal([]), s.booleans([]), s.normal([1])));
        s.case(with(s.normal([0, 2]), s.booleans([2]), s.normal([0])));
        let first = s.values([2], [1.0, 0.0]).cast(DType::Bool);
        s.case(with(s.normal([2]), first, s.normal([1])));
        let two = s.values([3], [1.0, 0.0, 1.0]).cast(DType::Bool);
        s.case(with(s.normal([1, 3]), two, s.normal([2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.booleans([2]), e.normal([6])), "they do not broadcast");
        e.case(SameDType, with(e.of(DType::F32, [2]), e.booleans([2]), e.of(DType::F64, [2])), "source is f64");
        e.case(Empty, with(e.normal([2]), e.booleans([2]), e.normal([0])), "expected elements");
        let all = e.values([3], [1.0]).cast(DType::Bool);
        e.when_run("IndexOutOfRange", with(e.normal([3]), all, e.normal([2])), "of size 2");
    }
}

/// `input` with `src` in place of the slice at `index` of dimension `dim`.
#[operator(torch = "select_scatter")]
pub mod select_scatter {
    fn select_scatter(input: Tensor, src: Tensor, dim: i64, index: i64) -> Tensor;

    fn requires(input: &TensorMeta, src: &TensorMeta, dim: i64, index: i64) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape()[dim] as i64;
        require!((-extent..extent).contains(&index), Index, "index is {index}, dimension {dim} has extent {extent}");
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        let mut shape = input.shape().to_vec();
        shape.remove(dim);
        require!(*src.shape() == shape, Shape, "src has shape {:?}, expected {shape:?}", src.shape());
        Ok(())
    }

    fn decomposition(input: Tensor, src: Tensor, dim: i64, index: i64) -> Tensor {
        let mut shape = input.shape().to_vec();
        let dim = position(dim, shape.len());
        let first = index.rem_euclid(shape[dim] as i64) as usize;
        shape[dim] = 1;
        super::with_part(input, read_as(src, &shape), dim, first, 1)
    }

    fn reference(input: &ArrayD<f64>, src: &ArrayD<f64>, dim: i64, index: i64) -> ArrayD<f64> {
        let mut out = input.clone();
        let dim = dim.rem_euclid(input.ndim() as i64) as usize;
        let index = index.rem_euclid(input.shape()[dim] as i64) as usize;
        out.index_axis_mut(ndarray::Axis(dim), index).assign(src);
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([4]), 0, 1));
        s.case(with(s.normal([2, 3, 2]), s.normal([2, 2]), -2, -1));
        s.case(with(s.normal([3, 3]), s.normal([3]), 1, 2));
        s.case(with(s.normal([1]), s.normal([]), 0, 0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), e.normal([]), 0, 0), "input has no dimensions");
        e.case(Index, with(e.normal([2, 3]), e.normal([3]), 0, 2), "index is 2");
        e.case(Index, with(e.normal([2, 3]), e.normal([3]), 0, -3), "index is -3");
        e.case(SameDType, with(e.of(DType::F32, [2]), e.of(DType::F64, []), 0, 0), "src is f64");
        e.case(Shape, with(e.normal([2, 3]), e.normal([2]), 0, 0), "src has shape [2], expected [3]");
    }
}

/// `input` with `src` in place of the elements of dimension `dim` from `start` up to, not including, `end`, every
/// `step`-th of them. Negative bounds count from the end; absent ones are the whole dimension's.
#[operator(
    torch = "slice_scatter",
    waive(
        dim = "the shape of src says it",
        end = "the shape of src says it",
        step = "the shape of src says it, but where src is empty"
    )
)]
pub mod slice_scatter {
    fn slice_scatter(
        input: Tensor,
        src: Tensor,
        #[default(0)] dim: i64,
        #[default(None)] start: Option<i64>,
        #[default(None)] end: Option<i64>,
        #[default(1)] step: i64,
    ) -> Tensor;

    fn requires(Args { input, src, dim, start, end, step }: Args<&TensorMeta>) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        require!(step > 0, Step, "step is {step}, expected a positive number");
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        let mut shape = input.shape().to_vec();
        let (first, last) = super::bounds(shape[dim], start, end);
        shape[dim] = (last - first).div_ceil(step as usize);
        require!(*src.shape() == shape, Shape, "src has shape {:?}, expected {shape:?}", src.shape());
        Ok(())
    }

    fn decomposition(Args { input, src, dim, start, end, step }: Args<Tensor>) -> Tensor {
        let dim = position(dim, input.rank());
        let (first, _) = super::bounds(input.shape()[dim], start, end);
        super::with_part(input, src, dim, first, step as usize)
    }

    fn reference(Args { input, src, dim, start, end, step }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let mut out = input.floats().clone();
        let dim = dim.rem_euclid(input.shape().len() as i64) as usize;
        let extent = input.shape()[dim] as i64;
        let place = |at: i64| (if at < 0 { at + extent } else { at }).clamp(0, extent);
        let (first, last) = (place(start.unwrap_or(0)), place(end.unwrap_or(extent)));
        let mut at = first;
        let mut from = 0;
        while at < last {
            let part = src.floats().index_axis(ndarray::Axis(dim), from);
            out.index_axis_mut(ndarray::Axis(dim), at as usize).assign(&part);
            at += step;
            from += 1;
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6, 2]), s.normal([3, 2])).start(1).end(4));
        s.case(with(s.normal([2, 7]), s.normal([2, 3])).dim(-1).start(1).step(2).end(-1));
        s.case(with(s.normal([3, 3]), s.normal([3, 2])).dim(1).start(-2));
        s.case(with(s.normal([3]), s.normal([3])));
        s.case(with(s.normal([3]), s.normal([0])).start(2).end(1));
        s.case(with(s.normal([2, 7]), s.normal([2, 4])).dim(1).step(2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), e.normal([])), "input has no dimensions");
        e.case(Step, with(e.normal([2]), e.normal([2])).step(0), "step is 0");
        e.case(SameDType, with(e.of(DType::F32, [2]), e.of(DType::F64, [2])), "src is f64");
        e.case(Shape, with(e.normal([4]), e.normal([3])).start(2), "src has shape [3], expected [2]");
    }
}

/// Where a slice of a dimension begins and ends.
fn bounds(extent: usize, start: Option<i64>, end: Option<i64>) -> (usize, usize) {
    let place = |at: i64| {
        let at = if at < 0 { at.saturating_add(extent as i64).max(0) } else { at };
        (at as usize).min(extent)
    };
    let (first, last) = (start.map_or(0, place), end.map_or(extent, place));
    (first, last.max(first))
}

/// `input` with `part` in place of every `step`-th element of `dim` from `first` on.
#[track_caller]
fn with_part(input: Tensor, part: Tensor, dim: usize, first: usize, step: usize) -> Tensor {
    let (extent, count) = (input.shape()[dim], part.shape()[dim]);
    if count == 0 || (count == extent && step == 1) {
        return if count == 0 { input } else { part };
    }
    if step > 1 && count > 1 {
        // Each element with those that are stepped over, which are the input's.
        let shape = input.shape().to_vec();
        let mut places = vec![0; shape.len()];
        places[dim] = first;
        let reach = (count - 1) * step + 1;
        let mut apart = part.shape().to_vec();
        apart.insert(dim + 1, 1);
        let mut high = vec![0; apart.len()];
        high[dim + 1] = step - 1;
        let zero = number(Scalar::Int(0), input.dtype());
        let grouped = prims::pad(prims::reshape(part, &apart), vec![0; apart.len()], high, zero);
        let mut joined = shape.clone();
        joined[dim] = count * step;
        let wide = piece(prims::reshape(grouped, joined), dim, 0, reach);
        let mut after = vec![0; shape.len()];
        after[dim] = extent - first - reach;
        let spread = prims::pad(wide, places, after, zero);
        let at = prims::iota(extent, 0i64, 1i64, DType::I64, input.device());
        let beyond = prims::sub(at, first as i64);
        let inside = prims::logical_and(prims::ge(beyond, 0), prims::lt(beyond, reach as i64));
        let hit = prims::logical_and(inside, prims::eq(prims::remainder(beyond, step as i64), 0));
        let mask = if shape.len() == 1 { hit } else { prims::broadcast_in_dim(hit, &shape, [dim]) };
        return prims::select(mask, spread, input);
    }
    let last = first + count;
    let parts =
        [(0, first), (last, extent - last)].map(|(from, length)| (length > 0).then(|| piece(input, dim, from, length)));
    let [before, after] = parts;
    prims::cat([before, Some(part), after].into_iter().flatten().collect::<Vec<_>>(), dim)
}

/// `input` with `src` in place of the diagonal of the matrices in the dimensions `dim1` and `dim2`, `offset` places
/// above the main one (below it if negative). The last dimension of `src` is along the diagonal.
#[operator(torch = "diagonal_scatter")]
pub mod diagonal_scatter {
    fn diagonal_scatter(
        input: Tensor,
        src: Tensor,
        #[default(0)] offset: i64,
        #[default(0)] dim1: i64,
        #[default(1)] dim2: i64,
    ) -> Tensor;

    fn requires(Args { input, src, offset, dim1, dim2 }: Args<&TensorMeta>) -> Result<()> {
        require!(input.rank() >= 2, Rank, "input has shape {:?}, expected at least two dimensions", input.shape());
        let (first, second) = (normalize_dim(dim1, input.rank())?, normalize_dim(dim2, input.rank())?);
        require!(first != second, Dims, "dim1 is {dim1} and dim2 {dim2}, expected two dimensions");
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        let shape = super::diagonal_shape(input.shape(), offset, first, second);
        require!(*src.shape() == shape, Shape, "src has shape {:?}, expected {shape:?}", src.shape());
        Ok(())
    }

    fn decomposition(Args { input, src, offset, dim1, dim2 }: Args<Tensor>) -> Tensor {
        if src.meta().is_empty() {
            return input;
        }
        let matrices = super::super::movedim(input, [dim1, dim2], [-2, -1]);
        let shape = matrices.shape().to_vec();
        let rows = shape[shape.len() - 2];
        // The element of each row is that of the diagonal there.
        let below = offset.min(0).unsigned_abs() as usize;
        let length = src.shape()[src.rank() - 1];
        let mut low = vec![0; src.rank()];
        let mut high = low.clone();
        (low[src.rank() - 1], high[src.rank() - 1]) = (below, rows - below - length);
        let zero = number(Scalar::Int(0), input.dtype());
        let of_rows = if length == rows { src } else { prims::pad(src, low, high, zero) };
        let spread = prims::broadcast_in_dim(of_rows, &shape, (0..shape.len() - 1).collect::<Vec<_>>());
        let on = prims::eq(super::super::column_minus_row(&matrices.meta()), offset);
        let placed = prims::select(broadcast(on, &shape), spread, matrices);
        super::super::movedim(placed, [-2, -1], [dim1, dim2])
    }

    fn reference(Args { input, src, offset, dim1, dim2 }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let rank = input.shape().len();
        let [first, second] = [dim1, dim2].map(|dim| dim.rem_euclid(rank as i64) as usize);
        let mut out = input.floats().clone();
        for (at, element) in out.indexed_iter_mut() {
            let at = ndarray::Dimension::slice(&at);
            let (row, column) = (at[first] as i64, at[second] as i64);
            if column - row == offset {
                let others = (0..rank).filter(|dim| *dim != first && *dim != second).map(|dim| at[dim]);
                let from: Vec<usize> = others.chain([row.min(column) as usize]).collect();
                *element = src.floats()[from.as_slice()];
            }
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([3])));
        s.case(with(s.normal([3, 4]), s.normal([2])).offset(-1));
        s.case(with(s.normal([2, 3, 4]), s.normal([3, 1])).offset(1).dim1(-1).dim2(0));
        s.case(with(s.normal([3, 3]), s.normal([1])).offset(2));
        s.case(with(s.normal([2, 2]), s.normal([0])).offset(5));
        s.case(with(s.normal([3, 3, 3]), s.normal([3, 2])).offset(1).dim1(1).dim2(2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), e.normal([3])), "at least two dimensions");
        e.case(Dims, with(e.normal([2, 2]), e.normal([2])).dim2(-2), "expected two dimensions");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2])), "src is f64");
        e.case(Shape, with(e.normal([2, 3]), e.normal([3])), "src has shape [3], expected [2]");
    }
}

/// The shape of a diagonal of `shape`.
fn diagonal_shape(shape: &[usize], offset: i64, first: usize, second: usize) -> Vec<usize> {
    let (above, below) = (offset.max(0) as usize, offset.min(0).unsigned_abs() as usize);
    let length = shape[first].saturating_sub(below).min(shape[second].saturating_sub(above));
    let others = (0..shape.len()).filter(|dim| *dim != first && *dim != second).map(|dim| shape[dim]);
    others.chain([length]).collect()
}
