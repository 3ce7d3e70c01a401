//! Random changes of a planned trace.

use std::sync::Arc;

use crate::argument::{Arg, Attribute, Scalar};
use crate::device::device_kinds;
use crate::executor::{VIEW, executors};
use crate::meta::Device;
use crate::operator::{OperatorDef, ParamKind};
use crate::samples::Random;
use crate::stream_kind::StreamKind;
use crate::trace::{Block, Callee, Storage, Trace, ValueId};
use crate::transforms::plan::ALIGNMENT;
use fulgurite_ir::registry::operators;

/// A changed copy of `trace`, and what was changed: one thing, or two or three.
pub fn changed(trace: &Trace, random: &mut Random) -> (Trace, String) {
    let mut trace = trace.clone();
    let mut said = Vec::new();
    let count = [1, 1, 1, 2, 2, 3][below(random, 6)];
    for _ in 0..40 {
        if said.len() == count {
            break;
        }
        if let Some(change) = one(&mut trace, random) {
            said.push(change);
        }
    }
    (trace, said.join("; "))
}

fn below(random: &mut Random, n: usize) -> usize {
    (random.next() % n.max(1) as u64) as usize
}

fn one_in(random: &mut Random, n: usize) -> bool {
    below(random, n) == 0
}

fn pick<T: Clone>(random: &mut Random, items: &[T]) -> Option<T> {
    if items.is_empty() { None } else { Some(items[below(random, items.len())].clone()) }
}

fn one(trace: &mut Trace, random: &mut Random) -> Option<String> {
    match below(random, 22) {
        0..6 => storage(trace, random),
        6..9 => order(&mut trace.block, random),
        9..11 => operand(&mut trace.block, random),
        11 => result(&mut trace.block, random),
        12 => claim(&mut trace.block, random),
        13..16 => body(&mut trace.block, random),
        16 => attribute(&mut trace.block, random),
        17 => callee(&mut trace.block, random),
        18 => device(&mut trace.block, random),
        19 | 20 => schedule(&mut trace.block, random),
        _ => header(trace, random),
    }
}

fn name(block: &Block, id: ValueId) -> String {
    block.values[id.index()].name.to_string()
}

fn defined(block: &Block) -> Vec<ValueId> {
    block.symbols.iter().flat_map(|symbol| symbol.results.iter().copied()).collect()
}

/// Values of the same form as `id`, other than it.
fn alike(block: &Block, id: ValueId) -> Vec<ValueId> {
    let all = block.parameters.iter().copied().chain(defined(block));
    all.filter(|other| *other != id && block.meta(*other) == block.meta(id)).collect()
}

fn storage(trace: &mut Trace, random: &mut Random) -> Option<String> {
    let block = &mut trace.block;
    let id = pick(random, &defined(block))?;
    let offsets: Vec<u64> = (block.values.iter())
        .filter_map(|value| match value.storage {
            Some(Storage::Arena(offset)) => Some(offset),
            _ => None,
        })
        .collect();
    let storage = match below(random, 10) {
        0..3 => Some(Storage::Arena(pick(random, &offsets)?)),
        3 => {
            let places = trace.arena.unwrap_or(0) / ALIGNMENT;
            Some(Storage::Arena(random.next() % places.max(1) * ALIGNMENT))
        }
        4 => Some(Storage::Arena(random.next() % trace.arena.unwrap_or(1).max(1))),
        5..8 => {
            let other = pick(random, &alike(block, id))?;
            let parameter = block.parameters.iter().position(|parameter| *parameter == other);
            if let Some(parameter) = parameter.filter(|_| !one_in(random, 4)) {
                trace.inputs[parameter].donated = true;
            }
            Some(Storage::Shared(other))
        }
        8 => Some(Storage::Output),
        _ => {
            let any = ValueId(below(random, block.values.len()) as u32);
            pick(random, &[None, Some(Storage::Shared(any))])?
        }
    };
    block.values[id.index()].storage = storage;
    Some(format!("'{}' is stored at {storage:?}", name(block, id)))
}

fn order(block: &mut Block, random: &mut Random) -> Option<String> {
    let lines = block.symbols.len();
    if lines < 2 {
        return None;
    }
    let from = below(random, lines);
    match below(random, 4) {
        0 => {
            let symbol = block.symbols.remove(from);
            Some(format!("line {from} ({}) is taken away", symbol.name()))
        }
        1 | 2 => {
            let to = (from + 1) % lines;
            block.symbols.swap(from, to);
            Some(format!("lines {from} and {to} are swapped"))
        }
        _ => {
            let symbol = block.symbols.remove(from);
            let to = below(random, lines);
            block.symbols.insert(to, symbol);
            Some(format!("line {from} goes to {to}"))
        }
    }
}

fn operand(block: &mut Block, random: &mut Random) -> Option<String> {
    let line = below(random, block.symbols.len());
    let symbol = block.symbols.get_mut(line)?;
    if let (Some(def), true) = (symbol.operator(), one_in(random, 5)) {
        // A number for a tensor, or another number.
        let places = (0..symbol.arguments.len()).filter(|i| matches!(def.params[*i].kind, ParamKind::Operand(_)));
        let place = pick(random, &places.collect::<Vec<_>>())?;
        let numbers = [Scalar::Int(3), Scalar::Float(2.0), Scalar::Float(0.3), Scalar::Int(-1)];
        let number = Attribute::Scalar(pick(random, &numbers)?);
        let said = format!("argument {place} of line {line} is {number}");
        symbol.arguments[place] = Arg::Attribute(number);
        return Some(said);
    }
    let operands: Vec<ValueId> = symbol.operands().collect();
    let old = pick(random, &operands)?;
    let new = pick(random, &alike(block, old))?;
    let tensors = block.symbols[line].arguments.iter_mut().flat_map(Arg::tensors_mut);
    let slot = tensors.into_iter().find(|id| **id == old)?;
    *slot = new;
    Some(format!("line {line} reads '{}' for '{}'", name(block, new), name(block, old)))
}

fn result(block: &mut Block, random: &mut Random) -> Option<String> {
    let at = below(random, block.results.len());
    let old = *block.results.get(at)?;
    let new = pick(random, &alike(block, old))?;
    block.results[at] = new;
    Some(format!("returns '{}' for '{}'", name(block, new), name(block, old)))
}

fn claim(block: &mut Block, random: &mut Random) -> Option<String> {
    let line = below(random, block.symbols.len());
    let all = executors().into_iter().map(|executor| Some(executor.name));
    let executor = pick(random, &all.chain([Some(VIEW), None]).collect::<Vec<_>>())?;
    let symbol = block.symbols.get_mut(line)?;
    symbol.executor = executor;
    if let (Callee::Region { executor: own }, Some(executor)) = (&mut symbol.callee, executor) {
        *own = executor;
    }
    Some(format!("line {line} is claimed by {executor:?}"))
}

fn body(block: &mut Block, random: &mut Random) -> Option<String> {
    let regions: Vec<usize> =
        (0..block.symbols.len()).filter(|i| matches!(block.symbols[*i].callee, Callee::Region { .. })).collect();
    let line = pick(random, &regions)?;
    let symbol = &mut block.symbols[line];
    let inner = Arc::make_mut(symbol.body.as_mut()?);
    let said = match below(random, 8) {
        0 => {
            // What the region reads, in another order.
            let Some(Arg::List(operands)) = symbol.arguments.first_mut() else { return None };
            let (a, b) = (below(random, operands.len()), below(random, operands.len()));
            operands.swap(a, b);
            format!("operands {a} and {b} are swapped")
        }
        1 => order(inner, random)?,
        2 => operand(inner, random)?,
        3 => result(inner, random)?,
        4 => claim(inner, random)?,
        5 => attribute(inner, random)?,
        6 => callee(inner, random)?,
        _ => {
            let (a, b) = (below(random, symbol.results.len()), below(random, symbol.results.len()));
            symbol.results.swap(a, b);
            format!("results {a} and {b} are swapped")
        }
    };
    Some(format!("in the region of line {line}: {said}"))
}

fn attribute(block: &mut Block, random: &mut Random) -> Option<String> {
    let line = below(random, block.symbols.len());
    let symbol = block.symbols.get_mut(line)?;
    let places: Vec<usize> = (0..symbol.arguments.len())
        .filter(|i| {
            matches!(&symbol.arguments[*i], Arg::Attribute(Attribute::List(_) | Attribute::Scalar(Scalar::Int(_))))
        })
        .collect();
    let place = pick(random, &places)?;
    let Arg::Attribute(attribute) = &mut symbol.arguments[place] else { return None };
    let moved =
        |number: i64, random: &mut Random| Attribute::Scalar(Scalar::Int((number + [1, -1][below(random, 2)]).max(0)));
    *attribute = match attribute {
        Attribute::List(list) if !list.is_empty() => {
            let mut list = list.to_vec();
            let (a, b) = (below(random, list.len()), below(random, list.len()));
            match list[a] {
                Attribute::Scalar(Scalar::Int(number)) if one_in(random, 2) => list[a] = moved(number, random),
                _ => list.swap(a, b),
            }
            Attribute::List(list.into())
        }
        Attribute::Scalar(Scalar::Int(number)) => moved(*number, random),
        _ => return None,
    };
    Some(format!("argument {place} of line {line} becomes {attribute}"))
}

fn callee(block: &mut Block, random: &mut Random) -> Option<String> {
    let line = below(random, block.symbols.len());
    let symbol = block.symbols.get_mut(line)?;
    let old = symbol.operator()?;
    let form = |def: &OperatorDef| -> Vec<bool> {
        def.params.iter().map(|param| matches!(param.kind, crate::operator::ParamKind::Attribute)).collect()
    };
    let same = |def: &&'static OperatorDef| {
        form(def) == form(old) && def.kind == old.kind && def.name != old.name && !def.effects.random
    };
    let new = pick(random, &operators().into_iter().filter(same).collect::<Vec<_>>())?;
    symbol.callee = Callee::Operator(new);
    Some(format!("line {line} calls {} for {}", new.name, old.name))
}

fn device(block: &mut Block, random: &mut Random) -> Option<String> {
    let id = ValueId(below(random, block.values.len()) as u32);
    let kinds = device_kinds().into_iter().map(|kind| kind.name());
    let mut devices: Vec<Device> = kinds.flat_map(|kind| [Device::new(kind, 0), Device::new(kind, 1)]).collect();
    devices.push(Device::new("cpu", 1));
    let device = pick(random, &devices)?;
    let value = block.values.get_mut(id.index())?;
    value.meta = value.meta.with_device(device);
    Some(format!("'{}' is on {device:?}", value.name))
}

/// Another stream, an event that is left out, or one more.
fn schedule(block: &mut Block, random: &mut Random) -> Option<String> {
    let line = below(random, block.symbols.len());
    let values = defined(block);
    let symbol = block.symbols.get_mut(line)?;
    let waits = symbol.schedule.after.len();
    Some(match below(random, 4) {
        0 => {
            symbol.schedule.stream = pick(random, &StreamKind::ALL)?;
            format!("line {line} is on the {} stream", symbol.schedule.stream)
        }
        1 | 2 if waits > 0 => {
            let left_out = symbol.schedule.after.remove(below(random, waits));
            format!("line {line} does not wait for '{}'", name(block, left_out))
        }
        1 | 2 => return None,
        _ => {
            let more = pick(random, &values)?;
            symbol.schedule.after.push(more);
            format!("line {line} waits for '{}'", name(block, more))
        }
    })
}

fn header(trace: &mut Trace, random: &mut Random) -> Option<String> {
    let input = below(random, trace.inputs.len());
    Some(match below(random, 3) {
        0 => {
            let arena = trace.arena.filter(|arena| *arena > 0)?;
            trace.arena = Some(arena - ALIGNMENT.min(arena));
            "the arena is smaller".into()
        }
        1 => {
            let input = trace.inputs.get_mut(input)?;
            input.donated = !input.donated;
            format!("an input is donated: {}", input.donated)
        }
        _ => {
            let id = *trace.block.parameters.get(input)?;
            let mut strides = fulgurite_kernels::view::contiguous_strides(trace.block.meta(id).shape());
            strides.reverse();
            trace.inputs[input].strides = Some(strides);
            format!("'{}' has strides", name(&trace.block, id))
        }
    })
}
