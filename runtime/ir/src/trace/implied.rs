//! What a text leaves out because it follows from the rest of the text. The printer leaves out what is as it follows,
//! and the parser puts it back: both ask here.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::nested::Nested;
use super::paths::{input_place, output_place};
use super::{Block, BoundSymbol, Callee, Input, InputRole, Output, Pass, StageName, Storage, ValueId};
use crate::argument::{Arg, Attribute};
use crate::executor::VIEW;
use crate::meta::{Device, TensorMeta};
use crate::operator::{ParamDef, ParamKind};
use crate::registry::is_operator;

/// Names longer than this are never written relative to another, so that a text cannot make names that are much longer
/// than it.
pub(super) const MAX_RELATIVE: usize = 1024;

/// The namespace of the operators that a text may call by their last word alone.
const PRIMS: &str = "prims::";

/// The operator that a bare word calls: the prim of that name if there is one.
pub(super) fn operator_of(word: &str) -> String {
    let prim = if word.contains("::") || word.len() > MAX_RELATIVE { None } else { Some(format!("{PRIMS}{word}")) };
    prim.filter(|prim| is_operator(prim)).unwrap_or_else(|| word.to_owned())
}

/// The bare word that calls `operator`, if there is one.
pub(super) fn word_of(operator: &str) -> Option<&str> {
    let word = operator.strip_prefix(PRIMS).unwrap_or(operator);
    (operator_of(word) == operator).then_some(word)
}

/// The types of the results of a call whose text has none: that of the first tensor it reads, or, where this is a list,
/// those of its items.
pub(super) fn result_metas(block: &Block, arguments: &[Arg<ValueId>], results: usize) -> Option<Vec<TensorMeta>> {
    let meta = |id: &ValueId| block.values.get(id.index()).map(|value| value.meta.clone());
    match arguments.iter().find(|argument| !matches!(argument, Arg::Attribute(_) | Arg::Optional(None)))? {
        Arg::List(items) if items.len() == results => items.iter().map(meta).collect(),
        Arg::Tensor(id) | Arg::Optional(Some(id)) => Some(vec![meta(id)?; results]),
        _ => None,
    }
}

/// Whether a text leaves out the types of a symbol's results.
pub(super) fn results_follow(block: &Block, symbol: &BoundSymbol) -> bool {
    let same = |expected: Vec<TensorMeta>| {
        let meta = |id: &ValueId| block.values.get(id.index()).map(|value| &value.meta);
        symbol.results.iter().zip(&expected).all(|(id, expected)| meta(id) == Some(expected))
    };
    let by_operator = symbol.operator().is_some() && !symbol.results.is_empty();
    by_operator && result_metas(block, &symbol.arguments, symbol.results.len()).is_some_and(same)
}

/// The scope that names in a line are below: that of its first result.
pub(super) fn scope_of_line(first: Option<&str>) -> &str {
    first.filter(|name| name.len() <= MAX_RELATIVE).map_or("", scope_of)
}

/// The argument of a call that gives none: no tensor, the declared default, `none` where the type allows it, and the
/// program's device (`home`) where an attribute is called `device`.
pub(super) fn argument<V>(param: &ParamDef, home: Option<Device>) -> Option<Arg<V>> {
    match param.kind {
        ParamKind::Optional(_) => return Some(Arg::Optional(None)),
        ParamKind::Attribute => {}
        _ => return None,
    }
    if let Some(default) = param.default {
        return Some(Arg::Attribute(default()));
    }
    let type_name = (param.type_name)();
    if type_name.ends_with('?') {
        return Some(Arg::Attribute(Attribute::None));
    }
    let device = home.filter(|_| param.name == "device" && type_name == "str")?;
    Some(Arg::Attribute(Attribute::Text(device.to_string().into())))
}

/// The scope of a name, to which the next name of a list may be relative: the name without its counter and its last
/// word. Empty if there is none.
pub(super) fn scope_of(name: &str) -> &str {
    let mut end = name.len();
    while let Some(dot) = name[..end].rfind('.') {
        let last = &name[dot + 1..end];
        end = dot;
        if last.is_empty() || !last.bytes().all(|byte| byte.is_ascii_digit()) {
            return &name[..end];
        }
    }
    ""
}

/// The parameters of the body of an operator's call: named by the operator, typed by the operands. `None` if the symbol
/// is no such call, or reads what the block does not have.
pub(super) fn parameters(block: &Block, symbol: &BoundSymbol) -> Option<Vec<(Arc<str>, TensorMeta)>> {
    let Callee::Operator(def) = symbol.callee else { return None };
    if symbol.operands().any(|id| id.index() >= block.values.len()) {
        return None;
    }
    Some(def.rule_parameters(&block.argument_metas(symbol)))
}

/// Which lines of a body give its results: each line all that it defines, in order. `None` if the results are others.
pub(super) fn yields(body: &Block) -> Option<Vec<bool>> {
    let mut rest = &body.results[..];
    let mut marks = Vec::with_capacity(body.symbols.len());
    for symbol in &body.symbols {
        let mark = !symbol.results.is_empty() && rest.starts_with(&symbol.results);
        if mark {
            rest = &rest[symbol.results.len()..];
        }
        marks.push(mark);
    }
    rest.is_empty().then_some(marks)
}

/// What is nested in the body of a region whose operands, parameters and results follow from it, and `None` for
/// another: its parameters are called as the operands, in the order of their first use in the text; its results are
/// called as those of the region, and defined in their order; one executor takes all lines.
pub fn region(block: &Block, symbol: &BoundSymbol, body: &Block) -> Option<Nested> {
    let (Callee::Region { executor }, [Arg::List(operands)]) = (&symbol.callee, &symbol.arguments[..]) else {
        return None;
    };
    let ours = |line: &BoundSymbol| match line.callee {
        Callee::Delete => true,
        _ => line.executor == Some(*executor) && line.schedule.is_plain(),
    };
    let same =
        |outer: &ValueId, inner: &ValueId| match (block.values.get(outer.index()), body.values.get(inner.index())) {
            (Some(outer), Some(inner)) => outer.name == inner.name && outer.meta == inner.meta,
            _ => false,
        };
    let pairs = |outer: &[ValueId], inner: &[ValueId]| {
        outer.len() == inner.len() && outer.iter().zip(inner).all(|(outer, inner)| same(outer, inner))
    };
    let names: FxHashSet<&str> = body.values.iter().map(|value| &*value.name).collect();
    let follows = symbol.executor == Some(*executor)
        && body.symbols.iter().all(ours)
        && names.len() == body.values.len()
        && pairs(operands, &body.parameters)
        && pairs(&symbol.results, &body.results)
        && yields(body).is_some();
    if !follows {
        return None;
    }
    let nested = Nested::new(body, executor, &FxHashMap::default(), false);
    let mut seen: FxHashSet<ValueId> = body.symbols.iter().flat_map(|line| line.results.iter().copied()).collect();
    let occurrences = nested.occurrences(body);
    let mut used = occurrences.iter().map(|(_, id)| *id).filter(|id| seen.insert(*id));
    used.by_ref().eq(body.parameters.iter().copied()).then_some(nested)
}

/// The regions of a program that are written short, with what is nested in their bodies.
pub fn regions(block: &Block) -> FxHashMap<usize, (&Block, Nested)> {
    let mut short = FxHashMap::default();
    // Calls of operators are no regions, and are not looked into.
    for (at, symbol) in block.symbols.iter().enumerate().filter(|(_, symbol)| symbol.operator().is_none()) {
        if let Some(body) = symbol.body.as_deref()
            && let Some(nested) = region(block, symbol, body)
        {
            short.insert(at, (body, nested));
        }
    }
    short
}

/// The pass of a program's first lines: a program that takes cotangents is a backward pass.
pub(super) fn first_pass(inputs: &[Input]) -> Pass {
    match inputs.iter().any(|input| input.role == InputRole::Cotangent) {
        true => Pass::Backward,
        false => Pass::Forward,
    }
}

/// Whether values end where they are read last in a program with this history.
pub(crate) fn deletes(history: &[String]) -> bool {
    history.iter().any(|transform| transform == StageName::DeleteLastUsed.name())
}

/// The storage of the results of a planned program: views have the memory of what they look at, what is returned has
/// that of the donated input of the same path, or memory of its own, and any other result that of the first operand of
/// its size that ends behind its line and that no result before it has.
pub(super) struct Storages {
    returned: FxHashMap<ValueId, Storage>,
}

impl Storages {
    pub(super) fn new(block: &Block, inputs: &[Input], outputs: &[Output]) -> Storages {
        let mut donated: FxHashMap<&str, ValueId> = FxHashMap::default();
        for (id, input) in block.parameters.iter().zip(inputs) {
            if let (true, None, Some(value)) = (input.donated, &input.strides, block.values.get(id.index())) {
                donated.entry(input_place(&value.name)).or_insert(*id);
            }
        }
        let mut returned = FxHashMap::default();
        for (id, output) in block.results.iter().zip(outputs) {
            let meta = |id: &ValueId| block.values.get(id.index()).map(|value| &value.meta);
            let input = donated.get(output_place(&output.path)).filter(|input| meta(input) == meta(id));
            returned.entry(*id).or_insert(input.map_or(Storage::Output, |input| Storage::Shared(*input)));
        }
        Storages { returned }
    }

    /// The storage of the results of symbol `at`, once what it reads has its own.
    pub(super) fn of(&self, block: &Block, at: usize) -> Vec<Option<Storage>> {
        let symbol = &block.symbols[at];
        let storage = |id: ValueId| block.values.get(id.index()).and_then(|value| value.storage);
        if symbol.executor == Some(VIEW) {
            let viewed = symbol.operands().next().map(|operand| match storage(operand) {
                Some(Storage::Shared(root)) => Storage::Shared(root),
                _ => Storage::Shared(operand),
            });
            return vec![viewed; symbol.results.len()];
        }
        let mut ended = ended_places(block, at);
        let mut over = |id: &ValueId| ended.get_mut(&block.values.get(id.index())?.meta.bytes())?.pop_front();
        symbol.results.iter().map(|id| self.returned.get(id).copied().or_else(|| over(id))).collect()
    }
}

/// The places in the arena of the operands that end behind symbol `at`, in the order of the operands, by their sizes in
/// bytes. The place of a view is that of what it looks at.
fn ended_places(block: &Block, at: usize) -> FxHashMap<usize, VecDeque<Storage>> {
    let deletes = block.symbols[at + 1..].iter().take_while(|symbol| symbol.callee == Callee::Delete);
    let mut ending: FxHashSet<ValueId> = deletes.flat_map(BoundSymbol::operands).collect();
    let mut places: FxHashMap<usize, VecDeque<Storage>> = FxHashMap::default();
    if ending.is_empty() {
        return places;
    }
    for id in block.symbols[at].operands() {
        let Some(value) = block.values.get(id.index()) else { continue };
        let root = if let Some(Storage::Shared(root)) = value.storage { root } else { id };
        let Some(owner) = block.values.get(root.index()).filter(|_| ending.remove(&root)) else { continue };
        if let Some(place @ Storage::Arena(_)) = owner.storage {
            places.entry(owner.meta.bytes()).or_default().push_back(place);
        }
    }
    places
}
