//! Complex numbers become pairs of real ones: no kernel and no transform behind this one sees them.
//!
//! Each complex value becomes its real and imaginary parts, in a last dimension of two. Operators that take complex
//! numbers decompose into arithmetic on such parts between a view of complex numbers as parts and a view of parts as
//! complex numbers ([`Role::ViewAsReal`], [`Role::ViewAsComplex`]); in the program both become nothing. What a program
//! takes and gives keeps its types: the first lines view complex inputs as parts, which is the same memory, and the
//! last ones give complex results the memory of their parts.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::flatten::{Flattener, Substitution, inline, place_of};
use crate::argument::{Arg, AttributeType, map_arguments};
use crate::error::{Error, Failure, Result};
use crate::operator::Role;
use crate::registry::role;
use crate::trace::joins::joined;
use crate::trace::{Block, BoundSymbol, Callee, InputRole, Pass, Results, StageName, Trace, ValueId};
use crate::tracer::infer;

/// `trace` without complex numbers but in its inputs and outputs; none if there are no others.
///
/// # Errors
/// If an operator that does not decompose reads or makes complex numbers.
pub fn complex_to_real(trace: &Trace) -> Result<Option<Trace>> {
    let source = &trace.block;
    let mut writer = Writer { known: FxHashMap::default() };
    if !source.symbols.iter().any(|symbol| writer.concerns(source, symbol)) {
        return Ok(None);
    }
    let (mut flattener, mut substitution) = Flattener::new(source);
    for (parameter, input) in source.parameters.iter().zip(&trace.inputs).filter(|(id, _)| is_complex(source, **id)) {
        let pass = if input.role == InputRole::Cotangent { Pass::Backward } else { Pass::Forward };
        let input = Flattener::mapped(&substitution, *parameter);
        let name = flattener.fresh(&format!("{}.parts", source.value(*parameter).name));
        let pairs = view(&mut flattener, Role::ViewAsReal, input, name, pass)?;
        substitution[parameter.index()] = Some(pairs);
    }
    for symbol in &source.symbols {
        writer.write(&mut flattener, source, symbol, &mut substitution)?;
    }
    // Two results of one value are one.
    let mut made: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for id in source.results.iter().filter(|id| is_complex(source, **id)) {
        let pairs = Flattener::mapped(&substitution, *id);
        let known = made.get(&pairs).copied();
        let complex = match known {
            Some(known) => known,
            None => {
                let line = source.symbols.iter().find(|symbol| symbol.results.contains(id));
                let name = match line {
                    Some(_) => source.value(*id).name.clone(),
                    None => flattener.fresh(&source.value(*id).name),
                };
                let pass = line.map_or(Pass::Forward, |symbol| symbol.pass);
                view(&mut flattener, Role::ViewAsComplex, pairs, name, pass)?
            }
        };
        made.insert(pairs, complex);
    }
    for id in source.results.iter().filter(|id| is_complex(source, **id)) {
        let pairs = Flattener::mapped(&substitution, *id);
        substitution[id.index()] = made.get(&pairs).copied().or(Some(pairs));
    }
    Ok(Some(trace.at_stage(StageName::ComplexToReal, flattener.finish(source, &substitution))))
}

fn is_complex(block: &Block, id: ValueId) -> bool {
    block.meta(id).dtype().is_complex()
}

/// A line that views `value` by the operator of a role.
fn view(flattener: &mut Flattener, by: Role, value: ValueId, name: Arc<str>, pass: Pass) -> Result<ValueId> {
    let def = role(by)?;
    let meta = flattener.block().meta(value);
    let meta = meta.of_parts().filter(|_| by == Role::ViewAsComplex).unwrap_or_else(|| meta.in_parts());
    let result = flattener.define(name, meta);
    flattener.push(BoundSymbol {
        callee: Callee::Operator(def),
        arguments: vec![Arg::Tensor(value)],
        results: Results::from_slice(&[result]),
        body: None,
        pass,
        executor: None,
        schedule: Default::default(),
        refusals: Vec::new(),
        place: None,
    });
    Ok(result)
}

struct Writer {
    /// Whether bodies hold complex numbers; calls share them.
    known: FxHashMap<*const Block, bool>,
}

impl Writer {
    /// Whether a line reads or makes complex numbers, or holds some.
    fn concerns(&mut self, block: &Block, symbol: &BoundSymbol) -> bool {
        let own = symbol.operands().chain(symbol.results.iter().copied()).any(|id| is_complex(block, id));
        own || symbol.body.as_ref().is_some_and(|body| self.holds(body))
    }

    fn holds(&mut self, body: &Arc<Block>) -> bool {
        let key = Arc::as_ptr(body);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let found = body.symbols.iter().any(|symbol| self.concerns(body, symbol));
        self.known.insert(key, found);
        found
    }

    /// Writes a line with parts in place of complex numbers: `substitution` has the parts of each complex value.
    fn write(
        &mut self,
        flattener: &mut Flattener,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &mut Substitution,
    ) -> Result<()> {
        if !self.concerns(source, symbol) {
            match undone(flattener.block(), symbol, substitution).filter(|_| !returned(source, symbol)) {
                Some(before) => substitution[symbol.results[0].index()] = Some(before),
                None => drop(flattener.copy(source, symbol, substitution)),
            }
            return Ok(());
        }
        let overload = symbol.operator().and_then(|def| def.overload);
        if let (Some(Role::ViewAsReal | Role::ViewAsComplex), Some(operand)) = (overload, symbol.operands().next()) {
            substitution[symbol.results[0].index()] = Some(Flattener::mapped(substitution, operand));
            return Ok(());
        }
        if let (true, Some(body)) = (symbol.callee.holds_program(), &symbol.body) {
            let body = Arc::new(self.program(body)?.canonical());
            copy_of_parts(flattener, source, &BoundSymbol { body: Some(body), ..symbol.clone() }, substitution);
            return Ok(());
        }
        let body = match (&symbol.body, symbol.operator()) {
            (Some(body), _) => Some(body.clone()),
            (None, Some(def)) => infer(def, &source.argument_metas(symbol)).ok().and_then(|(_, body)| body),
            (None, None) => None,
        };
        let Some(body) = body else {
            let failure = Failure::new("Complex", "does not decompose, and is given complex numbers".to_owned());
            return Err(Error::Operator { operator: symbol.called(), failure, stack: place_of(symbol) });
        };
        inline(flattener, source, symbol, substitution, &body, &mut |flattener, source, symbol, substitution| {
            self.write(flattener, source, symbol, substitution)
        })
    }

    /// A part of the author's program with parts in place of complex numbers, also among its parameters and results.
    fn program(&mut self, source: &Block) -> Result<Block> {
        let mut outside = source.clone();
        for id in &source.parameters {
            outside.values[id.index()].meta = in_parts(source, *id);
        }
        let (mut flattener, mut substitution) = Flattener::new(&outside);
        for symbol in &source.symbols {
            self.write(&mut flattener, source, symbol, &mut substitution)?;
        }
        Ok(flattener.finish(source, &substitution))
    }
}

/// The meta of a value; of a complex one that of its parts.
fn in_parts(block: &Block, id: ValueId) -> crate::meta::TensorMeta {
    if is_complex(block, id) { block.meta(id).in_parts() } else { block.meta(id).clone() }
}

fn returned(source: &Block, symbol: &BoundSymbol) -> bool {
    symbol.results.iter().any(|id| source.results.contains(id))
}

/// The value from before of which a line makes the same: a tensor that is taken out of those it was joined with, as one
/// operator takes the parts that the last one joined, or a shape that a tensor had before. Without it each operator on
/// complex numbers would write them to memory.
fn undone(block: &Block, symbol: &BoundSymbol, substitution: &Substitution) -> Option<ValueId> {
    let overload = symbol.operator()?.overload.filter(|role| matches!(role, Role::Slice | Role::Reshape))?;
    let operand = Flattener::mapped(substitution, symbol.operands().next()?);
    let numbers = |at: usize| match symbol.arguments.get(at) {
        Some(Arg::Attribute(attribute)) => Vec::<usize>::from_attribute(attribute),
        _ => None,
    };
    let line = block.symbols.iter().rev().find(|line| line.results.contains(&operand))?;
    let made = line.operator()?.overload?;
    match (overload, made) {
        (Role::Slice, Role::Cat) => {
            let (tensors, dim) = joined(line)?;
            let (starts, ends) = (numbers(1)?, numbers(2)?);
            if numbers(3)?.iter().any(|step| *step != 1) {
                return None;
            }
            let mut start = 0;
            for tensor in tensors {
                let shape = block.meta(*tensor).shape();
                let end = start + shape[dim];
                let whole = |i: usize| if i == dim { (start, end) } else { (0, shape[i]) };
                if (0..shape.len()).all(|i| (starts[i], ends[i]) == whole(i)) {
                    return Some(*tensor);
                }
                start = end;
            }
            None
        }
        (Role::Reshape, Role::Reshape) => {
            let before = line.operands().next()?;
            (block.meta(before).shape() == numbers(1)?).then_some(before)
        }
        _ => None,
    }
}

/// Writes a line that takes and gives parts as it takes and gives complex numbers.
fn copy_of_parts(flattener: &mut Flattener, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) {
    let arguments = map_arguments(&symbol.arguments, |id| Flattener::mapped(substitution, *id));
    let mut results = Results::new();
    for id in &symbol.results {
        // The complex numbers have the name, where the program returns them.
        let name = source.value(*id).name.clone();
        let name = if is_complex(source, *id) { flattener.fresh(&format!("{name}.parts")) } else { name };
        let new = flattener.define(name, in_parts(source, *id));
        substitution[id.index()] = Some(new);
        results.push(new);
    }
    flattener.push(BoundSymbol { arguments, results, ..symbol.clone() });
}
