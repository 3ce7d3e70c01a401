//! Attention of 16-bit elements: scores stay f32 until they are weights, forward and backward.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Error, Tensor, jit};

type Inputs<T> = (T, T, T);

const SHAPE: [usize; 4] = [1, 2, 64, 64];

/// Queries and keys of a few units: scores of dozens, of which bf16 has no fraction.
fn inputs(dtype: DType, low: DType) -> Result<Inputs<Array>, Error> {
    let array = |step: f64, size: f64| -> Result<Array, Error> {
        let count = SHAPE.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| size * (i as f64 * step + (i * i % 89) as f64).sin()).collect();
        // The same numbers in every type.
        let rounded = Array::from_f64(SHAPE, low, &values)?.to_f64()?;
        Array::from_f64(SHAPE, dtype, &rounded)
    };
    Ok((array(0.7, 4.0)?, array(1.3, 4.0)?, array(2.1, 2.0)?))
}

fn attention((query, key, value): &Inputs<Tensor>) -> Tensor {
    scaled_dot_product_attention::with(*query, *key, *value).is_causal(true).call()
}

/// The result, and the gradients of half the sum of its squares.
fn step(inputs: Inputs<Tensor>) -> (Tensor, Inputs<Tensor>) {
    value_and_grad(inputs, |inputs| {
        let out = to(attention(inputs), inputs.0.dtype().accumulator());
        sum(out * out) * 0.5
    })
}

/// As llm.c's notebook has it: heads apart, scores, a triangle as mask, a softmax, heads together.
fn by_hand(qkv: Tensor) -> Tensor {
    let (q, k, v) = split_heads(qkv, 2);
    let length = q.size(2);
    let scores = matmul(q, transpose(k, -2, -1)) * (1.0 / (q.size(-1) as f64).sqrt());
    let hidden = eq(tril(ones([length, length])), 0);
    merge_heads(matmul(softmax(masked_fill(scores, hidden, f64::NEG_INFINITY), -1), v))
}

#[test]
fn attention_that_is_written_out_is_one_operator() -> Result<(), Error> {
    let values: Vec<f64> = (0..2 * 6 * 24).map(|i| (i as f64 * 0.7).sin()).collect();
    let qkv = || Array::from_f64([2, 6, 24], DType::F32, &values);
    let step = |qkv: Tensor| value_and_grad(qkv, |qkv| (by_hand(*qkv) * by_hand(*qkv)).sum());
    let run = |options: Options| -> Result<_, Error> {
        let f = jit(step).options(options);
        let (loss, gradient): (Array, Array) = f.call(qkv()?)?;
        let text = f.compile(&qkv()?)?.stage("rewrite").map(ToString::to_string).unwrap_or_default();
        Ok((text, loss.item()?, gradient.to_f64()?))
    };
    let (text, loss, gradient) = run(Options::default())?;
    assert_eq!(text.matches("= scaled_dot_product_attention(").count(), 2, "{text}");
    assert!(!text.contains("masked_fill("), "{text}");
    let (plain, expected, gradients) = run(Options { rewrites: Some(Vec::new()), ..Options::default() })?;
    assert!(!plain.contains("scaled_dot_product_attention("), "{plain}");
    assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{loss}, expected {expected}");
    let largest = gradients.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    for (found, expected) in gradient.iter().zip(&gradients) {
        assert!((found - expected).abs() <= 1e-5 * largest, "{found}, expected {expected}");
    }
    // Another mask is another function.
    let other = jit(|qkv: Tensor| {
        let (q, k, v) = split_heads(qkv, 2);
        let scores = matmul(q, transpose(k, -2, -1)) * (1.0 / (q.size(-1) as f64).sqrt());
        let hidden = eq(tril::with(ones([6, 6])).diagonal(1).call(), 0);
        matmul(softmax(masked_fill(scores, hidden, f64::NEG_INFINITY), -1), v)
    });
    let text = other.compile(&qkv()?)?.stage("rewrite").map(ToString::to_string).unwrap_or_default();
    assert!(!text.contains("scaled_dot_product_attention("), "{text}");
    Ok(())
}

fn run(dtype: DType, low: DType, options: &Options) -> Result<[Vec<f64>; 4], Error> {
    let out = jit(|inputs: Inputs<Tensor>| attention(&inputs)).options(options.clone()).call(inputs(dtype, low)?)?;
    let (_, (query, key, value)) = jit(step).options(options.clone()).call(inputs(dtype, low)?)?;
    Ok([out.to_f64()?, query.to_f64()?, key.to_f64()?, value.to_f64()?])
}

#[test]
fn scores_of_16_bits_are_not_rounded_before_they_are_exponentiated() -> Result<(), Error> {
    for low in [DType::BF16, DType::F16] {
        let exact = run(DType::F64, low, &Options::default())?;
        let cpu = &["cpu", "reference"][..];
        let mut of_decomposition = [0.0; 4];
        for (executors, fuse) in [(&cpu[1..], true), (cpu, true), (cpu, false)] {
            let options = Options { fuse, ..Options::default() }.with_executors(executors)?;
            let found = run(low, low, &options)?;
            for (i, what) in ["out", "d_query", "d_key", "d_value"].into_iter().enumerate() {
                let largest = exact[i].iter().fold(0.0f64, |most, value| most.max(value.abs()));
                let off = found[i].iter().zip(&exact[i]).map(|(a, b)| (a - b).abs()).fold(0.0f64, f64::max);
                println!("{low} {executors:?} fuse {fuse}: {what} is off by {off:.5} of {largest:.3}");
                // Results and weights are rounded, by half a unit in the last place each; gradients go through more.
                let roundings = if i == 0 { 2.0 } else { 4.0 };
                assert!(
                    off <= roundings * 0.5 * low.epsilon() * largest,
                    "{low} by {executors:?}: {what} is off by {off} of {largest}"
                );
                if executors.len() == 1 {
                    of_decomposition[i] = off;
                }
                let before = of_decomposition[i];
                assert!(off <= 1.5 * before, "{low}: {what} is off by {off}, the decomposition by {before}");
            }
            // The first row sees one key, whatever its query is.
            for head in found[1].chunks(SHAPE[2] * SHAPE[3]) {
                let largest = head[..SHAPE[3]].iter().fold(0.0f64, |most, value| most.max(value.abs()));
                assert!(largest <= 1e-5, "{low} by {executors:?}: the first row's gradient is {largest}, expected 0");
            }
        }
    }
    Ok(())
}

#[test]
fn the_sums_of_scores_have_their_own_type_in_the_trace() -> Result<(), Error> {
    // The executor of the host would run all of it as one kernel.
    let options = Options::default().with_executors(&["reference"])?;
    let function = jit(|inputs: Inputs<Tensor>| attention(&inputs)).options(options);
    let compiled = function.compile(&inputs(DType::BF16, DType::BF16)?)?;
    let claim = &compiled.stage("claim").expect("every program is claimed").block;
    let products: Vec<_> = claim
        .symbols
        .iter()
        .filter(|line| line.name() == "prims::matmul")
        .map(|line| {
            (claim.meta(line.operands().next().expect("two operands")).dtype(), claim.meta(line.results[0]).dtype())
        })
        .collect();
    assert_eq!(products, [(DType::BF16, DType::F32), (DType::BF16, DType::BF16)]);
    Ok(())
}
