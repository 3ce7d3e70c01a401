//! Losses over sequences in types of 16 bits: what is rounded to the type, and what is not.

use fulgurite_executors as _;
use fulgurite_ops::nn::fused_linear_grpo;
use fulgurite_runtime::{Array, DType, Tensor, jit};

#[test]
fn a_temperature_is_not_rounded_to_the_type_of_the_hidden_states() {
    let f = jit(|(input, weight, tokens, mask, advantages, old): (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)| {
        fused_linear_grpo::with(input, weight, tokens, mask, advantages, old).temperature(0.7).call()
    });
    let of = |shape: &[usize], dtype, values: &[f64]| Array::from_f64(shape, dtype, values).unwrap();
    // One hidden state, whose logits are itself and zero; the token is the second class.
    let input = of(&[1, 1, 1], DType::BF16, &[8.375]);
    let weight = of(&[2, 1], DType::BF16, &[1.0, 0.0]);
    let (tokens, mask) = (of(&[1, 1], DType::I64, &[1.0]), of(&[1, 1], DType::Bool, &[1.0]));
    let (advantages, old) = (of(&[1], DType::BF16, &[1.0]), of(&[1, 1], DType::BF16, &[-1.0]));
    let (_, log_p) = f.call((input, weight, tokens, mask, advantages, old)).unwrap();
    // 8.375 / 0.7 is 11.964, in bf16 11.9375; by a temperature that is rounded to bf16 it would be 12.
    let expected = -(11.9375 + (-11.9375_f64).exp().ln_1p());
    let found = log_p.to_f64().unwrap()[0];
    assert!((found - expected).abs() < 1e-5, "{found}, expected {expected}");
}
