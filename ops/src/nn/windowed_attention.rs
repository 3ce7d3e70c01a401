use fulgurite_ops_macros::operator;

use crate::core::attention::{Attended, Changes, seen_keys};
use crate::core::promotion::cast;
use crate::nn::{heads_of_keys, masked_weights, window_and_cap};
use crate::prims;

/// Attention with a sliding window, capped scores and key lengths: query [B, H, L, E] attends to key [B, G, S, E] and
/// value [B, G, S, V], whose heads are each shared by H / G heads of queries. With `is_causal` position i sees 0 to i;
/// with `window` as well only that number of last ones, its own included. Row b of the batch has `lengths[b]` keys, and
/// sees none behind them; without `lengths` it has S. Scores are multiplied by `scale`, 1/√E if absent; with `cap` they
/// become `cap · tanh(score / cap)`. A position that sees nothing gives zeros. Keys and values that nobody sees are
/// finite numbers: some executors multiply them by 0. Out [B, H, L, V].
///
/// Beltagy et al., "Longformer", 2020 (windows); Gemma Team, "Gemma 2", 2024 (caps).
#[operator(autocast = low)]
pub mod windowed_attention {
    fn windowed_attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        #[default(None)] lengths: Option<Tensor<Integer>>,
        #[default(false)] is_causal: bool,
        #[default(None)] scale: Option<f64>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
    ) -> Tensor;

    fn requires(Args { query, key, value, lengths, is_causal, window, cap, .. }: Args<&TensorMeta>) -> Result<()> {
        super::heads_of_keys([query, key, value], [Code::Rank, Code::SameDType, Code::KeyValueShape, Code::Heads])?;
        let q = query.shape();
        if let Some(lengths) = lengths {
            let shape = lengths.shape();
            require!(shape == [q[0]], Lengths, "lengths has shape {shape:?}, expected [{}]", q[0]);
        }
        require!(
            window.is_none() || is_causal,
            WindowIsCausal,
            "window is {} without is_causal, expected both: a window ends with a position's own",
            window.unwrap_or_default()
        );
        super::window_and_cap(window, cap, [Code::Window, Code::Cap])
    }

    fn decomposition(Args { query, key, value, lengths, is_causal, scale, window, cap }: Args<Tensor>) -> Tensor {
        let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| query.size(dim));
        let [groups, positions, value_width] = [key.size(1), key.size(2), value.size(3)];
        let shared = heads / groups;
        let scale = scale.unwrap_or(1.0 / (width.max(1) as f64).sqrt());
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
        let mut scores = prims::reshape(scores, extents);
        if let Some(seen) = seen_keys([batch, length, positions], query.device(), lengths, is_causal, window) {
            scores = prims::select(prims::broadcast_in_dim(seen, extents, [0, 3, 4]), scores, f64::NEG_INFINITY);
        }
        let weights = cast(masked_weights(scores), query.dtype());
        let weights = prims::reshape(weights, [batch, groups, shared * length, positions]);
        prims::reshape(prims::matmul(weights, value), [batch, heads, length, value_width])
    }

    fn reference(args: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let Args { query, key, value, lengths, is_causal, scale, window, cap } = args;
        let scale = scale.unwrap_or(1.0 / (query.shape()[3].max(1) as f64).sqrt());
        let attended = Attended { query, key, value, mask: None, is_causal, scale };
        let (out, _) = attended.forward_with(&Changes { lengths, window, cap, ..Changes::default() });
        out.permuted_axes(IxDyn(&[0, 2, 1, 3]))
    }

    fn samples(s: &mut Samples) {
        // Extents of query; heads, positions and width of value.
        let call = |s: &Samples, q: [usize; 4], [heads, positions, width]: [usize; 3]| {
            let key = s.normal([q[0], heads, positions, q[3]]);
            with(s.normal(q), key, s.normal([q[0], heads, positions, width]))
        };
        let lengths = |s: &Samples, of: &[f64]| s.values([of.len()], of).cast(DType::I64);
        s.case(call(s, [2, 4, 5, 8], [2, 7, 8]).is_causal(true).window(Some(3)));
        s.case(call(s, [1, 2, 6, 4], [2, 6, 6]).is_causal(true).cap(Some(0.8)).scale(Some(0.7)));
        s.case(call(s, [3, 2, 4, 4], [1, 6, 4]).lengths(lengths(s, &[2.0, 6.0, 5.0])));
        // Lengths beyond the keys, of nothing, and below.
        s.case(call(s, [3, 2, 4, 4], [1, 5, 4]).lengths(lengths(s, &[9.0, 0.0, -1.0])));
        // The last positions' windows end before the first key.
        s.case(call(s, [1, 2, 9, 4], [1, 3, 4]).is_causal(true).window(Some(2)));
        let all = call(s, [2, 4, 7, 8], [2, 7, 8]).lengths(lengths(s, &[4.0, 7.0]).cast(DType::I32));
        s.case(all.is_causal(true).window(Some(3)).cap(Some(1.5)));
        s.case(call(s, [2, 3, 4, 4], [3, 5, 4]));
        s.case(call(s, [0, 2, 3, 4], [2, 3, 4]).is_causal(true).window(Some(2)));
        // Several tiles of kernels, of which windows and lengths pass some by.
        s.case(call(s, [1, 2, 200, 64], [1, 200, 64]).is_causal(true).window(Some(40))).forward_only("large");
        let long = call(s, [2, 2, 70, 64], [1, 290, 64]).lengths(lengths(s, &[31.0, 200.0]));
        s.case(long.cap(Some(2.0))).forward_only("large");
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |q: &[usize], k: &[usize], v: &[usize]| with(e.normal(q), e.normal(k), e.normal(v));
        let good = || call(&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 8]);
        e.case(Rank, call(&[4, 3, 8], &[2, 2, 5, 8], &[2, 2, 5, 8]), "query has shape [4, 3, 8]");
        let other = e.of(prims::support::another(e.dtype()), [2, 2, 5, 8]);
        e.case(SameDType, with(e.normal([2, 4, 1, 8]), other, e.normal([2, 2, 5, 8])), "expected equal dtypes");
        e.case(KeyValueShape, call(&[2, 4, 3, 8], &[2, 2, 5, 8], &[2, 2, 6, 8]), "value [2, 2, 6, 8]");
        e.case(Heads, call(&[2, 4, 3, 8], &[2, 3, 5, 8], &[2, 3, 5, 8]), "expected heads a multiple of key's");
        e.case(Lengths, good().lengths(e.integers(0, 2, [3])), "lengths has shape [3], expected [2]");
        e.case(WindowIsCausal, good().window(Some(2)), "window is 2 without is_causal");
        e.case(Window, good().is_causal(true).window(Some(0)), "expected at least 1");
        e.case(Window, good().is_causal(true).window(Some(i64::MAX)), "at most 2147483647");
        for cap in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            e.case(Cap, good().cap(Some(cap)), "expected a finite number above 0");
        }
    }
}
