//! What a region has read before it writes: from the order in which regions compute.
//!
//! The lines of a region that are connected by values are computed together, element by element. If some of them reduce
//! rows, the region goes over each row once more for what depends on the reduction, and reads its operands in each of
//! these passes. Lines that nothing connects are computed in any order. A region that holds kernels which say
//! themselves what they update in place runs them one after another.

use rustc_hash::FxHashMap;

use super::kernels::Runner;
use crate::trace::{Block, BoundSymbol, ValueId};

/// The regions that were asked about, by their first results: each is gone through once.
pub(super) struct Regions<'a> {
    /// The kind of device that runs them.
    device: &'a str,
    known: FxHashMap<ValueId, Option<Region<'a>>>,
}

struct Region<'a> {
    device: &'a str,
    body: &'a Block,
    /// For each operand the only parameter that has it; none if it is given several times.
    parameters: FxHashMap<ValueId, Option<ValueId>>,
    /// The value of the body for each result.
    results: FxHashMap<ValueId, ValueId>,
    /// The lines that read each value.
    readers: Vec<Vec<usize>>,
    /// Values that lines connect have the same number.
    group: Vec<usize>,
    order: Order,
}

/// In which order a region computes.
enum Order {
    /// One kernel after another, each with a declaration of its own.
    Kernels,
    /// Each element by itself, through all lines.
    Elements,
    /// Row by row.
    Rows(Passes),
}

/// What each value of a body depends on.
struct Passes {
    /// For each line whether it reduces.
    reduces: Vec<bool>,
    /// For each value the reductions that have ended before it is computed, a bit for each.
    after: Vec<Bits>,
}

impl<'a> Regions<'a> {
    /// Those of a program that runs on a device of this kind.
    pub(super) fn on(device: &'a str) -> Regions<'a> {
        Regions { device, known: FxHashMap::default() }
    }

    /// Whether a region has read each element of `operand` before it writes that element of `result`, which is of the
    /// same shape.
    pub(super) fn reads_first(&mut self, symbol: &'a BoundSymbol, result: ValueId, operand: ValueId) -> bool {
        let Some(first) = symbol.results.first() else { return false };
        let region = self.known.entry(*first).or_insert_with(|| Region::of(symbol, self.device));
        region.as_ref().is_some_and(|region| region.reads_first(result, operand))
    }
}

impl<'a> Region<'a> {
    fn of(symbol: &'a BoundSymbol, device: &'a str) -> Option<Region<'a>> {
        let body = symbol.body.as_deref()?;
        let mut parameters: FxHashMap<ValueId, Option<ValueId>> = FxHashMap::default();
        for (outer, own) in symbol.operands().zip(&body.parameters) {
            parameters.entry(outer).and_modify(|known| *known = None).or_insert(Some(*own));
        }
        let results = symbol.results.iter().copied().zip(body.results.iter().copied()).collect();
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); body.values.len()];
        for (line, inner) in body.symbols.iter().enumerate() {
            for id in inner.operands() {
                let known = &mut readers[id.index()];
                if known.last() != Some(&line) {
                    known.push(line);
                }
            }
        }
        let group = groups(body, &readers);
        let same_shapes = |line: &BoundSymbol| {
            let mut shapes = line.operands().chain(line.results.iter().copied()).map(|id| body.meta(id).shape());
            shapes.next().is_none_or(|first| shapes.all(|shape| shape == first))
        };
        let order = if body.symbols.iter().any(|line| Runner::of(line, device).declares_in_place()) {
            Order::Kernels
        } else if body.symbols.iter().all(same_shapes) {
            Order::Elements
        } else {
            Order::Rows(Passes::of(body))
        };
        Some(Region { device, body, parameters, results, readers, group, order })
    }

    fn reads_first(&self, result: ValueId, operand: ValueId) -> bool {
        let (Some(Some(read)), Some(written)) = (self.parameters.get(&operand), self.results.get(&result)) else {
            return false;
        };
        let (read, written) = (*read, *written);
        match &self.order {
            Order::Kernels => {
                let [line] = self.readers[read.index()][..] else { return false };
                let line = &self.body.symbols[line];
                line.results.contains(&written) && Runner::of(line, self.device).reads_first(line, written, read)
            }
            Order::Elements => self.group[read.index()] == self.group[written.index()],
            Order::Rows(passes) => {
                self.group[read.index()] == self.group[written.index()]
                    && is_of_all_elements(self.body, written)
                    && passes.read_before(self.body, read, written)
            }
        }
    }
}

/// Whether a value has an element for each element of the largest rows: what is the same for a whole row is read for
/// each element of it, maybe by other threads.
fn is_of_all_elements(body: &Block, value: ValueId) -> bool {
    let shape = body.meta(value).shape();
    let size = |shape: &[usize]| (shape.len(), shape.iter().product::<usize>());
    let largest = body.values.iter().map(|value| value.meta.shape()).max_by_key(|shape| size(shape));
    largest == Some(shape) && shape.last().is_some_and(|extent| *extent != 1)
}

/// A number for each value: the same for values that lines connect, directly or through others.
fn groups(body: &Block, readers: &[Vec<usize>]) -> Vec<usize> {
    let mut writer: Vec<Option<usize>> = vec![None; body.values.len()];
    for (line, symbol) in body.symbols.iter().enumerate() {
        symbol.results.iter().for_each(|id| writer[id.index()] = Some(line));
    }
    let mut group: Vec<Option<usize>> = vec![None; body.values.len()];
    let mut seen = vec![false; body.symbols.len()];
    for start in 0..body.values.len() {
        let mut reached = vec![start];
        while let Some(value) = reached.pop() {
            if group[value].is_some() {
                continue;
            }
            group[value] = Some(start);
            for line in readers[value].iter().copied().chain(writer[value]) {
                if !std::mem::replace(&mut seen[line], true) {
                    let symbol = &body.symbols[line];
                    reached.extend(symbol.operands().chain(symbol.results.iter().copied()).map(ValueId::index));
                }
            }
        }
    }
    group.into_iter().enumerate().map(|(value, group)| group.unwrap_or(value)).collect()
}

impl Passes {
    fn of(body: &Block) -> Passes {
        let count = |id: ValueId| body.meta(id).len();
        let reduces: Vec<bool> = body
            .symbols
            .iter()
            .map(|line| {
                let largest = line.operands().map(count).max().unwrap_or(0);
                line.results.iter().any(|id| count(*id) < largest)
            })
            .collect();
        let mut after: Vec<Bits> = vec![Bits::default(); body.values.len()];
        let mut reductions = 0;
        for (line, symbol) in body.symbols.iter().enumerate() {
            let mut ended = Bits::default();
            symbol.operands().for_each(|id| ended.add(&after[id.index()]));
            if reduces[line] {
                ended.set(reductions);
                reductions += 1;
            }
            symbol.results.iter().for_each(|id| after[id.index()] = ended.clone());
        }
        Passes { reduces, after }
    }

    /// Whether no pass that begins after an element of `written` is there reads that element of `read`: `written` comes
    /// in the pass after the reductions that it depends on, and what depends on others may be computed after it.
    fn read_before(&self, body: &Block, read: ValueId, written: ValueId) -> bool {
        // The elements of `read`, and what is computed of them again in each pass.
        let mut elements = vec![false; body.values.len()];
        elements[read.index()] = true;
        for (line, symbol) in body.symbols.iter().enumerate() {
            if !symbol.operands().any(|id| elements[id.index()]) {
                continue;
            }
            if symbol.operands().any(|id| !self.after[id.index()].is_within(&self.after[written.index()])) {
                return false;
            }
            if !self.reduces[line] {
                symbol.results.iter().for_each(|id| elements[id.index()] = true);
            }
        }
        true
    }
}

/// A set of small numbers.
#[derive(Debug, Clone, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn set(&mut self, bit: usize) {
        if self.0.len() <= bit / 64 {
            self.0.resize(bit / 64 + 1, 0);
        }
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn add(&mut self, other: &Bits) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    fn is_within(&self, other: &Bits) -> bool {
        let word = |i: usize| other.0.get(i).copied().unwrap_or(0);
        self.0.iter().enumerate().all(|(i, own)| own & !word(i) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Arg;
    use crate::expansion;
    use crate::kernel::KernelRules;
    use crate::meta::{Device, TensorMeta};
    use crate::operator::{Class, OperatorDef, OperatorKind, ResultsDef};
    use crate::registry::OPERATORS;
    use crate::trace::in_place::RegionReaders;
    use crate::trace::test_support::{Random, op};
    use crate::trace::{Callee, Pass, Results};
    use fulgurite_kernels::DType;
    use std::sync::Arc;

    const UPDATES: KernelRules = KernelRules { in_place: true, in_place_over: &["others"], ..KernelRules::EMPTY };

    #[linkme::distributed_slice(OPERATORS)]
    static EACH: &OperatorDef = &OperatorDef {
        name: "tt::each",
        kind: OperatorKind::Symbol(&["tt_host"]),
        params: &[expansion::tensor::define("input", Class::Any), expansion::list::define("others", Class::Any)],
        results: ResultsDef::List,
        rules: &[&UPDATES],
        file: "trace/verify/regions.rs",
        ..expansion::OPERATOR
    };

    const SHAPES: [&[usize]; 7] = [&[4, 8], &[4, 8], &[4, 8], &[4, 1], &[4], &[8, 4], &[]];

    fn line(callee: Callee, arguments: Vec<Arg<ValueId>>, results: Results, body: Option<Arc<Block>>) -> BoundSymbol {
        BoundSymbol {
            callee,
            arguments,
            results,
            body,
            pass: Pass::Forward,
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place: None,
        }
    }

    /// A region at random: lines that keep the shape, reduce, broadcast, or update in place. Its operands are the
    /// values from 0 on, its results those from 100 on.
    fn region(random: &mut Random, shapes: &[&[usize]], declared: bool) -> BoundSymbol {
        let mut body = Block::default();
        let meta = |random: &mut Random| TensorMeta::new(random.pick(shapes), DType::F32, Device::CPU);
        for parameter in 0..2 + random.below(3) {
            let meta = meta(random);
            let id = body.define(format!("p{parameter}"), meta);
            body.parameters.push(id);
        }
        for at in 0..1 + random.below(7) {
            let count = body.values.len();
            let mut any = || ValueId(random.below(count) as u32);
            let (one, other, more) = (any(), any(), any());
            let (callee, arguments, results) = match random.below(if declared { 3 } else { 2 }) {
                0 => (op("tt::exp"), vec![Arg::Tensor(one)], 1),
                1 => (op("tt::add"), vec![Arg::Tensor(one), Arg::Tensor(other)], 1 + random.below(2)),
                _ => (op("tt::each"), vec![Arg::Tensor(more), Arg::List(vec![one, other])], 2),
            };
            let defined = (0..results).map(|n| {
                let meta = meta(random);
                body.define(format!("v{at}.{n}"), meta)
            });
            let defined: Results = defined.collect();
            body.symbols.push(line(Callee::Operator(callee), arguments, defined, None));
        }
        for _ in 0..1 + random.below(3) {
            body.results.push(ValueId(random.below(body.values.len()) as u32));
        }
        let operands = (0..body.parameters.len() as u32).map(|at| if random.one_in(6) { 0 } else { at });
        let arguments = operands.map(|at| Arg::Tensor(ValueId(at))).collect();
        let results = (0..body.results.len() as u32).map(|at| ValueId(100 + at)).collect();
        line(Callee::Region { executor: "tt_host" }, arguments, results, Some(Arc::new(body)))
    }

    /// Two ways to the same answer: how regions compute, and what the planner asks.
    #[test]
    fn a_region_reads_first_where_the_planner_says_so() {
        let mut random = Random(5);
        for (shapes, declared) in [(&SHAPES[..], false), (&SHAPES[..1], false), (&SHAPES[..], true)] {
            let mut counts = [0; 2];
            for _ in 0..4000 {
                let region = region(&mut random, shapes, declared);
                let (mut own, mut planner) = (Regions::on("cpu"), RegionReaders::default());
                for result in &region.results {
                    for operand in region.operands() {
                        let reads_first = own.reads_first(&region, *result, operand);
                        counts[usize::from(reads_first)] += 1;
                        let planned = planner.updates_in_place(&region, *result, operand);
                        assert_eq!(reads_first, planned, "{result:?} over {operand:?} in {region:?}");
                    }
                }
            }
            assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
        }
    }
}
