//! Recomputation: what the backward pass needs of the forward pass is computed again where that costs next to nothing,
//! instead of being kept until then.
//!
//! A value is computed again if it is large, the backward pass reads it, and arithmetic on elements (or a kernel
//! declared `cheap`) makes it of values that are kept in any case, of small ones, and of inputs: the output of a
//! normalization from its input, an activation from what it was applied to. One that is made of values that would not
//! be kept, but together have fewer bytes, is made again too, and these are kept in its place: a number of 16 bits for
//! what is computed of it in f32. The bits are the same. It costs one more pass over memory, so that small values, for
//! which a launch takes longer than the pass, stay as they are.
//!
//! A tensor that ranks gathered of their parts is gathered again, where that is asked for: it takes no room between its
//! uses then.

use crate::operator::{Role, RuleSet};
use crate::registry::role;
use crate::strided::LayoutRules;
use std::sync::Arc;

use super::cheap::Cheap;
use super::flatten::{Flattener, Substitution};
use crate::argument::map_arguments;
use crate::fuel::Fuel;
use crate::trace::{Block, BoundSymbol, Pass, Results, StageName, Trace, ValueId};

/// The scope of the names of what is computed again.
const AGAIN: &str = "grad.again.";

/// Bytes from which on it is worth it: at a few terabytes a second a pass over so much takes as long as a few launches.
pub const FROM_BYTES: u64 = 8 << 20;

/// A value of at most this part of the least size may be kept for the sake of one that is computed again.
const SMALL_SHARE: u64 = 16;

/// The longest chain of symbols that makes one value.
const LONGEST: usize = 24;

/// Whether a symbol may be gathered into one region with an earlier one, `first`: what is computed again for the
/// backward pass is not drawn forward into the forward pass, where its result would be kept after all.
pub fn may_join(first: &BoundSymbol, symbol: &BoundSymbol) -> bool {
    symbol.pass != Pass::Recomputed || first.pass != Pass::Forward
}

/// Whether two symbols may become parts of one: not what is computed again and what is computed before, whose operands
/// would be kept until then.
pub(super) fn may_merge(one: &BoundSymbol, other: &BoundSymbol) -> bool {
    may_join(one, other) && may_join(other, one)
}

/// Bytes up to which a value that would be computed again costs nothing to keep, beside the largest that is: the
/// statistics of rows, say. What a checkpoint computes again may be much larger than what this stage does; a value
/// that would be worth it here is never small.
pub(super) fn small(block: &Block) -> u64 {
    let again = block.symbols.iter().filter(|symbol| symbol.pass == Pass::Recomputed);
    let bytes = again.flat_map(|symbol| &symbol.results).map(|id| block.meta(*id).bytes() as u64);
    bytes.max().unwrap_or(0).min(FROM_BYTES) / SMALL_SHARE
}

/// Whether a symbol computes again values of at most `small` bytes.
pub(super) fn is_small(block: &Block, symbol: &BoundSymbol, small: u64) -> bool {
    symbol.pass == Pass::Recomputed && symbol.results.iter().all(|id| block.meta(*id).bytes() as u64 <= small)
}

/// How a value is made again.
#[derive(Debug, Clone, Copy)]
enum Recipe {
    /// By its own symbol.
    Symbol,
    /// By one symbol of the decomposition of its own, at this place there: from results of its own and operands.
    Inner(usize),
}

/// What is known of the values of a block.
struct Forward<'a> {
    block: &'a Block,
    producers: Vec<Option<usize>>,
    /// The value whose elements each one shows: itself, unless it is a view.
    roots: Vec<ValueId>,
    /// Whether the backward pass reads it, or a view of it.
    kept: Vec<bool>,
    /// How it is computed again, if it is.
    again: Vec<Option<Recipe>>,
    cheap: Cheap,
    least: Least,
}

/// The least bytes of a value that is made again.
#[derive(Debug, Clone, Copy)]
pub struct Least {
    /// Of one that is computed; none where nothing is computed again.
    pub computed: Option<u64>,
    /// Of one that is gathered; none where nothing is gathered again.
    pub gathered: Option<u64>,
}

impl<'a> Forward<'a> {
    fn new(block: &'a Block, least: Least) -> Forward<'a> {
        let count = block.values.len();
        let (mut producers, mut roots) = (vec![None; count], (0..count as u32).map(ValueId).collect::<Vec<_>>());
        let mut kept = vec![false; count];
        for (i, symbol) in block.symbols.iter().enumerate() {
            symbol.results.iter().for_each(|id| producers[id.index()] = Some(i));
            let def = symbol.operator();
            if def.is_some_and(|def| LayoutRules::of(def).view.is_some())
                && let (Some(operand), [result]) = (symbol.operands().next(), &symbol.results[..])
                && block.meta(operand).len() == block.meta(*result).len()
            {
                roots[result.index()] = roots[operand.index()];
            }
            if symbol.pass != Pass::Forward {
                symbol.operands().for_each(|id| kept[roots[id.index()].index()] = true);
            }
        }
        block.results.iter().for_each(|id| kept[roots[id.index()].index()] = true);
        Forward { block, producers, roots, kept, again: vec![None; count], cheap: Cheap::new(), least }
    }

    fn bytes(&self, id: ValueId) -> u64 {
        self.block.meta(id).bytes() as u64
    }

    /// Whether the value is there in the backward pass whatever is done here, or costs nothing to keep.
    fn available(&self, id: ValueId) -> bool {
        let root = self.roots[id.index()].index();
        self.producers[root].is_none()
            || self.bytes(self.roots[id.index()]).saturating_mul(SMALL_SHARE) <= self.least_beside(root)
            || (self.kept[root] && self.again[root].is_none())
    }

    /// The least bytes of what is made again, beside which the value with this number is small. One that is gathered
    /// once is like one that is computed: it is not kept for the sake of a smaller one.
    fn least_beside(&self, value: usize) -> u64 {
        let once = self.least.gathered.is_none();
        self.least.computed.filter(|_| once).map_or_else(|| self.least_bytes(value), |least| least.max(1))
    }

    /// The least bytes of the value with this number, if it is to be made again.
    fn least_bytes(&self, value: usize) -> u64 {
        let line = self.producers[value].map(|line| &self.block.symbols[line]);
        let least = if line.is_some_and(is_gathered) { self.least.gathered } else { self.least.computed };
        least.map_or(u64::MAX, |least| least.max(1))
    }

    /// Decides for every value, in the order of the program.
    fn decide(&mut self, fuel: &mut Fuel) {
        let mut returned = vec![false; self.block.values.len()];
        self.block.results.iter().for_each(|id| returned[self.roots[id.index()].index()] = true);
        for (i, symbol) in self.block.symbols.iter().enumerate() {
            if symbol.pass != Pass::Forward {
                continue;
            }
            for id in &symbol.results {
                let own = self.roots[id.index()] == *id;
                if own
                    && self.kept[id.index()]
                    && !returned[id.index()]
                    && self.bytes(*id) >= self.least_bytes(id.index())
                {
                    self.again[id.index()] = match self.recipe(i, *id) {
                        Some(recipe) => Some(recipe).filter(|_| fuel.burn()),
                        None => self.of_fewer_bytes(i, *id).filter(|_| fuel.burn()).map(|kept| {
                            kept.iter().for_each(|id| self.kept[id.index()] = true);
                            Recipe::Symbol
                        }),
                    };
                }
            }
        }
    }

    fn recipe(&mut self, symbol: usize, id: ValueId) -> Option<Recipe> {
        let mut budget = LONGEST;
        if self.made_again(symbol, id, &mut budget) {
            return Some(Recipe::Symbol);
        }
        let outer = &self.block.symbols[symbol];
        let body = outer.body.clone()?;
        let inner = body.results[outer.results.iter().position(|result| *result == id)?];
        let at = body.symbols.iter().position(|line| line.results.contains(&inner))?;
        let line = &body.symbols[at];
        let operands: Vec<ValueId> = line.operands().map(|id| outside(outer, &body, id)).collect::<Option<_>>()?;
        let fits = self.repeatable(line) && operands.iter().all(|operand| *operand != id && self.available(*operand));
        fits.then_some(Recipe::Inner(at))
    }

    /// The values that are kept in the place of `id`, a result of `symbol`, which cheap symbols make of them and of
    /// what is available; `None` unless they have fewer bytes.
    fn of_fewer_bytes(&mut self, symbol: usize, id: ValueId) -> Option<Vec<ValueId>> {
        let (mut kept, mut budget) = (Vec::new(), LONGEST);
        let made = self.made_of(symbol, id, &mut kept, &mut budget);
        let bytes = kept.iter().map(|id| self.bytes(*id)).fold(0, u64::saturating_add);
        // A pass over memory is worth a good part of the bytes.
        (made && !kept.is_empty() && bytes <= self.bytes(id) / 4 * 3).then_some(kept)
    }

    /// Whether cheap symbols make `id`, a result of `symbol`, of what is available and of smaller values, which are
    /// added to `kept`; `budget` counts down.
    fn made_of(&mut self, symbol: usize, id: ValueId, kept: &mut Vec<ValueId>, budget: &mut usize) -> bool {
        let block = self.block;
        let line = &block.symbols[symbol];
        if *budget == 0 || !self.repeatable(line) {
            return false;
        }
        *budget -= 1;
        line.operands().all(|operand| {
            let root = self.roots[operand.index()];
            if operand == id {
                return false;
            }
            if self.available(operand) || kept.contains(&root) {
                return true;
            }
            if self.bytes(root) < self.bytes(id) {
                kept.push(root);
                return true;
            }
            self.producers[operand.index()].is_some_and(|next| self.made_of(next, id, kept, budget))
        })
    }

    /// Whether a symbol is cheap, and gives the same whenever it is run.
    fn repeatable(&mut self, line: &BoundSymbol) -> bool {
        if is_gathered(line) {
            return self.least.gathered.is_some();
        }
        self.cheap.holds(line) && line.operator().is_some_and(|def| def.effects.mergeable())
    }

    /// Whether cheap symbols make `id`, a result of `symbol`, of what is available; `budget` counts down.
    fn made_again(&mut self, symbol: usize, id: ValueId, budget: &mut usize) -> bool {
        let line = &self.block.symbols[symbol];
        if *budget == 0 || !self.repeatable(line) {
            return false;
        }
        *budget -= 1;
        line.operands().all(|operand| {
            operand != id
                && (self.available(operand)
                    || self.producers[operand.index()].is_some_and(|next| self.made_again(next, id, budget)))
        })
    }
}

/// Whether a line gathers a tensor of the ranks' parts.
fn is_gathered(line: &BoundSymbol) -> bool {
    line.operator().is_some_and(|def| role(Role::Whole).is_ok_and(|whole| std::ptr::eq(whole, def)))
}

/// What a value of the body is outside: an operand or a result of the symbol.
fn outside(symbol: &BoundSymbol, body: &Block, id: ValueId) -> Option<ValueId> {
    let operand = body.parameters.iter().position(|parameter| *parameter == id);
    match operand {
        Some(n) => symbol.operands().nth(n),
        None => body.results.iter().position(|result| *result == id).map(|n| symbol.results[n]),
    }
}

/// Writes what is computed again before it is first read by the backward pass.
struct Writer<'a> {
    forward: &'a Forward<'a>,
    flattener: Flattener,
    /// What the values became, and those that were computed again.
    substitution: Substitution,
    again: Substitution,
}

impl Writer<'_> {
    /// The value as the backward pass reads it: what is not computed again is kept for it.
    fn read(&mut self, id: ValueId) -> ValueId {
        let root = self.forward.roots[id.index()];
        if self.forward.again[root.index()].is_some() {
            self.made(id)
        } else {
            Flattener::mapped(&self.substitution, id)
        }
    }

    /// The value as one that is computed again reads it.
    fn made(&mut self, id: ValueId) -> ValueId {
        if let Some(again) = self.again[id.index()] {
            return again;
        }
        let forward = self.forward;
        let root = forward.roots[id.index()];
        let Some(producer) = forward.producers[id.index()].filter(|_| !forward.available(id)) else {
            return Flattener::mapped(&self.substitution, id);
        };
        let outer = &forward.block.symbols[producer];
        match forward.again[root.index()].filter(|_| root == id) {
            Some(Recipe::Inner(at)) => {
                let Some(body) = outer.body.as_deref() else { return Flattener::mapped(&self.substitution, id) };
                let line = &body.symbols[at];
                let arguments = map_arguments(&line.arguments, |inner| {
                    outside(outer, body, *inner).map_or(ValueId(u32::MAX), |id| self.made(id))
                });
                let results = line.results.iter().map(|result| {
                    (outside(outer, body, *result), body.value(*result).meta.clone(), body.value(*result).name.clone())
                });
                let results: Vec<_> = results.collect();
                self.write(line, arguments, outer, results);
            }
            _ => {
                let arguments = map_arguments(&outer.arguments, |id| self.made(*id));
                let results = outer.results.iter().map(|result| {
                    let value = forward.block.value(*result);
                    (Some(*result), value.meta.clone(), value.name.clone())
                });
                let results: Vec<_> = results.collect();
                self.write(outer, arguments, outer, results);
            }
        }
        self.again[id.index()].unwrap_or(id)
    }

    fn write(
        &mut self,
        line: &BoundSymbol,
        arguments: Vec<crate::argument::Arg<ValueId>>,
        outer: &BoundSymbol,
        results: Vec<(Option<ValueId>, crate::TensorMeta, Arc<str>)>,
    ) {
        let mut written = Results::new();
        for (id, meta, name) in results {
            let name = id.map_or(name, |id| self.forward.block.value(id).name.clone());
            let name = self.flattener.fresh(&format!("{AGAIN}{name}"));
            let new = self.flattener.define(name, meta);
            if let Some(id) = id {
                self.again[id.index()] = Some(new);
            }
            written.push(new);
        }
        self.flattener.push(BoundSymbol {
            arguments,
            results: written,
            pass: Pass::Recomputed,
            place: outer.place,
            ..line.clone()
        });
    }
}

/// Makes again what is worth it: values of at least so many bytes. `None` if there are none.
pub fn recompute(trace: &Trace, least: Least, fuel: &mut Fuel) -> Option<Trace> {
    let block = &trace.block;
    let mut forward = Forward::new(block, least);
    forward.decide(fuel);
    if forward.again.iter().all(Option::is_none) {
        return None;
    }
    let (flattener, substitution) = Flattener::new(block);
    let mut writer = Writer { forward: &forward, flattener, again: vec![None; block.values.len()], substitution };
    for symbol in &block.symbols {
        if symbol.pass != Pass::Forward {
            // Only the backward pass reads the copies.
            let before: Vec<(ValueId, Option<ValueId>)> =
                symbol.operands().map(|id| (id, writer.substitution[id.index()])).collect();
            let read: Vec<ValueId> = before.iter().map(|(id, _)| writer.read(*id)).collect();
            for ((id, _), read) in before.iter().zip(read) {
                writer.substitution[id.index()] = Some(read);
            }
            writer.flattener.copy(block, symbol, &mut writer.substitution);
            for (id, old) in before {
                writer.substitution[id.index()] = old;
            }
        } else {
            writer.flattener.copy(block, symbol, &mut writer.substitution);
        }
    }
    Some(trace.at_stage(StageName::Recompute, writer.flattener.finish(block, &writer.substitution)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;

    const BYTES: u64 = 4000;

    /// The stages of a program with this body, over `w` and `x`.
    fn again(body: &str) -> Option<String> {
        let text =
            format!("# fulgurite trace 2\ntrace f for cpu (w: f32[1000] donated, x: f32[1000]) {{\n{body}\n}}\n");
        let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        trace.verify().unwrap();
        let least = |bytes| Least { computed: Some(bytes), gathered: None };
        let with = |bytes, mut fuel| recompute(&trace, least(bytes), &mut fuel);
        let next = with(BYTES, Fuel::UNLIMITED)?;
        next.verify().unwrap();
        assert!(with(BYTES, Fuel::limited(0)).is_none(), "each takes fuel");
        assert!(with(BYTES + 1, Fuel::UNLIMITED).is_none(), "smaller ones stay");
        Some(next.to_string())
    }

    #[test]
    fn what_is_cheap_to_make_of_what_is_kept_is_made_again() {
        let text = again(
            "a: f32[1000] = tt::exp(x)\nb: f32[1000] = tt::cheap(a)\nc: f32[1000] = tt::cheap(b)\n\
             pass backward\ngrad.d: f32[1000] = tt::mixed(c, weight=a, other=x, last=c)\nreturn grad.d, a",
        )
        .unwrap();
        let read = "  pass recomputed\n  grad.again.b = tt::cheap(a)\n  grad.again.c = tt::cheap(.b)\n  pass backward\n\
                     \x20 grad.d = tt::mixed(.again.c, weight=a, other=x, last=.again.c)\n";
        assert!(text.contains(read), "{text}");
    }

    #[test]
    fn what_is_made_of_fewer_bytes_is_made_again_of_these() {
        let again = |body: &str| {
            let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[1000]) {{\n{body}\n}}\n");
            let trace = parse(&text).unwrap();
            trace.verify().unwrap();
            let mut fuel = Fuel::UNLIMITED;
            let next = recompute(&trace, Least { computed: Some(BYTES), gathered: None }, &mut fuel)?;
            next.verify().unwrap();
            Some(next.to_string())
        };
        let text = again(
            "a: f32[1000] = tt::exp(x)\nb: f64[1000] = tt::widen(a)\nc: f64[1000] = tt::cheap(b)\npass backward\n\
             grad.d: f64[1000] = tt::add(c, c)\nreturn grad.d",
        )
        .unwrap();
        let read = "  pass recomputed\n  grad.again.b: f64[1000] = tt::widen(a)\n  grad.again.c = tt::cheap(.b)\n";
        assert!(text.contains(read), "{text}");
        // Of as many bytes nothing is gained.
        let same = "a: f32[1000] = tt::exp(x)\nc: f32[1000] = tt::cheap(a)\npass backward\n\
                    grad.d: f32[1000] = tt::add(c, c)\nreturn grad.d";
        assert_eq!(again(same), None);
    }

    #[test]
    fn what_is_dear_or_returned_or_needs_what_is_not_kept_stays() {
        for body in [
            "b: f32[1000] = tt::exp(x)\npass backward\ngrad.d: f32[1000] = tt::add(b, x)\nreturn grad.d",
            "b: f32[1000] = tt::cheap(x)\npass backward\ngrad.d: f32[1000] = tt::add(b, x)\nreturn grad.d, b",
            "a: f32[1000] = tt::exp(x)\nb = tt::cheap(a)\npass backward\ngrad.d = tt::add(b, x)\nreturn grad.d",
            "b: f32[1000] = tt::cheap(x)\nd: f32[1000] = tt::add(b, x)\nreturn d",
        ] {
            assert_eq!(again(body), None, "{body}");
        }
    }
}
