//! Channels innermost: kernels of convolutions that are faster so get images [N, L1, ..., C] in place of [N, C, L1,
//! ...], and hand them on so.
//!
//! A layout is a shape here: the value `x.innermost` has the elements of `x` in the other order of dimensions, and is
//! contiguous as any value is. Arithmetic that leads from one such kernel to another is done on what they have, and
//! reductions and broadcasts name the dimensions as they are there. What reads `x` otherwise reads a view of
//! `x.innermost`; what a kernel needs so and nothing made so is copied once.

use super::attributes::{argument, with_attribute};
use super::claim;
use super::dce;
use super::flatten::{At, Flattener, Substitution};
use crate::argument::{Arg, AttributeType, map_arguments};
use crate::arithmetic::{Arithmetic, Elements};
use crate::choices::Ranking;
use crate::error::{CallStack, Error, Failure, Result};
use crate::fuel::Fuel;
use crate::meta::TensorMeta;
use crate::operator::{Role, RuleSet};
use crate::registry::role;
use crate::strided::{CHANNELS_INNERMOST, Channels, LayoutRules};
use crate::trace::{Block, BoundSymbol, Pass, Results, StageName, Trace, ValueId};
use crate::tracer::{infer, with_defaults};
use fulgurite_kernels::view::contiguous_strides;
use std::sync::Arc;

/// The longest chain of symbols that is done once more for a value that no kernel has made.
const LONGEST: usize = 32;

/// Gives kernels that would rather have channels innermost what they ask for; `None` if none gains by it, and if no
/// executor of the list copies images.
///
/// # Errors
/// If a kernel asks for it, and its operator computes something else then.
pub fn channels(trace: &Trace, ranking: &Ranking<'_>, fuel: &mut Fuel) -> Result<Option<Trace>> {
    let source = &trace.block;
    let asked: Vec<Option<Channels>> = source.symbols.iter().map(|symbol| asked(source, symbol)).collect();
    if !asked.iter().flatten().any(|channels| channels.gains) {
        return Ok(None);
    }
    let asked: Vec<Option<Channels>> = asked.into_iter().map(|channels| channels.filter(|_| fuel.burn())).collect();
    if asked.iter().all(Option::is_none) {
        return Ok(None);
    }
    let first = Decision::of(source, &asked, &vec![false; source.symbols.len()]);
    let Decision { lines, cheap } = Decision::of(source, &asked, &first.idle(source));
    let mut writer = Writer::new(trace, cheap);
    for (symbol, form) in source.symbols.iter().zip(lines) {
        match form {
            Form::Kernel(channels) => writer.kernel(symbol, channels)?,
            Form::Arithmetic => writer.arithmetic_of(symbol)?,
            Form::Reduction => writer.reduction(symbol)?,
            Form::Own => writer.copy(symbol)?,
        }
    }
    let turned = trace.at_stage(StageName::Channels, writer.finish()?);
    match claim::claim(&turned, ranking, fuel) {
        Ok(claimed) => {
            let block = claim::without_bodies(dce::live(claimed.block).canonical());
            Ok(Some(Trace { block, ..turned }))
        }
        // No executor of the list copies images or computes with them: the program runs as it is.
        Err(Error::Unclaimed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a symbol's kernel asks for, unless it has it already.
fn asked(block: &Block, symbol: &BoundSymbol) -> Option<Channels> {
    let def = symbol.operator()?;
    let rule = LayoutRules::of(def).channels.filter(|_| symbol.executor.is_some())?;
    match argument(symbol, CHANNELS_INNERMOST) {
        Some(Arg::Attribute(given)) if bool::from_attribute(given) == Some(true) => None,
        _ => rule(&block.argument_metas(symbol)),
    }
}

/// Where dimension `dim` of `rank` is with channels innermost.
fn place(dim: usize, rank: usize) -> usize {
    match dim {
        0 => 0,
        1 => rank - 1,
        _ => dim - 1,
    }
}

/// The dimensions in the order that they have with channels innermost.
fn inwards(rank: usize) -> Vec<usize> {
    (0..rank.min(1)).chain(2..rank).chain(1..rank.min(2)).collect()
}

/// A shape with channels innermost.
fn turned(shape: &[usize]) -> Vec<usize> {
    inwards(shape.len()).into_iter().map(|dim| shape[dim]).collect()
}

/// Whether tensors of this shape have channels, and dimensions that these could be behind.
fn has_channels(shape: &[usize]) -> bool {
    shape.len() > 2
}

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Own,
    /// A kernel that has channels innermost.
    Kernel(Channels),
    /// Arithmetic on what is there with channels innermost, or is made so as cheaply as it is.
    Arithmetic,
    /// A reduction of what is there with channels innermost.
    Reduction,
}

/// How each line is written.
struct Decision {
    lines: Vec<Form>,
    /// For each value that is made of numbers and of broadcasts alone, the line that makes it, and how many lines lead
    /// there: with channels innermost it is made by as much arithmetic.
    cheap: Vec<Option<(usize, usize)>>,
}

impl Decision {
    /// Channels are innermost from a kernel on, as far as all operands of a line have them so; not in lines that are
    /// `idle`.
    fn of(source: &Block, asked: &[Option<Channels>], idle: &[bool]) -> Decision {
        let count = source.values.len();
        let (mut there, mut cheap) = (vec![false; count], vec![None; count]);
        let mut lines = Vec::with_capacity(source.symbols.len());
        for (line, symbol) in source.symbols.iter().enumerate() {
            if let Some(channels) = asked[line] {
                let tensors = symbol.operands().chain(symbol.results.iter().copied());
                for (id, is_image) in tensors.zip(channels.images) {
                    there[id.index()] |= *is_image;
                }
                lines.push(Form::Kernel(channels));
                continue;
            }
            let links = |id: ValueId| match there[id.index()] {
                true => Some(0),
                false => cheap[id.index()].map(|(_, links): (usize, usize)| links),
            };
            let all: Option<Vec<usize>> = symbol.operands().map(links).collect();
            let some = symbol.operands().any(|id| there[id.index()]);
            let form = match (kind_of(source, symbol), all) {
                (Some(Kind::Elementwise), Some(_)) if some && !idle[line] && takes_turned(source, symbol) => {
                    symbol.operands().chain(symbol.results.iter().copied()).for_each(|id| there[id.index()] = true);
                    Form::Arithmetic
                }
                (Some(Kind::Elementwise), Some(links)) if !some && takes_turned(source, symbol) => {
                    let links = links.into_iter().max().unwrap_or(0) + 1;
                    cheap[symbol.results[0].index()] = (links < LONGEST).then_some((line, links));
                    Form::Own
                }
                (Some(Kind::Fill | Kind::Broadcast), _) => {
                    cheap[symbol.results[0].index()] = Some((line, 0));
                    Form::Own
                }
                (Some(Kind::Reduction), _) if some && keeps_order(source, symbol) => Form::Reduction,
                _ => Form::Own,
            };
            lines.push(form);
        }
        Decision { lines, cheap }
    }

    /// The lines of arithmetic that lead to no kernel with channels innermost, but to arithmetic in the own shape. What
    /// comes before them is better turned there: it is less than what they make of it.
    fn idle(&self, source: &Block) -> Vec<bool> {
        let count = source.values.len();
        let (mut feeds, mut turned_back) = (vec![false; count], vec![false; count]);
        let mut idle = vec![false; self.lines.len()];
        for (line, symbol) in source.symbols.iter().enumerate().rev() {
            match self.lines[line] {
                Form::Kernel(channels) => {
                    for (id, is_image) in symbol.operands().zip(channels.images) {
                        feeds[id.index()] |= *is_image;
                    }
                }
                Form::Arithmetic => {
                    let result = symbol.results[0].index();
                    idle[line] = turned_back[result] && !feeds[result];
                    for id in symbol.operands() {
                        feeds[id.index()] |= feeds[result];
                        turned_back[id.index()] |= idle[line];
                    }
                }
                Form::Own if kind_of(source, symbol) == Some(Kind::Elementwise) => {
                    symbol.operands().for_each(|id| turned_back[id.index()] = true);
                }
                Form::Own | Form::Reduction => {}
            }
        }
        idle
    }
}

/// Whether arithmetic computes the same of images with channels innermost. An operator may have rules about extents.
fn takes_turned(block: &Block, symbol: &BoundSymbol) -> bool {
    let turned_meta = |id: &ValueId| {
        let meta = block.meta(*id);
        meta.with_shape(turned(meta.shape()))
    };
    let metas = map_arguments(&symbol.arguments, turned_meta);
    let results = symbol.operator().map(|def| infer(def, &metas));
    let expected: Vec<TensorMeta> = symbol.results.iter().map(turned_meta).collect();
    matches!(results, Some(Ok((results, _))) if results == expected)
}

/// Whether a reduction of images keeps dimensions that are in the same order with channels innermost.
fn keeps_order(block: &Block, symbol: &BoundSymbol) -> bool {
    let (Some(dims), Some(operand)) = (dims_of(symbol), symbol.operands().next()) else { return false };
    inwards(block.meta(operand).rank()).into_iter().filter(|dim| !dims.contains(dim)).is_sorted()
}

/// A block being written.
struct Writer<'a> {
    source: &'a Block,
    flattener: Flattener,
    /// The values with their own shapes; a value that is there with channels innermost has none before it is read.
    own: Substitution,
    /// The values with channels innermost.
    innermost: Substitution,
    /// See [`Decision::cheap`].
    cheap: Vec<Option<(usize, usize)>>,
    /// Inputs that have channels innermost in memory: a view shows them so.
    already: Vec<ValueId>,
}

impl Writer<'_> {
    fn new(trace: &Trace, cheap: Vec<Option<(usize, usize)>>) -> Writer<'_> {
        let source = &trace.block;
        let (flattener, own) = Flattener::new(source);
        let already = source.parameters.iter().zip(&trace.inputs).filter_map(|(id, input)| {
            let strides = input.strides.as_ref()?;
            let of_turned: Vec<isize> = inwards(strides.len()).into_iter().map(|dim| strides[dim]).collect();
            (of_turned == contiguous_strides(&turned(source.meta(*id).shape()))).then_some(*id)
        });
        let already = already.collect();
        Writer { source, flattener, own, innermost: vec![None; source.values.len()], cheap, already }
    }

    fn finish(mut self) -> Result<Block> {
        let source = self.source;
        for id in &source.results {
            // An input that is returned has its own shape, and everything else has a line.
            let line = source.symbols.iter().find(|symbol| symbol.results.contains(id));
            self.own(*id, line.map_or(At(Pass::Forward, None), At::from))?;
        }
        Ok(self.flattener.finish(source, &self.own))
    }

    /// A value with its own shape.
    fn own(&mut self, id: ValueId, at: At) -> Result<ValueId> {
        if let (None, Some(innermost)) = (self.own[id.index()], self.innermost[id.index()]) {
            let rank = self.source.meta(id).rank();
            let back: Vec<usize> = (0..rank).map(|dim| place(dim, rank)).collect();
            let arguments = vec![Arg::Tensor(innermost), Arg::value(back)];
            let name = self.source.value(id).name.clone();
            self.own[id.index()] = Some(self.flattener.call(role(Role::Permute)?, arguments, name, at)?);
        }
        Ok(Flattener::mapped(&self.own, id))
    }

    /// A value with channels innermost: as it is there, made as the value was, or copied.
    fn innermost(&mut self, id: ValueId, at: At) -> Result<ValueId> {
        if let Some(known) = self.innermost[id.index()] {
            return Ok(known);
        }
        let made = match self.cheap[id.index()] {
            Some((line, _)) => self.arithmetic(&self.source.symbols[line], at)?,
            None => {
                let own = self.own(id, at)?;
                let seen = vec![Arg::Tensor(own), Arg::value(inwards(self.source.meta(id).rank()))];
                let name = self.fresh(id, "turned");
                let seen = self.flattener.call(role(Role::Permute)?, seen, name, at)?;
                if self.already.contains(&id) {
                    seen
                } else {
                    let copies = role(Role::Contiguous)?;
                    let name = self.fresh(id, "innermost");
                    self.flattener.call(copies, with_defaults(copies, vec![Arg::Tensor(seen)]), name, at)?
                }
            }
        };
        self.innermost[id.index()] = Some(made);
        Ok(made)
    }

    fn fresh(&mut self, of: ValueId, what: &str) -> Arc<str> {
        self.flattener.fresh(&format!("{}.{what}", self.source.value(of).name))
    }

    /// Writes a kernel with channels innermost.
    fn kernel(&mut self, symbol: &BoundSymbol, channels: Channels) -> Result<()> {
        let source = self.source;
        let refused = |message: String| Error::Operator {
            operator: symbol.called(),
            failure: Failure::new("Channels", format!("asks for channels innermost, and {message}")),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        };
        let operands: Vec<ValueId> = symbol.operands().collect();
        let (Some(def), true) = (symbol.operator(), channels.images.len() == operands.len() + symbol.results.len())
        else {
            let given = operands.len() + symbol.results.len();
            return Err(refused(format!("says so of {} tensors, it has {given}", channels.images.len())));
        };
        let mut read = Vec::with_capacity(operands.len());
        for (id, is_image) in operands.iter().zip(channels.images) {
            let at = At::from(symbol);
            read.push(if *is_image { self.innermost(*id, at)? } else { self.own(*id, at)? });
        }
        let mut next = read.into_iter();
        let mut turned_symbol = symbol.clone();
        turned_symbol.arguments = map_arguments(&symbol.arguments, |id| next.next().unwrap_or(*id));
        let Some(arguments) = with_attribute(&turned_symbol, CHANNELS_INNERMOST, Arg::value(true)) else {
            return Err(refused(format!("has no argument {CHANNELS_INNERMOST}")));
        };
        let metas = map_arguments(&arguments, |id| self.flattener.block().meta(*id).clone());
        let (metas, _) =
            infer(def, &metas).map_err(|error| refused(format!("does not take them: {}", error.of(def.name, None))))?;
        let are_images = &channels.images[operands.len()..];
        let expected = |id: &ValueId, is_image: bool| {
            let own = source.meta(*id);
            if is_image { own.with_shape(turned(own.shape())) } else { own.clone() }
        };
        let expected: Vec<TensorMeta> =
            symbol.results.iter().zip(are_images).map(|(id, is_image)| expected(id, *is_image)).collect();
        if metas != expected {
            return Err(refused("computes something else of them".to_owned()));
        }
        let mut results = Results::new();
        for ((id, meta), is_image) in symbol.results.iter().zip(metas).zip(are_images) {
            let name = if *is_image { self.fresh(*id, "innermost") } else { source.value(*id).name.clone() };
            let made = self.flattener.define(name, meta);
            let known = if *is_image { &mut self.innermost } else { &mut self.own };
            known[id.index()] = Some(made);
            results.push(made);
        }
        self.flattener.push(BoundSymbol { arguments, results, body: None, ..turned_symbol });
        Ok(())
    }

    /// Writes a symbol as it is.
    fn copy(&mut self, symbol: &BoundSymbol) -> Result<()> {
        for id in symbol.operands() {
            self.own(id, symbol.into())?;
        }
        self.flattener.copy(self.source, symbol, &mut self.own);
        Ok(())
    }

    /// Writes arithmetic on what is there with channels innermost.
    fn arithmetic_of(&mut self, symbol: &BoundSymbol) -> Result<()> {
        self.innermost[symbol.results[0].index()] = Some(self.arithmetic(symbol, symbol.into())?);
        Ok(())
    }

    /// The result of arithmetic, a broadcast or a number, with channels innermost.
    fn arithmetic(&mut self, symbol: &BoundSymbol, at: At) -> Result<ValueId> {
        let source = self.source;
        let (Some(def), [result]) = (symbol.operator(), &symbol.results[..]) else {
            unreachable!("arithmetic has an operator and a result")
        };
        let shape = Arg::value(turned(source.meta(*result).shape()));
        let arguments = match kind_of(source, symbol) {
            Some(Kind::Fill) => with_attribute(symbol, "size", shape),
            Some(Kind::Broadcast) => {
                let Some(operand) = symbol.operands().next() else { unreachable!("a broadcast has an operand") };
                let rank = source.meta(*result).rank();
                let places: Vec<usize> =
                    dims_of(symbol).unwrap_or_default().into_iter().map(|dim| place(dim, rank)).collect();
                let mut order: Vec<usize> = (0..places.len()).collect();
                order.sort_by_key(|dim| places[*dim]);
                let mut repeated = self.own(operand, at)?;
                if !order.is_sorted() {
                    let name = self.fresh(operand, "turned");
                    let arguments = vec![Arg::Tensor(repeated), Arg::value(order.clone())];
                    repeated = self.flattener.call(role(Role::Permute)?, arguments, name, at)?;
                }
                let dims: Vec<usize> = order.into_iter().map(|dim| places[dim]).collect();
                let arguments = map_arguments(&symbol.arguments, |_| repeated);
                let symbol = BoundSymbol { arguments, ..symbol.clone() };
                let symbol = with_attribute(&symbol, "dims", Arg::value(dims))
                    .map(|arguments| BoundSymbol { arguments, ..symbol.clone() });
                symbol.and_then(|symbol| with_attribute(&symbol, "shape", shape))
            }
            _ => {
                let mut read = Vec::new();
                for id in symbol.operands() {
                    read.push(self.innermost(id, at)?);
                }
                let mut next = read.into_iter();
                Some(map_arguments(&symbol.arguments, |id| next.next().unwrap_or(*id)))
            }
        };
        let Some(arguments) = arguments else { unreachable!("kinds are of operators with these arguments") };
        let name = self.fresh(*result, "innermost");
        self.flattener.call(def, arguments, name, at)
    }

    /// Writes a reduction of what is there with channels innermost, whose result is the same.
    fn reduction(&mut self, symbol: &BoundSymbol) -> Result<()> {
        let (Some(def), Some(dims), Some(operand)) = (symbol.operator(), dims_of(symbol), symbol.operands().next())
        else {
            unreachable!("a reduction has an operand and dimensions")
        };
        let rank = self.source.meta(operand).rank();
        let mut dims: Vec<usize> = dims.into_iter().map(|dim| place(dim, rank)).collect();
        dims.sort_unstable();
        let read = self.innermost(operand, symbol.into())?;
        let arguments = map_arguments(&symbol.arguments, |_| read);
        let Some(arguments) = with_attribute(&BoundSymbol { arguments, ..symbol.clone() }, "dims", Arg::value(dims))
        else {
            unreachable!("a reduction has dimensions")
        };
        let result = symbol.results[0];
        let name = self.source.value(result).name.clone();
        self.own[result.index()] = Some(self.flattener.call(def, arguments, name, symbol.into())?);
        Ok(())
    }
}

/// What is done with channels innermost as well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Arithmetic on images of one shape, and their conversion.
    Elementwise,
    /// One number in every element.
    Fill,
    /// A value repeated along dimensions of images.
    Broadcast,
    /// A reduction of images.
    Reduction,
}

/// What a symbol does, if it is of one of these kinds.
fn kind_of(block: &Block, symbol: &BoundSymbol) -> Option<Kind> {
    let (def, [result]) = (symbol.operator()?, &symbol.results[..]) else { return None };
    let shape = block.meta(*result).shape();
    let rules = Arithmetic::of(def);
    // A copy is asked for as it is.
    let is_copy = def.overload == Some(Role::Contiguous);
    match rules.elements {
        Some(Elements::Sum | Elements::Max | Elements::Min) => {
            let operand = symbol.operands().next()?;
            has_channels(block.meta(operand).shape()).then_some(Kind::Reduction)
        }
        _ if !has_channels(shape) || is_copy => None,
        // Both arguments are written anew.
        Some(Elements::Broadcast) => {
            (dims_of(symbol).is_some() && argument(symbol, "shape").is_some()).then_some(Kind::Broadcast)
        }
        None if def.overload == Some(Role::Full) => Some(Kind::Fill),
        None if rules.scalar.is_none() => None,
        None | Some(Elements::Convert) => {
            let mut operands = symbol.operands().peekable();
            operands.peek()?;
            operands.all(|id| block.meta(id).shape() == shape).then_some(Kind::Elementwise)
        }
        _ => None,
    }
}

/// The argument `dims`.
fn dims_of(symbol: &BoundSymbol) -> Option<Vec<usize>> {
    match argument(symbol, "dims")? {
        Arg::Attribute(dims) => Vec::<usize>::from_attribute(dims),
        _ => None,
    }
}
