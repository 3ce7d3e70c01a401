//! Programs of one call, and random inputs for them.

use std::sync::Arc;

use fulgurite_kernels::DType;
use fulgurite_kernels::launch::CopyRange;
use fulgurite_kernels::scratch::try_room;
use fulgurite_kernels::view::contiguous_strides;

use super::call::{Call, Purpose};
use super::entry::{Entry, Tried};
use super::machine::VERSION;
use super::ranking::{Choices, Found, Question, Ranking};
use crate::argument::{Arg, Attribute, map_arguments};
use crate::array::{Array, Memory, Strides};
use crate::compile::{Choose, Options, stages};
use crate::device::DeviceBuffer;
use crate::error::{Error, Result};
use crate::executor::ExecutorDef;
use crate::fuel::Fuel;
use crate::meta::{Device, TensorMeta};
use crate::operator::Role;
use crate::program::Program;
use crate::testing::samples::Random;
use crate::trace::{Callee, Input, InputRole, Output, StageName, Trace};
use crate::tracer::{accumulate, call, call_role, trace_block};
use crate::transforms::autodiff::{floating_outputs, vjp_of};

/// The function's name, in errors and timelines.
const NAME: &str = "choice";

/// Random elements that inputs are filled with, again and again: no power of two, so that rows differ.
const RANDOM_ELEMENTS: usize = (1 << 18) + 13;

/// One call. With neighbours, floating-point operands are converted from another type, and another input is added to
/// each floating-point result: an executor that fuses takes these lines together with the decomposition, and a kernel
/// writes and reads what is between them.
pub(super) fn trace(question: &Question<'_>, neighbour: bool) -> Result<Trace> {
    let mut parameters: Vec<(Arc<str>, TensorMeta)> = question.def.rule_parameters(question.metas);
    let own: Vec<DType> = parameters.iter().map(|(_, meta)| meta.dtype()).collect();
    let call = |handles: &[crate::Tensor]| {
        let mut handles = handles.iter();
        let next = |_: &TensorMeta| *handles.next().unwrap_or_else(|| unreachable!("one for each tensor"));
        call(question.def, map_arguments(question.metas, next))
    };
    if neighbour {
        let block = trace_block(&parameters, call)?;
        let results = block.results.iter().map(|id| block.meta(*id)).filter(|meta| meta.dtype().is_floating());
        let added: Vec<(Arc<str>, TensorMeta)> =
            results.enumerate().map(|(i, meta)| (format!("neighbour.{i}").into(), meta.clone())).collect();
        for (_, meta) in &mut parameters {
            *meta = meta.with_dtype(converted_from(meta.dtype()));
        }
        parameters.extend(added);
    }
    let block = trace_block(&parameters, |handles| {
        let (operands, others) = handles.split_at(own.len());
        let operands: Vec<crate::Tensor> =
            operands.iter().zip(&own).map(|(handle, dtype)| converted(*handle, *dtype)).collect();
        let results = call(&operands);
        let mut others = others.iter();
        let beside = |result: crate::Tensor| match result.dtype().is_floating() {
            true => others.next().map_or(result, |other| accumulate(result, *other)),
            false => result,
        };
        results.into_iter().map(beside).collect()
    })?;
    let output = |i: usize| Output { path: format!("result{i}") };
    Ok(Trace {
        name: NAME.into(),
        target: question.target.clone(),
        history: vec![StageName::Acquire.name().into()],
        inputs: vec![Input { role: InputRole::Input, donated: false, strides: None }; parameters.len()],
        outputs: (0..block.results.len()).map(output).collect(),
        arena: None,
        block: block.canonical(),
    })
}

/// The element type that a neighbour converts to `dtype`: what mixed precision converts.
fn converted_from(dtype: DType) -> DType {
    match dtype {
        DType::F32 => DType::BF16,
        DType::BF16 | DType::F16 => DType::F32,
        other => other,
    }
}

fn converted(handle: crate::Tensor, dtype: DType) -> crate::Tensor {
    match handle.dtype() == dtype {
        true => handle,
        false => call_role(Role::Convert, vec![Arg::Tensor(handle), Arg::Attribute(Attribute::DType(dtype))]),
    }
}

/// Whether `executor` puts calls of this kind into regions: of two of them, which it has claimed, it makes one.
pub(super) fn is_gathered(question: &Question<'_>, executor: &ExecutorDef) -> bool {
    let Some(fuse) = executor.fuse else { return false };
    let own: Vec<(Arc<str>, TensorMeta)> = question.def.rule_parameters(question.metas);
    let other = own.iter().map(|(name, meta)| (format!("{name}.other").into(), meta.clone()));
    let parameters: Vec<(Arc<str>, TensorMeta)> = own.iter().cloned().chain(other).collect();
    let block = trace_block(&parameters, |handles| {
        let calls = handles.chunks(own.len().max(1)).flat_map(|handles| {
            let mut handles = handles.iter();
            let next = |_: &TensorMeta| *handles.next().unwrap_or_else(|| unreachable!("one for each tensor"));
            call(question.def, map_arguments(question.metas, next))
        });
        calls.collect()
    });
    let Ok(mut block) = block else { return false };
    for symbol in &mut block.symbols {
        symbol.executor = Some(executor.name);
        symbol.body = None;
    }
    let fused = fuse(&block.canonical(), &mut Fuel::UNLIMITED.clone());
    fused.symbols.iter().any(|symbol| matches!(symbol.callee, Callee::Region { .. }))
}

/// One call is run by this candidate, and all others by the list.
#[derive(Debug)]
struct Forced(Arc<Entry>);

impl Choices for Forced {
    fn find(&self, question: &Question<'_>) -> Found {
        // What is measured is a program of its own, whatever the call is elsewhere.
        let forced = Call { is_program: question.is_program, ..self.0.call.clone() };
        match question.call() == forced {
            true => Found::Entry(self.0.clone()),
            false => Found::Nothing,
        }
    }
}

/// The program of `trace` in which candidate `by` runs the call.
///
/// # Errors
/// Those of compilation.
pub(super) fn compiled(question: &Question<'_>, trace: &Trace, by: &str) -> Result<Program> {
    // Measuring has threads of its own.
    let _given = question.options.enter();
    let forced: Arc<dyn Choices> = Arc::new(Forced(Arc::new(forced_entry(question.call(), by))));
    let options = Options {
        executor_options: question.options.clone(),
        executors: Some(question.list.to_vec()),
        choices: Some(forced.clone()),
        choose: Choose::Never,
        ..Options::default()
    };
    let trace = match question.purpose {
        Purpose::Forward => trace.clone(),
        Purpose::Differentiated => {
            let floating = |i: &usize| trace.block.meta(trace.block.parameters[*i]).dtype().is_floating();
            let wrt: Vec<usize> = (0..trace.block.parameters.len()).filter(floating).collect();
            let ranking = Ranking::new(question.list, question.target, Some(&*forced)).with_options(question.options);
            vjp_of(trace, &wrt, &floating_outputs(trace), &ranking, &mut Vec::new())?
        }
    };
    let stages = stages(trace, &options)?;
    let last = stages.into_iter().last().map(|stage| stage.trace);
    let last = last.ok_or_else(|| Error::Argument { argument: NAME.into(), message: "no stage was made".into() })?;
    Program::new(last, None)
}

fn forced_entry(call: Call, by: &str) -> Entry {
    Entry {
        call,
        target: String::new(),
        device: String::new(),
        libraries: String::new(),
        version: VERSION.into(),
        winner: by.to_owned(),
        tried: Vec::<Tried>::new(),
        note: None,
    }
}

/// Random inputs on `device` for a program: numbers between 0 and 1; integers that are positions in every dimension of
/// the other inputs.
///
/// # Errors
/// If there is not as much memory.
pub(super) fn inputs(program: &Program, device: Device) -> Result<Vec<Array>> {
    let block = &program.trace().block;
    let metas: Vec<&TensorMeta> = block.parameters.iter().map(|id| block.meta(*id)).collect();
    let floating = metas.iter().filter(|meta| meta.dtype().is_floating());
    let bound = floating.flat_map(|meta| meta.shape()).copied().filter(|extent| *extent > 1).min().unwrap_or(2);
    metas.iter().enumerate().map(|(i, meta)| random(meta, bound, i as u64, device)).collect()
}

/// An array on `device` that repeats a block of random elements.
fn random(meta: &TensorMeta, bound: usize, seed: u64, device: Device) -> Result<Array> {
    let block = block(meta, bound, seed);
    let bytes = meta.bytes();
    if device.is_cpu() || bytes <= block.len() {
        let mut whole = try_room(bytes)?;
        while whole.len() < bytes {
            whole.extend_from_slice(&block[..block.len().min(bytes - whole.len())]);
        }
        return Array::from_bytes(meta.shape(), meta.dtype(), &whole)?.to_device(device);
    }
    // Large arrays are made of the block on the device: gigabytes would take seconds to cross.
    let first = DeviceBuffer::from_bytes(device, &block)?;
    let whole = DeviceBuffer::new(device, bytes)?;
    let stream = whole.state().stream();
    let mut filled = 0;
    while filled < bytes {
        let from = if filled == 0 { first.address() } else { whole.address() };
        let more = filled.max(block.len()).min(bytes - filled);
        let to = whole.address().offset(filled);
        // SAFETY: the ranges are within the two buffers and do not overlap: what is copied ends where the next begins.
        // Both buffers are used on this stream alone, which their memory is given back behind.
        unsafe { stream.copy(CopyRange { from, to, bytes: more }) }?;
        filled += more;
    }
    let strides = Strides::from_slice(&contiguous_strides(meta.shape()));
    Ok(Array::from_memory(Memory::Device(Arc::new(whole)), meta.with_device(device), strides, 0))
}

/// Random elements as bytes, no more than `meta` has.
fn block(meta: &TensorMeta, bound: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let dtype = meta.dtype();
    let elements = meta.len().min(RANDOM_ELEMENTS);
    let mut block = Vec::with_capacity(elements * dtype.size());
    for _ in 0..elements {
        let number = random.unit();
        let position = (random.next() % bound as u64) as u32;
        match dtype {
            DType::F64 => block.extend(number.to_le_bytes()),
            DType::F32 => block.extend((number as f32).to_le_bytes()),
            DType::C64 => block.extend([(number as f32).to_le_bytes(); 2].as_flattened()),
            DType::C128 => block.extend([number.to_le_bytes(); 2].as_flattened()),
            DType::BF16 => block.extend(half::bf16::from_f32(number as f32).to_le_bytes()),
            DType::F16 => block.extend(half::f16::from_f32(number as f32).to_le_bytes()),
            DType::I64 => block.extend(i64::from(position).to_le_bytes()),
            // Negative numbers are no positions.
            DType::U32 => block.extend(position.to_le_bytes()),
            DType::I32 => block.extend((position as i32).to_le_bytes()),
            DType::U16 => block.extend((position.min(u16::MAX.into()) as u16).to_le_bytes()),
            DType::I16 => block.extend((position.min(i16::MAX as u32) as i16).to_le_bytes()),
            DType::U8 => block.push(position.min(u8::MAX.into()) as u8),
            DType::I8 => block.push(position.min(i8::MAX as u32) as u8),
            DType::Bool => block.push((position & 1) as u8),
        }
    }
    block
}
