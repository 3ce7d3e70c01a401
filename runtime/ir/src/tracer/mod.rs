//! Tracing: traced code computes with [`Tensor`] handles, and every call becomes a line of the trace being built.
//!
//! A failing call neither panics nor returns a `Result`: the first error is kept, the call hands back a poisoned
//! handle, and the function that traces (`trace`, `jit`) returns the error.

use crate::operator::RuleSet;
use crate::tracer::rules::TracingRules;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use crate::argument::{Arg, map_arguments};
use crate::error::{CallStack, Error, Failure, Place, Result};
use crate::executor::ExecutorOptions;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, ResultsDef};
use crate::registered;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};
use tensor::POISON;

pub mod calls;
mod checkpoint;
mod decomposed;
mod draws;
mod gradient;
mod handle;
mod rewriting;
pub mod rules;
mod tensor;
mod trees;

pub use calls::call_role;
pub use calls::{accumulate, call, full_like, zeros_like};
pub use checkpoint::checkpoint;
pub use decomposed::decomposed;
pub use draws::{Draws, within_rule};
pub use gradient::{value_and_grad, value_and_grad_aux, wants_gradient};
pub use rewriting::recomputed;
pub use rewriting::{
    absolute_scope, annotate_error, append_copy, backward, calls_since, explain_refusals, free_name, has_error,
    position, rename, reserve_names, set_places, set_places_from, take_error,
};
pub use tensor::Tensor;
pub use trees::map_trees;

struct Builder {
    id: u64,
    block: Block,
    /// How often each base name was given out.
    names: FxHashMap<Arc<str>, u32>,
    scope: String,
    /// The pass that lines belong to.
    pass: Pass,
    error: Option<Error>,
    /// Whether handles of the builder below may be used here; they become parameters.
    captures: Option<Vec<(ValueId, ValueId)>>,
    /// How often random operators were given each value as their generator.
    draws: FxHashMap<ValueId, u64>,
    /// The operator of which this is a rule; empty in a program.
    rule_of: &'static str,
    /// In a rule of a gradient, the operands whose gradients nobody reads.
    constants: Vec<Tensor>,
    /// Whether calls are recorded as their decompositions ([`decomposed`]): also in bodies that use values around them.
    decomposed: bool,
}

#[derive(Default)]
struct Tracer {
    stack: Vec<Builder>,
    /// An error made while nothing was being traced; the next trace of this thread returns it.
    pending: Option<Error>,
}

/// How many traces were begun, on all threads.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The operator's address, the arguments, and what the rule may see besides: the registrations and the values of
/// executors' options.
type DecompositionKey = (usize, Vec<Arg<TensorMeta>>, u64, ExecutorOptions);

thread_local! {
    static TRACER: RefCell<Tracer> = RefCell::default();
    static OPENED: RefCell<Vec<(&'static OperatorDef, Vec<Arg<TensorMeta>>)>> = RefCell::default();
    static DECOMPOSITIONS: RefCell<FxHashMap<DecompositionKey, Arc<Block>>> = RefCell::default();
}

/// Unwinds to the nearest traced function, silently: only where a poisoned handle has no answer to give.
struct Poisoned;

impl Tracer {
    /// The value of `tensor` in builder `level`, captured from an outer builder if necessary.
    fn resolve(&mut self, level: usize, tensor: Tensor) -> Option<ValueId> {
        if self.stack[level].id == tensor.builder {
            return Some(tensor.value);
        }
        if level == 0 || self.stack[level].captures.is_none() {
            return None;
        }
        let outer = self.resolve(level - 1, tensor)?;
        let known = self.stack[level].captures.as_ref().and_then(|c| c.iter().find(|(o, _)| *o == outer)).map(|c| c.1);
        if known.is_some() {
            return known;
        }
        let (name, meta) = {
            let value = self.stack[level - 1].block.value(outer);
            (value.name.clone(), value.meta.clone())
        };
        let builder = &mut self.stack[level];
        let name = builder.fresh_name(name);
        let inner = builder.block.define(name, meta);
        builder.block.parameters.push(inner);
        builder.captures.as_mut()?.push((outer, inner));
        Some(inner)
    }
}

impl Builder {
    /// `base`, or `base.1`, `base.2`, ... if it is taken.
    fn fresh_name(&mut self, base: Arc<str>) -> Arc<str> {
        let Some(&used) = self.names.get(&base) else {
            self.names.insert(base.clone(), 1);
            return base;
        };
        let mut counter = used;
        loop {
            let name: Arc<str> = format!("{base}.{counter}").into();
            counter += 1;
            if !self.names.contains_key(&name) {
                self.names.insert(base, counter);
                self.names.insert(name.clone(), 1);
                return name;
            }
        }
    }

    /// Names of the results of one call: `base.values` and `base.indices`, or, of a later call or where one of these is
    /// taken, `base.1.values` and `base.1.indices`, ... A result called `out` has the name of the call.
    fn fresh_names(&mut self, base: &Arc<str>, results: &[&str]) -> Vec<Arc<str>> {
        loop {
            let name_of_call = self.fresh_name(base.clone());
            let name = |result: &&str| match *result {
                "out" => name_of_call.clone(),
                result => format!("{name_of_call}.{result}").into(),
            };
            let names: Vec<Arc<str>> = results.iter().map(name).collect();
            if names.iter().all(|name| *name == name_of_call || !self.names.contains_key(name)) {
                for name in &names {
                    self.names.entry(name.clone()).or_insert(1);
                }
                return names;
            }
        }
    }

    fn scoped(&self, name: &str) -> Arc<str> {
        if self.scope.is_empty() { name.into() } else { format!("{}.{name}", self.scope).into() }
    }

    fn handle(&self, value: ValueId) -> Tensor {
        Tensor { builder: self.id, value }
    }

    fn poison(&self) -> Tensor {
        Tensor { builder: self.id, value: POISON }
    }

    fn fail(&mut self, error: Error) {
        tracing::debug!(%error, "tracing failed");
        self.error.get_or_insert(error);
    }
}

fn set_pending(error: Error) {
    TRACER.with_borrow_mut(|tracer| {
        tracer.pending.get_or_insert(error);
    });
}

fn with_top<R>(f: impl FnOnce(&mut Builder) -> R) -> Option<R> {
    TRACER.with_borrow_mut(|tracer| tracer.stack.last_mut().map(f))
}

/// Traces `f` into a closed block. `parameters` are names and metas of what `f` gets; names must differ.
pub fn trace_block(parameters: &[(Arc<str>, TensorMeta)], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Block> {
    build(parameters, false, f).map(|(block, _)| block)
}

fn build(
    parameters: &[(Arc<str>, TensorMeta)],
    captures: bool,
    f: impl FnOnce(&[Tensor]) -> Vec<Tensor>,
) -> Result<(Block, Vec<(ValueId, ValueId)>)> {
    let handles: Vec<Tensor> = TRACER.with_borrow_mut(|tracer| {
        let id = MADE.fetch_add(1, Ordering::Relaxed);
        let mut builder = Builder {
            id,
            block: Block::default(),
            names: FxHashMap::default(),
            scope: String::new(),
            pass: Pass::Forward,
            error: if tracer.stack.is_empty() { tracer.pending.take() } else { None },
            captures: captures.then(Vec::new),
            draws: FxHashMap::default(),
            rule_of: "",
            constants: Vec::new(),
            decomposed: captures && tracer.stack.last().is_some_and(|outer| outer.decomposed),
        };
        for (name, meta) in parameters {
            let name = builder.fresh_name(name.clone());
            let value = builder.block.define(name, meta.clone());
            builder.block.parameters.push(value);
        }
        let handles = builder.block.parameters.iter().map(|value| builder.handle(*value)).collect();
        tracer.stack.push(builder);
        handles
    });
    let depth = TRACER.with_borrow(|tracer| tracer.stack.len());
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&handles)));
    let (mut builder, results) = TRACER.with_borrow_mut(|tracer| {
        // Builders above were left behind by an unwinding panic.
        tracer.stack.truncate(depth);
        let results = outcome.as_ref().ok().map(|results| {
            results.iter().map(|tensor| tracer.resolve(depth - 1, *tensor)).collect::<Option<Vec<ValueId>>>()
        });
        (tracer.stack.pop().unwrap_or_else(|| unreachable!("pushed above")), results)
    });
    match outcome {
        Err(payload) if !payload.is::<Poisoned>() => resume_unwind(payload),
        _ => {}
    }
    if let Some(error) = builder.error {
        return Err(error);
    }
    match results.flatten() {
        Some(results) if !results.contains(&POISON) => builder.block.results = results,
        _ => {
            return Err(Error::StaleHandle {
                operator: "return".into(),
                argument: "result".into(),
                stack: CallStack::default(),
            });
        }
    }
    Ok((builder.block, builder.captures.unwrap_or_default()))
}

/// Runs `f` with names prefixed by `name`: `scope("attn", || softmax(x, -1))` defines `attn.softmax`.
pub fn scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let before = with_top(|builder| {
        let before = builder.scope.len();
        if before > 0 {
            builder.scope.push('.');
        }
        builder.scope.push_str(name);
        (builder.id, before)
    });
    let result = f();
    if let Some((id, before)) = before {
        with_top(|builder| {
            if builder.id == id {
                builder.scope.truncate(before);
            }
        });
    }
    result
}

/// Writes the lines of a call's decomposition: the operator, its arguments, the decomposition, the place of the call.
type WriteBody = fn(&'static OperatorDef, &[Arg<ValueId>], &Block, Place) -> Vec<Tensor>;

/// Whether calls are recorded as their decompositions: in programs, not in rules.
fn opens_calls() -> bool {
    with_top(|builder| builder.decomposed && builder.rule_of.is_empty()).unwrap_or(false)
}

/// Adds the line of a call at `place`, or within [`decomposed`] what `opened` makes of it.
fn add_call(def: &'static OperatorDef, arguments: Vec<Arg<Tensor>>, place: Place, opened: WriteBody) -> Vec<Tensor> {
    let stack = || CallStack { at: Some(place), frames: Vec::new() };
    let resolved = TRACER.with_borrow_mut(|tracer| {
        let Some(level) = tracer.stack.len().checked_sub(1) else {
            let error = Error::NoTrace { operator: def.name.into(), stack: stack() };
            tracer.pending.get_or_insert(error);
            return None;
        };
        if tracer.stack[level].error.is_some() {
            return None;
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (i, argument) in arguments.iter().enumerate() {
            let mut missing = false;
            let argument = argument.map(|tensor| {
                if tensor.value == POISON && tracer.stack.iter().any(|builder| builder.id == tensor.builder) {
                    missing = true;
                    return POISON;
                }
                tracer.resolve(level, *tensor).unwrap_or_else(|| {
                    missing = true;
                    POISON
                })
            });
            if missing {
                let name = def.params.get(i).map_or("?", |param| param.name);
                let error = Error::StaleHandle { operator: def.name.into(), argument: name.into(), stack: stack() };
                tracer.stack[level].fail(error);
                return None;
            }
            values.push(argument);
        }
        let block = &tracer.stack[level].block;
        let metas = map_arguments(&values, |id| block.meta(*id).clone());
        Some((values, metas))
    });
    let Some((values, metas)) = resolved else { return poisoned_results(def) };
    match infer(def, &metas) {
        Ok((_, Some(body))) if opens_calls() => opened(def, &values, &body, place),
        Ok((results, body)) => append(
            BoundSymbol {
                callee: Callee::Operator(def),
                arguments: values,
                results: Results::new(),
                body,
                pass: Pass::Forward,
                executor: None,
                schedule: Default::default(),
                refusals: Vec::new(),
                place: Some(place),
            },
            def.short_name(),
            def.results,
            results,
        ),
        Err(InferError::Failure(failure)) => {
            with_top(|b| b.fail(Error::Operator { operator: def.name.into(), failure, stack: stack() }));
            poisoned_results(def)
        }
        Err(InferError::Inner(error)) => {
            with_top(|b| b.fail(error.in_operator(def.name, Some(place))));
            poisoned_results(def)
        }
    }
}

fn poisoned_results(def: &'static OperatorDef) -> Vec<Tensor> {
    let poison = with_top(|builder| builder.poison()).unwrap_or(Tensor::PLACEHOLDER);
    match def.results {
        ResultsDef::Named(names) => vec![poison; names.len()],
        // How many there would be is not known; the error is recorded, and the function being traced ends here.
        ResultsDef::List if with_top(|_| ()).is_some() => resume_unwind(Box::new(Poisoned)),
        ResultsDef::List => Vec::new(),
    }
}

/// Adds a line whose values are called after `base`: `base` alone, or `base` and the name of the result if there are
/// several with names other than `out`. Results without names get counters.
fn append(mut symbol: BoundSymbol, base: &str, results: ResultsDef, metas: Vec<TensorMeta>) -> Vec<Tensor> {
    with_top(|builder| {
        symbol.pass = builder.pass;
        let base = builder.scoped(base);
        let names = match results {
            ResultsDef::Named(names) if names.len() > 1 && names.len() == metas.len() => {
                builder.fresh_names(&base, names)
            }
            _ => metas.iter().map(|_| builder.fresh_name(base.clone())).collect(),
        };
        symbol.results = names.into_iter().zip(metas).map(|(name, meta)| builder.block.define(name, meta)).collect();
        let handles = symbol.results.iter().map(|value| builder.handle(*value)).collect();
        builder.block.symbols.push(symbol);
        handles
    })
    .unwrap_or_default()
}

/// Why metas could not be inferred.
pub enum InferError {
    /// A precondition of the operator itself.
    Failure(Failure),
    /// An error inside its decomposition.
    Inner(Error),
}

impl InferError {
    /// As the error of a call of `name` at `place`.
    pub fn of(self, name: &str, place: Option<Place>) -> Error {
        match self {
            InferError::Failure(failure) => {
                let stack = CallStack { at: place, frames: Vec::new() };
                Error::Operator { operator: name.to_owned(), failure, stack }
            }
            InferError::Inner(error) => error.in_operator(name, place),
        }
    }
}

/// The code of the error that meta and decomposition of an operator disagree.
pub const META_DIFFERS: &str = "MetaDiffers";

/// Result metas and decomposition of a call, which agree.
pub fn infer(
    def: &'static OperatorDef,
    metas: &[Arg<TensorMeta>],
) -> Result<(Vec<TensorMeta>, Option<Arc<Block>>), InferError> {
    crate::registry::declared_once(def.name).map_err(InferError::Failure)?;
    def.check_arguments(metas).map_err(InferError::Failure)?;
    let declared = TracingRules::of(def).declared_meta(metas).map_err(InferError::Failure)?;
    match (&declared, def.results.count()) {
        (Some(declared), Some(n)) if declared.len() != n => {
            let message = format!("meta gave {} results, the signature has {n}", declared.len());
            return Err(InferError::Failure(Failure::new("ResultCount", message)));
        }
        _ => {}
    }
    // Before the decomposition, whose arithmetic on shapes relies on it.
    declared.iter().flatten().try_for_each(TensorMeta::addressable).map_err(InferError::Failure)?;
    let body = match TracingRules::of(def).decomposition {
        Some(_) => Some(decompose(def, metas).map_err(InferError::Inner)?),
        None => None,
    };
    if let (Some(declared), Some(body)) = (&declared, &body) {
        let derived = || body.results.iter().map(|id| body.meta(*id));
        if !declared.iter().eq(derived()) {
            let list = |metas: &mut dyn Iterator<Item = &TensorMeta>| {
                metas.map(TensorMeta::to_string).collect::<Vec<_>>().join(", ")
            };
            let message =
                format!("meta says {}, its decomposition gives {}", list(&mut declared.iter()), list(&mut derived()));
            return Err(InferError::Failure(Failure::new(META_DIFFERS, message)));
        }
    }
    let results = match (declared, &body) {
        (Some(declared), _) => declared,
        (None, Some(body)) => body.results.iter().map(|id| body.meta(*id).clone()).collect(),
        (None, None) => {
            return Err(InferError::Failure(Failure::new("NoMeta", "has neither meta nor decomposition")));
        }
    };
    results.iter().try_for_each(TensorMeta::addressable).map_err(InferError::Failure)?;
    Ok((results, body))
}

/// The decomposition of a call, as a closed block. Equal calls share one block.
pub fn decompose(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Result<Arc<Block>> {
    let Some(rule) = TracingRules::of(def).decomposition else {
        return Err(Error::Operator {
            operator: def.name.into(),
            failure: Failure::new("NoDecomposition", "has no decomposition"),
            stack: CallStack::default(),
        });
    };
    let key = (std::ptr::from_ref(def) as usize, metas.to_vec(), registered::epoch(), ExecutorOptions::current());
    if let Some(block) = DECOMPOSITIONS.with_borrow(|known| known.get(&key).cloned()) {
        return Ok(block);
    }
    let block = {
        let _opened = opening(def, metas)?;
        Arc::new(trace_rule(def, metas, rule)?.canonical())
    };
    DECOMPOSITIONS.with_borrow_mut(|known| {
        // Programs of many shapes would otherwise keep every block they ever made.
        if known.len() >= 16_384 {
            known.clear();
        }
        known.insert(key, block.clone());
    });
    Ok(block)
}

/// Maximum nesting depth of decompositions. Those of the library stay below ten.
const DEEPEST: usize = 64;

/// An operator whose decomposition is being traced on this thread, until this is dropped.
struct Opened;

impl Drop for Opened {
    fn drop(&mut self) {
        OPENED.with_borrow_mut(|opened| opened.pop());
    }
}

/// Says that the decomposition of `def` is traced from now on.
///
/// # Errors
/// If it is already being traced on the same arguments, or is nested too deep: the recursion would not end.
fn opening(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Result<Opened> {
    OPENED.with_borrow_mut(|opened| {
        let again = opened.iter().any(|(other, arguments)| std::ptr::eq(*other, def) && arguments == metas);
        if again || opened.len() >= DEEPEST {
            let from = opened.iter().position(|(other, _)| std::ptr::eq(*other, def)).unwrap_or(0);
            let names = opened[from..].iter().map(|(other, _)| other.name).take(8);
            let path: Vec<&str> = names.chain([if opened.len() - from > 8 { "..." } else { def.name }]).collect();
            let message = match again {
                true => format!("its decomposition calls itself: {}", path.join(" -> ")),
                false => format!("decompositions are nested {DEEPEST} deep: {}", path.join(" -> ")),
            };
            let failure = Failure::new("Recursion", message);
            return Err(Error::Operator { operator: def.name.into(), failure, stack: CallStack::default() });
        }
        opened.push((def, metas.to_vec()));
        Ok(Opened)
    })
}

/// Traces a rule of `def` (decomposition, execution) on arguments of the given metas.
pub fn trace_rule(
    def: &'static OperatorDef,
    metas: &[Arg<TensorMeta>],
    rule: impl FnOnce(&[Arg<Tensor>]) -> Vec<Tensor>,
) -> Result<Block> {
    let parameters = def.rule_parameters(metas);
    trace_block(&parameters, |handles| {
        with_top(|builder| builder.rule_of = def.name);
        let mut handles = handles.iter();
        let arguments =
            map_arguments(metas, |_| *handles.next().unwrap_or_else(|| unreachable!("one for each tensor")));
        rule(&arguments)
    })
}

/// The arguments of a call of `def` whose leading parameters are given and whose others take their defaults.
pub fn with_defaults<V>(def: &OperatorDef, mut leading: Vec<Arg<V>>) -> Vec<Arg<V>> {
    let rest = &def.params[leading.len().min(def.params.len())..];
    leading.extend(rest.iter().map(crate::operator::ParamDef::default_argument));
    leading
}

/// Ends the rule that is being traced, which could not be written down for its arguments.
pub fn end_rule(failure: Failure) -> ! {
    let operator = with_top(|builder| builder.rule_of).unwrap_or_default();
    fail(operator, failure);
    resume_unwind(Box::new(Poisoned))
}

/// Ends the traced function with an error of the author's own: for code around operators (a model's configuration, a
/// sequence that is too long). Outside of a trace the next one returns it.
#[track_caller]
pub fn fail(operator: &str, failure: Failure) {
    let stack = CallStack { at: Some(Place::caller()), frames: Vec::new() };
    let error = Error::Operator { operator: operator.to_owned(), failure, stack };
    if with_top(|builder| builder.fail(error.clone())).is_none() {
        set_pending(error);
    }
}
