//! Quantiles: elements of a rank that may be between two.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, Failure};
use fulgurite_runtime::{DType, Tensor, attribute_enum};

use super::arrays::{array, reduce};
use super::flatten;
use super::promotion::{cast, position, reduced_shape};
use crate::prims;

attribute_enum! {
    /// What a quantile is whose rank is between two elements.
    pub enum Interpolation {
        /// The point between both, as far as the rank is from the lower.
        Linear = "linear",
        /// The lower element.
        Lower = "lower",
        /// The higher element.
        Higher = "higher",
        /// The middle of both.
        Midpoint = "midpoint",
        /// The nearer element; of two that are as near that of the even rank.
        Nearest = "nearest",
    }
}

operators! {
    #[operator(torch = $torch, dtypes(f32, f64))]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            q: Operand<Floating>,
            #[default(None)] dim: Option<i64>,
            #[default(false)] keepdim: bool,
            #[default(Interpolation::Linear)] interpolation: Interpolation,
        ) -> Tensor;

        fn requires(input: &TensorMeta, q: Operand<&TensorMeta>, dim: Option<i64>) -> Result<()> {
            dim.map(|dim| normalize_dim(dim, input.rank())).transpose()?;
            require!(!input.is_empty(), Empty, "input has shape {:?} and no element", input.shape());
            match q {
                Operand::Tensor(q) => {
                    require!(q.rank() <= 1, Rank, "q has shape {:?}, expected one dimension at most", q.shape());
                    require!(q.dtype() == input.dtype(), SameDType, "q is {}, input is {}", q.dtype(), input.dtype());
                }
                Operand::Scalar(q) => {
                    let q = q.to_f64();
                    require!((0.0..=1.0).contains(&q), Range, "q is {q}, expected a number from 0 to 1");
                }
            }
            Ok(())
        }

        fn decomposition(
            Args { input, q, dim, keepdim, interpolation }: Args<Tensor>,
        ) -> Tensor {
            ranked(input, q, (dim, keepdim), interpolation, $skips)
        }

        fn reference(Args { input, q, dim, keepdim, interpolation }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
            if let Operand::Tensor(q) = q
                && let Some(beyond) = q.iter().find(|q| **q < 0.0 || **q > 1.0)
            {
                let size = input.len();
                return Err(Failure::new("IndexOutOfRange", format!("q holds {beyond}, elements are of size {size}")));
            }
            let dims = dim.map(|dim| vec![dim]);
            let of = |q: f64| {
                reduce(input, dims.as_deref(), keepdim, |row| by_hand(row, q, interpolation, $skips))
            };
            Ok(match q {
                Operand::Scalar(q) => of(q.to_f64()),
                Operand::Tensor(q) if q.shape().is_empty() => of(q[[]]),
                Operand::Tensor(q) => {
                    let all: Vec<ArrayD<f64>> = q.iter().map(|q| of(*q)).collect();
                    let inner = of(0.0).shape().to_vec();
                    let values = all.iter().flat_map(|part| part.iter().copied()).collect();
                    array(&[&[all.len()], &inner[..]].concat(), values)
                }
            })
        }

        fn samples(s: &mut Samples) {
            use Interpolation::{Higher, Lower, Midpoint, Nearest};
            s.case(with(s.normal([5, 7]), s.values([3], [0.1, 0.55, 0.9])).dim(1));
            s.case(with(s.normal([3, 5, 2]), 0.3).dim(-2).keepdim(true));
            s.case(with(s.normal([3, 4]), s.values([], [0.7])));
            s.case(with(s.normal([3, 4]), s.values([2], [0.0, 1.0])).keepdim(true)).forward_only("ends of the range");
            for (interpolation, q) in [(Lower, 0.3), (Higher, 0.3), (Midpoint, 0.55), (Nearest, 0.55)] {
                s.case(with(s.normal([2, 6]), q).dim(1).interpolation(interpolation));
            }
            s.case(with(s.normal([3, 4]), s.values([0], [])).dim(0));
            s.case(with(s.normal([]), 0.5));
            let special = [1.0, f64::NAN, 3.0, 2.5, 2.0, 0.5, 4.0, f64::NAN, f64::NAN];
            s.case(with(s.values([3, 3], special), 0.4).dim(1)).forward_only("special values");
            s.case(with(s.values([2], [f64::NAN]), 0.4)).forward_only("special values");
            s.case(with(s.normal([3, 4]), 0.125).dim(1));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Empty, with(e.normal([0, 3]), 0.5).dim(1), "input has shape [0, 3] and no element");
            e.case(Rank, with(e.normal([3]), e.uniform(0.0, 1.0, [1, 2])), "q has shape [1, 2]");
            e.case(Range, with(e.normal([3]), 1.5), "q is 1.5, expected a number from 0 to 1");
            e.case(Range, with(e.normal([3]), -0.5), "q is -0.5");
            let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
            e.case(SameDType, with(e.normal([3]), e.of(other, [2])), "input is");
            for q in [1.5, -0.1] {
                e.when_run("IndexOutOfRange", with(e.normal([3]), e.values([1], [q])), "of size 3");
            }
        }
    }

    table($name, $torch, $skips) {
        /// The elements of rank `q` (n - 1) of the n elements along `dim` in order, or of all elements without it. For
        /// several `q` they are along a first dimension. Between two ranks `interpolation` decides. A row with NaN has
        /// the quantile NaN. A number in a tensor `q` beyond 0 and 1 is an error when the program runs.
        quantile, "quantile", false;
        /// As [`quantile`] of the elements that are not NaN; of none it is NaN.
        nanquantile, "nanquantile", true;
    }
}

#[track_caller]
fn ranked(
    input: Tensor,
    q: Operand<Tensor>,
    (dim, keepdim): (Option<i64>, bool),
    interpolation: Interpolation,
    skips_nan: bool,
) -> Tensor {
    let shape = input.shape().to_vec();
    let reduced = match dim {
        Some(dim) if !shape.is_empty() => vec![position(dim, shape.len())],
        _ => (0..shape.len()).collect(),
    };
    // Rows are last.
    let rows = match reduced[..] {
        [dim] if shape.len() > 1 => {
            let order: Vec<usize> = (0..shape.len()).filter(|i| *i != dim).chain([dim]).collect();
            if dim + 1 == shape.len() { input } else { prims::permute(input, order) }
        }
        _ => flatten(input),
    };
    let (last, length) = (rows.rank() - 1, rows.shape()[rows.rank() - 1]);
    let q = match q {
        Operand::Tensor(q) => q,
        Operand::Scalar(q) => prims::full([], q, rows.dtype(), rows.device()),
    };
    let count: usize = q.shape().iter().product();
    let extents = rows.shape().to_vec();
    let wanted = [&extents[..last], &[count]].concat();
    let (sorted, _) = prims::topk(rows, length, last, false);

    // The rank of the last element, and of each quantile.
    let spread = prims::broadcast_in_dim(prims::reshape(q, [count]), &*wanted, [last]);
    let known = prims::eq(rows, rows);
    let number = cast(prims::sum(prims::convert_element_type(known, DType::I64), [last]), rows.dtype());
    let each = |row: Tensor| prims::broadcast_in_dim(row, &*wanted, (0..last).collect::<Vec<_>>());
    let top = (length - 1) as f64;
    let ranks = if skips_nan {
        prims::mul(spread, each(prims::maximum(prims::sub(number, 1.0), 0.0)))
    } else {
        let is_known = each(prims::eq(number, length as f64));
        prims::select(is_known, prims::mul(spread, top), top)
    };
    let ranks = match interpolation {
        Interpolation::Lower => prims::floor(ranks),
        Interpolation::Higher => prims::neg(prims::floor(prims::neg(ranks))),
        Interpolation::Nearest => prims::round(ranks),
        Interpolation::Linear | Interpolation::Midpoint => ranks,
    };
    let at = |ranks: Tensor| prims::gather(sorted, last, prims::convert_element_type(ranks, DType::I64));
    let below = prims::floor(ranks);
    let out = match interpolation {
        Interpolation::Linear | Interpolation::Midpoint => {
            let above = at(prims::neg(prims::floor(prims::neg(ranks))));
            let (low, apart) = (at(below), prims::sub(above, at(below)));
            match interpolation {
                Interpolation::Midpoint => prims::sub(above, prims::mul(apart, 0.5)),
                _ => {
                    let weight = prims::sub(ranks, below);
                    let from_low = prims::add(low, prims::mul(weight, apart));
                    let from_high = prims::sub(above, prims::mul(apart, prims::sub(1.0, weight)));
                    prims::select(prims::lt(weight, 0.5), from_low, from_high)
                }
            }
        }
        _ => at(below),
    };
    // Quantiles of several q are first.
    let order: Vec<usize> = [last].into_iter().chain(0..last).collect();
    let out = if last == 0 { out } else { prims::permute(out, order) };
    let rest = reduced_shape(&shape, &reduced, keepdim);
    let several = if q.rank() == 0 { vec![] } else { vec![count] };
    prims::reshape(out, [several, rest].concat())
}

/// For references: the quantile of a row.
fn by_hand(row: &[f64], q: f64, interpolation: Interpolation, skips_nan: bool) -> f64 {
    let mut known: Vec<f64> = row.iter().copied().filter(|x| !x.is_nan()).collect();
    if known.is_empty() || (!skips_nan && known.len() < row.len()) {
        return f64::NAN;
    }
    known.sort_by(f64::total_cmp);
    let rank = q * (known.len() - 1) as f64;
    let (low, high) = (known[rank.floor() as usize], known[rank.ceil() as usize]);
    match interpolation {
        Interpolation::Linear => low + (high - low) * (rank - rank.floor()),
        Interpolation::Lower => low,
        Interpolation::Higher => high,
        Interpolation::Midpoint => (low + high) / 2.0,
        Interpolation::Nearest => known[rank.round_ties_even() as usize],
    }
}
