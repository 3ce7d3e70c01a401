//! A case through the public path: traced, differentiated, compiled, run.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::{Arg, Attribute, map_arguments};
use fulgurite::compile::{Options, compile};
use fulgurite::jit::{Names, trace};
use fulgurite::operator::OperatorDef;
use fulgurite::trace::Trace;
use fulgurite::transforms;
use fulgurite::{Array, Device, Error, Failure, Result, Target, Tensor, TensorMeta, tracer};

use super::resolve::without_overloads;
use super::{CaseBody, CaseError, Grad, TensorFile, bind, resolve_operator};

/// A call of an operator on tensors of kind `V`.
pub struct Call<V> {
    /// The operator.
    pub operator: &'static OperatorDef,
    /// Its arguments.
    pub arguments: Vec<Arg<V>>,
}

impl<V: Clone> Call<V> {
    /// The tensors with their names: the parameter's, `tensors.0` for the first of a list.
    pub fn tensors(&self) -> Vec<(String, V)> {
        let mut named = Vec::new();
        for (param, argument) in self.operator.params.iter().zip(&self.arguments) {
            for (i, tensor) in argument.tensors().iter().enumerate() {
                let name = match argument {
                    Arg::List(_) => format!("{}.{i}", param.name),
                    _ => param.name.to_owned(),
                };
                named.push((name, tensor.clone()));
            }
        }
        named
    }
}

/// The trace of a call: its tensors in, `out0`, `out1`, ... out.
pub fn trace_call(call: &Call<TensorMeta>, target: Target) -> Result<Trace> {
    let (names, metas): (Vec<String>, Vec<TensorMeta>) = call.tensors().into_iter().unzip();
    let names = Names { arguments: names, results: Vec::new() };
    let (mut traced, _) = trace(call.operator.short_name(), target, &names, metas, |handles: Vec<Tensor>| {
        let mut handles = handles.into_iter();
        let arguments = map_arguments(&call.arguments, |_| {
            handles.next().unwrap_or_else(|| unreachable!("one for each tensor of the call"))
        });
        tracer::call(call.operator, arguments)
    })?;
    for (i, output) in traced.outputs.iter_mut().enumerate() {
        output.path = format!("out{i}");
    }
    Ok(traced)
}

/// What a case gave.
pub struct CaseOutput {
    /// The operator's results.
    pub outputs: Vec<Array>,
    /// The requested gradients, by the names of the inputs.
    pub gradients: Vec<(String, Array)>,
}

/// Runs a case on a device, which the target is of. A panic is the case's own error: the others are still to be run.
pub fn run_case(
    body: &CaseBody,
    tensors: &TensorFile,
    place: (Device, &Target),
    options: &Options,
) -> Result<CaseOutput, CaseError> {
    catch_unwind(AssertUnwindSafe(|| run(body, tensors, place, options))).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The error of a panic; it is no fault of the operator where there is no memory.
fn panicked(panic: &(dyn Any + Send)) -> CaseError {
    match Failure::panicked("the case", panic) {
        failure if failure.code == "Panicked" => {
            CaseError::new("Panic", format!("panicked: {}", Failure::text_of_panic(panic)))
        }
        failure => CaseError::new(failure.code, failure.message),
    }
}

/// The error without the places of this file: what comes from data has no source line.
pub fn of_case(error: Error) -> CaseError {
    let text = error.to_string();
    let here = file!();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with(&format!("at {here}:")))
        .map(|line| line.split_once(&format!(", called at {here}:")).map_or(line, |(frame, _)| frame))
        .collect();
    CaseError::new(error.code(), lines.join("\n"))
}

fn run(
    body: &CaseBody,
    tensors: &TensorFile,
    (device, target): (Device, &Target),
    options: &Options,
) -> Result<CaseOutput, CaseError> {
    // Gradients come back under the names that they were asked for by.
    let asked = body.grad.as_ref();
    let body = without_overloads(body);
    let operator = resolve_operator(&body.operator)?;
    let mut keys = bind(operator, &body.arguments)?;
    if !device.is_cpu() {
        to_device(operator, &mut keys, device);
    }
    let mut missing = None;
    let arrays = map_arguments(&keys, |key| {
        tensors.get(key).unwrap_or_else(|error| {
            missing.get_or_insert(error);
            Array::scalar(0.0)
        })
    });
    if let Some(error) = missing {
        return Err(error);
    }
    let call = Call { operator, arguments: arrays };
    let (names, mut inputs): (Vec<String>, Vec<Array>) = call.tensors().into_iter().unzip();
    let metas = Call { operator, arguments: map_arguments(&call.arguments, |array| array.meta().with_device(device)) };
    drop(call);
    lay_out(&body.layout, &names, &mut inputs)?;
    let mut trace = trace_call(&metas, target.clone()).map_err(of_case)?;
    let outputs = trace.outputs.len();
    if let Some(grad) = &body.grad {
        let wrt = differentiated(grad, &names, &inputs)?;
        inputs.extend(cotangents(grad, &trace, tensors)?);
        trace = transforms::vjp(&trace, &wrt, &options.executor_list(trace.target.kind())).map_err(of_case)?;
    }
    for (input, array) in trace.inputs.iter_mut().zip(&inputs) {
        input.strides = (!array.is_contiguous()).then(|| array.strides().to_vec());
    }
    let taken = |array: Array| array.to_device(device);
    let inputs = inputs.into_iter().map(taken).collect::<Result<Vec<_>>>().map_err(of_case)?;
    let (program, _) = compile(trace, options).map_err(of_case)?;
    let mut results = program.run(inputs).map_err(of_case)?.into_iter();
    let outputs: Vec<Array> = results.by_ref().take(outputs).collect();
    let wanted = asked.into_iter().flat_map(|grad| grad.inputs.iter().cloned());
    Ok(CaseOutput { outputs, gradients: wanted.zip(results).collect() })
}

/// Arguments that name the host as the place of what an operator makes name the device instead: cases are written for
/// the host.
fn to_device(operator: &OperatorDef, arguments: &mut [Arg<String>], device: Device) {
    for (param, argument) in operator.params.iter().zip(arguments) {
        if param.name == "device"
            && let Arg::Attribute(Attribute::Text(text)) = argument
            && Device::is_host(text)
        {
            *argument = Arg::Attribute(Attribute::Text(device.to_string().as_str().into()));
        }
    }
}

/// Gives tensors the strides that the case requests.
fn lay_out(layout: &[(String, Vec<i64>)], names: &[String], inputs: &mut [Array]) -> Result<(), CaseError> {
    for (name, strides) in layout {
        let wrong = |message: String| CaseError::new("Layout", message);
        let Some(at) = names.iter().position(|own| own == name) else {
            let known = names.join(", ");
            return Err(wrong(format!("no tensor argument is called '{name}', there are: {known}")));
        };
        let strides: Vec<isize> = strides.iter().map(|stride| *stride as isize).collect();
        let (array, bytes) = (&inputs[at], inputs[at].to_bytes().map_err(of_case)?);
        let laid_out = Array::strided(array.shape(), array.dtype(), &strides, &bytes)
            .map_err(|error| wrong(format!("layout of '{name}': {error}")))?;
        if laid_out.to_bytes().map_err(of_case)? != bytes {
            let message =
                format!("layout of '{name}': strides {strides:?} put elements of different values in one place");
            return Err(wrong(message));
        }
        inputs[at] = laid_out;
    }
    Ok(())
}

fn differentiated(grad: &Grad, names: &[String], inputs: &[Array]) -> Result<Vec<usize>, CaseError> {
    let mut wrt = Vec::new();
    for input in &grad.inputs {
        let Some(at) = names.iter().position(|name| name == input) else {
            let known = names.join(", ");
            return Err(CaseError::new(
                "GradInput",
                format!("no tensor argument is called '{input}', there are: {known}"),
            ));
        };
        if !inputs[at].dtype().is_differentiable() {
            return Err(CaseError::new(
                "GradInput",
                format!("'{input}' is {}, which has no gradient", inputs[at].meta()),
            ));
        }
        if wrt.contains(&at) {
            return Err(CaseError::new("GradInput", format!("'{input}' is named twice")));
        }
        wrt.push(at);
    }
    Ok(wrt)
}

fn cotangents(grad: &Grad, trace: &Trace, tensors: &TensorFile) -> Result<Vec<Array>, CaseError> {
    let block = &trace.block;
    let floating: Vec<(usize, &TensorMeta)> = block
        .results
        .iter()
        .map(|id| block.meta(*id))
        .enumerate()
        .filter(|(_, meta)| meta.dtype().is_differentiable())
        .collect();
    if floating.len() != grad.cotangents.len() {
        return Err(CaseError::new(
            "Cotangents",
            format!("{} floating-point outputs need as many cotangents, got {}", floating.len(), grad.cotangents.len()),
        ));
    }
    grad.cotangents
        .iter()
        .zip(floating)
        .map(|(key, (output, meta))| {
            let array = tensors.get(key)?;
            if array.meta().with_device(meta.device()) != *meta {
                return Err(CaseError::new(
                    "Cotangents",
                    format!("cotangent '{key}' is {}, output {output} is {meta}", array.meta()),
                ));
            }
            Ok(array)
        })
        .collect()
}
