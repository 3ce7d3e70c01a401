//! Distances of each point of one list from each of another.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::attribute_enum;

use super::arrays::{array, spread, values};
use super::norm_over;
use super::promotion::{accumulating, broadcast_shapes, cast};
use crate::prims;
use crate::prims::checks::same_dtype;

attribute_enum! {
    /// How PyTorch computes distances of order two.
    pub enum ComputeMode {
        /// By a product of matrices where one of the lists has more than 25 points.
        WhereNecessary = "use_mm_for_euclid_dist_if_necessary",
        /// By a product of matrices.
        Always = "use_mm_for_euclid_dist",
        /// By the differences of coordinates.
        Never = "donot_use_mm_for_euclid_dist",
    }
}

/// The distances of order `p` of points in the rows of `x1` [..., P, M] and of `x2` [..., R, M], `[..., P, R]`. The
/// leading dimensions broadcast. All are computed from differences, whatever `compute_mode` says: a product of matrices
/// loses the digits of small distances. Where a distance is zero, so is its gradient; equal largest differences share
/// the gradient of an infinite order, where PyTorch gives the whole of it to each.
#[operator(torch = "cdist", autocast = full, waive(compute_mode = "distances are computed from differences"))]
pub mod cdist {
    fn cdist(
        x1: Tensor<Floating>,
        x2: Tensor<Floating>,
        #[default(2.0)] p: f64,
        #[default(ComputeMode::WhereNecessary)] compute_mode: ComputeMode,
    ) -> Tensor;

    fn requires(x1: &TensorMeta, x2: &TensorMeta, p: f64) -> Result<()> {
        require!(
            x1.rank() >= 2 && x2.rank() >= 2,
            Rank,
            "x1 has shape {:?} and x2 {:?}, expected at least two dimensions of each",
            x1.shape(),
            x2.shape()
        );
        same_dtype(("x1", x1), ("x2", x2), Code::SameDType)?;
        let ([.., own], [.., other]) = (x1.shape(), x2.shape()) else { return Ok(()) };
        require!(own == other, Coordinates, "the points of x1 have {own} coordinates, those of x2 {other}");
        let batch = broadcast_shapes(&[&x1.shape()[..x1.rank() - 2], &x2.shape()[..x2.rank() - 2]]);
        require!(
            batch.is_some(),
            Broadcast,
            "x1 has shape {:?} and x2 {:?}: their leading dimensions do not broadcast",
            x1.shape(),
            x2.shape()
        );
        require!(p >= 0.0, Order, "p is {p}, expected a number that is not negative");
        Ok(())
    }

    fn decomposition(x1: Tensor, x2: Tensor, p: f64, _compute_mode: ComputeMode) -> Tensor {
        let dtype = x1.dtype();
        let (own, other) = (x1.shape().to_vec(), x2.shape().to_vec());
        let batch = broadcast_shapes(&[&own[..own.len() - 2], &other[..other.len() - 2]]).unwrap_or_default();
        let [points, coordinates] = [own[own.len() - 2], own[own.len() - 1]];
        let others = other[other.len() - 2];
        let shape = [&batch[..], &[points, others, coordinates]].concat();
        if coordinates == 0 {
            let zero = prims::full([], 0.0, dtype, x1.device());
            return prims::broadcast_in_dim(zero, &shape[..shape.len() - 1], []);
        }
        // A list lacks the dimension of the points of the other.
        let facing = |tensor: Tensor, own: &[usize], last: usize| {
            let first = batch.len() - (own.len() - 2);
            // Leading dimensions of extent one are those that are broadcast.
            let dims: Vec<usize> = (first..batch.len()).chain([last, batch.len() + 2]).collect();
            prims::broadcast_in_dim(accumulating(tensor), &shape, dims)
        };
        let difference = prims::sub(facing(x1, &own, batch.len()), facing(x2, &other, batch.len() + 1));
        cast(norm_over(difference, p, &[shape.len() - 1], false, None), dtype)
    }

    fn reference(x1: &ArrayD<f64>, x2: &ArrayD<f64>, p: f64) -> ArrayD<f64> {
        let (own, other) = (x1.shape().to_vec(), x2.shape().to_vec());
        let batch = broadcast_shapes(&[&own[..own.len() - 2], &other[..other.len() - 2]]).unwrap_or_default();
        let [points, coordinates] = [own[own.len() - 2], own[own.len() - 1]];
        let others = other[other.len() - 2];
        let a = values(&spread(x1, &[&batch[..], &[points, coordinates]].concat()));
        let b = values(&spread(x2, &[&batch[..], &[others, coordinates]].concat()));
        let mut out = Vec::new();
        for list in 0..batch.iter().product::<usize>() {
            for i in 0..points {
                for j in 0..others {
                    let gaps = (0..coordinates).map(|k| {
                        let (x, y) =
                            (a[(list * points + i) * coordinates + k], b[(list * others + j) * coordinates + k]);
                        (x - y).abs()
                    });
                    out.push(if p == 0.0 {
                        gaps.filter(|gap| *gap != 0.0).count() as f64
                    } else if p.is_infinite() {
                        gaps.fold(0.0, f64::max)
                    } else {
                        gaps.map(|gap| gap.powf(p)).sum::<f64>().powf(1.0 / p)
                    });
                }
            }
        }
        array(&[&batch[..], &[points, others]].concat(), out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), s.normal([5, 3])));
        for p in [1.0, f64::INFINITY, 1.5] {
            s.case(with(s.normal([3, 4]), s.normal([2, 4])).p(p));
        }
        s.case(with(s.normal([2, 1, 3, 2]), s.normal([3, 2, 2])));
        s.case(with(s.normal([3, 2]), s.normal([2, 2])).p(0.0)).forward_only("a number of coordinates");
        s.case(with(s.normal([2, 0]), s.normal([3, 0]))).forward_only("no coordinates");
        s.case(with(s.normal([0, 3]), s.normal([2, 3])));
        let same = with(s.values([2, 2], [1.0, 2.0, 4.0, 6.0]), s.values([2, 2], [1.0, 2.0, 4.0, 6.0]));
        s.case(same).forward_only("a kink at zero").gradients([&[-1.2, -1.6, 1.8, 2.4], &[-1.8, -2.4, 1.2, 1.6]]);
        s.case(with(s.normal([3, 1]), s.normal([2, 1])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([3]), e.normal([2, 3])), "at least two dimensions of each");
        e.case(Rank, with(e.normal([2, 3]), e.normal([3])), "at least two dimensions of each");
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2, 2])), "expected equal dtypes");
        e.case(Coordinates, with(e.normal([2, 3]), e.normal([2, 2])), "have 3 coordinates, those of x2 2");
        e.case(Broadcast, with(e.normal([2, 1, 3]), e.normal([3, 1, 3])), "leading dimensions do not broadcast");
        e.case(Order, with(e.normal([2, 3]), e.normal([2, 3])).p(-1.0), "p is -1");
    }
}
