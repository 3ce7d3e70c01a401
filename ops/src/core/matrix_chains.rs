//! Products of several matrices one after another.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{array, product, reshaped};
use super::promotion::{broadcast, cast};
use super::{matmul, mm, read_as};
use crate::prims;
use crate::prims::checks::same_dtype;

// Declares products of matrices one after another, in the order that takes the fewest multiplications.
operators! {
    #[operator(torch = $torch, autocast = low)]
    pub mod $name {
        fn $name($list: Vec<Tensor<Number>>) -> Tensor;

        fn requires($list: &[TensorMeta]) -> Result<()> {
            let least: usize = $least;
            require!(
                $list.len() >= least,
                Count,
                "{} has {} tensors, expected at least {least}",
                stringify!($list),
                $list.len()
            );
            let (last, vectors): (usize, bool) = ($list.len() - 1, $vectors);
            for (i, meta) in $list.iter().enumerate() {
                let vector = vectors && (i == 0 || i == last) && meta.rank() == 1;
                require!(
                    vector || meta.rank() == 2,
                    Rank,
                    "tensor {i} of {} has shape {:?}, expected a matrix{}",
                    stringify!($list),
                    meta.shape(),
                    if vectors { ", or a vector at one of the ends" } else { "" }
                );
                same_dtype(("the first tensor", &$list[0]), ("another", meta), Code::SameDType)?;
            }
            let shapes = super::chain($list.iter().map(TensorMeta::shape));
            for (i, pair) in shapes.windows(2).enumerate() {
                require!(
                    pair[0][1] == pair[1][0],
                    Extents,
                    "tensors {i} and {} of {} are {:?} and {:?} as matrices, which do not meet",
                    i + 1,
                    stringify!($list),
                    pair[0],
                    pair[1]
                );
            }
            Ok(())
        }

        fn decomposition($list: &[Tensor]) -> Tensor {
            super::chain_product($list)
        }

        fn reference($list: &[ReferenceTensor]) -> ArrayD<f64> {
            let last = $list.len() - 1;
            let mut out: Option<ArrayD<f64>> = None;
            for (i, tensor) in $list.iter().enumerate() {
                let shape = match (tensor.shape(), i) {
                    ([n], 0) if last > 0 => vec![1, *n],
                    ([n], _) => vec![*n, 1],
                    (shape, _) => shape.to_vec(),
                };
                let matrix = reshaped(tensor.floats(), &shape);
                out = Some(out.map_or(matrix.clone(), |left| product(&left, &matrix)));
            }
            let out = out.unwrap_or_else(|| array(&[0], Vec::new()));
            let mut shape = out.shape().to_vec();
            if last > 0 && $list[last].shape().len() == 1 {
                shape.pop();
            }
            if last > 0 && $list[0].shape().len() == 1 {
                shape.remove(0);
            }
            reshaped(&out, &shape)
        }

        fn samples(s: &mut Samples) {
            let chains: &[&[&[usize]]] = $shapes;
            for chain in chains {
                s.case(with(chain.iter().map(|shape| s.normal(shape)).collect::<Vec<_>>()));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let least: usize = $least;
            let of = |shapes: &[&[usize]]| with(shapes.iter().map(|shape| e.normal(shape)).collect::<Vec<_>>());
            let few: Vec<&[usize]> = vec![&[2, 2]; least - 1];
            e.case(Count, of(&few), "expected at least");
            e.case(Rank, of(&[&[2, 2], &[2], &[2, 2]]), "expected a matrix");
            e.case(Extents, of(&[&[2, 2], &[3, 2]]), "which do not meet");
            let mixed = [e.of(DType::F32, [2, 2]), e.of(DType::F64, [2, 2])];
            e.case(SameDType, with(mixed), "another is f64");
        }
    }

    table($name, $torch, $list, $least, $vectors, $shapes) {
        /// The product of two or more matrices one after another, computed in the order that takes the fewest
        /// multiplications. The first may be a vector, a row then, and the last, a column; the result lacks their
        /// dimensions.
        multi_dot, "linalg.multi_dot", tensors, 2, true,
            &[&[&[4, 10], &[10, 2], &[2, 5], &[5, 3]], &[&[3], &[3, 4], &[4]], &[&[2, 5], &[5, 6], &[6, 2]],
              &[&[2, 3], &[3]], &[&[2, 0], &[0, 3]]];
        /// The product of matrices one after another, computed in the order that takes the fewest multiplications.
        chain_matmul, "chain_matmul", matrices, 1, false,
            &[&[&[4, 10], &[10, 2], &[2, 5]], &[&[2, 3]], &[&[2, 0], &[0, 3]]];
    }
}

/// The shapes of a chain as matrices: a vector in front is a row, one at the end a column.
fn chain<'a>(shapes: impl ExactSizeIterator<Item = &'a [usize]>) -> Vec<[usize; 2]> {
    let as_matrix = |(i, shape): (usize, &[usize])| match (shape, i) {
        ([n], 0) => [1, *n],
        ([n], _) => [*n, 1],
        (shape, _) => [shape.first().copied().unwrap_or(1), shape.get(1).copied().unwrap_or(1)],
    };
    shapes.enumerate().map(as_matrix).collect()
}

/// The product of a chain of matrices. `cost[i][j]` is the fewest multiplications of the matrices from `i` to `j`, and
/// `cut[i][j]` the last of the first factor then (Cormen et al., "Introduction to Algorithms", 15.2).
#[track_caller]
fn chain_product(matrices: &[Tensor]) -> Tensor {
    let given: Vec<Vec<usize>> = matrices.iter().map(|matrix| matrix.shape().to_vec()).collect();
    if let [only] = matrices {
        return *only;
    }
    let shapes = chain(given.iter().map(Vec::as_slice));
    let count = shapes.len();
    let mut cost = vec![vec![0.0; count]; count];
    let mut cut = vec![vec![0; count]; count];
    for length in 1..count {
        for i in 0..count - length {
            let j = i + length;
            let total = |k: usize| {
                let own = shapes[i][0] as f64 * shapes[k][1] as f64 * shapes[j][1] as f64;
                cost[i][k] + cost[k + 1][j] + own
            };
            let best = (i..j).min_by(|a, b| total(*a).total_cmp(&total(*b))).unwrap_or(i);
            let least = total(best);
            (cost[i][j], cut[i][j]) = (least, best);
        }
    }
    let factors: Vec<Tensor> = matrices.iter().zip(&shapes).map(|(matrix, shape)| read_as(*matrix, shape)).collect();
    let out = product_between(&factors, &cut, 0, count - 1);
    let mut shape = Vec::new();
    if given[0].len() == 2 {
        shape.push(shapes[0][0]);
    }
    if given[count - 1].len() == 2 {
        shape.push(shapes[count - 1][1]);
    }
    read_as(out, &shape)
}

#[track_caller]
fn product_between(factors: &[Tensor], cut: &[Vec<usize>], first: usize, last: usize) -> Tensor {
    if first == last {
        return factors[first];
    }
    let middle = cut[first][last];
    mm(product_between(factors, cut, first, middle), product_between(factors, cut, middle + 1, last))
}

/// A square matrix, or each of many, to the power of `n`, by repeated squares. (A negative power is that of the
/// inverse, which a solver computes.)
#[operator(torch = "matrix_power", autocast = low)]
pub mod matrix_power {
    fn matrix_power(input: Tensor<Number>, n: i64) -> Tensor;

    fn requires(input: &TensorMeta, n: i64) -> Result<()> {
        let square = matches!(input.shape(), [.., rows, columns] if rows == columns);
        require!(square, Square, "input has shape {:?}, expected square matrices", input.shape());
        require!(n >= 0, Exponent, "n is {n}, expected a power that is not negative: no inverse is computed here");
        Ok(())
    }

    fn decomposition(input: Tensor, n: i64) -> Tensor {
        let (mut rest, mut square, mut out) = (n, input, None);
        while rest > 0 {
            if rest % 2 == 1 {
                out = Some(out.map_or(square, |out| matmul(out, square)));
            }
            rest /= 2;
            if rest > 0 {
                square = matmul(square, square);
            }
        }
        out.unwrap_or_else(|| super::unit_matrices(input))
    }

    fn reference(input: &ArrayD<f64>, n: i64) -> ArrayD<f64> {
        let rank = input.ndim();
        let unit = ArrayD::from_shape_fn(IxDyn(input.shape()), |at| f64::from(u8::from(at[rank - 1] == at[rank - 2])));
        (0..n).fold(unit, |power, _| product(&power, input))
    }

    fn samples(s: &mut Samples) {
        let small = |s: &Samples, shape: &[usize]| match s.dtype().is_floating() {
            true => s.uniform(-0.6, 0.6, shape),
            false => s.values(shape, [1.0, 0.0, 2.0, 1.0]),
        };
        let case = with(small(s, &[3, 3]), 3);
        s.case(case);
        let case = with(small(s, &[2, 3, 3]), 2);
        s.case(case);
        let case = with(small(s, &[2, 2]), 1);
        s.case(case);
        let case = with(small(s, &[2, 2]), 0);
        s.case(case).forward_only("the unit matrix");
        let case = with(small(s, &[0, 0]), 5);
        s.case(case);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Square, with(e.normal([2, 3]), 2), "expected square matrices");
        e.case(Square, with(e.normal([3]), 2), "expected square matrices");
        e.case(Exponent, with(e.normal([2, 2]), -1), "n is -1");
    }
}

/// Unit matrices of the shape of `like`.
#[track_caller]
fn unit_matrices(like: Tensor) -> Tensor {
    let meta = like.meta();
    let on = prims::eq(super::column_minus_row(&meta), 0);
    broadcast(cast(on, meta.dtype()), meta.shape())
}
