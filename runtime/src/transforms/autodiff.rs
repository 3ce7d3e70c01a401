//! Reverse-mode differentiation: expands `value_and_grad` lines, and makes joint, forward and backward traces.
//!
//! Each symbol on the way from a differentiated input is replaced by its `grad` rule, whose closure is kept; then the
//! closures are called in reverse. The first executor of the list that accepts the symbol and offers a gradient supplies the
//! rule, otherwise the operator itself, otherwise its decomposition.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::argument::{Arg, map_arguments};
use crate::error::{CallStack, Error, Failure, Place, Result};
use crate::executor::{ExecutorDef, Refusal, executors_of, find_implementation};
use crate::meta::TensorMeta;
use crate::operator::{GradRule, Pullback};
use crate::trace::{Block, BoundSymbol, Callee, Input, InputRole, Output, Trace, ValueId};
use crate::tracer::{self, Tensor};

/// Below this scope stand the names of what the backward pass computes.
const BACKWARD: &str = "grad";

/// Whether a line was made by a pullback: its results are named below `grad`.
pub(super) fn is_backward(block: &Block, symbol: &BoundSymbol) -> bool {
    let below = |name: &str| name.strip_prefix(BACKWARD).is_some_and(|rest| rest.starts_with('.'));
    symbol.results.first().is_some_and(|id| below(&block.value(*id).name))
}

/// A value of the program being differentiated, whatever block it stands in: cotangents are kept by these and never by
/// handles, since a rule may give back its own argument.
type Key = usize;

#[derive(Clone, Copy)]
struct Tracked {
    key: Key,
    handle: Tensor,
    /// Whether it depends on a differentiated input.
    varied: bool,
}

enum Back {
    Rule(Pullback),
    /// There is none; an error if a cotangent arrives.
    Missing(String),
}

struct Recorded {
    name: String,
    operator: String,
    place: Option<Place>,
    results: Vec<Tracked>,
    operands: Vec<Arg<Tracked>>,
    back: Back,
}

struct Tape<'a> {
    executors: &'a [&'static ExecutorDef],
    recorded: Vec<Recorded>,
    keys: usize,
}

impl Tape<'_> {
    fn track(&mut self, handle: Tensor, varied: bool) -> Tracked {
        self.keys += 1;
        Tracked { key: self.keys, handle, varied }
    }

    /// Runs the symbols of `block` forward; `known` holds its parameters and receives every value. Values are named below
    /// `prefix`, or as they are if it is empty.
    fn forward(
        &mut self,
        block: &Block,
        known: &mut [Option<Tracked>],
        prefix: &str,
        outer: Option<Place>,
    ) -> Result<()> {
        for symbol in &block.symbols {
            let place = outer.or(symbol.place);
            let names: Vec<Arc<str>> = symbol
                .results
                .iter()
                .map(|id| {
                    let name = &block.value(*id).name;
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}").into() }
                })
                .collect();
            let operands = map_arguments(&symbol.arguments, |id| {
                known[id.index()].unwrap_or_else(|| unreachable!("values are defined before they are used"))
            });
            let varied = operands.iter().flat_map(Arg::tensors).any(|operand| operand.varied);
            let differentiable = symbol.results.iter().any(|id| block.meta(*id).dtype().is_floating());
            let results = if varied && differentiable {
                self.record(block, symbol, &operands, &names, place)?
            } else {
                let results: Vec<(Arc<str>, TensorMeta)> =
                    names.iter().cloned().zip(symbol.results.iter().map(|id| block.meta(*id).clone())).collect();
                let mut copied = symbol.clone();
                copied.place = place;
                tracer::append_copy(&copied, map_arguments(&operands, |operand| operand.handle), &results)
                    .into_iter()
                    .map(|handle| self.track(handle, false))
                    .collect()
            };
            for (id, tracked) in symbol.results.iter().zip(results) {
                known[id.index()] = Some(tracked);
            }
        }
        Ok(())
    }

    /// The rule by which a symbol is differentiated, and who offers another one that does not apply.
    fn rule(&self, symbol: &BoundSymbol, metas: &[Arg<TensorMeta>]) -> (Option<GradRule>, Vec<Refusal>) {
        let mut refusals = Vec::new();
        let Some(def) = symbol.operator() else { return (None, refusals) };
        for executor in self.executors {
            let Some(implementation) = find_implementation(def.name, executor.name) else { continue };
            let Some(grad) = implementation.grad else { continue };
            match (implementation.checker)(metas) {
                Ok(()) => return (Some(grad), refusals),
                Err(reason) => refusals.push(Refusal { executor: executor.name, reason }),
            }
        }
        (def.grad, refusals)
    }

    /// Differentiates one symbol; returns its results.
    fn record(
        &mut self,
        block: &Block,
        symbol: &BoundSymbol,
        operands: &[Arg<Tracked>],
        names: &[Arc<str>],
        place: Option<Place>,
    ) -> Result<Vec<Tracked>> {
        let name: &str = names.first().map_or("", |name| name);
        let metas = block.argument_metas(symbol);
        let handles = map_arguments(operands, |operand| operand.handle);
        let (rule, refusals) = self.rule(symbol, &metas);
        let first = tracer::position();
        let Some(rule) = rule else {
            if let Some(body) = symbol.body.as_ref().filter(|_| matches!(symbol.callee, Callee::Operator(_))) {
                let mut known = vec![None; body.values.len()];
                for (parameter, operand) in body.parameters.iter().zip(operands.iter().flat_map(Arg::tensors)) {
                    known[parameter.index()] = Some(*operand);
                }
                let inside = symbol.operator().map_or(place, |def| place.map(|place| place.inside(def)));
                self.forward(body, &mut known, name, inside)?;
                tracer::explain_refusals(first, symbol.name(), refusals);
                let results: Vec<Tracked> = body
                    .results
                    .iter()
                    .map(|id| known[id.index()].unwrap_or_else(|| unreachable!("results are defined")))
                    .collect();
                for (result, name) in results.iter().zip(names) {
                    let own = operands.iter().flat_map(Arg::tensors).any(|operand| operand.handle == result.handle);
                    if !own {
                        tracer::rename(result.handle, name);
                    }
                }
                return Ok(results);
            }
            let reason = match symbol.operator() {
                Some(def) => def.no_grad.unwrap_or("it declares no gradient").to_owned(),
                None => format!("'{}' cannot be differentiated", symbol.name()),
            };
            let results: Vec<(Arc<str>, TensorMeta)> =
                names.iter().cloned().zip(symbol.results.iter().map(|id| block.meta(*id).clone())).collect();
            let results: Vec<Tracked> = tracer::append_copy(symbol, handles, &results)
                .into_iter()
                .map(|handle| self.track(handle, true))
                .collect();
            self.recorded.push(Recorded {
                name: name.to_owned(),
                operator: symbol.name().to_owned(),
                place,
                results: results.clone(),
                operands: operands.to_vec(),
                back: Back::Missing(reason),
            });
            return Ok(results);
        };
        // The rule's own call of the operator would be named like the result; whatever else it computes stands below it.
        let (outputs, back) = tracer::absolute_scope(name, || rule(&handles));
        tracer::explain_refusals(first, symbol.name(), refusals);
        tracer::annotate_error("the gradient of", symbol.name(), place);
        if let Some(error) = tracer::take_error() {
            return Err(error);
        }
        for ((output, id), name) in outputs.iter().zip(&symbol.results).zip(names) {
            if output.meta() != *block.meta(*id) {
                return Err(Error::Operator {
                    operator: symbol.name().into(),
                    failure: Failure::new(
                        "GradOutput",
                        format!("its grad rule returns {} where the operator gives {}", output.meta(), block.meta(*id)),
                    ),
                    stack: CallStack { at: place, frames: Vec::new() },
                });
            }
            let own = handles.iter().flat_map(Arg::tensors).any(|handle| handle == output);
            if !own {
                tracer::rename(*output, name);
            }
        }
        tracer::set_places(&outputs, place);
        let results: Vec<Tracked> = outputs.into_iter().map(|handle| self.track(handle, true)).collect();
        self.recorded.push(Recorded {
            name: name.to_owned(),
            operator: symbol.name().to_owned(),
            place,
            results: results.clone(),
            operands: operands.to_vec(),
            back: Back::Rule(back),
        });
        Ok(results)
    }

    /// Calls the pullbacks in reverse, from `cotangents`, and returns the cotangents of `wanted`.
    fn backward(self, mut cotangents: FxHashMap<Key, Tensor>, wanted: &[Tracked]) -> Result<Vec<Option<Tensor>>> {
        for recorded in self.recorded.into_iter().rev() {
            let arrived: Vec<Option<Tensor>> = recorded
                .results
                .iter()
                .map(|result| cotangents.get(&result.key).copied().filter(|_| result.handle.dtype().is_floating()))
                .collect();
            if arrived.iter().all(Option::is_none) {
                continue;
            }
            let stack = || CallStack { at: recorded.place, frames: Vec::new() };
            let back = match recorded.back {
                Back::Rule(back) => back,
                Back::Missing(reason) => {
                    return Err(Error::NoGradient { operator: recorded.operator, reason, stack: stack() });
                }
            };
            let scope = format!("{BACKWARD}.{}", recorded.name);
            let first = tracer::position();
            let results: Vec<Tensor> = recorded.results.iter().map(|result| result.handle).collect();
            let gradients = tracer::absolute_scope(&scope, || back(&arrived, &results));
            tracer::annotate_error("the gradient of", &recorded.operator, recorded.place);
            for (operand, gradient) in recorded.operands.iter().zip(&gradients) {
                for (operand, gradient) in operand.tensors().iter().zip(gradient.tensors()) {
                    if !operand.varied || !operand.handle.dtype().is_floating() {
                        continue;
                    }
                    if tracer::has_error() {
                        break;
                    }
                    if gradient.meta() != operand.handle.meta() {
                        return Err(Error::Operator {
                            operator: recorded.operator,
                            failure: Failure::new(
                                "GradMeta",
                                format!(
                                    "its grad rule gives {} as the gradient of {}",
                                    gradient.meta(),
                                    operand.handle.meta()
                                ),
                            ),
                            stack: stack(),
                        });
                    }
                    let total = match cotangents.get(&operand.key) {
                        Some(before) => tracer::absolute_scope(&scope, || tracer::accumulate(*before, *gradient)),
                        None => *gradient,
                    };
                    cotangents.insert(operand.key, total);
                }
            }
            tracer::set_places_from(first, recorded.place);
            if let Some(error) = tracer::take_error() {
                return Err(error);
            }
        }
        Ok(wanted.iter().map(|tracked| cotangents.get(&tracked.key).copied()).collect())
    }
}

/// Expands every `value_and_grad` line of `trace`.
pub fn autodiff(trace: &Trace, executors: &[&'static ExecutorDef]) -> Result<Trace> {
    if !trace.block.symbols.iter().any(|symbol| matches!(symbol.callee, Callee::ValueAndGrad { .. })) {
        return Ok(trace.transformed("autodiff", trace.block.clone()));
    }
    let executors = executors_of(executors, &trace.target);
    let source = &trace.block;
    let mut taken: FxHashSet<Arc<str>> = source.values.iter().map(|value| value.name.clone()).collect();
    let block = rebuild(source, |known| {
        for symbol in &source.symbols {
            let handles = map_arguments(&symbol.arguments, |id| {
                known[id.index()].unwrap_or_else(|| unreachable!("values are defined before they are used"))
            });
            let results = match (&symbol.callee, &symbol.body) {
                (Callee::ValueAndGrad { wrt }, Some(body)) => {
                    let operands: Vec<Tensor> = handles.iter().flat_map(Arg::tensors).copied().collect();
                    let body = with_free_names(body, &mut taken);
                    let results = expand(symbol, &body, wrt, &operands, &executors)?;
                    for (result, id) in results.iter().zip(&symbol.results) {
                        if !operands.contains(result) {
                            tracer::rename(*result, &source.value(*id).name);
                        }
                    }
                    results
                }
                _ => {
                    let results: Vec<(Arc<str>, TensorMeta)> = symbol
                        .results
                        .iter()
                        .map(|id| (source.value(*id).name.clone(), source.meta(*id).clone()))
                        .collect();
                    tracer::append_copy(symbol, handles, &results)
                }
            };
            for (id, handle) in symbol.results.iter().zip(results) {
                known[id.index()] = Some(handle);
            }
        }
        Ok(source
            .results
            .iter()
            .map(|id| known[id.index()].unwrap_or_else(|| unreachable!("results are defined")))
            .collect())
    })?;
    Ok(trace.transformed("autodiff", block))
}

/// The body of a line with its own values renamed where the program around uses their names.
fn with_free_names(body: &Block, taken: &mut FxHashSet<Arc<str>>) -> Block {
    let mut body = body.clone();
    let mut own = vec![true; body.values.len()];
    // Parameters are values of the program around, and keep their names.
    body.parameters.iter().for_each(|id| own[id.index()] = false);
    for (value, _) in body.values.iter_mut().zip(own).filter(|(_, own)| *own) {
        let base = value.name.clone();
        let mut counter = 0u32;
        while !taken.insert(value.name.clone()) {
            counter += 1;
            value.name = format!("{base}.{counter}").into();
        }
    }
    body
}

fn expand(
    symbol: &BoundSymbol,
    body: &Block,
    wrt: &[usize],
    operands: &[Tensor],
    executors: &[&'static ExecutorDef],
) -> Result<Vec<Tensor>> {
    let mut tape = Tape { executors, recorded: Vec::new(), keys: 0 };
    let mut known = vec![None; body.values.len()];
    let mut parameters = Vec::new();
    for (i, (parameter, operand)) in body.parameters.iter().zip(operands).enumerate() {
        let tracked = tape.track(*operand, wrt.contains(&i));
        parameters.push(tracked);
        known[parameter.index()] = Some(tracked);
    }
    tracer::reserve_names(body.values.iter().map(|value| &value.name));
    tape.forward(body, &mut known, "", None)?;
    let loss = known[body.results[0].index()].unwrap_or_else(|| unreachable!("results are defined"));
    let one = tracer::absolute_scope(BACKWARD, || tracer::full_like(loss.handle, 1.0));
    let wanted: Vec<Tracked> = wrt.iter().map(|i| parameters[*i]).collect();
    let gradients = tape.backward(FxHashMap::from_iter([(loss.key, one)]), &wanted)?;
    tracer::annotate_error("", "value_and_grad", symbol.place);
    let mut results = vec![loss.handle];
    results.extend(wanted.iter().zip(gradients).map(|(parameter, gradient)| {
        gradient.unwrap_or_else(|| tracer::absolute_scope(BACKWARD, || tracer::zeros_like(parameter.handle)))
    }));
    Ok(results)
}

/// Builds a block with the parameters of `source`, all of whose names are reserved.
fn rebuild(source: &Block, f: impl FnOnce(&mut Vec<Option<Tensor>>) -> Result<Vec<Tensor>>) -> Result<Block> {
    let parameters: Vec<(Arc<str>, TensorMeta)> =
        source.parameters.iter().map(|id| (source.value(*id).name.clone(), source.meta(*id).clone())).collect();
    let mut failed = None;
    let block = tracer::trace_block(&parameters, |handles| {
        tracer::reserve_names(source.values.iter().map(|value| &value.name));
        let mut known = vec![None; source.values.len()];
        for (parameter, handle) in source.parameters.iter().zip(handles) {
            known[parameter.index()] = Some(*handle);
        }
        f(&mut known).unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        })
    });
    match failed {
        Some(error) => Err(error),
        None => block,
    }
}

/// The joint trace of a program and its vjp: the inputs of `trace` and one cotangent for each floating-point output in;
/// the outputs and the gradients of the inputs `wrt` out. An input that no output depends on gets zeros.
pub fn vjp(trace: &Trace, wrt: &[usize], executors: &[&'static ExecutorDef]) -> Result<Trace> {
    let source = &trace.block;
    let floating: Vec<usize> =
        (0..source.results.len()).filter(|i| source.meta(source.results[*i]).dtype().is_floating()).collect();
    let mut parameters: Vec<(Arc<str>, TensorMeta)> =
        source.parameters.iter().map(|id| (source.value(*id).name.clone(), source.meta(*id).clone())).collect();
    let executors = executors_of(executors, &trace.target);
    let own = parameters.len();
    for i in &floating {
        let name = format!("cotangent.{}", trace.outputs[*i].path);
        parameters.push((name.into(), source.meta(source.results[*i]).clone()));
    }
    let mut failed = None;
    let block = tracer::trace_block(&parameters, |handles| {
        tracer::reserve_names(source.values.iter().map(|value| &value.name));
        let run = || -> Result<Vec<Tensor>> {
            let mut tape = Tape { executors: &executors, recorded: Vec::new(), keys: 0 };
            let mut known = vec![None; source.values.len()];
            let mut inputs = Vec::new();
            for (i, (parameter, handle)) in source.parameters.iter().zip(handles).enumerate() {
                let tracked = tape.track(*handle, wrt.contains(&i));
                inputs.push(tracked);
                known[parameter.index()] = Some(tracked);
            }
            tape.forward(source, &mut known, "", None)?;
            let outputs: Vec<Tracked> =
                source.results.iter().map(|id| known[id.index()].unwrap_or_else(|| unreachable!("defined"))).collect();
            let mut cotangents: FxHashMap<Key, Tensor> = FxHashMap::default();
            for (i, cotangent) in floating.iter().zip(&handles[own..]) {
                let key = outputs[*i].key;
                let total = match cotangents.get(&key) {
                    Some(before) => tracer::accumulate(*before, *cotangent),
                    None => *cotangent,
                };
                cotangents.insert(key, total);
            }
            let wanted: Vec<Tracked> = wrt.iter().map(|i| inputs[*i]).collect();
            let gradients = tape.backward(cotangents, &wanted)?;
            let mut results: Vec<Tensor> = outputs.iter().map(|output| output.handle).collect();
            results.extend(wanted.iter().zip(gradients).map(|(input, gradient)| {
                gradient.unwrap_or_else(|| tracer::absolute_scope(BACKWARD, || tracer::zeros_like(input.handle)))
            }));
            Ok(results)
        };
        run().unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut joint = trace.transformed("autodiff", block?);
    joint.inputs.extend(floating.iter().map(|_| Input { role: InputRole::Cotangent, donated: false, strides: None }));
    joint
        .outputs
        .extend(wrt.iter().map(|i| Output { path: format!("grad.{}", source.value(source.parameters[*i]).name) }));
    Ok(joint)
}

/// Splits a joint trace into forward and backward. `outputs` is how many results of the joint trace are the function's own.
/// The forward trace returns these and the values it saves; the backward trace takes the saved values and the cotangents.
pub fn split(joint: &Trace, outputs: usize) -> (Trace, Trace) {
    let block = &joint.block;
    let forward_results = &block.results[..outputs];
    let mut in_forward = vec![false; block.values.len()];
    for id in forward_results {
        in_forward[id.index()] = true;
    }
    let mut forward_symbols = vec![false; block.symbols.len()];
    for (i, symbol) in block.symbols.iter().enumerate().rev() {
        if symbol.results.iter().any(|id| in_forward[id.index()]) {
            forward_symbols[i] = true;
            symbol.results.iter().for_each(|id| in_forward[id.index()] = true);
            symbol.operands().for_each(|id| in_forward[id.index()] = true);
        }
    }
    let cotangent: Vec<bool> = joint.inputs.iter().map(|input| input.role == InputRole::Cotangent).collect();
    let mut is_parameter = vec![None; block.values.len()];
    for (i, id) in block.parameters.iter().enumerate() {
        is_parameter[id.index()] = Some(i);
    }
    let backward_body: Vec<&BoundSymbol> =
        block.symbols.iter().enumerate().filter(|(i, _)| !forward_symbols[*i]).map(|(_, symbol)| symbol).collect();
    let mut defined = vec![false; block.values.len()];
    let mut saved: Vec<ValueId> = Vec::new();
    let mut need = |id: ValueId, defined: &[bool]| {
        let is_cotangent = is_parameter[id.index()].is_some_and(|i| cotangent[i]);
        if !defined[id.index()] && !is_cotangent && !saved.contains(&id) {
            saved.push(id);
        }
    };
    // Symbols that nobody reads have no business in the backward trace.
    let live = super::dce::live(Block {
        values: block.values.clone(),
        parameters: Vec::new(),
        symbols: backward_body.into_iter().cloned().collect(),
        results: block.results[outputs..].to_vec(),
    });
    for symbol in &live.symbols {
        symbol.operands().for_each(|id| need(id, &defined));
        symbol.results.iter().for_each(|id| defined[id.index()] = true);
    }
    live.results.iter().for_each(|id| need(*id, &defined));

    let name = |id: &ValueId| block.value(*id).name.to_string();
    let plain: Vec<usize> = (0..block.parameters.len()).filter(|i| !cotangent[*i]).collect();
    let cotangents: Vec<usize> = (0..block.parameters.len()).filter(|i| cotangent[*i]).collect();
    let forward_block = Block {
        values: block.values.clone(),
        parameters: plain.iter().map(|i| block.parameters[*i]).collect(),
        symbols: block
            .symbols
            .iter()
            .enumerate()
            .filter(|(i, _)| forward_symbols[*i])
            .map(|(_, s)| s.clone())
            .collect(),
        results: forward_results.iter().chain(&saved).copied().collect(),
    };
    let mut forward = joint.transformed("split", forward_block);
    forward.name = format!("{}.forward", joint.name);
    forward.inputs = plain.iter().map(|i| joint.inputs[*i].clone()).collect();
    forward.outputs = joint.outputs[..outputs].to_vec();
    forward.outputs.extend(saved.iter().map(|id| Output { path: format!("saved.{}", name(id)) }));
    let backward_block = Block {
        values: block.values.clone(),
        parameters: saved.iter().copied().chain(cotangents.iter().map(|i| block.parameters[*i])).collect(),
        symbols: live.symbols,
        results: live.results,
    };
    let mut backward = joint.transformed("split", backward_block);
    backward.name = format!("{}.backward", joint.name);
    backward.inputs = saved
        .iter()
        .map(|_| Input { role: InputRole::Saved, donated: false, strides: None })
        .chain(cotangents.iter().map(|i| joint.inputs[*i].clone()))
        .collect();
    backward.outputs = joint.outputs[outputs..].to_vec();
    (forward, backward)
}
