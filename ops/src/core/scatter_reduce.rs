//! Updates of elements at indices that are put together by a rule. Updates of one place are combined in row-major order
//! of the index, on every device.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor, attribute_enum};

use super::arrays::reshaped;
use super::promotion::{accumulating, cast, constant_like, position};
use super::{at_least_1d, floor_divide, in_range};
use crate::prims;
use crate::prims::checks::same_dtype;

attribute_enum! {
    /// The rule of [`scatter_reduce`](mod@scatter_reduce): how an element and its updates are put together.
    pub enum ScatterReduction {
        /// Their sum.
        Sum = "sum",
        /// Their product.
        Prod = "prod",
        /// Their mean; of integers rounded down.
        Mean = "mean",
        /// The largest; NaN if one is NaN.
        Amax = "amax",
        /// The smallest; NaN if one is NaN.
        Amin = "amin",
    }
}

attribute_enum! {
    /// The rule of [`index_reduce`](mod@index_reduce): how a part and its updates are put together.
    pub enum IndexReduction {
        /// Their product.
        Prod = "prod",
        /// Their mean; of integers rounded down.
        Mean = "mean",
        /// The largest; NaN if one is NaN.
        Amax = "amax",
        /// The smallest; NaN if one is NaN.
        Amin = "amin",
    }
}

impl From<IndexReduction> for ScatterReduction {
    fn from(reduction: IndexReduction) -> ScatterReduction {
        match reduction {
            IndexReduction::Prod => ScatterReduction::Prod,
            IndexReduction::Mean => ScatterReduction::Mean,
            IndexReduction::Amax => ScatterReduction::Amax,
            IndexReduction::Amin => ScatterReduction::Amin,
        }
    }
}

/// `input` with the elements of `src` put together with those that `index` names by the rule `reduce`: for `dim = 0`
/// `src[i][j]` with the element at `[index[i][j]][j]`, likewise for other dimensions, in row-major order of `index`.
/// Without `include_self`, what `input` has at such places does not count. f16 and bf16 are combined in f32. An index
/// out of range is an error when the program runs.
#[operator(torch = "scatter_reduce", autocast = widest)]
pub mod scatter_reduce {
    fn scatter_reduce(
        input: Tensor,
        dim: i64,
        index: Tensor<Integer>,
        src: Tensor,
        reduce: ScatterReduction,
        #[default(true)] include_self: bool,
    ) -> Tensor;

    fn meta(Args { input, dim, index, src, reduce, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        require!(
            !(input.dtype() == DType::Bool && reduce == ScatterReduction::Mean),
            Booleans,
            "input has booleans and reduce is \"mean\", expected numbers or another rule"
        );
        let one = |meta: &TensorMeta| if meta.rank() == 0 { vec![1] } else { meta.shape().to_vec() };
        let [to, at, from] = [input, index, src].map(one);
        let fits = at.len() == to.len()
            && from.len() == to.len()
            && (0..to.len()).all(|i| at[i] <= from[i] && (i == dim || at[i] <= to[i]));
        require!(
            fits,
            IndexShape,
            "index has shape {:?}, expected no extent above those of src, {:?}, and of input, {:?}, but in dimension \
             {dim}",
            index.shape(),
            src.shape(),
            input.shape()
        );
        same_dtype(("input", input), ("src", src), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(Args { input, dim, index, src, reduce, include_self }: Args<Tensor>) -> Tensor {
        let (shape, place) = (input.shape(), position(dim, input.rank()));
        let [input, index, src] = [input, index, src].map(at_least_1d);
        let extents = index.shape();
        let used = match *src.shape() == *extents {
            true => src,
            false => prims::slice(src, vec![0; extents.len()], &*extents, vec![1; extents.len()]),
        };
        let out = reduced(input, place, index, used, (reduce, include_self));
        if shape.is_empty() { prims::reshape(out, []) } else { out }
    }

    fn reference(Args { input, dim, index, src, reduce, include_self }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.shape().len());
        in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        let is_whole = !input.dtype().is_floating();
        Ok(by_hand((input.floats(), is_whole), dim, index, src.floats(), (reduce, include_self)))
    }

    fn samples(s: &mut Samples) {
        for (reduce, include_self) in [
            (ScatterReduction::Sum, true),
            (ScatterReduction::Sum, false),
            (ScatterReduction::Prod, true),
            (ScatterReduction::Prod, false),
            (ScatterReduction::Mean, true),
            (ScatterReduction::Mean, false),
            (ScatterReduction::Amax, true),
            (ScatterReduction::Amax, false),
            (ScatterReduction::Amin, false),
        ] {
            if s.dtype() == DType::Bool && reduce == ScatterReduction::Mean {
                continue;
            }
            let call = with(s.normal([4, 5]), 0, s.integers(0, 4, [3, 5]), s.normal([3, 5]), reduce);
            s.case(call.include_self(include_self));
        }
        use ScatterReduction::{Amin, Prod, Sum};
        s.case(with(s.normal([4, 5]), -1, s.integers(0, 5, [2, 7]), s.normal([3, 8]), Amin));
        s.case(with(s.normal([]), 0, s.integers(0, 1, []), s.normal([]), Sum));
        s.case(with(s.normal([4, 5]), 1, s.integers(0, 5, [0, 2]), s.normal([3, 2]), Prod));
    }

    fn errors(e: &mut ErrorSamples) {
        let sum = ScatterReduction::Sum;
        let (index, truth) = (e.integers(0, 2, [2]), [2, 2].map(|extent| e.of(DType::Bool, [extent])));
        let [input, src] = truth;
        e.case(Booleans, with(input, 0, index, src, ScatterReduction::Mean), "expected numbers or another rule");
        for (index, src) in [(&[2, 3][..], &[1, 3][..]), (&[2, 3], &[6]), (&[4], &[2, 3]), (&[2, 4], &[2, 4])] {
            let call = with(e.normal([2, 3]), 0, e.integers(0, 2, index), e.normal(src), sum);
            e.case(IndexShape, call, "expected no extent above those of src");
        }
        for index in [3.0, -1.0] {
            let index = e.values([1, 2], [0.0, index]).cast(DType::I64);
            let call = with(e.normal([2, 3]), 1, index, e.normal([1, 2]), sum);
            e.when_run("IndexOutOfRange", call, "of size 3");
        }
        let other = with(e.normal([2]), 0, e.integers(0, 2, [2]), e.of(DType::I32, [2]), sum);
        e.case(SameDType, other, "src is i32");
    }
}

/// `input` with the parts of `source` along `dim` put together with those that `index` names by the rule `reduce`, in
/// order; without `include_self`, what `input` has at such places does not count. f16 and bf16 are combined in f32.
/// Booleans have no mean, and as in PyTorch those of `input` count. A position out of range is an error when the
/// program runs.
#[operator(torch = "index_reduce", autocast = widest)]
pub mod index_reduce {
    fn index_reduce(
        input: Tensor,
        dim: i64,
        index: Tensor<Integer>,
        source: Tensor,
        reduce: IndexReduction,
        #[default(true)] include_self: bool,
    ) -> Tensor;

    fn meta(Args { input, dim, index, source, reduce, include_self }: Args<&TensorMeta>) -> Result<TensorMeta> {
        let dim = normalize_dim(dim, input.rank())?;
        require!(
            input.dtype() != DType::Bool || (include_self && reduce != IndexReduction::Mean),
            Booleans,
            "input has booleans, reduce is {} and include_self {include_self}, expected another rule than \"mean\" \
             that counts what input has",
            reduce.to_attribute()
        );
        require!(index.rank() <= 1, IndexRank, "index has shape {:?}, expected one dimension at most", index.shape());
        let one = |shape: &[usize]| if shape.is_empty() { vec![1] } else { shape.to_vec() };
        let mut expected = one(input.shape());
        expected[dim] = index.len();
        require!(
            one(source.shape()) == expected,
            SourceShape,
            "source has shape {:?}, expected {expected:?}: input's, with a part for each index",
            source.shape()
        );
        same_dtype(("input", input), ("source", source), Code::SameDType)?;
        Ok(input.clone())
    }

    fn decomposition(Args { input, dim, index, source, reduce, include_self }: Args<Tensor>) -> Tensor {
        let (shape, place) = (input.shape(), position(dim, input.rank()));
        let [input, index, source] = [input, index, source].map(at_least_1d);
        // The same position for all elements of a part.
        let places = prims::broadcast_in_dim(index, source.shape(), [place]);
        let out = reduced(input, place, places, source, (reduce.into(), include_self));
        if shape.is_empty() { prims::reshape(out, []) } else { out }
    }

    fn reference(
        Args { input, dim, index, source, reduce, include_self }: Args<&ReferenceTensor>,
    ) -> Result<ArrayD<f64>> {
        let dim = position(dim, input.shape().len());
        let is_whole = !input.dtype().is_floating();
        let places: Vec<i64> = index.iter().copied().collect();
        let shape = if source.shape().is_empty() { vec![1] } else { source.shape().to_vec() };
        let each = ArrayD::from_shape_fn(IxDyn(&shape), |at| places[at[dim]]);
        // Of parts without elements nothing is read, wherever.
        if !each.is_empty() {
            in_range(index, input.shape().get(dim).copied().unwrap_or(1))?;
        }
        Ok(by_hand((input.floats(), is_whole), dim, &each, source.floats(), (reduce.into(), include_self)))
    }

    fn samples(s: &mut Samples) {
        use IndexReduction::{Amax, Amin, Mean, Prod};
        let rules = match s.dtype() {
            DType::Bool => &[(Prod, true), (Amax, true), (Amin, true)][..],
            _ => &[(Prod, true), (Prod, false), (Mean, true), (Mean, false), (Amax, true), (Amin, false)],
        };
        for (reduce, include_self) in rules.iter().copied() {
            let call = with(s.normal([4, 6]), 0, s.integers(0, 4, [5]), s.normal([5, 6]), reduce);
            s.case(call.include_self(include_self));
        }
        // As many rows as columns: another `dim` fits as well and gives another result.
        s.case(with(s.normal([3, 3]), -1, s.integers(0, 3, [3]).cast(DType::I32), s.normal([3, 3]), Prod));
        s.case(with(s.normal([]), 0, s.integers(0, 1, [1]), s.normal([]), Prod));
        s.case(with(s.normal([4]), 0, s.integers(0, 4, []), s.normal([1]), Prod));
        s.case(with(s.normal([4, 6]), 0, s.integers(0, 4, [0]), s.normal([0, 6]), Prod));
    }

    fn errors(e: &mut ErrorSamples) {
        let prod = IndexReduction::Prod;
        for (reduce, include_self) in [(IndexReduction::Mean, true), (IndexReduction::Prod, false)] {
            let [input, source] = [(), ()].map(|()| e.of(DType::Bool, [2]));
            let call = with(input, 0, e.integers(0, 2, [2]), source, reduce).include_self(include_self);
            e.case(Booleans, call, "expected another rule than");
        }
        let wide = with(e.normal([2, 3]), 1, e.integers(0, 2, [2, 3]), e.normal([2, 3]), prod);
        e.case(IndexRank, wide, "index has shape [2, 3]");
        let short = with(e.normal([2, 3]), 0, e.integers(0, 2, [4]), e.normal([3, 3]), prod);
        e.case(SourceShape, short, "source has shape [3, 3], expected [4, 3]");
        for index in [3.0, -1.0] {
            let index = e.values([2], [0.0, index]).cast(DType::I64);
            let call = with(e.normal([2, 3]), 1, index, e.normal([2, 2]), prod);
            e.when_run("IndexOutOfRange", call, "of size 3");
        }
        let other = with(e.normal([2]), 0, e.integers(0, 2, [2]), e.of(DType::I32, [2]), prod);
        e.case(SameDType, other, "source is i32");
    }
}

/// The elements of `src` put together with those of `input` that `index`, of one shape with it, names.
#[track_caller]
pub(crate) fn reduced(
    input: Tensor,
    dim: usize,
    index: Tensor,
    src: Tensor,
    (reduce, include_self): (ScatterReduction, bool),
) -> Tensor {
    let dtype = input.dtype();
    let wide = |tensor: Tensor| match dtype {
        DType::Bool => cast(tensor, DType::I64),
        _ => accumulating(tensor),
    };
    let (mut own, src) = (wide(input), wide(src));
    if !include_self {
        own = prims::scatter(own, dim, index, neutral(reduce, src));
    }
    let out = match reduce {
        ScatterReduction::Sum => prims::scatter_add(own, dim, index, src),
        ScatterReduction::Prod => prims::scatter_prod(own, dim, index, src),
        ScatterReduction::Amax => prims::scatter_amax(own, dim, index, src),
        ScatterReduction::Amin => prims::scatter_amin(own, dim, index, src),
        ScatterReduction::Mean => {
            let sum = prims::scatter_add(own, dim, index, src);
            let counted = |tensor: Tensor, number: f64| {
                let meta = tensor.meta().with_dtype(sum.dtype());
                prims::full(meta.shape(), number, meta.dtype(), meta.device())
            };
            let first = counted(own, if include_self { 1.0 } else { 0.0 });
            let count = prims::scatter_add(first, dim, index, counted(src, 1.0));
            let count = if include_self { count } else { prims::maximum(count, constant_like(count, 1.0)) };
            match sum.dtype().is_floating() {
                true => prims::div(sum, count),
                false => floor_divide(sum, count),
            }
        }
    };
    match dtype {
        DType::Bool => prims::ne(out, 0),
        _ => cast(out, dtype),
    }
}

/// The number that changes nothing under a rule, in every element of a tensor like `like`.
#[track_caller]
fn neutral(reduce: ScatterReduction, like: Tensor) -> Tensor {
    let (infinity, bounds) = match like.dtype().limits() {
        Some((least, largest)) => (0.0, [least, largest]),
        None => (f64::INFINITY, [0, 0]),
    };
    match reduce {
        ScatterReduction::Sum | ScatterReduction::Mean => constant_like(like, 0i64),
        ScatterReduction::Prod => constant_like(like, 1i64),
        ScatterReduction::Amax if infinity > 0.0 => constant_like(like, -infinity),
        ScatterReduction::Amin if infinity > 0.0 => constant_like(like, infinity),
        ScatterReduction::Amax => constant_like(like, bounds[0]),
        // No f64, which numbers of programs are, is the largest i64.
        ScatterReduction::Amin if like.dtype() == DType::I64 => prims::sub(-1, constant_like(like, bounds[0])),
        ScatterReduction::Amin => constant_like(like, bounds[1]),
    }
}

/// For references: the updates of each place in a list, which is then put together. Integers are those that f64 holds.
fn by_hand(
    (input, is_whole): (&ArrayD<f64>, bool),
    dim: usize,
    index: &ArrayD<i64>,
    src: &ArrayD<f64>,
    (reduce, include_self): (ScatterReduction, bool),
) -> ArrayD<f64> {
    let one = |array: &ArrayD<f64>| if array.ndim() == 0 { reshaped(array, &[1]) } else { array.clone() };
    let (to, src) = (one(input), one(src));
    let mut updates = to.mapv(|_| Vec::new());
    for (at, target) in index.indexed_iter() {
        let mut place = ndarray::Dimension::slice(&at).to_vec();
        place.resize(to.ndim(), 0);
        let value = src[place.as_slice()];
        place[dim] = *target as usize;
        updates[place.as_slice()].push(value);
    }
    let nan_or = |choose: fn(f64, f64) -> f64| {
        move |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { choose(a, b) }
    };
    let out = ndarray::Zip::from(&to).and(&updates).map_collect(|own, updates| {
        if updates.is_empty() {
            return *own;
        }
        let all: Vec<f64> = include_self.then_some(*own).into_iter().chain(updates.iter().copied()).collect();
        match reduce {
            ScatterReduction::Sum => all.iter().sum(),
            ScatterReduction::Prod => all.iter().product(),
            ScatterReduction::Mean if is_whole => (all.iter().sum::<f64>() / all.len() as f64).floor(),
            ScatterReduction::Mean => all.iter().sum::<f64>() / all.len() as f64,
            ScatterReduction::Amax => all.into_iter().reduce(nan_or(f64::max)).unwrap_or(*own),
            ScatterReduction::Amin => all.into_iter().reduce(nan_or(f64::min)).unwrap_or(*own),
        }
    });
    reshaped(&out, input.shape())
}
