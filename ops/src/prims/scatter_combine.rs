//! Elements that are combined at indices, by another rule than addition.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::{DType, Tensor};
use ndarray::Dimension;

use super::checks::{dimension, same_dtype};
use super::support::{another, check_indices};
use crate::prims;

// Declares the rules: products and extrema.
operators! {
    #[operator(prim, $exact, autocast = widest)]
    pub mod $name {
        fn $name(input: Tensor<Number>, dim: usize, index: Tensor<Integer>, src: Tensor<Number>) -> Tensor;

        fn meta(input: &TensorMeta, dim: usize, index: &TensorMeta, src: &TensorMeta) -> Result<TensorMeta> {
            dimension(dim, ("input", input), Code::DimensionRange)?;
            require!(
                index.shape() == src.shape()
                    && index.rank() == input.rank()
                    && (0..input.rank()).all(|i| i == dim || index.shape()[i] <= input.shape()[i]),
                IndexShape,
                "index has shape {:?}, src {:?}, expected one shape with no extent above {:?} but in dimension {dim}",
                index.shape(),
                src.shape(),
                input.shape()
            );
            same_dtype(("input", input), ("src", src), Code::SameDType)?;
            Ok(input.clone())
        }

        fn flops(src: &TensorMeta) -> u64 {
            src.len() as u64
        }

        fn grad(input: Tensor, dim: usize, index: Tensor, src: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input, dim, index, src);
            (out, move |d_out: Tensor| {
                let [d_input, d_src] = super::$shares(super::Update { input, dim, index, src, out }, d_out);
                Grads { input: d_input, src: d_src }
            })
        }

        fn reference(
            input: &ReferenceTensor,
            dim: usize,
            index: &ReferenceTensor,
            src: &ReferenceTensor,
        ) -> Result<ReferenceTensor> {
            check_indices(index, dim, input.shape()[dim])?;
            let to = |at: &[usize]| {
                let mut to = at.to_vec();
                to[dim] = index.integers()[at] as usize;
                to
            };
            if !input.dtype().is_floating() {
                let mut out = input.integers().clone();
                for (at, b) in src.integers().indexed_iter() {
                    let place = &mut out[to(at.slice()).as_slice()];
                    let (a, b) = (*place, *b);
                    *place = $whole;
                }
                return Ok(ReferenceTensor::from_integers(input.dtype(), out));
            }
            let mut out = input.floats().clone();
            for (at, b) in src.floats().indexed_iter() {
                let place = &mut out[to(at.slice()).as_slice()];
                let (a, b) = (*place, *b);
                *place = if a.is_nan() || b.is_nan() { f64::NAN } else { $better };
            }
            Ok(ReferenceTensor::from_floats(input.dtype(), out))
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([7]), 0, s.integers(0, 7, [12]), s.normal([12])));
            s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [5, 6]), s.normal([5, 6])));
            s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [3, 9]).cast(DType::I32), s.normal([3, 9])));
            s.case(with(s.normal([3, 1, 5]), 2, s.integers(0, 5, [3, 1, 2]), s.normal([3, 1, 2])));
            s.case(with(s.normal([4, 6]), 1, s.integers(0, 6, [4, 0]), s.normal([4, 0])));
            s.case(with(s.normal([5, 5]), 1, s.integers(0, 5, [5, 5]), s.normal([5, 5])));
            // Two zeros for one place, one for another; ties with each other and with what is there.
            let index = s.values([7], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0]).cast(DType::I64);
            let ties = s.values([7], [0.0, 0.0, 0.0, 3.0, 2.0, 2.0, 1.0]);
            s.case(with(s.values([5], [3.0, 2.0, 2.0, 0.0, 1.0]), 0, index, ties))
                .forward_only("ties")
                .gradients($gradients);
            if s.dtype().is_floating() {
                let index = s.values([6], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]).cast(DType::I64);
                let special = [f64::NAN, 1.0, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0];
                s.case(with(s.values([3], [1.0, 2.0, 3.0]), 0, index, s.values([6], special)))
                    .forward_only("special values");
            }
            // Lines of so many updates that kernels sort them, and elements that get more of them than are combined at
            // a time.
            s.case(with(s.normal([7]), 0, s.integers(0, 7, [300]), s.uniform(0.9, 1.1, [300]))).forward_only("large");
            s.case(with(s.normal([2]), 0, s.integers(0, 2, [1100]), s.uniform(0.9, 1.1, [1100]))).forward_only("large");
            s.case(with(s.normal([3, 4]), 1, s.integers(0, 4, [2, 700]), s.uniform(0.9, 1.1, [2, 700])))
                .forward_only("large");
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(DimensionRange, with(e.normal([2]), 1, e.integers(0, 2, [2]), e.normal([2])), "dim is 1");
            for (index, src) in [(&[2, 3][..], &[2, 2][..]), (&[2], &[2]), (&[3, 3], &[3, 3])] {
                let (index, src) = (e.integers(0, 2, index), e.normal(src));
                e.case(IndexShape, with(e.normal([2, 3]), 1, index, src), "no extent above [2, 3]");
            }
            for index in [4.0, -1.0] {
                let index = e.values([2], [0.0, index]).cast(DType::I64);
                let call = with(e.normal([4]), 0, index, e.normal([2]));
                e.when_run("IndexOutOfRange", call, "for dimension 0 of size 4");
            }
            let other = e.of(another(e.dtype()), [2]);
            e.case(SameDType, with(e.normal([2]), 0, e.integers(0, 2, [2]), other), "expected equal dtypes");
        }
    }

    table($name, $exact, $shares, $better, $whole, $gradients) {
        /// `input` with every element multiplied by those of `src` that `index` sends there: `out[i][index[i][j][k]][k]
        /// *= src[i][j][k]` for `dim = 1`, likewise for others, in row-major order. `index` and `src` have one shape,
        /// with no extent above `input`'s but in dimension `dim`. An index out of range is an error when the program
        /// runs. A factor's gradient is the product of the others, also if it is zero.
        scatter_prod, _, of_product, a * b, a.wrapping_mul(b),
            [
                &[0.0, 0.0, 12.0, 4.0, 5.0],
                &[0.0, 0.0, 12.0, 0.0, 12.0, 12.0, 0.0],
            ];
        /// As [`scatter_prod`] with the largest of an element and those of `src` that are sent there; NaN if one is
        /// NaN. Equal largest elements share the gradient.
        scatter_amax, exact, of_extremum, if b > a { b } else { a }, a.max(b),
            [
                &[1.0, 0.0, 1.0, 0.0, 5.0],
                &[0.0, 0.0, 0.0, 2.0, 1.0, 1.0, 4.0],
            ];
        /// As [`scatter_prod`] with the smallest of an element and those of `src` that are sent there; NaN if one is
        /// NaN. Equal smallest elements share the gradient.
        scatter_amin, exact, of_extremum, if b < a { b } else { a }, a.min(b),
            [
                &[0.0, 0.0, 1.0, 4.0, 5.0],
                &[0.5, 0.5, 2.0, 0.0, 1.0, 1.0, 0.0],
            ];
    }
}

/// What was combined, and the result.
#[derive(Clone, Copy)]
struct Update {
    input: Tensor,
    dim: usize,
    index: Tensor,
    src: Tensor,
    out: Tensor,
}

impl Update {
    /// At the places of the result, the number of elements of `input` and `src` that `found` holds of.
    #[track_caller]
    fn count(&self, [of_input, of_src]: [Tensor; 2]) -> Tensor {
        let [of_input, of_src] = [of_input, of_src].map(|mask| prims::convert_element_type(mask, DType::I64));
        prims::scatter_add(of_input, self.dim, self.index, of_src)
    }

    /// For each element of the source, the element of `tensor` where it was sent.
    #[track_caller]
    fn of_src(&self, tensor: Tensor) -> Tensor {
        prims::gather(tensor, self.dim, self.index)
    }
}

/// The cotangents of factors: the product of all others. Of those that are not zero it is a quotient.
#[track_caller]
fn of_product(update: Update, d_out: Tensor) -> [Tensor; 2] {
    let Update { input, dim, index, src, .. } = update;
    let is_zero = [input, src].map(|factor| prims::eq(factor, 0.0));
    let zeros = update.count(is_zero);
    let [input, src] = [(input, is_zero[0]), (src, is_zero[1])].map(|(x, zero)| prims::select(zero, 1.0, x));
    // The product of all factors that are not zero.
    let scaled = prims::mul(d_out, prims::scatter_prod(input, dim, index, src));
    let share = |factor: Tensor, zero: Tensor, zeros: Tensor, scaled: Tensor| {
        // How many of the other factors are zero.
        let others = prims::sub(zeros, prims::convert_element_type(zero, DType::I64));
        prims::select(prims::eq(others, 0), prims::div(scaled, factor), 0.0)
    };
    let of_input = share(input, is_zero[0], zeros, scaled);
    [of_input, share(src, is_zero[1], update.of_src(zeros), update.of_src(scaled))]
}

/// The cotangents of elements of which one is chosen: equal ones share that of the result.
#[track_caller]
fn of_extremum(update: Update, d_out: Tensor) -> [Tensor; 2] {
    let Update { input, src, out, .. } = update;
    let chosen = [prims::eq(input, out), prims::eq(src, update.of_src(out))];
    let number = prims::convert_element_type(update.count(chosen), d_out.dtype());
    // Nothing equals NaN.
    let each = prims::select(prims::eq(number, 0.0), 0.0, prims::div(d_out, number));
    [prims::select(chosen[0], each, 0.0), prims::select(chosen[1], update.of_src(each), 0.0)]
}
