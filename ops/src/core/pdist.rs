use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::promotion::{accumulating, cast};
use super::{slice_at, triu_indices};
use crate::prims;

/// The distances of all pairs of rows of `input` [N, M], by the norm of order `p`: [N (N - 1) / 2], those of the first
/// row before those of the second. `p` is 0 (how many elements differ) to infinity (the largest difference). The
/// subgradient of a distance of 0, and of elements that are equal, is 0. Computed in f32 for f16 and bf16.
#[operator(torch = "nn.functional.pdist", autocast = full)]
pub mod pdist {
    fn pdist(input: Tensor<Floating>, #[default(2.0)] p: f64) -> Tensor;

    fn meta(input: &TensorMeta, p: f64) -> Result<TensorMeta> {
        require!(input.rank() == 2, Matrix, "input has shape {:?}, expected [rows, elements]", input.shape());
        require!(p >= 0.0, Order, "p is {p}, expected at least 0");
        let rows = input.shape()[0];
        let pairs = rows.saturating_sub(1).checked_mul(rows).map(|twice| twice / 2);
        require!(pairs.is_some_and(|pairs| pairs < 1 << 48), Pairs, "input has {rows} rows, whose pairs are too many");
        Ok(input.with_shape([pairs.unwrap_or(0)]))
    }

    fn decomposition(input: Tensor, p: f64) -> Tensor {
        let (rows, width) = (input.size(0), input.size(1));
        let pairs = rows * rows.saturating_sub(1) / 2;
        if pairs == 0 || width == 0 {
            return prims::full([pairs], 0.0, input.dtype(), input.device());
        }
        let places = triu_indices::with(rows, rows).offset(1).device(input.device().to_string()).call();
        let x = accumulating(input);
        let [first, second] = [0, 1].map(|row| prims::index_select(x, 0, slice_at(places, 0, row)));
        let difference = prims::sub(first, second);
        cast(super::norms(difference, p), input.dtype())
    }

    fn reference(input: &ArrayD<f64>, p: f64) -> ArrayD<f64> {
        let (rows, width) = (input.shape()[0], input.shape()[1]);
        let mut out = Vec::new();
        for first in 0..rows {
            for second in first + 1..rows {
                let off = |m: usize| (input[[first, m]] - input[[second, m]]).abs();
                let all = (0..width).map(off);
                out.push(match p {
                    0.0 => all.filter(|off| *off != 0.0).count() as f64,
                    f64::INFINITY => all.fold(0.0, f64::max),
                    _ => all.map(|off| off.powf(p)).sum::<f64>().powf(1.0 / p),
                });
            }
        }
        super::super::arrays::array(&[out.len()], out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5, 7])));
        for p in [1.0, 1.5, 0.25, f64::INFINITY] {
            s.case(with(s.normal([4, 3])).p(p));
        }
        s.case(with(s.values([3, 2], [1.0, 2.0, 1.0, 3.0, 1.0, 2.0])).p(0.0)).forward_only("steps");
        for shape in [[0, 3], [1, 3], [3, 0]] {
            s.case(with(s.normal(shape)));
        }
        // The last two rows are equal; cotangents are 1, 2 and 3.
        for p in [2.0, 1.0, 3.0, f64::INFINITY] {
            let input = s.values([3, 1], [1.0, 2.0, 2.0]);
            s.case(with(input).p(p)).forward_only("equal rows").gradients([&[-3.0, 1.0, 2.0]]);
        }
        let several = s.values([3, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 1.0, 7.0, 8.0]);
        s.case(with(several).p(0.0)).forward_only("steps");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Matrix, with(e.normal([3])), "input has shape [3], expected [rows, elements]");
        e.case(Order, with(e.normal([2, 3])).p(-1.0), "p is -1, expected at least 0");
        e.case(Pairs, with(e.normal([usize::MAX, 0])), "whose pairs are too many");
        e.case(Pairs, with(e.normal([24_000_000, 0])), "whose pairs are too many");
    }
}

/// The norms of order `p` of rows [N, M], neither of which is 0.
#[track_caller]
fn norms(rows: Tensor, p: f64) -> Tensor {
    let sizes = prims::abs(rows);
    if p == 0.0 {
        return prims::sum(cast(prims::ne(rows, 0.0), rows.dtype()), [1]);
    }
    if p == f64::INFINITY {
        return prims::amax(sizes, [1]);
    }
    if p == 1.0 {
        return prims::sum(sizes, [1]);
    }
    // Powers of 1 in the places of zeros: those of zeros have infinite slopes.
    let power = |x: Tensor, p: f64| {
        let zero = prims::eq(x, 0.0);
        prims::select(zero, 0.0, prims::pow(prims::select(zero, 1.0, x), p))
    };
    let total = match p {
        2.0 => prims::sum(prims::mul(rows, rows), [1]),
        _ => prims::sum(power(sizes, p), [1]),
    };
    power(total, 1.0 / p)
}
