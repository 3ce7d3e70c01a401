//! Random numbers of several ranks: each draws its part of what one rank draws for the whole batch.
//!
//! Ranks have parts of a batch, which is the leading dimension of what the function of `value_and_grad` draws. Before a
//! draw there, an operator ([`Role::DrawsOfRank`]) makes the generator of the rank's part, so that losses do not depend
//! on the number of ranks. What is drawn for the differentiated arguments alone, which all ranks have, is the same on
//! all ranks: a weight that is dropped for one sequence is dropped for all. What is drawn for numbers that depend on no
//! argument, as a mask made of ones, is taken for one of the batch, like a draw without operands.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::argument::{Arg, Attribute, map_arguments};
use crate::error::Result;
use crate::operator::{OperatorDef, Role};
use crate::registry::role;
use crate::trace::verify::axis_of;
use crate::trace::{Block, BoundSymbol, Callee, Results, Schedule, ValueId};
use crate::tracer::{infer, with_defaults};

/// `block` with draws in the functions of its `value_and_grad` lines that are those of a rank along an axis.
///
/// # Errors
/// If there are draws, and no operator has the role of [`Role::DrawsOfRank`]; if a random operator does not take the
/// generator of a part.
pub(super) fn of_ranks(block: &Block, axis: &str) -> Result<Block> {
    let mut block = block.clone();
    for symbol in &mut block.symbols {
        let (true, Some(body)) = (symbol.callee.holds_program(), &symbol.body) else { continue };
        let body = match &symbol.callee {
            Callee::ValueAndGrad { wrt } => {
                let same = (0..body.parameters.len()).map(|at| wrt.contains(&at).then_some(OfWeights(true)));
                let same = same.collect::<Vec<_>>();
                of_function(body, &same, axis)?
            }
            _ => of_ranks(body, axis)?,
        };
        symbol.body = Some(Arc::new(body));
    }
    Ok(block)
}

/// Whether a value that all ranks have alike depends on a differentiated argument, or on none at all.
#[derive(Clone, Copy)]
struct OfWeights(bool);

/// The body of a function; `same` says which of its parameters all ranks have alike.
fn of_function(body: &Block, same: &[Option<OfWeights>], axis: &str) -> Result<Block> {
    let alike = body.parameters.iter().zip(same).filter_map(|(id, same)| Some((*id, (*same)?))).collect();
    let mut block = Block { symbols: Vec::with_capacity(body.symbols.len()), ..body.clone() };
    let names = body.values.iter().map(|value| value.name.to_string()).collect();
    let mut parts = Parts { axis, alike, names, generators: FxHashMap::default() };
    for symbol in &body.symbols {
        let mut symbol = symbol.clone();
        if let (true, Some(inner)) = (symbol.callee.holds_program(), &symbol.body) {
            let same: Vec<_> = symbol.operands().map(|id| parts.alike.get(&id).copied()).collect();
            symbol.body = Some(Arc::new(of_function(inner, &same, axis)?));
        }
        let generator = generator_of(&block, &symbol, axis);
        let drawn_by = generator.map(|(id, _)| id);
        if symbol.operands().all(|id| parts.alike.contains_key(&id) || Some(id) == drawn_by) {
            let of_weights = symbol.operands().any(|id| parts.alike.get(&id).is_some_and(|of| of.0));
            if generator.is_none() || of_weights {
                // What depends on the place of a rank is alike on no two.
                if !symbol.operator().is_some_and(|def| def.effects.of_place()) {
                    parts.alike.extend(symbol.results.iter().map(|id| (*id, OfWeights(of_weights))));
                }
                block.symbols.push(symbol);
                continue;
            }
        }
        if let Some((id, def)) = generator {
            let part = parts.of(&mut block, id, &symbol)?;
            symbol.arguments = map_arguments(&symbol.arguments, |own| if *own == id { part } else { *own });
            let metas = map_arguments(&symbol.arguments, |id| block.meta(*id).clone());
            symbol.body = infer(def, &metas).map_err(|error| error.of(def.name, symbol.place))?.1;
        }
        block.symbols.push(symbol);
    }
    Ok(block.canonical())
}

/// The generators of a rank's part in one block.
struct Parts<'a> {
    axis: &'a str,
    /// Values that all ranks have alike.
    alike: FxHashMap<ValueId, OfWeights>,
    names: FxHashSet<String>,
    /// What was made of each generator.
    generators: FxHashMap<ValueId, ValueId>,
}

impl Parts<'_> {
    /// The generator of this rank's part, by a line that is written if there is none.
    fn of(&mut self, block: &mut Block, generator: ValueId, of: &BoundSymbol) -> Result<ValueId> {
        if let Some(part) = self.generators.get(&generator) {
            return Ok(*part);
        }
        let def = role(Role::DrawsOfRank)?;
        let axis = Arg::Attribute(Attribute::Text(self.axis.into()));
        let arguments = with_defaults(def, vec![Arg::Tensor(generator), axis]);
        let metas = map_arguments(&arguments, |id: &ValueId| block.meta(*id).clone());
        let (metas, body) = infer(def, &metas).map_err(|error| error.of(def.name, of.place))?;
        // The role is of an operator with one result.
        let meta = metas.into_iter().next().unwrap_or_else(|| block.meta(generator).clone());
        let base = format!("{}.part", block.value(generator).name);
        let mut name = base.clone();
        for number in 1.. {
            if self.names.insert(name.clone()) {
                break;
            }
            name = format!("{base}.{number}");
        }
        let part = block.define(name, meta);
        self.generators.insert(generator, part);
        block.symbols.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments,
            results: Results::from_slice(&[part]),
            body,
            pass: of.pass,
            executor: None,
            schedule: Schedule::default(),
            refusals: Vec::new(),
            place: of.place,
        });
        Ok(part)
    }
}

/// The generator that a line draws by, or makes that of a part of along another axis, and the line's operator.
fn generator_of(block: &Block, symbol: &BoundSymbol, axis: &str) -> Option<(ValueId, &'static OperatorDef)> {
    let def = symbol.operator()?;
    let at = if def.effects.random { def.effects.generator } else { None };
    // Along another axis the draws were divided before: each part is divided again.
    let divides = def.effects.of_place()
        && role(Role::DrawsOfRank).is_ok_and(|draws| std::ptr::eq(draws, def))
        && axis_of(symbol).is_some_and(|of| of != axis);
    let [id] = symbol.arguments.get(at.or(divides.then_some(0))?)?.tensors() else { return None };
    (block.meta(*id).shape() == [2]).then_some((*id, def))
}
