use fulgurite_ops_macros::operator;

use super::checks::same_dtype;
use super::support::another;

/// The number of elements of a line of `sorted` that are below each of `values`; with `right`, that are not above it: a
/// binary search. The lines are along the last dimension and ascending; otherwise the numbers are those that the search
/// ends with. `sorted` has one dimension, or those of `values` but for the last extent; the lines of `values` are then
/// searched for in its own. NaN is searched for behind all elements.
#[operator(prim, exact, no_grad = "a position has no gradient")]
pub mod searchsorted {
    fn searchsorted(sorted: Tensor<Number>, values: Tensor<Number>, right: bool) -> Tensor;

    fn meta(sorted: &TensorMeta, values: &TensorMeta) -> Result<TensorMeta> {
        let lines = |meta: &TensorMeta| meta.shape().split_last().map(|(_, lines)| lines.to_vec());
        require!(
            sorted.rank() == 1 || (sorted.rank() > 1 && lines(sorted) == lines(values)),
            Lines,
            "sorted has shape {:?}, values {:?}, expected one dimension, or equal ones but the last",
            sorted.shape(),
            values.shape()
        );
        same_dtype(("sorted", sorted), ("values", values), Code::SameDType)?;
        Ok(values.with_dtype(DType::I64))
    }

    fn flops(sorted: &TensorMeta, values: &TensorMeta) -> u64 {
        let length = sorted.shape().last().copied().unwrap_or(1);
        values.len() as u64 * u64::from(usize::BITS - length.leading_zeros())
    }

    fn reference(sorted: &ReferenceTensor, values: &ReferenceTensor, right: bool) -> ArrayD<i64> {
        let length = sorted.shape().last().copied().unwrap_or(0);
        let count = if sorted.shape().len() == 1 { usize::MAX } else { values.shape().last().copied().unwrap_or(1) };
        // A binary search, so that the number is also that of elements in another order.
        let below = |line: &[std::cmp::Ordering]| {
            let mut places = 0..line.len();
            while !places.is_empty() {
                let middle = (places.start + places.end) / 2;
                match line[middle].is_lt() || (right && line[middle].is_eq()) {
                    true => places.start = middle + 1,
                    false => places.end = middle,
                }
            }
            places.start as i64
        };
        let (floats, whole): (Vec<f64>, Vec<i64>) =
            (sorted.floats().iter().copied().collect(), sorted.integers().iter().copied().collect());
        let places = values.floats().iter().zip(values.integers()).enumerate().map(|(at, (float, integer))| {
            let line = at / count * length..(at / count + 1) * length;
            let order: Vec<std::cmp::Ordering> = match sorted.dtype().is_floating() {
                // Whatever cannot be compared is before NaN.
                true => floats[line].iter().map(|x| x.partial_cmp(float).unwrap_or(std::cmp::Ordering::Less)).collect(),
                false => whole[line].iter().map(|x| x.cmp(integer)).collect(),
            };
            below(&order)
        });
        let places: Vec<i64> = places.collect();
        ArrayD::from_shape_vec(IxDyn(values.shape()), places).unwrap_or_default()
    }

    fn samples(s: &mut Samples) {
        let sorted = [-1.0, 0.0, 0.0, 2.0, 3.0, 3.0, 3.0, 7.0];
        let sorted = if s.dtype().is_unsigned() { sorted.map(f64::abs) } else { sorted };
        let line = |s: &Samples| s.values([7], &sorted[1..]);
        s.case(with(line(s), s.values([2, 4], [3.0, 0.0, 8.0, 1.0, 2.0, 3.0, 5.0]), false));
        s.case(with(line(s), s.values([2, 4], [3.0, 0.0, 8.0, 1.0, 2.0, 3.0, 5.0]), true));
        s.case(with(line(s), s.values([], [3.0]), false));
        s.case(with(s.values([2, 4], &sorted[1..]), s.values([2, 3], [3.0, 0.0, 2.0]), false));
        s.case(with(s.values([3, 1, 5], &sorted[1..6]), s.values([3, 1, 7], [3.0, 0.0, 2.0, 1.0]), true));
        s.case(with(s.values([2, 0], []), s.normal([2, 3]), false));
        s.case(with(line(s), s.normal([0, 3]), false));
        s.case(with(line(s), s.normal([70, 33]), true));
        if s.dtype().is_floating() {
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
            s.case(with(line(s), s.values([4], special), false));
            s.case(with(line(s), s.values([4], special), true));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        for (sorted, values) in [(&[][..], &[2][..]), (&[2, 3], &[3, 3]), (&[2, 3], &[3]), (&[2, 2, 3], &[2, 3])] {
            e.case(Lines, with(e.normal(sorted), e.normal(values), false), "expected one dimension, or equal ones");
        }
        let other = e.of(another(e.dtype()), [2]);
        e.case(SameDType, with(e.normal([2]), other, false), "expected equal dtypes");
    }
}
