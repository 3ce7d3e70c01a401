//! Derivatives of functions that are known at points.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::{Attribute, AttributeType};
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::piece;
use super::promotion::{cast, in_floating, named_dims, position};
use crate::prims::{self, add, div, mul, neg, sub};

/// The distances of the points that [`mod@gradient`] is given values at.
#[derive(Debug, Clone, PartialEq)]
pub enum Spacing {
    /// One for all dimensions.
    One(f64),
    /// One for each dimension.
    Each(Vec<f64>),
}

impl AttributeType for Spacing {
    fn type_name() -> String {
        "spacing".into()
    }
    fn to_attribute(&self) -> Attribute {
        match self {
            Spacing::One(distance) => distance.to_attribute(),
            Spacing::Each(distances) => distances.to_attribute(),
        }
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        let one = f64::from_attribute(attribute).map(Spacing::One);
        one.or_else(|| Vec::from_attribute(attribute).map(Spacing::Each))
    }
}

/// The dimensions that slopes are taken along, in the order of `dim`; `None` if one is out of range or named twice.
fn along(dim: Option<&[i64]>, rank: usize) -> Option<Vec<usize>> {
    match dim {
        None => Some((0..rank).collect()),
        Some(dims) => {
            named_dims(dims, rank)?;
            Some(dims.iter().map(|dim| position(*dim, rank)).filter(|dim| *dim < rank).collect())
        }
    }
}

/// For metas: the dimensions that slopes are taken along; fails if one is out of range, named twice or too short.
fn checked(
    input: &TensorMeta,
    dim: Option<&[i64]>,
    edge_order: i64,
    [dims, order, extent]: [Precondition; 3],
) -> Result<Vec<usize>, Failure> {
    if !(1..=2).contains(&edge_order) {
        return Err(order.unmet(format_args!("edge_order is {edge_order}, expected 1 or 2")));
    }
    let Some(along) = along(dim, input.rank()).filter(|along| !along.is_empty()) else {
        let shape = input.shape();
        return Err(dims.unmet(format_args!("dim is {dim:?}, expected distinct dimensions of shape {shape:?}")));
    };
    match along.iter().find(|dim| input.shape()[**dim] as i64 <= edge_order) {
        Some(short) => Err(extent.unmet(format_args!(
            "input has {} elements in dimension {short}, expected more than edge_order, {edge_order}",
            input.shape()[*short]
        ))),
        None => Ok(along),
    }
}

/// `Σ factor · x` over neighbours that begin at these places of a dimension, `count` elements each.
#[track_caller]
fn weighted(x: Tensor, dim: usize, count: usize, parts: &[(usize, f64)]) -> Tensor {
    let part = |(start, factor): &(usize, f64)| mul(piece(x, dim, *start, count), *factor);
    parts.iter().map(part).reduce(add).unwrap_or(x)
}

/// The slopes along dimension `dim` of points at the distance `h`.
#[track_caller]
fn evenly(x: Tensor, dim: usize, h: f64, edge_order: i64) -> Tensor {
    let n = x.shape()[dim];
    let inner = div(sub(piece(x, dim, 2, n - 2), piece(x, dim, 0, n - 2)), 2.0 * h);
    let (first, last) = if edge_order == 1 {
        let step = |at: usize| sub(piece(x, dim, at + 1, 1), piece(x, dim, at, 1));
        (step(0), step(n - 2))
    } else {
        let edge = |at: [usize; 3], sign: f64| {
            weighted(x, dim, 1, &[(at[0], -1.5 * sign), (at[1], 2.0 * sign), (at[2], -0.5 * sign)])
        };
        (edge([0, 1, 2], 1.0), edge([n - 1, n - 2, n - 3], -1.0))
    };
    joined(div(first, h), inner, div(last, h), dim)
}

#[track_caller]
fn joined(first: Tensor, inner: Tensor, last: Tensor, dim: usize) -> Tensor {
    let parts = if inner.shape()[dim] == 0 { vec![first, last] } else { vec![first, inner, last] };
    prims::cat(parts, dim)
}

/// The slopes along dimension `dim` of points at these places: those of the parabola through three neighbours, at the
/// edges of the line through two or of the parabola as `edge_order` says.
#[track_caller]
fn unevenly(x: Tensor, places: Tensor, dim: usize, edge_order: i64) -> Tensor {
    let shape = x.shape().to_vec();
    let n = shape[dim];
    let gap = sub(piece(places, 0, 1, n - 1), piece(places, 0, 0, n - 1));
    // The sum of the elements from these places on, times the factors that a line has for them.
    let sum = |count: usize, parts: &[(usize, Tensor)]| {
        let mut own = shape.clone();
        own[dim] = count;
        let part = |(start, factor): &(usize, Tensor)| {
            mul(piece(x, dim, *start, count), prims::broadcast_in_dim(*factor, &*own, [dim]))
        };
        parts.iter().map(part).reduce(add).unwrap_or(x)
    };
    let of_three = |h: Tensor, k: Tensor| {
        let both = add(h, k);
        [neg(div(k, mul(h, both))), div(sub(k, h), mul(h, k)), div(h, mul(k, both))]
    };
    let count = n - 2;
    let inner = (count > 0).then(|| {
        let [a, b, c] = of_three(piece(gap, 0, 0, count), piece(gap, 0, 1, count));
        sum(count, &[(0, a), (1, b), (2, c)])
    });
    let edge = |near: usize, far: usize, at: [usize; 3], sign: f64| {
        let h = piece(gap, 0, near, 1);
        if edge_order == 1 {
            let slope = mul(prims::reciprocal(h), sign);
            return sum(1, &[(at[1], slope), (at[0], neg(slope))]);
        }
        let k = piece(gap, 0, far, 1);
        let both = add(h, k);
        let a = neg(div(add(both, h), mul(h, both)));
        let (b, c) = (div(both, mul(h, k)), neg(div(h, mul(k, both))));
        sum(1, &[(at[0], mul(a, sign)), (at[1], mul(b, sign)), (at[2], mul(c, sign))])
    };
    let third = 2.min(n - 1);
    let first = edge(0, 1.min(n - 2), [0, 1, third], 1.0);
    let last = edge(n - 2, n.saturating_sub(3), [n - 1, n - 2, n - 1 - third], -1.0);
    match inner {
        Some(inner) => joined(first, inner, last, dim),
        None => prims::cat(vec![first, last], dim),
    }
}

/// For references: the slope of the parabola through three points, or of the line through two, at the place `at`.
fn slope(points: &[(f64, f64)], at: f64) -> f64 {
    // The derivative of Lagrange's polynomials.
    let one = |i: usize| {
        let others: Vec<f64> = (0..points.len()).filter(|j| *j != i).map(|j| points[j].0).collect();
        let below: f64 = others.iter().map(|place| points[i].0 - place).product();
        let above = match others[..] {
            [a, b] => (at - a) + (at - b),
            _ => 1.0,
        };
        points[i].1 * above / below
    };
    (0..points.len()).map(one).sum()
}

/// For references: slopes along a dimension of values at places.
fn by_hand(x: &ArrayD<f64>, dim: usize, places: &[f64], edge_order: i64) -> ArrayD<f64> {
    super::arrays::along(x, dim as i64, |row| {
        let n = row.len();
        let point = |i: usize| (places[i], row[i]);
        let one = |i: usize| match i {
            0 if edge_order == 1 => slope(&[point(0), point(1)], places[0]),
            0 => slope(&[point(0), point(1), point(2)], places[0]),
            _ if i + 1 < n => slope(&[point(i - 1), point(i), point(i + 1)], places[i]),
            _ if edge_order == 1 => slope(&[point(i - 1), point(i)], places[i]),
            _ => slope(&[point(i - 2), point(i - 1), point(i)], places[i]),
        };
        (0..n).map(one).collect()
    })
}

/// The slopes of a function whose values at evenly distant points are `input`, along each dimension of `dim`, or along
/// each: half of the difference of both neighbours by the distance. At the edges it is the slope of the line through
/// the two last points, or of the parabola through the three last ones if `edge_order` is 2. Integers become f32.
#[operator(torch = "gradient")]
pub mod gradient {
    fn gradient(
        input: Tensor<Number>,
        #[default(Spacing::One(1.0))] spacing: Spacing,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(1)] edge_order: i64,
    ) -> Vec<Tensor>;

    fn requires(input: &TensorMeta, spacing: &Spacing, dim: Option<&[i64]>, edge_order: i64) -> Result<()> {
        let along = super::checked(input, dim, edge_order, [Code::Dims, Code::EdgeOrder, Code::Extent])?;
        let fits = !matches!(spacing, Spacing::Each(all) if all.len() != along.len());
        require!(fits, Distances, "spacing is {spacing:?}, expected a number, or one for each of {along:?}");
        Ok(())
    }

    fn decomposition(input: Tensor, spacing: Spacing, dim: Option<&[i64]>, edge_order: i64) -> Vec<Tensor> {
        let along = super::along(dim, input.rank()).unwrap_or_default();
        let one = |(i, dim): (usize, usize)| {
            let distance = match &spacing {
                Spacing::One(distance) => *distance,
                Spacing::Each(all) => all[i],
            };
            in_floating(input, |x| super::evenly(x, dim, distance, edge_order))
        };
        along.into_iter().enumerate().map(one).collect()
    }

    fn reference(input: &ArrayD<f64>, spacing: &Spacing, dim: Option<&[i64]>, edge_order: i64) -> Vec<ArrayD<f64>> {
        let along = super::along(dim, input.ndim()).unwrap_or_default();
        let one = |(i, dim): (usize, usize)| {
            let distance = match spacing {
                Spacing::One(distance) => *distance,
                Spacing::Each(all) => all[i],
            };
            let places: Vec<f64> = (0..input.shape()[dim]).map(|at| at as f64 * distance).collect();
            super::by_hand(input, dim, &places, edge_order)
        };
        along.into_iter().enumerate().map(one).collect()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5])));
        s.case(with(s.normal([3, 4])).spacing(Spacing::One(0.5)).edge_order(2));
        s.case(with(s.normal([2, 3, 3])).spacing(Spacing::Each(vec![2.0, 0.5])).dim(vec![-1, 0]));
        s.case(with(s.normal([0, 2])).dim(vec![1]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "expected distinct dimensions of shape [2, 3]");
        e.case(Dims, with(e.normal([])), "expected distinct dimensions of shape []");
        e.case(EdgeOrder, with(e.normal([4])).edge_order(3), "edge_order is 3");
        e.case(Extent, with(e.normal([2, 3])).edge_order(2), "input has 2 elements in dimension 0");
        let few = with(e.normal([2, 3])).spacing(Spacing::Each(vec![1.0]));
        e.case(Distances, few, "expected a number, or one for each of [0, 1]");
    }
}

/// [`mod@gradient`] of values at points whose coordinates are `spacing`: a vector for each dimension of `dim`, or for
/// each. Within, it is the slope of the parabola through a point and its neighbours.
#[operator]
pub mod gradient_at {
    fn gradient_at(
        input: Tensor<Number>,
        spacing: Vec<Tensor<Number>>,
        #[default(None)] dim: Option<Vec<i64>>,
        #[default(1)] edge_order: i64,
    ) -> Vec<Tensor>;

    fn requires(input: &TensorMeta, spacing: &[TensorMeta], dim: Option<&[i64]>, edge_order: i64) -> Result<()> {
        let along = super::checked(input, dim, edge_order, [Code::Dims, Code::EdgeOrder, Code::Extent])?;
        let shapes: Vec<&[usize]> = spacing.iter().map(TensorMeta::shape).collect();
        let expected: Vec<[usize; 1]> = along.iter().map(|dim| [input.shape()[*dim]]).collect();
        require!(shapes == expected, Coordinates, "spacing has shapes {shapes:?}, expected {expected:?}");
        Ok(())
    }

    fn decomposition(input: Tensor, spacing: &[Tensor], dim: Option<&[i64]>, edge_order: i64) -> Vec<Tensor> {
        let along = super::along(dim, input.rank()).unwrap_or_default();
        let one = |(dim, places): (usize, &Tensor)| {
            in_floating(input, |x| super::unevenly(x, cast(*places, x.dtype()), dim, edge_order))
        };
        along.into_iter().zip(spacing).map(one).collect()
    }

    fn reference(
        input: &ArrayD<f64>,
        spacing: Vec<&ArrayD<f64>>,
        dim: Option<&[i64]>,
        edge_order: i64,
    ) -> Vec<ArrayD<f64>> {
        let along = super::along(dim, input.ndim()).unwrap_or_default();
        let one = |(dim, places): (usize, &&ArrayD<f64>)| {
            let places: Vec<f64> = places.iter().copied().collect();
            super::by_hand(input, dim, &places, edge_order)
        };
        along.into_iter().zip(&spacing).map(one).collect()
    }

    fn samples(s: &mut Samples) {
        let places = |s: &Samples, count: usize| s.values([count], [0.0, 2.0, 3.0, 7.0, 8.0]);
        s.case(with(s.normal([5]), [places(s, 5)]));
        s.case(with(s.normal([3, 4]), [places(s, 3), places(s, 4)]).edge_order(2));
        s.case(with(s.normal([2, 3, 2]), [places(s, 2)]).dim(vec![-1]));
        s.case(with(s.normal([3, 3]), [places(s, 3)]).dim(vec![0]));
    }

    fn errors(e: &mut ErrorSamples) {
        let places = |e: &ErrorSamples, count: usize| e.values([count], [0.0, 2.0, 3.0]);
        e.case(Dims, with(e.normal([3]), [places(e, 3)]).dim(vec![1]), "expected distinct dimensions of shape [3]");
        e.case(EdgeOrder, with(e.normal([3]), [places(e, 3)]).edge_order(0), "edge_order is 0");
        e.case(Extent, with(e.normal([1]), [places(e, 1)]), "input has 1 elements in dimension 0");
        e.case(Coordinates, with(e.normal([3]), [places(e, 2)]), "spacing has shapes [[2]], expected [[3]]");
    }
}
