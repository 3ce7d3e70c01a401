//! Schedule: which stream of the device runs each line, and which events order the lines of two streams.
//!
//! What the host runs for the device is copies there and back: it goes to the copy stream, and waits for its operands
//! alone instead of for all that is enqueued. Collectives go to the communication stream. All else computes. A line
//! waits for the lines that it depends on, as far as nothing else has it behind them. What is joined is computed on one
//! stream, so that the memory of the whole, which is taken for its first part, is free for the others too.
//!
//! Collectives move to where they are hidden behind what computes ([`brought_forward`]).

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
    if plain {
        return None;
    }
    if !trace.block.symbols.iter().any(|symbol| stream_of(symbol) == StreamKind::Communication) {
        return Some(schedule_on(trace, stream_of));
    }
    let moved = Trace { block: brought_forward(&trace.block).canonical(), ..trace.clone() };
    Some(schedule_on(&moved, stream_of))
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
            // What is gathered ahead begins with the line that it comes before, not earlier: its memory is that of
            // what has ended by then.
            if symbol.schedule.stream == StreamKind::Communication && grows(&block, &symbol) {
                needed.extend(last[StreamKind::Compute.index()]);
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

/// Whether a collective gives more elements than it takes: it gathers.
pub(super) fn grows(block: &Block, symbol: &BoundSymbol) -> bool {
    let elements = |ids: &mut dyn Iterator<Item = ValueId>| ids.map(|id| block.meta(id).len()).sum::<usize>();
    elements(&mut symbol.results.iter().copied()) > elements(&mut symbol.operands())
}

/// The block with its collectives at other places, which are the same on all ranks. One that gathers comes right before
/// the first line that reads what the gathering before it gave: it is under way while that line runs, and no more than
/// the next one is there ahead. All others come right behind the last line that they depend on.
fn brought_forward(block: &Block) -> Block {
    let writers: FxHashMap<ValueId, usize> = block
        .symbols
        .iter()
        .enumerate()
        .flat_map(|(at, symbol)| symbol.results.iter().map(move |id| (*id, at)))
        .collect();
    let collective = |at: usize| block.symbols[at].is_ordered() && is_run(&block.symbols[at]);
    let gathers = |at: usize| collective(at) && grows(block, &block.symbols[at]);
    let depends = |at: usize| block.symbols[at].operands().filter_map(|id| writers.get(&id).copied());
    // The gatherings in the order in which they are read, each with its first reader, through views.
    let mut of: Vec<Option<usize>> = vec![None; block.symbols.len()];
    let mut ahead: Vec<(usize, usize)> = Vec::new();
    for at in 0..block.symbols.len() {
        if gathers(at) {
            of[at] = Some(at);
        } else if !is_run(&block.symbols[at]) {
            of[at] = depends(at).find_map(|writer| of[writer]);
        } else {
            for gathering in depends(at).filter_map(|writer| of[writer]) {
                if !ahead.iter().any(|(known, _)| *known == gathering) {
                    ahead.push((gathering, at));
                }
            }
        }
    }
    let mut lines = Lines { block, writers: &writers, order: Vec::new(), written: vec![false; block.symbols.len()] };
    let mut waiting: Vec<usize> = (0..block.symbols.len()).filter(|at| collective(*at) && !gathers(*at)).collect();
    let mut next = 0;
    for (at, gathered) in of.iter().enumerate() {
        // What is gathered is written with its first reader, and its views with theirs.
        let is_ahead = |line: usize| ahead.iter().any(|(gathering, _)| *gathering == line);
        if lines.written[at] || gathered.is_some_and(|line| !lines.written[line] && is_ahead(line)) {
            continue;
        }
        // The first reader of one has the next one begin.
        while next < ahead.len() && (next == 0 || ahead[next - 1].1 <= at) {
            lines.write(ahead[next].0);
            next += 1;
        }
        lines.write(at);
        waiting.retain(|line| {
            let ready = !lines.written[*line] && lines.is_ready(*line);
            if ready {
                lines.write(*line);
            }
            !lines.written[*line]
        });
    }
    (0..block.symbols.len()).for_each(|at| lines.write(at));
    let symbols = lines.order.iter().map(|at| block.symbols[*at].clone()).collect();
    Block { symbols, ..block.clone() }
}

/// The lines of a block in another order.
struct Lines<'a> {
    block: &'a Block,
    writers: &'a FxHashMap<ValueId, usize>,
    order: Vec<usize>,
    written: Vec<bool>,
}

impl Lines<'_> {
    fn depends(&self, at: usize) -> Vec<usize> {
        self.block.symbols[at].operands().filter_map(|id| self.writers.get(&id).copied()).collect()
    }

    /// Writes a line behind those that it depends on.
    fn write(&mut self, at: usize) {
        if std::mem::replace(&mut self.written[at], true) {
            return;
        }
        self.depends(at).into_iter().for_each(|line| self.write(line));
        self.order.push(at);
    }

    /// Whether all that runs for what a line depends on was written; views need not be.
    fn is_ready(&self, at: usize) -> bool {
        self.depends(at)
            .into_iter()
            .all(|line| self.written[line] || (!is_run(&self.block.symbols[line]) && self.is_ready(line)))
    }
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
