//! The two sides of a rewrite for the metas and attributes of a match, and whether it may be made.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::form::{Form, forms, side};
use super::normal::{Normals, with_normals};
use crate::argument::Arg;
use crate::error::Result;
use crate::executor::{Claim, ExecutorDef, RewriteDef, find_implementation};
use crate::meta::TensorMeta;
use crate::trace::{Block, BoundSymbol};
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
    pub(super) forms: Arc<Vec<Form>>,
    /// Both sides, for each list of arguments of the pattern that was met. A model repeats its layers: there are few.
    sides: RefCell<FxHashMap<Vec<Arg<TensorMeta>>, Option<Rc<Sides>>>>,
}

/// Both sides of a rewrite on the metas and attributes of a match.
pub(super) struct Sides {
    arguments: Vec<Arg<TensorMeta>>,
    pub(super) pattern: Block,
    pub(super) normals: Normals,
    replacement: OnceCell<Result<Block>>,
    accepted: OnceCell<Claim>,
    /// Whether the replacement has the pattern in it; and whether with a filled tensor that is read as its number.
    pub(super) repeats: [OnceCell<bool>; 2],
    /// How many executors of the list come before the last one that runs a symbol of the replacement.
    before: OnceCell<Result<usize, String>>,
}

impl<'a> Pattern<'a> {
    pub(super) fn new(rewrite: &'a RewriteDef, runners: Runners<'a>) -> Result<Pattern<'a>> {
        Ok(Pattern { rewrite, runners, forms: forms(rewrite)?, sides: RefCell::default() })
    }

    /// Both sides for these arguments of the pattern; `None` if the pattern refuses them.
    pub(super) fn sides(&self, arguments: Vec<Arg<TensorMeta>>) -> Option<Rc<Sides>> {
        if let Some(known) = self.sides.borrow().get(&arguments) {
            return known.clone();
        }
        let made = side(self.rewrite, &arguments, self.rewrite.pattern).ok().map(|pattern| {
            let (pattern, normals) = with_normals(pattern, self.rewrite.late);
            let arguments = arguments.clone();
            Rc::new(Sides {
                arguments,
                pattern,
                normals,
                replacement: OnceCell::new(),
                accepted: OnceCell::new(),
                repeats: Default::default(),
                before: OnceCell::new(),
            })
        });
        self.sides.borrow_mut().insert(arguments, made.clone());
        made
    }

    /// What a match of these arguments becomes.
    pub(super) fn replacement<'s>(&self, sides: &'s Sides) -> Result<&'s Block> {
        let made = sides.replacement.get_or_init(|| side(self.rewrite, &sides.arguments, self.rewrite.replacement));
        made.as_ref().map_err(Clone::clone)
    }

    /// Whether the rewrite is for such tensors and attributes.
    pub(super) fn accepts<'s>(&self, sides: &'s Sides) -> &'s Claim {
        sides.accepted.get_or_init(|| self.rewrite.accepts(&sides.arguments))
    }

    /// Whether the executors leave the match to the rewrite, and run what it writes. `consumed` are the symbols of the
    /// program that it takes away.
    pub(super) fn left(&self, block: &Block, sides: &Sides, consumed: &[usize]) -> Claim {
        match self.runners {
            Runners::Any => Ok(()),
            Runners::Owners(Owners { executors, first }) => {
                taken_by_none(&executors[..first], block, consumed)?;
                sides.before.get_or_init(|| self.taken_by_owners(&executors[first..], sides)).clone().map(|_| ())
            }
            Runners::OneOf(executors) => {
                let before = sides.before.get_or_init(|| self.taken_by_one_of(executors, sides)).clone()?;
                taken_by_none(&executors[..before], block, consumed)
            }
        }
    }

    /// Whether one of `executors` runs each symbol of the replacement.
    fn taken_by_one_of(&self, executors: &[&'static ExecutorDef], sides: &Sides) -> Result<usize, String> {
        let replacement = self.replacement(sides).map_err(|error| error.to_string())?;
        let mut before = 0;
        for symbol in &replacement.symbols {
            let Some(def) = symbol.operator() else { continue };
            let arguments = replacement.argument_metas(symbol);
            match executors.iter().position(|executor| claim::takes(executor, def, &arguments)) {
                Some(by) => before = before.max(by),
                None => return Err(format!("no executor of the list runs {}", def.name)),
            }
        }
        Ok(before)
    }

    /// Whether executors that the rewrite belongs to take the symbols of the replacement that they offer to run.
    fn taken_by_owners(&self, executors: &[&'static ExecutorDef], sides: &Sides) -> Result<usize, String> {
        let replacement = self.replacement(sides).map_err(|error| error.to_string())?;
        let own = || executors.iter().filter(|executor| self.rewrite.executors.contains(&executor.name));
        for symbol in &replacement.symbols {
            let Some(def) = symbol.operator() else { continue };
            let arguments = replacement.argument_metas(symbol);
            let mut offered = own().filter_map(|executor| find_implementation(def.name, executor.name)).peekable();
            if offered.peek().is_none() {
                continue;
            }
            let answers: Vec<Claim> = offered.map(|implementation| implementation.accepts(&arguments)).collect();
            if answers.iter().all(Claim::is_err) {
                answers.into_iter().next().unwrap_or(Ok(()))?;
            }
        }
        Ok(0)
    }
}

/// Whether none of `executors` runs a matched symbol.
fn taken_by_none(executors: &[&'static ExecutorDef], block: &Block, consumed: &[usize]) -> Claim {
    if executors.is_empty() {
        return Ok(());
    }
    for i in consumed {
        let symbol = &block.symbols[*i];
        let arguments = block.argument_metas(symbol);
        let Some(def) = symbol.operator() else { continue };
        if let Some(by) = executors.iter().find(|executor| claim::takes(executor, def, &arguments)) {
            return Err(format!("{} is taken by {}", def.name, by.name));
        }
    }
    Ok(())
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
