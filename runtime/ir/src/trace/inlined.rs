//! A program with the lines of its fused regions in place of the regions, so that a line is compared with itself
//! whatever region it is in.

use super::{Block, BoundSymbol, Callee, ValueId};

/// A block without regions and without the ends of values.
#[derive(Debug, Clone)]
pub struct Inlined {
    /// Its lines.
    pub block: Block,
    /// For each line the first name that its region defines.
    pub regions: Vec<Option<String>>,
}

impl Inlined {
    /// A block as it is, but the ends of its values.
    pub fn whole(block: &Block) -> Inlined {
        let mut block = block.clone();
        block.symbols.retain(|symbol| symbol.callee != Callee::Delete);
        Inlined { regions: vec![None; block.symbols.len()], block }
    }

    /// A block with its regions opened.
    pub fn of(block: &Block) -> Inlined {
        let mut inlined = Inlined { block: Block { symbols: Vec::new(), ..block.clone() }, regions: Vec::new() };
        for symbol in &block.symbols {
            match (&symbol.callee, &symbol.body) {
                (Callee::Delete, _) => {}
                (Callee::Region { .. }, Some(body)) => inlined.open(symbol, body),
                _ => {
                    inlined.block.symbols.push(symbol.clone());
                    inlined.regions.push(None);
                }
            }
        }
        inlined
    }

    fn open(&mut self, region: &BoundSymbol, body: &Block) {
        let mut outer: Vec<Option<ValueId>> = vec![None; body.values.len()];
        let mut set = |inner: &ValueId, value: ValueId| {
            if let Some(at) = outer.get_mut(inner.index()) {
                *at = Some(value);
            }
        };
        body.parameters.iter().zip(region.operands()).for_each(|(inner, value)| set(inner, value));
        body.results.iter().zip(&region.results).for_each(|(inner, value)| set(inner, *value));
        let outer: Vec<ValueId> = outer
            .into_iter()
            .zip(&body.values)
            .map(|(at, value)| at.unwrap_or_else(|| self.block.define(value.name.clone(), value.meta.clone())))
            .collect();
        let rename = |id: &mut ValueId| {
            if let Some(value) = outer.get(id.index()) {
                *id = *value;
            }
        };
        let first = region.results.first().and_then(|id| self.block.values.get(id.index()));
        let name = first.map_or_else(String::new, |value| value.name.to_string());
        for symbol in body.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete) {
            let mut symbol = symbol.clone();
            symbol.executor = symbol.executor.or(region.executor);
            symbol.results.iter_mut().for_each(rename);
            symbol.arguments.iter_mut().flat_map(|argument| argument.tensors_mut()).for_each(rename);
            self.block.symbols.push(symbol);
            self.regions.push(Some(name.clone()));
        }
    }
}
