//! The claim: each symbol is claimed by the first executor of its ranking that accepts it: the recorded winner, then
//! the list. If none accepts, its decomposition is tried. A prim that no executor accepts is an error that lists every
//! refusal.

use super::flatten::{Flattener, Substitution, inline, place_of};
use crate::argument::Arg;
use crate::choices::{Purpose, Ranked, Ranking};
use crate::error::{CallStack, Error, Failure, Result};
use crate::executor::{ExecutorDef, find_implementation, owner_on};
use crate::fuel::Fuel;
use crate::kernel::KernelRules;
use crate::meta::TensorMeta;
use crate::operator::RuleSet;
use crate::operator::{OperatorDef, OperatorKind};
use crate::refusal::Refusal;
use crate::trace::joins::makes_complex;
use crate::trace::{Block, BoundSymbol, Callee, StageName, Trace};
use crate::tracer::infer;
use crate::tracer::rules::TracingRules;
use crate::tracer::trace_rule;

/// Claims every symbol of `trace`. A symbol that is claimed already stays as it is.
pub fn claim(trace: &Trace, ranking: &Ranking<'_>, fuel: &mut Fuel) -> Result<Trace> {
    let source = &trace.block;
    let (mut flattener, mut substitution) = Flattener::new(source);
    let mut claimer = Claimer { ranking, fuel, device: trace.target.kind(), executed: Vec::new() };
    for symbol in &source.symbols {
        claimer.write(&mut flattener, source, symbol, &mut substitution, &[])?;
    }
    Ok(trace.at_stage(StageName::Claim, flattener.finish(source, &substitution)))
}

/// A claimed block without the bodies of claimed operators. Their executors know the operators, and the stages before
/// have the bodies.
pub(crate) fn without_bodies(mut block: Block) -> Block {
    for symbol in &mut block.symbols {
        if symbol.executor.is_some() && symbol.operator().is_some() {
            symbol.body = None;
        }
    }
    block
}

/// Whether an executor runs a symbol, as it is or by symbols of its own.
pub fn takes(executor: &ExecutorDef, def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> bool {
    match find_implementation(def.name, executor.name) {
        Some(implementation) => {
            (implementation.kernel.runs_on(executor.device) || implementation.execution.is_some())
                && implementation.accepts(metas).is_ok()
        }
        None => executor.claims.is_some_and(|claims| claims(def, metas).is_ok()),
    }
}

struct Claimer<'a> {
    ranking: &'a Ranking<'a>,
    fuel: &'a mut Fuel,
    device: &'a str,
    /// Operators whose executions are being opened, the executors that run them, and their arguments.
    executed: Vec<(&'static OperatorDef, &'static str, Vec<Arg<TensorMeta>>)>,
}

/// Maximum nesting depth of executions.
const DEEPEST: usize = 64;

/// How a symbol is run.
enum Taken {
    AsItIs(&'static str),
    /// By the executor's own symbols.
    Executed(&'static str, Block),
}

impl Claimer<'_> {
    fn write(
        &mut self,
        flattener: &mut Flattener,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &mut Substitution,
        outer: &[Refusal],
    ) -> Result<()> {
        let Callee::Operator(def) = symbol.callee else {
            flattener.copy(source, symbol, substitution);
            return Ok(());
        };
        // The layout pass makes joins of lines that make complex numbers, and no kernel runs them.
        if symbol.executor.is_some() || makes_complex(symbol) {
            flattener.copy(source, symbol, substitution);
            return Ok(());
        }
        let metas = source.argument_metas(symbol);
        let ranked = self.ranking.of(def, &metas, Purpose::Forward);
        let mut refusals: Vec<Refusal> = ranked.refusal.iter().cloned().collect();
        let taken = self.take(def, &metas, &ranked, &mut refusals)?;
        let outer: Vec<Refusal> = outer.iter().chain(&symbol.refusals).cloned().collect();
        let inherited = outer.iter().cloned().chain(refusals.iter().cloned());
        match taken {
            Some(Taken::AsItIs(executor)) => {
                let all: Vec<Refusal> = inherited.collect();
                let copied = flattener.copy(source, symbol, substitution);
                copied.executor = Some(executor);
                copied.refusals = all;
                Ok(())
            }
            Some(Taken::Executed(executor, body)) => {
                self.executed.push((def, executor, metas));
                let reasons = ranked.refusal.map(|refusal| refusal.inside(def.name));
                let reasons: Vec<Refusal> = outer.into_iter().chain(reasons).collect();
                let opened = self.open(flattener, source, symbol, substitution, &body, &reasons);
                self.executed.pop();
                opened
            }
            // A trace written by hand may leave out what a composite stands for.
            None => match symbol.body.clone().or_else(|| infer(def, &metas).ok().and_then(|(_, body)| body)) {
                Some(body) => {
                    // The reasons stay with the first line of what the symbol became.
                    let inner = refusals.into_iter().map(|refusal| refusal.inside(def.name));
                    let reasons: Vec<Refusal> = outer.iter().cloned().chain(inner).collect();
                    self.open(flattener, source, symbol, substitution, &body, &reasons)
                }
                None => Err(Error::Unclaimed { operator: symbol.called(), refusals, stack: place_of(symbol) }),
            },
        }
    }

    fn open(
        &mut self,
        flattener: &mut Flattener,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &mut Substitution,
        body: &Block,
        reasons: &[Refusal],
    ) -> Result<()> {
        let mut first = true;
        inline(flattener, source, symbol, substitution, body, &mut |flattener, source, symbol, substitution| {
            let reasons = if std::mem::take(&mut first) { reasons } else { &[] };
            self.write(flattener, source, symbol, substitution, reasons)
        })
    }

    /// Fails if the execution of `def` by `executor` is being opened already on the same arguments: it would never end.
    fn ends(&self, def: &'static OperatorDef, executor: &ExecutorDef, metas: &[Arg<TensorMeta>]) -> Result<()> {
        let same = |(other, by, arguments): &&(&'static OperatorDef, &'static str, Vec<Arg<TensorMeta>>)| {
            *other == def && *by == executor.name && arguments == metas
        };
        if self.executed.iter().find(same).is_none() && self.executed.len() < DEEPEST {
            return Ok(());
        }
        let message =
            format!("its execution by {} calls it again, on the same arguments or without end", executor.name);
        let failure = Failure::new("Recursion", message);
        Err(Error::Operator { operator: def.name.into(), failure, stack: CallStack::default() })
    }

    fn take(
        &mut self,
        def: &'static OperatorDef,
        metas: &[Arg<TensorMeta>],
        ranked: &Ranked<'_>,
        refusals: &mut Vec<Refusal>,
    ) -> Result<Option<Taken>> {
        if let OperatorKind::Symbol(owners) = def.kind {
            let here = owner_on(owners, self.device)?;
            if let Some(executor) = here.filter(|_| KernelRules::of(def).runs_on(self.device)) {
                return Ok(Some(Taken::AsItIs(executor.name)));
            }
            refusals.extend(here.map(|executor| executor.name).or(owners.first().copied()).map(|executor| Refusal {
                executor,
                reason: format!("'{}' has no kernel for {}", def.name, self.device),
            }));
            return Ok(None);
        }
        for executor in &*ranked.executors {
            if !executor.runs_on(self.device) {
                refusals.push(Refusal {
                    executor: executor.name,
                    reason: format!("runs on {}, the target is {}", executor.device, self.device),
                });
                continue;
            }
            let mut refuse = |reason: String| refusals.push(Refusal { executor: executor.name, reason });
            if let Some(implementation) = find_implementation(def.name, executor.name) {
                match implementation.accepts(metas) {
                    Err(reason) => refuse(reason),
                    Ok(()) if implementation.kernel.runs_on(self.device) || implementation.execution.is_some() => {
                        // A prim must run whatever the fuel: only a composite has something to fall back on.
                        if TracingRules::of(def).decomposition.is_some() && !self.fuel.burn() {
                            refuse("out of optimization fuel".into());
                            continue;
                        }
                        return Ok(Some(match implementation.execution {
                            Some(execution) => {
                                self.ends(def, executor, metas)?;
                                let body = trace_rule(def, metas, execution)
                                    .map_err(|error| error.in_operator(executor.name, None))?;
                                Taken::Executed(executor.name, body)
                            }
                            None => Taken::AsItIs(executor.name),
                        }));
                    }
                    // Offers a gradient alone: the symbols it uses are claimed by themselves.
                    Ok(()) => {}
                }
            } else if let Some(claims) = executor.claims {
                match claims(def, metas) {
                    Ok(()) => {
                        if TracingRules::of(def).decomposition.is_some() && !self.fuel.burn() {
                            refuse("out of optimization fuel".into());
                            continue;
                        }
                        return Ok(Some(Taken::AsItIs(executor.name)));
                    }
                    // A composite that nobody offered to take is no news.
                    Err(_) if TracingRules::of(def).decomposition.is_some() => {}
                    Err(reason) => refuse(reason),
                }
            }
        }
        Ok(None)
    }
}
