//! Lines of a trace replaced by what a Python function computes.

use std::sync::Arc;

use fulgurite::argument::Arg;
use fulgurite::trace::{Block, BoundSymbol, Results, Trace, ValueId};
use fulgurite::tracer::trace_block;
use fulgurite::transforms::flatten::{Flattener, inline};
use fulgurite::{Error, Failure, Tensor, tracer};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::array::or_raise;
use crate::error::argument_error;
use crate::lines::{PyLine, PyValue, Within};
use crate::tensor::{PyTensor, tracing};
use crate::trace::PyTrace;

/// What takes the place of some lines of one block.
struct Replacement {
    within: Within,
    /// The numbers of the lines, in order. What replaces them is written where the last one was.
    lines: Vec<usize>,
    /// What the function is given.
    values: Vec<ValueId>,
    /// The lines that compute the results.
    body: Block,
    /// For each result of `body` the value whose place it takes.
    results: Vec<ValueId>,
}

impl Replacement {
    fn place(&self) -> usize {
        self.lines.last().copied().unwrap_or(0)
    }
}

/// What is wrong with a replacement, in words.
fn wrong(py: Python<'_>, message: &str) -> PyErr {
    argument_error(py, "replace", None, message)
}

/// The block of a trace in which a line is.
fn block_of<'a>(trace: &'a Trace, within: &[usize]) -> Option<&'a Block> {
    within.iter().try_fold(&trace.block, |block, number| {
        let symbol = block.symbols.get(*number)?;
        symbol.body.as_deref().filter(|_| symbol.callee.holds_program())
    })
}

/// The trace with lines replaced: for each replacement the lines, the values that `function` is given as tensors, and
/// `function`, which returns a list of tensors. A function that does not fit is an error that names the value.
#[pyfunction]
pub(crate) fn replaced(
    py: Python<'_>,
    trace: &PyTrace,
    name: &str,
    replacements: Vec<(Vec<PyLine>, Vec<PyValue>, Bound<'_, PyAny>)>,
) -> PyResult<PyTrace> {
    let mut made: Vec<Replacement> = Vec::new();
    for (lines, values, function) in &replacements {
        let next = replacement(py, &trace.0.trace, lines, values, function)?;
        let shared = |other: &&Replacement| {
            other.within == next.within && other.lines.iter().any(|line| next.lines.contains(line))
        };
        if made.iter().any(|other| shared(&other)) {
            let line = lines.first().map(PyLine::described).unwrap_or_default();
            return Err(wrong(
                py,
                &format!("{line} or a line with it is replaced already, a line has one replacement"),
            ));
        }
        made.push(next);
    }
    for each in &made {
        check_order(py, &trace.0.trace, each, &made)?;
    }
    let block = or_raise(py, written(&trace.0.trace.block, &mut Vec::new(), &made))?;
    let mut stage = trace.0.clone();
    stage.trace = stage.trace.transformed(name, block);
    name.clone_into(&mut stage.name);
    or_raise(py, stage.trace.verify())?;
    Ok(PyTrace(stage))
}

fn replacement(
    py: Python<'_>,
    trace: &Trace,
    lines: &[PyLine],
    values: &[PyValue],
    function: &Bound<'_, PyAny>,
) -> PyResult<Replacement> {
    let Some(first) = lines.first() else { return Err(wrong(py, "no line is given")) };
    let within = first.within.clone();
    let Some(block) = block_of(trace, &within) else {
        return Err(wrong(py, &format!("{} is in a region, whose lines cannot be replaced", first.described())));
    };
    for line in lines {
        if line.within != within {
            let message = format!("{} is in another program than {}", line.described(), first.described());
            return Err(wrong(py, &message));
        }
        if !line.is_in(block) {
            return Err(wrong(py, &format!("{} is no line of this trace", line.described())));
        }
    }
    let mut numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let place = numbers.last().copied().unwrap_or(0);
    let own = |id: ValueId| numbers.iter().any(|number| block.symbols[*number].results.contains(&id));
    for value in values {
        let called = value.called();
        if value.within != within || !value.is_in(block) {
            return Err(wrong(py, &format!("'{called}' is no value of the program of {}", first.described())));
        }
        if own(value.id) {
            return Err(wrong(py, &format!("reads '{called}', which the lines that it replaces compute")));
        }
        let before = block.parameters.iter().chain(block.symbols[..place].iter().flat_map(|symbol| &symbol.results));
        if !before.copied().any(|id| id == value.id) {
            let last = &block.symbols[place];
            let message =
                format!("reads '{called}', which is computed behind the last line replaced ({})", last.name());
            return Err(wrong(py, &message));
        }
    }
    let (body, results) = computed(py, block, &numbers, values, function)?;
    Ok(Replacement { within, lines: numbers, values: values.iter().map(|value| value.id).collect(), body, results })
}

/// What the function computes, and the values whose place its results take.
fn computed(
    py: Python<'_>,
    block: &Block,
    numbers: &[usize],
    values: &[PyValue],
    function: &Bound<'_, PyAny>,
) -> PyResult<(Block, Vec<ValueId>)> {
    let all: Vec<ValueId> = numbers.iter().flat_map(|number| block.symbols[*number].results.clone()).collect();
    let others = (0..block.symbols.len()).filter(|number| !numbers.contains(number));
    let mut read: Vec<ValueId> =
        others.flat_map(|number| block.symbols[number].operands().collect::<Vec<_>>()).collect();
    read.extend(&block.results);
    let needed: Vec<ValueId> = all.iter().copied().filter(|id| read.contains(id)).collect();
    let mut raised = None;
    // A value may be given twice, and parameters have names of their own.
    let parameters: Vec<(Arc<str>, _)> = values
        .iter()
        .enumerate()
        .map(|(i, value)| (format!("given.{i}").into(), block.meta(value.id).clone()))
        .collect();
    let body = trace_block(&parameters, |handles| {
        let called = || -> PyResult<Vec<Tensor>> {
            let handles: PyResult<Vec<_>> = handles.iter().map(|tensor| Bound::new(py, PyTensor(*tensor))).collect();
            let returned = function.call1((PyList::new(py, handles?)?,))?;
            let returned: Vec<Bound<'_, PyTensor>> = returned.extract()?;
            Ok(returned.iter().map(|tensor| tensor.get().0).collect())
        };
        tracing(called).unwrap_or_else(|error| {
            tracer::fail("Python", Failure::new("PythonException", error.value(py).to_string()));
            raised = Some(error);
            Vec::new()
        })
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    let body = or_raise(py, body)?;
    let results = match body.results.len() {
        count if count == all.len() => all,
        count if count == needed.len() => needed,
        count => {
            let names = |ids: &[ValueId]| -> String {
                ids.iter().map(|id| format!("'{}'", block.value(*id).name)).collect::<Vec<_>>().join(", ")
            };
            let expected = match all == needed {
                true => format!("{} for {}", all.len(), names(&all)),
                false => format!("{} for {}, or {} for what others read of them", all.len(), names(&all), needed.len()),
            };
            return Err(wrong(py, &format!("the function returned {count} tensors, expected {expected}")));
        }
    };
    for (found, expected) in body.results.iter().zip(&results) {
        let (found, meta) = (body.meta(*found), block.meta(*expected));
        if found != meta {
            let name = &block.value(*expected).name;
            let device = match found.device() == meta.device() {
                true => String::new(),
                false => format!(" on {}, not on {}", meta.device(), found.device()),
            };
            let message = format!("the function returned {found} for '{name}', expected {meta}{device}");
            return Err(wrong(py, &message));
        }
    }
    Ok((body, results))
}

/// An error if a line reads a replaced value before it is computed, or one that is computed no longer.
fn check_order(py: Python<'_>, trace: &Trace, each: &Replacement, all: &[Replacement]) -> PyResult<()> {
    let Some(block) = block_of(trace, &each.within) else { return Ok(()) };
    let gone: Vec<ValueId> = each.lines.iter().flat_map(|number| block.symbols[*number].results.clone()).collect();
    let place = each.place();
    let early = |what: String, id: ValueId| {
        let (name, last) = (&block.value(id).name, &block.symbols[place]);
        let last = last.results.first().map_or(last.name(), |id| &*block.value(*id).name);
        let message = format!(
            "{what} reads '{name}' before it is computed: what replaces lines is written where their last one was, at \
             '{last}'"
        );
        Err(wrong(py, &message))
    };
    let beside = || all.iter().filter(|other| other.within == each.within);
    for (number, symbol) in block.symbols.iter().enumerate() {
        let (kept, before) = (!beside().any(|other| other.lines.contains(&number)), number < place);
        let reads = || symbol.operands().find(|id| gone.contains(id));
        if kept
            && before
            && let Some(id) = reads()
        {
            let name = symbol.results.first().map_or(symbol.name(), |id| &*block.value(*id).name);
            return early(format!("'{name}' ({})", symbol.name()), id);
        }
    }
    for other in beside() {
        if let Some(id) = other.values.iter().find(|id| gone.contains(id)) {
            if !each.results.contains(id) {
                let name = &block.value(*id).name;
                return Err(wrong(py, &format!("another replacement reads '{name}', for which nothing is returned")));
            }
            if other.place() < place {
                return early("another replacement".into(), *id);
            }
        }
    }
    Ok(())
}

/// A block with its replacements, and those in the programs that its lines hold.
fn written(block: &Block, within: &mut Within, all: &[Replacement]) -> Result<Block, Error> {
    let own: Vec<&Replacement> = all.iter().filter(|each| each.within == *within).collect();
    let (mut flattener, mut substitution) = Flattener::new(block);
    for (number, symbol) in block.symbols.iter().enumerate() {
        if let Some(each) = own.iter().find(|each| each.place() == number) {
            // A stand-in symbol whose body is the replacement, opened at once.
            let standing = BoundSymbol {
                callee: symbol.callee.clone(),
                arguments: vec![Arg::List(each.values.clone())],
                results: Results::from_slice(&each.results),
                body: None,
                executor: None,
                schedule: Default::default(),
                refusals: Vec::new(),
                ..symbol.clone()
            };
            inline(
                &mut flattener,
                block,
                &standing,
                &mut substitution,
                &each.body,
                &mut |out, source, line, inner| {
                    out.copy(source, line, inner);
                    Ok::<(), Error>(())
                },
            )?;
        } else if !own.iter().any(|each| each.lines.contains(&number)) {
            let copied = flattener.copy(block, symbol, &mut substitution);
            within.push(number);
            let inside = all.iter().any(|each| each.within.starts_with(within));
            if let Some(body) = symbol.body.as_deref().filter(|_| inside && symbol.callee.holds_program()) {
                copied.body = Some(Arc::new(written(body, within, all)?.canonical()));
            }
            within.pop();
        }
    }
    Ok(flattener.finish(block, &substitution))
}
