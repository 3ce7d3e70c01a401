use fulgurite_ops_macros::operator;

use crate::core::promotion::accumulating;
use crate::prims;
use fulgurite_runtime::DType;

/// The sum of the squares of all elements of all tensors, f32[] (f64[] of f64): the square of their total norm. In a
/// sharded program each rank computes it of its parts, and the ranks' sums are added.
#[operator]
pub mod sum_of_squares {
    fn sum_of_squares(tensors: Vec<Tensor<Floating>>) -> Tensor;

    fn requires(tensors: &[TensorMeta]) -> Result<()> {
        require!(!tensors.is_empty(), NoTensors, "tensors is empty, expected at least one tensor");
        let dtype = tensors[0].dtype();
        let same = tensors.iter().all(|tensor| tensor.dtype() == dtype);
        require!(same, SameDType, "tensors are of several dtypes, expected all {dtype}");
        Ok(())
    }

    fn decomposition(tensors: Vec<Tensor>) -> Tensor {
        let squares = tensors.iter().map(|tensor| {
            let wide = accumulating(*tensor);
            let dims: Vec<usize> = (0..wide.rank()).collect();
            prims::sum(prims::mul(wide, wide), dims)
        });
        squares.reduce(prims::add).unwrap_or_else(|| prims::full([], 0.0, DType::F32, "cpu"))
    }

    fn reference(tensors: Vec<&ArrayD<f64>>) -> ArrayD<f64> {
        let squares = tensors.iter().map(|tensor| tensor.iter().map(|x| x * x).sum::<f64>());
        ArrayD::from_elem(IxDyn(&[]), squares.sum::<f64>())
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([4, 8]), s.normal([7])]));
        s.case(with([s.normal([])]));
        s.case(with([s.normal([0, 3]), s.normal([65, 3])]));
        s.case(with([s.normal([0])]));
        s.case(with([s.normal([3]), s.normal([3, 129]), s.normal([129])]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(NoTensors, with([]), "tensors is empty");
        e.case(SameDType, with([e.normal([2]), e.of(DType::F64, [2])]), "of several dtypes");
    }
}
