//! The memory plan as data: which value has which bytes of the arena, from which line to which.

use fulgurite_runtime::trace::{Block, Callee, Storage, Trace, ValueId};
use fulgurite_runtime::transforms::donate::donations;
use fulgurite_runtime::transforms::plan::memory_use;
use serde_json::{Value, json};

use crate::line::name;
use crate::pool::Pool;

/// A piece of the arena, with the lines that it is held for: from the one that writes it to the last that reads it, or
/// what shows its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Whose memory it is.
    pub value: ValueId,
    /// First byte.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The line that writes it; lines are counted without those that end values.
    pub from: usize,
    /// The last line that needs it.
    pub to: usize,
    /// Other values in the same memory: views, updates in place.
    pub sharing: Vec<ValueId>,
}

/// The lives of all values that a plan puts into the arena, in the order of their definition.
pub fn lives(block: &Block) -> Vec<Life> {
    let mut written = vec![None; block.values.len()];
    let mut read = vec![0; block.values.len()];
    let lines = block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete);
    for (at, symbol) in lines.enumerate() {
        symbol.results.iter().for_each(|id| {
            if let (Some(written), Some(read)) = (written.get_mut(id.index()), read.get_mut(id.index())) {
                (*written, *read) = (Some(at), at);
            }
        });
        symbol.operands().for_each(|id| {
            if let Some(last) = read.get_mut(id.index()) {
                *last = at;
            }
        });
    }
    let mut found: Vec<Life> = Vec::new();
    let mut numbers = vec![None; block.values.len()];
    for (i, value) in block.values.iter().enumerate() {
        let (Some(Storage::Arena(offset)), Some(from)) = (value.storage, written[i]) else { continue };
        numbers[i] = Some(found.len());
        let (value, bytes) = (ValueId(i as u32), value.meta.bytes() as u64);
        found.push(Life { value, offset, bytes, from, to: read[i], sharing: Vec::new() });
    }
    for (i, value) in block.values.iter().enumerate() {
        let mut root = value.storage;
        // A plan that is not valid may go round in a circle.
        for _ in 0..block.values.len() {
            let Some(Storage::Shared(of)) = root else { break };
            if let Some(number) = numbers.get(of.index()).copied().flatten() {
                let life = &mut found[number];
                life.to = life.to.max(read[i]);
                life.sharing.push(ValueId(i as u32));
                break;
            }
            root = block.values.get(of.index()).and_then(|value| value.storage);
        }
    }
    found
}

/// The bytes of the arena in use at each of `lines` lines. What a line writes over values that end there, in place, is
/// the same memory, and counted once.
pub fn used(lives: &[Life], lines: usize) -> Vec<u64> {
    let mut begin: Vec<Vec<&Life>> = vec![Vec::new(); lines];
    let mut end = begin.clone();
    for life in lives {
        begin[life.from].push(life);
        end[life.to].push(life);
    }
    let mut held = 0u64;
    let mut used = Vec::with_capacity(lines);
    for (begin, end) in begin.iter().zip(&end) {
        held = begin.iter().fold(held, |sum, life| sum.saturating_add(life.bytes));
        let twice = begin.iter().flat_map(|a| end.iter().map(|b| common(a, b))).fold(0, u64::saturating_add);
        used.push(held.saturating_sub(twice));
        held = end.iter().fold(held, |sum, life| sum.saturating_sub(life.bytes));
    }
    used
}

/// The bytes that two lives have in common.
fn common(a: &Life, b: &Life) -> u64 {
    let ends = a.offset.saturating_add(a.bytes).min(b.offset.saturating_add(b.bytes));
    if a.value == b.value { 0 } else { ends.saturating_sub(a.offset.max(b.offset)) }
}

/// The plan of a trace; null if it has none.
pub fn to_json(pool: &mut Pool, trace: &Trace) -> Value {
    let Some(arena) = trace.arena else { return Value::Null };
    let block = &trace.block;
    let mut names = |ids: &[ValueId]| -> Vec<usize> { ids.iter().map(|id| pool.string(name(block, *id))).collect() };
    let lines = block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete).count();
    let lives = lives(block);
    let used = used(&lives, lines);
    let lives: Vec<Value> = lives
        .iter()
        .map(|life| {
            let own = names(&[life.value])[0];
            json!([own, life.offset, life.bytes, life.from, life.to, names(&life.sharing)])
        })
        .collect();
    let held = memory_use(trace);
    let donations: Vec<Value> = donations(trace)
        .into_iter()
        .map(|donation| match donation.outcome {
            Ok(output) => json!([donation.input, true, output]),
            Err(reason) => json!([donation.input, false, reason]),
        })
        .collect();
    json!({
        "arena": arena,
        "inputs": held.inputs,
        "outputs": held.outputs,
        "peak": held.peak(),
        "used": used,
        "lives": lives,
        "donations": donations,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(value: u32, (offset, bytes): (u64, u64), (from, to): (usize, usize)) -> Life {
        Life { value: ValueId(value), offset, bytes, from, to, sharing: Vec::new() }
    }

    #[test]
    fn what_is_written_in_place_is_counted_once() {
        // Line 1 writes over what line 0 wrote; line 2 has bytes of its own, beside what it reads.
        let lives = [life(0, (0, 16), (0, 1)), life(1, (0, 16), (1, 2)), life(2, (64, 16), (2, 3))];
        assert_eq!(used(&lives, 4), [16, 16, 32, 16]);
    }

    #[test]
    fn of_a_part_that_is_written_over_the_rest_is_counted() {
        let lives = [life(0, (0, 16), (0, 1)), life(1, (8, 16), (1, 1)), life(2, (64, 8), (0, 1))];
        assert_eq!(used(&lives, 2), [24, 32]);
    }
}
