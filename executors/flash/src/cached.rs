//! Attention of many new tokens to a cache of keys and values.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{ArrayD, IxDyn, Result};
use fulgurite_runtime::{TensorMeta, refuse_unless};

use super::flash;
use super::launch::forward_after;
use super::symbols::kernels_fit;
use super::takes_half;
use fulgurite_ops::core::arrays::softmax_row;
use fulgurite_ops::core::attention::{beside, factor};
use fulgurite_ops::prims;

/// Attention of query [B, H, L, E], whose first row is position `starts[b]` of sequence b, to positions 0 to their own
/// of key and value [B, H', S, E], H a multiple of H': out [B, L, H, E], with the heads of a position beside each
/// other.
#[operator(
    executor = flash,
    strided,
    no_grad = "the operator that it stands for is differentiated by its decomposition",
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
pub mod attention_after {
    fn attention_after(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        starts: Tensor<Integer>,
        scale: f64,
    ) -> Tensor;

    fn meta(query: &TensorMeta, key: &TensorMeta, value: &TensorMeta, starts: &TensorMeta) -> Result<TensorMeta> {
        let fits = takes_half(query).and_then(|()| kernels_fit(query, key, value));
        fits.map_err(|reason| Failure::new(Code::Kernel.name(), reason))?;
        require!(starts.shape() == &query.shape()[..1], Starts, "starts is {starts}, query {query}");
        Ok(beside(query, value))
    }

    fn reference(Args { query, key, value, starts, scale }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let (times, keys) = (heads / key.shape()[1], key.shape()[2] as i64);
        let mut out = ArrayD::zeros(IxDyn(&[batch, queries, heads, width]));
        for (b, h, t) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..queries).map(move |t| (b, h, t)))) {
            let seen = 0..(starts[[b]] + t as i64 + 1).clamp(0, keys) as usize;
            let score = |j: usize| (0..width).map(|e| query[[b, h, t, e]] * key[[b, h / times, j, e]]).sum::<f64>();
            let weights = softmax_row(&seen.map(|j| score(j) * scale).collect::<Vec<f64>>());
            for e in 0..width {
                let weighed = weights.iter().enumerate().map(|(j, weight)| weight * value[[b, h / times, j, e]]);
                out[[b, t, h, e]] = weighed.sum();
            }
        }
        out
    }

    fn plan(plan: &mut Plan, args: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        let Args { query, key, value, starts, scale } = args;
        forward_after(plan, [query, key, value], starts, scale, out)
    }

    fn samples(s: &mut Samples) {
        if s.dtype().size() != 2 {
            return;
        }
        let shapes = [([2, 4, 5, 8], [2, 9], [3.0, 0.0]), ([2, 2, 70, 32], [1, 150], [80.0, 20.0])];
        for ([batch, heads, length, width], [groups, positions], starts) in shapes {
            let cached = || s.normal([batch, groups, positions, width]);
            let starts = s.values([2], starts).cast(DType::I64);
            s.case(with(s.normal([batch, heads, length, width]), cached(), cached(), starts, 0.3));
        }
        let cached = || s.normal([1, 1, 90, 256]);
        s.case(with(s.normal([1, 2, 40, 256]), cached(), cached(), s.values([1], [50.0]).cast(DType::I64), 0.06));
        // Rows before the first position see nothing; rows beyond the last see all.
        let cached = || s.normal([2, 1, 20, 64]);
        let starts = s.values([2], [-3.0, 18.0]).cast(DType::I32);
        s.case(with(s.normal([2, 1, 7, 64]), cached(), cached(), starts, 0.2));
    }

    fn errors(e: &mut ErrorSamples) {
        if e.dtype().size() != 2 {
            return;
        }
        let heads = |count: usize| e.normal([2, count, 5, 8]);
        let starts = |count: usize| e.integers(0, 2, [count]);
        e.case(Kernel, with(heads(3), heads(2), heads(2), starts(2), 1.0), "a multiple of key's");
        e.case(Starts, with(heads(2), heads(2), heads(2), starts(3), 1.0), "starts is i64[3]");
    }
}

#[implementation(of = fulgurite_ops::nn::cached_attention, by = flash)]
mod cached_attention_by_flash {
    fn checker(Args { query, key, value, window, cap, .. }: Args<&TensorMeta>) -> Claim {
        takes_half(query)?;
        refuse_unless!(window.is_none(), "has no windows, window is {window:?}");
        refuse_unless!(cap.is_none(), "has no caps of scores, cap is {cap:?}");
        kernels_fit(query, key, value)
    }

    fn execution(Args { query, key, value, starts, scale, window: _, cap: _ }: Args<Tensor>) -> Tensor {
        let out = super::attention_after(query, key, value, starts, factor(query, scale));
        prims::permute(out, [0, 2, 1, 3])
    }
}
