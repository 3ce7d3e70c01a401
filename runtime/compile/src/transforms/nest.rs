//! Views beside their readers: a view that one line reads comes right before that line and is called after it, so that
//! the text can write it inside the line (see [`crate::trace::nested`]). What is computed stays the same.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::argument::Arg;
use crate::executor::VIEW;
use crate::trace::nested::{DEEPEST, Nested, is_view, name_of, places};
use crate::trace::{Block, BoundSymbol, Callee, ValueId};

/// Brings the views of a program, and those in the bodies of its regions, before their readers.
pub(crate) fn nest(mut block: Block) -> Block {
    for symbol in &mut block.symbols {
        let Callee::Region { executor } = symbol.callee else { continue };
        let Some(body) = &symbol.body else { continue };
        let mut inner = beside_readers((**body).clone(), executor, &mut |_, _, _| ());
        order_parameters(&mut inner, executor, &mut symbol.arguments);
        symbol.body = Some(Arc::new(inner.canonical()));
    }
    beside_readers(block, VIEW, &mut rename_parameter)
}

/// Gives the parameters of a region's body the order of their first use in its text, and its operands the same.
fn order_parameters(body: &mut Block, executor: &str, arguments: &mut [Arg<ValueId>]) {
    let [Arg::List(operands)] = arguments else { return };
    let nested = Nested::new(body, executor, &FxHashMap::default(), false);
    let places = places_of_parameters(body);
    let mut order: Vec<usize> = Vec::with_capacity(operands.len());
    let mut placed = vec![false; body.parameters.len()];
    let read = nested.occurrences(body).into_iter().filter_map(|(_, id)| places.get(&id).copied());
    // Parameters that only leave again, or are not read, keep their places behind the others.
    for parameter in read.chain(0..body.parameters.len()) {
        if !std::mem::replace(&mut placed[parameter], true) {
            order.push(parameter);
        }
    }
    *operands = order.iter().map(|i| operands[*i]).collect();
    body.parameters = order.iter().map(|i| body.parameters[*i]).collect();
}

/// The places of a body's parameters.
fn places_of_parameters(body: &Block) -> FxHashMap<ValueId, usize> {
    body.parameters.iter().enumerate().map(|(at, id)| (*id, at)).collect()
}

/// Calls parameter `at` of the body of region `symbol` `name`.
fn rename_parameter(symbol: &mut BoundSymbol, at: usize, name: &Arc<str>) {
    if let Some(body) = &mut symbol.body {
        let body = Arc::make_mut(body);
        let id = body.parameters[at];
        body.values[id.index()].name = name.clone();
    }
}

/// Moves and renames the views of one block that `executor` computes.
fn beside_readers(
    mut block: Block,
    executor: &str,
    rename: &mut dyn FnMut(&mut BoundSymbol, usize, &Arc<str>),
) -> Block {
    let mut readers: FxHashMap<ValueId, Vec<usize>> = FxHashMap::default();
    for (i, symbol) in block.symbols.iter().enumerate() {
        symbol.operands().for_each(|id| readers.entry(id).or_default().push(i));
    }
    let mut names: FxHashSet<Arc<str>> = block.values.iter().map(|value| value.name.clone()).collect();
    let returned: FxHashSet<ValueId> = block.results.iter().copied().collect();
    // Of each view that moves, how many lines it is inside of. Readers come later: a view of a view is called after the
    // name that its reader has by then.
    let mut depths: FxHashMap<usize, usize> = FxHashMap::default();
    let mut bodies: FxHashMap<usize, Body> = FxHashMap::default();
    for i in (0..block.symbols.len()).rev() {
        let symbol = &block.symbols[i];
        let (Some(def), [id]) = (symbol.operator(), &symbol.results[..]) else { continue };
        let plain = symbol.executor == Some(executor) && symbol.body.is_none() && symbol.refusals.is_empty();
        let Some([by]) = readers.get(id).map(|readers| &readers[..]) else { continue };
        let depth = depths.get(by).map_or(0, |depth| depth + 1);
        if !plain || !is_view(def) || returned.contains(id) || depth >= DEEPEST {
            continue;
        }
        let Some((name, parameter)) = called(&block, *by, *id, &mut bodies) else { continue };
        if names.contains(&name) && *name != *block.value(*id).name {
            continue;
        }
        names.insert(name.clone());
        block.values[id.index()].name = name.clone();
        // A view that one line reads is a part of this line, whatever pass asked for it.
        block.symbols[i].pass = block.symbols[*by].pass;
        if let Some(parameter) = parameter {
            rename(&mut block.symbols[*by], parameter, &name);
            if let Some(body) = bodies.get_mut(by) {
                body.names.insert(name.clone());
            }
        }
        depths.insert(i, depth);
    }
    in_order(block, &depths)
}

/// The body of a region, for those views that are written in place of its parameters.
struct Body {
    /// What a view is called in place of the parameter at a place, if one line reads it, and it does not leave again.
    called: FxHashMap<usize, Arc<str>>,
    /// The parameter that an operand is.
    parameters: FxHashMap<ValueId, usize>,
    /// The names that are taken.
    names: FxHashSet<Arc<str>>,
}

impl Body {
    /// The body of `symbol`, which `executor` computes.
    fn new(symbol: &BoundSymbol, body: &Block, executor: &str) -> Body {
        let places_in = places_of_parameters(body);
        let nested = Nested::new(body, executor, &FxHashMap::default(), false);
        let occurrences = nested.occurrences(body);
        let mut times: FxHashMap<ValueId, usize> = FxHashMap::default();
        body.results
            .iter()
            .chain(occurrences.iter().map(|(_, id)| id))
            .for_each(|id| *times.entry(*id).or_default() += 1);
        let called = occurrences.iter().filter(|(_, id)| times[id] == 1).filter_map(|(line, id)| {
            let (param, item, _) = places(line.operator()?, &line.arguments).find(|(_, _, read)| read == id)?;
            let first = &body.value(*line.results.first()?).name;
            Some((*places_in.get(id)?, name_of(first, param, item)))
        });
        // The first place of an operand that is there several times.
        let mut parameters: FxHashMap<ValueId, usize> = FxHashMap::default();
        symbol.operands().enumerate().for_each(|(at, id)| _ = parameters.entry(id).or_insert(at));
        Body {
            called: called.collect(),
            parameters,
            names: body.values.iter().map(|value| value.name.clone()).collect(),
        }
    }
}

/// What a view is called that symbol `by` reads once, and the parameter of its body that it is, if that is a region.
fn called(
    block: &Block,
    by: usize,
    id: ValueId,
    bodies: &mut FxHashMap<usize, Body>,
) -> Option<(Arc<str>, Option<usize>)> {
    let symbol = &block.symbols[by];
    if let Some(def) = symbol.operator() {
        let (param, item, _) = places(def, &symbol.arguments).find(|(_, _, read)| *read == id)?;
        return Some((name_of(&block.value(*symbol.results.first()?).name, param, item), None));
    }
    let Callee::Region { executor } = symbol.callee else { return None };
    let body = symbol.body.as_deref()?;
    let known = bodies.entry(by).or_insert_with(|| Body::new(symbol, body, executor));
    let at = *known.parameters.get(&id)?;
    let name = known.called.get(&at)?.clone();
    (!known.names.contains(&name)).then_some((name, Some(at)))
}

/// The block with each of these views right before its reader, in the order in which the reader's text has them.
fn in_order(block: Block, views: &FxHashMap<usize, usize>) -> Block {
    let by: FxHashMap<ValueId, usize> = views.keys().map(|at| (block.symbols[*at].results[0], *at)).collect();
    let mut order: Vec<usize> = Vec::with_capacity(block.symbols.len());
    for at in (0..block.symbols.len()).filter(|at| !views.contains_key(at)) {
        write(&block, at, &by, &mut order);
    }
    let mut symbols: Vec<Option<BoundSymbol>> = block.symbols.into_iter().map(Some).collect();
    let symbols = order.iter().filter_map(|at| symbols[*at].take()).collect();
    Block { symbols, ..block }
}

/// Symbol `at` behind the views that it reads.
fn write(block: &Block, at: usize, by: &FxHashMap<ValueId, usize>, order: &mut Vec<usize>) {
    let symbol = &block.symbols[at];
    let operands: Vec<ValueId> = match (&symbol.callee, symbol.body.as_deref()) {
        (Callee::Region { executor }, Some(body)) => {
            let outer: Vec<ValueId> = symbol.operands().collect();
            let nested = Nested::new(body, executor, &FxHashMap::default(), false);
            let places = places_of_parameters(body);
            nested.occurrences(body).into_iter().filter_map(|(_, id)| places.get(&id)).map(|at| outer[*at]).collect()
        }
        _ => symbol.operands().collect(),
    };
    for view in operands.iter().filter_map(|id| by.get(id)) {
        write(block, *view, by, order);
    }
    order.push(at);
}
