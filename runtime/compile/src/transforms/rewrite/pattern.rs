//! The two sides of a rewrite: the shape that is looked for, and what they are for the metas of a match.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fulgurite_kernels::DType;
use rustc_hash::FxHashMap;

use crate::argument::Arg;
use crate::error::Result;
use crate::executor::{Claim, ExecutorDef, RewriteDef, find_implementation};
use crate::meta::{Device, TensorMeta};
use crate::testing::samples::Samples;
use crate::trace::{Block, BoundSymbol, ValueId};
use crate::tracer::trace_block;
use crate::transforms::claim;

/// The list of executors, and the place in it of the first that a rewrite belongs to.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a> {
    pub(super) executors: &'a [&'static ExecutorDef],
    pub(super) first: usize,
}

/// Which executors must run the replacement.
#[derive(Clone, Copy)]
pub(super) enum Runners<'a> {
    /// Any executor.
    Any,
    /// An executor that the rewrite belongs to.
    Owners(Owners<'a>),
    /// Any of these, without decomposing it.
    OneOf(&'a [&'static ExecutorDef]),
}

impl<'a> Runners<'a> {
    /// What a rewrite of no executor asks for.
    pub(super) fn of(rewrite: &RewriteDef, executors: &'a [&'static ExecutorDef]) -> Runners<'a> {
        if rewrite.claimed { Runners::OneOf(executors) } else { Runners::Any }
    }
}

/// A rewrite, prepared for one pass over a program.
pub(super) struct Pattern<'a> {
    pub(super) rewrite: &'a RewriteDef,
    pub(super) runners: Runners<'a>,
    pub(super) shape: Shape,
    /// Both sides, for each list of metas of the pattern's parameters that was met. A model repeats its layers: there
    /// are few.
    sides: RefCell<FxHashMap<Vec<TensorMeta>, Option<Rc<Sides>>>>,
}

/// The pattern on the metas of its first sample: which operators it has, and how they are connected. Attributes may
/// depend on metas and are compared later, on the pattern traced for the metas at hand.
pub(super) struct Shape {
    pub(super) block: Block,
    /// The symbols in the order in which they are looked for: each but the first shares a value with one before it, if
    /// any does.
    pub(super) order: Vec<usize>,
    /// Whether the first two arguments of each symbol may match in either order, which its other arguments decide.
    pub(super) exchangeable: Vec<bool>,
}

/// Both sides of a rewrite on the metas of a match.
pub(super) struct Sides {
    pub(super) metas: Vec<TensorMeta>,
    pub(super) pattern: Block,
    replacement: OnceCell<Result<Block>>,
    allowed: OnceCell<Claim>,
}

impl<'a> Pattern<'a> {
    /// Traces the pattern on its first sample. `None` if there is nothing to look for.
    pub(super) fn new(rewrite: &'a RewriteDef, runners: Runners<'a>) -> Result<Option<Pattern<'a>>> {
        let shape = Shape::of(rewrite)?;
        Ok(shape.map(|shape| Pattern { rewrite, runners, shape, sides: RefCell::default() }))
    }

    /// Both sides for these metas of the parameters; `None` if the pattern refuses them.
    pub(super) fn sides(&self, metas: Vec<TensorMeta>) -> Option<Rc<Sides>> {
        if let Some(known) = self.sides.borrow().get(&metas) {
            return known.clone();
        }
        let made = trace_side(self.rewrite, &metas, self.rewrite.pattern).ok().map(|pattern| {
            let (replacement, allowed) = (OnceCell::new(), OnceCell::new());
            Rc::new(Sides { metas: metas.clone(), pattern, replacement, allowed })
        });
        self.sides.borrow_mut().insert(metas, made.clone());
        made
    }

    /// What a match of these metas becomes.
    pub(super) fn replacement<'s>(&self, sides: &'s Sides) -> Result<&'s Block> {
        let made = sides.replacement.get_or_init(|| trace_side(self.rewrite, &sides.metas, self.rewrite.replacement));
        made.as_ref().map_err(Clone::clone)
    }

    /// Whether a match of these metas may be made; `consumed` are the symbols of the pattern that it takes away. The
    /// answer is the same for all matches of these metas, unless inner values may be kept: then matches take different
    /// symbols away.
    pub(super) fn allowed(&self, sides: &Sides, consumed: &[usize]) -> Claim {
        let decide = || {
            self.rewrite.condition.map_or(Ok(()), |condition| condition(&sides.metas))?;
            match self.runners {
                Runners::Any => Ok(()),
                Runners::Owners(owners) => self.left_to(owners, sides, consumed),
                Runners::OneOf(executors) => self.claimed(executors, sides, consumed),
            }
        };
        if self.rewrite.keep_inner {
            return decide();
        }
        sides.allowed.get_or_init(decide).clone()
    }

    /// Whether one of `executors` runs each symbol of the replacement, and none before it a matched one.
    fn claimed(&self, executors: &[&'static ExecutorDef], sides: &Sides, consumed: &[usize]) -> Claim {
        let replacement = self.replacement(sides).map_err(|error| error.to_string())?;
        for symbol in &replacement.symbols {
            let Some(def) = symbol.operator() else { continue };
            let arguments = replacement.argument_metas(symbol);
            match executors.iter().position(|executor| claim::takes(executor, def, &arguments)) {
                Some(by) => taken_by_none(&executors[..by], sides, consumed)?,
                None => return Err(format!("no executor of the list runs {}", def.name)),
            }
        }
        Ok(())
    }

    /// Whether no executor before the rewrite's own takes a matched symbol, and one of its own takes the replacement.
    fn left_to(&self, Owners { executors, first }: Owners<'_>, sides: &Sides, consumed: &[usize]) -> Claim {
        taken_by_none(&executors[..first], sides, consumed)?;
        let replacement = self.replacement(sides).map_err(|error| error.to_string())?;
        let own = || executors[first..].iter().filter(|executor| self.rewrite.executors.contains(&executor.name));
        for symbol in &replacement.symbols {
            let Some(def) = symbol.operator() else { continue };
            let arguments = replacement.argument_metas(symbol);
            let mut offered = own().filter_map(|executor| find_implementation(def.name, executor.name)).peekable();
            if offered.peek().is_none() {
                continue;
            }
            let answers: Vec<Claim> = offered.map(|implementation| implementation.accepts(&arguments)).collect();
            if answers.iter().all(Claim::is_err) {
                return answers.into_iter().next().unwrap_or(Ok(()));
            }
        }
        Ok(())
    }
}

/// Whether none of `executors` runs a matched symbol.
fn taken_by_none(executors: &[&'static ExecutorDef], sides: &Sides, consumed: &[usize]) -> Claim {
    for i in consumed {
        let symbol = &sides.pattern.symbols[*i];
        let arguments = sides.pattern.argument_metas(symbol);
        let Some(def) = symbol.operator() else { continue };
        if let Some(by) = executors.iter().find(|executor| claim::takes(executor, def, &arguments)) {
            return Err(format!("{} is taken by {}", def.name, by.name));
        }
    }
    Ok(())
}

impl Shape {
    fn of(rewrite: &RewriteDef) -> Result<Option<Shape>> {
        let mut samples = Samples::new(None, DType::F32);
        if let Some(declare) = rewrite.samples {
            declare(&mut samples);
        }
        let Some(sample) = samples.into_cases().into_iter().next() else { return Ok(None) };
        let metas: Vec<TensorMeta> =
            sample.arguments.iter().flat_map(Arg::tensors).map(|tensor| tensor.meta(Device::CPU)).collect();
        let block = trace_side(rewrite, &metas, rewrite.pattern)?;
        if block.symbols.is_empty() {
            return Ok(None);
        }
        let exchangeable = block.symbols.iter().map(exchangeable).collect();
        Ok(Some(Shape { order: connected_order(&block), block, exchangeable }))
    }
}

/// Whether the first two arguments of a symbol may be exchanged where its other arguments are at their defaults: its
/// operator says that they commute, and each may take the other's place.
pub fn exchangeable(symbol: &BoundSymbol) -> bool {
    let Some(def) = symbol.operator().filter(|def| def.commutes) else { return false };
    let ([first, second, ..], [own, other, ..]) = (def.params, &symbol.arguments[..]) else { return false };
    let tensors = matches!((own, other), (Arg::Tensor(_), Arg::Tensor(_)));
    tensors || first.kind == second.kind
}

/// Whether the first two arguments of a symbol may be exchanged.
pub fn commutes(symbol: &BoundSymbol) -> bool {
    let Some(def) = symbol.operator().filter(|_| exchangeable(symbol)) else { return false };
    let others = def.params.iter().zip(&symbol.arguments).skip(2);
    others.into_iter().all(|(param, given)| *given == param.default_argument())
}

/// The symbols of a pattern from the first on, each sharing a value with one before it if any does: what a value makes
/// or reads is found by following it.
fn connected_order(block: &Block) -> Vec<usize> {
    let values = |i: &usize| {
        let symbol = &block.symbols[*i];
        symbol.operands().chain(symbol.results.iter().copied()).collect::<Vec<ValueId>>()
    };
    let mut order = vec![0];
    let mut known = values(&0);
    let mut left: Vec<usize> = (1..block.symbols.len()).collect();
    while !left.is_empty() {
        let connected = left.iter().position(|i| values(i).iter().any(|id| known.contains(id)));
        let next = left.remove(connected.unwrap_or(0));
        known.extend(values(&next));
        order.push(next);
    }
    order
}

fn trace_side(rewrite: &RewriteDef, metas: &[TensorMeta], side: crate::tracer::rules::TracedRule) -> Result<Block> {
    let parameters: Vec<(Arc<str>, TensorMeta)> =
        rewrite.params.iter().map(|name| Arc::from(*name)).zip(metas.iter().cloned()).collect();
    trace_block(&parameters, |handles| {
        let arguments: Vec<Arg<crate::Tensor>> = handles.iter().map(|handle| Arg::Tensor(*handle)).collect();
        side(&arguments)
    })
}
