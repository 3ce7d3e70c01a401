//! The largest and the smallest elements along dimensions.

use fulgurite_ops_macros::{operator, operators};

use super::arrays::{largest, reduce};
use super::promotion::{MOST_NAMED, cast, checked_dims, keep_dims, position, reduced_dims, reduced_shape};
use crate::prims;
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, #[default(vec![])] dim: Vec<i64>, #[default(false)] keepdim: bool) -> Tensor;

        fn meta(input: &TensorMeta, dim: &[i64], keepdim: bool) -> Result<TensorMeta> {
            let dims = checked_dims("dim", Some(dim), input, Code::Dims)?;
            require!(
                dims.iter().all(|dim| input.shape()[*dim] > 0),
                EmptyReduction,
                "input has shape {:?}: cannot choose an element of an empty dimension",
                input.shape()
            );
            Ok(input.with_shape(reduced_shape(input.shape(), &dims, keepdim)))
        }

        fn decomposition(input: Tensor, dim: &[i64], keepdim: bool) -> Tensor {
            let dims = reduced_dims(Some(dim), input.rank()).unwrap_or_default();
            if dims.is_empty() {
                return input;
            }
            let reduced = match input.dtype() {
                DType::Bool => cast(prims::$name(cast(input, DType::U8), &dims), DType::Bool),
                _ => prims::$name(input, &dims),
            };
            keep_dims(reduced, &input.shape(), &dims, keepdim)
        }

        fn reference(input: &ArrayD<f64>, dim: &[i64], keepdim: bool) -> ArrayD<f64> {
            reduce(input, Some(dim), keepdim, |row| {
                let choose = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { $better };
                row.iter().copied().reduce(choose).unwrap_or(f64::NAN)
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([4, 8])));
            s.case(with(s.normal([])));
            s.case(with(s.normal([3])).dim([0]));
            s.case(with(s.normal([3, 5, 7])).dim([-1]).keepdim(true));
            s.case(with(s.normal([3, 5, 7])).dim([2, 0]));
            s.case(with(s.normal([0, 3])).dim([1]));
            s.case(with(s.values([3, 4], [1.0, 2.0, 2.0, -1.0])).dim([1])).forward_only("a tie is a kink");
            if s.dtype().is_floating() {
                let special = [f64::NAN, 1.0, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0];
                s.case(with(s.values([2, 3], special)).dim([1])).forward_only("special values");
            }
            s.case(with(s.normal([2, 1])).dim([1]));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Dims, with(e.normal([2, 3])).dim([2]), "distinct dimensions of a tensor of rank 2");
            e.case(Dims, with(e.normal([1; 65])).dim([0]), "expected at most 64 where some are named");
            e.case(EmptyReduction, with(e.normal([0, 3])).dim([0]), "an empty dimension");
        }
    }

    table($name, $torch, $better) {
        /// The largest element along `dim` (all dimensions if empty); NaN if there is one. Equal elements share the
        /// gradient.
        amax, "amax", a.max(b);
        /// The smallest element along `dim` (all dimensions if empty); NaN if there is one. Equal elements share the
        /// gradient.
        amin, "amin", a.min(b);
    }
}

/// The position of the first of the largest elements along `dim`, or among all elements in row-major order; NaN counts
/// as the largest.
#[operator(torch = "argmax", no_grad = "a position has no gradient")]
pub mod argmax {
    fn argmax(input: Tensor<Number>, #[default(None)] dim: Option<i64>, #[default(false)] keepdim: bool) -> Tensor;

    fn meta(input: &TensorMeta, dim: Option<i64>, keepdim: bool) -> Result<TensorMeta> {
        let given = dim.map(|dim| vec![dim]);
        let dims = reduced_dims(given.as_deref(), input.rank());
        require!(
            dims.is_some(),
            Dim,
            "dim is {}, expected a dimension of a tensor of rank {}",
            dim.unwrap_or_default(),
            input.rank()
        );
        require!(
            dim.is_none() || input.rank() <= MOST_NAMED,
            Dim,
            "dim is {} and input has {} dimensions, expected at most {MOST_NAMED} where one is named",
            dim.unwrap_or_default(),
            input.rank()
        );
        let dims = dims.unwrap_or_default();
        require!(
            dims.iter().all(|dim| input.shape()[*dim] > 0),
            EmptyReduction,
            "input has shape {:?}: cannot choose an element of an empty dimension",
            input.shape()
        );
        Ok(TensorMeta::new(reduced_shape(input.shape(), &dims, keepdim), DType::I64, input.device()))
    }

    fn decomposition(input: Tensor, dim: Option<i64>, keepdim: bool) -> Tensor {
        let meta = input.meta();
        match dim {
            Some(dim) if meta.rank() > 0 => {
                let dim = position(dim, meta.rank());
                keep_dims(prims::argmax(input, dim), meta.shape(), &[dim], keepdim)
            }
            _ => {
                let dims: Vec<usize> = (0..meta.rank()).collect();
                let flat = prims::argmax(prims::reshape(input, [meta.len()]), 0);
                keep_dims(flat, meta.shape(), &dims, keepdim)
            }
        }
    }

    fn reference(input: &ArrayD<f64>, dim: Option<i64>, keepdim: bool) -> ArrayD<i64> {
        reduce(input, dim.map(|dim| vec![dim]).as_deref(), keepdim, |row| {
            let top = largest(row);
            row.iter().position(|x| *x == top || (x.is_nan() && top.is_nan())).unwrap_or(0) as i64
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([])));
        s.case(with(s.normal([7])).dim(0));
        s.case(with(s.normal([3, 5, 7])).dim(-2).keepdim(true));
        s.case(with(s.normal([3, 5, 7])).dim(2));
        s.case(with(s.normal([2, 3])).keepdim(true));
        s.case(with(s.normal([0, 3])).dim(1));
        s.case(with(s.values([3, 4], [1.0, 2.0, 2.0, 0.0])).dim(1));
        s.case(with(s.normal([2, 1])).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dim, with(e.normal([2, 3])).dim(2), "a dimension of a tensor of rank 2");
        e.case(Dim, with(e.normal([1; 65])).dim(0), "expected at most 64 where one is named");
        e.case(EmptyReduction, with(e.normal([0, 3])).dim(0), "an empty dimension");
    }
}
