//! What costs next to nothing: arithmetic on elements and views, and what consists of these alone.

use rustc_hash::FxHashMap;

use crate::arithmetic::Arithmetic;
use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use crate::trace::{Block, BoundSymbol};

/// Whether it is arithmetic on elements, a view, or a number.
fn elementwise(symbol: &BoundSymbol) -> bool {
    let elementwise = symbol
        .operator()
        .is_some_and(|def| Arithmetic::of(def).scalar.is_some() || LayoutRules::of(def).view.is_some());
    elementwise || symbol.body.is_some() || symbol.operands().next().is_none()
}

/// Whether symbols are cheap: by their decomposition, or by declaration.
pub(super) struct Cheap(Property);

impl Cheap {
    pub(super) fn new() -> Cheap {
        Cheap(Property::new(elementwise))
    }

    pub(super) fn holds(&mut self, symbol: &BoundSymbol) -> bool {
        symbol.operator().is_some_and(|def| def.cheap) || self.0.holds(symbol)
    }
}

/// What is asked of a symbol and of everything that it stands for; calls share bodies, which are looked at once.
pub(super) struct Property {
    of: fn(&BoundSymbol) -> bool,
    bodies: FxHashMap<*const Block, bool>,
}

impl Property {
    pub(super) fn new(of: fn(&BoundSymbol) -> bool) -> Property {
        Property { of, bodies: FxHashMap::default() }
    }

    pub(super) fn holds(&mut self, symbol: &BoundSymbol) -> bool {
        (self.of)(symbol)
            && symbol.body.as_ref().is_none_or(|body| {
                let key = std::sync::Arc::as_ptr(body);
                if let Some(known) = self.bodies.get(&key) {
                    return *known;
                }
                let result = body.symbols.iter().all(|inner| self.holds(inner));
                self.bodies.insert(key, result);
                result
            })
    }
}
