//! Writing and adding at indices of several dimensions, and of all elements in their order. Updates of one place are
//! added, or follow each other, in the order of the indices on every device.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::{DType, Failure, Tensor};

use super::arrays::{reshaped, spread};
use super::promotion::{accumulating, broadcast, broadcast_shapes, cast};
use crate::prims;
use crate::prims::checks::same_dtype;

/// `input` with `values` at `[indices[0], indices[1], ...]`, an index for each of the first dimensions of `input`; the
/// indices broadcast, and `values` broadcasts to their shape and the dimensions that are left. With `accumulate` they
/// are added, f16 and bf16 in f32; else the last for a place is kept. Negative indices count from the end; one out of
/// range is an error when the program runs. A mask of booleans is one index of several dimensions and the only one. The
/// number of its places depends on data, so `values` broadcasts to the dimensions that it leaves.
#[operator(torch = "index_put", autocast = widest)]
pub mod index_put {
    fn index_put(input: Tensor, indices: Vec<Tensor>, values: Tensor, #[default(false)] accumulate: bool) -> Tensor;

    fn meta(input: &TensorMeta, indices: &[TensorMeta], values: &TensorMeta) -> Result<TensorMeta> {
        require!(
            !indices.is_empty() && indices.len() <= input.rank(),
            Indices,
            "indices has {} tensors, expected 1 to {}, one for each of the first dimensions of input",
            indices.len(),
            input.rank()
        );
        let is_mask = indices[0].dtype() == DType::Bool && indices.len() == 1;
        let wrong = indices.iter().find(|index| !is_mask && !matches!(index.dtype(), DType::I32 | DType::I64));
        require!(
            wrong.is_none(),
            IndexType,
            "an index is {}, expected i32 or i64, or one mask of booleans",
            wrong.map_or(DType::I64, TensorMeta::dtype)
        );
        if is_mask {
            let mask = indices[0].shape();
            require!(input.shape().starts_with(mask), MaskShape, "the mask has shape {mask:?}, input is {input}");
        }
        let shapes: Vec<&[usize]> = indices.iter().map(TensorMeta::shape).collect();
        let common = broadcast_shapes(&shapes);
        require!(common.is_some(), Broadcast, "the indices have shapes {shapes:?}, which do not broadcast");
        let target = match is_mask {
            true => input.shape()[indices[0].rank()..].to_vec(),
            false => [common.unwrap_or_default(), input.shape()[indices.len()..].to_vec()].concat(),
        };
        require!(
            broadcast_shapes(&[values.shape(), &target]).as_ref() == Some(&target),
            ValuesShape,
            "values has shape {:?}, expected one that broadcasts to {target:?}: the indices', and what they leave of \
             input's",
            values.shape()
        );
        same_dtype(("input", input), ("values", values), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, indices: &[Tensor], values: Tensor, accumulate: bool) -> Tensor {
        let shape = input.shape().to_vec();
        if let [mask] = indices
            && mask.dtype() == DType::Bool
        {
            let chosen = prims::broadcast_in_dim(*mask, &*shape, (0..mask.rank()).collect::<Vec<_>>());
            let values = broadcast(values, &shape);
            let new = match (accumulate, input.dtype()) {
                (false, _) => values,
                (true, DType::Bool) => prims::logical_or(input, values),
                (true, _) => prims::add(input, values),
            };
            return prims::select(chosen, new, input);
        }
        let (chosen, rest) = shape.split_at(indices.len());
        let shapes: Vec<Vec<usize>> = indices.iter().map(|index| index.shape().to_vec()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        let common = broadcast_shapes(&shapes).unwrap_or_default();
        let count: usize = common.iter().product();
        let (places, width): (usize, usize) = (chosen.iter().product(), rest.iter().product());
        let mut place: Option<Tensor> = None;
        for (index, extent) in indices.iter().zip(chosen) {
            let own = prims::reshape(broadcast(places_below(*index, *extent), &common), [count]);
            place = Some(match place {
                Some(before) => prims::add(prims::mul(before, *extent as i64), own),
                None => own,
            });
        }
        let Some(place) = place else { return input };
        let target = [&common[..], rest].concat();
        let values = prims::reshape(broadcast(values, &target), [count, width]);
        let rows = prims::reshape(input, [places, width]);
        prims::reshape(put_rows(rows, place, values, accumulate), shape)
    }

    fn reference(
        input: &ReferenceTensor,
        indices: &[ReferenceTensor],
        values: &ReferenceTensor,
        accumulate: bool,
    ) -> Result<ArrayD<f64>> {
        if indices[0].dtype() == DType::Bool {
            let (mask, shape) = (indices[0].integers(), input.shape());
            let values = spread(values.floats(), shape);
            let of = |at: IxDyn| {
                let at = ndarray::Dimension::slice(&at);
                let (own, new) = (input.floats()[at], values[at]);
                match mask[&at[..mask.ndim()]] {
                    0 => own,
                    _ => joined(own, new, (input.dtype(), accumulate)),
                }
            };
            return Ok(ArrayD::from_shape_fn(IxDyn(shape), of));
        }
        let shapes: Vec<&[usize]> = indices.iter().map(ReferenceTensor::shape).collect();
        let common = broadcast_shapes(&shapes).unwrap_or_default();
        let target = [&common[..], &input.shape()[indices.len()..]].concat();
        let places: Vec<ArrayD<i64>> = indices.iter().map(|index| spread(index.integers(), &common)).collect();
        let mut out = input.floats().clone();
        for (index, extent) in indices.iter().zip(input.shape()) {
            for i in index.integers() {
                below(*i, *extent)?;
            }
        }
        for (at, value) in spread(values.floats(), &target).indexed_iter() {
            let at = ndarray::Dimension::slice(&at);
            let (first, rest) = at.split_at(common.len());
            let mut to = Vec::new();
            for (index, extent) in places.iter().zip(input.shape()) {
                to.push(below(index[first], *extent)?);
            }
            to.extend(rest);
            let place = &mut out[to.as_slice()];
            *place = joined(*place, *value, (input.dtype(), accumulate));
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        for accumulate in [false, true] {
            let index = s.integers(-4, 4, [7]);
            s.case(with(s.normal([4, 5]), vec![index], s.normal([7, 5])).accumulate(accumulate));
            let indices = vec![s.integers(0, 4, [3, 1]), s.integers(-5, 5, [2])];
            s.case(with(s.normal([4, 5, 2]), indices, s.normal([3, 2, 2])).accumulate(accumulate));
            let indices = vec![s.integers(0, 3, [6]).cast(DType::I32), s.integers(0, 2, [])];
            s.case(with(s.normal([3, 2]), indices, s.normal([])).accumulate(accumulate));
        }
        s.case(with(s.normal([4, 5]), vec![s.integers(0, 4, [0])], s.normal([5])));
        for accumulate in [false, true] {
            s.case(with(s.normal([4, 5]), vec![s.booleans([4])], s.normal([5])).accumulate(accumulate));
        }
        s.case(with(s.normal([2, 3, 2]), vec![s.booleans([2, 3])], s.normal([])));
        s.case(with(s.normal([4]), vec![s.integers(0, 4, [])], s.normal([])).accumulate(true));
    }

    fn errors(e: &mut ErrorSamples) {
        let at = |e: &ErrorSamples, shape: &[usize]| e.integers(0, 2, shape);
        e.case(Indices, with(e.normal([2]), Vec::new(), e.normal([])), "indices has 0 tensors, expected 1 to 1");
        let two = vec![at(e, &[2]), at(e, &[2])];
        e.case(Indices, with(e.normal([2]), two, e.normal([])), "indices has 2 tensors");
        let mask = vec![at(e, &[2]).cast(DType::U8)];
        e.case(IndexType, with(e.normal([2]), mask, e.normal([])), "an index is u8");
        let both = vec![e.booleans([2]), at(e, &[2])];
        e.case(IndexType, with(e.normal([2, 2]), both, e.normal([])), "an index is bool");
        e.case(MaskShape, with(e.normal([2, 2]), vec![e.booleans([3])], e.normal([])), "the mask has shape [3]");
        let apart = vec![at(e, &[2]), at(e, &[3])];
        e.case(Broadcast, with(e.normal([2, 2]), apart, e.normal([])), "[[2], [3]]");
        e.case(ValuesShape, with(e.normal([2, 4]), vec![at(e, &[3])], e.normal([2, 4])), "broadcasts to [3, 4]");
        e.case(ValuesShape, with(e.normal([2]), vec![at(e, &[1])], e.normal([2])), "broadcasts to [1]");
        e.case(SameDType, with(e.normal([2]), vec![at(e, &[2])], e.of(DType::I32, [2])), "values is i32");
        for index in [3.0, -4.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([3]), vec![index], e.normal([])), "of size 3");
        }
    }
}

/// `input` with the elements of `source` at `index`, counted in row-major order of all elements of `input`. With
/// `accumulate` they are added, f16 and bf16 in f32; else the last for a place is kept. Negative indices count from the
/// end; one out of range is an error when the program runs.
#[operator(torch = "Tensor.put", autocast = widest)]
pub mod put {
    fn put(input: Tensor, index: Tensor<Integer>, source: Tensor, #[default(false)] accumulate: bool) -> Tensor;

    fn meta(input: &TensorMeta, index: &TensorMeta, source: &TensorMeta) -> Result<TensorMeta> {
        require!(
            index.len() == source.len(),
            Count,
            "index has {} elements, source {}, expected as many",
            index.len(),
            source.len()
        );
        require!(
            index.is_empty() || !input.is_empty(),
            Empty,
            "input has shape {:?} and no element, index has {}",
            input.shape(),
            index.len()
        );
        same_dtype(("input", input), ("source", source), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor {
        let (meta, count) = (input.meta(), index.meta().len());
        let place = prims::reshape(places_below(index, meta.len()), [count]);
        let rows = prims::reshape(input, [meta.len(), 1]);
        let out = put_rows(rows, place, prims::reshape(source, [count, 1]), accumulate);
        prims::reshape(out, meta.shape())
    }

    fn reference(
        input: &ReferenceTensor,
        index: &ArrayD<i64>,
        source: &ReferenceTensor,
        accumulate: bool,
    ) -> Result<ArrayD<f64>> {
        let count = input.floats().len();
        let mut out = reshaped(input.floats(), &[count]);
        for (i, value) in index.iter().zip(source.floats()) {
            let place = &mut out[[below(*i, count)?]];
            *place = joined(*place, *value, (input.dtype(), accumulate));
        }
        Ok(reshaped(&out, input.shape()))
    }

    fn samples(s: &mut Samples) {
        for accumulate in [false, true] {
            s.case(with(s.normal([4, 5]), s.integers(-20, 20, [3, 9]), s.normal([27])).accumulate(accumulate));
        }
        s.case(with(s.normal([]), s.integers(-1, 1, []).cast(DType::I32), s.normal([1])));
        s.case(with(s.normal([0]), s.integers(0, 1, [0]), s.normal([0])));
    }

    fn errors(e: &mut ErrorSamples) {
        let index = e.integers(0, 2, [3]);
        e.case(Count, with(e.normal([4]), index, e.normal([2])), "index has 3 elements, source 2");
        let index = e.integers(0, 2, [3]);
        e.case(Empty, with(e.normal([0, 4]), index, e.normal([3])), "no element, index has 3");
        let index = e.integers(0, 2, [2]);
        e.case(SameDType, with(e.normal([2]), index, e.of(DType::I32, [2])), "source is i32");
        for index in [4.0, -5.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 2]), index, e.normal([2])), "of size 4");
        }
    }
}

/// The positions of a dimension that `index` names, from the end where it is negative. Reading them from a list of all
/// positions is what finds one that is out of range: a place in several dimensions would hide it.
#[track_caller]
fn places_below(index: Tensor, extent: usize) -> Tensor {
    let shape = index.shape();
    let index = cast(index, DType::I64);
    let count = shape.iter().product();
    let from_start = prims::select(prims::lt(index, 0), prims::add(index, extent as i64), index);
    let all = prims::iota(extent, Scalar::Int(0), Scalar::Int(1), DType::I64, index.device());
    prims::reshape(prims::index_select(all, 0, prims::reshape(from_start, [count])), shape)
}

/// `rows` [P, W] with `values` [N, W] at the rows that `place` [N] names.
#[track_caller]
fn put_rows(rows: Tensor, place: Tensor, values: Tensor, accumulate: bool) -> Tensor {
    let dtype = rows.dtype();
    if !accumulate {
        return prims::scatter(rows, 0, prims::broadcast_in_dim(place, values.shape(), [0]), values);
    }
    let wide = |tensor: Tensor| match dtype {
        DType::Bool => cast(tensor, DType::I64),
        _ => accumulating(tensor),
    };
    let sum = prims::index_add(wide(rows), 0, place, wide(values));
    match dtype {
        DType::Bool => prims::ne(sum, 0),
        _ => cast(sum, dtype),
    }
}

/// For references: the position that an index names; an error if there is none.
fn below(index: i64, extent: usize) -> Result<usize, Failure> {
    let place = if index < 0 { index + extent as i64 } else { index };
    match usize::try_from(place) {
        Ok(place) if place < extent => Ok(place),
        _ => {
            let message = format!("index holds {place}, which is out of range for dimension 0 of size {extent}");
            Err(Failure::new("IndexOutOfRange", message))
        }
    }
}

/// For references: what a place holds after an update.
fn joined(place: f64, value: f64, (dtype, accumulate): (DType, bool)) -> f64 {
    match (accumulate, dtype) {
        (false, _) => value,
        (true, DType::Bool) => f64::from(place != 0.0 || value != 0.0),
        (true, _) => place + value,
    }
}
