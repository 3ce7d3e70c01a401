//! Lists: the same elementwise line for many inputs of a program, such as the conversions of all weights to bf16, as
//! one region, which a device does in one launch. The lines of a list do not depend on each other and may have any
//! shapes.
//!
//! A line joins a list that comes before it if that costs no memory: its result lives longer then, and all that lives
//! beside it must stay within the program's peak.

use std::sync::Arc;

use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::executor::find_implementation;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::kernel::KernelRules;
use fulgurite_runtime::kernels::fused::FusedProgram;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::rules::*;
use fulgurite_runtime::strided::LayoutRules;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, Results, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::grouping::{Kind, Limits, closed, kind_of};
use crate::program::program_of;

/// Bytes read and written from which on a line stays alone: its own launch keeps a device busy for tens of
/// microseconds, and its result would live long for nothing.
const LARGE: u64 = 64 << 20;

/// Whether two lines do the same to their elements: operator, attributes and element types.
fn are_alike(block: &Block, one: &BoundSymbol, other: &BoundSymbol) -> bool {
    let typed = |symbol: &BoundSymbol| map_arguments(&symbol.arguments, |id| block.meta(*id).dtype());
    let result = |symbol: &BoundSymbol| symbol.results.first().map(|id| block.meta(*id).dtype());
    one.callee == other.callee && result(one) == result(other) && typed(one) == typed(other)
}

/// Whether a line that `executor` claimed is arithmetic on the elements of tensors, and of nothing else.
fn is_elementwise(block: &Block, symbol: &BoundSymbol, executor: &str) -> bool {
    matches!(kind_of(block, symbol, executor), Some(Kind::Elementwise | Kind::Convert))
        && symbol.body.is_none()
        && symbol.operands().all(|id| block.meta(id).shape() == block.meta(symbol.results[0]).shape())
}

/// Whether a region's body is a list: at least two lines that are alike, each reads operands of its own, and the
/// results are theirs, in their order.
pub fn is_list(body: &Block, executor: &str) -> bool {
    let Some((first, others)) = body.symbols.split_first() else { return false };
    let operands: Vec<ValueId> = body.symbols.iter().flat_map(each_once).collect();
    let results = body.symbols.iter().flat_map(|symbol| symbol.results.iter().copied());
    !others.is_empty()
        && body.symbols.iter().all(|symbol| is_elementwise(body, symbol, executor))
        && others.iter().all(|symbol| are_alike(body, first, symbol))
        && operands.iter().collect::<FxHashSet<_>>().len() == operands.len()
        && operands.iter().all(|id| body.parameters.contains(id))
        && results.eq(body.results.iter().copied())
}

/// What a line reads, each value once.
pub fn each_once(symbol: &BoundSymbol) -> Vec<ValueId> {
    let mut read: Vec<ValueId> = Vec::new();
    for id in symbol.operands() {
        if !read.contains(&id) {
            read.push(id);
        }
    }
    read
}

/// Bytes that a line reads and writes; none if there are no elements.
fn bytes_moved(block: &Block, symbol: &BoundSymbol) -> u64 {
    let all = each_once(symbol).into_iter().chain(symbol.results.iter().copied());
    all.map(|id| block.meta(id).bytes() as u64).fold(0, u64::saturating_add)
}

/// What a line of a list computes: the inputs are what it reads, each once.
///
/// # Errors
/// If it is no line of a list of `executor`, or there are no elements.
pub fn program_of_line(body: &Block, symbol: &BoundSymbol, limits: Limits) -> Result<FusedProgram> {
    program_of(&closed(body, &each_once(symbol), std::slice::from_ref(symbol), &symbol.results), limits)
}

/// Gathers into lists those lines of `limits.members` that read inputs of the program, or views of them, and are in no
/// region.
pub fn gather(block: &Block, limits: Limits, fuel: &mut Fuel) -> Block {
    let mut new = block.clone();
    let inputs = Inputs::of(block);
    let mut seed = 0;
    while seed < new.symbols.len() {
        let joins =
            inputs.reads_them_alone(&new.symbols[seed]) && is_elementwise(&new, &new.symbols[seed], limits.members);
        let list = if joins { members(&new, &inputs, seed, limits) } else { Vec::new() };
        if list.len() > 1 && fuel.burn() {
            write(&mut new, &list, limits);
        }
        seed += 1;
    }
    new
}

/// Which values are inputs of a program, or views of them.
struct Inputs {
    of: FxHashSet<ValueId>,
}

impl Inputs {
    fn of(block: &Block) -> Inputs {
        let roots = roots(block);
        let parameters: FxHashSet<ValueId> = block.parameters.iter().copied().collect();
        let fixed = |id: &ValueId| parameters.contains(&roots[id.index()]);
        Inputs { of: (0..block.values.len() as u32).map(ValueId).filter(fixed).collect() }
    }

    fn reads_them_alone(&self, symbol: &BoundSymbol) -> bool {
        symbol.operands().all(|id| self.of.contains(&id)) && symbol.operands().next().is_some()
    }
}

/// For each value the one whose memory it shows, as far as can be said before layouts are decided.
fn roots(block: &Block) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = (0..block.values.len() as u32).map(ValueId).collect();
    for symbol in &block.symbols {
        let views = symbol.operator().is_some_and(|def| LayoutRules::of(def).view.is_some());
        if let (true, Some(of)) = (views, symbol.operands().next()) {
            symbol.results.iter().for_each(|id| roots[id.index()] = roots[of.index()]);
        }
    }
    roots
}

/// Whether the kernel of a line may write a result over an operand.
fn writes_over(symbol: &BoundSymbol) -> bool {
    let Some(def) = symbol.operator() else { return true };
    let implementation = || find_implementation(def.name, symbol.executor?);
    Arithmetic::of(def).scalar.is_some()
        || KernelRules::of(def).in_place
        || implementation().is_some_and(|implementation| implementation.kernel.in_place)
}

/// Bytes of the arena at each line. A result may overwrite an operand that it is computed from, which is decided later:
/// each line has the least and the most that there may be.
fn living(block: &Block) -> Vec<[u64; 2]> {
    let roots = roots(block);
    let outside: FxHashSet<ValueId> =
        block.parameters.iter().chain(&block.results).map(|id| roots[id.index()]).collect();
    let mut last: FxHashMap<ValueId, usize> = FxHashMap::default();
    for (line, symbol) in block.symbols.iter().enumerate() {
        for id in symbol.operands().chain(symbol.results.iter().copied()) {
            last.insert(roots[id.index()], line);
        }
    }
    // What ends before each line.
    let mut ending = vec![0u64; block.symbols.len() + 1];
    let mut now = 0u64;
    let mut all = Vec::with_capacity(block.symbols.len());
    for (line, symbol) in block.symbols.iter().enumerate() {
        now = now.saturating_sub(ending[line]);
        let mut over = 0;
        for id in symbol.results.iter().filter(|id| roots[id.index()] == **id && !outside.contains(*id)) {
            let bytes = block.meta(*id).bytes() as u64;
            now = now.saturating_add(bytes);
            let ends = last.get(id).copied().unwrap_or(line) + 1;
            ending[ends] = ending[ends].saturating_add(bytes);
            let dies = |operand: ValueId| last.get(&roots[operand.index()]) == Some(&line);
            if writes_over(symbol)
                && symbol.operands().any(|operand| dies(operand) && block.meta(operand).bytes() as u64 == bytes)
            {
                over += bytes;
            }
        }
        all.push([now.saturating_sub(over), now]);
    }
    all
}

/// The lines of a list that starts with line `seed`.
fn members(block: &Block, inputs: &Inputs, seed: usize, limits: Limits) -> Vec<usize> {
    let first = &block.symbols[seed];
    let joins = |symbol: &BoundSymbol| {
        symbol.pass == first.pass
            && (1..LARGE).contains(&bytes_moved(block, symbol))
            && inputs.reads_them_alone(symbol)
            && are_alike(block, first, symbol)
            && is_elementwise(block, symbol, limits.members)
    };
    if !joins(first) {
        return Vec::new();
    }
    let candidates: Vec<usize> = (seed + 1..block.symbols.len()).filter(|line| joins(&block.symbols[*line])).collect();
    if candidates.is_empty() {
        return Vec::new();
    }
    let living = living(block);
    let peak = living.iter().map(|[least, _]| *least).max().unwrap_or(0);
    let leaves: FxHashSet<ValueId> = block.results.iter().copied().collect();
    let mut read: FxHashSet<ValueId> = each_once(first).into_iter().collect();
    let mut list = vec![seed];
    // The most that lives from the list up to the line before a candidate, what joined before included.
    let (mut most, mut seen) = (0u64, seed);
    for line in candidates {
        most = living[seen..line].iter().map(|[_, most]| *most).fold(most, u64::max);
        seen = line;
        let symbol = &block.symbols[line];
        let (own, result) = (each_once(symbol), symbol.results[0]);
        let bytes = if leaves.contains(&result) { 0 } else { block.meta(result).bytes() as u64 };
        let with_it = most.saturating_add(bytes);
        if (bytes == 0 || with_it <= peak) && own.iter().all(|id| !read.contains(id)) {
            read.extend(own);
            list.push(line);
            most = with_it;
        }
    }
    list
}

/// Puts a region in the place of the first of the lines `list`, behind the views that it reads; the others are taken
/// away.
fn write(block: &mut Block, list: &[usize], limits: Limits) {
    let own: Vec<BoundSymbol> = list
        .iter()
        .map(|line| BoundSymbol { executor: Some(limits.executor), ..block.symbols[*line].clone() })
        .collect();
    let results: Results = own.iter().flat_map(|symbol| symbol.results.iter().copied()).collect();
    let inputs: Vec<ValueId> = own.iter().flat_map(each_once).collect();
    let (place, pass) = (own[0].place, own[0].pass);
    let region = BoundSymbol {
        callee: Callee::Region { executor: limits.executor },
        body: Some(Arc::new(closed(block, &inputs, &own, &results))),
        arguments: vec![Arg::List(inputs)],
        results,
        pass,
        executor: Some(limits.executor),
        schedule: Default::default(),
        refusals: Vec::new(),
        place,
    };
    let mut needed: FxHashSet<ValueId> = region.operands().collect();
    let mut moved: Vec<usize> = Vec::new();
    for line in (list[0] + 1..list[list.len() - 1]).rev() {
        let symbol = &block.symbols[line];
        if symbol.results.iter().any(|id| needed.contains(id)) {
            needed.extend(symbol.operands());
            moved.push(line);
        }
    }
    let gone: FxHashSet<usize> = list.iter().chain(&moved).copied().collect();
    let mut lines: Vec<BoundSymbol> = block.symbols[..list[0]].to_vec();
    lines.extend(moved.iter().rev().map(|line| block.symbols[*line].clone()));
    lines.push(region);
    let rest = block.symbols.iter().enumerate().skip(list[0]).filter(|(line, _)| !gone.contains(line));
    lines.extend(rest.map(|(_, symbol)| symbol.clone()));
    block.symbols = lines;
}
