//! Attention in tiles: scores are not written to memory, whose use grows with the lengths and not with their product.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::fulgurite_kernels::attention::{
    Scores, attention_backward as backward, attention_forward,
};
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta, refuse_unless};

use super::cpu;
use fulgurite_ops::core::attention::{
    Attended, as_before, as_four, beside, claims_heads, factor, meta_as_four, row_meta,
};
use fulgurite_ops::prims::{self, checks};

/// Whether the kernels are written for such tensors: query [B, H, L, E], key [B, H', S, E], value [B, H', S, V], and a
/// mask that spreads to [B, H, L, S].
pub(super) fn kernels_fit(
    query: &TensorMeta,
    key: &TensorMeta,
    value: &TensorMeta,
    mask: Option<&TensorMeta>,
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
    if let Some(mask) = mask {
        let spreads =
            mask.rank() == 4 && mask.shape().iter().zip([q[0], q[1], q[2], k[2]]).all(|(a, b)| [1, b].contains(a));
        refuse_unless!(spreads, "mask is {mask}, takes {:?}, or 1 in their places", [q[0], q[1], q[2], k[2]]);
    }
    Ok(())
}

/// Attention of query [B, H, L, E] to key [B, H', S, E] and value [B, H', S, V], H a multiple of H': out [B, L, H, V],
/// with the heads of a position beside each other, and the logarithm of the sum of each row's exponentials, f32
/// [B, H, L]; +infinity for a row from which `mask` hides everything, and whose result is 0. `mask` says who may be
/// attended to: [B, H, L, S], where every extent may be 1. `is_causal` lets position i see 0 to i.
#[operator(executor = cpu, strided, no_grad = "the implementation that uses it has a gradient of its own")]
pub mod attention {
    #[results(out, log_sums)]
    fn attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        mask: Option<Tensor<Boolean>>,
        is_causal: bool,
        scale: f64,
    ) -> (Tensor, Tensor);

    fn meta(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        mask: Option<&TensorMeta>,
    ) -> Result<(TensorMeta, TensorMeta)> {
        super::kernels_fit(query, key, value, mask).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((beside(query, value), row_meta(query)))
    }

    fn reference(
        query: &ArrayD<f64>,
        key: &ArrayD<f64>,
        value: &ArrayD<f64>,
        mask: Option<&ArrayD<bool>>,
        is_causal: bool,
        scale: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        Attended { query, key, value, mask, is_causal, scale }.forward()
    }

    fn cpu(
        query: TensorRef,
        key: TensorRef,
        value: TensorRef,
        mask: Option<TensorRef>,
        is_causal: bool,
        scale: f64,
        out: &mut TensorMut,
        log_sums: &mut TensorMut,
    ) -> Result<()> {
        let scores = Scores { query, key, mask, is_causal, scale };
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
            s.case(with(s.normal(q), s.normal(k), v, None, is_causal, 1.0 / (width as f64).sqrt()));
        }
        for mask in super::MASKS {
            let (q, k) = (s.normal([2, 3, 7, 4]), s.normal([2, 3, 150, 4]));
            s.case(with(q, k, s.normal([2, 3, 150, 5]), s.booleans(mask), false, 0.5));
        }
        // The second row sees nothing.
        let few = s.values([1, 1, 3, 2], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]).cast(DType::Bool);
        s.case(with(s.normal([1, 2, 3, 4]), s.normal([1, 2, 2, 4]), s.normal([1, 2, 2, 4]), few, false, 0.5));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: [usize; 4]| e.of(DType::F32, shape);
        let call = |q: [usize; 4], k: [usize; 4], v: [usize; 4]| with(of(q), of(k), of(v), None, true, 0.5);
        e.case(Kernel, call([2, 4, 3, 8], [2, 3, 5, 8], [2, 3, 5, 8]), "heads a multiple of key's");
        e.case(Kernel, call([2, 4, 3, 8], [2, 4, 5, 8], [2, 4, 6, 8]), "as many values as keys");
        e.case(Kernel, call([2, 4, 0, 8], [2, 4, 5, 8], [2, 4, 5, 8]), "nothing to attend to");
        let q = || of([2, 4, 3, 8]);
        let mask = e.of(DType::Bool, [2, 4, 3, 4]);
        e.case(Kernel, with(q(), q(), q(), mask, false, 0.5), "takes [2, 4, 3, 3], or 1 in their places");
        let wide = |shape: [usize; 4]| e.of(DType::F64, shape);
        let doubles = with(wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), None, false, 0.5);
        e.case(Kernel, doubles, "query is f64");
        let flat = || e.of(DType::F32, [2, 4]);
        e.case(Kernel, with(flat(), flat(), flat(), None, false, 0.5), "takes four dimensions");
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
/// are the results of forward.
#[operator(executor = cpu, strided, no_grad = "a gradient is not differentiated again")]
pub mod attention_backward {
    #[results(d_query, d_key, d_value)]
    fn attention_backward(
        d_out: Tensor<Floating>,
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        attended: Tensor<Floating>,
        log_sums: Tensor<Floating>,
        mask: Option<Tensor<Boolean>>,
        is_causal: bool,
        scale: f64,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(
        d_out: &TensorMeta,
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        attended: &TensorMeta,
        log_sums: &TensorMeta,
        mask: Option<&TensorMeta>,
    ) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        super::kernels_fit(query, key, value, mask).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        let [batch, heads, queries] = [0, 1, 2].map(|dim| query.shape()[dim]);
        let d_result = query.with_shape([batch, heads, queries, value.shape()[3]]);
        checks::is_like(("d_out", d_out), &d_result, Code::Cotangent)?;
        checks::is_like(("attended", attended), &beside(query, value), Code::Attended)?;
        checks::is_like(("log_sums", log_sums), &row_meta(query), Code::LogSums)?;
        Ok((beside(query, query), beside(key, key), beside(value, value)))
    }

    fn reference(
        d_out: &ArrayD<f64>,
        query: &ArrayD<f64>,
        key: &ArrayD<f64>,
        value: &ArrayD<f64>,
        attended: &ArrayD<f64>,
        log_sums: &ArrayD<f64>,
        mask: Option<&ArrayD<bool>>,
        is_causal: bool,
        scale: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        Attended { query, key, value, mask, is_causal, scale }.backward(d_out, attended, log_sums).into()
    }

    fn cpu(
        d_out: TensorRef,
        query: TensorRef,
        key: TensorRef,
        value: TensorRef,
        attended: TensorRef,
        log_sums: TensorRef,
        mask: Option<TensorRef>,
        is_causal: bool,
        scale: f64,
        d_query: &mut TensorMut,
        d_key: &mut TensorMut,
        d_value: &mut TensorMut,
    ) -> Result<()> {
        let scores = Scores { query, key, mask, is_causal, scale };
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
            s.case(with(d_out, s.normal(q), s.normal(k), v, attended, sums, None, is_causal, scale));
        }
        for mask in super::MASKS {
            let (q, k, v) = (s.normal([2, 3, 7, 4]), s.normal([2, 3, 150, 4]), s.normal([2, 3, 150, 5]));
            let (d_out, attended) = (s.normal([2, 3, 7, 5]), s.normal([2, 7, 3, 5]));
            let sums = log_sums(s, 150, [2, 3, 7]);
            s.case(with(d_out, q, k, v, attended, sums, s.booleans(mask), false, 0.5));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let q = || of(&[2, 4, 3, 8]);
        let k = || of(&[2, 2, 5, 8]);
        let good = || with(q(), q(), k(), k(), of(&[2, 3, 4, 8]), of(&[2, 4, 3]), None, false, 0.5);
        e.case(Kernel, ARGUMENTS.value.set(good(), of(&[2, 2, 6, 8])), "as many values as keys");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[2, 4, 3, 9])), "expected f32[2, 4, 3, 8]");
        e.case(Attended, ARGUMENTS.attended.set(good(), of(&[2, 4, 3, 8])), "expected f32[2, 3, 4, 8]");
        e.case(LogSums, ARGUMENTS.log_sums.set(good(), of(&[2, 4, 4])), "expected f32[2, 4, 3]");
    }
}

/// The shape of a mask in four dimensions: extents of 1 before its own.
fn mask_shape(shape: &[usize]) -> [usize; 4] {
    let mut wide = [1; 4];
    wide[4 - shape.len()..].copy_from_slice(shape);
    wide
}

/// A mask as the kernels take it.
#[track_caller]
fn mask_as_four(mask: Option<Tensor>) -> Option<Tensor> {
    mask.map(|mask| if mask.rank() == 4 { mask } else { prims::reshape(mask, mask_shape(&mask.shape())) })
}

#[implementation(of = fulgurite_ops::nn::scaled_dot_product_attention, by = cpu)]
mod attention_by_cpu {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        attn_mask: Option<&TensorMeta>,
        dropout_p: f64,
        enable_gqa: bool,
    ) -> Claim {
        refuse_unless!(dropout_p == 0.0, "has no dropout, dropout_p is {dropout_p}");
        claims_heads(query, key, value, enable_gqa)?;
        let mut mask = None;
        if let Some(given) = attn_mask {
            refuse_unless!(given.dtype() == DType::Bool, "adds no masks, attn_mask is {given}, takes booleans");
            refuse_unless!(query.rank() <= 4, "has masks of four dimensions, query is {query}");
            mask = Some(given.with_shape(super::mask_shape(given.shape())));
        }
        super::kernels_fit(&meta_as_four(query), &meta_as_four(key), &meta_as_four(value), mask.as_ref())
    }

    fn execution(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Option<Tensor>,
        _dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        _generator: Option<Tensor>,
    ) -> Tensor {
        let [q, k, v] = [query, key, value].map(as_four);
        as_before(attention(q, k, v, mask_as_four(attn_mask), is_causal, factor(query, scale)).0, query)
    }

    fn grad(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Option<Tensor>,
        _dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        _generator: Option<Tensor>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let [q, k, v] = [query, key, value].map(as_four);
        let (mask, scale) = (mask_as_four(attn_mask), factor(query, scale));
        let (out, log_sums) = attention(q, k, v, mask, is_causal, scale);
        (as_before(out, query), move |d_out: Tensor| {
            let d_out = as_four(d_out);
            let (d_query, d_key, d_value) = attention_backward(d_out, q, k, v, out, log_sums, mask, is_causal, scale);
            Grads {
                query: as_before(d_query, query),
                key: as_before(d_key, key),
                value: as_before(d_value, value),
                attn_mask: None,
            }
        })
    }
}
