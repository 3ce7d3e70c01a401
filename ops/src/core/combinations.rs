//! Which elements go with which: products of sets, members of sets, and places of elements.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::{DType, Tensor};

use super::arrays::{array, rearranged, zip};
use super::promotion::{
    any_tensor, as_tensor, broadcast, cast, constant_like, elementwise_meta, operands_meet, result_type,
};
use super::{any, argsort, eq, meshgrid, ne, piece, pow, read_as, searchsorted, sort, where_};
use crate::prims;
use crate::prims::checks::same_dtype;

/// Each element of the first vector with each of the second, and so on, as rows, in lexicographic order. One vector is
/// the result itself.
#[operator(torch = "cartesian_prod")]
pub mod cartesian_prod {
    fn cartesian_prod(tensors: Vec<Tensor>) -> Tensor;

    fn requires(tensors: &[TensorMeta]) -> Result<()> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one");
        for meta in tensors {
            require!(meta.rank() == 1, Rank, "a tensor has shape {:?}, expected one dimension", meta.shape());
            same_dtype(("the first tensor", &tensors[0]), ("another", meta), Code::SameDType)?;
        }
        Ok(())
    }

    fn decomposition(tensors: &[Tensor]) -> Tensor {
        if let [only] = tensors {
            return *only;
        }
        let grids = meshgrid(tensors);
        let count: usize = grids[0].shape().iter().product();
        let columns: Vec<Tensor> = grids.iter().map(|grid| prims::reshape(*grid, [count, 1])).collect();
        prims::cat(columns, 1)
    }

    fn reference(tensors: &[ReferenceTensor]) -> ReferenceTensor {
        let lengths: Vec<usize> = tensors.iter().map(|tensor| tensor.shape()[0]).collect();
        let count: usize = lengths.iter().product();
        let parts: Vec<ReferenceTensor> = (0..tensors.len())
            .map(|i| {
                let apart: usize = lengths[i + 1..].iter().product();
                rearranged(&tensors[i], &[count], 0.0, |at| Some(vec![at[0] / apart % lengths[i]]))
            })
            .collect();
        let [first, ..] = &parts[..] else { return tensors[0].clone() };
        if parts.len() == 1 {
            return first.clone();
        }
        let columns = parts.len();
        match first.dtype().is_floating() {
            true => ReferenceTensor::from_floats(
                first.dtype(),
                ArrayD::from_shape_fn(IxDyn(&[count, columns]), |at| parts[at[1]].floats()[[at[0]]]),
            ),
            false => ReferenceTensor::from_integers(
                first.dtype(),
                ArrayD::from_shape_fn(IxDyn(&[count, columns]), |at| parts[at[1]].integers()[[at[0]]]),
            ),
        }
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2]), s.normal([3]), s.normal([2])]));
        s.case(with([s.normal([3])]));
        s.case(with([s.normal([0]), s.normal([2])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(Rank, with([e.normal([2]), e.normal([])]), "a tensor has shape []");
        e.case(SameDType, with([e.of(DType::F32, [2]), e.of(DType::I64, [2])]), "another is i64");
    }
}

/// The choices of `r` elements of a vector, in their order, as rows in lexicographic order; with `with_replacement` an
/// element may be chosen again. Of no elements there is one choice, which PyTorch gives as an empty vector.
#[operator(torch = "combinations")]
pub mod combinations {
    fn combinations(input: Tensor, #[default(2usize)] r: usize, #[default(false)] with_replacement: bool) -> Tensor;

    fn requires(input: &TensorMeta, r: usize) -> Result<()> {
        require!(input.rank() == 1, Rank, "input has shape {:?}, expected one dimension", input.shape());
        let tuples = super::tuples(input.shape()[0], r);
        require!(
            tuples.is_some(),
            Count,
            "r is {r} and input has {} elements, expected at most {} tuples of them",
            input.shape()[0],
            super::MOST_TUPLES
        );
        Ok(())
    }

    fn decomposition(input: Tensor, r: usize, with_replacement: bool) -> Tensor {
        let n = input.shape()[0];
        let tuples = super::tuples(n, r).unwrap_or(0);
        let kept = super::chosen(n, r, with_replacement);
        if r == 0 || kept == 0 {
            let shape = if r == 0 { vec![0] } else { vec![0, r] };
            return read_as(piece(input, 0, 0, 0), &shape);
        }
        let place = prims::iota(tuples, 0i64, 1i64, DType::I64, input.device());
        // The numbers of all tuples count from 0 in base `n`; a choice is one whose digits ascend.
        let digit = |place: Tensor, i: usize| {
            let apart = n.pow((r - 1 - i) as u32) as i64;
            prims::remainder(prims::floor_divide(place, apart), n as i64)
        };
        let ascends = |i: usize| {
            let (first, second) = (digit(place, i), digit(place, i + 1));
            if with_replacement { prims::le(first, second) } else { prims::lt(first, second) }
        };
        let places = match (0..r - 1).map(ascends).reduce(prims::logical_and) {
            Some(choices) => {
                let order = argsort::with(cast(choices, DType::U8)).descending(true).stable(true).call();
                piece(order, 0, 0, kept)
            }
            None => place,
        };
        let column = |i: usize| prims::reshape(prims::index_select(input, 0, digit(places, i)), [kept, 1]);
        prims::cat((0..r).map(column).collect::<Vec<_>>(), 1)
    }

    fn reference(input: &ReferenceTensor, r: usize, with_replacement: bool) -> ReferenceTensor {
        let n = input.shape()[0];
        let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..r {
            let longer = |row: &Vec<usize>| {
                let from = row.last().map_or(0, |last| last + usize::from(!with_replacement));
                (from..n).map(|i| [&row[..], &[i]].concat()).collect::<Vec<_>>()
            };
            rows = rows.iter().flat_map(longer).collect();
        }
        let shape = if r == 0 { vec![0] } else { vec![rows.len(), r] };
        rearranged(input, &shape, 0.0, |at| Some(vec![rows[at[0]][at[1]]]))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
        s.case(with(s.normal([4])).r(3usize));
        s.case(with(s.normal([3])).r(2usize).with_replacement(true));
        s.case(with(s.normal([3])).r(1usize));
        s.case(with(s.normal([3])).r(0usize));
        s.case(with(s.normal([2])).r(3usize));
        s.case(with(s.normal([0])));
        s.case(with(s.normal([3])).r(3usize));
        s.case(with(s.normal([1])).r(64usize).with_replacement(true));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 3])), "input has shape [2, 3], expected one dimension");
        e.case(Count, with(e.normal([2])).r(100usize), "r is 100 and input has 2 elements, expected at most");
        e.case(Count, with(e.normal([1])).r(65usize), "r is 65 and input has 1 elements, expected at most");
        e.case(Count, with(e.normal([0])).r(65usize), "r is 65 and input has 0 elements, expected at most");
        e.case(Count, with(e.normal([16384])), "r is 2 and input has 16384 elements, expected at most");
    }
}

/// The most tuples that choices are found among.
const MOST_TUPLES: usize = 1 << 26;

/// The number of tuples of `r` of `n` elements, unless it is above [`MOST_TUPLES`], or `r` is.
fn tuples(n: usize, r: usize) -> Option<usize> {
    let power = u32::try_from(r).ok().filter(|r| *r <= 64 || n == 0).and_then(|r| n.checked_pow(r));
    power.filter(|power| *power <= MOST_TUPLES && r <= 64)
}

/// The number of choices of `r` of `n` elements, among at most [`MOST_TUPLES`] tuples.
fn chosen(n: usize, r: usize, with_replacement: bool) -> usize {
    let n = if with_replacement { (n + r).saturating_sub(1) } else { n };
    if r > n {
        return 0;
    }
    // Each quotient is a binomial coefficient, so whole.
    (0..r).fold(1u128, |count, i| count * (n - i) as u128 / (i as u128 + 1)) as usize
}

/// Whether each element of `elements` is among `test_elements`; if `invert`, whether it is not. NaN is not among any.
/// One of both may be a number. `assume_unique`, which says that no element is twice in either, changes nothing.
#[operator(
    torch = "isin",
    no_grad = "a boolean has no gradient",
    waive(assume_unique = "it may save time elsewhere, and changes no result")
)]
pub mod isin {
    fn isin(
        elements: Operand<Number>,
        test_elements: Operand<Number>,
        #[default(false)] assume_unique: bool,
        #[default(false)] invert: bool,
    ) -> Tensor;

    fn meta(elements: Operand<&TensorMeta>, test_elements: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [elements, test_elements];
        require!(any_tensor(&operands), NoTensor, "elements and test_elements are numbers, expected one tensor");
        Ok(match elements {
            Operand::Tensor(meta) => meta.with_dtype(DType::Bool),
            Operand::Scalar(_) => elementwise_meta(&operands, DType::Bool).with_shape([]),
        })
    }

    fn decomposition(
        elements: Operand<Tensor>,
        test_elements: Operand<Tensor>,
        _assume_unique: bool,
        invert: bool,
    ) -> Tensor {
        let dtype = result_type(&[elements, test_elements]);
        let shape = elements.tensor().map_or_else(Vec::new, |tensor| tensor.shape().to_vec());
        let line = |tensor: Tensor| {
            let count = tensor.shape().iter().product();
            cast(read_as(tensor, &[count]), dtype)
        };
        let found = match (elements, test_elements) {
            (Operand::Tensor(elements), Operand::Tensor(among)) => super::are_among(line(elements), line(among)),
            (Operand::Tensor(elements), number) => eq(elements, number),
            (number, among) => any(eq(as_tensor(among, &elementwise_meta(&[number, among], dtype)), number)),
        };
        read_as(if invert { prims::logical_not(found) } else { found }, &shape)
    }

    fn reference(
        elements: &Operand<ReferenceTensor>,
        test_elements: &Operand<ReferenceTensor>,
        invert: bool,
    ) -> ArrayD<bool> {
        let numbers = |operand: &Operand<ReferenceTensor>| match operand {
            Operand::Tensor(tensor) => tensor.floats().clone(),
            Operand::Scalar(number) => ndarray::arr0(number.to_f64()).into_dyn(),
        };
        let among: Vec<f64> = numbers(test_elements).iter().copied().collect();
        numbers(elements).mapv(|x| among.contains(&x) != invert)
    }

    fn samples(s: &mut Samples) {
        let few = [3.0, 0.0, 2.0, 2.0, 5.0];
        s.case(with(s.values([2, 3], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), s.values([5], few)));
        s.case(with(s.values([6], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), s.values([5], few)).invert(true));
        s.case(with(s.values([4], few), 2.0));
        s.case(with(2.0, s.values([5], few)));
        s.case(with(s.values([3], few), s.values([0, 2], [])));
        s.case(with(s.values([0], []), s.values([2], few)));
        if s.dtype().is_floating() {
            s.case(with(s.values([3], [f64::NAN, f64::INFINITY, 0.5]), s.values([2], [f64::NAN, f64::INFINITY])));
            s.case(with(s.values([2], [1.0, 2.0]), s.values([1], [2.0]).cast(DType::I64)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1.0, 2.0), "expected one tensor");
    }
}

/// Whether each element of a line is in another, of one element type, by the place that it would have there in order.
#[track_caller]
fn are_among(elements: Tensor, among: Tensor) -> Tensor {
    let count = among.shape()[0];
    if count == 0 {
        return prims::full(&*elements.shape(), false, DType::Bool, elements.device());
    }
    let ordered = sort(among).0;
    // NaN, which is at the end, is no bound that a search finds its way by.
    let bounds = match ordered.dtype().is_floating() {
        true => prims::select(prims::ne(ordered, ordered), f64::INFINITY, ordered),
        false => ordered,
    };
    let place = prims::minimum(searchsorted(bounds, elements), count as i64 - 1);
    prims::eq(prims::index_select(ordered, 0, place), elements)
}

/// The positions, one tensor for each dimension of `shape`, of elements that have the numbers `indices` in row-major
/// order. They are i64. Numbers beyond the elements count on from the beginning, negative ones from the end.
#[operator(torch = "unravel_index", no_grad = "a position has no gradient")]
pub mod unravel_index {
    fn unravel_index(indices: Tensor<Integer>, shape: Vec<usize>) -> Vec<Tensor>;

    fn requires(indices: &TensorMeta, shape: &[usize]) -> Result<()> {
        require!(!shape.is_empty(), NoDimensions, "shape is empty, expected at least one extent");
        require!(
            !shape.contains(&0) || indices.is_empty(),
            Empty,
            "shape is {shape:?}, which has no elements, and indices has shape {:?}",
            indices.shape()
        );
        let elements = shape.iter().try_fold(1usize, |count, extent| count.checked_mul((*extent).max(1)));
        require!(
            elements.is_some_and(|count| i64::try_from(count).is_ok()),
            Elements,
            "shape is {shape:?}, expected at most 2^63 - 1 elements"
        );
        Ok(())
    }

    fn decomposition(indices: Tensor, shape: &[usize]) -> Vec<Tensor> {
        let indices = cast(indices, DType::I64);
        let along = |(dim, extent): (usize, &usize)| {
            let apart: usize = shape[dim + 1..].iter().map(|extent| (*extent).max(1)).product();
            let [apart, extent] = [apart, (*extent).max(1)].map(|number| super::whole(indices, number as i64));
            prims::remainder(prims::floor_divide(indices, apart), extent)
        };
        shape.iter().enumerate().map(along).collect()
    }

    fn reference(indices: &ArrayD<i64>, shape: &[usize]) -> Vec<ArrayD<i64>> {
        let mut rest = indices.clone();
        let mut places = Vec::new();
        for extent in shape.iter().rev().map(|extent| (*extent).max(1) as i64) {
            places.push(rest.mapv(|i| i.rem_euclid(extent)));
            rest.mapv_inplace(|i| i.div_euclid(extent));
        }
        places.reverse();
        places
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.integers(0, 24, [2, 5]), [2, 3, 4]));
        s.case(with(s.values([4], [-1.0, 6.0, 100.0, -7.0]).cast(DType::I64), [2, 3]));
        s.case(with(s.integers(0, 5, []).cast(DType::I32), [5]));
        s.case(with(s.integers(0, 5, [0]), [0, 3]));
        s.case(with(s.values([2], [0.0, 1e18]).cast(DType::I64), [1, i64::MAX as usize]));
        s.case(with(s.values([2], [-1.0, 1e18]).cast(DType::I64), [2, (1 << 60) + 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoDimensions, with(e.integers(0, 1, [1]), []), "shape is empty");
        e.case(Empty, with(e.integers(0, 1, [1]), [2, 0]), "which has no elements");
        e.case(Elements, with(e.integers(0, 1, [1]), [1usize << 40, 1 << 40]), "expected at most 2^63 - 1 elements");
    }
}

/// An integer beside `like`, of i64: a tensor where no f64, which numbers of programs are, holds it.
#[track_caller]
fn whole(like: Tensor, number: i64) -> Operand<Tensor> {
    if number.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS {
        return number.into();
    }
    let high = prims::mul(constant_like(like, number >> 32), 1i64 << 32);
    Operand::Tensor(prims::add(high, constant_like(like, number & 0xffff_ffff)))
}

/// The positions of `size` elements that are not zero, in row-major order: a row of `input`'s dimensions for each. Rows
/// for which there are no more elements are filled with `fill_value`. NaN is not zero.
#[operator(torch = "nonzero_static", no_grad = "a position has no gradient")]
pub mod nonzero_static {
    fn nonzero_static(input: Tensor, size: usize, #[default(-1)] fill_value: i64) -> Tensor;

    fn requires(input: &TensorMeta, size: usize) -> Result<()> {
        let most = super::MOST_TUPLES.max(input.shape().iter().product());
        require!(size <= most, Size, "size is {size}, expected at most {most}");
        Ok(())
    }

    fn decomposition(input: Tensor, size: usize, fill_value: i64) -> Tensor {
        let shape = input.shape().to_vec();
        let (rank, count) = (shape.len(), shape.iter().product::<usize>());
        let filled = |rows: usize| prims::full([rows, rank], fill_value, DType::I64, input.device());
        let found = size.min(count);
        if found == 0 || rank == 0 {
            return filled(size);
        }
        let flat = read_as(input, &[count]);
        let counts = ne(flat, 0);
        let order = argsort::with(cast(counts, DType::U8)).descending(true).stable(true).call();
        let place = piece(order, 0, 0, found);
        let total = prims::sum(cast(counts, DType::I64), [0]);
        let number = prims::iota(found, 0i64, 1i64, DType::I64, input.device());
        let there = prims::lt(number, broadcast(total, &[found]));
        let columns = super::unravel_index(place, shape.clone()).into_iter().map(|column| {
            let column = where_(there, column, fill_value);
            prims::reshape(column, [found, 1])
        });
        let rows = prims::cat(columns.collect::<Vec<_>>(), 1);
        if size > found { prims::cat(vec![rows, filled(size - found)], 0) } else { rows }
    }

    fn reference(input: &ReferenceTensor, size: usize, fill_value: i64) -> ArrayD<i64> {
        let rank = input.shape().len();
        let places = input.floats().indexed_iter().filter(|(_, x)| **x != 0.0);
        let mut rows: Vec<i64> =
            places.take(size).flat_map(|(at, _)| (0..rank).map(|dim| at[dim] as i64).collect::<Vec<_>>()).collect();
        rows.resize(size * rank, fill_value);
        array(&[size, rank], rows)
    }

    fn samples(s: &mut Samples) {
        let values = [0.0, 1.0, 2.0, 0.0, 0.0, 3.0];
        s.case(with(s.values([2, 3], values), 2));
        s.case(with(s.values([2, 3], values), 5).fill_value(7));
        s.case(with(s.values([6], values), 8));
        s.case(with(s.values([6], values), 0));
        s.case(with(s.values([], [1.0]), 2));
        s.case(with(s.values([0, 2], []), 2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Size, with(e.normal([2]), 1usize << 40), "expected at most 67108864");
    }
}

/// `input` to the power of `exponent`, elementwise, with broadcasting, in f64 whatever the types of both.
#[operator(torch = "float_power")]
pub mod float_power {
    fn float_power(input: Operand, exponent: Operand) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, exponent: Operand<&TensorMeta>) -> Result<TensorMeta> {
        let operands = [input, exponent];
        operands_meet(&operands, "exponent", [Code::NoTensor.name(), Code::Broadcast.name()])?;
        Ok(elementwise_meta(&operands, DType::F64))
    }

    fn decomposition(input: Operand<Tensor>, exponent: Operand<Tensor>) -> Tensor {
        let [input, exponent] = [input, exponent].map(|operand| match operand {
            Operand::Tensor(tensor) => Operand::Tensor(cast(tensor, DType::F64)),
            Operand::Scalar(scalar) => Operand::Scalar(scalar.to_f64().into()),
        });
        pow(input, exponent)
    }

    fn reference(input: ArrayD<f64>, exponent: ArrayD<f64>) -> ArrayD<f64> {
        zip(&input, &exponent, f64::powf)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(1.0, 3.0, [3, 1]), s.uniform(0.5, 2.5, [2])));
        s.case(with(s.uniform(1.0, 3.0, [4]), -2));
        s.case(with(2, s.uniform(0.5, 2.5, [3])));
        s.case(with(s.uniform(1.0, 3.0, []), s.of(DType::F32, [0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensor, with(1, 2.0), "expected at least one tensor");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
    }
}
