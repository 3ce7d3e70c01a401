//! Differences of neighbours, integrals by trapezoids, and statistics of pairs of variables.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{array, values};
use super::promotion::{broadcast_shapes, cast, floating, position, result_type};
use super::{cat, cumsum, div, logical_xor, mul, piece, read_as, sub, sum};
use crate::prims;

/// The differences of neighbours along `dim`, taken `n` times, after `prepend` was put before and `append` behind
/// `input`. Of booleans they are whether neighbours differ. More differences than elements leave none.
#[operator(torch = "diff")]
pub mod diff {
    fn diff(
        input: Tensor,
        #[default(1)] n: usize,
        #[default(-1)] dim: i64,
        #[default(None)] prepend: Option<Tensor>,
        #[default(None)] append: Option<Tensor>,
    ) -> Tensor;

    fn requires(Args { input, dim, prepend, append, .. }: Args<&TensorMeta>) -> Result<()> {
        require!(input.rank() > 0, Rank, "input has no dimensions, expected at least one");
        let dim = normalize_dim(dim, input.rank())?;
        for (name, other) in [("prepend", prepend), ("append", append)] {
            let Some(other) = other else { continue };
            let fits = other.rank() == input.rank()
                && (0..input.rank()).all(|i| i == dim || other.shape()[i] == input.shape()[i]);
            require!(
                fits,
                Shapes,
                "{name} has shape {:?} and input {:?}, expected equal extents but in dimension {dim}",
                other.shape(),
                input.shape()
            );
        }
        Ok(())
    }

    fn decomposition(Args { input, n, dim, prepend, append }: Args<Tensor>) -> Tensor {
        if n == 0 {
            return input;
        }
        let parts: Vec<Tensor> = [prepend, Some(input), append].into_iter().flatten().collect();
        let dim = position(dim, input.rank());
        let whole = if parts.len() == 1 { input } else { cat::with(&parts).dim(dim as i64).call() };
        // Beyond the extent nothing is left, however often differences are taken.
        (0..n.min(whole.shape()[dim])).fold(whole, |x, _| super::difference(x, dim))
    }

    fn reference(Args { input, n, dim, prepend, append }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let axis = ndarray::Axis(dim.rem_euclid(input.shape().len() as i64) as usize);
        if n == 0 {
            return input.floats().clone();
        }
        let parts: Vec<_> =
            [prepend, Some(input), append].into_iter().flatten().map(|part| part.floats().view()).collect();
        let whole = ndarray::concatenate(axis, &parts).unwrap_or_else(|_| unreachable!("the shapes were checked"));
        let booleans = input.dtype() == DType::Bool;
        (0..n.min(whole.shape()[axis.index()])).fold(whole, |x, _| {
            let last = x.shape()[axis.index()].saturating_sub(1);
            let (before, after) = (x.slice_axis(axis, (0..last).into()), x.slice_axis(axis, (1..).into()));
            let of = |a: &f64, b: &f64| if booleans { f64::from(u8::from(a != b)) } else { a - b };
            ndarray::Zip::from(&after).and(&before).map_collect(of)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5])));
        s.case(with(s.normal([2, 5])).n(2));
        s.case(with(s.normal([3, 2])).dim(0).prepend(s.normal([1, 2])).append(s.normal([2, 2])));
        s.case(with(s.normal([2, 3])).n(4));
        s.case(with(s.normal([2, 3])).n(0));
        s.case(with(s.normal([0, 3])).dim(1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([])), "input has no dimensions");
        e.case(Shapes, with(e.normal([2, 3])).prepend(e.normal([3, 1])), "prepend has shape [3, 1]");
        e.case(Shapes, with(e.normal([2, 3])).append(e.normal([1])), "append has shape [1]");
    }
}

/// Each element of `dim` but the first without the one before it.
#[track_caller]
fn difference(x: Tensor, dim: usize) -> Tensor {
    let (before, after) = neighbours(x, dim);
    if x.dtype() == DType::Bool { logical_xor(after, before) } else { prims::sub(after, before) }
}

/// All elements along `dim` but the last, and all but the first.
#[track_caller]
fn neighbours(x: Tensor, dim: usize) -> (Tensor, Tensor) {
    let count = x.shape()[dim].saturating_sub(1);
    let first = x.shape()[dim] - count;
    (piece(x, dim, 0, count), piece(x, dim, first, count))
}

fulgurite_ops_macros::operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            y: Tensor<Number>,
            #[default(None)] x: Option<Tensor<Number>>,
            #[default(None)] dx: Option<f64>,
            #[default(-1)] dim: i64,
        ) -> Tensor;

        fn requires(Args { y, x, dx, dim }: Args<&TensorMeta>) -> Result<()> {
            require!(y.rank() > 0, Rank, "y has no dimensions, expected at least one");
            let place = normalize_dim(dim, y.rank())?;
            require!(x.is_none() || dx.is_none(), Spacing, "x and dx are both given, expected one of them");
            if let Some(x) = x {
                let places = super::places_of(x.shape(), y.shape(), place);
                require!(
                    places.is_some(),
                    Places,
                    "x has shape {:?} and y {:?}, expected a place for each element of dimension {place} of y",
                    x.shape(),
                    y.shape()
                );
            }
            Ok(())
        }

        fn decomposition(Args { y, x, dx, dim }: Args<Tensor>) -> Tensor {
            let place = position(dim, y.rank());
            let terms = super::trapezoids(y, x, dx, place);
            let reduce: fn(Tensor, i64) -> Tensor = $reduce;
            let total = reduce(terms, place as i64);
            if total.dtype().is_floating() { cast(total, super::area_type(y, x)) } else { total }
        }

        fn reference(Args { y, x, dx, dim }: Args<&ReferenceTensor>) -> ArrayD<f64> {
            let place = dim.rem_euclid(y.shape().len() as i64) as usize;
            super::areas(y.floats(), x.map(|x| x.floats()), dx.unwrap_or(1.0), place, $cumulative)
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 5])));
            s.case(with(s.normal([3, 2])).dx(0.5).dim(0));
            s.case(with(s.normal([2, 4])).x(s.uniform(-4.0, 4.0, [4])));
            s.case(with(s.normal([2, 3])).x(s.uniform(-4.0, 4.0, [2, 3])));
            s.case(with(s.normal([2, 1])));
            s.case(with(s.normal([0, 3])));
            s.case(with(s.normal([4])));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Rank, with(e.normal([])), "y has no dimensions");
            e.case(Spacing, with(e.normal([2])).x(e.normal([2])).dx(1.0), "x and dx are both given");
            e.case(Places, with(e.normal([2, 3])).x(e.normal([2])), "a place for each element");
            e.case(Places, with(e.normal([2, 3])).x(e.normal([])), "a place for each element");
        }
    }

    table($name, $torch, $reduce, $cumulative) {
        /// The integral of `y` along `dim` by the trapezoidal rule: of neighbours at the places `x`, or `dx` apart (1
        /// if both are absent).
        trapezoid, "trapezoid", |terms, dim| sum::with(terms).dim(vec![dim]).call(), false;
        /// The integral of `y` along `dim` by the trapezoidal rule; see [`mod@trapezoid`].
        trapz, "trapz", |terms, dim| sum::with(terms).dim(vec![dim]).call(), false;
        /// The integrals of `y` along `dim` up to each element but the first, by the trapezoidal rule: of neighbours at
        /// the places `x`, or `dx` apart (1 if both are absent).
        cumulative_trapezoid, "cumulative_trapezoid", |terms, dim| cumsum(terms, dim), true;
    }
}

/// The shape of `x` as places of the elements of dimension `dim` of `y`: one dimension that is `dim`, or those of `y`,
/// which broadcast.
fn places_of(x: &[usize], y: &[usize], dim: usize) -> Option<Vec<usize>> {
    let shape = match *x {
        [] => return None,
        [length] => [vec![length], vec![1; y.len() - 1 - dim]].concat(),
        _ => x.to_vec(),
    };
    let along = shape.len().checked_sub(y.len() - dim)?;
    let fits = shape[along] == y[dim] && broadcast_shapes(&[&shape, y]).is_some_and(|all| all.len() == y.len());
    fits.then_some(shape)
}

/// The type of areas: that in which `y` meets the places or a distance, a floating-point one.
fn area_type(y: Tensor, x: Option<Tensor>) -> DType {
    let operands: Vec<Operand<Tensor>> = [Some(y), x].into_iter().flatten().map(Operand::Tensor).collect();
    floating(result_type(&operands))
}

/// The areas between neighbours along `dim`, in the type that sums of them are added up in.
#[track_caller]
fn trapezoids(y: Tensor, x: Option<Tensor>, dx: Option<f64>, dim: usize) -> Tensor {
    let wide = area_type(y, x).accumulator();
    let (before, after) = neighbours(cast(y, wide), dim);
    let heights = prims::add(before, after);
    let terms = match x {
        Some(x) => {
            let rank = y.rank();
            let shape = places_of(&x.shape(), &y.shape(), dim).unwrap_or_default();
            let along = shape.len() - (rank - dim);
            mul(heights, difference(cast(read_as(x, &shape), wide), along))
        }
        None => prims::mul(heights, dx.unwrap_or(1.0)),
    };
    prims::mul(terms, 0.5)
}

/// For references: the areas along `dim`, summed or up to each.
fn areas(y: &ArrayD<f64>, x: Option<&ArrayD<f64>>, dx: f64, dim: usize, cumulative: bool) -> ArrayD<f64> {
    let x = x.map(|x| {
        let shape =
            if x.ndim() == 1 { [vec![x.len()], vec![1; y.ndim() - 1 - dim]].concat() } else { x.shape().to_vec() };
        super::arrays::spread(&super::arrays::reshaped(x, &shape), y.shape())
    });
    let mut shape = y.shape().to_vec();
    let count = shape[dim].saturating_sub(1);
    if cumulative {
        shape[dim] = count;
    } else {
        shape.remove(dim);
    }
    let shape_rank = shape.len();
    ArrayD::from_shape_fn(shape, |index| {
        let mut at: Vec<usize> = (0..shape_rank).map(|i| index[i]).collect();
        let last = if cumulative { at[dim] + 1 } else { count };
        if !cumulative {
            at.insert(dim, 0);
        }
        let element = |array: &ArrayD<f64>, i: usize| {
            let mut place = at.clone();
            place[dim] = i;
            array[place.as_slice()]
        };
        let width = |i: usize| x.as_ref().map_or(dx, |x| element(x, i + 1) - element(x, i));
        (0..last).map(|i| (element(y, i) + element(y, i + 1)) / 2.0 * width(i)).sum::<f64>()
    })
}

/// The powers of a vector's elements as columns: from `x^(n-1)` down to 1, or from 1 up if `increasing`. Without `n`
/// there are as many columns as rows. PyTorch calls the number `N`.
#[operator(torch = "vander")]
pub mod vander {
    fn vander(x: Tensor<Number>, #[default(None)] n: Option<usize>, #[default(false)] increasing: bool) -> Tensor;

    fn requires(x: &TensorMeta, n: Option<usize>) -> Result<()> {
        require!(x.rank() == 1, Rank, "x has shape {:?}, expected one dimension", x.shape());
        let columns = n.unwrap_or(x.len());
        require!(columns <= MOST_POWERS, Columns, "n is {columns}, expected at most {MOST_POWERS} powers");
        Ok(())
    }

    fn decomposition(x: Tensor, n: Option<usize>, increasing: bool) -> Tensor {
        let (rows, columns) = (x.meta().len(), n.unwrap_or(x.meta().len()));
        let dtype = if x.dtype().is_integer() { DType::I64 } else { x.dtype() };
        let (x, mut power) = (cast(x, dtype), super::super::promotion::constant_like(cast(x, dtype), 1i64));
        let mut powers = Vec::with_capacity(columns);
        for i in 0..columns {
            powers.push(prims::reshape(power, [rows, 1]));
            if i + 1 < columns {
                power = prims::mul(power, x);
            }
        }
        if !increasing {
            powers.reverse();
        }
        match powers.as_slice() {
            [] => prims::full([rows, 0], super::super::promotion::number(0i64.into(), dtype), dtype, x.device()),
            [only] => *only,
            _ => prims::cat(&powers, 1),
        }
    }

    fn reference(x: &ArrayD<f64>, n: Option<usize>, increasing: bool) -> ArrayD<f64> {
        let columns = n.unwrap_or(x.len());
        let of =
            |row: usize, column: usize| x[[row]].powi(if increasing { column } else { columns - 1 - column } as i32);
        let all = (0..x.len()).flat_map(|row| (0..columns).map(move |column| (row, column)));
        array(&[x.len(), columns], all.map(|(row, column)| of(row, column)).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(-2.5, 2.5, [3])));
        s.case(with(s.uniform(-2.5, 2.5, [4])).n(3).increasing(true));
        s.case(with(s.normal([2])).n(1));
        s.case(with(s.normal([2])).n(0));
        s.case(with(s.normal([0])).n(2));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 2])), "expected one dimension");
        e.case(Columns, with(e.normal([2])).n(1 << 20), "expected at most");
    }
}

/// The most powers of a vector, each of which is an operation.
const MOST_POWERS: usize = 4096;

/// The covariances of the variables in the rows of `input`, whose columns are observations: `Σ w (x - m)(y - m')`
/// divided by the number of observations less `correction`. `fweights` says how often each was observed, `aweights` how
/// much it weighs; `w` is their product, and the divisor is `Σ w - correction · Σ w·aweights / Σ w` then, at least 0.
/// The result has the floating-point type that `input` and `aweights` meet in. Negative weights are not refused.
#[operator(torch = "cov")]
pub mod cov {
    fn cov(
        input: Tensor<Number>,
        #[default(1)] correction: i64,
        #[default(None)] fweights: Option<Tensor<Integer>>,
        #[default(None)] aweights: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn requires(Args { input, fweights, aweights, .. }: Args<&TensorMeta>) -> Result<()> {
        require!(input.rank() <= 2, Rank, "input has shape {:?}, expected two dimensions at most", input.shape());
        let count = input.shape().last().copied().unwrap_or(1);
        for (name, weights) in [("fweights", fweights), ("aweights", aweights)] {
            let fits = weights.is_none_or(|weights| weights.shape() == [count]);
            let shape = weights.map(TensorMeta::shape).unwrap_or_default();
            require!(fits, Weights, "{name} has shape {shape:?}, expected [{count}], a weight for each observation");
        }
        Ok(())
    }

    fn decomposition(Args { input, correction, fweights, aweights }: Args<Tensor>) -> Tensor {
        let dtype = floating(result_type(&[input, aweights.unwrap_or(input)].map(Operand::Tensor)));
        let wide = dtype.accumulator();
        let shape = input.shape();
        let matrix: [usize; 2] = match *shape {
            [rows, columns] => [rows, columns],
            [columns] => [1, columns],
            _ => [1, 1],
        };
        let [rows, columns] = matrix;
        let x = read_as(cast(input, wide), &matrix);
        let [fweights, aweights] = [fweights, aweights].map(|weights| weights.map(|weights| cast(weights, wide)));
        let weights = match (fweights, aweights) {
            (Some(f), Some(a)) => Some(prims::mul(f, a)),
            (f, a) => f.or(a),
        };
        let total = |tensor: Tensor, dim: i64| sum::with(tensor).dim(vec![dim]).call();
        // Weighted means, and the number that the sums are divided by.
        let (mean, divisor) = match weights {
            None => (div(total(x, 1), columns as f64), None),
            Some(weights) => {
                let all = total(weights, 0);
                let squares = aweights.map_or(all, |a| total(prims::mul(weights, a), 0));
                let less = prims::mul(prims::div(squares, all), correction as f64);
                (div(total(mul(x, weights), 1), all), Some(sub(all, less)))
            }
        };
        let centred = sub(x, prims::reshape(mean, [rows, 1]));
        let weighted = weights.map_or(centred, |weights| mul(centred, weights));
        let products = super::super::mm(weighted, prims::permute(centred, [1, 0]));
        let out = match divisor {
            Some(divisor) => div(products, prims::select(prims::lt(divisor, 0.0), 0.0, divisor)),
            None => div(products, (columns as f64 - correction as f64).max(0.0)),
        };
        let out = if shape.len() == 2 && rows != 1 { out } else { prims::reshape(out, squeezed(rows)) };
        cast(out, dtype)
    }

    /// The shape of the result of `rows` variables: PyTorch leaves out dimensions of extent one.
    fn squeezed(rows: usize) -> Vec<usize> {
        if rows == 1 { Vec::new() } else { vec![rows, rows] }
    }

    fn reference(Args { input, correction, fweights, aweights }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let input = input.floats();
        let columns = input.shape().last().copied().unwrap_or(1);
        let rows = if input.shape().len() == 2 { input.shape()[0] } else { 1 };
        let x = values(input);
        let of = |weights: Option<&ArrayD<f64>>| weights.map_or(vec![1.0; columns], values);
        let (f, a) = (fweights.map(|w| w.mapv(|count| count as f64)), aweights.cloned());
        let (f, a) = (of(f.as_ref()), of(a.as_ref()));
        let w: Vec<f64> = (0..columns).map(|k| f[k] * a[k]).collect();
        let total: f64 = w.iter().sum();
        let squares: f64 = (0..columns).map(|k| w[k] * a[k]).sum();
        let plain = fweights.is_none() && aweights.is_none();
        let divisor = if plain { total - correction as f64 } else { total - correction as f64 * squares / total };
        let mean = |i: usize| (0..columns).map(|k| w[k] * x[i * columns + k]).sum::<f64>() / total;
        let term = |i: usize, j: usize| {
            let (m, n) = (mean(i), mean(j));
            let sum = (0..columns).map(|k| w[k] * (x[i * columns + k] - m) * (x[j * columns + k] - n)).sum::<f64>();
            sum / divisor.max(0.0)
        };
        let all = (0..rows * rows).map(|at| term(at / rows, at % rows)).collect();
        array(&squeezed(rows), all)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
        s.case(with(s.normal([2, 4])).correction(0).fweights(s.integers(1, 4, [4])));
        let weights = s.uniform(0.5, 2.0, [4]).cast(DType::F32);
        s.case(with(s.normal([2, 4])).aweights(weights).fweights(s.integers(1, 4, [4])));
        s.case(with(s.normal([5])));
        s.case(with(s.normal([1, 4])));
        s.case(with(s.normal([2, 2])).correction(3)).forward_only("a divisor of zero");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([1, 2, 3])), "two dimensions at most");
        e.case(Weights, with(e.normal([2, 3])).fweights(e.integers(0, 2, [2])), "fweights has shape [2]");
        e.case(Weights, with(e.normal([2, 3])).aweights(e.normal([3, 1])), "aweights has shape [3, 1]");
        e.case(Weights, with(e.normal([])).aweights(e.normal([2])), "aweights has shape [2], expected [1]");
    }
}

/// The correlation coefficients of the variables in the rows of `input`, whose columns are observations, from -1 to 1.
/// Integers become f32.
#[operator(torch = "corrcoef")]
pub mod corrcoef {
    fn corrcoef(input: Tensor<Number>) -> Tensor;

    fn requires(input: &TensorMeta) -> Result<()> {
        require!(input.rank() <= 2, Rank, "input has shape {:?}, expected two dimensions at most", input.shape());
        Ok(())
    }

    fn decomposition(input: Tensor) -> Tensor {
        let dtype = floating(input.dtype());
        let covariances = super::cov(cast(input, dtype.accumulator()));
        if covariances.rank() == 0 {
            return cast(prims::div(covariances, covariances), dtype);
        }
        let spread = prims::sqrt(super::super::diagonal(covariances));
        let columns = prims::reshape(spread, [spread.meta().len(), 1]);
        let out = div(div(covariances, columns), spread);
        // Roundings may lead beyond the bounds.
        cast(super::super::clamp::with(out).min(-1.0).max(1.0).call(), dtype)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let columns = input.shape().last().copied().unwrap_or(1);
        let rows = if input.ndim() == 2 { input.shape()[0] } else { 1 };
        let x = values(input);
        let mean = |i: usize| x[i * columns..(i + 1) * columns].iter().sum::<f64>() / columns as f64;
        let product = |i: usize, j: usize| {
            let (m, n) = (mean(i), mean(j));
            (0..columns).map(|k| (x[i * columns + k] - m) * (x[j * columns + k] - n)).sum::<f64>()
        };
        let one = |i: usize, j: usize| product(i, j) / (product(i, i) * product(j, j)).sqrt();
        let all = (0..rows * rows).map(|at| one(at / rows, at % rows)).collect();
        array(&if rows == 1 { vec![] } else { vec![rows, rows] }, all)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
        s.case(with(s.normal([2, 4])));
        s.case(with(s.normal([5]))).forward_only("a constant");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([1, 2, 3])), "two dimensions at most");
    }
}
