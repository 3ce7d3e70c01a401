//! Reverse-mode differentiation: expands `value_and_grad` lines, and makes joint, forward and backward traces.
//!
//! Each symbol on the way from a differentiated input is replaced by its `grad` rule, whose closure is kept; then the
//! closures are called in reverse. The first executor of the list that accepts the symbol and offers a gradient
//! supplies the rule, otherwise the operator itself, otherwise its decomposition.
//!
//! A `value_and_grad` line inside another one is expanded first, and what it becomes is differentiated again. It is
//! expanded by the operators' own rules and decompositions: rules of executors consist of kernel symbols, which have no
//! gradients.
//!
//! The lines of a checkpoint are written twice: in the forward pass without their closures, and in the backward pass,
//! where its cotangents arrive, with them.

mod names;
pub use fulgurite_ir::gradient as rules;
mod split;
mod supplied;
mod tape;

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::tape::{Key, Tape, Tracked};
use super::decompose;
use crate::argument::{Arg, map_arguments};
use crate::choices::Ranking;
use crate::error::{Error, Result};
use crate::executor::ExecutorDef;
use crate::meta::TensorMeta;
use crate::trace::{Block, BoundSymbol, Callee, Input, InputRole, Output, StageName, Trace};
use crate::tracer::{self, Tensor};

use self::names::with_names;
pub use self::split::{split, split_programs};
use self::supplied::BACKWARD;
pub use self::supplied::{GradientRule, RuleSource};

/// Expands every `value_and_grad` line of `trace`.
pub fn autodiff(trace: &Trace, executors: &[&'static ExecutorDef]) -> Result<Trace> {
    autodiff_with(trace, &Ranking::list(executors, &trace.target), &mut Vec::new())
}

/// As [`autodiff`]; `rules` receives the source of the rule of each differentiated call.
pub fn autodiff_with(trace: &Trace, ranking: &Ranking<'_>, rules: &mut Vec<GradientRule>) -> Result<Trace> {
    let block = expanded(&trace.block, Order::Zero, ranking, rules)?.into_owned();
    Ok(trace.at_stage(StageName::Autodiff, block))
}

/// How often a program whose `value_and_grad` lines are expanded is differentiated itself.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Not at all: the lines of checkpoints take their place.
    Zero,
    /// Once: checkpoints stay for it.
    First,
    /// The gradients are differentiated again, for which all values are kept: the lines of checkpoints take
    /// their place.
    Higher,
}

impl Order {
    /// That of the body of a `value_and_grad` line.
    fn inside(self) -> Order {
        if self == Order::Zero { Order::First } else { Order::Higher }
    }
}

/// Calls share bodies: which of these hold a line that is expanded, however deep, is found once for each.
struct Holders {
    known: FxHashMap<*const Block, bool>,
    order: Order,
}

impl Holders {
    fn hold(&mut self, block: &Block) -> bool {
        block.symbols.iter().any(|symbol| self.holds(symbol))
    }

    /// Whether a symbol is such a line, or its body contains one.
    fn holds(&mut self, symbol: &BoundSymbol) -> bool {
        match (&symbol.callee, &symbol.body) {
            (Callee::ValueAndGrad { .. }, _) => true,
            (Callee::Checkpoint, _) if self.order != Order::First => true,
            (_, Some(body)) => match self.known.get(&Arc::as_ptr(body)) {
                Some(known) => *known,
                None => {
                    let holds = self.hold(body);
                    self.known.insert(Arc::as_ptr(body), holds);
                    holds
                }
            },
            (_, None) => false,
        }
    }
}

/// A block without `value_and_grad` lines. Composites whose bodies contain such lines are decomposed.
fn expanded<'a>(
    source: &'a Block,
    order: Order,
    ranking: &Ranking<'_>,
    rules: &mut Vec<GradientRule>,
) -> Result<Cow<'a, Block>> {
    let mut holders = Holders { known: FxHashMap::default(), order };
    if !holders.hold(source) {
        return Ok(Cow::Borrowed(source));
    }
    let opens = |symbol: &BoundSymbol| symbol.operator().is_some();
    let inside = source.symbols.iter().any(|symbol| opens(symbol) && holders.holds(symbol));
    let opened = match inside {
        true => {
            let holders = std::cell::RefCell::new(holders);
            let chosen = |symbol: &BoundSymbol| opens(symbol) && holders.borrow_mut().holds(symbol);
            Cow::Owned(decompose::decompose_block(source, &chosen).canonical())
        }
        false => Cow::Borrowed(source),
    };
    let source = &*opened;
    let block = rebuild(source, |known| {
        for symbol in &source.symbols {
            let handles = map_arguments(&symbol.arguments, |id| {
                known[id.index()].unwrap_or_else(|| unreachable!("values are defined before they are used"))
            });
            let results = match (&symbol.callee, &symbol.body) {
                (Callee::ValueAndGrad { wrt }, Some(body)) => {
                    let operands: Vec<Tensor> = handles.iter().flat_map(Arg::tensors).copied().collect();
                    // The body is differentiated again.
                    let body = expanded(body, order.inside(), &ranking.of_nobody(), rules)?;
                    // Those of the block are reserved, and so are those that were made for functions before it.
                    let body = with_names(&body, tracer::free_name);
                    let results = expand(symbol, &body, wrt, &operands, ranking, rules)?;
                    for (result, id) in results.iter().zip(&symbol.results) {
                        if !operands.contains(result) {
                            tracer::rename(*result, &source.value(*id).name);
                        }
                    }
                    results
                }
                (Callee::Checkpoint, Some(body)) if order != Order::First => {
                    let body = expanded(body, order, ranking, rules)?;
                    // Without an input to differentiate by, a tape copies lines.
                    let mut tape = Tape::new(ranking, rules);
                    let operands = handles.iter().flat_map(Arg::tensors);
                    let operands: Vec<Tracked> = operands.map(|handle| tape.track(*handle, false)).collect();
                    let names: Vec<&Arc<str>> = symbol.results.iter().map(|id| &source.value(*id).name).collect();
                    let results = tape.inlined(&body, &operands, &names)?;
                    results.into_iter().map(|result| result.handle).collect()
                }
                (callee, body) => {
                    let mut symbol = symbol.clone();
                    if let (Callee::Checkpoint, Some(body)) = (callee, body) {
                        symbol.body = Some(Arc::new(
                            expanded(body, order, &ranking.of_nobody(), rules)?.into_owned().canonical(),
                        ));
                    }
                    let results: Vec<(Arc<str>, TensorMeta)> = symbol
                        .results
                        .iter()
                        .map(|id| (source.value(*id).name.clone(), source.meta(*id).clone()))
                        .collect();
                    tracer::append_copy(&symbol, handles, &results)
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
    Ok(Cow::Owned(block.canonical()))
}

fn expand(
    symbol: &BoundSymbol,
    body: &Block,
    wrt: &[usize],
    operands: &[Tensor],
    ranking: &Ranking<'_>,
    rules: &mut Vec<GradientRule>,
) -> Result<Vec<Tensor>> {
    let mut tape = Tape::new(ranking, rules);
    let mut known = vec![None; body.values.len()];
    let mut parameters = Vec::new();
    for (i, (parameter, operand)) in body.parameters.iter().zip(operands).enumerate() {
        let tracked = tape.track(*operand, wrt.contains(&i));
        parameters.push(tracked);
        known[parameter.index()] = Some(tracked);
    }
    tracer::reserve_names(body.values.iter().map(|value| &value.name));
    tape.forward(body, &mut known, "", None)?;
    // The loss, and what else the body gives back.
    let values: Vec<Tracked> =
        body.results.iter().map(|id| known[id.index()].unwrap_or_else(|| unreachable!("defined"))).collect();
    let loss = values[0];
    let one = tracer::backward(BACKWARD, || tracer::full_like(loss.handle, 1.0));
    let wanted: Vec<Tracked> = wrt.iter().map(|i| parameters[*i]).collect();
    let gradients = tape.backward(FxHashMap::from_iter([(loss.key, one)]), &wanted)?;
    tracer::annotate_error("", "value_and_grad", symbol.place);
    let mut results: Vec<Tensor> = values.iter().map(|value| value.handle).collect();
    results.extend(wanted.iter().zip(gradients).map(|(parameter, gradient)| {
        gradient.unwrap_or_else(|| tracer::backward(BACKWARD, || tracer::zeros_like(parameter.handle)))
    }));
    Ok(results)
}

/// That gradients are asked of inputs, and cotangents of outputs, that are there and of a floating-point type.
fn check_floating(trace: &Trace, wrt: &[usize], of: &[usize]) -> Result<()> {
    let block = &trace.block;
    let wrong = |what: &str, name: String, message: String| {
        Err(Error::Argument { argument: format!("{what} '{name}'"), message })
    };
    for i in wrt {
        let Some(id) = block.parameters.get(*i) else {
            return wrong("input", i.to_string(), format!("is none of the {} inputs", block.parameters.len()));
        };
        if !block.meta(*id).dtype().is_differentiable() {
            let message = format!("is {}, only floating-point inputs have gradients", block.meta(*id));
            return wrong("input", block.value(*id).name.to_string(), message);
        }
    }
    for i in of {
        let Some(id) = block.results.get(*i) else {
            return wrong("output", i.to_string(), format!("is none of the {} outputs", block.results.len()));
        };
        if !block.meta(*id).dtype().is_differentiable() {
            let message = format!("is {}, only floating-point outputs have cotangents", block.meta(*id));
            return wrong("output", trace.outputs.get(*i).map_or_else(String::new, |o| o.path.clone()), message);
        }
    }
    Ok(())
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
    vjp_of(trace, wrt, &floating_outputs(trace), &Ranking::list(executors, &trace.target), &mut Vec::new())
}

/// The outputs that may have cotangents.
pub fn floating_outputs(trace: &Trace) -> Vec<usize> {
    let block = &trace.block;
    (0..block.results.len()).filter(|i| block.meta(block.results[*i]).dtype().is_differentiable()).collect()
}

/// As [`vjp`], with cotangents of the outputs `of` alone: those of all others are zero. `rules` receives the source of
/// the rule of each differentiated call. Neither `wrt` nor `of` may name what is not of a floating-point type.
pub fn vjp_of(
    trace: &Trace,
    wrt: &[usize],
    of: &[usize],
    ranking: &Ranking<'_>,
    rules: &mut Vec<GradientRule>,
) -> Result<Trace> {
    check_floating(trace, wrt, of)?;
    let source = &*expanded(&trace.block, Order::First, &ranking.of_nobody(), rules)?;
    let floating = of;
    let mut parameters: Vec<(Arc<str>, TensorMeta)> =
        source.parameters.iter().map(|id| (source.value(*id).name.clone(), source.meta(*id).clone())).collect();
    let own = parameters.len();
    for i in floating {
        let name = format!("cotangent.{}", trace.outputs[*i].path);
        parameters.push((name.into(), source.meta(source.results[*i]).clone()));
    }
    let mut failed = None;
    let block = tracer::trace_block(&parameters, |handles| {
        tracer::reserve_names(source.values.iter().map(|value| &value.name));
        let mut run = || -> Result<Vec<Tensor>> {
            let mut tape = Tape::new(ranking, rules);
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
                tape::add(&mut cotangents, outputs[*i].key, *cotangent, BACKWARD);
            }
            let wanted: Vec<Tracked> = wrt.iter().map(|i| inputs[*i]).collect();
            let gradients = tape.backward(cotangents, &wanted)?;
            let mut results: Vec<Tensor> = outputs.iter().map(|output| output.handle).collect();
            results.extend(wanted.iter().zip(gradients).map(|(input, gradient)| {
                gradient.unwrap_or_else(|| tracer::backward(BACKWARD, || tracer::zeros_like(input.handle)))
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
    let mut joint = trace.at_stage(StageName::Autodiff, block?);
    joint.inputs.extend(floating.iter().map(|_| Input { role: InputRole::Cotangent, donated: false, strides: None }));
    joint
        .outputs
        .extend(wrt.iter().map(|i| Output { path: format!("grad.{}", source.value(source.parameters[*i]).name) }));
    Ok(joint)
}
