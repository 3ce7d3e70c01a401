//! Places of numbers in sorted lines.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor};
use fulgurite_runtime::{DType, Tensor, TensorMeta, attribute_enum};

use super::in_range;
use super::promotion::{cast, result_type};
use crate::prims;

attribute_enum! {
    /// On which side of equal elements a number belongs.
    pub enum Side {
        /// The position before equal elements.
        Left = "left",
        /// The position behind equal elements.
        Right = "right",
    }
}

/// The number of elements of `sorted_sequence` along its last dimension, in ascending order, that are below each number
/// of `input`; with `right` or `side = "right"`, that are not above it. A sequence of one dimension serves all numbers,
/// else the lines of both correspond. `sorter` has the positions of the sequence's elements in their order, if it is
/// not sorted. NaN belongs behind all elements. The result is i64, or i32 if `out_int32`.
#[operator(torch = "searchsorted", no_grad = "a position has no gradient")]
pub mod searchsorted {
    fn searchsorted(
        sorted_sequence: Tensor,
        input: Operand,
        #[default(false)] out_int32: bool,
        #[default(false)] right: bool,
        #[default(None)] side: Option<Side>,
        #[default(None)] sorter: Option<Tensor<Integer>>,
    ) -> Tensor;

    fn meta(Args { sorted_sequence, input, out_int32, right, side, sorter }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let of = sorted_sequence.shape();
        let wanted = input.tensor().map_or(&[][..], |input| input.shape());
        require!(
            of.len() == 1 || (of.len() > 1 && of.len() == wanted.len() && of[..of.len() - 1] == wanted[..of.len() - 1]),
            Lines,
            "sorted_sequence has shape {of:?}, input {wanted:?}, expected one dimension, or equal ones but the last"
        );
        require!(
            !(right && side == Some(Side::Left)),
            Opposite,
            "right is true and side is \"left\", expected the same side"
        );
        require!(
            sorter.is_none_or(|sorter| sorter.shape() == of),
            SorterShape,
            "sorter has shape {:?}, expected {of:?}, that of sorted_sequence",
            sorter.map(TensorMeta::shape).unwrap_or_default()
        );
        require!(
            has_order(sorted_sequence, input),
            Booleans,
            "sorted_sequence and input are booleans, expected a number, or an input without elements"
        );
        let dtype = if out_int32 { DType::I32 } else { DType::I64 };
        Ok(TensorMeta::new(wanted, dtype, sorted_sequence.device()))
    }

    fn decomposition(Args { sorted_sequence, input, out_int32, right, side, sorter }: Args<Tensor>) -> Tensor {
        let sequence = match sorter {
            Some(sorter) => prims::gather(sorted_sequence, sorted_sequence.rank() - 1, sorter),
            None => sorted_sequence,
        };
        place(sequence, input, right || side == Some(Side::Right), out_int32)
    }

    fn reference(
        Args { sorted_sequence, input, right, side, sorter, .. }: Args<&ReferenceTensor>,
    ) -> Result<ArrayD<f64>> {
        let length = sorted_sequence.shape().last().copied().unwrap_or(0);
        let mut sequence: Vec<f64> = sorted_sequence.floats().iter().copied().collect();
        if let Some(sorter) = sorter {
            in_range(sorter, length)?;
            let from = sequence.clone();
            for (at, i) in sorter.iter().enumerate() {
                sequence[at] = from[at / length * length + *i as usize];
            }
        }
        let right = right || side == Some(Side::Right);
        Ok(by_hand(&sequence, length, sorted_sequence.shape().len() == 1, input, right))
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([2]), s.normal([0, 3])));
            return;
        }
        let sorted = [0.0, 1.0, 1.0, 2.0, 5.0, 7.0];
        let wanted = [1.0, 6.0, 0.0, 9.0, 2.0, 3.0];
        s.case(with(s.values([6], sorted), s.values([2, 3], wanted)));
        s.case(with(s.values([6], sorted), s.values([2, 3], wanted)).right(true));
        s.case(with(s.values([2, 3], sorted), s.values([2, 3], wanted)).side(Side::Right).out_int32(true));
        s.case(with(s.values([2, 3], sorted), s.values([2, 3], wanted)).side(Side::Left));
        s.case(with(s.values([6], sorted), 2));
        s.case(with(s.values([6], sorted), s.values([], [1.0])));
        let sorter = s.values([4], [2.0, 0.0, 3.0, 1.0]).cast(DType::I64);
        s.case(with(s.values([4], [2.0, 7.0, 1.0, 3.0]), s.values([3], wanted)).sorter(sorter));
        s.case(with(s.values([0], []), s.values([3], wanted)));
        s.case(with(s.values([6], sorted), s.values([0, 3], wanted)));
        if s.dtype().is_floating() {
            s.case(with(s.values([6], sorted), s.values([3], [f64::NAN, f64::INFINITY, f64::NEG_INFINITY])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Lines, with(e.normal([2, 3]), e.normal([2])), "expected one dimension, or equal ones but the last");
        e.case(Lines, with(e.normal([]), e.normal([])), "expected one dimension");
        let truth = with(e.of(DType::Bool, [2]), e.of(DType::Bool, [2]));
        e.case(Booleans, truth, "sorted_sequence and input are booleans");
        e.case(Lines, with(e.normal([2, 3]), 1), "input []");
        let call = with(e.normal([3]), e.normal([2])).right(true).side(Side::Left);
        e.case(Opposite, call, "right is true and side is \"left\"");
        let call = with(e.normal([3]), e.normal([2])).sorter(e.integers(0, 2, [2]));
        e.case(SorterShape, call, "sorter has shape [2], expected [3]");
        let sorter = e.values([3], [0.0, 1.0, 3.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(e.normal([3]), e.normal([2])).sorter(sorter), "of size 3");
    }
}

/// The number of elements of `boundaries`, which is ascending, that are below each number of `input`; with `right`, of
/// those that are not above it. NaN belongs behind all. The result is i64, or i32 if `out_int32`.
#[operator(torch = "bucketize", no_grad = "a position has no gradient")]
pub mod bucketize {
    fn bucketize(
        input: Operand,
        boundaries: Tensor,
        #[default(false)] out_int32: bool,
        #[default(false)] right: bool,
    ) -> Tensor;

    fn meta(input: Operand<&TensorMeta>, boundaries: &TensorMeta, out_int32: bool) -> Result<TensorMeta> {
        let shape = boundaries.shape();
        require!(shape.len() == 1, Boundaries, "boundaries has shape {shape:?}, expected one dimension");
        require!(
            has_order(boundaries, input),
            Booleans,
            "boundaries and input are booleans, expected a number, or an input without elements"
        );
        let dtype = if out_int32 { DType::I32 } else { DType::I64 };
        let wanted = input.tensor().map_or(&[][..], |input| input.shape());
        Ok(TensorMeta::new(wanted, dtype, boundaries.device()))
    }

    fn decomposition(input: Operand<Tensor>, boundaries: Tensor, out_int32: bool, right: bool) -> Tensor {
        place(boundaries, input, right, out_int32)
    }

    fn reference(Args { input, boundaries, right, .. }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let sequence: Vec<f64> = boundaries.floats().iter().copied().collect();
        by_hand(&sequence, sequence.len(), true, input, right)
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::Bool {
            s.case(with(s.normal([0, 3]), s.normal([2])));
            return;
        }
        let (sorted, wanted) = ([0.0, 1.0, 1.0, 2.0, 5.0, 7.0], [1.0, 6.0, 0.0, 9.0, 2.0, 3.0]);
        s.case(with(s.values([2, 3], wanted), s.values([6], sorted)));
        s.case(with(s.values([2, 3], wanted), s.values([6], sorted)).right(true).out_int32(true));
        s.case(with(2, s.values([6], sorted)));
        s.case(with(s.values([], [1.0]), s.values([6], sorted)));
        s.case(with(s.values([2], wanted), s.values([0], [])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Boundaries, with(e.normal([2]), e.normal([2, 3])), "boundaries has shape [2, 3]");
        let truth = with(e.of(DType::Bool, [2]), e.of(DType::Bool, [2]));
        e.case(Booleans, truth, "boundaries and input are booleans");
    }
}

/// Whether numbers are searched for: PyTorch has no order of booleans, and asks for none where there is nothing.
fn has_order(sequence: &TensorMeta, input: Operand<&TensorMeta>) -> bool {
    result_type(&[Operand::Tensor(sequence), input]) != DType::Bool
        || input.tensor().is_some_and(|input| input.is_empty())
}

/// Places in the type that both meet in.
#[track_caller]
fn place(sequence: Tensor, input: Operand<Tensor>, right: bool, out_int32: bool) -> Tensor {
    let dtype = match result_type(&[sequence.into(), input]) {
        DType::Bool => DType::U8,
        dtype => dtype,
    };
    let values = match input {
        Operand::Tensor(input) => cast(input, dtype),
        Operand::Scalar(number) => prims::full([], number, dtype, sequence.device()),
    };
    let places = prims::searchsorted(cast(sequence, dtype), values, right);
    cast(places, if out_int32 { DType::I32 } else { DType::I64 })
}

/// For references: counts of the elements before each number.
fn by_hand(
    sequence: &[f64],
    length: usize,
    is_shared: bool,
    input: Operand<&ReferenceTensor>,
    right: bool,
) -> ArrayD<f64> {
    // A binary search, so that the number is also that of elements in another order.
    let before = |line: &[f64], x: f64| {
        let mut places = 0..line.len();
        while !places.is_empty() {
            let middle = (places.start + places.end) / 2;
            match line[middle] >= x && !(right && line[middle] == x) {
                true => places.end = middle,
                false => places.start = middle + 1,
            }
        }
        places.start as f64
    };
    match input {
        Operand::Scalar(number) => ArrayD::from_elem(ndarray::IxDyn(&[]), before(sequence, number.to_f64())),
        Operand::Tensor(input) => {
            let count = if is_shared { usize::MAX } else { input.shape().last().copied().unwrap_or(1) };
            let values = input.floats().iter().enumerate();
            let places = values.map(|(at, x)| before(&sequence[at / count * length..][..length], *x)).collect();
            super::arrays::array(input.shape(), places)
        }
    }
}
