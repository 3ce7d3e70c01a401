//! The traces of a model at every stage, without weights: for `fulgurite trace show gpt2`, snapshots and measurements.

use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{DType, Device, Result, Target, TensorMeta};

use crate::cache::KvCache;
use crate::decode::continued;
use crate::dropout::Dropout;
use crate::model::Model;
use crate::optimizer::OptimizerSettings;
use crate::parameter_list::Parameters;
use crate::parameters::copied;
use crate::quantized::Quantization;
use crate::step::{StepScalars, TrainState, train_step};

pub use fulgurite_runtime::compile::loss_programs;

fn meta(shape: &[usize], dtype: DType) -> TensorMeta {
    TensorMeta::new(shape, dtype, Device::CPU)
}

fn parameter_metas(config: &dyn Model, dtype: DType) -> Parameters<TensorMeta> {
    let built: std::result::Result<_, std::convert::Infallible> =
        Parameters::build(&config.parameters(), &mut |parameter| Ok(meta(&parameter.shape, dtype)));
    let Ok(params) = built;
    params
}

/// The copies of parameters that products read in `rounded`.
fn copied_metas(config: &dyn Model, rounded: DType) -> Parameters<TensorMeta> {
    let built: std::result::Result<_, std::convert::Infallible> =
        Parameters::build(&copied(config), &mut |parameter| Ok(meta(&parameter.shape, rounded)));
    let Ok(copies) = built;
    copies
}

/// What a model has beside its parameters.
fn buffer_metas(config: &dyn Model) -> Parameters<TensorMeta> {
    let built: std::result::Result<_, std::convert::Infallible> =
        Parameters::build(&config.buffers(), &mut |buffer| Ok(meta(&buffer.shape, DType::F32)));
    let Ok(buffers) = built;
    buffers
}

/// The acquired trace of the loss of a batch [rows, context], with parameters of `dtype`.
pub fn loss_trace(config: &dyn Model, dtype: DType, [rows, context]: [usize; 2]) -> Result<Trace> {
    let names = Names { arguments: vec!["params".into(), "batch".into()], results: vec!["loss".into()] };
    let arguments = (parameter_metas(config, dtype), config.batch(rows, context));
    let (trace, _) = trace("loss", Target::cpu(), &names, arguments, |(params, batch)| {
        config.loss(&params, batch.inputs, batch.targets, &Dropout::none())
    })?;
    Ok(trace)
}

/// As [`step_trace`], in f32.
pub fn train_step_trace(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    rows: usize,
    context: usize,
) -> Result<Trace> {
    step_trace(config, optimizer, (DType::F32, None), [rows, context])
}

/// The acquired trace of a whole training step on a batch [rows, context], with parameters and moments of `dtype`, the
/// state donated. Where `rounded` is a type, the state has copies in it of the parameters of linear layers.
pub fn step_trace(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    (dtype, rounded): (DType, Option<DType>),
    [rows, context]: [usize; 2],
) -> Result<Trace> {
    let names = Names {
        arguments: ["state", "batch", "scalars"].map(str::to_owned).to_vec(),
        results: ["state", "loss", "grad_norm"].map(str::to_owned).to_vec(),
    };
    let params = parameter_metas(config, dtype);
    let copies = rounded.map_or(Parameters::none(), |rounded| copied_metas(config, rounded));
    let state = TrainState {
        exp_avg: params.clone(),
        exp_avg_sq: params.clone(),
        params,
        copies,
        buffers: buffer_metas(config),
    };
    let scalar = meta(&[], DType::F32);
    let scalars = StepScalars { lr: scalar.clone(), step: scalar, generator: meta(&[2], DType::I64) };
    let donated = state.leaves().len();
    let (mut trace, _) = trace(
        "train_step",
        Target::cpu(),
        &names,
        (state, config.batch(rows, context), scalars),
        |(state, batch, scalars)| train_step(config, optimizer, state, batch, scalars),
    )?;
    trace.inputs.iter_mut().take(donated).for_each(|input| input.donated = true);
    Ok(trace)
}

/// Every stage of a whole training step.
pub fn train_step_stages(
    config: &dyn Model,
    optimizer: &OptimizerSettings,
    rows: usize,
    context: usize,
    options: &Options,
) -> Result<Vec<Stage>> {
    stages(train_step_trace(config, optimizer, rows, context)?, options)
}

/// The acquired trace of writing `length` tokens of each of `batch` sequences to a cache of `max_seq_length` positions,
/// which is donated: the cache, and the logits of one of them each.
pub fn decode_trace(config: &dyn Model, sizes: (usize, usize), max_seq_length: usize, dtype: DType) -> Result<Trace> {
    decode_trace_with(config, parameter_metas(config, dtype), sizes, max_seq_length, dtype)
}

/// As [`decode_trace`], of a model whose weights are quantized.
pub fn quantized_decode_trace(
    config: &dyn Model,
    quantization: Quantization,
    sizes: (usize, usize),
    max_seq_length: usize,
    dtype: DType,
) -> Result<Trace> {
    decode_trace_with(config, quantization.metas(config, dtype)?, sizes, max_seq_length, dtype)
}

fn decode_trace_with(
    config: &dyn Model,
    params: Parameters<TensorMeta>,
    (batch, length): (usize, usize),
    max_seq_length: usize,
    dtype: DType,
) -> Result<Trace> {
    let names = Names {
        arguments: ["params", "cache", "tokens", "starts", "last"].map(str::to_owned).to_vec(),
        results: ["cache", "logits"].map(str::to_owned).to_vec(),
    };
    let built: std::result::Result<_, std::convert::Infallible> =
        KvCache::build(config.cache_sizes(), batch, max_seq_length, &mut |shape| Ok(meta(shape, dtype)));
    let Ok(cache) = built;
    let (before, donated) = (params.leaves().len(), cache.leaves().len());
    let one = meta(&[batch], DType::I64);
    let arguments = (params, cache, meta(&[batch, length], DType::I64), one.clone(), one);
    let (mut trace, _) = trace("decode", Target::cpu(), &names, arguments, |(params, cache, tokens, starts, last)| {
        continued(config, &params, cache, [tokens, starts, last])
    })?;
    trace.inputs.iter_mut().skip(before).take(donated).for_each(|input| input.donated = true);
    Ok(trace)
}
