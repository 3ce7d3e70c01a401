//! Attention forward and backward, and what it takes of `scaled_dot_product_attention`.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::problem::WIDEST;
use super::{by_both, flash};
use fulgurite_ops::core::attention::{
    Attended, as_before, as_four, beside, claims_heads, factor, meta_as_four, row_meta,
};
use fulgurite_ops::prims::checks;

/// The most rows of queries and keys in all: they, and so blocks, are counted by an `int` in the kernels.
const MOST: usize = i32::MAX as usize;

/// Whether the kernels are written for such tensors: [B, H, L, E] against [B, H', S, E].
pub(super) fn kernels_fit(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
    let (q, k) = (query.shape(), key.shape());
    refuse_unless!(
        matches!(query.dtype(), DType::F32 | DType::BF16 | DType::F16),
        "query is {}, takes f32, bf16 and f16",
        query.dtype()
    );
    let four = q.len() == 4 && k.len() == 4 && key == value && key.dtype() == query.dtype();
    refuse_unless!(four, "query is {query}, key {key}, value {value}, takes four dimensions and one dtype each");
    let heads = q[0] == k[0] && k[1] > 0 && q[1].is_multiple_of(k[1]) && q[3] == k[3];
    refuse_unless!(heads, "query is {query}, key {key}: takes one batch and width, and heads a multiple of key's");
    refuse_unless!(q.iter().chain(k).all(|extent| *extent > 0), "query is {query}, key {key}: nothing to attend to");
    refuse_unless!(q[3] <= WIDEST, "heads are {} wide, takes at most {WIDEST}", q[3]);
    // Each warp has 16 rows, the last of which may lie beyond.
    let rows = q[2].max(k[2]).saturating_add(16).saturating_mul(2).saturating_mul(q[0]).saturating_mul(q[1]);
    refuse_unless!(rows <= MOST, "query is {query}, key {key}: more than {MOST} rows");
    Ok(())
}

/// Attention of query [B, H, L, E] to key and value [B, H', S, E], H a multiple of H': out [B, L, H, E], with the heads
/// of a position beside each other, and the logarithm of the sum of each row's exponentials, f32 [B, H, L]. `is_causal`
/// lets position i see 0 to i.
#[operator(
    executor = flash,
    strided,
    no_grad = "the implementation that uses it has a gradient of its own",
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f32,
        factor = 256.0,
        scaled = 0.0009765625,
        reason = "operands are rounded to TF32: the bound of prims::matmul, whose directive derives it"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = bf16,
        scaled = 0.0078125,
        reason = "weights are rounded to bf16, by 2^-8 of each, before they are multiplied: twice that of what is usual"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f16,
        scaled = 0.0009765625,
        reason = "weights are rounded to TF32 or f16, by 2^-11 of each, before they are multiplied: twice that of what \
                  is usual"
    )
)]
pub mod attention {
    #[results(out, log_sums)]
    fn attention(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        is_causal: bool,
        scale: f64,
    ) -> (Tensor, Tensor);

    fn meta(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        super::kernels_fit(query, key, value).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((beside(query, value), row_meta(query)))
    }

    fn reference(
        query: &ArrayD<f64>,
        key: &ArrayD<f64>,
        value: &ArrayD<f64>,
        is_causal: bool,
        scale: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        Attended { query, key, value, mask: None, is_causal, scale }.forward()
    }

    fn plan(
        plan: &mut Plan,
        query: &DeviceTensor,
        key: &DeviceTensor,
        value: &DeviceTensor,
        is_causal: bool,
        scale: f64,
        out: &DeviceTensor,
        log_sums: &DeviceTensor,
    ) -> Result<()> {
        super::super::launch::forward(plan, [query, key, value], is_causal, scale, out, log_sums)
    }

    fn samples(s: &mut Samples) {
        if !fulgurite_executor_cuda::support::has_kernels_for(s.dtype()) {
            return;
        }
        for (batch, [heads, shared_heads], [queries, keys], width, is_causal) in super::CASES {
            let (q, k) = ([batch, heads, queries, width], [batch, shared_heads, keys, width]);
            let case = with(s.normal(q), s.normal(k), s.normal(k), is_causal, 1.0 / (width as f64).sqrt());
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |q: [usize; 4], k: [usize; 4]| {
            with(e.of(DType::F32, q), e.of(DType::F32, k), e.of(DType::F32, k), true, 0.5)
        };
        e.case(Kernel, call([2, 4, 3, 8], [2, 3, 5, 8]), "heads a multiple of key's");
        e.case(Kernel, call([2, 4, 0, 8], [2, 4, 5, 8]), "nothing to attend to");
        e.case(Kernel, call([1, 1, 3, 200], [1, 1, 3, 200]), "200 wide, takes at most 128");
        let wide = |shape: [usize; 4]| e.of(DType::F64, shape);
        let doubles = with(wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), false, 0.5);
        e.case(Kernel, doubles, "query is f64");
        let flat = with(e.of(DType::F32, [2, 4]), e.of(DType::F32, [2, 4]), e.of(DType::F32, [2, 4]), false, 0.5);
        e.case(Kernel, flat, "takes four dimensions");
    }
}

/// Batch, heads and those of keys, queries and keys, width, causal.
const CASES: [(usize, [usize; 2], [usize; 2], usize, bool); 12] = [
    (2, [3, 3], [5, 5], 4, false),
    (2, [3, 3], [7, 7], 4, true),
    // Neither tiles nor packs are whole.
    (1, [2, 2], [33, 40], 7, true),
    (1, [2, 2], [40, 33], 18, true),
    (1, [1, 1], [1, 1], 1, true),
    // Shared heads.
    (2, [4, 2], [20, 9], 32, false),
    (1, [4, 1], [70, 70], 64, true),
    // Several blocks.
    (1, [2, 2], [150, 200], 64, false),
    (1, [2, 2], [200, 150], 64, true),
    // Rows of the block in shared memory.
    (1, [2, 1], [70, 90], 128, true),
    // Several tiles of warp groups, with zeros behind the width.
    (1, [2, 1], [140, 270], 96, false),
    (2, [2, 1], [270, 270], 40, true),
];

/// The gradients of [`mod@attention`] for query, key and value, each with the heads of a position beside each other:
/// [B, L, H, E] and twice [B, S, H', E]. d_out [B, H, L, E] lies anyhow; attended [B, L, H, E] and log_sums [B, H, L]
/// are the results of forward.
#[operator(
    executor = flash,
    strided,
    strided_results = 1,
    no_grad = "a gradient is not differentiated again",
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f32,
        factor = 256.0,
        scaled = 0.0009765625,
        reason = "operands are rounded to TF32: the bound of prims::matmul, whose directive derives it"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = bf16,
        scaled = 0.03125,
        reason = "weights and gradients of scores are rounded to bf16, by 2^-8 of each; of a row of the latter the \
                  sum is 0, so that their products cancel: eight times that of what is left"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f16,
        scaled = 0.00390625,
        reason = "weights and gradients of scores are rounded to TF32, by 2^-11 of each; of a row of the latter the \
                  sum is 0, so that their products cancel: eight times that of what is left"
    )
)]
pub mod attention_backward {
    #[results(d_query, d_key, d_value)]
    fn attention_backward(
        d_out: Tensor<Floating>,
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        attended: Tensor<Floating>,
        log_sums: Tensor<Floating>,
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
    ) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        super::kernels_fit(query, key, value).map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), query, Code::Cotangent)?;
        let (result, row) = (beside(query, value), row_meta(query));
        checks::is_like(("attended", attended), &result, Code::Attended)?;
        checks::is_like(("log_sums", log_sums), &row, Code::LogSums)?;
        let shared = beside(key, value);
        Ok((result, shared.clone(), shared))
    }

    fn reference(
        d_out: &ArrayD<f64>,
        query: &ArrayD<f64>,
        key: &ArrayD<f64>,
        value: &ArrayD<f64>,
        attended: &ArrayD<f64>,
        log_sums: &ArrayD<f64>,
        is_causal: bool,
        scale: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let all = Attended { query, key, value, mask: None, is_causal, scale };
        all.backward(d_out, attended, log_sums).into()
    }

    fn plan(
        plan: &mut Plan,
        d_out: &DeviceTensor,
        query: &DeviceTensor,
        key: &DeviceTensor,
        value: &DeviceTensor,
        attended: &DeviceTensor,
        log_sums: &DeviceTensor,
        is_causal: bool,
        scale: f64,
        d_query: &DeviceTensor,
        d_key: &DeviceTensor,
        d_value: &DeviceTensor,
    ) -> Result<()> {
        let operands = [d_out, query, key, value];
        super::super::launch::backward(
            plan,
            operands,
            [attended, log_sums],
            is_causal,
            scale,
            [d_query, d_key, d_value],
        )
    }

    fn samples(s: &mut Samples) {
        if !fulgurite_executor_cuda::support::has_kernels_for(s.dtype()) {
            return;
        }
        for (batch, [heads, shared_heads], [queries, keys], width, is_causal) in super::CASES {
            let (q, k) = ([batch, heads, queries, width], [batch, shared_heads, keys, width]);
            let attended = s.normal([batch, queries, heads, width]);
            // As large as sums of such exponentials are: weights stay near those of attention.
            let log = (keys as f64).ln();
            let log_sums = s.uniform(log + 0.5, log + 1.5, [batch, heads, queries]).cast(DType::F32);
            let scale = 1.0 / (width as f64).sqrt();
            s.case(with(s.normal(q), s.normal(q), s.normal(k), s.normal(k), attended, log_sums, is_causal, scale));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let q = || of(&[2, 4, 3, 8]);
        let k = || of(&[2, 2, 5, 8]);
        let good = || with(q(), q(), k(), k(), of(&[2, 3, 4, 8]), of(&[2, 4, 3]), false, 0.5);
        e.case(Kernel, ARGUMENTS.value.set(good(), of(&[2, 2, 6, 8])), "one dtype each");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[2, 4, 3, 9])), "expected f32[2, 4, 3, 8]");
        e.case(Attended, ARGUMENTS.attended.set(good(), of(&[2, 4, 3, 8])), "expected f32[2, 3, 4, 8]");
        e.case(LogSums, ARGUMENTS.log_sums.set(good(), of(&[2, 4, 4])), "expected f32[2, 4, 3]");
    }
}

by_both!(fulgurite_ops::nn::scaled_dot_product_attention, attention_by_flash, attention_by_flash_tf32, {
    fn checker(
        query: &TensorMeta,
        key: &TensorMeta,
        value: &TensorMeta,
        attn_mask: Option<&TensorMeta>,
        dropout_p: f64,
        enable_gqa: bool,
    ) -> Claim {
        precision::takes(query)?;
        refuse_unless!(attn_mask.is_none(), "has no masks but the causal one");
        refuse_unless!(dropout_p == 0.0, "has no dropout, dropout_p is {dropout_p}");
        claims_heads(query, key, value, enable_gqa)?;
        super::kernels_fit(&meta_as_four(query), &meta_as_four(key), &meta_as_four(value))
    }

    fn execution(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        _attn_mask: Option<Tensor>,
        _dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        _generator: Option<Tensor>,
    ) -> Tensor {
        let [q, k, v] = [query, key, value].map(as_four);
        as_before(attention(q, k, v, is_causal, factor(query, scale)).0, query)
    }

    fn grad(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        _attn_mask: Option<Tensor>,
        _dropout_p: f64,
        is_causal: bool,
        scale: Option<f64>,
        _enable_gqa: bool,
        _generator: Option<Tensor>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let [q, k, v] = [query, key, value].map(as_four);
        let scale = factor(query, scale);
        let (out, log_sums) = attention(q, k, v, is_causal, scale);
        (as_before(out, query), move |d_out: Tensor| {
            let d_out = as_four(d_out);
            let (d_query, d_key, d_value) = attention_backward(d_out, q, k, v, out, log_sums, is_causal, scale);
            Grads {
                query: as_before(d_query, query),
                key: as_before(d_key, key),
                value: as_before(d_value, value),
                attn_mask: None,
            }
        })
    }
});
