use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use ndarray::Array2;

use super::matrices::{are_square, block, extents, matrices, stacked, transposed, work};
use crate::prims;

/// `eᴬ = Σ Aᵏ / k!` for each matrix `A` of `input`; NaN where an element of the matrix is not finite. The number of
/// squares that it takes depends on the numbers, so that no composite computes it.
///
/// The gradient is a block of the exponential of `[[Aᵀ, D], [0, Aᵀ]]`, where `D` is the cotangent: Mathias, "A chain
/// rule for matrix functions and applications", 1996.
#[operator(prim, dtypes(f32, f64))]
pub mod matrix_exp {
    fn matrix_exp(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        are_square(("input", input), Code::Square)?;
        Ok(input.clone())
    }

    fn flops(input: &TensorMeta) -> u64 {
        let (_, n, _) = extents(input.shape());
        work(input, 20, &[n, n, n])
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (matrix_exp(input), move |d_out: Tensor| {
            let (rank, turned) = (input.rank(), transposed(input));
            let n = input.shape()[rank - 1];
            let above = prims::cat([turned, d_out], rank - 1);
            let zeros = super::super::support::constant(turned, 0.0);
            let below = prims::cat([zeros, turned], rank - 1);
            let both = matrix_exp(prims::cat([above, below], rank - 2));
            Grads { input: block(both, [0, n], [n, 2 * n]) }
        })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        super::exponentials(input)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 3])));
        s.case(with(s.normal([2, 2, 2, 2])));
        s.case(with(s.uniform(-0.01, 0.01, [3, 3])));
        s.case(with(s.normal([1, 1])));
        s.case(with(s.normal([2, 0, 0])));
        s.case(with(s.normal([0, 2, 2])));
        s.case(with(s.values([2, 2], [0.0, -20.0, 20.0, 0.0])));
        for special in [f64::NAN, f64::NEG_INFINITY] {
            s.case(with(s.values([2, 2, 2], [special, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])))
                .forward_only("special values");
        }
        s.case(with(s.uniform(-1.0, 1.0, [12, 12]))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3])), "input has shape [2, 3], expected square matrices");
    }
}

/// For references: the exponentials of matrices.
pub fn exponentials(input: &ArrayD<f64>) -> ArrayD<f64> {
    let one = |matrix: Array2<f64>| {
        let n = matrix.nrows();
        if !matrix.iter().all(|x| x.is_finite()) {
            return Array2::from_elem((n, n), f64::NAN);
        }
        // The series of a matrix whose norm is at most one, and squares: few, each doubles what roundings are off.
        let norm = matrix.columns().into_iter().map(|column| column.iter().map(|x| x.abs()).sum()).fold(0.0, f64::max);
        let count = norm.log2().ceil().max(0.0) as i32;
        let small = matrix.mapv(|x| x * (-count as f64).exp2());
        let (mut sum, mut term) = (Array2::<f64>::eye(n), Array2::<f64>::eye(n));
        for k in 1..30 {
            term = term.dot(&small) / f64::from(k);
            sum += &term;
        }
        (0..count).fold(sum, |power, _| power.dot(&power))
    };
    let exponentials: Vec<_> = matrices(input).into_iter().map(one).collect();
    let (_, n, _) = extents(input.shape());
    stacked(input.shape(), &[n, n], &exponentials)
}
