//! The search for a pattern's matches. From the first symbol on it follows uses: the next candidates are the symbols
//! that make or read a bound value.

use std::rc::Rc;

use super::pattern::{Owners, Pattern, Runners, Sides, commutes};
use super::uses::Uses;
use crate::argument::{Arg, map_arguments};
use crate::fuel::Fuel;
use crate::refusal::Refusal;
use crate::trace::{Block, BoundSymbol, Pass, ValueId};
use crate::transforms::recompute::may_merge;

/// A match.
pub(super) struct Match {
    /// Indices of the matched symbols, one for each symbol of the pattern.
    pub(super) symbols: Vec<usize>,
    /// Of those the ones that it takes away: all but numbers that the program knows, and inner values that are kept.
    pub(super) consumed: Vec<usize>,
    /// What each parameter of the pattern is.
    pub(super) parameters: Vec<ValueId>,
    /// What each result of the pattern is.
    pub(super) results: Vec<ValueId>,
    /// Both sides for its metas.
    pub(super) sides: Rc<Sides>,
}

impl Match {
    /// The line of its replacement.
    pub(super) fn place(&self) -> usize {
        self.consumed.iter().copied().max().unwrap_or(0)
    }
}

/// Why a match was not made, and of which symbol that is to be said.
pub(super) type Refused = (usize, Refusal);

/// Matches that have no symbol in common, as long as there is fuel; and the refusals.
pub(super) fn find_all(
    block: &Block,
    uses: &Uses,
    pattern: &Pattern<'_>,
    fuel: &mut Fuel,
) -> (Vec<Match>, Vec<Refused>) {
    let shape = &pattern.shape;
    let Some(def) = shape.order.first().and_then(|first| shape.block.symbols[*first].operator()) else {
        return (Vec::new(), Vec::new());
    };
    let anchors = uses.calls(def);
    if anchors.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut search = Search {
        block,
        uses,
        pattern,
        anchor: 0,
        bound: vec![None; shape.block.values.len()],
        trail: Vec::new(),
        places: vec![None; shape.block.symbols.len()],
        taken: vec![false; block.symbols.len()],
        refused: Vec::new(),
    };
    let mut found = Vec::new();
    for anchor in anchors {
        search.anchor = *anchor;
        let next = search.extend(0);
        search.undo(0);
        search.places.fill(None);
        let Some(next) = next else { continue };
        if !fuel.burn() {
            break;
        }
        next.consumed.iter().for_each(|i| search.taken[*i] = true);
        found.push(next);
    }
    (found, search.refused)
}

/// A symbol of the block in the place of one of the pattern.
#[derive(Clone, Copy)]
struct Place {
    symbol: usize,
    /// Whether its first two arguments are in the other order.
    swapped: bool,
}

/// A search for matches.
struct Search<'a> {
    block: &'a Block,
    uses: &'a Uses,
    pattern: &'a Pattern<'a>,
    /// The line of the first symbol of the match.
    anchor: u32,
    /// The block's value for each value of the pattern's shape.
    bound: Vec<Option<ValueId>>,
    /// Which of them were bound, in order.
    trail: Vec<ValueId>,
    /// The block's symbol for each symbol of the pattern's shape.
    places: Vec<Option<Place>>,
    /// Symbols of matches that were made.
    taken: Vec<bool>,
    refused: Vec<Refused>,
}

/// The arguments of a symbol, with the first two exchanged if that is asked for.
pub(super) fn in_order<V>(arguments: &[Arg<V>], swapped: bool) -> impl Iterator<Item = &Arg<V>> {
    (0..arguments.len()).map(move |i| match (swapped, i) {
        (true, 0) => &arguments[1],
        (true, 1) => &arguments[0],
        _ => &arguments[i],
    })
}

impl<'a> Search<'a> {
    /// Finds the symbol of the pattern's shape that is the next in order, trying every candidate.
    fn extend(&mut self, next: usize) -> Option<Match> {
        let pattern = self.pattern;
        let Some(place) = pattern.shape.order.get(next).copied() else { return self.matched() };
        let wanted = &pattern.shape.block.symbols[place];
        let both = [false, true];
        let orders = if pattern.shape.exchangeable[place] { &both[..] } else { &both[..1] };
        for i in self.candidates(next, wanted) {
            let symbol = &self.block.symbols[i as usize];
            if self.taken[i as usize]
                || symbol.executor.is_some()
                || symbol.callee != wanted.callee
                || symbol.arguments.len() != wanted.arguments.len()
                || !self.may_meet(symbol, &self.block.symbols[self.anchor as usize])
                || self.places.iter().flatten().any(|taken| taken.symbol == i as usize)
            {
                continue;
            }
            for swapped in orders {
                let mark = self.trail.len();
                if self.bind(wanted, symbol, *swapped) {
                    self.places[place] = Some(Place { symbol: i as usize, swapped: *swapped });
                    if let Some(found) = self.extend(next + 1) {
                        return Some(found);
                    }
                    self.places[place] = None;
                }
                self.undo(mark);
            }
        }
        None
    }

    /// Whether two symbols may be of one match. What is computed again may be matched with what was computed before of
    /// the program's inputs alone, which are there all the time.
    fn may_meet(&self, one: &BoundSymbol, other: &BoundSymbol) -> bool {
        let of_inputs = |symbol: &BoundSymbol| {
            symbol.pass == Pass::Forward && symbol.operands().all(|id| self.uses.producer(id).is_none())
        };
        may_merge(one, other) || of_inputs(one) || of_inputs(other)
    }

    /// The symbols that may be `wanted`, in the order in which they are tried: those after the match's first one, then
    /// those before it.
    fn candidates(&self, next: usize, wanted: &BoundSymbol) -> impl Iterator<Item = u32> + use<'a> {
        let uses: &'a Uses = self.uses;
        let bound = |id: &ValueId| self.bound[id.index()];
        let made = wanted.results.iter().find_map(bound).map(|value| uses.producer(value));
        let readers = || wanted.operands().filter_map(|id| bound(&id)).map(|value| uses.readers(value));
        let (one, many) = match (next, made) {
            (0, _) => (Some(self.anchor), &[][..]),
            (_, Some(producer)) => (producer, &[][..]),
            (_, None) => {
                let calls = || wanted.operator().map_or(&[][..], |def| uses.calls(def));
                (None, readers().min_by_key(|readers| readers.len()).unwrap_or_else(calls))
            }
        };
        let split = many.partition_point(|i| *i <= self.anchor);
        one.into_iter().chain(many[split..].iter().copied()).chain(many[..split].iter().copied())
    }

    /// Binds the values of `wanted` to those of `symbol`, unless they are bound to others.
    fn bind(&mut self, wanted: &BoundSymbol, symbol: &BoundSymbol, swapped: bool) -> bool {
        if wanted.results.len() != symbol.results.len() {
            return false;
        }
        for (own, theirs) in wanted.arguments.iter().zip(in_order(&symbol.arguments, swapped)) {
            let (own, theirs) = (own.tensors(), theirs.tensors());
            if own.len() != theirs.len() || !own.iter().zip(theirs).all(|(own, theirs)| self.bind_one(*own, *theirs)) {
                return false;
            }
        }
        wanted.results.iter().zip(&symbol.results).all(|(own, theirs)| self.bind_one(*own, *theirs))
    }

    fn bind_one(&mut self, own: ValueId, theirs: ValueId) -> bool {
        match self.bound[own.index()] {
            Some(known) => known == theirs,
            None => {
                self.bound[own.index()] = Some(theirs);
                self.trail.push(own);
                true
            }
        }
    }

    /// Takes back what was bound since the trail had this length.
    fn undo(&mut self, mark: usize) {
        for id in self.trail.drain(mark..) {
            self.bound[id.index()] = None;
        }
    }

    /// Checks that the pattern, traced on the metas of its parameters, is what was found, and that it may be replaced.
    fn matched(&mut self) -> Option<Match> {
        let (block, pattern) = (self.block, self.pattern);
        let parameters: Vec<ValueId> =
            pattern.shape.block.parameters.iter().map(|id| self.bound[id.index()]).collect::<Option<_>>()?;
        let places: Vec<Place> = self.places.iter().copied().collect::<Option<_>>()?;
        let sides = pattern.sides(parameters.iter().map(|id| block.meta(*id).clone()).collect())?;
        let side = &sides.pattern;
        if side.symbols.len() != places.len() {
            return None;
        }
        let mut bound: Vec<Option<ValueId>> = vec![None; side.values.len()];
        side.parameters.iter().zip(&parameters).for_each(|(own, theirs)| bound[own.index()] = Some(*theirs));
        for (wanted, place) in side.symbols.iter().zip(&places) {
            let symbol = &block.symbols[place.symbol];
            let arguments = map_arguments(&wanted.arguments, |id| bound[id.index()]);
            let theirs = in_order(&symbol.arguments, place.swapped);
            let equal = arguments.len() == symbol.arguments.len()
                && arguments.iter().zip(theirs).all(|(own, theirs)| theirs.map(|id| Some(*id)) == *own);
            let in_order = !place.swapped || commutes(wanted);
            if symbol.callee != wanted.callee || !equal || !in_order || wanted.results.len() != symbol.results.len() {
                return None;
            }
            wanted.results.iter().zip(&symbol.results).for_each(|(own, theirs)| bound[own.index()] = Some(*theirs));
        }
        let results: Vec<ValueId> = side.results.iter().map(|id| bound[id.index()]).collect::<Option<_>>()?;
        let symbols: Vec<usize> = places.iter().map(|place| place.symbol).collect();
        let taken = self.taken_away(&symbols, &results);
        let consumed: Vec<usize> = taken.iter().map(|own| symbols[*own]).collect();
        let found = Match { symbols, consumed, parameters, results, sides };
        // A match that takes nothing away would be found again for ever.
        if found.consumed.is_empty() || !self.independent(&found) {
            return None;
        }
        match pattern.allowed(&found.sides, &taken) {
            Ok(()) => Some(found),
            Err(reason) => {
                if let Runners::Owners(Owners { executors, first }) = pattern.runners {
                    let reason = format!("{}: {reason}", pattern.rewrite.name);
                    self.refused.push((found.place(), Refusal { executor: executors[first].name, reason }));
                }
                None
            }
        }
    }

    /// Which symbols of the pattern a match takes away: all, but for those that make inner values which are read
    /// elsewhere, where the rewrite says so.
    fn taken_away(&self, symbols: &[usize], results: &[ValueId]) -> Vec<usize> {
        let mut stays = vec![false; symbols.len()];
        if self.pattern.rewrite.keep_inner {
            // What a symbol that stays reads stays as well: from the last one to the first.
            for (own, i) in symbols.iter().enumerate().rev() {
                let inner = self.block.symbols[*i].results.iter().filter(|id| !results.contains(id));
                let needed = |id: &ValueId| {
                    let read = |reader: &u32| match symbols.iter().position(|i| *i == *reader as usize) {
                        Some(matched) => stays[matched],
                        None => true,
                    };
                    self.uses.is_returned(*id) || self.uses.readers(*id).iter().any(read)
                };
                let needed = inner.copied().any(|id| needed(&id));
                stays[own] |= needed;
            }
        }
        (0..symbols.len()).filter(|own| !stays[*own]).collect()
    }

    /// Whether the match can be written where its last symbol was: nothing before that reads a matched result, no
    /// inner value is needed elsewhere, and the matched symbols do not feed parameters of the pattern.
    fn independent(&self, found: &Match) -> bool {
        let (block, last) = (self.block, found.place() as u32);
        let defined = || found.consumed.iter().flat_map(|i| block.symbols[*i].results.iter().copied());
        // A parameter that is computed from a matched result would be read before it exists.
        if defined().any(|id| found.parameters.contains(&id)) {
            return false;
        }
        let effects =
            found.symbols.iter().all(|i| block.symbols[*i].operator().is_some_and(|def| def.effects.mergeable()));
        effects
            && defined().all(|id| {
                let inner = !found.results.contains(&id);
                let outside = |i: &&u32| !found.consumed.contains(&(**i as usize));
                let mut readers = self.uses.readers(id).iter().filter(outside);
                let needed = inner && self.uses.is_returned(id);
                !needed && !readers.any(|i| inner || *i < last)
            })
            // A symbol that stays for an inner value's sake would make the result a second time.
            && (!self.pattern.rewrite.keep_inner || found.results.iter().all(|id| defined().any(|own| own == *id)))
    }
}
