//! Lines of several tensors that are computed on parts as they are.

use rustc_hash::FxHashMap;

use super::super::flatten::{Flattener, Substitution};
use super::Writer;
use super::kinds::{Kind, kinds};
use super::lines::alike;
use crate::argument::map_arguments;
use crate::error::Result;
use crate::trace::{Block, BoundSymbol, ValueId};
use crate::tracer::infer;

impl Writer<'_> {
    /// Writes a composite line of several tensors with parts, if its results are parts again, or sums. False if they
    /// are not.
    pub(super) fn kept(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &mut Substitution,
    ) -> Result<bool> {
        let (Some(def), Some(body)) = (symbol.operator(), &symbol.body) else { return Ok(false) };
        let axis = self.strategy.axis;
        let mut given = Vec::new();
        let mut divided = true;
        for id in symbol.operands() {
            let (now, meta) = (Flattener::mapped(substitution, id), source.meta(id));
            given.push(match self.parts.get(&now) {
                Some(shape) if shape == meta.shape() => {
                    divided &= meta.rank() > 0 && meta.len().is_multiple_of(axis.extent());
                    Kind::Part
                }
                None if meta.rank() == 0 && !self.differ.contains(&now) => Kind::Number,
                _ => return Ok(false),
            });
        }
        // As for one part, in `shape`.
        if self.differentiated && !divided && !self.converts.holds(symbol) {
            return Ok(false);
        }
        let Some(made) = kinds(body, &given, &mut self.elementwise) else { return Ok(false) };
        // Padding need not be zero.
        if made.iter().any(|kind| *kind == Kind::Filled || (*kind == Kind::OwnSum && !divided)) {
            return Ok(false);
        }
        let mut now: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for id in symbol.operands() {
            let mapped = Flattener::mapped(substitution, id);
            let mapped = if self.own_sums.contains(&mapped) { self.whole(mapped, Some(symbol))? } else { mapped };
            now.insert(id, mapped);
        }
        let arguments = map_arguments(&symbol.arguments, |id| now[id]);
        let metas = map_arguments(&arguments, |id| self.flattener.block().meta(*id).clone());
        let Ok((metas, Some(own))) = infer(def, &metas) else { return Ok(false) };
        let expected = symbol.results.iter().zip(&made).map(|(id, kind)| match kind {
            Kind::Part => vec![axis.part_length(source.meta(*id).shape())],
            _ => Vec::new(),
        });
        if !metas.iter().map(|meta| meta.shape().to_vec()).eq(expected) || !alike(Some(body), Some(&own)) {
            return Ok(false);
        }
        let results = self.define(source, symbol, metas, substitution);
        for ((id, kind), whole) in results.iter().zip(&made).zip(&symbol.results) {
            match kind {
                Kind::Part => _ = self.parts.insert(*id, source.meta(*whole).shape().to_vec()),
                Kind::OwnSum => _ = self.own_sums.insert(*id),
                Kind::Number | Kind::Filled => {}
            }
        }
        self.flattener.push(BoundSymbol { arguments, results, body: Some(own), ..symbol.clone() });
        Ok(true)
    }
}
