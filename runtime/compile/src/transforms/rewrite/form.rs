//! The forms of a pattern: which operators it has, how they are connected, and which of their arguments are the
//! attributes that it binds.
//!
//! A pattern may have other operators for tensors of another rank or element type, so it is traced on all of its
//! samples. Forms are kept in an order of their own: what matches does not depend on the order of the samples. Where
//! an attribute is found by tracing the pattern with another value of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_kernels::DType;
use rustc_hash::FxHashMap;

use super::normal::{Normals, Variant, with_normals};
use super::values::other_values;
use crate::argument::{Arg, Attribute, map_arguments};
use crate::error::{Error, Result};
use crate::executor::RewriteDef;
use crate::meta::{Device, TensorMeta};
use crate::operator::ParamKind;
use crate::registered;
use crate::testing::samples::Samples;
use crate::trace::{Block, BoundSymbol, ValueId};
use crate::tracer::rules::TracedRule;
use crate::tracer::trace_block;

/// The pattern for some metas and values of its parameters: what is looked for. Attributes that the pattern computes
/// from metas are compared later, on the pattern traced for the metas at hand.
pub(super) struct Form {
    pub(super) block: Block,
    pub(super) normals: Normals,
    /// The symbols in the order in which they are looked for: each but the first shares a value with one before it, if
    /// any does.
    pub(super) order: Vec<usize>,
    /// Where each attribute of the pattern is.
    pub(super) bindings: Vec<Binding>,
}

/// Where a pattern has one of its attributes.
pub(super) struct Binding {
    /// The place of the attribute among the pattern's parameters.
    pub(super) param: usize,
    pub(super) places: Vec<Place>,
}

/// An argument of a symbol that is an attribute of the pattern as it is, or a part of that argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) symbol: usize,
    pub(super) variant: Variant,
    pub(super) argument: usize,
    /// Indices into lists, from the outermost one on.
    path: Vec<usize>,
}

impl Place {
    /// What is at this place of an argument.
    pub(super) fn of<'a, V>(&self, argument: &'a Arg<V>) -> Option<&'a Attribute> {
        let Arg::Attribute(whole) = argument else { return None };
        self.path.iter().try_fold(whole, |attribute, i| match attribute {
            Attribute::List(items) => items.get(*i),
            _ => None,
        })
    }
}

/// The forms of a pattern, the longest first. None if there is nothing to look for.
pub(super) fn forms(rewrite: &RewriteDef) -> Result<Arc<Vec<Form>>> {
    // What is linked stays as it is; a pattern may call operators that are registered, and withdrawn later.
    static LINKED: Mutex<Option<FxHashMap<usize, Arc<Vec<Form>>>>> = Mutex::new(None);
    let known = || LINKED.lock().unwrap_or_else(PoisonError::into_inner);
    let (key, lasting) = (std::ptr::from_ref(rewrite).addr(), registered::epoch() == 0);
    if let Some(forms) = known().as_ref().and_then(|known| known.get(&key)).filter(|_| lasting) {
        return Ok(forms.clone());
    }
    let forms = Arc::new(traced_forms(rewrite)?);
    if lasting {
        known().get_or_insert_default().insert(key, forms.clone());
    }
    Ok(forms)
}

/// Fails for a rewrite whose pattern cannot be looked for, or which has an attribute that nothing binds.
pub fn check(rewrite: &RewriteDef) -> Result<()> {
    traced_forms(rewrite).map(|_| ())
}

fn traced_forms(rewrite: &RewriteDef) -> Result<Vec<Form>> {
    let mut samples = Samples::new(None, DType::F32);
    if let Some(declare) = rewrite.samples {
        declare(&mut samples);
    }
    let (mut forms, mut failed) = (BTreeMap::new(), None);
    for sample in samples.into_cases() {
        let arguments = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
        match Form::of(rewrite, &arguments) {
            Ok(form) if form.block.symbols.is_empty() => {}
            Ok(form) => {
                forms.entry(form.key()).or_insert(form);
            }
            // Its condition may say that the pattern is not for such tensors.
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if forms.is_empty() => Err(error),
        _ => Ok(forms.into_values().collect()),
    }
}

impl Form {
    fn of(rewrite: &RewriteDef, arguments: &[Arg<TensorMeta>]) -> Result<Form> {
        check_arguments(rewrite, arguments)?;
        let (block, normals) = with_normals(side(rewrite, arguments, rewrite.pattern)?, rewrite.late);
        let mut form = Form { order: connected_order(&block), block, normals, bindings: Vec::new() };
        for (param, def) in rewrite.params.iter().enumerate() {
            let (ParamKind::Attribute, Arg::Attribute(value)) = (def.kind, &arguments[param]) else { continue };
            let mut with_another = other_values(def, value).into_iter().filter_map(|other| {
                let mut arguments = arguments.to_vec();
                arguments[param] = Arg::Attribute(other.clone());
                let (block, normals) = with_normals(side(rewrite, &arguments, rewrite.pattern).ok()?, rewrite.late);
                let callees =
                    |block: &Block| block.symbols.iter().map(|symbol| symbol.callee.clone()).collect::<Vec<_>>();
                (callees(&block) == callees(&form.block)).then_some((block, normals, other))
            });
            let places =
                with_another.next().map(|(block, normals, other)| form.places([value, &other], &block, &normals));
            drop(with_another);
            let name = def.name;
            let message = match places {
                Some(places) if !places.is_empty() => {
                    form.bindings.push(Binding { param, places });
                    continue;
                }
                Some(_) => format!("the pattern gives '{name}' to no operator as it is, so nothing binds it"),
                None => format!(
                    "for every other value of '{name}' than {value} the pattern has other operators, or is refused: \
                     write a rewrite for each value, without the attribute"
                ),
            };
            return Err(wrong(rewrite, message));
        }
        Ok(form)
    }

    /// Where an attribute is that has these values here and in the same form, traced with the other value.
    fn places(&self, values: [&Attribute; 2], block: &Block, normals: &Normals) -> Vec<Place> {
        let mut places = Vec::new();
        for symbol in 0..self.block.symbols.len() {
            for (variant, own) in self.normals.variants(&self.block, symbol) {
                let Some(other) = normals.variant(block, symbol, variant).filter(|other| other.callee == own.callee)
                else {
                    continue;
                };
                for (argument, pair) in own.arguments.iter().zip(&other.arguments).enumerate() {
                    let (Arg::Attribute(one), Arg::Attribute(two)) = pair else { continue };
                    paths([one, two], values, &mut Vec::new(), &mut |path| {
                        places.push(Place { symbol, variant, argument, path: path.to_vec() });
                    });
                }
            }
        }
        places
    }

    /// What tells two forms apart: operators, connections, places of attributes. Longer forms come first.
    fn key(&self) -> (std::cmp::Reverse<usize>, String) {
        let mut key = String::new();
        let mut add = |symbol: &BoundSymbol| {
            let arguments: Vec<String> = symbol
                .arguments
                .iter()
                .map(|argument| match argument {
                    Arg::Attribute(_) => "_".into(),
                    tensors => format!("{tensors:?}"),
                })
                .collect();
            key += &format!("{:?} = {}({});", symbol.results, symbol.name(), arguments.join(", "));
        };
        for symbol in 0..self.block.symbols.len() {
            self.normals.variants(&self.block, symbol).for_each(|(_, symbol)| add(symbol));
        }
        key += &format!("{:?} {:?}", self.block.parameters, self.block.results);
        for binding in &self.bindings {
            key += &format!(" {} at {:?}", binding.param, binding.places);
        }
        (std::cmp::Reverse(self.block.symbols.len()), key)
    }
}

/// Calls `found` for each part of two attributes that are alike which is the first value in one and the second in the
/// other.
fn paths(both: [&Attribute; 2], values: [&Attribute; 2], path: &mut Vec<usize>, found: &mut impl FnMut(&[usize])) {
    if both == values {
        return found(path);
    }
    let [Attribute::List(one), Attribute::List(two)] = both else { return };
    for (i, (one, two)) in one.iter().zip(two.iter()).enumerate() {
        path.push(i);
        paths([one, two], values, path, found);
        path.pop();
    }
}

/// Fails where a sample does not give what the pattern takes.
fn check_arguments(rewrite: &RewriteDef, arguments: &[Arg<TensorMeta>]) -> Result<()> {
    if arguments.len() != rewrite.params.len() {
        let message = format!("a sample has {} arguments, the pattern takes {}", arguments.len(), rewrite.params.len());
        return Err(wrong(rewrite, message));
    }
    for (param, argument) in rewrite.params.iter().zip(arguments) {
        let right = match (param.kind, argument) {
            (ParamKind::Attribute, Arg::Attribute(value)) => (param.accepts)(value),
            (ParamKind::Attribute, _) => false,
            (_, argument) => matches!(argument, Arg::Tensor(_)),
        };
        if !right {
            return Err(wrong(rewrite, format!("a sample gives {argument:?} for {param:?}")));
        }
    }
    Ok(())
}

fn wrong(rewrite: &RewriteDef, message: String) -> Error {
    Error::Path { what: "rewrite", path: rewrite.name.to_owned(), message, stack: Box::default() }
}

/// The symbols of a pattern from the first on, each sharing a value with one before it if any does: what a value makes
/// or reads is found by following it.
fn connected_order(block: &Block) -> Vec<usize> {
    if block.symbols.is_empty() {
        return Vec::new();
    }
    let values = |i: &usize| {
        let symbol = &block.symbols[*i];
        symbol.operands().chain(symbol.results.iter().copied()).collect::<Vec<ValueId>>()
    };
    let mut order = vec![0];
    let mut known = values(&0);
    let mut left: Vec<usize> = (1..block.symbols.len()).collect();
    while !left.is_empty() {
        let connected = left.iter().position(|i| values(i).iter().any(|id| known.contains(id)));
        let next = left.remove(connected.unwrap_or(0));
        known.extend(values(&next));
        order.push(next);
    }
    order
}

/// A side of a rewrite, traced for these tensors and attributes of its pattern.
pub fn side(rewrite: &RewriteDef, arguments: &[Arg<TensorMeta>], side: TracedRule) -> Result<Block> {
    let mut parameters: Vec<(Arc<str>, TensorMeta)> = Vec::new();
    for (param, argument) in rewrite.params.iter().zip(arguments) {
        parameters.extend(argument.tensors().iter().map(|meta| (Arc::from(param.name), meta.clone())));
    }
    trace_block(&parameters, |handles| {
        let mut handles = handles.iter();
        let next = |_: &TensorMeta| *handles.next().unwrap_or_else(|| unreachable!("one for each tensor"));
        side(&map_arguments(arguments, next))
    })
}
