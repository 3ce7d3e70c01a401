use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::arrays::{permuted, product, softmax_row, spread, zip};
use crate::core::promotion::{accumulating, broadcast, broadcast_shapes, cast};
use crate::nn::attention_changes::far_below;
use crate::nn::{dropout, softmax};
use crate::prims;
use crate::prims::checks::{self, same_dtype};

/// `softmax(query · keyᵀ · scale + mask) · value` over query [..., H, L, E], key [..., H, S, E], value [..., H, S, V];
/// out [..., H, L, V]. Leading dimensions broadcast. `scale` is 1/√E if absent. `attn_mask` broadcasts to [..., H, L,
/// S]: booleans say which keys may be attended to, numbers are added. `is_causal` lets position i attend to 0 to i.
/// With `enable_gqa` key and value may have fewer heads H', each for H / H' queries; their other leading dimensions are
/// then those of query. A row that may attend to nothing gives zeros. Vaswani et al., 2017.
#[operator(
    torch = "nn.functional.scaled_dot_product_attention",
    autocast = low,
    effects(random),
    waive(enable_gqa = "heads that need it are refused without it, and others are the same with it"),
    tolerance(
        golden,
        precision = tf32,
        scaled = 0.0009765625,
        reason = "twice what this precision is allowed: the gradient of a query is a product of gradients of scores \
                  that are rounded to 10 bits themselves, and PyTorch's vector has roundings of its own"
    ),
    tolerance(
        golden,
        gradient,
        precision = tf32,
        sample = 24,
        factor = 24.0,
        reason = "all rows see one key: the gradient of a query is 0, the difference of two sums of 4 products whose \
                  operands are rounded apart, each off by 2^-10 at most. Moved operands leave it 0, so that they do \
                  not say how far it may be off. Operands of bf16 are off by 8 times as much, and are caught"
    ),
    tolerance(
        gradient,
        precision = tf32,
        sample = 7,
        factor = 24.0,
        reason = "a row sees one key: as for sample 24"
    )
)]
pub mod scaled_dot_product_attention {
    fn scaled_dot_product_attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        #[default(None)] attn_mask: Option<Tensor>,
        #[default(0.0)] dropout_p: f64,
        #[default(false)] is_causal: bool,
        #[default(None)] scale: Option<f64>,
        #[default(false)] enable_gqa: bool,
        #[default(None)] generator: Option<Tensor<Integer>>,
    ) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        let Args { query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, generator, .. } = args;
        for (name, tensor) in [("query", query), ("key", key), ("value", value)] {
            require!(
                tensor.rank() >= 2,
                Rank,
                "{name} has shape {:?}, expected at least [length, width]",
                tensor.shape()
            );
            same_dtype((name, tensor), ("query", query), Code::SameDType)?;
        }
        let (q, k, v) = (query.shape(), key.shape(), value.shape());
        let [(_, [length, width]), (_, [positions, key_width]), (_, [value_positions, value_width])] =
            [q, k, v].map(apart);
        require!(
            positions == value_positions,
            KeyValueShape,
            "key has shape {k:?}, value {v:?}, expected equal extents but for the last and what broadcasts"
        );
        require!(key_width == width, Width, "query has width {width}, key {key_width}");
        let leading = leading(q, k, v, enable_gqa);
        require!(
            leading.is_some(),
            Heads,
            "query has shape {q:?}, key {k:?}, value {v:?}: expected leading extents that broadcast{}",
            if enable_gqa { ", or a multiple of heads" } else { "; for shared heads set enable_gqa" }
        );
        let leading = leading.unwrap_or_default();
        let scores: Vec<usize> = [&leading[..], &[length, positions]].concat();
        if let Some(mask) = attn_mask {
            require!(!is_causal, MaskAndCausal, "attn_mask is given and is_causal is set, expected one of them");
            require!(
                broadcast_shapes(&[mask.shape(), &scores]).as_deref() == Some(&scores),
                MaskShape,
                "attn_mask has shape {:?}, which does not broadcast to {scores:?}",
                mask.shape()
            );
            require!(
                mask.dtype() == DType::Bool || mask.dtype() == query.dtype(),
                MaskDType,
                "attn_mask is {}, expected bool or {}",
                mask.dtype(),
                query.dtype()
            );
        }
        require!((0.0..1.0).contains(&dropout_p), Probability, "dropout_p is {dropout_p}, expected 0 to below 1");
        require!(
            dropout_p == 0.0 || generator.is_some(),
            NeedsGenerator,
            "dropout_p is {dropout_p}: give a generator, i64[2] of seed and offset"
        );
        if let Some(generator) = generator {
            checks::generator(generator, Code::Generator)?;
        }
        Ok(query.with_shape([&leading[..], &[length, value_width]].concat()))
    }

    /// Leading extents, and the two of the matrices.
    fn apart(shape: &[usize]) -> (&[usize], [usize; 2]) {
        let (leading, matrix) = shape.split_at(shape.len() - 2);
        (leading, [matrix[0], matrix[1]])
    }

    /// The leading extents of the result: those of query where heads are shared, otherwise what all broadcast to; of
    /// equal numbers of heads none is shared.
    fn leading(query: &[usize], key: &[usize], value: &[usize], enable_gqa: bool) -> Option<Vec<usize>> {
        let [(q, _), (k, _), (v, _)] = [query, key, value].map(apart);
        if let (true, [q_outer @ .., own], [k_outer @ .., shared]) = (enable_gqa, q, k)
            && own != shared
        {
            let shares = k == v && q_outer == k_outer && *shared > 0 && own.is_multiple_of(*shared);
            return shares.then(|| q.to_vec());
        }
        broadcast_shapes(&[q, k, v])
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, generator } = args;
        let extents = leading(&query.shape(), &key.shape(), &value.shape(), enable_gqa).unwrap_or_default();
        let rank = extents.len() + 2;
        let [query, key, value] = [query, key, value].map(|tensor| spread_heads(tensor, &extents));
        let shape = query.shape().to_vec();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        let scale = scale.unwrap_or(1.0 / (shape[rank - 1].max(1) as f64).sqrt());
        // Scores stay in the precision of statistics, in which their products are summed, until they are weights.
        let sums = query.dtype().accumulator();
        let sums = (sums != query.dtype()).then_some(sums);
        let scores = prims::matmul::with(query, prims::permute(key, order)).out_dtype(sums).call();
        let mut scores = prims::mul(scores, scale);
        let extents = scores.shape().to_vec();
        if is_causal {
            scores = prims::select(broadcast(causal(&scores.meta()), &extents), scores, f64::NEG_INFINITY);
        }
        let mut weights = None;
        // Without keys there is nothing to mask.
        if let Some(mask) = attn_mask.filter(|_| extents[rank - 1] > 0) {
            scores = if mask.dtype() == DType::Bool {
                prims::select(broadcast(mask, &extents), scores, f64::NEG_INFINITY)
            } else {
                prims::add(scores, broadcast(accumulating(mask), &extents))
            };
            weights = Some(super::masked_weights(scores));
        }
        let mut weights = cast(weights.unwrap_or_else(|| softmax(scores, -1)), query.dtype());
        if dropout_p > 0.0 {
            weights = dropout::with(weights).p(dropout_p).generator(generator).call();
        }
        prims::matmul(weights, value)
    }

    /// With the leading extents `leading`: broadcast to them, or each head as often as query has heads for it.
    fn spread_heads(tensor: Tensor, leading: &[usize]) -> Tensor {
        let shape = tensor.shape().to_vec();
        let rank = shape.len();
        let full: Vec<usize> = [leading, &shape[rank - 2..]].concat();
        if broadcast_shapes(&[&shape, &full]).as_ref() == Some(&full) {
            return broadcast(tensor, &full);
        }
        let (own, shared) = (full[rank - 3], shape[rank - 3]);
        let mut wide = shape.clone();
        wide.insert(rank - 2, own / shared);
        let dims: Vec<usize> = (0..rank + 1).filter(|dim| *dim != rank - 2).collect();
        let repeated = prims::broadcast_in_dim(tensor, wide, dims);
        let mut merged = shape;
        merged[rank - 3] = own;
        prims::reshape(repeated, merged)
    }

    /// [L, S]: whether position i may attend to j, which is j <= i.
    fn causal(scores: &TensorMeta) -> Tensor {
        let rank = scores.rank();
        let (rows, columns) = (scores.shape()[rank - 2], scores.shape()[rank - 1]);
        let positions =
            |length: usize| prims::iota(length, Scalar::Int(0), Scalar::Int(1), DType::I64, scores.device());
        let i = prims::broadcast_in_dim(positions(rows), [rows, columns], [0]);
        let j = prims::broadcast_in_dim(positions(columns), [rows, columns], [1]);
        prims::le(j, i)
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, generator } = args;
        let leading = leading(query.shape(), key.shape(), value.shape(), enable_gqa).unwrap_or_default();
        let rank = leading.len() + 2;
        let repeat = |array: &ArrayD<f64>| {
            let (_, matrix) = apart(array.shape());
            let shape = [&leading[..], &matrix].concat();
            if let Some(view) = array.broadcast(IxDyn(&shape)) {
                return view.to_owned();
            }
            let times = shape[rank - 3] / array.shape()[rank - 3];
            ArrayD::from_shape_fn(IxDyn(&shape), |index| {
                let mut at = ndarray::Dimension::slice(&index).to_vec();
                at[rank - 3] /= times;
                array[at.as_slice()]
            })
        };
        let [query, key, value] = [query, key, value].map(repeat);
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        let scale = scale.unwrap_or(1.0 / (query.shape()[rank - 1].max(1) as f64).sqrt());
        let mut scores = product(&query, &permuted(&key, &order)) * scale;
        let extents = scores.shape().to_vec();
        if let Some(mask) = attn_mask {
            let added = if mask.dtype() == DType::Bool {
                mask.booleans().mapv(|may| if may { 0.0 } else { f64::NEG_INFINITY })
            } else {
                mask.floats().clone()
            };
            scores += &spread(&added, &extents);
            if mask.dtype().accumulator() == DType::F32 {
                // As the formula adds them: beside a number far below 0 nothing is left of a score.
                scores.mapv_inplace(|score| f64::from(score as f32));
            }
        }
        if is_causal {
            for (index, score) in scores.indexed_iter_mut() {
                let at = ndarray::Dimension::slice(&index);
                if at[rank - 1] > at[rank - 2] {
                    *score = f64::NEG_INFINITY;
                }
            }
        }
        for mut row in scores.lanes_mut(ndarray::Axis(rank - 1)) {
            let old = row.to_vec();
            let nothing = old.iter().all(|score| *score == f64::NEG_INFINITY);
            let new = if nothing { vec![0.0; old.len()] } else { softmax_row(&old) };
            row.iter_mut().zip(new).for_each(|(to, from)| *to = from);
        }
        if let Some(generator) = generator.filter(|_| dropout_p > 0.0) {
            let drawn = crate::nn::draws(&extents, DType::F32, generator)?;
            let kept = |weight: f64, u: f64| match u >= f64::from(dropout_p as f32) {
                true => weight / (1.0 - dropout_p),
                false => 0.0,
            };
            scores = zip(&scores, &drawn, kept);
        }
        Ok(product(&scores, &value))
    }

    fn samples(s: &mut Samples) {
        let qkv = |q: &[usize], k: &[usize], v: &[usize]| with(s.normal(q), s.normal(k), s.normal(v));
        let plain = qkv(&[2, 3, 5, 4], &[2, 3, 5, 4], &[2, 3, 5, 4]);
        let causal = qkv(&[2, 3, 7, 4], &[2, 3, 7, 4], &[2, 3, 7, 4]).is_causal(true);
        let wide = qkv(&[2, 3, 4], &[2, 5, 4], &[2, 5, 6]).scale(0.3);
        let rectangle = qkv(&[3, 4], &[5, 4], &[5, 2]).is_causal(true);
        let grouped = qkv(&[2, 6, 5, 4], &[2, 2, 5, 4], &[2, 2, 5, 4]).enable_gqa(true).is_causal(true);
        let numbers = qkv(&[2, 3, 4], &[2, 5, 4], &[2, 5, 4]).attn_mask(s.normal([3, 5]));
        let booleans = qkv(&[2, 3, 4], &[2, 5, 4], &[2, 5, 4]).attn_mask(s.booleans([2, 3, 5]));
        let nobody = qkv(&[3, 4], &[2, 4], &[2, 4])
            .attn_mask(s.values([3, 2], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]).cast(DType::Bool));
        let empty = qkv(&[0, 3, 4], &[0, 5, 4], &[0, 5, 4]);
        let dropped = qkv(&[2, 5, 4], &[2, 9, 4], &[2, 9, 4]).dropout_p(0.25).generator(s.integers(0, 1 << 20, [2]));
        let shared_batch = qkv(&[2, 3, 5, 4], &[1, 3, 7, 4], &[1, 3, 7, 6]).is_causal(true);
        let crossed = qkv(&[2, 1, 5, 4], &[3, 5, 4], &[1, 5, 4]).attn_mask(s.booleans([2, 1, 5, 5]));
        let no_keys = qkv(&[2, 3, 4], &[2, 0, 4], &[2, 0, 4]).attn_mask(s.booleans([3, 0]));
        let no_width = qkv(&[2, 3, 0], &[2, 5, 0], &[2, 5, 4]);
        // Widths between the powers of two, for which kernels pad; lengths that end within a tile.
        let widths = [72, 80, 96, 104, 120].map(|width| {
            let causal = width % 16 == 8;
            let (length, positions) = if causal { (33, 33) } else { (19, 40) };
            qkv(&[1, 2, length, width], &[1, 2, positions, width], &[1, 2, positions, width]).is_causal(causal)
        });
        let more = [shared_batch, crossed, no_keys, no_width];
        for case in [plain, causal, wide, rectangle, grouped, numbers, booleans, nobody, empty, dropped]
            .into_iter()
            .chain(more)
            .chain(widths)
        {
            s.case(case);
        }
        // Scores beyond the range of exp, and scores that grow along the keys, so that a running maximum moves at every
        // step.
        let saturated = "nearly all weight is on one key: there is no derivative to speak of";
        let large = s.uniform(-12.0, 12.0, [1, 2, 40, 8]);
        s.case(with(large, s.uniform(-12.0, 12.0, [1, 2, 40, 8]), s.normal([1, 2, 40, 8]))).forward_only(saturated);
        for is_causal in [false, true] {
            let keys: Vec<f64> = (0..72 * 8).map(|i| 0.5 * (i / 8) as f64 + 0.0625 * (i % 3) as f64).collect();
            let queries: Vec<f64> = (0..72 * 8).map(|i| 1.0 + 0.25 * (i % 5) as f64).collect();
            let (query, key) = (s.values([1, 1, 72, 8], queries), s.values([1, 1, 72, 8], keys));
            s.case(with(query, key, s.normal([1, 1, 72, 8])).is_causal(is_causal)).forward_only(saturated);
        }
        // Another number of heads than of batches, and one head for all.
        for shared in [2, 1] {
            let (key, value) = (s.normal([3, shared, 5, 4]), s.normal([3, shared, 5, 4]));
            s.case(with(s.normal([3, 4, 5, 4]), key, value).enable_gqa(true));
        }
        let single = with(s.normal([2, 3, 4]), s.normal([2, 1, 4]), s.normal([2, 1, 4]));
        s.case(single.attn_mask(s.values([3, 1], [1.0, 0.0, 1.0]).cast(DType::Bool)));
        // As many heads, and a batch that broadcasts.
        let (key, value) = (s.normal([2, 4, 6, 8]), s.normal([2, 4, 6, 8]));
        s.case(with(s.normal([4, 3, 8]), key, value).enable_gqa(true));
        // Several tiles of rows and of keys, which end in the middle.
        let [numbers, booleans, dropped] = [(); 3].map(|()| {
            let shared = || s.normal([1, 1, 36, 18]);
            with(s.normal([1, 2, 20, 18]), shared(), shared()).enable_gqa(true)
        });
        let generator = s.integers(0, 1 << 20, [2]);
        s.case(numbers.attn_mask(s.normal([1, 2, 1, 36])));
        s.case(booleans.attn_mask(s.booleans([20, 36])));
        s.case(dropped.dropout_p(0.25).generator(generator).attn_mask(s.normal([2, 1, 36])));
        rows_far_below(s);
        // A part of a larger batch.
        let part = with(s.normal([2, 5, 4]), s.normal([2, 9, 4]), s.normal([2, 9, 4])).dropout_p(0.25);
        s.case(part.generator(s.integers(0, 1 << 20, [3])));
        // Two dimensions of batches, of which a mask has both or one.
        for mask in [&[2, 1, 1, 3, 5][..], &[1, 2, 1, 5]] {
            let batches = with(s.normal([2, 1, 2, 3, 4]), s.normal([2, 1, 2, 5, 4]), s.normal([2, 1, 2, 5, 4]));
            s.case(batches.attn_mask(s.booleans(mask)));
        }
    }

    /// Masks whose rows have only numbers far below 0: of one size, of the least number that there is, of both, and
    /// with -infinity beside them; a row of -infinity alone, and one with a usual number.
    fn rows_far_below(s: &mut Samples) {
        let (far, least) = far_below(s.dtype());
        let hidden = f64::NEG_INFINITY;
        let rows = [[least, least], [least, hidden], [far, far], [far, hidden], [far, least], [hidden, hidden]];
        let rows = rows.into_iter().chain([[least, 0.5], [far, -0.5]]);
        let numbers: Vec<f64> = rows.flat_map(|row| (0..36).map(move |j| row[usize::from(j % 3 == 1)])).collect();
        let constant = "scores are rounded by what is added to them: there is no derivative to speak of";
        let case = |s: &Samples, rows: usize| {
            let shared = || s.normal([1, 1, 36, 18]);
            let mask = s.values([rows, 36], &numbers[..rows * 36]);
            with(s.normal([1, 2, rows, 18]), shared(), shared()).enable_gqa(true).attn_mask(mask)
        };
        // The least numbers leave equal weights in f64 as well, with which gradients are compared.
        let (least_alone, all) = (case(s, 2), case(s, 8));
        let is_wide = s.dtype() == DType::F64;
        let sample = s.case(least_alone);
        if is_wide {
            sample.forward_only(constant);
        }
        s.case(all).forward_only(constant);
        // Weights are halves; the gradient by scores is not 0, as that of a sum.
        for number in [far, least] {
            let case = with(s.values([2, 1], [1.0, 2.0]), s.values([2, 1], [3.0, 5.0]), s.values([2, 1], [1.0, -1.0]));
            let case = case.scale(1.0).attn_mask(s.values([2, 2], [number]));
            if s.dtype() != DType::F16 {
                s.case(case).forward_only(constant).gradients([
                    &[-1.0, -2.0],
                    &[2.5, -2.5],
                    &[1.5, 1.5],
                    &[0.5, -0.5, 1.0, -1.0],
                ]);
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let qkv = |q: &[usize], k: &[usize], v: &[usize]| with(e.normal(q), e.normal(k), e.normal(v));
        let good = || qkv(&[2, 3, 4], &[2, 5, 4], &[2, 5, 4]);
        e.case(Rank, qkv(&[4], &[5, 4], &[5, 4]), "query has shape [4]");
        let mixed = with(e.normal([3, 4]), e.of(DType::F64, [5, 4]), e.normal([5, 4]));
        e.case(SameDType, mixed, "expected equal dtypes");
        e.case(KeyValueShape, qkv(&[3, 4], &[5, 4], &[6, 4]), "key has shape [5, 4], value [6, 4]");
        let doubled = qkv(&[4, 3, 4], &[2, 5, 4], &[4, 5, 4]).enable_gqa(true);
        e.case(Heads, doubled, "or a multiple of heads");
        e.case(Width, qkv(&[3, 4], &[5, 3], &[5, 4]), "query has width 4, key 3");
        e.case(Heads, qkv(&[6, 3, 4], &[2, 5, 4], &[2, 5, 4]), "set enable_gqa");
        let none = qkv(&[2, 3, 4], &[0, 5, 4], &[0, 5, 4]).enable_gqa(true);
        e.case(Heads, none, "or a multiple of heads");
        e.case(MaskAndCausal, good().attn_mask(e.booleans([3, 5])).is_causal(true), "expected one of them");
        e.case(MaskShape, good().attn_mask(e.booleans([4, 5])), "does not broadcast to [2, 3, 5]");
        e.case(MaskDType, good().attn_mask(e.of(DType::I64, [3, 5])), "expected bool or");
        e.case(Probability, good().dropout_p(1.0), "expected 0 to below 1");
        e.case(NeedsGenerator, good().dropout_p(0.5), "give a generator");
        e.case(
            Generator,
            good().dropout_p(0.5).generator(e.integers(0, 9, [4])),
            "generator is i64[4], expected i64[2]",
        );
    }
}

/// The softmax of rows of scores, -infinity where nothing may be attended to; zeros for a row that is so everywhere.
#[track_caller]
pub(crate) fn masked_weights(scores: Tensor) -> Tensor {
    let extents = scores.shape().to_vec();
    // What an earlier call refused has no shape: its error is told in the end.
    let Some((_, leading)) = extents.split_last() else { return scores };
    let top = prims::reshape(prims::amax(scores, [leading.len()]), [leading, &[1]].concat());
    let nothing = broadcast(prims::eq(top, f64::NEG_INFINITY), &extents);
    let safe = prims::select(nothing, 0.0, scores);
    let attended = softmax(safe, -1);
    prims::select(nothing, 0.0, attended)
}
