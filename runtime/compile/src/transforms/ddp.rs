//! Data parallel training: each rank along an axis of the mesh has all parameters and a part of the batch of its own.
//!
//! After each `value_and_grad`, its loss and its gradients become their means over the ranks: what one rank would
//! compute of the whole batch, if every rank has as many terms of the loss. So do those in checkpoints, and in the loss
//! of another `value_and_grad`: the gradient of a mean over ranks is the mean of the cotangents. Auxiliary results stay
//! those of each rank. Random draws are parts of what one rank draws (`draws`). Li et al., 2020.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::draws;
use super::fsdp::{FSDP, axis_of};
use crate::argument::{Arg, Attribute};
use crate::error::{Error, Result};
use crate::operator::{OperatorDef, Role};
use crate::registry::role;
use crate::trace::{Block, BoundSymbol, Callee, Schedule, Trace, ValueId};
use crate::tracer::with_defaults;
/// Its name in the history of a trace.
pub const DDP: &str = "ddp";

/// `trace` with the loss and the gradients of its `value_and_grad` lines averaged over the ranks along `axis`.
///
/// # Errors
/// If the target's mesh has no such axis, the program has no `value_and_grad`, `fsdp` has taken its means along the
/// axis already, no operator has the role of [`Role::AllReduce`], or a random operator does not take the generator
/// of a part.
pub fn ddp(trace: &Trace, axis: &str) -> Result<Trace> {
    let axis = axis_of(trace.target.mesh(), axis, DDP)?;
    let mut strategy = Strategy { all_reduce: role(Role::AllReduce)?, axis: axis.to_string(), count: 0 };
    if trace.history.iter().any(|past| past == FSDP) && strategy.sums_a_loss(&trace.block) {
        let message = format!("is '{}', along which `fsdp` has made loss and gradients means", axis.name());
        return Err(Error::Argument { argument: format!("the axis of {DDP}"), message });
    }
    let block = strategy.block(&draws::of_ranks(&trace.block, &strategy.axis)?);
    if strategy.count == 0 {
        let message = "has nothing to do: the program has no `value_and_grad`".to_owned();
        return Err(Error::Argument { argument: "ddp".into(), message });
    }
    Ok(trace.transformed(DDP, block))
}

struct Strategy {
    all_reduce: &'static OperatorDef,
    axis: String,
    /// How many values were averaged.
    count: usize,
}

impl Strategy {
    /// Whether a line sums the loss of a `value_and_grad` over the ranks along the axis.
    fn sums_a_loss(&self, block: &Block) -> bool {
        let gradients = block.symbols.iter().filter(|line| matches!(line.callee, Callee::ValueAndGrad { .. }));
        let losses: FxHashSet<ValueId> = gradients.filter_map(|line| line.results.first().copied()).collect();
        let axis = Arg::Attribute(Attribute::Text(self.axis.as_str().into()));
        block.symbols.iter().any(|line| {
            let reduces = line.operator().is_some_and(|def| std::ptr::eq(def, self.all_reduce));
            reduces && line.arguments.get(1) == Some(&axis) && line.operands().any(|id| losses.contains(&id))
        })
    }

    fn block(&mut self, before: &Block) -> Block {
        let names = before.values.iter().map(|value| value.name.to_string()).collect();
        let mut means = Means { renamed: FxHashMap::default(), names };
        let mut block = Block { symbols: Vec::with_capacity(before.symbols.len()), ..before.clone() };
        for symbol in &before.symbols {
            let mut symbol = symbol.clone();
            for argument in &mut symbol.arguments {
                *argument = argument.map(|id| means.now(*id));
            }
            if let (true, Some(body)) = (symbol.callee.holds_program(), &symbol.body) {
                symbol.body = Some(Arc::new(self.block(body).canonical()));
            }
            block.symbols.push(symbol.clone());
            let Callee::ValueAndGrad { wrt } = &symbol.callee else { continue };
            // The loss, then auxiliary results, then gradients.
            let gradients = symbol.results.len() - wrt.len()..symbol.results.len();
            for at in std::iter::once(0).chain(gradients) {
                let (id, mean) = (symbol.results[at], means.of(&mut block, symbol.results[at]));
                block.symbols.push(self.line(id, mean, &symbol));
            }
        }
        for id in &mut block.results {
            *id = means.now(*id);
        }
        block
    }

    /// The line that makes the mean of a value over the ranks.
    fn line(&mut self, value: ValueId, mean: ValueId, of: &BoundSymbol) -> BoundSymbol {
        self.count += 1;
        let text = |text: &str| Arg::Attribute(Attribute::Text(text.into()));
        BoundSymbol {
            callee: Callee::Operator(self.all_reduce),
            arguments: with_defaults(self.all_reduce, vec![Arg::List(vec![value]), text(&self.axis), text("mean")]),
            results: [mean].into_iter().collect(),
            body: None,
            pass: of.pass,
            executor: None,
            schedule: Schedule::default(),
            refusals: Vec::new(),
            place: of.place,
        }
    }
}

/// The means of a block's values.
struct Means {
    /// What a value has become.
    renamed: FxHashMap<ValueId, ValueId>,
    names: FxHashSet<String>,
}

impl Means {
    fn now(&self, id: ValueId) -> ValueId {
        self.renamed.get(&id).copied().unwrap_or(id)
    }

    /// A value for the mean of another one, which takes its place from now on.
    fn of(&mut self, block: &mut Block, id: ValueId) -> ValueId {
        let (name, meta) = (block.value(id).name.clone(), block.meta(id).clone());
        let mut fresh = format!("{name}.mean");
        for number in 1.. {
            if self.names.insert(fresh.clone()) {
                break;
            }
            fresh = format!("{name}.mean.{number}");
        }
        let mean = block.define(fresh, meta);
        self.renamed.insert(id, mean);
        mean
    }
}
