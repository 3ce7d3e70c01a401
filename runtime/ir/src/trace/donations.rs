//! Donated inputs: which outputs may take their memory, and why others may not. The memory plan asks it, and the text
//! of a planned trace says it.

use rustc_hash::FxHashMap;

use super::in_place::RegionReaders;
use super::memory_use::last_uses;
use super::order::{Order, is_run};
use super::paths::{input_place, output_place};
use super::{Block, BoundSymbol, Storage, Trace, ValueId};
use crate::executor::{JOIN, VIEW};

/// The use of a donated input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Donation {
    /// The input's name.
    pub input: String,
    /// The path of the output that has its memory, or why none has.
    pub outcome: Result<String, String>,
}

/// The use of each donated input of a planned trace, in the order of the inputs.
pub fn donations(trace: &Trace) -> Vec<Donation> {
    // Texts show traces that are not valid as well.
    if trace.inputs.iter().all(|input| !input.donated) || !is_whole(&trace.block) {
        return Vec::new();
    }
    let mut donor = Donor::of(trace);
    let (block, roots) = (&trace.block, donor.roots.clone());
    let mut found = Vec::new();
    for (parameter, input) in block.parameters.iter().zip(&trace.inputs).filter(|(_, input)| input.donated) {
        let name = &block.value(*parameter).name;
        let over = |result: &ValueId| {
            block.value(*result).storage == Some(Storage::Shared(*parameter)) && roots[result.index()] == *result
        };
        let outputs = || block.results.iter().zip(&trace.outputs);
        let of_path = outputs().find(|(_, output)| of_one_place(&output.path, name));
        let of_path = of_path.map(|(result, output)| (*result, &output.path));
        let outcome = match (outputs().find(|(result, _)| over(result)), of_path) {
            (Some((_, output)), _) => Ok(output.path.clone()),
            (None, None) => Err("no result has its path".to_owned()),
            (None, Some(_)) if input.strides.is_some() => Err("its memory is not laid out row by row".to_owned()),
            (None, Some((result, path))) => Err(match donor.fits(result, *parameter) {
                Err(reason) => format!("result '{path}' {reason}"),
                Ok(()) if donor.of_path(path) != Some(*parameter) => {
                    format!("another input has the path of result '{path}'")
                }
                Ok(()) => format!("the plan keeps result '{path}' elsewhere"),
            }),
        };
        found.push(Donation { input: name.to_string(), outcome });
    }
    found
}

fn of_one_place(output: &str, input: &str) -> bool {
    output_place(output) == input_place(input)
}

/// The memory that a symbol reads, and of each whether it is read as it is and never through a view.
fn roots_read(symbol: &BoundSymbol, roots: &[ValueId]) -> FxHashMap<ValueId, bool> {
    let mut read: FxHashMap<ValueId, bool> = FxHashMap::default();
    for id in symbol.operands() {
        *read.entry(roots[id.index()]).or_insert(true) &= roots[id.index()] == id;
    }
    read
}

/// Whether a block and the bodies in it name no values that they do not have.
fn is_whole(block: &Block) -> bool {
    let has = |id: &ValueId| id.index() < block.values.len();
    block.parameters.iter().chain(&block.results).all(has)
        && block.symbols.iter().all(|symbol| {
            symbol.operands().chain(symbol.results.iter().copied()).all(|id| has(&id))
                && symbol.body.as_ref().is_none_or(|body| is_whole(body))
        })
}

/// For each value the one whose memory it shows.
fn roots(block: &Block) -> Vec<ValueId> {
    let mut roots: Vec<ValueId> = (0..block.values.len() as u32).map(ValueId).collect();
    for symbol in block.symbols.iter().filter(|symbol| symbol.executor == Some(VIEW)) {
        let Some(of) = symbol.operands().next() else { continue };
        symbol.results.iter().for_each(|id| roots[id.index()] = roots[of.index()]);
    }
    roots
}

/// What is asked of a block.
pub struct Donor<'a> {
    block: &'a Block,
    roots: Vec<ValueId>,
    /// The last line that reads each value or a view of it.
    last: Vec<usize>,
    /// The line that writes each value.
    writer: Vec<Option<usize>>,
    /// The lines that read the memory of each value.
    readers: Vec<Vec<usize>>,
    order: Order,
    /// The first donated input of each path.
    donated: FxHashMap<&'a str, ValueId>,
    returned: FxHashMap<ValueId, usize>,
    /// One line may update hundreds of parameters: what it reads is gone through once, not for each of them. By line
    /// the memory that it reads, and of each whether it is read as it is and never through a view.
    reads: FxHashMap<usize, FxHashMap<ValueId, bool>>,
    regions: RegionReaders<'a>,
}

impl<'a> Donor<'a> {
    /// The donations of a trace.
    pub fn of(trace: &'a Trace) -> Donor<'a> {
        let block = &trace.block;
        let roots = roots(block);
        let last = last_uses(block, &roots);
        let mut writer = vec![None; block.values.len()];
        for (i, symbol) in block.symbols.iter().enumerate() {
            symbol.results.iter().for_each(|id| writer[id.index()] = Some(i));
        }
        let mut donated: FxHashMap<&str, ValueId> = FxHashMap::default();
        for (id, input) in block.parameters.iter().zip(&trace.inputs).rev() {
            if input.donated && input.strides.is_none() {
                donated.insert(input_place(&block.value(*id).name), *id);
            }
        }
        let mut returned: FxHashMap<ValueId, usize> = FxHashMap::default();
        block.results.iter().for_each(|id| *returned.entry(*id).or_default() += 1);
        let mut readers = vec![Vec::new(); block.values.len()];
        for (line, symbol) in block.symbols.iter().enumerate().filter(|(_, symbol)| is_run(symbol)) {
            symbol.operands().for_each(|id| readers[roots[id.index()].index()].push(line));
        }
        let (order, reads, regions) = (Order::of(block), FxHashMap::default(), RegionReaders::default());
        Donor { block, roots, last, writer, readers, order, donated, returned, reads, regions }
    }

    /// The donated input of an output's path.
    pub fn of_path(&self, output: &str) -> Option<ValueId> {
        self.donated.get(output_place(output)).copied()
    }

    /// Whether `result` may have the memory of `parameter`, or why not.
    pub fn fits(&mut self, result: ValueId, parameter: ValueId) -> Result<(), String> {
        let (block, roots) = (self.block, &self.roots);
        let Some(written) = self.writer[result.index()] else { return Err("is an input as it came".into()) };
        let symbol = &block.symbols[written];
        if block.meta(result) != block.meta(parameter) {
            return Err(format!("is {}, the input {}", block.meta(result), block.meta(parameter)));
        }
        if symbol.executor == Some(JOIN) {
            return Err("is written part by part".into());
        }
        if roots[result.index()] != result {
            return Err(format!("is a view of '{}'", block.value(roots[result.index()]).name));
        }
        if self.returned.get(&result) != Some(&1) {
            return Err("is returned more than once".into());
        }
        if self.returned.contains_key(&parameter) {
            return Err("comes back beside the input itself".into());
        }
        let last = self.last[parameter.index()];
        if last > written {
            let reader = block.symbols.get(last).and_then(|symbol| symbol.results.first());
            let reader = reader.map_or_else(|| "a later line".to_owned(), |id| format!("'{}'", block.value(*id).name));
            return Err(format!("is written before {reader} reads the input"));
        }
        let running = self.readers[parameter.index()]
            .iter()
            .find(|line| **line != written && !self.order.before(**line, written));
        if let Some(id) = running.and_then(|line| block.symbols[*line].results.first()) {
            return Err(format!(
                "does not wait for '{}', which reads the input on another stream",
                block.value(*id).name
            ));
        }
        let reads = self.reads.entry(written).or_insert_with(|| roots_read(symbol, roots));
        // A kernel that reads an element before it writes it may update in place; views of other shapes are not that.
        let in_place = match reads.get(&parameter) {
            None => true,
            Some(exactly) => *exactly && self.regions.updates_in_place(symbol, result, parameter),
        };
        if !in_place {
            let by = symbol.executor.unwrap_or("nobody");
            return Err(format!(
                "is computed from the input by {} of '{by}', which does not update it in place",
                symbol.name()
            ));
        }
        Ok(())
    }
}
