//! Schedule: which stream of the device runs each line, and which events order the lines of two streams.
//!
//! What the host runs for the device is copies there and back: it goes to the copy stream, and waits for its operands
//! alone instead of for all that is enqueued. Collectives go to the communication stream. All else computes. A line
//! waits for the lines that it depends on, as far as nothing else has it behind them. What is joined is computed on one
//! stream, so that the memory of the whole, which is taken for its first part, is free for the others too.

use rustc_hash::{FxHashMap, FxHashSet};

use super::layout::layouts;
use crate::device::find_kind;
use crate::executor::{HOST, JOIN};
use crate::stream_kind::StreamKind;
use crate::trace::joins::all_parts;
use crate::trace::order::{Order, is_run};
use crate::trace::{Block, BoundSymbol, Schedule, StageName, Trace, ValueId};

/// Gives every line of a trace whose layout is decided its stream. `None` where all of it computes on one stream.
pub fn schedule(trace: &Trace) -> Option<Trace> {
    let streams = find_kind(trace.target.kind()).map_or(&[][..], |kind| kind.streams());
    let stream_of = |symbol: &BoundSymbol| {
        let wanted = match symbol.executor {
            Some(HOST) => StreamKind::Copy,
            _ if symbol.is_ordered() => StreamKind::Communication,
            _ => StreamKind::Compute,
        };
        if streams.contains(&wanted) { wanted } else { StreamKind::Compute }
    };
    let plain = trace.block.symbols.iter().all(|symbol| stream_of(symbol) == StreamKind::Compute);
    (!plain).then(|| schedule_on(trace, stream_of))
}

/// Gives every line of a trace whose layout is decided the stream that `stream_of` says, and has it wait for what it
/// depends on: the lines that write its operands, and for a line that changes an operand, all lines before it.
pub fn schedule_on(trace: &Trace, mut stream_of: impl FnMut(&BoundSymbol) -> StreamKind) -> Trace {
    let layouts = layouts(trace);
    let all = all_parts(&trace.block);
    let parts: FxHashSet<ValueId> = all.iter().map(|(part, _)| *part).collect();
    let mut of_whole: FxHashMap<ValueId, Vec<ValueId>> = FxHashMap::default();
    for (part, layout) in all {
        of_whole.entry(layout.root).or_default().push(part);
    }
    let mut block = Block { symbols: Vec::with_capacity(trace.block.symbols.len()), ..trace.block.clone() };
    let mut order = Order::default();
    // For each stream its last line.
    let mut last: [Option<usize>; StreamKind::ALL.len()] = Default::default();
    for (line, symbol) in trace.block.symbols.iter().enumerate() {
        let mut symbol = BoundSymbol { schedule: Schedule::default(), ..symbol.clone() };
        if is_run(&symbol) {
            let wanted = stream_of(&symbol);
            let is_part = symbol.results.iter().any(|id| parts.contains(id));
            symbol.schedule.stream =
                if is_part || symbol.executor == Some(JOIN) { StreamKind::Compute } else { wanted };
            // Of a whole, the lines that have written parts of it.
            let mut needed: Vec<usize> = Vec::new();
            for root in symbol.operands().map(|id| layouts[id.index()].root) {
                let parts = of_whole.get(&root).into_iter().flatten();
                needed.extend(parts.copied().chain([root]).filter_map(|id| order.writer(id)));
            }
            needed.retain(|writer| *writer != line);
            symbol.schedule.after = waits(&order, &block, symbol.schedule.stream, needed);
            last[symbol.schedule.stream.index()] = Some(line);
        }
        order.push(&symbol);
        block.symbols.push(symbol);
    }
    trace.at_stage(StageName::Schedule, block)
}

/// What a line of `stream` waits for so that it begins after the lines `needed`: the first results of as few of them as
/// it takes, the latest first.
fn waits(order: &Order, block: &Block, stream: StreamKind, mut needed: Vec<usize>) -> smallvec::SmallVec<[ValueId; 2]> {
    needed.sort_unstable_by(|a, b| b.cmp(a));
    let mut known = *order.next(stream);
    let mut after = smallvec::SmallVec::new();
    for line in needed {
        if let (false, Some(id)) = (order.alone(line).is_within(&known), block.symbols[line].results.first()) {
            known.join(order.end(line));
            after.push(*id);
        }
    }
    after
}
