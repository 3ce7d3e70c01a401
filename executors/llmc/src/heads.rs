//! Heads beside each other and one after another.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, source_files};

use super::{define_threads, llmc, pack_of, takes};
use fulgurite_executor_cuda::support::{THREADS, bits_of, index_type};
use fulgurite_ops::core::promotion::constant_like;
use fulgurite_ops::prims::checks;

/// How many packs a thread moves; the kernels know it too.
const EACH: usize = 4;

/// Launches `kernel` on the elements of `tensors`, which have heads one after another in the form of `apart`, [B, H, T,
/// D]; the kernel goes over `times` as many.
fn move_heads(
    plan: &mut Plan,
    kernel: &str,
    apart: &DeviceTensor,
    tensors: &[&DeviceTensor],
    times: usize,
) -> Result<()> {
    if apart.is_empty() {
        return Ok(());
    }
    let [_, heads, length, size] = [0, 1, 2, 3].map(|dim| apart.shape()[dim]);
    let bytes = apart.dtype().size();
    let pack = pack_of(size, bytes, tensors);
    let count = apart.len() / pack * times;
    plan.source(source_files!["heads.cu"]);
    define_threads(plan);
    plan.define("BITS", bits_of(bytes * pack));
    // Some kernels look a little past the end before they stop.
    plan.define("INDEX", index_type(count + EACH * THREADS as usize));
    plan.define("HEADS", heads);
    plan.define("LENGTH", length);
    plan.define("SIZE", size / pack);
    let mut parameters: Vec<Parameter> = tensors.iter().map(|tensor| Parameter::from(*tensor)).collect();
    parameters.push(count.into());
    let blocks = count.div_ceil(EACH * THREADS as usize);
    plan.launch(kernel, LaunchShape::linear(blocks as u32, THREADS), parameters)
}

/// Queries, keys and values of all heads from [B, T, 3 C]: three tensors [B, H, T, C / H].
#[operator(executor = llmc, no_grad = "the implementation that uses it has a gradient of its own")]
pub mod permute {
    #[results(query, key, value)]
    fn permute(input: Tensor<Floating>, n_head: usize) -> (Tensor, Tensor, Tensor);

    fn meta(input: &TensorMeta, n_head: usize) -> Result<(TensorMeta, TensorMeta, TensorMeta)> {
        let width = input.shape().last().copied().unwrap_or(0);
        let heads = input.rank() == 3 && n_head > 0 && width.is_multiple_of(3) && (width / 3).is_multiple_of(n_head);
        require!(heads, Heads, "input is {input}, expected [B, T, 3 C] where C is a multiple of {n_head}");
        let part = input.with_shape([input.shape()[0], n_head, input.shape()[1], width / 3 / n_head]);
        Ok((part.clone(), part.clone(), part))
    }

    fn reference(input: &ArrayD<f64>, n_head: usize) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let (batch, length, channels) = (input.shape()[0], input.shape()[1], input.shape()[2] / 3);
        let size = channels / n_head;
        let part = |which: usize| {
            ArrayD::from_shape_fn(IxDyn(&[batch, n_head, length, size]), |at| {
                input[[at[0], at[2], which * channels + at[1] * size + at[3]]]
            })
        };
        (part(0), part(1), part(2))
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        query: &DeviceTensor,
        key: &DeviceTensor,
        value: &DeviceTensor,
    ) -> Result<()> {
        super::move_heads(plan, "permute", query, &[input, query, key, value], 3)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 12]), 2));
        s.case(with(s.normal([1, 5, 9]), 3));
        s.case(with(s.normal([2, 0, 12]), 2));
        s.case(with(s.normal([3, 17, 192]), 4));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Heads, with(e.of(DType::F32, [2, 3, 12]), 3), "where C is a multiple of 3");
    }
}

/// The gradient of [`mod@permute`]: [B, T, 3 C] from three tensors [B, H, T, C / H].
#[operator(executor = llmc, no_grad = "a gradient is not differentiated again")]
pub mod permute_backward {
    fn permute_backward(d_q: Tensor<Floating>, d_k: Tensor<Floating>, d_v: Tensor<Floating>) -> Tensor;

    fn meta(d_q: &TensorMeta, d_k: &TensorMeta, d_v: &TensorMeta) -> Result<TensorMeta> {
        checks::has_rank(("d_q", d_q), 4, "[B, H, T, D]", Code::Parts)?;
        checks::is_like(("d_k", d_k), d_q, Code::Parts)?;
        checks::is_like(("d_v", d_v), d_q, Code::Parts)?;
        let shape = d_q.shape();
        Ok(d_q.with_shape([shape[0], shape[2], 3 * shape[1] * shape[3]]))
    }

    fn reference(d_q: &ArrayD<f64>, d_k: &ArrayD<f64>, d_v: &ArrayD<f64>) -> ArrayD<f64> {
        let (heads, size) = (d_q.shape()[1], d_q.shape()[3]);
        let shape = [d_q.shape()[0], d_q.shape()[2], 3 * heads * size];
        ArrayD::from_shape_fn(IxDyn(&shape), |at| {
            let part = [d_q, d_k, d_v][at[2] / (heads * size)];
            part[[at[0], at[2] / size % heads, at[1], at[2] % size]]
        })
    }

    fn plan(plan: &mut Plan, Args { d_q, d_k, d_v }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::move_heads(plan, "permute_backward", d_q, &[d_q, d_k, d_v, out], 3)
    }

    fn samples(s: &mut Samples) {
        for shape in [[2, 3, 4, 5], [1, 1, 7, 3], [2, 3, 0, 5], [3, 4, 17, 16]] {
            s.case(with(s.normal(shape), s.normal(shape), s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let part = |shape: [usize; 4]| e.of(DType::F32, shape);
        let other = with(part([2, 3, 4, 5]), part([2, 3, 4, 5]), part([2, 3, 4, 6]));
        e.case(Parts, other, "d_v is f32[2, 3, 4, 6], expected f32[2, 3, 4, 5]");
        let rows = || e.of(DType::F32, [4, 5]);
        e.case(Parts, with(rows(), rows(), rows()), "d_q is f32[4, 5], expected [B, H, T, D]");
    }
}

/// The heads of [B, H, T, D] side by side: [B, T, H D].
#[operator(executor = llmc, no_grad = "the implementation that uses it has a gradient of its own")]
pub mod unpermute {
    fn unpermute(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        checks::has_rank(("input", input), 4, "[B, H, T, D]", Code::InputRank)?;
        let shape = input.shape();
        Ok(input.with_shape([shape[0], shape[2], shape[1] * shape[3]]))
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let shape = input.shape();
        let size = shape[3];
        ArrayD::from_shape_fn(IxDyn(&[shape[0], shape[2], shape[1] * size]), |at| {
            input[[at[0], at[2] / size, at[1], at[2] % size]]
        })
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::move_heads(plan, "unpermute", input, &[input, out], 1)
    }

    fn samples(s: &mut Samples) {
        for shape in [[2, 3, 4, 5], [1, 1, 7, 3], [2, 3, 0, 5], [3, 4, 17, 16]] {
            s.case(with(s.normal(shape)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(InputRank, with(e.of(DType::F32, [2, 3, 4])), "expected [B, H, T, D]");
    }
}

/// The gradient of [`mod@unpermute`]: [B, H, T, D] from [B, T, H D].
#[operator(executor = llmc, no_grad = "a gradient is not differentiated again")]
pub mod unpermute_backward {
    fn unpermute_backward(d_out: Tensor<Floating>, n_head: usize) -> Tensor;

    fn meta(d_out: &TensorMeta, n_head: usize) -> Result<TensorMeta> {
        let heads = d_out.rank() == 3 && n_head > 0 && d_out.shape()[2].is_multiple_of(n_head);
        require!(heads, Heads, "d_out is {d_out}, expected [B, T, C] where C is a multiple of {n_head}");
        let shape = d_out.shape();
        Ok(d_out.with_shape([shape[0], n_head, shape[1], shape[2] / n_head]))
    }

    fn reference(d_out: &ArrayD<f64>, n_head: usize) -> ArrayD<f64> {
        let shape = d_out.shape();
        let size = shape[2] / n_head;
        ArrayD::from_shape_fn(IxDyn(&[shape[0], n_head, shape[1], size]), |at| {
            d_out[[at[0], at[2], at[1] * size + at[3]]]
        })
    }

    fn plan(plan: &mut Plan, d_out: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::move_heads(plan, "unpermute_backward", out, &[d_out, out], 1)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 12]), 2));
        s.case(with(s.normal([1, 5, 9]), 3));
        s.case(with(s.normal([2, 0, 12]), 2));
        s.case(with(s.normal([3, 17, 64]), 4));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Heads, with(e.of(DType::F32, [2, 3, 10]), 4), "where C is a multiple of 4");
    }
}

#[implementation(of = fulgurite_ops::nn::split_heads, by = llmc)]
mod split_heads_by_llmc {
    fn checker(input: &TensorMeta) -> Claim {
        takes(input)
    }

    fn execution(arguments: Arguments) -> (Tensor, Tensor, Tensor) {
        permute::call(arguments)
    }

    fn grad(
        arguments: Arguments,
    ) -> ((Tensor, Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>, Option<Tensor>)) -> Grads) {
        let out = permute::call(arguments);
        (out, move |(d_query, d_key, d_value): (Option<Tensor>, Option<Tensor>, Option<Tensor>)| {
            let part = |d: Option<Tensor>| d.unwrap_or_else(|| constant_like(out.0, 0.0));
            Grads { input: permute_backward(part(d_query), part(d_key), part(d_value)) }
        })
    }
}

#[implementation(of = fulgurite_ops::nn::merge_heads, by = llmc)]
mod merge_heads_by_llmc {
    fn checker(input: &TensorMeta) -> Claim {
        takes(input)
    }

    fn execution(arguments: Arguments) -> Tensor {
        unpermute::call(arguments)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (unpermute(input), move |d_out: Tensor| Grads { input: unpermute_backward(d_out, input.size(1)) })
    }
}
