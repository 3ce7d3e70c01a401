use fulgurite_ops_macros::operator;
use fulgurite_runtime::{DType, Tensor};

use crate::core::promotion::{cast, constant_like, differs_from};
use crate::nn::embedding;
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// How the rows of a bag become one.
    pub enum BagMode {
        /// They are added.
        Sum = "sum",
        /// Their mean.
        Mean = "mean",
        /// The largest element of each channel.
        Max = "max",
    }
}

/// The rows of `weight` [V, C] that `input` names, reduced in bags: out [B, C]. `input` is [B, L], a bag a row, or [L]
/// with `offsets` [B], the places where bags begin: the first is 0, and they do not decrease. With
/// `include_last_offset` one more offset says where the last bag ends, which is L. `per_sample_weights`, of the shape
/// of `input`, multiply the rows of a sum. Places that hold `padding_idx` are in no bag. An empty bag gives zeros. Sums
/// of f16 and bf16 are computed in f32. An index or offset out of range is an error when the program runs.
///
/// Sums and means of bags with offsets take one pass over the rows; the maximum compares each row with each bag, so
/// that [B, L] is the better form for it.
#[operator(torch = "nn.functional.embedding_bag")]
pub mod embedding_bag {
    fn embedding_bag(
        input: Tensor<Integer>,
        weight: Tensor<Floating>,
        #[default(None)] offsets: Option<Tensor<Integer>>,
        #[default(BagMode::Mean)] mode: BagMode,
        #[default(None)] per_sample_weights: Option<Tensor<Floating>>,
        #[default(false)] include_last_offset: bool,
        #[default(None)] padding_idx: Option<i64>,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx } = args;
        require!(weight.rank() == 2, WeightRank, "weight has shape {:?}, expected [rows, channels]", weight.shape());
        require!(
            input.rank() == 2 - usize::from(offsets.is_some()),
            InputRank,
            "input has shape {:?} and offsets are {}, expected [bags, length], or [length] and offsets",
            input.shape(),
            if offsets.is_some() { "given" } else { "absent" }
        );
        let last = usize::from(include_last_offset);
        let bags = match offsets {
            Some(offsets) => {
                require!(
                    offsets.rank() == 1 && offsets.len() >= last,
                    Offsets,
                    "offsets has shape {:?}, expected one dimension{}",
                    offsets.shape(),
                    if include_last_offset { " of one or more" } else { "" }
                );
                offsets.len() - last
            }
            None => {
                require!(!include_last_offset, Offsets, "include_last_offset is set, expected offsets with it");
                input.shape()[0]
            }
        };
        let rows = weight.shape()[0] as i64;
        if let Some(index) = padding_idx {
            let expected = format!("expected {} to {}", -rows, rows - 1);
            require!((-rows..rows).contains(&index), PaddingIndex, "padding_idx is {index}, {expected}");
        }
        if let Some(factors) = per_sample_weights {
            require!(mode == BagMode::Sum, Weighted, "per_sample_weights are given, expected the mode sum with them");
            require!(
                factors.shape() == input.shape() && factors.dtype() == weight.dtype(),
                Weighted,
                "per_sample_weights is {factors}, expected {:?} of {}",
                input.shape(),
                weight.dtype()
            );
        }
        Ok(weight.with_shape([bags, weight.shape()[1]]))
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx } = args;
        let (count, channels) = (input.shape().iter().product::<usize>(), weight.size(1));
        let wide = weight.dtype().accumulator();
        let flat = prims::reshape(input, [count]);
        let mut rows = cast(embedding(flat, weight), wide);
        if let Some(factors) = per_sample_weights {
            let factors = prims::reshape(cast(factors, wide), [count]);
            rows = prims::mul(rows, prims::broadcast_in_dim(factors, [count, channels], [0]));
        }
        let counted = padding_idx.map(|index| {
            let index = if index < 0 { index + weight.size(0) as i64 } else { index };
            differs_from(flat, index)
        });
        let bags = match offsets {
            None => super::Bags::Rows(input.shape()[0], input.shape()[1]),
            Some(offsets) => {
                let bags = offsets.size(0) - usize::from(include_last_offset);
                super::Bags::Numbers(bags, super::numbers(offsets, bags, count))
            }
        };
        let counted = counted.unwrap_or_else(|| constant_like(cast(flat, DType::Bool), true));
        let out = if mode == BagMode::Max {
            bags.largest(rows, counted)
        } else {
            let spread = prims::broadcast_in_dim(counted, [count, channels], [0]);
            let total = bags.sum(prims::select(spread, rows, 0.0));
            if mode == BagMode::Sum {
                total
            } else {
                let ones = prims::reshape(cast(counted, wide), [count, 1]);
                let sizes = prims::maximum(bags.sum(ones), 1.0);
                let sizes = prims::reshape(sizes, [sizes.size(0)]);
                prims::div(total, prims::broadcast_in_dim(sizes, total.shape(), [0]))
            }
        };
        cast(out, weight.dtype())
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx } = args;
        let (vocabulary, channels) = (weight.shape()[0], weight.shape()[1]);
        let indices: Vec<i64> = input.iter().copied().collect();
        if let Some(index) = indices.iter().find(|index| !(0..vocabulary as i64).contains(*index)) {
            return Err(Failure::new("IndexOutOfRange", format!("input holds {index}, weight has {vocabulary} rows")));
        }
        let ends: Vec<i64> = match offsets {
            Some(offsets) => {
                // The last bag ends where the indices do; a last offset says the same.
                let bags = offsets.len() - usize::from(include_last_offset);
                offsets.iter().copied().take(bags).chain([indices.len() as i64]).collect()
            }
            None => (0..=input.shape()[0]).map(|bag| (bag * input.shape()[1]) as i64).collect(),
        };
        let wrong = ends.iter().any(|end| !(0..=indices.len() as i64).contains(end));
        if wrong || (!indices.is_empty() && ends.first() != Some(&0)) {
            return Err(Failure::new("IndexOutOfRange", format!("offsets are {ends:?}")));
        }
        let factors: Option<Vec<f64>> = per_sample_weights.map(|factors| factors.iter().copied().collect());
        let padding = padding_idx.map(|index| if index < 0 { index + vocabulary as i64 } else { index });
        let mut out = ArrayD::zeros(IxDyn(&[ends.len() - 1, channels]));
        for (bag, ends) in ends.windows(2).enumerate() {
            let own = (ends[0] as usize..ends[1] as usize).filter(|place| Some(indices[*place]) != padding);
            let own: Vec<usize> = own.collect();
            for channel in 0..channels {
                let row = |place: &usize| {
                    let factor = factors.as_ref().map_or(1.0, |factors| factors[*place]);
                    factor * weight[[indices[*place] as usize, channel]]
                };
                let numbers: Vec<f64> = own.iter().map(row).collect();
                out[[bag, channel]] = match mode {
                    _ if numbers.is_empty() => 0.0,
                    BagMode::Sum => numbers.iter().sum(),
                    BagMode::Mean => numbers.iter().sum::<f64>() / numbers.len() as f64,
                    BagMode::Max => crate::core::arrays::largest(&numbers),
                };
            }
        }
        Ok(out)
    }

    fn samples(s: &mut Samples) {
        for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
            s.case(with(s.integers(0, 7, [3, 4]), s.normal([7, 5])).mode(mode));
            let offsets = s.values([4], [0.0, 2.0, 2.0, 6.0]).cast(DType::I64);
            s.case(with(s.integers(0, 5, [9]), s.normal([5, 3])).mode(mode).offsets(offsets.clone()));
            s.case(with(s.integers(0, 5, [9]), s.normal([5, 3])).mode(mode).offsets(offsets).padding_idx(-2));
        }
        let ends = s.values([3], [0.0, 4.0, 6.0]).cast(DType::I64);
        let weighted = with(s.integers(0, 5, [6]), s.normal([5, 3])).mode(BagMode::Sum);
        let weighted = weighted.offsets(ends).include_last_offset(true);
        s.case(weighted.per_sample_weights(s.normal([6])).padding_idx(1));
        let weighted = with(s.integers(0, 5, [2, 3]), s.normal([5, 4])).mode(BagMode::Sum);
        s.case(weighted.per_sample_weights(s.normal([2, 3])));
        s.case(with(s.integers(0, 7, [3, 0]), s.normal([7, 5])).mode(BagMode::Max));
        s.case(with(s.integers(0, 7, [0, 2]), s.normal([7, 5])));
        let empty = s.values([2], [0.0]).cast(DType::I64);
        s.case(with(s.integers(0, 7, [0]), s.normal([7, 5])).offsets(empty));
        let end = s.values([1], [0.0]).cast(DType::I64);
        s.case(with(s.integers(0, 7, [0]), s.normal([7, 2])).offsets(end).include_last_offset(true));
    }

    fn errors(e: &mut ErrorSamples) {
        let input = || e.integers(0, 2, [2, 3]);
        e.case(WeightRank, with(input(), e.normal([2])), "weight has shape [2], expected [rows, channels]");
        e.case(InputRank, with(e.integers(0, 2, [3]), e.normal([2, 3])), "offsets are absent");
        let both = with(input(), e.normal([2, 3])).offsets(e.integers(0, 1, [2]));
        e.case(InputRank, both, "offsets are given");
        e.case(Offsets, with(input(), e.normal([2, 3])).include_last_offset(true), "expected offsets with it");
        let wrong = with(e.integers(0, 2, [3]), e.normal([2, 3])).offsets(e.integers(0, 1, [2, 1]));
        e.case(Offsets, wrong, "offsets has shape [2, 1], expected one dimension");
        let none = with(e.integers(0, 2, [3]), e.normal([2, 3])).offsets(e.integers(0, 1, [0]));
        e.case(Offsets, none.include_last_offset(true), "expected one dimension of one or more");
        e.case(PaddingIndex, with(input(), e.normal([2, 3])).padding_idx(2), "expected -2 to 1");
        let mean = with(input(), e.normal([2, 3])).per_sample_weights(e.normal([2, 3]));
        e.case(Weighted, mean, "expected the mode sum with them");
        let shape = with(input(), e.normal([2, 3])).mode(BagMode::Sum).per_sample_weights(e.normal([2]));
        e.case(Weighted, shape, "per_sample_weights is f32[2], expected [2, 3] of f32");
        let index = e.values([1, 2], [0.0, 2.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(index, e.normal([2, 3])), "");
        for offset in [-1.0, 1.0, 4.0] {
            let offsets = e.values([2], [if offset == 1.0 { 1.0 } else { 0.0 }, offset]).cast(DType::I64);
            let bags = with(e.integers(0, 2, [3]), e.normal([2, 3])).offsets(offsets);
            e.when_run("IndexOutOfRange", bags, "");
        }
    }
}

/// Which rows are in which bag.
enum Bags {
    /// So many bags of so many rows each, one after another.
    Rows(usize, usize),
    /// So many bags, and the number of the bag of each row.
    Numbers(usize, Tensor),
}

impl Bags {
    /// The sum of the rows [L, C] of each bag.
    #[track_caller]
    fn sum(&self, rows: Tensor) -> Tensor {
        let channels = rows.size(1);
        match self {
            Bags::Rows(bags, each) => prims::sum(prims::reshape(rows, [*bags, *each, channels]), [1]),
            Bags::Numbers(bags, numbers) => {
                let zeros = prims::full([*bags, channels], 0.0, rows.dtype(), rows.device());
                prims::index_add(zeros, 0, *numbers, rows)
            }
        }
    }

    /// The largest elements of the rows [L, C] of each bag that are counted; zeros of none.
    #[track_caller]
    fn largest(&self, rows: Tensor, counted: Tensor) -> Tensor {
        let (count, channels) = (rows.size(0), rows.size(1));
        let (bags, each) = match self {
            Bags::Rows(bags, each) => (*bags, *each),
            Bags::Numbers(bags, _) => (*bags, count),
        };
        let all = [bags, each, channels];
        if all.contains(&0) {
            return prims::full([bags, channels], 0.0, rows.dtype(), rows.device());
        }
        let (rows, own) = match self {
            Bags::Rows(..) => {
                let counted = prims::reshape(counted, [bags, each]);
                (prims::reshape(rows, all), prims::broadcast_in_dim(counted, all, [0, 1]))
            }
            Bags::Numbers(_, numbers) => {
                let bag = prims::iota(bags, 0i64, 1i64, DType::I64, rows.device());
                let bag = prims::broadcast_in_dim(bag, [bags, each], [0]);
                let numbers = prims::broadcast_in_dim(*numbers, [bags, each], [1]);
                let counted = prims::broadcast_in_dim(counted, [bags, each], [1]);
                let own = prims::logical_and(prims::eq(numbers, bag), counted);
                (prims::broadcast_in_dim(rows, all, [1, 2]), prims::broadcast_in_dim(own, all, [0, 1]))
            }
        };
        let largest = prims::amax(prims::select(own, rows, f64::NEG_INFINITY), [1]);
        let some = prims::sum(cast(own, DType::I64), [1]);
        prims::select(prims::gt(some, 0), largest, 0.0)
    }
}

/// The number of the bag of each of `count` places: how many of the first `bags` offsets are not above it, but for one.
#[track_caller]
fn numbers(offsets: Tensor, bags: usize, count: usize) -> Tensor {
    let starts = cast(prims::slice(offsets, [0], [bags], [1]), DType::I64);
    let whole = |length: usize, number: i64| prims::full([length], number, DType::I64, offsets.device());
    // One place more: bags at the end may be empty.
    let begins = prims::index_add(whole(count + 1, 0), 0, starts, whole(bags, 1));
    let begun = prims::slice(prims::cumsum(begins, 0), [0], [count], [1]);
    prims::sub(begun, 1)
}
