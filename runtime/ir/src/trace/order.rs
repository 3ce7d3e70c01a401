//! Which lines of a scheduled block have ended when another begins: those before it on its stream, those that it waits
//! for, and whatever these had waited for.

use rustc_hash::FxHashMap;

use super::{Block, BoundSymbol, Callee, ValueId};
use crate::executor::VIEW;
use crate::stream_kind::StreamKind;

/// For each stream how many lines of the block have ended, counted to the last of that stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock([usize; StreamKind::ALL.len()]);

impl Clock {
    /// What has ended by either.
    pub fn join(&mut self, other: &Clock) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = (*own).max(other);
        }
    }

    /// Line `line`, of stream `stream`, has ended too.
    pub fn tick(&mut self, stream: StreamKind, line: usize) {
        let own = &mut self.0[stream.index()];
        *own = (*own).max(line + 1);
    }

    /// Whether all that has ended by this one has ended by the other.
    pub fn is_within(&self, other: &Clock) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| *own <= other)
    }
}

/// Whether something runs for a line.
pub fn is_run(symbol: &BoundSymbol) -> bool {
    symbol.callee != Callee::Delete && symbol.executor != Some(VIEW)
}

/// The order of a block's lines in time.
#[derive(Debug, Default)]
pub struct Order {
    lines: Vec<Line>,
    /// What has ended by the end of each stream's last line so far.
    ends: [Clock; StreamKind::ALL.len()],
    /// The line that defines a value.
    writers: FxHashMap<ValueId, usize>,
}

#[derive(Debug)]
struct Line {
    stream: StreamKind,
    /// What has ended when it begins, and with itself.
    begin: Clock,
    end: Clock,
}

impl Order {
    /// The order of a block's lines.
    pub fn of(block: &Block) -> Order {
        let mut order = Order::default();
        block.symbols.iter().for_each(|symbol| order.push(symbol));
        order
    }

    /// Adds the next line. What it waits for and no line before it defines is left out.
    pub fn push(&mut self, symbol: &BoundSymbol) {
        let (line, stream) = (self.lines.len(), symbol.schedule.stream);
        let mut begin = self.ends[stream.index()];
        for writer in symbol.schedule.after.iter().filter_map(|id| self.writers.get(id)) {
            begin.join(&self.lines[*writer].end);
        }
        let mut end = begin;
        if is_run(symbol) {
            end.tick(stream, line);
            self.ends[stream.index()] = end;
        }
        self.lines.push(Line { stream, begin, end });
        self.writers.extend(symbol.results.iter().map(|id| (*id, line)));
    }

    /// The line before which a value is not defined; none for inputs.
    pub fn writer(&self, id: ValueId) -> Option<usize> {
        self.writers.get(&id).copied()
    }

    /// What has ended when a line begins.
    pub fn begin(&self, line: usize) -> &Clock {
        &self.lines[line].begin
    }

    /// What has ended when the next line begins on a stream, if it waits for nothing.
    pub fn next(&self, stream: StreamKind) -> &Clock {
        &self.ends[stream.index()]
    }

    /// What has ended with a line.
    pub fn end(&self, line: usize) -> &Clock {
        &self.lines[line].end
    }

    /// A line by itself.
    pub fn alone(&self, line: usize) -> Clock {
        let mut clock = Clock::default();
        clock.tick(self.lines[line].stream, line);
        clock
    }

    /// Whether a line has ended before another begins.
    pub fn before(&self, earlier: usize, later: usize) -> bool {
        self.alone(earlier).is_within(&self.lines[later].begin)
    }
}
