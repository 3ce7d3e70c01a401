//! Attention in tiles: scores are not written to memory, so that its use grows with the lengths and not with their
//! product. Two things do grow with the product: a mask of 16-bit numbers is copied to f32, and the gradient of a mask
//! of numbers, where it is asked for, is that of scores.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::attention::{Dropped, Scores, attention_backward as backward, attention_forward};
use fulgurite_runtime::rules::{ArrayD, Failure, Result, TensorRef};
use fulgurite_runtime::tracer::wants_gradient;
use fulgurite_runtime::{DType, Tensor, TensorMeta, refuse_unless};

use super::cpu;
use super::making::numbers_of;
use fulgurite_ops::core::attention::{
    self as definition, Attended, as_before, as_four, beside, claims_heads, extents_of_mask, factor, mask_as_four,
    meta_as_four, row_meta, seen_pairs, term_flops,
};
use fulgurite_ops::nn::attention_changes::{ChangesMeta, FORMS, Marks, Numbers, kept};
use fulgurite_ops::prims::checks;
use fulgurite_ops::with_changes;

/// Whether the kernels are written for such tensors: query [B, H, L, E], key [B, H', S, E], value [B, H', S, V].
pub(super) fn kernels_fit(
    query: &TensorMeta,
    key: &TensorMeta,
    value: &TensorMeta,
    changes: &ChangesMeta<'_>,
) -> Claim {
    let (q, k, v) = (query.shape(), key.shape(), value.shape());
    refuse_unless!(
        matches!(query.dtype(), DType::F32 | DType::BF16 | DType::F16),
        "query is {}, takes f32, bf16 and f16",
        query.dtype()
    );
    let four = [query, key, value].iter().all(|tensor| tensor.rank() == 4 && tensor.dtype() == query.dtype());
    refuse_unless!(four, "query is {query}, key {key}, value {value}, takes four dimensions and one dtype");
    let heads = k[1] > 0 && q[1].is_multiple_of(k[1]);
    refuse_unless!(
        heads && q[0] == k[0] && q[3] == k[3] && k[..3] == v[..3],
        "query is {query}, key {key}, value {value}: takes one batch, queries as wide as keys, heads a multiple of \
         key's, and as many values as keys"
    );
    let some = [q, k, v].iter().all(|shape| shape.iter().all(|extent| *extent > 0));
    refuse_unless!(some, "query is {query}, key {key}, value {value}: nothing to attend to");
    changes.fit(query, key)
}

/// What weights a generator drops, of a query [B, H, L, E] and a key [B, H', S, E].
fn dropped(
    generator: Option<TensorRef<'_>>,
    probability: f64,
    [query, key]: [&TensorRef<'_>; 2],
) -> Result<Option<Dropped>> {
    let Some(generator) = generator.filter(|_| probability > 0.0) else { return Ok(None) };
    let weights = query.shape()[..3].iter().product::<usize>() * key.shape()[2];
    Ok(Some(Dropped { numbers: numbers_of(&generator, weights)?, probability }))
}

/// Attention of query [B, H, L, E] to key [B, H', S, E] and value [B, H', S, V], H a multiple of H': out [B, L, H, V],
/// with the heads of a position beside each other, and the logarithm of the sum of each row's exponentials, f32
/// [B, H, L]; +infinity for a row that sees nothing, and whose result is 0. `is_causal` lets position i see 0 to i,
/// `window` only that number of last ones; row b of the batch sees its first `lengths[b]` keys. With `cap` scores
/// become cap · tanh(score / cap). `mask` [B, H, L, S], where every extent may be 1, is of booleans that say which
/// keys are seen, or of numbers that are added to scores; the logarithm is that of sums less the largest number of the
/// row. Weights are dropped as by `dropout` of `dropout_p` and `generator`.
#[operator(executor = cpu, strided, no_grad = "the implementation that uses it has a gradient of its own")]
pub mod attention {
    #[results(out, log_sums)]
    fn attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        is_causal: bool,
        scale: f64,
        #[default(None)] mask: Option<Tensor>,
        #[default(None)] lengths: Option<Tensor<Integer>>,
        #[default(None)] generator: Option<Tensor<Integer>>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
        #[default(0.0)] dropout_p: f64,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { query, key, value, is_causal, mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        super::kernels_fit(query, key, value, &changes).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((beside(query, value), row_meta(query)))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool, window: Option<i64>) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, window), [1, 1])
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p } = args;
        let (marks, kept) = (Marks::of(mask), kept(query, key, generator, dropout_p)?);
        let changes = definition::Changes { added: marks.added, lengths, window, cap, kept: kept.as_ref() };
        Ok(Attended { query, key, value, mask: marks.seen, is_causal, scale }.forward_with(&changes))
    }

    fn cpu(args: Args<TensorRef>, out: &mut TensorMut, log_sums: &mut TensorMut) -> Result<()> {
        let Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p } = args;
        let window = window.map(|window| window as usize);
        let dropped = dropped(generator, dropout_p, [&query, &key])?;
        let scores = Scores { query, key, mask, lengths, is_causal, window, cap, dropped, scale };
        attention_forward(&scores, value, out.reborrow(), log_sums.reborrow());
        Ok(())
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::F64 {
            return;
        }
        for (batch, [heads, shared], [queries, keys], [width, value_width], is_causal) in super::CASES {
            let (q, k) = ([batch, heads, queries, width], [batch, shared, keys, width]);
            let v = s.normal([batch, shared, keys, value_width]);
            s.case(with(s.normal(q), s.normal(k), v, is_causal, 1.0 / (width as f64).sqrt()));
        }
        for mask in super::MASKS {
            let (q, k) = (s.normal([2, 3, 7, 4]), s.normal([2, 3, 150, 4]));
            s.case(with(q, k, s.normal([2, 3, 150, 5]), false, 0.5).mask(s.booleans(mask)));
        }
        // The second row sees nothing.
        let few = s.values([1, 1, 3, 2], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]).cast(DType::Bool);
        let (q, k, v) = (s.normal([1, 2, 3, 4]), s.normal([1, 2, 2, 4]), s.normal([1, 2, 2, 4]));
        s.case(with(q, k, v, false, 0.5).mask(few));
        for (form, [heads, shared], [queries, keys], width) in FORMS {
            let (q, k) = ([2, heads, queries, width], [2, shared, keys, width]);
            let scale = 1.0 / (width as f64).sqrt();
            let case = with(s.normal(q), s.normal(k), s.normal(k), form.is_causal(), scale);
            s.case(with_changes!(case, form.made(s, [heads, queries, keys])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: [usize; 4]| e.of(DType::F32, shape);
        let call = |q: [usize; 4], k: [usize; 4], v: [usize; 4]| with(of(q), of(k), of(v), true, 0.5);
        e.case(Kernel, call([2, 4, 3, 8], [2, 3, 5, 8], [2, 3, 5, 8]), "heads a multiple of key's");
        e.case(Kernel, call([2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]), "as many values as keys");
        e.case(Kernel, call([2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]), "nothing to attend to");
        e.case(Kernel, call([2, 0, 3, 8], [2, 0, 5, 8], [2, 0, 5, 8]), "heads a multiple of key's");
        e.case(Kernel, call([1, 4, 3, 8], [2, 4, 5, 8], [2, 4, 5, 8]), "takes one batch");
        e.case(Kernel, call([2, 4, 3, 6], [2, 4, 5, 8], [2, 4, 5, 8]), "queries as wide as keys");
        let key = || of([2, 4, 5, 8]);
        e.case(Kernel, with(e.of(DType::F32, [4, 3, 8]), key(), key(), true, 0.5), "takes four dimensions");
        e.case(Kernel, with(of([2, 4, 3, 8]), e.of(DType::F16, [2, 4, 5, 8]), key(), true, 0.5), "and one dtype");
        let double = || e.of(DType::F64, [2, 4, 5, 8]);
        e.case(Kernel, with(double(), double(), double(), true, 0.5), "query is f64, takes f32, bf16 and f16");
        let q = || of([2, 4, 3, 8]);
        let mask = e.of(DType::Bool, [2, 4, 3, 4]);
        let good = || with(q(), q(), q(), false, 0.5);
        e.case(Kernel, good().mask(mask), "does not broadcast to [2, 4, 3, 3]");
        e.case(Kernel, good().mask(e.of(DType::F64, [2, 4, 3, 3])), "mask is f64, takes bool and f32");
        e.case(Kernel, good().lengths(e.integers(0, 5, [4])), "takes an integer for each of the batch");
        e.case(Kernel, good().window(Some(2)), "window is 2 without is_causal");
        e.case(Kernel, good().cap(Some(0.0)), "cap is 0");
        e.case(Kernel, good().dropout_p(0.5), "takes a generator i64[2]");
        let wide = |shape: [usize; 4]| e.of(DType::F64, shape);
        let doubles = with(wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), false, 0.5);
        e.case(Kernel, doubles, "query is f64");
        let flat = || e.of(DType::F32, [2, 4]);
        e.case(Kernel, with(flat(), flat(), flat(), false, 0.5), "takes four dimensions");
    }
}

/// Batch, heads and those of keys, queries and keys, width and that of values, causal.
const CASES: [(usize, [usize; 2], [usize; 2], [usize; 2], bool); 8] = [
    (2, [3, 3], [5, 5], [4, 4], false),
    (2, [3, 3], [7, 7], [4, 6], true),
    (1, [1, 1], [1, 1], [1, 1], true),
    (1, [2, 2], [1, 30], [8, 1], false),
    // Shared heads.
    (1, [4, 2], [20, 9], [32, 32], false),
    // Several tiles; keys that nobody sees, and rows that see all.
    (1, [2, 2], [140, 300], [6, 9], true),
    (1, [2, 1], [300, 140], [17, 16], true),
    // As many heads as there are tasks enough.
    (2, [8, 8], [129, 131], [8, 8], true),
];

/// Masks of two times three heads of 7 queries and 150 keys.
const MASKS: [[usize; 4]; 3] = [[2, 1, 1, 150], [1, 1, 7, 150], [2, 3, 7, 150]];

/// The gradients of [`mod@attention`] for query, key and value, each with the heads of a position beside each other:
/// [B, L, H, E], [B, S, H', E] and [B, S, H', V]. d_out is [B, H, L, V]; attended [B, L, H, V] and log_sums [B, H, L]
/// are the results of forward. Without attended the row sums of weights times their gradients are those of f32; with it
/// they are sums of d_out · attended, which are as exact as attended.
#[operator(executor = cpu, strided, no_grad = "a gradient is not differentiated again")]
pub mod attention_backward {
    #[results(d_query, d_key, d_value)]
    fn attention_backward(
        d_out: Tensor<Floating>,
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        log_sums: Tensor<Floating>,
        is_causal: bool,
        scale: f64,
        #[default(None)] attended: Option<Tensor<Floating>>,
        #[default(None)] mask: Option<Tensor>,
        #[default(None)] lengths: Option<Tensor<Integer>>,
        #[default(None)] generator: Option<Tensor<Integer>>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
        #[default(0.0)] dropout_p: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { d_out, query, key, value, log_sums, is_causal, attended, .. } = args;
        let Args { mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        super::kernels_fit(query, key, value, &changes).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        let [batch, heads, queries] = [0, 1, 2].map(|dim| query.shape()[dim]);
        let d_result = query.with_shape([batch, heads, queries, value.shape()[3]]);
        checks::is_like(("d_out", d_out), &d_result, Code::Cotangent)?;
        if let Some(attended) = attended {
            checks::is_like(("attended", attended), &beside(query, value), Code::Attended)?;
        }
        checks::is_like(("log_sums", log_sums), &row_meta(query), Code::LogSums)?;
        Ok((beside(query, query), beside(key, key), beside(value, value)))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool, window: Option<i64>) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, window), [3, 2])
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { d_out, query, key, value, log_sums, is_causal, scale, attended, .. } = args;
        let Args { mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let (marks, kept) = (Marks::of(mask), kept(query, key, generator, dropout_p)?);
        let changes = definition::Changes { added: marks.added, lengths, window, cap, kept: kept.as_ref() };
        let all = Attended { query, key, value, mask: marks.seen, is_causal, scale };
        Ok(all.backward_with(&changes, d_out, attended, log_sums).into())
    }

    fn cpu(
        args: Args<TensorRef>,
        d_query: &mut TensorMut,
        d_key: &mut TensorMut,
        d_value: &mut TensorMut,
    ) -> Result<()> {
        let Args { d_out, query, key, value, log_sums, is_causal, scale, attended, .. } = args;
        let Args { mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let window = window.map(|window| window as usize);
        let dropped = dropped(generator, dropout_p, [&query, &key])?;
        let scores = Scores { query, key, mask, lengths, is_causal, window, cap, dropped, scale };
        let [d_query, d_key, d_value] = [d_query.reborrow(), d_key.reborrow(), d_value.reborrow()];
        backward(&scores, value, d_out, attended, log_sums, d_query, d_key, d_value);
        Ok(())
    }

    /// As large as sums of so many exponentials are: weights stay near those of attention.
    fn log_sums(s: &mut Samples, keys: usize, shape: [usize; 3]) -> SampleTensor {
        let log = (keys as f64).ln();
        s.uniform(log + 0.5, log + 1.5, shape).cast(DType::F32)
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::F64 {
            return;
        }
        for (batch, [heads, shared], [queries, keys], [width, value_width], is_causal) in super::CASES {
            let (q, k) = ([batch, heads, queries, width], [batch, shared, keys, width]);
            let d_out = s.normal([batch, heads, queries, value_width]);
            let attended = s.normal([batch, queries, heads, value_width]);
            let v = s.normal([batch, shared, keys, value_width]);
            let sums = log_sums(s, keys, [batch, heads, queries]);
            let scale = 1.0 / (width as f64).sqrt();
            // As the implementations call it.
            let attended = (s.dtype() == DType::F32).then_some(attended);
            s.case(with(d_out, s.normal(q), s.normal(k), v, sums, is_causal, scale).attended(attended));
        }
        for mask in super::MASKS {
            let (q, k, v) = (s.normal([2, 3, 7, 4]), s.normal([2, 3, 150, 4]), s.normal([2, 3, 150, 5]));
            let (d_out, attended) = (s.normal([2, 3, 7, 5]), s.normal([2, 7, 3, 5]));
            let sums = log_sums(s, 150, [2, 3, 7]);
            s.case(with(d_out, q, k, v, sums, false, 0.5).attended(attended).mask(s.booleans(mask)));
        }
        for (form, [heads, shared], [queries, keys], width) in FORMS {
            let (q, k) = ([2, heads, queries, width], [2, shared, keys, width]);
            let sums = log_sums(s, keys, [2, heads, queries]);
            let scale = 1.0 / (width as f64).sqrt();
            let (d_out, q, key, value) = (s.normal(q), s.normal(q), s.normal(k), s.normal(k));
            let case = with(d_out, q, key, value, sums, form.is_causal(), scale);
            s.case(with_changes!(case, form.made(s, [heads, queries, keys])));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let q = || of(&[2, 4, 3, 8]);
        let k = || of(&[2, 2, 5, 8]);
        let good = || with(q(), q(), k(), k(), of(&[2, 4, 3]), false, 0.5).attended(of(&[2, 3, 4, 8]));
        e.case(Kernel, ARGUMENTS.value.set(good(), of(&[2, 2, 6, 8])), "as many values as keys");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[2, 4, 3, 9])), "expected f32[2, 4, 3, 8]");
        e.case(Attended, ARGUMENTS.attended.set(good(), Some(of(&[2, 4, 3, 8]))), "expected f32[2, 3, 4, 8]");
        e.case(LogSums, ARGUMENTS.log_sums.set(good(), of(&[2, 4, 4])), "expected f32[2, 4, 3]");
    }
}

impl attention::Args<Tensor> {
    /// The gradients for query, key and value.
    #[track_caller]
    pub(super) fn backward(&self, d_out: Tensor, out: Tensor, log_sums: Tensor) -> (Tensor, Tensor, Tensor) {
        let attention::Args { query, key, value, is_causal, scale, .. } = *self;
        // Results of 16 bits are rounded by more than the gradients of their rows may be off.
        let attended = (out.dtype() == DType::F32).then_some(out);
        let call = attention_backward::with(d_out, query, key, value, log_sums, is_causal, scale).attended(attended);
        with_changes!(call, self).call()
    }

    /// The parts of the gradient of a mask of numbers. The generator is absent where nothing is dropped.
    #[track_caller]
    fn of_numbers(&self, mask: Tensor) -> Numbers {
        let attention::Args { query, key, value, generator, dropout_p, scale, .. } = *self;
        let dropped = generator.map(|generator| (generator, dropout_p));
        Numbers { mask, query, key, value, dropped, scale }
    }
}

#[implementation(of = fulgurite_ops::nn::scaled_dot_product_attention, by = cpu)]
mod attention_by_cpu {
    fn checker(args: Args<&TensorMeta>) -> Claim {
        let Args { query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, generator, .. } = args;
        claims_heads(query, key, value, enable_gqa)?;
        let mut mask = None;
        if let Some(given) = attn_mask {
            // The batch of the kernels is that of all leading dimensions. Whether a mask broadcasts to it is asked
            // below.
            refuse_unless!(given.rank() <= 4, "attn_mask is {given}, takes masks of at most four dimensions");
            mask = Some(given.with_shape(extents_of_mask(given.shape())));
        }
        let [query, key, value] = [query, key, value].map(meta_as_four);
        let (mask, lengths, window, cap) = (mask.as_ref(), None, None, None);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        super::kernels_fit(&query, &key, &value, &changes)
    }

    #[track_caller]
    fn call_of(args: &Args<Tensor>) -> attention::Args<Tensor> {
        let Args { dropout_p, is_causal, .. } = *args;
        let [query, key, value] = [args.query, args.key, args.value].map(as_four);
        let (scale, mask) = (factor(args.query, args.scale), args.attn_mask.map(mask_as_four));
        let generator = args.generator.filter(|_| dropout_p > 0.0);
        let (lengths, window, cap) = (None, None, None);
        attention::Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p }
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        as_before(call_of(&args).call().0, args.query)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let call = call_of(&args);
        let (out, log_sums) = call.call();
        let Args { query, key, value, attn_mask, .. } = args;
        (as_before(out, query), move |d_out: Tensor| {
            let d_out = as_four(d_out);
            let (d_query, d_key, d_value) = call.backward(d_out, out, log_sums);
            let numbers = attn_mask.filter(|mask| mask.dtype().is_floating() && wants_gradient(*mask));
            Grads {
                query: as_before(d_query, query),
                key: as_before(d_key, key),
                value: as_before(d_value, value),
                attn_mask: numbers.map(|mask| call.of_numbers(mask).gradient(d_out, log_sums)),
            }
        })
    }
}
