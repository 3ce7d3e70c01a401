//! Attention forward and backward, and what the library takes of `scaled_dot_product_attention`.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cudnn::{ALIGNMENT, KEYS_TOGETHER, WIDEST};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::cudnn;
use fulgurite_ops::core::attention::{
    Attended, as_before, as_four, beside, claims_heads, factor, meta_as_four, row_meta, seen_pairs, term_flops,
};
use fulgurite_ops::prims::checks;

/// Whether the library attends to such tensors: [B, H, L, E] against [B, H', S, E].
fn library_fits(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Claim {
    let (q, k) = (query.shape(), key.shape());
    refuse_unless!(matches!(query.dtype(), DType::BF16 | DType::F16), "takes bf16 and f16, query is {}", query.dtype());
    let four = q.len() == 4 && k.len() == 4 && key == value && key.dtype() == query.dtype();
    refuse_unless!(four, "query is {query}, key {key}, value {value}, takes four dimensions and one dtype each");
    let heads = q[0] == k[0] && k[1] > 0 && q[1].is_multiple_of(k[1]) && q[3] == k[3];
    refuse_unless!(heads, "query is {query}, key {key}: takes one batch and width, and heads a multiple of key's");
    refuse_unless!(q.iter().chain(k).all(|extent| *extent > 0), "query is {query}, key {key}: nothing to attend to");
    let pack = ALIGNMENT / query.dtype().size();
    let width = q[3].is_multiple_of(pack) && q[3] <= WIDEST;
    refuse_unless!(width, "heads are {} wide, takes multiples of {pack} up to {WIDEST}", q[3]);
    Ok(())
}

/// Whether the library's backward pass takes the keys.
fn gradients_fit(key: &TensorMeta) -> Claim {
    let keys = key.shape()[2];
    refuse_unless!(
        keys.is_multiple_of(KEYS_TOGETHER),
        "key is {key}: the gradients of versions before 9.16 need a multiple of {KEYS_TOGETHER} keys"
    );
    Ok(())
}

/// Attention of query [B, H, L, E] to key and value [B, H', S, E], H a multiple of H': out [B, L, H, E], with the heads
/// of a position beside each other, and the logarithm of the sum of each row's exponentials, f32 [B, H, L]. `is_causal`
/// lets position i see 0 to i.
#[operator(
    executor = cudnn,
    strided,
    strided_results = 1,
    no_grad = "the implementation that uses it has a gradient of its own",
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = bf16,
        scaled = 0.0078125,
        reason = "weights are rounded to bf16, by 2^-8 of each, before they are multiplied: twice that of what is usual"
    ),
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = f16,
        scaled = 0.0009765625,
        reason = "weights are rounded to f16, by 2^-11 of each, before they are multiplied: twice that of what is usual"
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
        super::library_fits(query, key, value).map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        Ok((beside(query, value), row_meta(query)))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, None), [1, 1])
    }

    fn reference(Args { query, key, value, is_causal, scale }: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        Attended { query, key, value, mask: None, is_causal, scale }.forward()
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor, log_sums: &DeviceTensor) -> Result<()> {
        let Args { query, key, value, is_causal, scale } = args;
        super::super::launch::forward(plan, [query, key, value], is_causal, scale, out, Some(log_sums))
    }

    fn samples(s: &mut Samples) {
        if s.dtype().size() != 2 {
            return;
        }
        for ([heads, shared_heads], [queries, keys], width, is_causal) in super::forward_cases() {
            let (q, k) = ([2, heads, queries, width], [2, shared_heads, keys, width]);
            s.case(with(s.normal(q), s.normal(k), s.normal(k), is_causal, 1.0 / (width as f64).sqrt()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |dtype: DType, q: [usize; 4], k: [usize; 4]| {
            with(e.of(dtype, q), e.of(dtype, k), e.of(dtype, k), true, 0.5)
        };
        e.case(Library, call(DType::BF16, [2, 4, 3, 8], [2, 3, 5, 8]), "heads a multiple of key's");
        e.case(Library, call(DType::BF16, [2, 4, 0, 8], [2, 4, 5, 8]), "nothing to attend to");
        e.case(Library, call(DType::F16, [1, 1, 3, 20], [1, 1, 3, 20]), "20 wide, takes multiples of 8 up to 256");
        e.case(Library, call(DType::F16, [1, 1, 3, 264], [1, 1, 3, 264]), "264 wide");
        e.case(Library, call(DType::F32, [1, 1, 3, 8], [1, 1, 3, 8]), "takes bf16 and f16, query is f32");
        let of = |shape: [usize; 2]| e.of(DType::BF16, shape);
        e.case(Library, with(of([2, 8]), of([2, 8]), of([2, 8]), false, 0.5), "takes four dimensions");
    }
}

/// Attention as [`mod@attention`] has it, without the sums that a gradient would need: [B, L, H, E]. The library has
/// faster kernels for it.
#[operator(
    executor = cudnn,
    strided,
    strided_results = 1,
    no_grad = "what is differentiated is the form with sums",
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = bf16,
        scaled = 0.0078125,
        reason = "weights are rounded to bf16, by 2^-8 of each, before they are multiplied: twice that of what is usual"
    ),
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = f16,
        scaled = 0.0009765625,
        reason = "weights are rounded to f16, by 2^-11 of each, before they are multiplied: twice that of what is usual"
    )
)]
pub mod attention_alone {
    fn attention_alone(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        is_causal: bool,
        scale: f64,
    ) -> Tensor;

    fn meta(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta) -> Result<TensorMeta> {
        super::library_fits(query, key, value).map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        Ok(beside(query, value))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, None), [1, 1])
    }

    fn reference(Args { query, key, value, is_causal, scale }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        Attended { query, key, value, mask: None, is_causal, scale }.forward().0
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { query, key, value, is_causal, scale } = args;
        super::super::launch::forward(plan, [query, key, value], is_causal, scale, out, None)
    }

    fn samples(s: &mut Samples) {
        if s.dtype().size() != 2 {
            return;
        }
        for ([heads, shared_heads], [queries, keys], width, is_causal) in super::forward_cases() {
            let (q, k) = ([2, heads, queries, width], [2, shared_heads, keys, width]);
            s.case(with(s.normal(q), s.normal(k), s.normal(k), is_causal, 1.0 / (width as f64).sqrt()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |dtype: DType, width: usize| e.of(dtype, [1, 1, 3, width]);
        let call = |dtype: DType, width: usize| with(of(dtype, width), of(dtype, width), of(dtype, width), true, 0.5);
        e.case(Library, call(DType::BF16, 20), "20 wide, takes multiples of 8 up to 256");
        e.case(Library, call(DType::F32, 8), "takes bf16 and f16, query is f32");
    }
}

/// Heads of queries and of keys, rows of queries and of keys, the width of heads, whether it is causal.
type Case = ([usize; 2], [usize; 2], usize, bool);

/// Cases of the forward pass, which takes any number of keys.
fn forward_cases() -> impl Iterator<Item = Case> {
    CASES.into_iter().chain([([2, 2], [33, 40], 8, true), ([2, 1], [200, 150], 96, false)])
}

/// Cases of both passes.
const CASES: [Case; 8] = [
    ([3, 3], [128, 128], 64, true),
    ([2, 2], [128, 128], 64, false),
    // Shared heads.
    ([4, 2], [70, 128], 128, true),
    ([3, 1], [128, 256], 32, false),
    // Narrow heads, more queries than keys.
    ([1, 1], [200, 128], 8, true),
    ([2, 1], [1, 128], 72, false),
    // Wide heads.
    ([2, 1], [130, 128], 256, true),
    ([1, 1], [64, 256], 192, false),
];

/// The gradients of [`mod@attention`] for query, key and value, each with the heads of a position beside each other:
/// [B, L, H, E] and twice [B, S, H', E]. d_out is [B, H, L, E]; attended [B, L, H, E] and log_sums [B, H, L] are the
/// results of forward. The bits are the same in each run.
#[operator(
    executor = cudnn,
    strided,
    strided_results = 1,
    no_grad = "a gradient is not differentiated again",
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = bf16,
        scaled = 0.03125,
        reason = "weights and gradients of scores are rounded to bf16, by 2^-8 of each; of a row of the latter the \
                  sum is 0, so that their products cancel: eight times that of what is left"
    ),
    tolerance(
        consistency,
        checker,
        executor = "cudnn",
        dtype = f16,
        scaled = 0.00390625,
        reason = "weights and gradients of scores are rounded to f16, by 2^-11 of each; of a row of the latter the \
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

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { d_out, query, key, value, attended, log_sums, .. } = args;
        let fits = super::library_fits(query, key, value).and_then(|()| super::gradients_fit(key));
        fits.map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        checks::is_like(("d_out", d_out), query, Code::Cotangent)?;
        let (result, row) = (beside(query, value), row_meta(query));
        checks::is_like(("attended", attended), &result, Code::Attended)?;
        checks::is_like(("log_sums", log_sums), &row, Code::LogSums)?;
        let shared = beside(key, value);
        Ok((result, shared.clone(), shared))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, None), [3, 2])
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { d_out, query, key, value, attended, log_sums, is_causal, scale } = args;
        let all = Attended { query, key, value, mask: None, is_causal, scale };
        all.backward(d_out, attended, log_sums).into()
    }

    fn plan(
        plan: &mut Plan,
        Args { d_out, query, key, value, attended, log_sums, is_causal, scale }: Args<&DeviceTensor>,
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
        if s.dtype().size() != 2 {
            return;
        }
        for ([heads, shared_heads], [queries, keys], width, is_causal) in super::CASES {
            let (q, k) = ([2, heads, queries, width], [2, shared_heads, keys, width]);
            let attended = s.normal([2, queries, heads, width]);
            // As large as sums of such exponentials are: weights stay near those of attention.
            let log = (keys as f64).ln();
            let log_sums = s.uniform(log + 0.5, log + 1.5, [2, heads, queries]).cast(DType::F32);
            let scale = 1.0 / (width as f64).sqrt();
            s.case(with(s.normal(q), s.normal(q), s.normal(k), s.normal(k), attended, log_sums, is_causal, scale));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::BF16, shape);
        let q = || of(&[2, 4, 3, 8]);
        let k = || of(&[2, 2, 128, 8]);
        let log_sums = |shape: &[usize]| e.of(DType::F32, shape);
        let good = || with(q(), q(), k(), k(), of(&[2, 3, 4, 8]), log_sums(&[2, 4, 3]), false, 0.5);
        let odd = || of(&[2, 2, 200, 8]);
        let odd = ARGUMENTS.key.set(ARGUMENTS.value.set(good(), odd()), odd());
        e.case(Library, odd, "need a multiple of 128 keys");
        e.case(Library, ARGUMENTS.value.set(good(), of(&[2, 2, 256, 8])), "one dtype each");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[2, 4, 3, 9])), "expected bf16[2, 4, 3, 8]");
        e.case(Attended, ARGUMENTS.attended.set(good(), of(&[2, 4, 3, 8])), "expected bf16[2, 3, 4, 8]");
        e.case(LogSums, ARGUMENTS.log_sums.set(good(), log_sums(&[2, 4, 4])), "expected f32[2, 4, 3]");
    }
}

#[implementation(of = fulgurite_ops::nn::scaled_dot_product_attention, by = cudnn)]
mod attention_by_cudnn {
    fn checker(Args { query, key, value, attn_mask, dropout_p, enable_gqa, .. }: Args<&TensorMeta>) -> Claim {
        refuse_unless!(attn_mask.is_none(), "has no masks but the causal one");
        refuse_unless!(dropout_p == 0.0, "has no dropout, dropout_p is {dropout_p}");
        claims_heads(query, key, value, enable_gqa)?;
        let key = meta_as_four(key);
        library_fits(&meta_as_four(query), &key, &meta_as_four(value))?;
        gradients_fit(&key)
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { query, key, value, attn_mask: _, dropout_p: _, is_causal, .. } = args;
        let Args { scale, enable_gqa: _, generator: _, .. } = args;
        let [q, k, v] = [query, key, value].map(as_four);
        as_before(attention_alone(q, k, v, is_causal, factor(query, scale)), query)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { query, key, value, attn_mask: _, dropout_p: _, is_causal, .. } = args;
        let Args { scale, enable_gqa: _, generator: _, .. } = args;
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
}
