//! Elements at positions that a tensor holds, and numbers put there.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::reference::ReferenceTensor;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{rearranged, spread, values};
use super::promotion::{broadcast, broadcast_shapes, cast, fills, operand_number, position};
use super::{at_least_1d, flatten, in_range, parts, read_as};
use crate::prims;

/// The elements of `input` at the positions `index` among all elements in row-major order; a negative position counts
/// from the end. A position out of range is an error when the program runs.
#[operator(torch = "take", complex)]
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
        read_as(parts::index_select(flatten(input), 0, places), &shape)
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

/// The elements of `input` along `dim` at the positions `indices`, of which negative ones count from the end; both
/// broadcast in the other dimensions. Without `dim` both are taken as one dimension, where no position is negative. A
/// position out of range is an error when the program runs.
#[operator(torch = "take_along_dim", complex)]
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
        let Some(dim) = dim else { return parts::gather(flatten(input), 0, flatten(indices)) };
        if input.rank() == 0 {
            return read_as(parts::gather(at_least_1d(input), 0, from_start(at_least_1d(indices), 1)), &[]);
        }
        let dim = position(dim, input.rank());
        let [to_input, to_indices] = super::facing(&input.shape(), &indices.shape(), dim);
        let indices = from_start(indices, input.shape()[dim]);
        parts::gather(broadcast(input, &to_input), dim, broadcast(indices, &to_indices))
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
        let extent = input.shape().get(dim).copied().unwrap_or(1);
        let indices = indices.mapv(|i| if i < 0 { i + extent as i64 } else { i });
        in_range(&indices, extent)?;
        let shape: Vec<usize> = (0..rank)
            .map(|i| match (indices.shape()[i], input.shape()[i]) {
                (own, _) if i == dim => own,
                (1, other) => other,
                (own, _) => own,
            })
            .collect();
        let indices = spread(&indices, &shape);
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
        s.case(with(s.normal([3, 4]), s.integers(-4, 4, [3, 5])).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3]), e.integers(0, 2, [2])).dim(0), "expected as many dimensions");
        let apart = with(e.normal([2, 3]), e.integers(0, 2, [3, 1])).dim(1);
        e.case(Broadcast, apart, "do not broadcast but in dimension 1");
        for index in [3.0, -4.0] {
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
        s.case(with(s.integers(0, 2, [0]), 0));
        s.case(with(s.integers(0, 1, [2]), 1));
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

/// Positions, of which negative ones count from the end of a dimension of `extent`.
#[track_caller]
fn from_start(index: Tensor, extent: usize) -> Tensor {
    if index.dtype().is_unsigned() {
        return index;
    }
    let index = cast(index, DType::I64);
    prims::select(prims::lt(index, 0), prims::add(index, extent as i64), index)
}
