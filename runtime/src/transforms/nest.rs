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
    let mut order: Vec<usize> = Vec::with_capacity(operands.len());
    for (_, id) in nested.occurrences(body) {
        let parameter = body.parameters.iter().position(|parameter| *parameter == id);
        if let Some(parameter) = parameter.filter(|parameter| !order.contains(parameter)) {
            order.push(parameter);
        }
    }
    // Parameters that only leave again, or are not read, keep their places behind the others.
    order.extend((0..body.parameters.len()).filter(|parameter| !order.contains(parameter)).collect::<Vec<_>>());
    *operands = order.iter().map(|i| operands[*i]).collect();
    body.parameters = order.iter().map(|i| body.parameters[*i]).collect();
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
    for i in (0..block.symbols.len()).rev() {
        let symbol = &block.symbols[i];
        let (Some(def), [id]) = (symbol.operator(), &symbol.results[..]) else { continue };
        let plain = symbol.executor == Some(executor) && symbol.body.is_none() && symbol.refusals.is_empty();
        let Some([by]) = readers.get(id).map(|readers| &readers[..]) else { continue };
        let depth = depths.get(by).map_or(0, |depth| depth + 1);
        if !plain || !is_view(def) || returned.contains(id) || depth >= DEEPEST {
            continue;
        }
        let Some((name, parameter)) = called(&block, *by, *id) else { continue };
        if names.contains(&name) && *name != *block.value(*id).name {
            continue;
        }
        names.insert(name.clone());
        block.values[id.index()].name = name.clone();
        // A view that one line reads is a part of this line, whatever pass asked for it.
        block.symbols[i].pass = block.symbols[*by].pass;
        if let Some(parameter) = parameter {
            rename(&mut block.symbols[*by], parameter, &name);
        }
        depths.insert(i, depth);
    }
    in_order(block, &depths)
}

/// What a view is called that symbol `by` reads once, and the parameter of its body that it is, if that is a region.
fn called(block: &Block, by: usize, id: ValueId) -> Option<(Arc<str>, Option<usize>)> {
    let symbol = &block.symbols[by];
    if let Some(def) = symbol.operator() {
        let (param, item, _) = places(def, &symbol.arguments).find(|(_, _, read)| *read == id)?;
        return Some((name_of(&block.value(*symbol.results.first()?).name, param, item), None));
    }
    let Callee::Region { executor } = symbol.callee else { return None };
    let body = symbol.body.as_deref()?;
    let at = symbol.operands().position(|operand| operand == id)?;
    let parameter = *body.parameters.get(at)?;
    let nested = Nested::new(body, executor, &FxHashMap::default(), false);
    let occurrences = nested.occurrences(body);
    let mut reading = occurrences.iter().filter(|(_, read)| *read == parameter);
    let ((line, _), None) = (reading.next()?, reading.next()) else { return None };
    let (param, item, _) = places(line.operator()?, &line.arguments).find(|(_, _, read)| *read == parameter)?;
    let name = name_of(&body.value(*line.results.first()?).name, param, item);
    let taken = body.values.iter().any(|value| value.name == name) || body.results.contains(&parameter);
    (!taken).then_some((name, Some(at)))
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
            let parameter = |id: ValueId| body.parameters.iter().position(|parameter| *parameter == id);
            nested.occurrences(body).into_iter().filter_map(|(_, id)| parameter(id)).map(|at| outer[at]).collect()
        }
        _ => symbol.operands().collect(),
    };
    for view in operands.iter().filter_map(|id| by.get(id)) {
        write(block, *view, by, order);
    }
    order.push(at);
}
