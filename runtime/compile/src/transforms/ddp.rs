//! Data parallel training: each rank along an axis of the mesh has all parameters and a part of the batch of its own.
//!
//! Behind each `value_and_grad` of the program, its loss and its gradients become their means over the ranks: what one
//! rank would compute of the whole batch, if every rank has as many terms of the loss. Auxiliary results stay those of
//! each rank. Li et al., 2020.

use crate::argument::{Arg, Attribute};
use crate::error::{Error, Result};
use crate::operator::{OperatorDef, Role};
use crate::registry::role;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Schedule, Trace, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Its name in the history of a trace.
pub const DDP: &str = "ddp";

/// `trace` with the loss and the gradients of its `value_and_grad` lines averaged over the ranks along `axis`.
///
/// # Errors
/// If the target's mesh has no such axis, the program has no `value_and_grad`, or no operator has the role of
/// [`Role::AllReduce`].
pub fn ddp(trace: &Trace, axis: &str) -> Result<Trace> {
    let mesh = trace.target.mesh();
    let Some((_, axis)) = mesh.axis(axis) else {
        let there = if mesh.axes().is_empty() { "is one rank".to_owned() } else { format!("is '{mesh}'") };
        let message = format!("is '{axis}', the mesh of the program {there}");
        return Err(Error::Argument { argument: "the axis of ddp".into(), message });
    };
    let all_reduce = role(Role::AllReduce)?;
    let mut reduce = Reduce { all_reduce, axis: axis.to_string(), renamed: FxHashMap::default(), names: names(trace) };
    let block = reduce.block(&trace.block);
    if reduce.renamed.is_empty() {
        let message = "has nothing to do: the program has no `value_and_grad`".to_owned();
        return Err(Error::Argument { argument: "ddp".into(), message });
    }
    Ok(trace.transformed(DDP, block))
}

fn names(trace: &Trace) -> FxHashSet<String> {
    trace.block.values.iter().map(|value| value.name.to_string()).collect()
}

struct Reduce {
    all_reduce: &'static OperatorDef,
    axis: String,
    /// What a value has become.
    renamed: FxHashMap<ValueId, ValueId>,
    names: FxHashSet<String>,
}

impl Reduce {
    fn block(&mut self, before: &Block) -> Block {
        let mut block = Block { symbols: Vec::with_capacity(before.symbols.len()), ..before.clone() };
        for symbol in &before.symbols {
            let mut symbol = symbol.clone();
            for argument in &mut symbol.arguments {
                *argument = argument.map(|id| self.now(*id));
            }
            block.symbols.push(symbol.clone());
            let Callee::ValueAndGrad { wrt } = &symbol.callee else { continue };
            // The loss, then auxiliary results, then gradients.
            let gradients = symbol.results.len() - wrt.len()..symbol.results.len();
            let reduced = std::iter::once(0).chain(gradients);
            for id in reduced.map(|i| symbol.results[i]).collect::<Vec<_>>() {
                let line = self.mean(&mut block, id, &symbol);
                block.symbols.push(line);
            }
        }
        for id in &mut block.results {
            *id = self.now(*id);
        }
        block
    }

    fn now(&self, id: ValueId) -> ValueId {
        self.renamed.get(&id).copied().unwrap_or(id)
    }

    /// The line that makes the mean of a value over the ranks.
    fn mean(&mut self, block: &mut Block, id: ValueId, of: &BoundSymbol) -> BoundSymbol {
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
        let text = |text: &str| Arg::Attribute(Attribute::Text(text.into()));
        BoundSymbol {
            callee: Callee::Operator(self.all_reduce),
            arguments: vec![Arg::Tensor(id), text(&self.axis), text("mean")],
            results: [mean].into_iter().collect(),
            body: None,
            pass: Pass::Forward,
            executor: None,
            schedule: Schedule::default(),
            refusals: Vec::new(),
            place: of.place,
        }
    }
}
