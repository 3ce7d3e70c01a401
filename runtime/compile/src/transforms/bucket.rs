//! Buckets: collectives that are alike become one line over a list of tensors, up to a number of bytes. The tensors
//! stay where they are; a transfer of several takes less time than several transfers.
//!
//! What reduces is put together in the order in which it is there, so that a bucket is under way while the next one is
//! computed; what gathers in the order in which it is read, in buckets of a quarter: two of them are there at a time.

use rustc_hash::FxHashMap;

use super::schedule::grows;
use crate::argument::Arg;
use crate::operator::{OperatorDef, ResultsDef};
use crate::trace::{Block, BoundSymbol, Pass, StageName, Trace, ValueId};

/// Bytes up to which tensors go through one exchange by default. Steps of GPT-2 124M on two and four H200 took less
/// time than with 8, 32 or 1,024 MiB.
pub const BYTES: u64 = 128 << 20;

/// How much smaller the buckets of what gathers are.
const GATHERED: u64 = 4;

/// `trace` with buckets of at most so many bytes each, or of one larger tensor. `None` if there is nothing to put
/// together.
pub fn bucket(trace: &Trace, bytes: u64) -> Option<Trace> {
    let block = &trace.block;
    let uses = Uses::of(block);
    let mut lines: Vec<Line> = (0..block.symbols.len()).filter_map(|at| uses.line(at)).collect();
    lines.sort_by_key(|line| (line.order, line.at));
    let mut buckets: Vec<Bucket> = Vec::new();
    // The bucket of each kind that is not full.
    let mut open: FxHashMap<Key, usize> = FxHashMap::default();
    for line in lines {
        let key = key(block, &line);
        let most = if line.gathers { bytes / GATHERED } else { bytes };
        let fits = |at: &&usize| buckets[**at].bytes + line.bytes <= most && buckets[**at].takes(&line);
        match open.get(&key).filter(fits) {
            Some(at) => buckets[*at].add(&line),
            None => {
                open.insert(key, buckets.len());
                buckets.push(Bucket::of(&line));
            }
        }
    }
    buckets.retain(|bucket| bucket.lines.len() > 1);
    if buckets.is_empty() {
        return None;
    }
    let mut symbols: Vec<Option<BoundSymbol>> = block.symbols.iter().cloned().map(Some).collect();
    for bucket in buckets {
        let place = if bucket.gathers { bucket.lines.iter().min() } else { bucket.lines.iter().max() };
        let place = place.copied().unwrap_or_default();
        let (mut inputs, mut results) = (Vec::new(), Vec::new());
        for line in &bucket.lines {
            let symbol = &block.symbols[*line];
            inputs.extend(symbol.operands());
            results.extend(symbol.results.iter().copied());
            symbols[*line] = None;
        }
        let mut one = block.symbols[place].clone();
        one.arguments[0] = Arg::List(inputs);
        one.results = results.into_iter().collect();
        symbols[place] = Some(one);
    }
    let block = Block { symbols: symbols.into_iter().flatten().collect(), ..block.clone() };
    Some(trace.at_stage(StageName::Bucket, block.canonical()))
}

/// What lines of a bucket have in common: operator, executor, pass, everything but the tensors, and their dtype.
type Key = (*const OperatorDef, Option<&'static str>, Pass, String);

fn key(block: &Block, line: &Line) -> Key {
    let symbol = &block.symbols[line.at];
    let def = symbol.operator().map_or(std::ptr::null(), std::ptr::from_ref);
    let dtype = symbol.operands().next().map(|id| block.meta(id).dtype());
    (def, symbol.executor, symbol.pass, format!("{dtype:?} {:?}", &symbol.arguments[1..]))
}

/// A collective over a list.
struct Line {
    at: usize,
    gathers: bool,
    bytes: u64,
    /// Where it comes among the others of its kind.
    order: usize,
    /// The last line before which it cannot be, and the first one behind which it cannot.
    written: Option<usize>,
    read: usize,
}

/// Where values are written and read.
struct Uses<'a> {
    block: &'a Block,
    writers: FxHashMap<ValueId, usize>,
    readers: FxHashMap<ValueId, usize>,
}

impl<'a> Uses<'a> {
    fn of(block: &'a Block) -> Uses<'a> {
        let mut uses = Uses { block, writers: FxHashMap::default(), readers: FxHashMap::default() };
        for (at, symbol) in block.symbols.iter().enumerate() {
            symbol.results.iter().for_each(|id| _ = uses.writers.insert(*id, at));
            symbol.operands().for_each(|id| _ = uses.readers.entry(id).or_insert(at));
        }
        uses
    }

    fn line(&self, at: usize) -> Option<Line> {
        let symbol = &self.block.symbols[at];
        let def = symbol.operator()?;
        let lists = matches!((&symbol.arguments[..], def.results), ([Arg::List(_), ..], ResultsDef::List));
        if !def.effects.collective || !lists {
            return None;
        }
        let bytes =
            |ids: &mut dyn Iterator<Item = ValueId>| ids.map(|id| self.block.meta(id).bytes() as u64).sum::<u64>();
        let (given, taken) = (bytes(&mut symbol.operands()), bytes(&mut symbol.results.iter().copied()));
        let written = symbol.operands().filter_map(|id| self.writers.get(&id).copied()).max();
        let read = symbol.results.iter().filter_map(|id| self.readers.get(id).copied()).min();
        let read = read.unwrap_or(self.block.symbols.len());
        let gathers = grows(self.block, symbol);
        let order = if gathers { read } else { written.map_or(0, |line| line + 1) };
        Some(Line { at, gathers, bytes: given.max(taken), order, written, read })
    }
}

/// Lines that become one: where the first of them is if they gather, where the last one is otherwise.
struct Bucket {
    lines: Vec<usize>,
    gathers: bool,
    bytes: u64,
    written: Option<usize>,
    read: usize,
}

impl Bucket {
    fn of(line: &Line) -> Bucket {
        let Line { at, gathers, bytes, written, read, .. } = *line;
        Bucket { lines: vec![at], gathers, bytes, written, read }
    }

    fn add(&mut self, line: &Line) {
        self.lines.push(line.at);
        self.bytes += line.bytes;
        self.written = self.written.max(line.written);
        self.read = self.read.min(line.read);
    }

    /// Whether what they read is written before the place of the one line, and what they write is read behind it.
    fn takes(&self, line: &Line) -> bool {
        let all = self.lines.iter().copied().chain([line.at]);
        let place = if self.gathers { all.min() } else { all.max() }.unwrap_or_default();
        self.gathers == line.gathers
            && self.written.max(line.written).is_none_or(|written| written < place)
            && self.read.min(line.read) > place
    }
}
