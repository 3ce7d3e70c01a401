//! Conversions of 16 bits to f32, which are exact: what only selects elements may come before them. And those back.

use fulgurite_runtime::DType;
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::arithmetic::{Arithmetic, Elements};
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::trace::{Block, BoundSymbol, Results, ValueId};
use fulgurite_runtime::transforms::dce::live;
use rustc_hash::FxHashMap;

fn does(symbol: &BoundSymbol, elements: Elements) -> bool {
    symbol.operator().is_some_and(|def| Arithmetic::of(def).elements == Some(elements))
}

/// The value of 16 bits that a symbol widens to f32, and the result.
pub fn widened(block: &Block, symbol: &BoundSymbol) -> Option<(ValueId, ValueId)> {
    converted(symbol).filter(|(from, to)| is_short(block, *from) && block.meta(*to).dtype() == DType::F32)
}

/// The value of f32 that a symbol rounds to 16 bits, and the result.
pub fn narrowed(block: &Block, symbol: &BoundSymbol) -> Option<(ValueId, ValueId)> {
    converted(symbol).filter(|(from, to)| block.meta(*from).dtype() == DType::F32 && is_short(block, *to))
}

/// What a symbol converts to another element type, and the result.
fn converted(symbol: &BoundSymbol) -> Option<(ValueId, ValueId)> {
    let converts = does(symbol, Elements::Convert);
    Some((symbol.operands().next().filter(|_| converts)?, *symbol.results.first()?))
}

fn is_short(block: &Block, id: ValueId) -> bool {
    matches!(block.meta(id).dtype(), DType::BF16 | DType::F16)
}

/// Takes elements of what is widened before it is widened, where both are of the executor `members` and the elements
/// are fewer. The widened tensor, of which these may be all that another kernel reads (the targets' logits, of all
/// logits), then need not be written.
pub fn gather_before(block: &Block, members: &str, fuel: &mut Fuel) -> Block {
    let mut new = block.clone();
    let mut widenings: FxHashMap<ValueId, (ValueId, &BoundSymbol)> = FxHashMap::default();
    new.symbols.clear();
    let mut moved = false;
    for symbol in &block.symbols {
        let ours = symbol.executor == Some(members);
        if let Some((from, to)) = widened(block, symbol).filter(|_| ours) {
            widenings.insert(to, (from, symbol));
        }
        let selects = does(symbol, Elements::Select);
        let fewer = |input: &ValueId| block.meta(symbol.results[0]).len() < block.meta(*input).len();
        let input = symbol.operands().next().filter(|input| ours && selects && fewer(input));
        let Some((from, widening)) = input.and_then(|input| widenings.get(&input)).filter(|_| fuel.burn()) else {
            new.symbols.push(symbol.clone());
            continue;
        };
        let result = symbol.results[0];
        let meta = block.meta(result).with_dtype(block.meta(*from).dtype());
        let taken = new.define(free_name(&new, &format!("{}.narrow", block.value(result).name)), meta);
        let replaced = |wanted: ValueId, by: ValueId| move |id: &ValueId| if *id == wanted { by } else { *id };
        let to = widening.results[0];
        new.symbols.push(BoundSymbol {
            arguments: map_arguments(&symbol.arguments, replaced(to, *from)),
            results: Results::from_slice(&[taken]),
            ..symbol.clone()
        });
        new.symbols.push(BoundSymbol {
            arguments: map_arguments(&widening.arguments, replaced(*from, taken)),
            results: symbol.results.clone(),
            place: symbol.place,
            ..(*widening).clone()
        });
        moved = true;
    }
    // Nobody may need the whole any more.
    if moved { live(new) } else { new }
}

/// A name that no value of the block has: the wanted one, or that with a number.
pub(crate) fn free_name(block: &Block, wanted: &str) -> String {
    let taken = |name: &str| block.values.iter().any(|value| &*value.name == name);
    let numbered = (1..).map(|number| format!("{wanted}.{number}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}
