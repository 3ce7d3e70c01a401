//! Attention forward and backward.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::changes::{Changes, Way, changes_fit};
use super::problem::{WIDEST, WIDEST_OF_F32};
use super::{flash, launch};
use fulgurite_ops::core::attention::{self as definition, Attended, beside, row_meta, seen_pairs, term_flops};
use fulgurite_ops::nn::attention_changes::{ChangesMeta, FORMS, Form, Marks, kept};
use fulgurite_ops::prims::checks;
use fulgurite_ops::with_changes;

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
    let one = key.dtype() == query.dtype() && value.dtype() == query.dtype();
    let four = q.len() == 4 && k.len() == 4 && value.rank() == 4;
    refuse_unless!(four && one, "query is {query}, key {key}, value {value}, takes four dimensions and one dtype each");
    refuse_unless!(key == value, "key is {key}, value {value}, takes values as many and as wide as keys");
    let heads = q[0] == k[0] && k[1] > 0 && q[1].is_multiple_of(k[1]) && q[3] == k[3];
    refuse_unless!(heads, "query is {query}, key {key}: takes one batch and width, and heads a multiple of key's");
    refuse_unless!(q.iter().chain(k).all(|extent| *extent > 0), "query is {query}, key {key}: nothing to attend to");
    let widest = if query.dtype() == DType::F32 { WIDEST_OF_F32 } else { WIDEST };
    refuse_unless!(q[3] <= widest, "heads are {} wide, takes at most {widest} in {}", q[3], query.dtype());
    let whole = q[3] <= WIDEST_OF_F32 || q[3].is_multiple_of(8);
    refuse_unless!(whole, "heads are {} wide, takes multiples of 8 above {WIDEST_OF_F32}", q[3]);
    // Each warp has 16 rows, the last of which may be beyond the last query or key.
    let rows = q[2].max(k[2]).saturating_add(16).saturating_mul(2).saturating_mul(q[0]).saturating_mul(q[1]);
    refuse_unless!(rows <= MOST, "query is {query}, key {key}: more than {MOST} rows");
    Ok(())
}

/// Attention of query [B, H, L, E] to key and value [B, H', S, E], H a multiple of H': out [B, L, H, E], with the heads
/// of a position beside each other, and the logarithm of the sum of each row's exponentials, f32 [B, H, L]. `is_causal`
/// lets position i see 0 to i, `window` only that number of last ones; row b of the batch sees its first `lengths[b]`
/// keys. With `cap` scores become cap · tanh(score / cap). `mask` [B, H, L, S], where every extent may be 1, is of
/// booleans that say which keys are seen, or of numbers that are added to scores; the logarithm is that of sums less
/// the largest number of a key that the row sees. Weights are dropped as by `dropout` of `dropout_p` and `generator`. A
/// query that sees nothing gets zeros, and the logarithm infinity. Operands of f32 are multiplied as they are, and with
/// `tf32` rounded to TF32.
#[operator(
    executor = flash,
    strided,
    strided_results = 1,
    no_grad = "the implementation that uses it has a gradient of its own",
    waive(tf32 = "the definition rounds nothing"),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f32,
        factor = 256.0,
        scaled = 0.0009765625,
        reason = "operands may be rounded to TF32: the bound of prims::matmul, whose directive derives it"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = bf16,
        scaled = 0.015625,
        reason = "as f16, by 2^-8 in place of 2^-11"
    ),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f16,
        scaled = 0.001953125,
        reason = "weights are rounded by 2^-11; the first positions see few keys, with values far above what is usual"
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
        #[default(None)] mask: Option<Tensor>,
        #[default(None)] lengths: Option<Tensor<Integer>>,
        #[default(None)] generator: Option<Tensor<Integer>>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
        #[default(0.0)] dropout_p: f64,
        #[default(false)] tf32: bool,
    ) -> (Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        let Args { query, key, value, is_causal, mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let fits = super::kernels_fit(query, key, value);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        let fits = fits.and_then(|()| changes_fit(&changes, query, key));
        fits.map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        Ok((beside(query, value), row_meta(query)))
    }

    // There are as many keys as values, and as wide.
    fn flops(query: &TensorMeta, value: &TensorMeta, is_causal: bool, window: Option<i64>) -> u64 {
        term_flops([query, value], seen_pairs(query, value, is_causal, window), [1, 1])
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>)> {
        let Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let marks = Marks::of(mask);
        let kept = kept(query, key, generator, dropout_p)?;
        let changes = definition::Changes { added: marks.added, lengths, window, cap, kept: kept.as_ref() };
        Ok(Attended { query, key, value, mask: marks.seen, is_causal, scale }.forward_with(&changes))
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor, log_sums: &DeviceTensor) -> Result<()> {
        let Args { query, key, value, is_causal, scale, mask, lengths, generator, window, cap, dropout_p, tf32 } = args;
        let dropped = generator.filter(|_| dropout_p > 0.0).map(|generator| (generator, dropout_p));
        let changes = Changes { mask, lengths, window, cap, dropped };
        let way = Way { is_causal, scale, tf32, changes };
        launch::forward(plan, [query, key, value], &way, out, log_sums)
    }

    fn samples(s: &mut Samples) {
        if !fulgurite_executor_cuda::support::has_kernels_for(s.dtype()) {
            return;
        }
        for sample in super::samples_of(s.dtype()) {
            let (batch, [heads, shared_heads], [queries, keys], width, is_causal) = match sample {
                Sample::Plain(case) => case,
                Sample::Changed((form, heads, lengths, width)) => (2, heads, lengths, width, form.is_causal()),
            };
            let (q, k) = ([batch, heads, queries, width], [batch, shared_heads, keys, width]);
            let scale = 1.0 / (width as f64).sqrt();
            let case = with(s.normal(q), s.normal(k), s.normal(k), is_causal, scale);
            match sample {
                Sample::Changed((form, ..)) => {
                    s.case(with_changes!(case, form.made(s, [heads, queries, keys])));
                }
                Sample::Plain(_) => {
                    s.case(case);
                    if s.dtype() == DType::F32 {
                        let rounded = with(s.normal(q), s.normal(k), s.normal(k), is_causal, scale);
                        s.case(rounded.tf32(true));
                    }
                }
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |q: [usize; 4], k: [usize; 4]| {
            with(e.of(DType::F32, q), e.of(DType::F32, k), e.of(DType::F32, k), true, 0.5)
        };
        e.case(Kernel, call([2, 4, 3, 8], [2, 3, 5, 8]), "heads a multiple of key's");
        e.case(Kernel, call([2, 4, 0, 8], [2, 4, 5, 8]), "nothing to attend to");
        e.case(Kernel, call([1, 1, 3, 200], [1, 1, 3, 200]), "200 wide, takes at most 128 in f32");
        let wide = |shape: [usize; 4]| e.of(DType::F64, shape);
        let half = |width: usize| e.of(DType::BF16, [1, 1, 3, width]);
        let whole = with(half(132), half(132), half(132), true, 0.5);
        e.case(Kernel, whole, "132 wide, takes multiples of 8 above 128");
        let several = with(half(256), half(256), half(256), true, 0.5).mask(Some(e.booleans([1, 1, 3, 3])));
        e.case(Kernel, several.cap(Some(1.0)), "takes at most 1 of a mask");
        let doubles = with(wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), wide([1, 1, 2, 4]), false, 0.5);
        e.case(Kernel, doubles, "query is f64");
        let flat = with(e.of(DType::F32, [2, 4]), e.of(DType::F32, [2, 4]), e.of(DType::F32, [2, 4]), false, 0.5);
        e.case(Kernel, flat, "takes four dimensions");
        let good = || call([2, 4, 3, 8], [2, 2, 5, 8]);
        e.case(Kernel, good().mask(Some(e.booleans([3, 5]))), "does not broadcast to [2, 4, 3, 5]");
        e.case(Kernel, good().mask(Some(e.booleans([2, 4, 5, 3]))), "does not broadcast to [2, 4, 3, 5]");
        e.case(Kernel, good().mask(Some(wide([2, 4, 3, 5]))), "mask is f64, takes bool and f32");
        e.case(Kernel, good().lengths(Some(e.integers(0, 5, [4]))), "takes an integer for each of the batch");
        e.case(Kernel, good().window(Some(0)), "window is 0");
        e.case(Kernel, good().cap(Some(0.0)), "cap is 0");
        e.case(Kernel, good().dropout_p(1.0), "takes 0 to below 1");
        e.case(Kernel, good().dropout_p(0.5), "takes a generator i64[2]");
        let everybody = with(
            e.of(DType::F32, [1, 1, 3, 8]),
            e.of(DType::F32, [1, 1, 3, 8]),
            e.of(DType::F32, [1, 1, 3, 8]),
            false,
            0.5,
        );
        e.case(Kernel, everybody.window(Some(2)), "window is 2 without is_causal");
    }
}

/// Attention, or attention with changes.
#[derive(Clone, Copy)]
enum Sample {
    Plain(Case),
    Changed(ChangedCase),
}

/// What a dtype has of all samples: in f32 wide heads do not take all changes at once.
fn samples_of(dtype: DType) -> impl Iterator<Item = Sample> {
    let of = |cases: &'static [Case], forms: &'static [ChangedCase]| {
        cases.iter().copied().map(Sample::Plain).chain(forms.iter().copied().map(Sample::Changed))
    };
    of(&CASES, &FORMS).chain(of(&CASES_OF_GROUPS, &FORMS_OF_GROUPS)).filter(move |sample| match (sample, dtype) {
        (Sample::Changed((Form::All, .., width)), DType::F32) => *width <= 64,
        (Sample::Plain((.., width, _)) | Sample::Changed((.., width)), DType::F32) => *width <= WIDEST_OF_F32,
        (Sample::Plain((.., width, _)) | Sample::Changed((.., width)), _) => *width <= WIDEST,
    })
}

/// Batch, heads and those of keys, queries and keys, width, causal.
type Case = (usize, [usize; 2], [usize; 2], usize, bool);
const CASES: [Case; 14] = [
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
    // Gradients of keys in two parts.
    (1, [2, 1], [70, 90], 256, true),
    (1, [2, 2], [40, 40], 136, false),
];

/// More of them for kernels of warp groups: several tiles and blocks of wide heads.
const CASES_OF_GROUPS: [Case; 4] = [
    (1, [2, 1], [140, 270], 256, false),
    (1, [2, 2], [270, 140], 192, true),
    (2, [2, 1], [200, 200], 256, true),
    (1, [1, 1], [70, 200], 200, false),
];

/// A form, heads and those of keys, queries and keys, width.
type ChangedCase = (Form, [usize; 2], [usize; 2], usize);

/// Attention with changes: bits of masks over several words and tiles, and one change of wide heads.
const FORMS_OF_GROUPS: [ChangedCase; 11] = [
    (Form::Booleans, [2, 1], [290, 200], 128),
    (Form::Booleans, [1, 1], [140, 300], 64),
    (Form::Padding, [2, 2], [130, 140], 128),
    (Form::Booleans, [2, 2], [150, 140], 256),
    (Form::Numbers, [1, 1], [70, 130], 256),
    (Form::Window, [2, 1], [200, 200], 256),
    (Form::Lengths, [1, 1], [130, 200], 256),
    (Form::Dropped, [1, 1], [70, 68], 200),
    (Form::DroppedPart, [2, 1], [150, 140], 128),
    // One row of bits for all keys, and rows of more bits than the least number.
    (Form::Queries, [2, 1], [150, 140], 64),
    (Form::Booleans, [2, 1], [450, 400], 128),
];

/// The gradients of [`mod@attention`] for query, key and value, each with the heads of a position beside each other:
/// [B, L, H, E] and twice [B, S, H', E]. d_out [B, H, L, E] may have any strides; attended [B, L, H, E] and log_sums
/// [B, H, L] are the results of forward.
#[operator(
    executor = flash,
    strided,
    strided_results = 1,
    no_grad = "a gradient is not differentiated again",
    waive(tf32 = "the definition rounds nothing"),
    tolerance(
        consistency,
        checker,
        executor = "flash",
        dtype = f32,
        factor = 256.0,
        scaled = 0.0009765625,
        reason = "operands may be rounded to TF32: the bound of prims::matmul, whose directive derives it"
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
        #[default(None)] mask: Option<Tensor>,
        #[default(None)] lengths: Option<Tensor<Integer>>,
        #[default(None)] generator: Option<Tensor<Integer>>,
        #[default(None)] window: Option<i64>,
        #[default(None)] cap: Option<f64>,
        #[default(0.0)] dropout_p: f64,
        #[default(false)] tf32: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn meta(args: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let Args { d_out, query, key, value, attended, log_sums, is_causal, .. } = args;
        let Args { mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let fits = super::kernels_fit(query, key, value);
        let changes = ChangesMeta { mask, lengths, generator, is_causal, window, cap, dropout_p };
        let fits = fits.and_then(|()| changes_fit(&changes, query, key));
        fits.map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        checks::is_like(("d_out", d_out), query, Code::Cotangent)?;
        let (result, row) = (beside(query, value), row_meta(query));
        checks::is_like(("attended", attended), &result, Code::Attended)?;
        checks::is_like(("log_sums", log_sums), &row, Code::LogSums)?;
        let shared = beside(key, value);
        Ok((result, shared.clone(), shared))
    }

    fn flops(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, is_causal: bool, window: Option<i64>) -> u64 {
        term_flops([query, value], seen_pairs(query, key, is_causal, window), [3, 2])
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<(ArrayD<f64>, ArrayD<f64>, ArrayD<f64>)> {
        let Args { d_out, query, key, value, attended, log_sums, is_causal, .. } = args;
        let Args { scale, mask, lengths, generator, window, cap, dropout_p, .. } = args;
        let marks = Marks::of(mask);
        let kept = kept(query, key, generator, dropout_p)?;
        let changes = definition::Changes { added: marks.added, lengths, window, cap, kept: kept.as_ref() };
        let all = Attended { query, key, value, mask: marks.seen, is_causal, scale };
        Ok(all.backward_with(&changes, d_out, Some(attended), log_sums).into())
    }

    fn plan(
        plan: &mut Plan,
        args: Args<&DeviceTensor>,
        d_query: &DeviceTensor,
        d_key: &DeviceTensor,
        d_value: &DeviceTensor,
    ) -> Result<()> {
        let Args { d_out, query, key, value, attended, log_sums, is_causal, scale, .. } = args;
        let Args { mask, lengths, generator, window, cap, dropout_p, tf32, .. } = args;
        let operands = [d_out, query, key, value];
        let dropped = generator.filter(|_| dropout_p > 0.0).map(|generator| (generator, dropout_p));
        let changes = Changes { mask, lengths, window, cap, dropped };
        let way = Way { is_causal, scale, tf32, changes };
        launch::backward(plan, operands, [attended, log_sums], &way, [d_query, d_key, d_value])
    }

    fn samples(s: &mut Samples) {
        if !fulgurite_executor_cuda::support::has_kernels_for(s.dtype()) {
            return;
        }
        for sample in super::samples_of(s.dtype()) {
            let (batch, [heads, shared_heads], [queries, keys], width, is_causal) = match sample {
                Sample::Plain(case) => case,
                Sample::Changed((form, heads, lengths, width)) => (2, heads, lengths, width, form.is_causal()),
            };
            let (q, k) = ([batch, heads, queries, width], [batch, shared_heads, keys, width]);
            let attended = s.normal([batch, queries, heads, width]);
            // As large as sums of such exponentials are: weights stay near those of attention.
            let log = (keys as f64).ln();
            let log_sums = s.uniform(log + 0.5, log + 1.5, [batch, heads, queries]).cast(DType::F32);
            let scale = 1.0 / (width as f64).sqrt();
            let of = |s: &Samples| {
                let (attended, log_sums) = (attended.clone(), log_sums.clone());
                with(s.normal(q), s.normal(q), s.normal(k), s.normal(k), attended, log_sums, is_causal, scale)
            };
            match sample {
                Sample::Changed((form, ..)) => {
                    let case = of(s);
                    s.case(with_changes!(case, form.made(s, [heads, queries, keys])));
                }
                Sample::Plain(_) => {
                    let cases = [of(s).tf32(false), of(s).tf32(true)];
                    for case in cases.into_iter().take(if s.dtype() == DType::F32 { 2 } else { 1 }) {
                        s.case(case);
                    }
                }
            }
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |shape: &[usize]| e.of(DType::F32, shape);
        let q = || of(&[2, 4, 3, 8]);
        let k = || of(&[2, 2, 5, 8]);
        let good = || with(q(), q(), k(), k(), of(&[2, 3, 4, 8]), of(&[2, 4, 3]), false, 0.5);
        e.case(Kernel, ARGUMENTS.value.set(good(), of(&[2, 2, 6, 8])), "as many and as wide as keys");
        e.case(Cotangent, ARGUMENTS.d_out.set(good(), of(&[2, 4, 3, 9])), "expected f32[2, 4, 3, 8]");
        e.case(Attended, ARGUMENTS.attended.set(good(), of(&[2, 4, 3, 8])), "expected f32[2, 3, 4, 8]");
        e.case(LogSums, ARGUMENTS.log_sums.set(good(), of(&[2, 4, 4])), "expected f32[2, 4, 3]");
        e.case(Kernel, good().mask(Some(e.booleans([2, 4, 5, 3]))), "does not broadcast to [2, 4, 3, 5]");
        e.case(Kernel, good().dropout_p(0.5), "takes a generator i64[2]");
    }
}
