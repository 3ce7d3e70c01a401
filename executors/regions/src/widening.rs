//! Conversions of 16 bits to f32, which are exact: what only selects elements may come before them.

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
    let converts = does(symbol, Elements::Convert);
    let (from, to) = (symbol.operands().next().filter(|_| converts)?, *symbol.results.first()?);
    let short = matches!(block.meta(from).dtype(), DType::BF16 | DType::F16);
    (short && block.meta(to).dtype() == DType::F32).then_some((from, to))
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

/// A name that no value has.
fn free_name(block: &Block, wanted: &str) -> String {
    let taken = |name: &str| block.values.iter().any(|value| &*value.name == name);
    let numbered = (1..).map(|number| format!("{wanted}.{number}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}
