//! Elements read and written at positions: those that an index names, and those of a slice or a diagonal.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::reference::ReferenceTensor;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{rearranged, spread, values};
use super::promotion::{broadcast, broadcast_shapes, cast, fills, number, operand_number, position};
use super::{at_least_1d, cumsum, flatten, in_range, piece, read_as};
use crate::prims;
use crate::prims::checks::same_dtype;

/// The elements of `input` at the positions `index` among all elements in row-major order; a negative position counts
/// from the end. A position out of range is an error when the program runs.
#[operator(torch = "take")]
pub mod take {
    fn take(input: Tensor, index: Tensor<Integer>) -> Tensor;

    fn requires(input: &TensorMeta, index: &TensorMeta) -> Result<()> {
        require!(
            !input.is_empty() || index.is_empty(),
            Empty,
            "input has shape {:?}, expected elements for an index of shape {:?}",
            input.shape(),
            index.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, index: Tensor) -> Tensor {
        let (count, shape) = (input.meta().len(), index.shape());
        let places = super::from_start(read_as(index, &[index.meta().len()]), count);
        read_as(prims::index_select(flatten(input), 0, places), &shape)
    }

    fn reference(input: &ReferenceTensor, index: &ArrayD<i64>) -> Result<ReferenceTensor> {
        let count = input.floats().len() as i64;
        let places = index.mapv(|at| if at < 0 { at + count } else { at });
        in_range(&places, count as usize)?;
        let shape = input.shape().to_vec();
        Ok(rearranged(input, index.shape(), 0.0, |at| {
            let mut rest = places[at] as usize;
            let mut from = vec![0; shape.len()];
            for (place, extent) in from.iter_mut().zip(&shape).rev() {
                (*place, rest) = (rest % extent, rest / extent);
            }
            Some(from)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.integers(-12, 12, [2, 5])));
        s.case(with(s.normal([]), s.integers(0, 1, [2])));
        s.case(with(s.normal([5]), s.integers(0, 5, [])));
        s.case(with(s.normal([0]), s.integers(0, 1, [0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Empty, with(e.normal([0, 2]), e.integers(0, 1, [1])), "expected elements for an index");
        for index in [6.0, -7.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), index), "of size 6");
        }
    }
}

/// The elements of `input` along `dim` at the positions `indices`; both broadcast in the other dimensions. Without
/// `dim` both are taken as one dimension. A position out of range is an error when the program runs.
#[operator(torch = "take_along_dim")]
pub mod take_along_dim {
    fn take_along_dim(input: Tensor, indices: Tensor<Integer>, #[default(None)] dim: Option<i64>) -> Tensor;

    fn requires(input: &TensorMeta, indices: &TensorMeta, dim: Option<i64>) -> Result<()> {
        let Some(dim) = dim else { return Ok(()) };
        require!(
            input.rank() == indices.rank(),
            Rank,
            "input has shape {:?} and indices {:?}, expected as many dimensions",
            input.shape(),
            indices.shape()
        );
        let dim = normalize_dim(dim, input.rank())?;
        let others = |meta: &TensorMeta| -> Vec<usize> {
            (0..meta.rank()).filter(|i| *i != dim).map(|i| meta.shape()[i]).collect()
        };
        require!(
            broadcast_shapes(&[&others(input), &others(indices)]).is_some(),
            Broadcast,
            "input has shape {:?} and indices {:?}, which do not broadcast but in dimension {dim}",
            input.shape(),
            indices.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, indices: Tensor, dim: Option<i64>) -> Tensor {
        let Some(dim) = dim else { return prims::gather(flatten(input), 0, flatten(indices)) };
        if input.rank() == 0 {
            return read_as(prims::gather(at_least_1d(input), 0, at_least_1d(indices)), &[]);
        }
        let dim = position(dim, input.rank());
        let [to_input, to_indices] = super::facing(&input.shape(), &indices.shape(), dim);
        prims::gather(broadcast(input, &to_input), dim, broadcast(indices, &to_indices))
    }

    fn reference(input: &ReferenceTensor, indices: &ArrayD<i64>, dim: Option<i64>) -> Result<ReferenceTensor> {
        let Some(dim) = dim else {
            let count = input.floats().len();
            in_range(indices, count)?;
            let places = values(indices);
            let shape = input.shape().to_vec();
            return Ok(rearranged(input, &[places.len()], 0.0, |at| {
                let mut rest = places[at[0]] as usize;
                let mut from = vec![0; shape.len()];
                for (place, extent) in from.iter_mut().zip(&shape).rev() {
                    (*place, rest) = (rest % extent, rest / extent);
                }
                Some(from)
            }));
        };
        let rank = input.shape().len();
        let dim = position(dim, rank);
        in_range(indices, input.shape().get(dim).copied().unwrap_or(1))?;
        let shape: Vec<usize> = (0..rank)
            .map(|i| match (indices.shape()[i], input.shape()[i]) {
                (own, _) if i == dim => own,
                (1, other) => other,
                (own, _) => own,
            })
            .collect();
        let indices = spread(indices, &shape);
        Ok(rearranged(input, &shape, 0.0, |at| {
            let place = |i: usize| if input.shape()[i] == 1 { 0 } else { at[i] };
            let mut from: Vec<usize> = (0..rank).map(place).collect();
            if rank > 0 {
                from[dim] = indices[at] as usize;
            }
            Some(from)
        }))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.integers(0, 4, [3, 2])).dim(1));
        s.case(with(s.normal([3, 1]), s.integers(0, 3, [2, 5])).dim(-2));
        s.case(with(s.normal([3, 4]), s.integers(0, 12, [2, 2])));
        s.case(with(s.normal([4, 4]), s.integers(0, 4, [1, 4])).dim(0));
        s.case(with(s.normal([]), s.integers(0, 1, [])).dim(0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3]), e.integers(0, 2, [2])).dim(0), "expected as many dimensions");
        let apart = with(e.normal([2, 3]), e.integers(0, 2, [3, 1])).dim(1);
        e.case(Broadcast, apart, "do not broadcast but in dimension 1");
        for index in [3.0, -1.0] {
            let index = e.values([1, 2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), index).dim(1), "of size 3");
        }
    }
}

/// The shapes that `input` and `indices` broadcast to, each with its own extent in `dim`.
fn facing(input: &[usize], indices: &[usize], dim: usize) -> [Vec<usize>; 2] {
    let mut own = input.to_vec();
    own[dim] = indices[dim];
    let mut shape = broadcast_shapes(&[&own, indices]).unwrap_or_default();
    let to_indices = shape.clone();
    shape[dim] = input[dim];
    [shape, to_indices]
}

/// `input` with `value`, a number or a tensor without dimensions, at the positions `index` of `dim`; negative ones
/// count from the end. A position out of range is an error when the program runs.
#[operator(torch = "index_fill")]
pub mod index_fill {
    fn index_fill(input: Tensor, dim: i64, index: Tensor<Integer>, value: Operand) -> Tensor;

    fn requires(input: &TensorMeta, dim: i64, index: &TensorMeta, value: Operand<&TensorMeta>) -> Result<()> {
        normalize_dim(dim, input.rank())?;
        require!(index.rank() <= 1, IndexRank, "index has shape {:?}, expected one dimension at most", index.shape());
        match value {
            Operand::Scalar(value) => fills("value", value, input.dtype(), Code::Value.name())?,
            Operand::Tensor(value) => require!(
                value.rank() == 0,
                ValueRank,
                "value has shape {:?}, expected a number or a tensor without dimensions",
                value.shape()
            ),
        }
        Ok(())
    }

    fn decomposition(input: Tensor, dim: i64, index: Tensor, value: Operand<Tensor>) -> Tensor {
        let shape = input.shape().to_vec();
        let dim = position(dim, shape.len());
        let extent = shape.get(dim).copied().unwrap_or(1);
        let places = super::from_start(at_least_1d(index), extent);
        let none = prims::full([extent], false, DType::Bool, input.device());
        let all = broadcast(prims::full([], true, DType::Bool, input.device()), &[places.meta().len()]);
        let named = prims::scatter(none, 0, places, all);
        let mask = match shape.is_empty() {
            true => prims::reshape(named, []),
            false if shape.len() == 1 => named,
            false => prims::broadcast_in_dim(named, &shape, [dim]),
        };
        let fill = match value {
            Operand::Scalar(value) => Operand::Scalar(operand_number(value, input.dtype())),
            Operand::Tensor(value) => Operand::Tensor(broadcast(cast(value, input.dtype()), &shape)),
        };
        prims::select(mask, fill, input)
    }

    fn reference(input: &ArrayD<f64>, dim: i64, index: &ArrayD<i64>, value: ArrayD<f64>) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.ndim());
        let extent = input.shape().get(dim).copied().unwrap_or(1);
        let places = index.mapv(|at| if at < 0 { at + extent as i64 } else { at });
        in_range(&places, extent)?;
        let mut out = input.clone();
        for (at, element) in out.indexed_iter_mut() {
            let own = ndarray::Dimension::slice(&at).get(dim).copied().unwrap_or(0);
            if places.iter().any(|place| *place as usize == own) {
                *element = value[[]];
            }
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), 1, s.values([2], [0.0, -1.0]).cast(DType::I64), 2i64));
        s.case(with(s.normal([5, 2]), -2, s.values([3], [1.0, 3.0, 1.0]).cast(DType::I64), s.normal([])));
        s.case(with(s.normal([4, 4]), 0, s.integers(0, 4, []), 0i64));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), 1i64));
        s.case(with(s.normal([3]), 0, s.integers(0, 3, [0]), 1i64));
    }

    fn errors(e: &mut ErrorSamples) {
        let index = || e.integers(0, 2, [1]);
        e.case(IndexRank, with(e.normal([2, 3]), 0, e.integers(0, 2, [1, 1]), 0i64), "index has shape [1, 1]");
        e.case(Value, with(e.of(DType::I64, [2]), 0, index(), f64::NAN), "value is nan, which i64 cannot hold");
        e.case(ValueRank, with(e.normal([2]), 0, index(), e.normal([1])), "value has shape [1]");
        for index in [3.0, -4.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), 1, index, 0i64), "of size 3");
        }
    }
}

/// A vector of `num_classes` for each class number of `tensor`, with 1 at the class and 0 elsewhere. PyTorch takes the
/// largest number for the last class if `num_classes` is -1; here shapes do not depend on data, so it is required. A
/// number out of range is an error when the program runs.
#[operator(torch = "nn.functional.one_hot", no_grad = "a class number has no gradient")]
pub mod one_hot {
    fn one_hot(tensor: Tensor<Integer>, num_classes: i64) -> Tensor;

    fn requires(tensor: &TensorMeta, num_classes: i64) -> Result<()> {
        require!(tensor.dtype() == DType::I64, ClassType, "tensor is {tensor}, expected class numbers of i64");
        require!(
            num_classes > 0 || (num_classes == 0 && tensor.is_empty()),
            Classes,
            "num_classes is {num_classes}, expected a positive number: a shape does not depend on data here"
        );
        Ok(())
    }

    fn decomposition(tensor: Tensor, num_classes: i64) -> Tensor {
        let own = tensor.shape().to_vec();
        let shape = [&own[..], &[num_classes as usize]].concat();
        let zeros = broadcast(prims::full([], 0i64, DType::I64, tensor.device()), &shape);
        let one = [&own[..], &[1]].concat();
        let ones = broadcast(prims::full([], 1i64, DType::I64, tensor.device()), &one);
        if num_classes == 0 {
            return zeros;
        }
        prims::scatter(zeros, shape.len() - 1, prims::reshape(tensor, &one), ones)
    }

    fn reference(tensor: &ArrayD<i64>, num_classes: i64) -> Result<ArrayD<i64>> {
        in_range(tensor, num_classes as usize)?;
        let shape = [tensor.shape(), &[num_classes as usize]].concat();
        Ok(ArrayD::from_shape_fn(IxDyn(&shape), |at| {
            let at = ndarray::Dimension::slice(&at).to_vec();
            let (class, place) = (at[at.len() - 1], &at[..at.len() - 1]);
            i64::from(tensor[place] == class as i64)
        }))
    }

    fn samples(s: &mut Samples) {
        let _ = s.dtype();
        s.case(with(s.integers(0, 4, [2, 3]), 4));
        s.case(with(s.integers(0, 2, []), 3));
        s.case(with(s.integers(0, 2, [0]), 2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ClassType, with(e.of(DType::I32, [2]), 3), "expected class numbers of i64");
        e.case(Classes, with(e.integers(0, 2, [2]), -1), "a shape does not depend on data here");
        e.case(Classes, with(e.integers(0, 2, [2]), 0), "num_classes is 0");
        for class in [3.0, -1.0] {
            let classes = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(classes, 3), "of size 3");
        }
    }
}

/// `input` with elements replaced where `index` says: `out[index[i][j]][j] = src[i][j]` for `dim = 0`, likewise for
/// other dimensions. `src` may be a number. Of several for one place the last in row-major order is kept, and it alone
/// has a gradient. A position out of range is an error when the program runs.
#[operator(torch = "scatter", autocast = widest)]
pub mod scatter {
    fn scatter(input: Tensor, dim: i64, index: Tensor<Integer>, src: Operand) -> Tensor;

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

    fn decomposition(input: Tensor, dim: i64, index: Tensor, src: Operand<Tensor>) -> Tensor {
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
        read_as(prims::scatter(own, dim, index, src), &shape)
    }

    fn reference(input: &ReferenceTensor, dim: i64, index: &ArrayD<i64>, src: ArrayD<f64>) -> Result<ArrayD<f64>> {
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
            out[to.as_slice()] = value;
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
    }

    fn errors(e: &mut ErrorSamples) {
        let index = || e.integers(0, 2, [2, 3]);
        e.case(IndexShape, with(e.normal([2, 3]), 0, index(), e.normal([1, 3])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([2, 3]), 0, index(), e.normal([6])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([6]), 0, index(), e.normal([2, 3])), "index has shape [2, 3]");
        e.case(IndexShape, with(e.normal([2, 2]), 0, index(), 1i64), "and of input, [2, 2]");
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

// Declares arrangements of channels, the third dimension from the end, and of pixels, the last two.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, $factor: usize) -> Tensor;

        fn requires(input: &TensorMeta, $factor: usize) -> Result<()> {
            let name = stringify!($factor);
            require!(
                input.rank() >= 3,
                Rank,
                "input has shape {:?}, expected at least three dimensions",
                input.shape()
            );
            require!($factor > 0, Factor, "{name} is 0, expected a positive number");
            let [channels, height, width] = super::image(input.shape());
            let fits: fn(usize, usize, usize, usize) -> bool = $fits;
            require!(
                fits(channels, height, width, $factor),
                Extents,
                "{name} is {}, input has shape {:?}, expected {}",
                $factor,
                input.shape(),
                $expected
            );
            Ok(())
        }

        fn decomposition(input: Tensor, $factor: usize) -> Tensor {
            let shape = input.shape().to_vec();
            let [channels, height, width] = super::image(&shape);
            let batch: usize = shape[..shape.len() - 3].iter().product();
            let parts: fn([usize; 4], usize) -> ([usize; 6], [usize; 6], [usize; 3]) = $parts;
            let (apart, order, image) = parts([batch, channels, height, width], $factor);
            let moved = prims::permute(read_as(input, &apart), order);
            read_as(moved, &[&shape[..shape.len() - 3], &image].concat())
        }

        fn reference(input: &ReferenceTensor, $factor: usize) -> ReferenceTensor {
            let rank = input.shape().len();
            let mut shape = input.shape().to_vec();
            let made: fn([usize; 3], usize) -> [usize; 3] = $made;
            shape[rank - 3..].copy_from_slice(&made(super::image(input.shape()), $factor));
            let source: fn([usize; 3], usize) -> [usize; 3] = $source;
            rearranged(input, &shape, 0.0, |at| {
                let from = source([at[rank - 3], at[rank - 2], at[rank - 1]], $factor);
                Some([&at[..rank - 3], &from].concat())
            })
        }

        fn samples(s: &mut Samples) {
            let cases: [(&[usize], usize); 4] = $cases;
            for (shape, factor) in cases {
                s.case(with(s.normal(shape), factor));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Rank, with(e.normal([2, 2]), 1), "at least three dimensions");
            e.case(Factor, with(e.normal([2, 2, 2]), 0), "is 0, expected a positive number");
            e.case(Extents, with(e.normal([3, 3, 3]), 2), "input has shape [3, 3, 3]");
        }
    }

    table($name, $torch, $factor, $fits, $expected, $parts, $made, $source, $cases) {
        /// The channels of each `upscale_factor²` as one with so many more pixels: `[..., C r², H, W]` becomes
        /// `[..., C, H r, W r]`.
        pixel_shuffle, "nn.functional.pixel_shuffle", upscale_factor,
            |channels, _, _, r| r.checked_mul(r).is_some_and(|square| channels.is_multiple_of(square)),
            "a multiple of its square of channels",
            |[n, c, h, w], r| ([n * (c / (r * r)), r, r, h, w, 1], [0, 3, 1, 4, 2, 5], [c / (r * r), h * r, w * r]),
            |[c, h, w], r| [c / (r * r), h * r, w * r],
            |[c, y, x], r| [(c * r + y % r) * r + x % r, y / r, x / r],
            [(&[2, 8, 2, 3], 2), (&[9, 1, 2], 3), (&[4, 2, 0], 2), (&[2, 3, 3], 1)];
        /// The pixels of each square of `downscale_factor²` as so many channels: `[..., C, H r, W r]` becomes
        /// `[..., C r², H, W]`.
        pixel_unshuffle, "nn.functional.pixel_unshuffle", downscale_factor,
            |_, height, width, r| r <= 1 << 16 && height.is_multiple_of(r) && width.is_multiple_of(r),
            "multiples of it of rows and columns",
            |[n, c, h, w], r| ([n * c, h / r, r, w / r, r, 1], [0, 2, 4, 1, 3, 5], [c * r * r, h / r, w / r]),
            |[c, h, w], r| [c * r * r, h / r, w / r],
            |[c, y, x], r| [c / (r * r), y * r + c / r % r, x * r + c % r],
            [(&[2, 2, 4, 6], 2), (&[1, 3, 6], 3), (&[2, 2, 0], 2), (&[2, 3, 3], 1)];
    }
}

/// The last three extents.
fn image(shape: &[usize]) -> [usize; 3] {
    match shape {
        [.., channels, height, width] => [*channels, *height, *width],
        _ => [1, 1, 1],
    }
}

/// The channels, the second dimension, of `groups` groups one of each after another.
#[operator(torch = "nn.functional.channel_shuffle")]
pub mod channel_shuffle {
    fn channel_shuffle(input: Tensor, groups: usize) -> Tensor;

    fn requires(input: &TensorMeta, groups: usize) -> Result<()> {
        require!(input.rank() >= 3, Rank, "input has shape {:?}, expected at least three dimensions", input.shape());
        require!(
            groups > 0 && input.shape()[1].is_multiple_of(groups),
            Groups,
            "groups is {groups}, expected a positive number that divides the {} channels",
            input.shape()[1]
        );
        Ok(())
    }

    fn decomposition(input: Tensor, groups: usize) -> Tensor {
        let shape = input.shape().to_vec();
        let rest: usize = shape[2..].iter().product();
        let apart = prims::reshape(input, [shape[0], groups, shape[1] / groups, rest]);
        prims::reshape(prims::permute(apart, [0, 2, 1, 3]), shape)
    }

    fn reference(input: &ReferenceTensor, groups: usize) -> ReferenceTensor {
        let shape = input.shape().to_vec();
        rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[1] = at[1] % groups * (shape[1] / groups) + at[1] / groups;
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 6, 3]), 2));
        s.case(with(s.normal([1, 6, 2, 2]), 3));
        s.case(with(s.normal([0, 4, 2]), 4));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 2]), 1), "at least three dimensions");
        e.case(Groups, with(e.normal([2, 3, 2]), 2), "divides the 3 channels");
        e.case(Groups, with(e.normal([2, 3, 2]), 0), "groups is 0");
    }
}

/// Positions, of which negative ones count from the end of a dimension of `extent`.
#[track_caller]
fn from_start(index: Tensor, extent: usize) -> Tensor {
    if index.dtype() == DType::U8 {
        return index;
    }
    let index = cast(index, DType::I64);
    prims::select(prims::lt(index, 0), prims::add(index, extent as i64), index)
}
