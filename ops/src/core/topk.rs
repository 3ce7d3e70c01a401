use fulgurite_ops_macros::operator;

use super::promotion::position;
use crate::prims;

/// The `k` largest elements along `dim` (the smallest if not `largest`) and their positions, best first whether or not
/// `sorted` asks for it. Of equal elements the earlier comes first; NaN is larger than every number.
#[operator(torch = "topk", waive(sorted = "elements are sorted whether or not it asks for that"))]
pub mod topk {
    #[results(values, indices)]
    fn topk(
        input: Tensor<Number>,
        k: usize,
        #[default(-1)] dim: i64,
        #[default(true)] largest: bool,
        #[default(true)] sorted: bool,
    ) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta, k: usize, dim: i64) -> Result<(TensorMeta, TensorMeta)> {
        let dim = normalize_dim(dim, input.rank())?;
        let extent = input.shape().get(dim).copied().unwrap_or(1);
        require!(k <= extent, Count, "k is {k}, dimension {dim} of input has extent {extent}");
        let mut shape = input.shape().to_vec();
        if let Some(extent) = shape.get_mut(dim) {
            *extent = k;
        }
        Ok((input.with_shape(&shape), TensorMeta::new(shape, DType::I64, input.device())))
    }

    fn decomposition(input: Tensor, k: usize, dim: i64, largest: bool, _sorted: bool) -> (Tensor, Tensor) {
        if input.rank() == 0 {
            let (values, indices) = prims::topk(prims::reshape(input, [1]), 1, 0, largest);
            return (prims::reshape(values, []), prims::reshape(indices, []));
        }
        prims::topk(input, k, position(dim, input.rank()), largest)
    }

    fn reference(input: &ArrayD<f64>, k: usize, dim: i64, largest: bool) -> (ArrayD<f64>, ArrayD<i64>) {
        if input.ndim() == 0 {
            return (input.clone(), ArrayD::zeros(IxDyn(&[])));
        }
        let axis = position(dim, input.ndim());
        let mut shape = input.shape().to_vec();
        shape[axis] = k;
        let (mut values, mut indices) = (ArrayD::zeros(IxDyn(&shape)), ArrayD::<i64>::zeros(IxDyn(&shape)));
        let axis = ndarray::Axis(axis);
        let targets = values.lanes_mut(axis).into_iter().zip(indices.lanes_mut(axis));
        for (row, (mut values, mut indices)) in input.lanes(axis).into_iter().zip(targets) {
            let key = |x: f64| if x.is_nan() { (1, 0.0) } else { (0, x) };
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|a, b| {
                let (a, b) = if largest { (b, a) } else { (a, b) };
                key(row[*a]).partial_cmp(&key(row[*b])).unwrap_or(std::cmp::Ordering::Equal)
            });
            for (i, from) in order.into_iter().take(k).enumerate() {
                values[i] = row[from];
                indices[i] = from as i64;
            }
        }
        (values, indices)
    }

    fn samples(s: &mut Samples) {
        // Drawn numbers differ from each other; drawn integers do not, and PyTorch leaves open which of them comes
        // first.
        if s.dtype().is_floating() {
            s.case(with(s.normal([4, 8]), 3));
            s.case(with(s.normal([5, 2, 3]), 2).dim(0).largest(false));
        }
        s.case(with(s.values([7], [3.0, 1.0, 4.0, 11.0, 5.0, 9.0, 2.0]), 7));
        s.case(with(s.values([2, 3], [3.0, 1.0, 4.0]), 1));
        s.case(with(s.values([2, 3], [3.0, 1.0, 4.0]), 0));
        s.case(with(s.normal([]), 1));
        s.case(with(s.normal([0, 3]), 2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Count, with(e.normal([2, 3]), 4), "k is 4, dimension 1 of input has extent 3");
        e.case(Count, with(e.normal([]), 2), "k is 2");
    }
}
