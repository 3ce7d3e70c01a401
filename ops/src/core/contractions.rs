//! Sums of products over chosen dimensions of two tensors, and products of each element with each.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::argument::{Attribute, AttributeType};
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::arrays::{array, permuted, reduce, reshaped, spread, values, zip};
use super::parts;
use super::promotion::{accumulating, broadcast, broadcast_shapes, cast, position};
use super::{mm, mul, read_as, sum};
use crate::prims;
use crate::prims::checks::same_dtype;

/// The products over the last dimensions of both: `out[i, j] = Σ input[i, k] · other[j, k]`, with the other dimensions
/// of both. A number is multiplied with each element, in the type they meet in.
#[operator(torch = "inner", autocast = low)]
pub mod inner {
    fn inner(input: Tensor<Number>, other: Tensor<Number>) -> Tensor;

    fn requires(input: &TensorMeta, other: &TensorMeta) -> Result<()> {
        if input.rank() == 0 || other.rank() == 0 {
            return Ok(());
        }
        same_dtype(("input", input), ("other", other), Code::SameDType)?;
        require!(
            input.shape().last() == other.shape().last(),
            Extents,
            "input has shape {:?} and other {:?}, expected equal last extents",
            input.shape(),
            other.shape()
        );
        Ok(())
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        if input.rank() == 0 || other.rank() == 0 {
            return mul(input, other);
        }
        let last = |tensor: Tensor| vec![tensor.rank() - 1];
        super::contracted(input, other, &last(input), &last(other))
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        if input.ndim() == 0 || other.ndim() == 0 {
            return zip(input, other, |a, b| a * b);
        }
        super::tensordot_reference(input, other, &[input.ndim() - 1], &[other.ndim() - 1])
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([2, 5, 4])));
        s.case(with(s.normal([5]), s.normal([5])));
        s.case(with(s.normal([]), s.normal([2, 3])));
        s.case(with(s.normal([2, 0]), s.normal([3, 0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameDType, with(e.of(DType::F32, [2]), e.of(DType::F64, [2])), "expected equal dtypes");
        e.case(Extents, with(e.normal([2, 3]), e.normal([3, 2])), "expected equal last extents");
    }
}

/// The dimensions that [`mod@tensordot`] sums over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContractedDims {
    /// The last so many of the first tensor and the first of the second.
    Count(i64),
    /// These of the first and these of the second, one by one.
    Pairs(Vec<i64>, Vec<i64>),
}

impl AttributeType for ContractedDims {
    fn type_name() -> String {
        "dimensions".into()
    }
    fn to_attribute(&self) -> Attribute {
        match self {
            ContractedDims::Count(count) => count.to_attribute(),
            ContractedDims::Pairs(first, second) => vec![first.clone(), second.clone()].to_attribute(),
        }
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        if let Some(count) = i64::from_attribute(attribute) {
            return Some(ContractedDims::Count(count));
        }
        let [first, second] = <[Vec<i64>; 2]>::try_from(Vec::<Vec<i64>>::from_attribute(attribute)?).ok()?;
        Some(ContractedDims::Pairs(first, second))
    }
}

/// The sum of products over dimensions of both tensors: the last `dims` of `a` and the first of `b`, or those that two
/// lists name. The result has the other dimensions of `a`, then those of `b`. An extent of one is repeated.
#[operator(torch = "tensordot", autocast = widest)]
pub mod tensordot {
    fn tensordot(
        a: Tensor<Number>,
        b: Tensor<Number>,
        #[default(ContractedDims::Count(2))] dims: ContractedDims,
    ) -> Tensor;

    fn requires(a: &TensorMeta, b: &TensorMeta, dims: &ContractedDims) -> Result<()> {
        same_dtype(("a", a), ("b", b), Code::SameDType)?;
        let named = super::contracted_dims([a.rank(), b.rank()], dims);
        require!(
            named.is_some(),
            Dims,
            "dims is {dims:?}, expected distinct dimensions of tensors of rank {} and {}, as many of both",
            a.rank(),
            b.rank()
        );
        let (of_a, of_b) = named.unwrap_or_default();
        let fits =
            |(i, j): (&usize, &usize)| a.shape()[*i] == b.shape()[*j] || a.shape()[*i] == 1 || b.shape()[*j] == 1;
        require!(
            of_a.iter().zip(&of_b).all(fits),
            Extents,
            "a has shape {:?} and b {:?}, whose dimensions {of_a:?} and {of_b:?} do not meet",
            a.shape(),
            b.shape()
        );
        Ok(())
    }

    fn decomposition(a: Tensor, b: Tensor, dims: ContractedDims) -> Tensor {
        let (of_a, of_b) = super::contracted_dims([a.rank(), b.rank()], &dims).unwrap_or_default();
        let (to_a, to_b) = (b.shape(), a.shape());
        let a = super::lengthened(a, of_a.iter().zip(of_b.iter().map(|dim| to_a[*dim])));
        let b = super::lengthened(b, of_b.iter().zip(of_a.iter().map(|dim| to_b[*dim])));
        super::contracted(a, b, &of_a, &of_b)
    }

    fn reference(a: &ArrayD<f64>, b: &ArrayD<f64>, dims: &ContractedDims) -> ArrayD<f64> {
        let (of_a, of_b): (Vec<usize>, Vec<usize>) = match dims {
            ContractedDims::Count(count) => {
                let count = *count as usize;
                ((a.ndim() - count..a.ndim()).collect(), (0..count).collect())
            }
            ContractedDims::Pairs(first, second) => {
                let of =
                    |dims: &[i64], rank: usize| dims.iter().map(|dim| dim.rem_euclid(rank as i64) as usize).collect();
                (of(first, a.ndim()), of(second, b.ndim()))
            }
        };
        let longer = |array: &ArrayD<f64>, own: &[usize], other: &ArrayD<f64>, dims: &[usize]| {
            let mut shape = array.shape().to_vec();
            own.iter()
                .zip(dims)
                .filter(|(i, _)| array.shape()[**i] == 1)
                .for_each(|(i, j)| shape[*i] = other.shape()[*j]);
            spread(array, &shape)
        };
        super::tensordot_reference(&longer(a, &of_a, b, &of_b), &longer(b, &of_b, a, &of_a), &of_a, &of_b)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 4]), s.normal([3, 4, 5])));
        s.case(with(s.normal([2, 3, 4]), s.normal([4, 5, 2])).dims(ContractedDims::Pairs(vec![0, -1], vec![2, 0])));
        s.case(with(s.normal([2]), s.normal([3])).dims(ContractedDims::Count(0)));
        s.case(with(s.normal([2, 1]), s.normal([4])).dims(ContractedDims::Count(1)));
        s.case(with(s.normal([2, 0]), s.normal([0, 3])).dims(ContractedDims::Count(1)));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameDType, with(e.of(DType::F32, [2, 2]), e.of(DType::F64, [2, 2])), "expected equal dtypes");
        e.case(Dims, with(e.normal([2]), e.normal([2])), "dims is Count(2)");
        let twice = ContractedDims::Pairs(vec![0, 0], vec![0, 1]);
        e.case(Dims, with(e.normal([2, 2]), e.normal([2, 2])).dims(twice), "expected distinct dimensions");
        let fewer = ContractedDims::Pairs(vec![0], vec![0, 1]);
        e.case(Dims, with(e.normal([2, 2]), e.normal([2, 2])).dims(fewer), "as many of both");
        e.case(Extents, with(e.normal([2, 3]), e.normal([2, 3])).dims(ContractedDims::Count(1)), "do not meet");
    }
}

/// The positions of the dimensions that `dims` names of both tensors; `None` if it names others, one twice, or more of
/// one than of the other.
fn contracted_dims(ranks: [usize; 2], dims: &ContractedDims) -> Option<(Vec<usize>, Vec<usize>)> {
    match dims {
        ContractedDims::Count(count) => {
            let count = usize::try_from(*count).ok().filter(|count| *count <= ranks[0].min(ranks[1]))?;
            Some(((ranks[0] - count..ranks[0]).collect(), (0..count).collect()))
        }
        ContractedDims::Pairs(first, second) => {
            let of = |dims: &[i64], rank: usize| -> Option<Vec<usize>> {
                let named = super::promotion::named_dims(dims, rank)?;
                (named.len() == dims.len()).then(|| dims.iter().map(|dim| position(*dim, rank)).collect())
            };
            let both = (of(first, ranks[0])?, of(second, ranks[1])?);
            (both.0.len() == both.1.len()).then_some(both)
        }
    }
}

/// With the dimensions of extent one among those named as long as said.
#[track_caller]
fn lengthened<'a>(tensor: Tensor, extents: impl Iterator<Item = (&'a usize, usize)>) -> Tensor {
    let own = tensor.shape();
    let mut shape = own.to_vec();
    extents.filter(|(dim, _)| own[**dim] == 1).for_each(|(dim, extent)| shape[*dim] = extent);
    broadcast(tensor, &shape)
}

/// The sum of products over `of_a` and `of_b`, as one product of matrices.
#[track_caller]
fn contracted(a: Tensor, b: Tensor, of_a: &[usize], of_b: &[usize]) -> Tensor {
    let free = |rank: usize, dims: &[usize]| -> Vec<usize> { (0..rank).filter(|dim| !dims.contains(dim)).collect() };
    let (free_a, free_b) = (free(a.rank(), of_a), free(b.rank(), of_b));
    let extents = |tensor: Tensor, dims: &[usize]| -> Vec<usize> {
        let shape = tensor.shape();
        dims.iter().map(|dim| shape[*dim]).collect()
    };
    let shape = [extents(a, &free_a), extents(b, &free_b)].concat();
    let inner: usize = extents(a, of_a).iter().product();
    let rows: usize = extents(a, &free_a).iter().product();
    let columns: usize = extents(b, &free_b).iter().product();
    let left = read_as(arranged(a, &[free_a, of_a.to_vec()].concat()), &[rows, inner]);
    let right = read_as(arranged(b, &[of_b.to_vec(), free_b].concat()), &[inner, columns]);
    read_as(mm(left, right), &shape)
}

/// The dimensions in this order; the tensor itself if it is theirs.
#[track_caller]
pub(crate) fn arranged(tensor: Tensor, order: &[usize]) -> Tensor {
    if order.iter().enumerate().all(|(i, dim)| i == *dim) { tensor } else { parts::permute(tensor, order) }
}

/// For references: the sum of products over dimensions of both.
fn tensordot_reference(a: &ArrayD<f64>, b: &ArrayD<f64>, of_a: &[usize], of_b: &[usize]) -> ArrayD<f64> {
    let free = |rank: usize, dims: &[usize]| -> Vec<usize> { (0..rank).filter(|dim| !dims.contains(dim)).collect() };
    let (free_a, free_b) = (free(a.ndim(), of_a), free(b.ndim(), of_b));
    let of =
        |array: &ArrayD<f64>, dims: &[usize]| -> Vec<usize> { dims.iter().map(|dim| array.shape()[*dim]).collect() };
    let shape = [of(a, &free_a), of(b, &free_b)].concat();
    let inner: usize = of(a, of_a).iter().product();
    // Rows of what is summed over, last in both.
    let (left, right) =
        (values(&permuted(a, &[&free_a[..], of_a].concat())), values(&permuted(b, &[&free_b[..], of_b].concat())));
    let (rows, columns): (usize, usize) = (of(a, &free_a).iter().product(), of(b, &free_b).iter().product());
    let one = |i: usize, j: usize| (0..inner).map(|k| left[i * inner + k] * right[j * inner + k]).sum::<f64>();
    array(&shape, (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| one(i, j)).collect())
}

/// The sum of the products of the elements of `x` and `y` along `dim`, with broadcasting.
#[operator(torch = "linalg.vecdot")]
pub mod vecdot {
    fn vecdot(x: Tensor<Floating>, y: Tensor<Floating>, #[default(-1)] dim: i64) -> Tensor;

    fn requires(x: &TensorMeta, y: &TensorMeta, dim: i64) -> Result<()> {
        same_dtype(("x", x), ("y", y), Code::SameDType)?;
        let shape = broadcast_shapes(&[x.shape(), y.shape()]);
        require!(shape.is_some(), Broadcast, "shapes {:?} and {:?} do not broadcast", x.shape(), y.shape());
        normalize_dim(dim, shape.unwrap_or_default().len())?;
        Ok(())
    }

    fn decomposition(x: Tensor, y: Tensor, dim: i64) -> Tensor {
        let terms = mul(accumulating(x), accumulating(y));
        cast(sum::with(terms).dim(vec![dim]).call(), x.dtype())
    }

    fn reference(x: &ArrayD<f64>, y: &ArrayD<f64>, dim: i64) -> ArrayD<f64> {
        reduce(&zip(x, y, |a, b| a * b), Some(&[dim]), false, |row| row.iter().sum::<f64>())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([4])));
        s.case(with(s.normal([3, 4]), s.normal([2, 1, 4])).dim(1));
        s.case(with(s.normal([]), s.normal([])));
        s.case(with(s.normal([2, 0]), s.normal([0])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(SameDType, with(e.of(DType::F32, [2]), e.of(DType::F64, [2])), "expected equal dtypes");
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([2])), "shapes [2, 3] and [2] do not broadcast");
    }
}

/// Kronecker's product: each element of `input` replaced by `other` times it. The shorter shape gets ones in front.
#[operator(torch = "kron")]
pub mod kron {
    fn kron(input: Tensor, other: Tensor) -> Tensor;

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        let rank = input.rank().max(other.rank());
        let padded = |tensor: Tensor| [vec![1; rank - tensor.rank()], tensor.shape().to_vec()].concat();
        let (own, block) = (padded(input), padded(other));
        let pairs = |first: &[usize], second: &[usize]| -> Vec<usize> {
            (0..rank).flat_map(|i| [first[i], second[i]]).collect()
        };
        let ones = vec![1; rank];
        let terms = mul(read_as(input, &pairs(&own, &ones)), read_as(other, &pairs(&ones, &block)));
        read_as(terms, &own.iter().zip(&block).map(|(a, b)| a * b).collect::<Vec<_>>())
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        let rank = input.ndim().max(other.ndim());
        let padded = |array: &ArrayD<f64>| {
            let mut shape = array.shape().to_vec();
            while shape.len() < rank {
                shape.insert(0, 1);
            }
            reshaped(array, &shape)
        };
        let (a, b) = (padded(input), padded(other));
        let shape: Vec<usize> = (0..rank).map(|i| a.shape()[i] * b.shape()[i]).collect();
        ArrayD::from_shape_fn(IxDyn(&shape), |index| {
            let at: Vec<usize> = (0..rank).map(|i| index[i] / b.shape()[i]).collect();
            let within: Vec<usize> = (0..rank).map(|i| index[i] % b.shape()[i]).collect();
            a[at.as_slice()] * b[within.as_slice()]
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), s.normal([3, 2])));
        s.case(with(s.normal([2]), s.normal([2, 1, 3])));
        s.case(with(s.normal([]), s.of(DType::F32, [2])));
        s.case(with(s.normal([0, 2]), s.normal([3])));
    }
}

// Declares the vector product along a dimension of extent three.
operators! {
    #[operator(torch = $torch, autocast = widest)]
    pub mod $name {
        fn $name(input: Tensor<Number>, other: Tensor<Number>, #[default(None)] dim: Option<i64>) -> Tensor;

        fn requires(input: &TensorMeta, other: &TensorMeta, dim: Option<i64>) -> Result<()> {
            same_dtype(("input", input), ("other", other), Code::SameDType)?;
            require!(
                input.rank() == other.rank(),
                Rank,
                "input has shape {:?} and other {:?}, expected as many dimensions",
                input.shape(),
                other.shape()
            );
            let shape = broadcast_shapes(&[input.shape(), other.shape()]);
            require!(
                shape.is_some(),
                Broadcast,
                "shapes {:?} and {:?} do not broadcast",
                input.shape(),
                other.shape()
            );
            // The dimension has three elements of both before they broadcast.
            let dim = dim.or($absent);
            if let Some(dim) = dim {
                normalize_dim(dim, input.rank())?;
            }
            let place = super::of_three(input.shape(), dim);
            let three = |meta: &TensorMeta| place.is_some_and(|place| meta.shape().get(place) == Some(&3));
            require!(
                three(input) && three(other),
                Three,
                "input has shape {:?} and other {:?}, expected extents of 3 in the dimension of the product",
                input.shape(),
                other.shape()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, other: Tensor, dim: Option<i64>) -> Tensor {
            let place = super::of_three(&input.shape(), dim.or($absent)).unwrap_or_default();
            let shape = broadcast_shapes(&[&input.shape(), &other.shape()]).unwrap_or_default();
            let [a, b] = [input, other].map(|tensor| broadcast(accumulating(tensor), &shape));
            // The elements after and before each, in a circle.
            let turned = |tensor: Tensor, by: usize| super::turned(tensor, place, by);
            let out = prims::sub(
                prims::mul(turned(a, 1), turned(b, 2)),
                prims::mul(turned(a, 2), turned(b, 1)),
            );
            cast(out, input.dtype())
        }

        fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>, dim: Option<i64>) -> ArrayD<f64> {
            let place = match dim.or($absent) {
                Some(dim) => dim.rem_euclid(input.ndim() as i64) as usize,
                None => input.shape().iter().position(|extent| *extent == 3).unwrap_or(0),
            };
            let shape = broadcast_shapes(&[input.shape(), other.shape()]).unwrap_or_default();
            let (a, b) = (spread(input, &shape), spread(other, &shape));
            ArrayD::from_shape_fn(IxDyn(&shape), |index| {
                let at = |by: usize| {
                    let mut at: Vec<usize> = (0..shape.len()).map(|i| index[i]).collect();
                    at[place] = (at[place] + by) % 3;
                    at
                };
                a[at(1).as_slice()] * b[at(2).as_slice()] - a[at(2).as_slice()] * b[at(1).as_slice()]
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([2, 3]), s.normal([2, 3])));
            s.case(with(s.normal([4, 3]), s.normal([1, 3])).dim(1));
            s.case(with(s.normal([3, 2]), s.normal([3, 2])).dim(0));
            s.case(with(s.normal([0, 3]), s.normal([0, 3])));
            s.case(with(s.normal([3, 3]), s.normal([3, 3])).dim(-1));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(SameDType, with(e.of(DType::F32, [3]), e.of(DType::F64, [3])), "expected equal dtypes");
            e.case(Rank, with(e.normal([3]), e.normal([1, 3])), "expected as many dimensions");
            e.case(Broadcast, with(e.normal([2, 3]), e.normal([4, 3])), "do not broadcast");
            e.case(Three, with(e.normal([2, 2]), e.normal([2, 2])), "expected extents of 3");
            e.case(Three, with(e.normal([2, 3]), e.normal([2, 1])).dim(1), "expected extents of 3");
        }
    }

    table($name, $torch, $absent) {
        /// The vector product of elements along `dim`, or along the first dimension of extent 3 if it is absent.
        cross, "cross", None;
        /// The vector product of elements along `dim`, the last one if it is absent.
        linalg_cross, "linalg.cross", Some(-1);
    }
}

/// The dimension of a vector product: the named one, or the first of extent three.
fn of_three(shape: &[usize], dim: Option<i64>) -> Option<usize> {
    match dim {
        Some(dim) => Some(position(dim, shape.len())),
        None => shape.iter().position(|extent| *extent == 3),
    }
}

/// Three elements along `dim`, from the one at `first` on, in a circle.
#[track_caller]
fn turned(tensor: Tensor, dim: usize, first: usize) -> Tensor {
    prims::cat([super::piece(tensor, dim, first, 3 - first), super::piece(tensor, dim, 0, first)], dim)
}

/// A bilinear form of each pair of rows: `out[..., o] = Σ input1[..., i] · weight[o, i, j] · input2[..., j] + bias[o]`.
#[operator(torch = "nn.functional.bilinear", autocast = widest)]
pub mod bilinear {
    fn bilinear(
        input1: Tensor<Number>,
        input2: Tensor<Number>,
        weight: Tensor<Number>,
        #[default(None)] bias: Option<Tensor<Number>>,
    ) -> Tensor;

    fn requires(Args { input1, input2, weight, bias }: Args<&TensorMeta>) -> Result<()> {
        same_dtype(("input1", input1), ("input2", input2), Code::SameDType)?;
        same_dtype(("input1", input1), ("weight", weight), Code::SameDType)?;
        require!(weight.rank() == 3, WeightRank, "weight has shape {:?}, expected three dimensions", weight.shape());
        let (rows1, rows2) = (input1.shape(), input2.shape());
        require!(
            !rows1.is_empty() && rows1.len() == rows2.len() && rows1[..rows1.len() - 1] == rows2[..rows2.len() - 1],
            Rows,
            "input1 has shape {rows1:?} and input2 {rows2:?}, expected equal extents but in the last dimension"
        );
        let last = [rows1.last(), rows2.last()].map(|extent| extent.copied().unwrap_or(0));
        require!(
            weight.shape()[1..] == last,
            Extents,
            "weight has shape {:?}, expected [outputs, {}, {}], the last extents of input1 and input2",
            weight.shape(),
            last[0],
            last[1]
        );
        if let Some(bias) = bias {
            same_dtype(("input1", input1), ("bias", bias), Code::SameDType)?;
            require!(
                *bias.shape() == weight.shape()[..1],
                Bias,
                "bias has shape {:?}, expected [{}], the first extent of weight",
                bias.shape(),
                weight.shape()[0]
            );
        }
        Ok(())
    }

    fn decomposition(Args { input1, input2, weight, bias }: Args<Tensor>) -> Tensor {
        let [outputs, first, second] = [0, 1, 2].map(|dim| weight.shape()[dim]);
        let shape = input1.shape().to_vec();
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let dtype = input1.dtype();
        // Of each row and output the form by its second argument, in the type that sums are added up in.
        let columns = prims::reshape(prims::permute(weight, [1, 0, 2]), [first, outputs * second]);
        let forms = super::super::wide_product(read_as(input1, &[rows, first]), columns);
        let forms = prims::reshape(forms, [rows, outputs, second]);
        let other = prims::reshape(accumulating(input2), [rows, 1, second]);
        let out = sum::with(mul(forms, other)).dim(vec![2]).call();
        let out = bias.map_or(out, |bias| super::super::add(out, accumulating(bias)));
        read_as(cast(out, dtype), &[&shape[..shape.len() - 1], &[outputs]].concat())
    }

    fn reference(Args { input1, input2, weight, bias }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let [outputs, first, second] = [0, 1, 2].map(|dim| weight.shape()[dim]);
        let (a, b, weight) = (values(input1.floats()), values(input2.floats()), weight.floats());
        let mut shape = input1.shape().to_vec();
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let one = |row: usize, o: usize| {
            let mut total = bias.map_or(0.0, |bias| bias.floats()[[o]]);
            for i in 0..first {
                total += (0..second).map(|j| a[row * first + i] * weight[[o, i, j]] * b[row * second + j]).sum::<f64>();
            }
            total
        };
        let out = (0..rows * outputs).map(|at| one(at / outputs, at % outputs)).collect();
        *shape.last_mut().unwrap_or(&mut 0) = outputs;
        array(&shape, out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), s.normal([4, 2]), s.normal([5, 3, 2])).bias(s.normal([5])));
        s.case(with(s.normal([2, 2, 3]), s.normal([2, 2, 3]), s.normal([1, 3, 3])));
        s.case(with(s.normal([3]), s.normal([2]), s.normal([2, 3, 2])).bias(s.normal([2])));
        s.case(with(s.normal([0, 3]), s.normal([0, 2]), s.normal([5, 3, 2])));
    }

    fn errors(e: &mut ErrorSamples) {
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        let of = |a: &[usize], b: &[usize], w: &[usize]| with(e.normal(a), e.normal(b), e.normal(w));
        let mixed = with(e.normal([4, 3]), e.of(other, [4, 2]), e.normal([5, 3, 2]));
        e.case(SameDType, mixed, "input2 is");
        let mixed = with(e.normal([4, 3]), e.normal([4, 2]), e.of(other, [5, 3, 2]));
        e.case(SameDType, mixed, "weight is");
        e.case(SameDType, of(&[4, 3], &[4, 2], &[5, 3, 2]).bias(e.of(other, [5])), "bias is");
        e.case(WeightRank, of(&[4, 3], &[4, 2], &[3, 2]), "expected three dimensions");
        e.case(Rows, of(&[4, 3], &[5, 2], &[5, 3, 2]), "but in the last dimension");
        e.case(Rows, of(&[4, 3], &[2], &[5, 3, 2]), "but in the last dimension");
        e.case(Rows, of(&[], &[], &[5, 3, 2]), "but in the last dimension");
        e.case(Extents, of(&[4, 3], &[4, 2], &[5, 2, 3]), "expected [outputs, 3, 2]");
        e.case(Bias, of(&[4, 3], &[4, 2], &[5, 3, 2]).bias(e.normal([4])), "bias has shape [4]");
    }
}
