use fulgurite_ops_macros::operator;

use crate::core::arrays::softmax_row;
use crate::core::promotion::cast;
use crate::nn::masked_weights;
use crate::prims;
use crate::prims::checks::same_dtype;

/// Attention to a cache: row t of query [B, H, L, E] is position `starts[b] + t` of sequence b, and attends to
/// positions 0 to its own of key [B, G, S, E] and value [B, G, S, V]; with `window` only to that number of last
/// ones. What comes after the last row's position may be anything, also NaN; between a row's own and that, it has to be
/// finite. H is a multiple of G: each head of keys is shared
/// by H / G heads of queries. Scores are multiplied by `scale`, 1/√E if absent; with `cap` they become `cap ·
/// tanh(score / cap)`. Out [B, H, L, V].
#[operator(autocast = low)]
pub mod cached_attention {
    fn cached_attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        starts: Tensor<Integer>,
        #[default(None)] scale: Option<f64>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
    ) -> Tensor;

    fn requires(Args { query, key, value, starts, window, cap, .. }: Args<&TensorMeta>) -> Result<()> {
        super::heads_of_keys([query, key, value], [Code::Rank, Code::SameDType, Code::KeyValueShape, Code::Heads])?;
        let q = query.shape();
        require!(starts.shape() == [q[0]], Starts, "starts has shape {:?}, expected [{}]", starts.shape(), q[0]);
        super::window_and_cap(window, cap, [Code::Window, Code::Cap])
    }

    fn decomposition(Args { query, key, value, starts, scale, window, cap }: Args<Tensor>) -> Tensor {
        let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| query.size(dim));
        let [groups, positions, value_width] = [key.size(1), key.size(2), value.size(3)];
        let shared = heads / groups;
        let scale = scale.unwrap_or(1.0 / (width as f64).sqrt());
        // The heads that share keys are rows of one product, so that nothing is copied for them.
        let grouped = prims::reshape(query, [batch, groups, shared * length, width]);
        let sums = query.dtype().accumulator();
        let sums = (sums != query.dtype()).then_some(sums);
        let scores = prims::matmul::with(grouped, prims::permute(key, [0, 1, 3, 2])).out_dtype(sums).call();
        let mut scores = prims::mul(scores, scale);
        if let Some(cap) = cap {
            scores = prims::mul(prims::tanh(prims::div(scores, cap)), cap);
        }
        let extents = [batch, groups, shared, length, positions];
        let visible = prims::broadcast_in_dim(visible(starts, [length, positions], window), extents, [0, 3, 4]);
        let scores = prims::select(visible, prims::reshape(scores, extents), f64::NEG_INFINITY);
        let weights = cast(masked_weights(scores), query.dtype());
        let weights = prims::reshape(weights, [batch, groups, shared * length, positions]);
        // A weight of 0 would not hide what no row attends to, if that is NaN or infinite.
        let value = prims::select(filled(starts, length, &value.shape()), value, 0.0);
        prims::reshape(prims::matmul(weights, value), [batch, heads, length, value_width])
    }

    /// bool[B, L, S]: whether row t of sequence b attends to position j.
    #[track_caller]
    fn visible(starts: Tensor, [length, positions]: [usize; 2], window: Option<i64>) -> Tensor {
        let (batch, device) = (starts.size(0), starts.device());
        let extents = [batch, length, positions];
        let numbers = |count: usize, first: i64, dim: usize| {
            let numbers = prims::iota(count, Scalar::Int(first), Scalar::Int(1), DType::I64, device);
            prims::broadcast_in_dim(numbers, extents, [dim])
        };
        let starts = prims::broadcast_in_dim(cast(starts, DType::I64), extents, [0]);
        let (own, other) = (prims::add(starts, numbers(length, 0, 1)), numbers(positions, 0, 2));
        let before = prims::le(other, own);
        window.map_or(before, |window| prims::logical_and(before, prims::gt(other, prims::sub(own, window))))
    }

    /// Which elements of values [B, G, S, V] are at a position that some row attends to, but for a window.
    #[track_caller]
    fn filled(starts: Tensor, length: usize, extents: &[usize]) -> Tensor {
        let device = starts.device();
        let positions = prims::iota(extents[2], Scalar::Int(0), Scalar::Int(1), DType::I64, device);
        let ends = prims::add(cast(starts, DType::I64), length as i64);
        let spread = |x: Tensor, dim: usize| prims::broadcast_in_dim(x, extents, [dim]);
        prims::lt(spread(positions, 2), spread(ends, 0))
    }

    fn reference(Args { query, key, value, starts, scale, window, cap }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        super::attended([query, key, value], starts, scale, window, cap)
    }

    fn samples(s: &mut Samples) {
        // Extents of query; heads, positions and width of value; the first position of each sequence; the scale.
        let call = |s: &Samples, q: [usize; 4], k: [usize; 3], starts: &[f64], scale: f64| {
            let starts = s.values([starts.len()], starts).cast(DType::I64);
            let key = s.normal([q[0], k[0], k[1], q[3]]);
            with(s.normal(q), key, s.normal([q[0], k[0], k[1], k[2]]), starts).scale(Some(scale))
        };
        s.case(call(s, [2, 4, 1, 8], [2, 9, 8], &[3.0, 8.0], 0.5));
        s.case(call(s, [2, 6, 3, 4], [2, 7, 6], &[0.0, 4.0], 0.7).window(Some(2)));
        s.case(call(s, [1, 2, 5, 4], [2, 6, 4], &[1.0], 1.0).cap(Some(0.8)));
        s.case(call(s, [3, 4, 1, 16], [1, 33, 16], &[32.0, 0.0, 17.0], 0.25).window(Some(9)).cap(Some(2.0)));
        // A row beyond the cache whose window ends before it, and one before the first position, attend to nothing.
        s.case(call(s, [2, 2, 2, 4], [1, 3, 4], &[3.0, -1.0], 1.0).window(Some(1)));
        let starts = s.values([2], [2.0, 1.0]).cast(DType::I32);
        s.case(with(s.normal([2, 1, 1, 4]), s.normal([2, 1, 3, 4]), s.normal([2, 1, 3, 4]), starts));
        // Lengths and widths of which kernels take several parts at a time.
        s.case(call(s, [2, 8, 1, 64], [2, 300, 64], &[299.0, 130.0], 0.125));
        s.case(call(s, [1, 4, 37, 64], [2, 150, 64], &[100.0], 0.125)).forward_only("large");
        s.case(call(s, [1, 3, 2, 80], [3, 70, 80], &[60.0], 0.1).cap(Some(1.5)));
        s.case(call(s, [1, 8, 1, 128], [1, 600, 128], &[512.0], 0.1).window(Some(200))).forward_only("large");
        // What is not filled is anything. `more` positions are filled than `length` queries see: near misses of a
        // sample have a query more, or a row more, which moves the others. A query that sees what is not a number makes
        // those beside it none as well, in kernels that multiply weights of 0 with it.
        let unfilled = |s: &Samples, length: usize, more: usize| {
            let (width, positions, start) = (32, 60, 17);
            let cached = || {
                let values = (0..2 * positions * width).map(|i| match i / width % positions {
                    position if position < start + length + more => ((i * 37 % 101) as f64 - 50.0) / 64.0,
                    position if position % 2 == 0 => f64::NAN,
                    _ => f64::INFINITY,
                });
                s.values([1, 2, positions, width], values.collect::<Vec<f64>>())
            };
            let starts = s.values([1], [start as f64]).cast(DType::I64);
            with(s.normal([1, 4, length, width]), cached(), cached(), starts)
        };
        s.case(unfilled(s, 1, 0)).forward_only("numbers that are not finite have no differences");
        s.case(unfilled(s, 1, 0).cap(Some(2.0))).forward_only("numbers that are not finite have no differences");
        s.case(unfilled(s, 20, 5)).forward_only("numbers that are not finite have no differences");
        // NaN that is attended to stays.
        let nan = s.values([1, 1, 3, 32], (0..96).map(|i| if i == 40 { f64::NAN } else { 0.5 }).collect::<Vec<f64>>());
        let starts = s.values([1], [1.0]).cast(DType::I64);
        s.case(with(s.normal([1, 2, 1, 32]), nan, s.normal([1, 1, 3, 32]), starts)).forward_only("NaN");
        // No sequence.
        s.case(call(s, [0, 2, 1, 4], [2, 3, 4], &[], 1.0));
    }

    fn errors(e: &mut ErrorSamples) {
        let starts = |count: usize| e.integers(0, 2, [count]);
        let call = |q: &[usize], k: &[usize], v: &[usize]| with(e.normal(q), e.normal(k), e.normal(v), starts(2));
        let good = || call(&[2, 4, 1, 8], &[2, 2, 5, 8], &[2, 2, 5, 8]);
        e.case(Rank, call(&[4, 1, 8], &[2, 2, 5, 8], &[2, 2, 5, 8]), "query has shape [4, 1, 8]");
        let other = e.of(prims::support::another(e.dtype()), [2, 2, 5, 8]);
        let mixed = with(e.normal([2, 4, 1, 8]), other, e.normal([2, 2, 5, 8]), starts(2));
        e.case(SameDType, mixed, "expected equal dtypes");
        e.case(KeyValueShape, call(&[2, 4, 1, 8], &[2, 2, 5, 8], &[2, 2, 6, 8]), "value [2, 2, 6, 8]");
        e.case(Heads, call(&[2, 4, 1, 8], &[2, 3, 5, 8], &[2, 3, 5, 8]), "expected heads a multiple of key's");
        let short = with(e.normal([2, 4, 1, 8]), e.normal([2, 2, 5, 8]), e.normal([2, 2, 5, 8]), starts(3));
        e.case(Starts, short, "starts has shape [3], expected [2]");
        e.case(Window, good().window(Some(0)), "expected at least 1");
        e.case(Window, good().window(Some(i64::MAX)), "at most 2147483647");
        for cap in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            e.case(Cap, good().cap(Some(cap)), "expected a finite number above 0");
        }
    }
}

/// Fails with the codes in turn for tensors that are not of four dimensions, for element types that differ, for keys
/// and values that do not belong to the queries or to each other, and for heads that cannot be shared, or no keys.
pub(crate) fn heads_of_keys(
    [query, key, value]: [&fulgurite_runtime::TensorMeta; 3],
    [of_rank, of_dtype, of_shapes, of_heads]: [fulgurite_runtime::rules::Precondition; 4],
) -> Result<(), fulgurite_runtime::Failure> {
    let [q, k, v] = [query.shape(), key.shape(), value.shape()];
    for (name, tensor) in [("query", query), ("key", key), ("value", value)] {
        let shape = tensor.shape();
        if tensor.rank() != 4 {
            let message = format_args!("{name} has shape {shape:?}, expected [batch, heads, length, width]");
            return Err(of_rank.unmet(message));
        }
        same_dtype((name, tensor), ("query", query), of_dtype)?;
    }
    if k[..3] != v[..3] || k[0] != q[0] || k[3] != q[3] {
        return Err(of_shapes.unmet(format_args!(
            "query has shape {q:?}, key {k:?}, value {v:?}: expected one batch, keys as wide as queries, and as many \
             values as keys"
        )));
    }
    if k[1] == 0 || !q[1].is_multiple_of(k[1]) || k[2] == 0 {
        return Err(of_heads.unmet(format_args!(
            "query has shape {q:?}, key {k:?}: expected heads a multiple of key's, and a position at least"
        )));
    }
    Ok(())
}

/// Fails with the first code for a window that holds no position, or more than are counted by 32 bits, and with the
/// second for a cap that scores cannot be bent to. Windows are numbers in arithmetic of positions, which have to be
/// exact in f64: from 2^53 on not all are.
pub(crate) fn window_and_cap(
    window: Option<i64>,
    cap: Option<f64>,
    [of_window, of_cap]: [fulgurite_runtime::rules::Precondition; 2],
) -> Result<(), fulgurite_runtime::Failure> {
    let most = i32::MAX;
    match (window, cap) {
        (Some(window), _) if !(1..=i64::from(most)).contains(&window) => {
            Err(of_window.unmet(format_args!("window is {window}, expected at least 1, and at most {most}")))
        }
        (_, Some(cap)) if !(cap.is_finite() && cap > 0.0) => {
            Err(of_cap.unmet(format_args!("cap is {cap}, expected a finite number above 0")))
        }
        _ => Ok(()),
    }
}

/// For references: what [`cached_attention`] of query, key and value is, straight from its definition.
pub(crate) fn attended(
    [query, key, value]: [&ndarray::ArrayD<f64>; 3],
    starts: &ndarray::ArrayD<i64>,
    scale: Option<f64>,
    window: Option<i64>,
    cap: Option<f64>,
) -> ndarray::ArrayD<f64> {
    let (shape, groups) = (query.shape(), key.shape()[1]);
    let scale = scale.unwrap_or(1.0 / (shape[3] as f64).sqrt());
    let mut out = ndarray::ArrayD::zeros(ndarray::IxDyn(&[shape[0], shape[1], shape[2], value.shape()[3]]));
    for b in 0..shape[0] {
        for h in 0..shape[1] {
            let g = h / (shape[1] / groups);
            for t in 0..shape[2] {
                let own = starts[[b]] + t as i64;
                let first = window.map_or(0, |window| (own - window + 1).max(0));
                let seen: Vec<usize> = (first..(own + 1).min(key.shape()[2] as i64)).map(|j| j as usize).collect();
                let score = |j: &usize| {
                    let products = (0..shape[3]).map(|e| query[[b, h, t, e]] * key[[b, g, *j, e]]);
                    let score = products.sum::<f64>() * scale;
                    cap.map_or(score, |cap| cap * (score / cap).tanh())
                };
                if seen.is_empty() {
                    continue;
                }
                let weights = softmax_row(&seen.iter().map(score).collect::<Vec<f64>>());
                for v in 0..value.shape()[3] {
                    out[[b, h, t, v]] = seen.iter().zip(&weights).map(|(j, w)| w * value[[b, g, *j, v]]).sum();
                }
            }
        }
    }
    out
}
