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

/// Bytes up to which tensors go through one exchange by default. By copy engines, steps of GPT-2 124M on two H200 took
/// less time than with 128 MiB, at batch 4 by 2 %; with NCCL 128 MiB took 1 % less (`benches/RESULTS.md`).
pub const BYTES: u64 = 32 << 20;

/// How much smaller the buckets of what gathers are.
const GATHERED: u64 = 4;

/// `trace` with buckets of at most so many bytes each, or of one larger tensor. `None` if there is nothing to put
/// together.
pub fn bucket(trace: &Trace, bytes: u64) -> Option<Trace> {
    let block = &trace.block;
    let mut uses = Uses::of(block);
    let mut lines: Vec<Line> = (0..block.symbols.len()).filter_map(|at| uses.line(at)).collect();
    lines.sort_by_key(|line| (line.order, line.at));
    let mut buckets: Vec<Bucket> = Vec::new();
    // The bucket of each kind that is not full.
    let mut open: FxHashMap<Key, usize> = FxHashMap::default();
    for line in lines {
        let key = key(block, &line);
        let most = if line.gathers { bytes / GATHERED } else { bytes };
        let bucket = open.get(&key).map(|at| &mut buckets[*at]);
        match bucket.filter(|bucket| bucket.bytes + line.bytes <= most && uses.take(bucket, &line)) {
            Some(bucket) => {
                bucket.lines.push(line.at);
                bucket.bytes += line.bytes;
            }
            None => {
                open.insert(key, buckets.len());
                buckets.push(Bucket { lines: vec![line.at], gathers: line.gathers, bytes: line.bytes });
            }
        }
    }
    buckets.retain(|bucket| bucket.lines.len() > 1);
    if buckets.is_empty() {
        return None;
    }
    let mut symbols: Vec<Option<BoundSymbol>> = block.symbols.iter().cloned().map(Some).collect();
    for bucket in buckets {
        let place = uses.places[bucket.lines[0]];
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
}

/// Where values are written and read.
struct Uses<'a> {
    block: &'a Block,
    writers: FxHashMap<ValueId, usize>,
    readers: FxHashMap<ValueId, Vec<usize>>,
    /// Where each line is, with the buckets so far.
    places: Vec<usize>,
}

impl<'a> Uses<'a> {
    fn of(block: &'a Block) -> Uses<'a> {
        let (mut writers, mut readers) = (FxHashMap::default(), FxHashMap::<_, Vec<usize>>::default());
        for (at, symbol) in block.symbols.iter().enumerate() {
            symbol.results.iter().for_each(|id| _ = writers.insert(*id, at));
            symbol.operands().for_each(|id| readers.entry(id).or_default().push(at));
        }
        Uses { block, writers, readers, places: (0..block.symbols.len()).collect() }
    }

    /// The lines that a line depends on.
    fn before(&self, at: usize) -> impl Iterator<Item = usize> {
        self.block.symbols[at].operands().filter_map(|id| self.writers.get(&id).copied())
    }

    /// The lines that depend on a line.
    fn behind(&self, at: usize) -> impl Iterator<Item = usize> {
        self.block.symbols[at].results.iter().flat_map(|id| self.readers.get(id).into_iter().flatten().copied())
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
        let gathers = grows(self.block, symbol);
        let order = if gathers {
            self.behind(at).min().unwrap_or(self.block.symbols.len())
        } else {
            self.before(at).max().map_or(0, |line| line + 1)
        };
        Some(Line { at, gathers, bytes: given.max(taken), order })
    }

    /// Moves a line and those of a bucket to one place, if what they read is written before it, and what they write is
    /// read behind it. Other buckets may have moved those lines.
    fn take(&mut self, bucket: &Bucket, line: &Line) -> bool {
        let all = || bucket.lines.iter().copied().chain([line.at]);
        let place = if bucket.gathers { all().min() } else { all().max() }.unwrap_or_default();
        let fits = |at: usize| {
            self.before(at).all(|line| self.places[line] < place)
                && self.behind(at).all(|line| self.places[line] > place)
        };
        let takes = bucket.gathers == line.gathers && all().all(fits);
        if takes {
            all().for_each(|at| self.places[at] = place);
        }
        takes
    }
}

/// Lines that become one: where the first of them is if they gather, where the last one is otherwise.
struct Bucket {
    lines: Vec<usize>,
    gathers: bool,
    bytes: u64,
}
