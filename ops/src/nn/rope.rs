use fulgurite_ops_macros::operator;

use super::apply_rope;
use super::rotated_shape;
use crate::core::promotion::broadcast_shapes;
use crate::prims::checks::same_dtype;

/// Rotary position embedding of queries and keys with one table: `(apply_rope(q, cos, sin), apply_rope(k, cos, sin))`.
/// What a kernel that rotates both in one pass implements; [`merge_rope`](super::merge_rope) finds where it may be
/// used. `q` and `k` may have different numbers of heads.
#[operator]
pub mod rope {
    #[results(query, key)]
    fn rope(q: Tensor<Floating>, k: Tensor<Floating>, cos: Tensor<Floating>, sin: Tensor<Floating>)
    -> (Tensor, Tensor);

    fn requires(q: &TensorMeta, k: &TensorMeta, cos: &TensorMeta, sin: &TensorMeta) -> Result<()> {
        for (name, input) in [("q", q), ("k", k)] {
            let rotated = rotated_shape(input.shape(), cos.shape());
            let even = rotated.last().is_some_and(|extent| extent.is_multiple_of(2));
            require!(even, EvenWidth, "{name} has shape {:?}, expected an even last extent", input.shape());
            for (table_name, table) in [("cos", cos), ("sin", sin)] {
                let fits = broadcast_shapes(&[&rotated, table.shape()]).as_deref() == Some(&rotated[..]);
                require!(
                    fits,
                    TableShape,
                    "{table_name} has shape {:?}, which does not broadcast to {name}'s {:?}",
                    table.shape(),
                    input.shape()
                );
            }
        }
        same_dtype(("k", k), ("q", q), Code::InputDType)?;
        same_dtype(("sin", sin), ("cos", cos), Code::TableDType)?;
        Ok(())
    }

    fn decomposition(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) {
        (apply_rope(q, cos, sin), apply_rope(k, cos, sin))
    }

    fn reference(q: &ArrayD<f64>, k: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        (rotated(q, cos, sin), rotated(k, cos, sin))
    }

    /// Of each pair (x₁, x₂), x₁ in the first half of the rotated columns and x₂ in the second: (x₁, x₂) · cos + (-x₂,
    /// x₁) · sin.
    fn rotated(whole: &ArrayD<f64>, cos: &ArrayD<f64>, sin: &ArrayD<f64>) -> ArrayD<f64> {
        let last = ndarray::Axis(whole.ndim() - 1);
        let width = whole.len_of(last);
        let count = cos.shape().last().copied().filter(|count| *count != 1).unwrap_or(width);
        let (x, rest) = whole.view().split_at(last, count);
        let x = x.to_owned();
        let (first, second) = x.view().split_at(last, x.len_of(last) / 2);
        let mut turned = x.clone();
        let (mut turned_first, mut turned_second) = turned.view_mut().split_at(last, x.len_of(last) / 2);
        turned_first.assign(&second.mapv(|x| -x));
        turned_second.assign(&first);
        ndarray::concatenate(last, &[(x * cos + turned * sin).view(), rest]).unwrap_or_else(|_| whole.clone())
    }

    fn samples(s: &mut Samples) {
        let table = |shape: &[usize]| s.uniform(-1.0, 1.0, shape);
        let grouped = with(s.normal([2, 6, 4, 8]), s.normal([2, 2, 4, 8]), table(&[4, 8]), table(&[4, 8]));
        let plain = with(s.normal([5, 2]), s.normal([3, 5, 2]), table(&[5, 2]), table(&[2]));
        let vectors = with(s.normal([2]), s.normal([2]), table(&[2]), table(&[2]));
        let empty = with(s.normal([0, 4]), s.normal([3, 4]), table(&[4]), table(&[4]));
        let wide = with(
            s.normal([3, 7, 8]),
            s.normal([7, 8]),
            table(&[7, 8]).cast(DType::F32),
            table(&[7, 8]).cast(DType::F32),
        );
        let part = with(s.normal([2, 4, 10]), s.normal([1, 4, 8]), table(&[4, 6]), table(&[4, 6]));
        for sample in [grouped, plain, vectors, empty, wide, part] {
            s.case(sample);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let t = |shape: &[usize]| e.normal(shape);
        e.case(EvenWidth, with(t(&[4, 2]), t(&[4, 3]), t(&[1]), t(&[1])), "k has shape [4, 3]");
        e.case(TableShape, with(t(&[4, 2]), t(&[5, 2]), t(&[4, 2]), t(&[4, 2])), "does not broadcast to k's [5, 2]");
        e.case(InputDType, with(t(&[2]), e.of(DType::F64, [2]), t(&[2]), t(&[2])), "k is f64");
        e.case(TableDType, with(t(&[2]), t(&[2]), t(&[2]), e.of(DType::F64, [2])), "sin is f64");
    }
}
