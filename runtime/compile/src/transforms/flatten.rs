//! Writing one block's symbols into another: substitution of values, inlining of decompositions.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::argument::{Arg, map_arguments};
use crate::error::{Place, Result};
use crate::operator::OperatorDef;
use crate::refusal::Refusal;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};
use crate::tracer::infer;

/// The pass and the author's line of what is written.
#[derive(Clone, Copy)]
pub(super) struct At(pub Pass, pub Option<Place>);

impl From<&BoundSymbol> for At {
    fn from(symbol: &BoundSymbol) -> At {
        At(symbol.pass, symbol.place)
    }
}

/// Builds a block out of the symbols of others.
pub struct Flattener {
    block: Block,
    names: FxHashSet<Arc<str>>,
    /// For each base of a fresh name the counter to go on from.
    counters: FxHashMap<Arc<str>, u32>,
    /// Where names are put together.
    text: String,
}

/// What the values of a source block became.
pub type Substitution = Vec<Option<ValueId>>;

impl Flattener {
    /// Starts from the parameters of `source`; also returns its substitution so far. All names of `source` are
    /// reserved.
    pub fn new(source: &Block) -> (Flattener, Substitution) {
        let (mut flattener, substitution) = Flattener::copier(source);
        flattener.names = source.values.iter().map(|value| value.name.clone()).collect();
        (flattener, substitution)
    }

    /// As [`Flattener::new`], for a transform that makes no names: none are reserved.
    pub(super) fn copier(source: &Block) -> (Flattener, Substitution) {
        let mut flattener = Flattener {
            block: Block::default(),
            names: FxHashSet::default(),
            counters: FxHashMap::default(),
            text: String::new(),
        };
        flattener.block.values.reserve(source.values.len());
        flattener.block.symbols.reserve(source.symbols.len());
        let mut substitution = vec![None; source.values.len()];
        for parameter in &source.parameters {
            let value = flattener.block.define(source.value(*parameter).name.clone(), source.meta(*parameter).clone());
            flattener.block.parameters.push(value);
            substitution[parameter.index()] = Some(value);
        }
        (flattener, substitution)
    }

    /// The block being built.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// What value `id` became. Values are defined before they are used, so it is known.
    pub fn mapped(substitution: &Substitution, id: ValueId) -> ValueId {
        substitution.get(id.index()).copied().flatten().unwrap_or(ValueId(u32::MAX))
    }

    /// Writes `symbol` with its operands substituted. Results keep the names of `source`.
    pub fn copy(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> &mut BoundSymbol {
        let arguments = map_arguments(&symbol.arguments, |id| Flattener::mapped(substitution, *id));
        let results: Results = symbol
            .results
            .iter()
            .map(|id| {
                let value = source.value(*id);
                let new = self.block.define(value.name.clone(), value.meta.clone());
                substitution[id.index()] = Some(new);
                new
            })
            .collect();
        self.block.symbols.push(BoundSymbol {
            callee: symbol.callee.clone(),
            arguments,
            results,
            body: symbol.body.clone(),
            pass: symbol.pass,
            executor: symbol.executor,
            schedule: Default::default(),
            refusals: symbol.refusals.clone(),
            place: symbol.place,
        });
        self.block.symbols.last_mut().unwrap_or_else(|| unreachable!("just pushed"))
    }

    /// Adds a call of an operator with one result, which an executor is found for later.
    ///
    /// # Errors
    /// If the operator refuses the arguments.
    pub(super) fn call(
        &mut self,
        def: &'static OperatorDef,
        arguments: Vec<Arg<ValueId>>,
        name: Arc<str>,
        at: At,
    ) -> Result<ValueId> {
        let metas = map_arguments(&arguments, |id| self.block.meta(*id).clone());
        let (results, body) = infer(def, &metas).map_err(|error| error.of(def.name, at.1))?;
        let meta = results.into_iter().next().unwrap_or_else(|| unreachable!("who calls knows that it has a result"));
        let result = self.define(name, meta);
        self.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments,
            results: Results::from_slice(&[result]),
            body,
            pass: at.0,
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place: at.1,
        });
        Ok(result)
    }

    /// Opens a closed block that is the body of a call that is called `name`: its parameters become
    /// `arguments`, its own values get names below `name`, its results the names given.
    pub fn open(
        &mut self,
        body: &Block,
        arguments: impl Iterator<Item = ValueId>,
        name: &str,
        results: &[Arc<str>],
    ) -> (Block, Substitution) {
        let mut named = body.clone();
        for value in &mut named.values {
            self.text.clear();
            self.text.extend([name, ".", &value.name]);
            value.name = self.text.as_str().into();
        }
        // There may be thousands of results: they are found by their numbers.
        let mut given = vec![false; named.values.len()];
        for (id, result) in body.results.iter().zip(results) {
            named.values[id.index()].name = result.clone();
            given[id.index()] = true;
        }
        for (value, given) in named.values.iter_mut().zip(given) {
            if !given && self.names.contains(&value.name) {
                value.name = self.fresh(&value.name);
            }
            self.names.insert(value.name.clone());
        }
        let mut substitution = vec![None; named.values.len()];
        for (parameter, argument) in body.parameters.iter().zip(arguments) {
            substitution[parameter.index()] = Some(argument);
        }
        (named, substitution)
    }

    /// A name that no value has, made from `base`.
    pub fn fresh(&mut self, base: &str) -> Arc<str> {
        // Where the last search for this base ended; names are never given back.
        let mut counter = self.counters.get(base).copied().unwrap_or(0);
        loop {
            let name: Arc<str> = if counter == 0 { base.into() } else { format!("{base}.{counter}").into() };
            counter += 1;
            if self.names.insert(name.clone()) {
                match self.counters.get_mut(base) {
                    Some(known) => *known = counter,
                    None => drop(self.counters.insert(base.into(), counter)),
                }
                return name;
            }
        }
    }

    /// Adds the refusals of executors that did not take symbol `at`, each once: another that it stands for has
    /// these.
    pub(super) fn add_refusals(&mut self, at: usize, refusals: &[Refusal]) {
        let known = &mut self.block.symbols[at].refusals;
        for refusal in refusals {
            if !known.contains(refusal) {
                known.push(refusal.clone());
            }
        }
    }

    /// Adds a symbol of this block's own values; results are defined by the caller through [`Flattener::define`].
    pub fn push(&mut self, symbol: BoundSymbol) {
        self.block.symbols.push(symbol);
    }

    /// Defines a value.
    pub fn define(&mut self, name: Arc<str>, meta: crate::TensorMeta) -> ValueId {
        self.block.define(name, meta)
    }

    /// Ends the block with the results of `source`.
    pub fn finish(mut self, source: &Block, substitution: &Substitution) -> Block {
        self.block.results = source.results.iter().map(|id| Flattener::mapped(substitution, *id)).collect();
        self.block
    }
}

/// Writes one symbol of a block: the target, the block (its values; its symbols are handed over one by one), the
/// symbol, what the block's values became.
pub type Write<'a, E> = dyn FnMut(&mut Flattener, &Block, &BoundSymbol, &mut Substitution) -> Result<(), E> + 'a;

/// Writes `symbol`'s decomposition instead of the symbol, calling `write` for each of its symbols. Places of the inner
/// symbols become the place of the outer one, which is the line that a reader looks for.
pub fn inline<E>(
    flattener: &mut Flattener,
    source: &Block,
    symbol: &BoundSymbol,
    substitution: &mut Substitution,
    body: &Block,
    write: &mut Write<'_, E>,
) -> Result<(), E> {
    let names: Vec<Arc<str>> = symbol.results.iter().map(|id| source.value(*id).name.clone()).collect();
    let prefix = names.first().map_or(symbol.name(), |name| symbol.call_name(name));
    let arguments: Vec<ValueId> = symbol.operands().map(|id| Flattener::mapped(substitution, id)).collect();
    let (mut named, mut inner) = flattener.open(body, arguments.into_iter(), prefix, &names);
    for mut line in std::mem::take(&mut named.symbols) {
        line.place = symbol.place_inside().or(line.place);
        line.pass = symbol.pass;
        write(flattener, &named, &line, &mut inner)?;
    }
    for (outer, result) in symbol.results.iter().zip(&named.results) {
        substitution[outer.index()] = Some(Flattener::mapped(&inner, *result));
    }
    Ok(())
}

/// The place of a symbol, for messages.
pub fn place_of(symbol: &BoundSymbol) -> crate::error::CallStack {
    let at: Option<Place> = symbol.place;
    crate::error::CallStack { at, frames: Vec::new() }
}
