//! The search for a pattern's matches. From the first symbol on it follows uses: the next candidates are the symbols
//! that make or read a bound value.

use std::rc::Rc;

use super::form::{self, Form};
use super::normal::Variant;
use super::pattern::{Owners, Pattern, Runners, Sides, commutes, exchangeable};
use super::uses::Uses;
use crate::argument::{Arg, Attribute, map_arguments};
use crate::fuel::Fuel;
use crate::meta::TensorMeta;
use crate::operator::{ParamDef, ParamKind};
use crate::refusal::Refusal;
use crate::trace::{Block, BoundSymbol, Pass, ValueId};
use crate::transforms::recompute::may_merge;

/// A match.
pub(super) struct Match {
    /// Indices of the matched symbols, one for each symbol of the pattern.
    pub(super) symbols: Vec<usize>,
    /// Of those the ones that it takes away: all but numbers that the program knows, and inner values that are kept.
    pub(super) consumed: Vec<usize>,
    /// What each tensor of the pattern is.
    pub(super) parameters: Vec<ValueId>,
    /// What each result of the pattern is.
    pub(super) results: Vec<ValueId>,
    /// Both sides for its metas and attributes.
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
    find(block, uses, pattern, fuel, Asked::Matches)
}

/// What a search is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Matches that are replaced.
    Matches,
    /// Whether a replacement has the pattern in it; `folded`: with a filled tensor that is read as its number.
    Replacement { folded: bool },
}

/// Whether what takes the place of a match would match again, without end. A match that reads a filled tensor as its
/// number takes the tensor away: it has an end unless the replacement has such a tensor again.
fn is_in_replacement(pattern: &Pattern<'_>, sides: &Sides, folded: bool) -> bool {
    let occurs = |block: &Block| {
        let uses = Uses::of(block, pattern.rewrite.late);
        !find(block, &uses, pattern, &mut Fuel::limited(1), Asked::Replacement { folded }).0.is_empty()
    };
    *sides.repeats[usize::from(folded)].get_or_init(|| pattern.replacement(sides).is_ok_and(occurs))
}

fn find(
    block: &Block,
    uses: &Uses,
    pattern: &Pattern<'_>,
    fuel: &mut Fuel,
    asked: Asked,
) -> (Vec<Match>, Vec<Refused>) {
    let (mut taken, mut found, mut refused) = (vec![false; block.symbols.len()], Vec::new(), Vec::new());
    for form in &*pattern.forms {
        let Some(first) = form.order.first() else { continue };
        let anchors = calls(uses, form, *first);
        if anchors.is_empty() {
            continue;
        }
        let mut search = Search {
            block,
            uses,
            pattern,
            form,
            anchor: 0,
            bound: vec![None; form.block.values.len()],
            trail: Vec::new(),
            places: vec![None; form.block.symbols.len()],
            taken: std::mem::take(&mut taken),
            refused: Vec::new(),
            asked,
        };
        let mut fuelled = true;
        for anchor in anchors {
            search.anchor = anchor;
            let next = search.extend(0);
            search.undo(0);
            search.places.fill(None);
            let Some(next) = next else { continue };
            fuelled = fuel.burn();
            if !fuelled {
                break;
            }
            next.consumed.iter().for_each(|i| search.taken[*i] = true);
            found.push(next);
        }
        taken = search.taken;
        refused.append(&mut search.refused);
        if !fuelled {
            break;
        }
    }
    (found, refused)
}

/// The symbols of the block that may be the one at `place` of a form, in order.
fn calls(uses: &Uses, form: &Form, place: usize) -> Vec<u32> {
    let variants = form.normals.variants(&form.block, place);
    let mut calls: Vec<u32> =
        variants.filter_map(|(_, symbol)| symbol.operator()).flat_map(|def| uses.calls(def)).copied().collect();
    calls.sort_unstable();
    calls.dedup();
    calls
}

/// A symbol of the block in the place of one of the pattern.
#[derive(Clone, Copy)]
struct Place {
    symbol: usize,
    /// Whether its first two arguments are in the other order.
    swapped: bool,
    /// The form of the pattern's symbol, and that of the block's, which are alike.
    own: Variant,
    theirs: Variant,
}

/// A search for matches.
struct Search<'a> {
    block: &'a Block,
    uses: &'a Uses,
    pattern: &'a Pattern<'a>,
    form: &'a Form,
    /// The line of the first symbol of the match.
    anchor: u32,
    /// The block's value for each value of the form.
    bound: Vec<Option<ValueId>>,
    /// Which of them were bound, in order.
    trail: Vec<ValueId>,
    /// The block's symbol for each symbol of the form.
    places: Vec<Option<Place>>,
    /// Symbols of matches that were made.
    taken: Vec<bool>,
    refused: Vec<Refused>,
    asked: Asked,
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
    /// Finds the symbol of the form that is the next in order, trying every candidate.
    fn extend(&mut self, next: usize) -> Option<Match> {
        let (block, uses, form) = (self.block, self.uses, self.form);
        let Some(place) = form.order.get(next).copied() else { return self.matched() };
        for i in self.candidates(next, place) {
            let i = i as usize;
            let symbol = &block.symbols[i];
            if self.taken[i]
                || symbol.executor.is_some()
                || !self.may_meet(symbol, &block.symbols[self.anchor as usize])
                || self.places.iter().flatten().any(|taken| taken.symbol == i)
            {
                continue;
            }
            for (own, wanted) in form.normals.variants(&form.block, place) {
                for (theirs, symbol) in uses.normals.variants(block, i) {
                    if symbol.callee != wanted.callee || symbol.arguments.len() != wanted.arguments.len() {
                        continue;
                    }
                    let orders = if exchangeable(wanted) { &[false, true][..] } else { &[false][..] };
                    for swapped in orders.iter().copied() {
                        let mark = self.trail.len();
                        if self.bind(wanted, symbol, swapped) {
                            self.places[place] = Some(Place { symbol: i, swapped, own, theirs });
                            if let Some(found) = self.extend(next + 1) {
                                return Some(found);
                            }
                            self.places[place] = None;
                        }
                        self.undo(mark);
                    }
                }
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

    /// The symbols that may be the one at `place` of the form, in the order in which they are tried: those after the
    /// match's first one, then those before it.
    fn candidates(&self, next: usize, place: usize) -> Vec<u32> {
        let wanted = &self.form.block.symbols[place];
        let bound = |id: &ValueId| self.bound[id.index()];
        if next == 0 {
            return vec![self.anchor];
        }
        if let Some(made) = wanted.results.iter().find_map(bound) {
            return self.uses.producer(made).into_iter().collect();
        }
        let readers = wanted.operands().filter_map(|id| bound(&id)).map(|value| self.uses.readers(value));
        let mut many = match readers.min_by_key(|readers| readers.len()) {
            Some(readers) => readers.to_vec(),
            None => calls(self.uses, self.form, place),
        };
        let split = many.partition_point(|i| *i <= self.anchor);
        many.rotate_left(split);
        many
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

    /// Checks that the pattern, traced for the metas and attributes of a match, is what was found, and that it may be
    /// replaced.
    fn matched(&mut self) -> Option<Match> {
        let (block, pattern, form) = (self.block, self.pattern, self.form);
        let parameters: Vec<ValueId> =
            form.block.parameters.iter().map(|id| self.bound[id.index()]).collect::<Option<_>>()?;
        let places: Vec<Place> = self.places.iter().copied().collect::<Option<_>>()?;
        let sides = pattern.sides(self.arguments(&parameters, &places)?)?;
        let side = &sides.pattern;
        if side.symbols.len() != places.len() {
            return None;
        }
        let mut bound: Vec<Option<ValueId>> = vec![None; side.values.len()];
        side.parameters.iter().zip(&parameters).for_each(|(own, theirs)| bound[own.index()] = Some(*theirs));
        let mut differing = None;
        for (at, place) in places.iter().enumerate() {
            let wanted = sides.normals.variant(side, at, place.own)?;
            let symbol = self.uses.normals.variant(block, place.symbol, place.theirs)?;
            let in_place = !place.swapped || commutes(wanted);
            if symbol.callee != wanted.callee
                || symbol.arguments.len() != wanted.arguments.len()
                || !in_place
                || wanted.results.len() != symbol.results.len()
            {
                return None;
            }
            let arguments = map_arguments(&wanted.arguments, |id| bound[id.index()]);
            for (i, (own, theirs)) in arguments.iter().zip(in_order(&symbol.arguments, place.swapped)).enumerate() {
                if theirs.map(|id| Some(*id)) != *own {
                    differing = Some(self.differing(at, place.own, i, own, theirs)?);
                }
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
        let is_folded = places.iter().any(|place| self.is_folded(place));
        if let Asked::Replacement { folded } = self.asked {
            let made = differing.is_none() && (is_folded || !folded) && pattern.accepts(&found.sides).is_ok();
            return made.then_some(found);
        }
        // A rewrite of a composite into what it stands for is done once it is written.
        let in_normal_form = |place: &Place| [place.own, place.theirs].contains(&Variant::Normal);
        let normal = self.form.normals.folded || places.iter().any(in_normal_form);
        if normal && is_in_replacement(pattern, &found.sides, is_folded) {
            return None;
        }
        if let Some(reason) = differing.or_else(|| pattern.accepts(&found.sides).clone().err()) {
            self.refuse(&found, reason);
            return None;
        }
        match pattern.left(block, &found.sides, &found.consumed) {
            Ok(()) => Some(found),
            Err(reason) => {
                // That no executor of the list takes part is no news of a rewrite that belongs to none.
                if let Runners::Owners(_) = pattern.runners {
                    self.refuse(&found, reason);
                }
                None
            }
        }
    }

    /// Whether a symbol of the block is matched with a number in place of a tensor that is filled with it.
    fn is_folded(&self, place: &Place) -> bool {
        let operands = |variant| {
            let symbol = self.uses.normals.variant(self.block, place.symbol, variant);
            symbol.map(|symbol| symbol.operands().count())
        };
        place.theirs == Variant::Normal && operands(Variant::Normal) < operands(Variant::Written)
    }

    /// The arguments of the pattern: metas of tensors, and attributes as the first place of each has them. `None` if an
    /// attribute is of another type than the pattern's.
    fn arguments(&self, tensors: &[ValueId], places: &[Place]) -> Option<Vec<Arg<TensorMeta>>> {
        let mut tensors = tensors.iter();
        let params = self.pattern.rewrite.params.iter().enumerate();
        let one = |(i, param): (usize, &ParamDef)| {
            if param.kind != ParamKind::Attribute {
                return Some(Arg::Tensor(self.block.meta(*tensors.next()?).clone()));
            }
            let binding = self.form.bindings.iter().find(|binding| binding.param == i)?;
            let found = binding.places.iter().find(|place| places[place.symbol].own == place.variant)?;
            let value = self.attribute(found, &places[found.symbol])?;
            (param.accepts)(value).then(|| Arg::Attribute(value.clone()))
        };
        params.map(one).collect()
    }

    /// What the program has where the pattern has an attribute.
    fn attribute(&self, found: &form::Place, place: &Place) -> Option<&'a Attribute> {
        let symbol = self.uses.normals.variant(self.block, place.symbol, place.theirs)?;
        found.of(in_order(&symbol.arguments, place.swapped).nth(found.argument)?)
    }

    /// Why there is no match where only an attribute differs that the pattern has elsewhere as well: `own` is what the
    /// pattern has as the argument at `argument` of its symbol at `at`. `None` if it differs otherwise.
    fn differing<A, B>(
        &self,
        at: usize,
        variant: Variant,
        argument: usize,
        own: &Arg<A>,
        theirs: &Arg<B>,
    ) -> Option<String> {
        self.form.bindings.iter().find_map(|binding| {
            let here =
                |place: &&form::Place| place.symbol == at && place.variant == variant && place.argument == argument;
            let place = binding.places.iter().find(here)?;
            let (one, two) = (place.of(own)?, place.of(theirs)?);
            let name = self.pattern.rewrite.params[binding.param].name;
            (one != two).then(|| format!("{name} is {one} in one place and {two} in another"))
        })
    }

    /// Says of a match why it was not replaced: for the executor that the rewrite prepares for, or for the rewrite.
    fn refuse(&mut self, found: &Match, reason: String) {
        let name = self.pattern.rewrite.name;
        let refusal = match self.pattern.runners {
            Runners::Owners(Owners { executors, first }) => {
                Refusal { executor: executors[first].name, reason: format!("{name}: {reason}") }
            }
            Runners::Any | Runners::OneOf(_) => Refusal { executor: name, reason },
        };
        self.refused.push((found.place(), refusal));
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
        let matched = || found.symbols.iter().filter_map(|i| block.symbols[*i].operator());
        let effects = matched().count() == found.symbols.len() && !matched().any(|def| def.effects.random);
        // A rewrite of collectives puts as many in.
        let collectives = matched().filter(|def| def.effects.collective).count();
        let put_in = |made: &Block| made.symbols.iter().filter(|symbol| symbol.is_ordered()).count() == collectives;
        let put_in = collectives == 0 || self.pattern.replacement(&found.sides).is_ok_and(put_in);
        effects
            && put_in
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
