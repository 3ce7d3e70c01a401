//! Kernels that are right for small and tame inputs alone, each of an executor that must be named: samples must reach
//! beyond.

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation};
use fulgurite_runtime::{DType, Tensor};

/// Attention without a running maximum: scores are exponentiated as they are.
#[executor(device = "cpu")]
pub mod unshifted {}

/// Attention of heads of 65 to 128 that multiplies the first 64 columns.
#[executor(device = "cpu")]
pub mod narrow_heads {}

/// Forgets updates beyond the 256th, and places beyond the 512th.
#[executor(device = "cpu")]
pub mod forgetful {}

/// Rounds operands of products to TF32 before it multiplies.
#[executor(device = "cpu")]
pub mod rounding_to_tf32 {}

/// Rounds operands of products to bf16 before it multiplies.
#[executor(device = "cpu")]
pub mod rounding_to_bf16 {}

/// What neither wrong attention takes.
fn is_plain(query: &fulgurite_runtime::TensorMeta, key: &fulgurite_runtime::TensorMeta) -> bool {
    query.rank() == 4 && key.rank() == 4 && query.shape()[..2] == key.shape()[..2]
}

/// Lower triangular where `is_causal` says so.
fn seen(scores: Tensor, is_causal: bool) -> Tensor {
    let (rows, columns) = (scores.size(-2), scores.size(-1));
    let device = scores.device();
    let ones = ones::with([rows, columns]).dtype(DType::F32).device(device).call();
    let kept = if is_causal { tril(ones) } else { ones };
    gt(kept, 0.5)
}

/// Declares how executors run plain attention of f32: a function of query, key, value, `is_causal` and the scale.
macro_rules! attention {
    ($($module:ident, $executor:ident, $takes_causal:literal, $attention:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::nn::scaled_dot_product_attention, by = $executor)]
        mod $module {
            fn checker(
                query: &TensorMeta,
                key: &TensorMeta,
                attn_mask: Option<&TensorMeta>,
                dropout_p: f64,
                is_causal: bool,
            ) -> Claim {
                let unmasked = attn_mask.is_none() && ($takes_causal || !is_causal);
                let plain = super::is_plain(query, key) && unmasked && dropout_p == 0.0;
                refuse_unless!(plain && query.dtype() == DType::F32, "plain attention of f32 only");
                Ok(())
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
                super::$attention(query, key, value, is_causal, scale.unwrap_or(1.0 / (query.size(-1) as f64).sqrt()))
            }
        }
    )*};
}

attention! {
    attention_unshifted, unshifted, true, without_maximum;
    attention_of_narrow_heads, narrow_heads, true, of_64_columns;
    attention_of_10_bits, rounding_to_tf32, false, by_products;
    attention_of_7_bits, rounding_to_bf16, false, by_products;
}

fn without_maximum(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: f64) -> Tensor {
    let scores = matmul(query, transpose(key, -2, -1)) * scale;
    let weights = where_(seen(scores, is_causal), exp(scores), 0.0);
    matmul(weights / sum::with(weights).dim([-1]).keepdim(true).call(), value)
}

fn of_64_columns(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: f64) -> Tensor {
    let narrow = |tensor: Tensor| narrow(tensor, -1, 0, query.size(-1).min(64));
    let scores = matmul(narrow(query), transpose(narrow(key), -2, -1)) * scale;
    let scores = masked_fill(scores, logical_not(seen(scores, is_causal)), f64::NEG_INFINITY);
    matmul(softmax(scores, -1), value)
}

/// By the executor's own products, and never causal.
fn by_products(query: Tensor, key: Tensor, value: Tensor, _is_causal: bool, scale: f64) -> Tensor {
    matmul(softmax(matmul(query, transpose(key, -2, -1)) * scale, -1), value)
}

#[implementation(of = fulgurite_ops::prims::scatter_add, by = forgetful)]
mod scatter_add_forgetful {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.rank() == 1 && input.dtype() == DType::F64, "vectors of f64 only");
        Ok(())
    }

    fn cpu(input: TensorRef, index: TensorRef, src: TensorRef, out: &mut TensorMut) -> Result<()> {
        use fulgurite_kernels::access::{read_f64, read_i64, write_f64};
        let mut sums = read_f64(&input);
        for (at, value) in read_i64(&index).into_iter().zip(read_f64(&src)).take(256) {
            sums[at as usize] += value;
        }
        write_f64(out, &sums);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::topk, by = forgetful)]
mod topk_forgetful {
    fn checker(input: &TensorMeta, largest: bool) -> Claim {
        refuse_unless!(input.rank() == 1 && input.dtype() == DType::F64 && largest, "the largest of f64 only");
        Ok(())
    }

    fn cpu(input: TensorRef, values: &mut TensorMut, indices: &mut TensorMut) -> Result<()> {
        use fulgurite_kernels::access::{read_f64, write_f64, write_i64};
        let input = read_f64(&input);
        let mut order: Vec<usize> = (0..input.len()).collect();
        order.sort_by(|a, b| input[*b].total_cmp(&input[*a]));
        // NaN first, whatever its sign.
        order.sort_by_key(|at| !input[*at].is_nan());
        order.truncate(values.shape()[0].min(512));
        let mut found: Vec<f64> = order.iter().map(|at| input[*at]).collect();
        let mut places: Vec<i64> = order.iter().map(|at| *at as i64).collect();
        found.resize(values.shape()[0], 0.0);
        places.resize(values.shape()[0], 0);
        write_f64(values, &found);
        write_i64(indices, &places);
        Ok(())
    }
}

/// Declares how executors run products of f32 whose operands are rounded to so many bits.
macro_rules! products {
    ($($module:ident, $linear:ident, $executor:ident, $bits:literal;)*) => {$(
        #[implementation(of = fulgurite_ops::nn::linear, by = $executor)]
        mod $linear {
            fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
                refuse_unless!(input.dtype() == DType::F32 && weight.rank() == 2, "rounds f32, for several outputs");
                Ok(())
            }

            fn execution(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
                use fulgurite_ops::prelude::*;
                let out = matmul(input, transpose(weight, 0, 1));
                bias.map_or(out, |bias| out + bias)
            }
        }

        #[implementation(of = fulgurite_ops::prims::matmul, by = $executor)]
        mod $module {
            fn checker(input: &TensorMeta) -> Claim {
                refuse_unless!(input.dtype() == DType::F32, "rounds f32");
                Ok(())
            }

            fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
                let rounded = |tensor: &TensorRef| -> ArrayD<f64> {
                    let values = fulgurite_kernels::access::read_f64(tensor);
                    let values = values.into_iter().map(|x| super::to_bits(x as f32, $bits)).collect();
                    ArrayD::from_shape_vec(IxDyn(tensor.shape()), values).expect("a value for each element")
                };
                let product = super::product(&rounded(&input), &rounded(&other));
                fulgurite_kernels::access::write_f64(out, &product.iter().copied().collect::<Vec<_>>());
                Ok(())
            }
        }
    )*};
}

products! {
    product_of_10_bits, linear_of_10_bits, rounding_to_tf32, 10;
    product_of_7_bits, linear_of_7_bits, rounding_to_bf16, 7;
}

/// The products of matrices in the last two dimensions.
fn product(
    a: &fulgurite_runtime::rules::ArrayD<f64>,
    b: &fulgurite_runtime::rules::ArrayD<f64>,
) -> fulgurite_runtime::rules::ArrayD<f64> {
    let rank = a.ndim();
    let (m, k, n) = (a.shape()[rank - 2], a.shape()[rank - 1], b.shape()[rank - 1]);
    let (left, right): (Vec<f64>, Vec<f64>) = (a.iter().copied().collect(), b.iter().copied().collect());
    let count = a.shape()[..rank - 1].iter().product::<usize>() * n;
    let element = |at: usize| {
        let (row, column) = (at / n, at % n);
        (0..k).map(|i| left[row * k + i] * right[(row / m * k + i) * n + column]).sum()
    };
    let shape = [&a.shape()[..rank - 1], &[n]].concat();
    let values = (0..count).map(element).collect();
    fulgurite_runtime::rules::ArrayD::from_shape_vec(fulgurite_runtime::rules::IxDyn(&shape), values)
        .expect("a value for each element")
}

/// The number of so many bits of fraction that is nearest to `x`, ties to even.
fn to_bits(x: f32, fraction: u32) -> f64 {
    let dropped = 23 - fraction;
    let bits = x.to_bits();
    let half = (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
    f64::from(f32::from_bits((bits + half) >> dropped << dropped))
}
