use fulgurite_ops_macros::operator;

use super::{attended, cached_attention, rope, window_and_cap};
use crate::core::promotion::cast;
use crate::prims;
use crate::prims::checks::same_dtype;

/// A step of attention with a cache: keys and values of new tokens are written to it, at positions `starts[b] + t` of
/// sequence b, and their queries attend to it as in [`cached_attention`](super::cached_attention()). Query [B, H, T,
/// E], key [B, G, T, E], value [B, G, T, V]; `caches` are keys [B, G, S, E] and values [B, G, S, V]. With `cos` and
/// `sin` [B, 1, T, n] queries and new keys are rotated before, as by [`apply_rope`](super::apply_rope()). Keys, values:
/// the caches with what was written, in place where they are donated; out [B, H, T, V]. A position beyond the cache is
/// an error when the program runs.
#[operator(autocast = low)]
pub mod extend_and_attend {
    #[results(keys, values, out)]
    fn extend_and_attend(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        caches: Vec<Tensor<Floating>>,
        starts: Tensor<Integer>,
        #[default(None)] cos: Option<Tensor<Floating>>,
        #[default(None)] sin: Option<Tensor<Floating>>,
        #[default(None)] scale: Option<f64>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { query, key, value, caches, starts, cos, sin, window, cap, .. } = args;
        let [keys, values] = caches[..] else {
            return Err(Code::Caches.unmet(format_args!("caches are {}, expected keys and values", caches.len())));
        };
        let named = [("key", key), ("value", value), ("keys", keys), ("values", values)];
        for (name, tensor) in [("query", query)].into_iter().chain(named) {
            require!(tensor.rank() == 4, Rank, "{name} has shape {:?}, expected four dimensions", tensor.shape());
            same_dtype((name, tensor), ("query", query), Code::SameDType)?;
        }
        let [q, k, v] = [query.shape(), key.shape(), value.shape()];
        require!(
            k[..3] == v[..3] && k[0] == q[0] && k[2] == q[2] && k[3] == q[3],
            KeyValueShape,
            "query has shape {q:?}, key {k:?}, value {v:?}: expected one batch, length and width, and as many values \
             as keys"
        );
        require!(
            k[1] > 0 && q[1].is_multiple_of(k[1]),
            Heads,
            "query has shape {q:?}, key {k:?}: expected heads a multiple of key's"
        );
        let fit = |cache: &[usize], new: &[usize]| cache[..2] == new[..2] && cache[2] > 0 && cache[3] == new[3];
        require!(
            fit(keys.shape(), k) && fit(values.shape(), v) && keys.shape()[2] == values.shape()[2],
            CacheShape,
            "caches have shapes {:?} and {:?}, new keys {k:?}, values {v:?}: expected room for them",
            keys.shape(),
            values.shape()
        );
        require!(starts.shape() == [q[0]], Starts, "starts has shape {:?}, expected [{}]", starts.shape(), q[0]);
        match (cos, sin) {
            (None, None) => {}
            (Some(cos), Some(sin)) => {
                let n = cos.shape().last().copied().unwrap_or(0);
                let expected = cos.with_shape(vec![q[0], 1, q[2], n]);
                let fits = *cos == expected && *sin == expected && n > 0 && n <= q[3] && n.is_multiple_of(2);
                require!(fits, Table, "cos is {cos}, sin {sin}, expected both [{}, 1, {}, n] with n even", q[0], q[2]);
            }
            _ => return Err(Code::Table.unmet(format_args!("one of cos and sin is missing"))),
        }
        super::window_and_cap(window, cap, [Code::Window, Code::Cap])
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { query, key, value, caches, starts, cos, sin, scale, window, cap } = args;
        let (batch, length) = (query.size(0), query.size(2));
        let steps = prims::iota(length, Scalar::Int(0), Scalar::Int(1), DType::I64, query.device());
        let spread = |x: Tensor, dim: usize| prims::broadcast_in_dim(x, [batch, length], [dim]);
        let positions = prims::add(spread(cast(starts, DType::I64), 0), spread(steps, 1));
        let write = |cache: Tensor, new: Tensor| {
            let places = prims::broadcast_in_dim(positions, new.shape(), [0, 2]);
            prims::scatter(cache, 2, places, new)
        };
        let (query, key) = match (cos, sin) {
            (Some(cos), Some(sin)) => rope(query, key, cos, sin),
            _ => (query, key),
        };
        let (keys, values) = (write(caches[0], key), write(caches[1], value));
        let attention = cached_attention::with(query, keys, values, starts).scale(scale).window(window).cap(cap);
        (keys, values, attention.call())
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { query, key, value, caches, starts, cos, sin, scale, window, cap } = args;
        let turned = |x: &ArrayD<f64>| match (cos, sin) {
            (Some(cos), Some(sin)) => {
                let half = cos.shape()[3] / 2;
                ArrayD::from_shape_fn(x.raw_dim(), |at| {
                    let [b, h, t, e] = [0, 1, 2, 3].map(|dim| at[dim]);
                    if e >= 2 * half {
                        return x[[b, h, t, e]];
                    }
                    let partner = if e < half { -x[[b, h, t, e + half]] } else { x[[b, h, t, e - half]] };
                    x[[b, h, t, e]] * cos[[b, 0, t, e]] + partner * sin[[b, 0, t, e]]
                })
            }
            _ => x.clone(),
        };
        let (query, key) = (turned(query), turned(key));
        let written = |cache: &ArrayD<f64>, new: &ArrayD<f64>| -> Result<ArrayD<f64>> {
            let (mut cache, size) = (cache.clone(), cache.shape()[2]);
            for (at, x) in new.indexed_iter() {
                let [b, g, t, e] = [0, 1, 2, 3].map(|dim| at[dim]);
                let position = starts[[b]] + t as i64;
                let message = || format!("index holds {position}, for dimension 2 of size {size}");
                let place = usize::try_from(position).ok().filter(|place| *place < size);
                cache[[b, g, place.ok_or_else(|| Failure::new("IndexOutOfRange", message()))?, e]] = *x;
            }
            Ok(cache)
        };
        let (keys, values) = (written(caches[0], &key)?, written(caches[1], value)?);
        let out = attended([&query, &keys, &values], starts, scale, window, cap);
        Ok((keys, values, out))
    }

    fn samples(s: &mut Samples) {
        // Heads, heads of keys, new tokens and width; positions, and the first new one of each sequence.
        let call = |s: &Samples, [heads, groups, length, width]: [usize; 4], positions: usize, starts: &[f64]| {
            let batch = starts.len();
            let new = |heads: usize| s.normal([batch, heads, length, width]);
            let cache = || s.normal([batch, groups, positions, width]);
            let starts = s.values([batch], starts).cast(DType::I64);
            with(new(heads), new(groups), new(groups), [cache(), cache()], starts)
        };
        let table = |s: &Samples, [batch, length, width]: [usize; 3]| {
            s.uniform(-1.0, 1.0, [batch, 1, length, width]).cast(DType::F32)
        };
        let turned = |s: &Samples, extents: [usize; 4], positions: usize, starts: &[f64]| {
            let of_table = [starts.len(), extents[2], extents[3]];
            call(s, extents, positions, starts).cos(Some(table(s, of_table))).sin(Some(table(s, of_table)))
        };
        s.case(call(s, [4, 2, 1, 8], 9, &[3.0, 8.0]).scale(Some(0.5)));
        s.case(turned(s, [6, 2, 3, 4], 7, &[0.0, 4.0]).window(Some(2)));
        s.case(turned(s, [2, 2, 1, 32], 40, &[39.0]).cap(Some(0.8)));
        s.case(turned(s, [4, 1, 1, 32], 33, &[32.0, 0.0, 17.0]).window(Some(9)));
        // A part of each row is rotated; values have another width.
        let part = || table(s, [2, 1, 4]);
        s.case(call(s, [2, 1, 1, 8], 5, &[1.0, 0.0]).cos(Some(part())).sin(Some(part())));
        let (new, cached) = (s.normal([1, 1, 2, 6]), [s.normal([1, 1, 5, 4]), s.normal([1, 1, 5, 6])]);
        let starts = s.values([1], [3.0]).cast(DType::I32);
        s.case(with(s.normal([1, 2, 2, 4]), s.normal([1, 1, 2, 4]), new, cached, starts));
        // More rows than a kernel has at a time, and positions of several warps and blocks.
        s.case(turned(s, [8, 2, 1, 64], 300, &[299.0, 130.0]));
        s.case(turned(s, [18, 1, 1, 64], 70, &[65.0])).forward_only("large");
        s.case(turned(s, [8, 1, 1, 128], 1100, &[1050.0]).window(Some(1000))).forward_only("large");
        // What is not filled is anything.
        let unfilled = || {
            let values = (0..2 * 40 * 32).map(|i| match i / 32 % 40 {
                position if position < 17 => ((i * 37 % 101) as f64 - 50.0) / 64.0,
                _ => f64::NAN,
            });
            s.values([1, 2, 40, 32], values.collect::<Vec<f64>>())
        };
        let new = |heads: usize| s.normal([1, heads, 1, 32]);
        let starts = s.values([1], [17.0]).cast(DType::I64);
        s.case(with(new(4), new(2), new(2), [unfilled(), unfilled()], starts)).forward_only("NaN has no differences");
        // No sequence.
        s.case(call(s, [2, 2, 1, 4], 3, &[]));
    }

    fn errors(e: &mut ErrorSamples) {
        let starts = |count: usize| e.integers(0, 2, [count]);
        let cache = |groups: usize| e.normal([2, groups, 5, 8]);
        let call = |q: &[usize], k: &[usize], v: &[usize]| {
            with(e.normal(q), e.normal(k), e.normal(v), [cache(2), cache(2)], starts(2))
        };
        let (q, k) = ([2, 4, 1, 8], [2, 2, 1, 8]);
        let good = || call(&q, &k, &k);
        let caches = |caches: Vec<_>| with(e.normal(q), e.normal(k), e.normal(k), caches, starts(2));
        e.case(Caches, caches(vec![cache(2)]), "caches are 1, expected keys and values");
        e.case(Rank, call(&[4, 1, 8], &k, &k), "query has shape [4, 1, 8]");
        let other = e.of(prims::support::another(e.dtype()), k);
        let mixed = with(e.normal(q), other, e.normal(k), [cache(2), cache(2)], starts(2));
        e.case(SameDType, mixed, "expected equal dtypes");
        e.case(KeyValueShape, call(&q, &k, &[2, 2, 2, 8]), "value [2, 2, 2, 8]");
        e.case(Heads, call(&[2, 3, 1, 8], &k, &k), "expected heads a multiple of key's");
        e.case(Heads, call(&[2, 0, 1, 8], &[2, 0, 1, 8], &[2, 0, 1, 8]), "expected heads a multiple of key's");
        e.case(CacheShape, caches(vec![cache(2), cache(3)]), "caches have shapes [2, 2, 5, 8] and [2, 3, 5, 8]");
        let empty = vec![e.normal([2, 2, 0, 8]), e.normal([2, 2, 0, 8])];
        e.case(CacheShape, caches(empty), "caches have shapes [2, 2, 0, 8] and [2, 2, 0, 8]");
        let short = with(e.normal(q), e.normal(k), e.normal(k), [cache(2), cache(2)], starts(3));
        e.case(Starts, short, "starts has shape [3], expected [2]");
        let table = |width: usize| Some(e.of(DType::F32, [2, 1, 1, width]));
        e.case(Table, good().cos(table(8)), "one of cos and sin is missing");
        e.case(Table, good().cos(table(8)).sin(table(6)), "expected both [2, 1, 1, n]");
        e.case(Table, good().cos(table(3)).sin(table(3)), "with n even");
        e.case(Table, good().cos(table(0)).sin(table(0)), "with n even");
        e.case(Window, good().window(Some(0)), "expected at least 1");
        e.case(Cap, good().cap(Some(f64::INFINITY)), "expected a finite number above 0");
        for start in [5.0, -1.0] {
            let starts = e.values([2], [0.0, start]).cast(DType::I64);
            let late = with(e.normal(q), e.normal(k), e.normal(k), [cache(2), cache(2)], starts);
            e.when_run("IndexOutOfRange", late, "for dimension 2 of size 5");
        }
    }
}
