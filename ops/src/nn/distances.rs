//! Norms along dimensions, and distances and similarities of vectors, computed in f32 for f16 and bf16.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::argument::Operand;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor};
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};

use crate::core::arrays::{reduce, zip};
use crate::core::promotion::{
    accumulating, broadcast, cast, checked_dims, common_shape, describe_shapes, elementwise_meta, floating, keep_dims,
    position, reduced_shape, result_type, sum_to,
};
use crate::prims::{self, abs, add, div, eq, lt, mul, pow, select, sqrt, sub};

/// The norm of order `p` of all elements in the dimensions `dims` of `input`, which the result lacks. Where it is zero
/// it has no gradient, as in PyTorch.
#[track_caller]
pub(crate) fn norm(input: Tensor, p: f64, dims: &[usize]) -> Tensor {
    let total = |terms: Tensor| if dims.is_empty() { terms } else { prims::sum(terms, dims) };
    // No root or power is taken of zero: its slope may be infinite, and times zero no number.
    let nonzero = |x: Tensor| (eq(x, 0.0), select(eq(x, 0.0), 1.0, x));
    match p {
        0.0 => total(cast(prims::ne(input, 0.0), input.dtype())),
        1.0 => total(abs(input)),
        2.0 => {
            let (is_zero, squares) = nonzero(total(mul(input, input)));
            select(is_zero, 0.0, sqrt(squares))
        }
        f64::INFINITY if !dims.is_empty() => prims::amax(abs(input), dims),
        f64::NEG_INFINITY if !dims.is_empty() => prims::amin(abs(input), dims),
        p if p.is_infinite() => abs(input),
        p => {
            let of_zero = if p > 0.0 { 0.0 } else { f64::INFINITY };
            let (is_zero, magnitude) = nonzero(abs(input));
            let powers = total(select(is_zero, of_zero, pow(magnitude, p)));
            let (is_zero, powers) = nonzero(powers);
            select(is_zero, of_zero, pow(powers, 1.0 / p))
        }
    }
}

/// For references: the norm of order `p` of a row.
pub(crate) fn row_norm(row: &[f64], p: f64) -> f64 {
    let magnitudes = row.iter().map(|x| x.abs());
    if p == 0.0 {
        return row.iter().filter(|x| **x != 0.0).count() as f64;
    }
    match p {
        f64::INFINITY => magnitudes.fold(0.0, |a, b| if b.is_nan() || b > a { b } else { a }),
        f64::NEG_INFINITY => magnitudes.fold(f64::INFINITY, |a, b| if b.is_nan() || b < a { b } else { a }),
        p => magnitudes.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    }
}

/// Whether a norm of order `p` exists of `shape` along `dims`: an extremum of no elements does not.
pub(crate) fn has_norm(shape: &[usize], p: f64, dims: &[usize]) -> bool {
    !p.is_nan() && (p.is_finite() && p >= 0.0 || dims.iter().all(|dim| shape[*dim] > 0))
}

/// Each vector along the dimensions `dim` divided by its norm of order `p`, or by `eps` if that is larger.
#[operator(torch = "nn.functional.normalize")]
pub mod normalize {
    fn normalize(
        input: Tensor<Floating>,
        #[default(2.0)] p: f64,
        #[default(vec![1])] dim: Vec<i64>,
        #[default(1e-12)] eps: f64,
    ) -> Tensor;

    fn requires(Args { input, p, dim, .. }: Args<&TensorMeta>) -> Result<()> {
        let dims = checked_dims("dim", Some(&dim), input, Code::Dims)?;
        require!(
            super::has_norm(input.shape(), p, &dims),
            Order,
            "p is {p} for input of shape {:?}, expected an order that norms of its vectors have",
            input.shape()
        );
        Ok(())
    }

    fn decomposition(Args { input, p, dim, eps }: Args<Tensor>) -> Tensor {
        let (wide, shape) = (accumulating(input), input.shape());
        let dims = crate::core::promotion::reduced_dims(Some(&dim), input.rank()).unwrap_or_default();
        let norm = super::norm(wide, p, &dims);
        let divisor = keep_dims(select(prims::le(norm, eps), eps, norm), &shape, &dims, true);
        cast(div(wide, broadcast(divisor, &shape)), input.dtype())
    }

    fn reference(Args { input, p, dim, eps }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let norms = reduce(input, Some(&dim), true, |row| super::row_norm(row, p));
        zip(input, &norms, |x: f64, norm: f64| x / if norm < eps { eps } else { norm })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
        s.case(with(s.normal([3, 4, 2])).p(1.0).dim(vec![-1]));
        s.case(with(s.normal([3, 4, 2])).p(3.0).dim(vec![0, 2]));
        s.case(with(s.normal([3, 4])).p(f64::INFINITY));
        s.case(with(s.uniform(0.3, 2.0, [3, 4])).p(0.5).eps(0.25));
        s.case(with(s.uniform(-2.0, -0.3, [3, 4])).p(-1.5));
        s.case(with(s.normal([3, 4])).p(f64::NEG_INFINITY));
        s.case(with(s.normal([3, 4])).p(0.0));
        s.case(with(s.uniform(-0.2, 0.2, [2, 3])).eps(3.0));
        s.case(with(s.normal([])).dim(vec![0])).forward_only("the gradient is what rounding leaves of zero");
        s.case(with(s.normal([2, 0])));
        s.case(with(s.values([1, 2], [0.0; 2])).eps(0.5)).forward_only("zeros").gradients([&[2.0, 4.0]]);
        let one = with(s.normal([3, 1])).p(f64::INFINITY);
        s.case(one).forward_only("the gradient is what rounding leaves of zero");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Dims, with(e.normal([3])), "distinct dimensions of a tensor of rank 1");
        e.case(Order, with(e.normal([2, 0])).p(f64::INFINITY), "p is inf for input of shape [2, 0]");
    }
}

/// The meta of what reduces the dimension `dim` of two tensors that broadcast.
fn reduced_pair(x1: &TensorMeta, x2: &TensorMeta, dim: &[usize], keepdim: bool) -> TensorMeta {
    let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
    let meta = elementwise_meta(&both, result_type(&both));
    meta.with_shape(reduced_shape(meta.shape(), dim, keepdim))
}

/// Two tensors of one shape, in the type that sums of the type they meet in are added up in.
#[track_caller]
fn wide_pair(x1: Tensor, x2: Tensor) -> [Tensor; 2] {
    let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
    let meta = elementwise_meta(&both, result_type(&both));
    [x1, x2].map(|tensor| accumulating(broadcast(cast(tensor, meta.dtype()), meta.shape())))
}

/// The differences of two tensors that are promoted and broadcast to `meta`, in the type that sums of them are added up
/// in. Those of integers are integers, which wrap, and f32 then.
#[track_caller]
pub(crate) fn apart(x1: Tensor, x2: Tensor, meta: &TensorMeta) -> Tensor {
    let [a, b] = [x1, x2].map(|tensor| {
        let tensor = broadcast(cast(tensor, meta.dtype()), meta.shape());
        if meta.dtype().is_floating() { accumulating(tensor) } else { tensor }
    });
    accumulating(cast(sub(a, b), floating(a.dtype())))
}

/// For references: the differences of two tensors that are promoted to `dtype`, each plus `eps`.
pub(crate) fn differences([x1, x2]: [&ReferenceTensor; 2], dtype: DType, eps: f64) -> ArrayD<f64> {
    match dtype.is_floating() {
        true => zip(x1.floats(), x2.floats(), |a: f64, b: f64| a - b + eps),
        false => zip(x1.integers(), x2.integers(), |a: i64, b: i64| dtype.wrapped(a.wrapping_sub(b)) as f64 + eps),
    }
}

/// The norm of order `p` of `x1 - x2 + eps` along the last dimension. That of integers is f32;
/// their difference wraps in their type, as in PyTorch.
#[operator(torch = "nn.functional.pairwise_distance")]
pub mod pairwise_distance {
    fn pairwise_distance(
        x1: Tensor<Number>,
        x2: Tensor<Number>,
        #[default(2.0)] p: f64,
        #[default(1e-6)] eps: f64,
        #[default(false)] keepdim: bool,
    ) -> Tensor;

    fn meta(Args { x1, x2, p, keepdim, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
        let shape = common_shape(&both);
        require!(shape.is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
        let (shape, dims) = (shape.unwrap_or_default(), super::last(x1.rank().max(x2.rank())));
        require!(
            super::has_norm(&shape, p, &dims),
            Order,
            "p is {p} for vectors of shape {shape:?}, expected an order that their norms have"
        );
        let meta = super::reduced_pair(x1, x2, &dims, keepdim);
        Ok(meta.with_dtype(floating(meta.dtype())))
    }

    fn decomposition(Args { x1, x2, p, eps, keepdim }: Args<Tensor>) -> Tensor {
        let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
        let meta = elementwise_meta(&both, result_type(&both));
        let dims = super::last(meta.rank());
        let distance = super::norm(add(super::apart(x1, x2, &meta), eps), p, &dims);
        keep_dims(cast(distance, floating(meta.dtype())), meta.shape(), &dims, keepdim)
    }

    fn reference(Args { x1, x2, p, eps, keepdim }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let metas = [x1, x2].map(|x| TensorMeta::new(x.shape(), x.dtype(), Device::CPU));
        let dtype = result_type(&[Operand::Tensor(&metas[0]), Operand::Tensor(&metas[1])]);
        reduce(&super::differences([x1, x2], dtype, eps), Some(&[-1]), keepdim, |row| super::row_norm(row, p))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([3, 4])));
        s.case(with(s.normal([2, 1, 4]), s.normal([3, 4])).p(1.0).keepdim(true));
        s.case(with(s.normal([3, 4]), s.normal([4])).p(3.0).eps(0.25));
        s.case(with(s.normal([5]), s.normal([5])).p(f64::INFINITY));
        s.case(with(s.normal([2, 0]), s.normal([2, 0])));
        s.case(with(s.normal([3]), s.normal([])));
        let large = |last: f64| s.values([2], [5.0, last]).cast(DType::I64);
        s.case(with(large(16_777_217.0), large(16_777_216.0)).eps(0.5));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(Order, with(e.normal([0]), e.normal([0])).p(f64::INFINITY), "p is inf for vectors of shape [0]");
    }
}

/// The last of `rank` dimensions, if there is one.
pub(crate) fn last(rank: usize) -> Vec<usize> {
    (0..rank).rev().take(1).collect()
}

/// The cosine of the angle between the vectors of `x1` and `x2` along `dim`, which broadcast: the product of both, each
/// divided by its length or by `eps` if that is larger. As in PyTorch, gradients take `eps` for the length there.
#[operator(torch = "nn.functional.cosine_similarity", autocast = full)]
pub mod cosine_similarity {
    fn cosine_similarity(
        x1: Tensor<Floating>,
        x2: Tensor<Floating>,
        #[default(1)] dim: i64,
        #[default(1e-8)] eps: f64,
    ) -> Tensor;

    fn meta(x1: &TensorMeta, x2: &TensorMeta, dim: i64) -> Result<TensorMeta> {
        let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
        require!(common_shape(&both).is_some(), Broadcast, "shapes {} do not broadcast", describe_shapes(&both));
        let dims = checked_dims("dim", Some(&[dim]), &elementwise_meta(&both, result_type(&both)), Code::Dim)?;
        Ok(super::reduced_pair(x1, x2, &dims, false))
    }

    fn decomposition(x1: Tensor, x2: Tensor, dim: i64, eps: f64) -> Tensor {
        let both = [Operand::Tensor(x1), Operand::Tensor(x2)];
        cast(super::Angle::new(x1, x2, dim, eps).cosine(), result_type(&both))
    }

    fn grad(x1: Tensor, x2: Tensor, dim: i64, eps: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (with(x1, x2).dim(dim).eps(eps).call(), move |d_out: Tensor| {
            let [x1_part, x2_part] = super::Angle::new(x1, x2, dim, eps).cotangents(d_out);
            let of = |d: Tensor, like: Tensor| cast(sum_to(d, &like.shape()), like.dtype());
            Grads { x1: of(x1_part, x1), x2: of(x2_part, x2) }
        })
    }

    fn reference(x1: &ArrayD<f64>, x2: &ArrayD<f64>, dim: i64, eps: f64) -> ArrayD<f64> {
        let shape = zip(x1, x2, |_, _| 0.0).shape().to_vec();
        let [x1, x2] = [x1, x2].map(|x| crate::core::arrays::spread(x, &shape));
        let lengths = |x: &ArrayD<f64>| reduce(x, Some(&[dim]), false, |row| super::row_norm(row, 2.0).max(eps));
        let products = reduce(&zip(&x1, &x2, |a, b| a * b), Some(&[dim]), false, |row| row.iter().sum::<f64>());
        products / lengths(&x1) / lengths(&x2)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([3, 4])));
        s.case(with(s.normal([2, 1, 4]), s.normal([3, 4])).dim(-1));
        s.case(with(s.normal([5]), s.normal([5])).dim(0).eps(0.5));
        s.case(with(s.normal([]), s.normal([])).dim(0));
        s.case(with(s.normal([2, 0]), s.normal([2, 0])));
        let zeros = with(s.values([1, 2], [0.0, 0.0]), s.values([1, 2], [3.0, 4.0])).eps(0.5);
        s.case(zeros).forward_only("a vector of zeros").gradients([&[1.2, 1.6], &[0.0, 0.0]]);
        let short = with(s.values([1, 2], [0.3, 0.4]), s.values([1, 2], [4.0, 3.0])).eps(2.0);
        s.case(short).forward_only("a short vector").gradients([&[0.328, 0.204], &[-0.0084, 0.0112]]);
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Broadcast, with(e.normal([2, 3]), e.normal([4])), "shapes [2, 3] and [4] do not broadcast");
        e.case(Dim, with(e.normal([3]), e.normal([3])), "distinct dimensions of a tensor of rank 1");
    }
}

/// Two lists of vectors along one dimension and their lengths.
struct Angle {
    vectors: [Tensor; 2],
    /// The lengths, and what they are divided by.
    lengths: [Tensor; 2],
    divisors: [Tensor; 2],
    dims: Vec<usize>,
}

impl Angle {
    #[track_caller]
    fn new(x1: Tensor, x2: Tensor, dim: i64, eps: f64) -> Angle {
        let vectors = wide_pair(x1, x2);
        let (shape, rank) = (vectors[0].shape(), vectors[0].rank());
        let dims: Vec<usize> = if rank == 0 { Vec::new() } else { vec![position(dim, rank)] };
        let lengths = vectors.map(|x| broadcast(keep_dims(norm(x, 2.0, &dims), &shape, &dims, true), &shape));
        let divisors = lengths.map(|length| select(lt(length, eps), eps, length));
        Angle { vectors, lengths, divisors, dims }
    }

    fn directions(&self) -> [Tensor; 2] {
        [0, 1].map(|i| div(self.vectors[i], self.divisors[i]))
    }

    #[track_caller]
    fn cosine(&self) -> Tensor {
        let [a, b] = self.directions();
        let products = mul(a, b);
        if self.dims.is_empty() { products } else { prims::sum(products, &self.dims) }
    }

    /// The cotangents of both lists from that of the cosines c: with directions a and b and lengths, `(b - c a) / |x1|`
    /// and `(a - c b) / |x2|`, in which the second term is of x1 and x2 divided by their own lengths.
    #[track_caller]
    fn cotangents(&self, d_out: Tensor) -> [Tensor; 2] {
        let shape = self.vectors[0].shape();
        let spread = |reduced: Tensor| {
            let wide = cast(reduced, self.vectors[0].dtype());
            broadcast(keep_dims(wide, &shape, &self.dims, true), &shape)
        };
        let (d, cosine, directions) = (spread(d_out), spread(self.cosine()), self.directions());
        [0, 1].map(|i| {
            let length = self.lengths[i];
            let unit = div(self.vectors[i], select(eq(length, 0.0), 1.0, length));
            mul(div(d, self.divisors[i]), sub(directions[1 - i], mul(cosine, unit)))
        })
    }
}
