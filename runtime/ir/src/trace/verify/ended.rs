//! Which lines have ended when another begins: those before it on its stream, what it waits for, and what had ended
//! before any of these began.

use rustc_hash::FxHashMap;

use crate::executor::VIEW;
use crate::stream_kind::StreamKind;
use crate::trace::{Block, BoundSymbol, Callee, ValueId};

/// Whether something runs for a line.
pub(super) fn runs(symbol: &BoundSymbol) -> bool {
    symbol.callee != Callee::Delete && symbol.executor != Some(VIEW)
}

/// How many lines of the block have ended, counted to the last one of each stream: a stream runs its lines in order.
type Counts = [usize; StreamKind::ALL.len()];

/// What has ended when each line begins.
pub(super) struct Ended {
    stream: Vec<StreamKind>,
    before: Vec<Counts>,
    writer: FxHashMap<ValueId, usize>,
}

impl Ended {
    /// Of the lines of a block. What a line waits for and no earlier line defines is left out.
    pub(super) fn of(block: &Block) -> Ended {
        let count = block.symbols.len();
        let mut all = Ended {
            stream: Vec::with_capacity(count),
            before: Vec::with_capacity(count),
            writer: FxHashMap::default(),
        };
        let mut last: [Option<usize>; StreamKind::ALL.len()] = [None; StreamKind::ALL.len()];
        for (line, symbol) in block.symbols.iter().enumerate() {
            let stream = symbol.schedule.stream;
            let waited = symbol.schedule.after.iter().filter_map(|id| all.writer.get(id).copied());
            let mut before = Counts::default();
            for earlier in last[stream.index()].into_iter().chain(waited) {
                let known = all.before[earlier];
                before.iter_mut().zip(known).for_each(|(own, known)| *own = (*own).max(known));
                // A line for which nothing runs has no end of its own.
                if runs(&block.symbols[earlier]) {
                    let own = &mut before[all.stream[earlier].index()];
                    *own = (*own).max(earlier + 1);
                }
            }
            if runs(symbol) {
                last[stream.index()] = Some(line);
            }
            all.stream.push(stream);
            all.before.push(before);
            all.writer.extend(symbol.results.iter().map(|id| (*id, line)));
        }
        all
    }

    /// Whether a line has ended before another begins.
    pub(super) fn before(&self, earlier: usize, later: usize) -> bool {
        self.before[later][self.stream[earlier].index()] > earlier
    }

    /// The line before `line` that defines a value.
    pub(super) fn writer_before(&self, id: ValueId, line: usize) -> Option<usize> {
        self.writer.get(&id).copied().filter(|writer| *writer < line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Arg;
    use crate::meta::{Device, TensorMeta};
    use crate::trace::order::Order;
    use crate::trace::test_support::{Random, op};
    use crate::trace::{Pass, Schedule};
    use fulgurite_kernels::DType;

    /// Lines on streams at random, some of which wait for others, and some of which nothing runs for.
    fn scheduled(random: &mut Random) -> Block {
        let mut block = Block::default();
        let meta = TensorMeta::new([4], DType::F32, Device::CPU);
        let input = block.define("x", meta.clone());
        block.parameters.push(input);
        for line in 0..12 {
            let result = block.define(format!("v{line}"), meta.clone());
            let mut after = smallvec::SmallVec::new();
            for _ in 0..random.below(3) {
                after.push(ValueId(random.below(block.values.len()) as u32));
            }
            block.symbols.push(BoundSymbol {
                callee: Callee::Operator(op("tt::exp")),
                arguments: vec![Arg::Tensor(input)],
                results: [result].into_iter().collect(),
                body: None,
                pass: Pass::Forward,
                executor: random.one_in(4).then_some(VIEW),
                schedule: Schedule { stream: random.pick(&StreamKind::ALL), after },
                refusals: Vec::new(),
                place: None,
            });
        }
        block
    }

    /// By definition: a line begins when the one before it on its stream and what it waits for have ended, and what
    /// nothing runs for ends as soon as it begins.
    fn ended_before(block: &Block, later: usize) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        let mut open = vec![later];
        while let Some(line) = open.pop() {
            let symbol = &block.symbols[line];
            let own =
                |at: &usize| block.symbols[*at].schedule.stream == symbol.schedule.stream && runs(&block.symbols[*at]);
            let waited = (0..line).filter(|at| symbol.schedule.after.contains(&block.symbols[*at].results[0]));
            for earlier in (0..line).rev().find(own).into_iter().chain(waited) {
                if !found.contains(&earlier) {
                    found.push(earlier);
                    open.push(earlier);
                }
            }
        }
        found
    }

    #[test]
    fn the_order_of_lines_is_that_of_the_definition_and_of_the_planner() {
        let mut random = Random(11);
        let mut counts = [0; 2];
        for _ in 0..300 {
            let block = scheduled(&mut random);
            let (ended, order) = (Ended::of(&block), Order::of(&block));
            for later in 0..block.symbols.len() {
                let defined = ended_before(&block, later);
                for earlier in (0..later).filter(|line| runs(&block.symbols[*line])) {
                    let before = defined.contains(&earlier);
                    counts[usize::from(before)] += 1;
                    assert_eq!(ended.before(earlier, later), before, "{earlier} before {later} in {block:?}");
                    assert_eq!(order.before(earlier, later), before, "{earlier} before {later} in {block:?}");
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 1000), "{counts:?}");
    }
}
