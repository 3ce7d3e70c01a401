//! The tape: symbols are run forward with their gradient rules, whose pullbacks are then called in reverse.

use crate::operator::{OperatorKind, RuleSet};
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;
use std::sync::Arc;

mod checkpoint;

use rustc_hash::FxHashMap;

use super::supplied::{BACKWARD, GradientRule, RuleSource};
use crate::argument::{Arg, map_arguments};
use crate::choices::{Purpose, Ranking};
use crate::error::{CallStack, Error, Failure, Place, Result};
use crate::executor::find_implementation;
use crate::meta::TensorMeta;
use crate::refusal::Refusal;
use crate::trace::{Block, BoundSymbol, Callee};
use crate::tracer::{self, Draws, Tensor};
use crate::transforms::autodiff::rules::{GradRule, Pullback};

/// A value of the program being differentiated, whatever block it is in: cotangents are kept by these and never by
/// handles, since a rule may give back its own argument.
pub(super) type Key = usize;

#[derive(Clone, Copy)]
pub(super) struct Tracked {
    pub(super) key: Key,
    pub(super) handle: Tensor,
    /// Whether it depends on a differentiated input.
    varied: bool,
}

/// Adds to the cotangent of a value; the sum, if there is one before, is named below `scope`.
pub(super) fn add(cotangents: &mut FxHashMap<Key, Tensor>, key: Key, cotangent: Tensor, scope: &str) {
    let total = match cotangents.get(&key) {
        Some(before) => tracer::backward(scope, || tracer::accumulate(*before, cotangent)),
        None => cotangent,
    };
    cotangents.insert(key, total);
}

/// The operands that depend on no differentiated input.
fn constants(operands: &[Arg<Tracked>]) -> Vec<Tensor> {
    let operands = operands.iter().flat_map(Arg::tensors);
    operands.filter(|operand| !operand.varied).map(|operand| operand.handle).collect()
}

enum Back {
    /// With what the rule has drawn so far.
    Rule { operator: &'static str, draws: Draws, pullback: Pullback },
    /// A checkpoint's body, which is computed again.
    Again(Arc<Block>),
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

/// What is known of a differentiated program.
pub(super) struct Tape<'a> {
    ranking: &'a Ranking<'a>,
    recorded: Vec<Recorded>,
    keys: usize,
    rules: &'a mut Vec<GradientRule>,
    /// What the names of its forward lines begin with, where they are computed again; gradients are named without it.
    again: &'static str,
}

/// The rule by which a symbol is differentiated.
struct Choice {
    /// `None` if its decomposition is differentiated, or nothing can be.
    rule: Option<GradRule>,
    from: RuleSource,
    /// Executors that offer a rule that does not apply, with the reasons.
    refusals: Vec<Refusal>,
    /// Executors that accept the symbol and offer no rule.
    silent: Vec<&'static str>,
}

impl<'a> Tape<'a> {
    /// A tape that has nothing recorded. `rules` receives the source of each rule.
    pub(super) fn new(ranking: &'a Ranking<'a>, rules: &'a mut Vec<GradientRule>) -> Tape<'a> {
        Tape { ranking, recorded: Vec::new(), keys: 0, rules, again: "" }
    }

    pub(super) fn track(&mut self, handle: Tensor, varied: bool) -> Tracked {
        self.keys += 1;
        Tracked { key: self.keys, handle, varied }
    }

    /// Runs the symbols of `block` forward; `known` holds its parameters and receives every value. Values are named
    /// below `prefix`, or as they are if it is empty.
    pub(super) fn forward(
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
                    // A value of the block around may be called so: a strategy names what it adds after a line.
                    if prefix.is_empty() { name.clone() } else { tracer::free_name(&format!("{prefix}.{name}")) }
                })
                .collect();
            let operands = map_arguments(&symbol.arguments, |id| {
                known[id.index()].unwrap_or_else(|| unreachable!("values are defined before they are used"))
            });
            if let (Callee::Checkpoint, Some(body)) = (&symbol.callee, &symbol.body) {
                let results = self.checkpoint(body, operands, &names)?;
                for (id, tracked) in symbol.results.iter().zip(results) {
                    known[id.index()] = Some(tracked);
                }
                continue;
            }
            let varied = operands.iter().flat_map(Arg::tensors).any(|operand| operand.varied);
            let differentiable = symbol.results.iter().any(|id| block.meta(*id).dtype().is_differentiable());
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

    /// The rule of the first executor of the ranking that accepts the symbol and offers one, otherwise the operator's
    /// own.
    fn choose(&self, symbol: &BoundSymbol, metas: &[Arg<TensorMeta>]) -> Choice {
        let (mut refusals, mut silent) = (Vec::new(), Vec::new());
        let Some(def) = symbol.operator() else {
            return Choice { rule: None, from: RuleSource::Operator, refusals, silent };
        };
        // Rules of composites are for real numbers; their decompositions compute with the parts of complex ones.
        let complex = metas.iter().flat_map(Arg::tensors).any(|meta| meta.dtype().is_complex());
        if complex && TracingRules::of(def).decomposition.is_some() {
            return Choice { rule: None, from: RuleSource::Decomposition, refusals, silent };
        }
        let ranked = self.ranking.of(def, metas, Purpose::Differentiated);
        refusals.extend(ranked.refusal);
        for executor in ranked.executors.iter().filter(|executor| self.ranking.is_of_target(executor)) {
            let Some(implementation) = find_implementation(def.name, executor.name) else { continue };
            match (implementation.accepts(metas), implementation.grad) {
                (Ok(()), Some(grad)) => {
                    let from = RuleSource::Executor(executor.name);
                    return Choice { rule: Some(grad), from, refusals, silent };
                }
                (Ok(()), None) => silent.push(executor.name),
                (Err(reason), Some(_)) => refusals.push(Refusal { executor: executor.name, reason }),
                (Err(_), None) => {}
            }
        }
        let from = if GradientRules::of(def).grad.is_some() { RuleSource::Operator } else { RuleSource::Decomposition };
        Choice { rule: GradientRules::of(def).grad, from, refusals, silent }
    }

    /// Records the source of the rule of a call and why others did not supply it; `first` is the first line of what the
    /// call became, whose result is `name`.
    fn explain(&mut self, first: usize, symbol: &BoundSymbol, name: &str, choice: Choice) {
        let Some(def) = symbol.operator() else { return };
        let Choice { from, mut refusals, silent, .. } = choice;
        // Where the call itself is still there, its executors run it in the forward pass.
        if !tracer::calls_since(first, def) {
            let reason = || {
                format!("its implementation has no `grad`, so it takes no part where this is differentiated; {from}")
            };
            refusals.extend(silent.into_iter().map(|executor| Refusal { executor, reason: reason() }));
        }
        tracer::explain_refusals(first, def.name, refusals.clone());
        self.rules.push(GradientRule { value: name.into(), operator: def.name, from, refusals });
    }

    /// The decomposition of a call. A trace written by hand may omit it.
    fn body(symbol: &BoundSymbol, metas: &[Arg<TensorMeta>], place: Option<Place>) -> Result<Option<Arc<Block>>> {
        match (symbol.operator(), &symbol.body) {
            (None, _) => Ok(None),
            (_, Some(body)) => Ok(Some(body.clone())),
            (Some(def), None) if TracingRules::of(def).decomposition.is_some() => {
                tracer::decompose(def, metas).map(Some).map_err(|error| error.in_operator(def.name, place))
            }
            _ => Ok(None),
        }
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
        let name: &str = names.first().map_or("", |name| symbol.call_name(name));
        let metas = block.argument_metas(symbol);
        let handles = map_arguments(operands, |operand| operand.handle);
        let choice = self.choose(symbol, &metas);
        let first = tracer::position();
        let Some(rule) = choice.rule else {
            // A composite that declares that it has no gradient has none by its decomposition either.
            let none = symbol.operator().is_some_and(|def| {
                matches!(def.kind, OperatorKind::Composite) && GradientRules::of(def).no_grad.is_some()
            });
            let body = if none { None } else { Self::body(symbol, &metas, place)? };
            if let Some(body) = body {
                let mut known = vec![None; body.values.len()];
                for (parameter, operand) in body.parameters.iter().zip(operands.iter().flat_map(Arg::tensors)) {
                    known[parameter.index()] = Some(*operand);
                }
                let inside = symbol.operator().map_or(place, |def| place.map(|place| place.inside(def)));
                self.forward(&body, &mut known, name, inside)?;
                self.explain(first, symbol, name, choice);
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
                Some(def) => GradientRules::of(def).no_grad.unwrap_or("it declares no gradient").to_owned(),
                None => format!("'{}' cannot be differentiated", symbol.name()),
            };
            let results: Vec<(Arc<str>, TensorMeta)> =
                names.iter().cloned().zip(symbol.results.iter().map(|id| block.meta(*id).clone())).collect();
            let results: Vec<Tracked> = tracer::append_copy(symbol, handles, &results)
                .into_iter()
                .map(|handle| self.track(handle, true))
                .collect();
            self.recorded.push(Recorded {
                name: name.strip_prefix(self.again).unwrap_or(name).to_owned(),
                operator: symbol.name().to_owned(),
                place,
                results: results.clone(),
                operands: operands.to_vec(),
                back: Back::Missing(reason),
            });
            return Ok(results);
        };
        // The rule's own call of the operator would be named like the result; the names of its other results are below
        // that one.
        let operator = symbol.operator().map_or("", |def| def.name);
        let mut draws = Draws::default();
        let traced = || tracer::within_rule(operator, &mut draws, constants(operands), || rule(&handles));
        let (outputs, pullback) = tracer::absolute_scope(name, traced);
        self.explain(first, symbol, name, choice);
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
            name: name.strip_prefix(self.again).unwrap_or(name).to_owned(),
            operator: symbol.name().to_owned(),
            place,
            results: results.clone(),
            operands: operands.to_vec(),
            back: Back::Rule { operator, draws, pullback },
        });
        Ok(results)
    }

    /// Calls the pullbacks in reverse, from `cotangents`, and returns the cotangents of `wanted`.
    pub(super) fn backward(
        self,
        mut cotangents: FxHashMap<Key, Tensor>,
        wanted: &[Tracked],
    ) -> Result<Vec<Option<Tensor>>> {
        for recorded in self.recorded.into_iter().rev() {
            let arrived: Vec<Option<Tensor>> = recorded
                .results
                .iter()
                .map(|result| {
                    cotangents.get(&result.key).copied().filter(|_| result.handle.dtype().is_differentiable())
                })
                .collect();
            if arrived.iter().all(Option::is_none) {
                continue;
            }
            let stack = || CallStack { at: recorded.place, frames: Vec::new() };
            let scope = format!("{BACKWARD}.{}", recorded.name);
            let first = tracer::position();
            let (operator, mut draws, pullback) = match recorded.back {
                Back::Rule { operator, draws, pullback } => (operator, draws, pullback),
                Back::Again(body) => {
                    let operands: Vec<Tracked> = recorded.operands.iter().flat_map(Arg::tensors).copied().collect();
                    let ranking = self.ranking;
                    Tape::gradients(ranking, &body, &recorded.name, &operands, &arrived, &mut cotangents)?;
                    continue;
                }
                Back::Missing(reason) => {
                    return Err(Error::NoGradient { operator: recorded.operator, reason, stack: stack() });
                }
            };
            let results: Vec<Tensor> = recorded.results.iter().map(|result| result.handle).collect();
            let constants = constants(&recorded.operands);
            let traced = || tracer::within_rule(operator, &mut draws, constants, || pullback(&arrived, &results));
            let gradients = tracer::backward(&scope, traced);
            tracer::annotate_error("the gradient of", &recorded.operator, recorded.place);
            let both = recorded.operands.iter().zip(&gradients);
            let pairs = both.flat_map(|(operand, gradient)| operand.tensors().iter().zip(gradient.tensors()));
            for (operand, gradient) in pairs {
                if !operand.varied || !operand.handle.dtype().is_differentiable() {
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
                add(&mut cotangents, operand.key, *gradient, &scope);
            }
            tracer::set_places_from(first, recorded.place);
            if let Some(error) = tracer::take_error() {
                return Err(error);
            }
        }
        Ok(wanted.iter().map(|tracked| cotangents.get(&tracked.key).copied()).collect())
    }
}
