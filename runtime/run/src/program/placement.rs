//! Where the values of a planned trace are found when it runs, and where its outputs come from.

use std::sync::Arc;

use fulgurite_kernels::view::contiguous_strides;

use crate::array::{Array, Form, Memory, Strides};
use crate::error::{CallStack, Error, Result};
use crate::executor::VIEW;
use crate::meta::TensorMeta;
use crate::trace::{BoundSymbol, StageName, Storage, Trace};
use crate::transforms::layout::{Layout, layouts};

/// Where a value's root memory is found when the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Input(usize),
    Arena(u64),
    Output(usize),
}

/// A value.
pub(super) struct Slot {
    pub(super) base: Base,
    /// In bytes, from the base.
    pub(super) offset: isize,
    pub(super) meta: TensorMeta,
    pub(super) strides: Strides,
}

/// Where an output comes from.
pub(super) enum Source {
    /// Fresh memory, the n-th.
    Fresh(usize),
    /// The memory of a donated input, updated in place.
    Donated(usize),
    /// An input, as it came.
    Passed(usize),
    /// The same as an earlier output.
    Same(usize),
}

/// Places of all values of a trace, by value.
pub(super) struct Placement {
    pub(super) slots: Vec<Slot>,
    pub(super) outputs: Vec<Source>,
    /// For each input whether a kernel writes to its memory.
    pub(super) overwritten: Vec<bool>,
    /// Outputs made fresh: one for each `Base::Output`.
    pub(super) fresh: Vec<TensorMeta>,
    /// The forms of these outputs, shared by those of all runs.
    forms: Vec<Arc<Form>>,
}

/// The error of a donated input that is not for the program to overwrite.
pub(super) fn not_unique(name: &str, array: &Array) -> Error {
    let message = match array.is_external() && !array.is_lent() {
        true => "is donated but its memory belongs to another library; donate a copy (`to_contiguous`)",
        false => "is donated but another array still shares its memory; donate the only array, or do not donate it",
    };
    Error::Argument { argument: name.to_owned(), message: message.into() }
}

impl Placement {
    /// Reads the plan of a trace.
    pub(super) fn new(trace: &Trace) -> Result<Placement> {
        let block = &trace.block;
        let layouts: Vec<Layout> = layouts(trace);
        let mut bases: Vec<Option<Base>> = vec![None; block.values.len()];
        for (i, parameter) in block.parameters.iter().enumerate() {
            bases[parameter.index()] = Some(Base::Input(i));
        }
        let mut fresh = Vec::new();
        let mut donated: Vec<Option<usize>> = vec![None; block.values.len()];
        let not_planned = |symbol: &BoundSymbol| Error::Verify {
            transform: StageName::PlanMemory.name().into(),
            line: symbol.name().into(),
            message: "a result has no storage; run the memory plan first".into(),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        };
        for id in block.symbols.iter().flat_map(|symbol| &symbol.results) {
            bases[id.index()] = match block.value(*id).storage {
                Some(Storage::Arena(offset)) => Some(Base::Arena(offset)),
                Some(Storage::Output) => {
                    fresh.push(block.meta(*id).clone());
                    Some(Base::Output(fresh.len() - 1))
                }
                // What it shares may be a whole whose parts come first.
                Some(Storage::Shared(_)) | None => continue,
            };
        }
        for symbol in &block.symbols {
            for id in &symbol.results {
                bases[id.index()] = match block.value(*id).storage {
                    Some(Storage::Arena(_) | Storage::Output) => continue,
                    Some(Storage::Shared(root)) => {
                        let base = bases.get(root.index()).copied().flatten();
                        if let (Some(Base::Input(input)), false) = (base, symbol.executor == Some(VIEW)) {
                            donated[id.index()] = Some(input);
                        }
                        bases.get(root.index()).copied().flatten()
                    }
                    None => None,
                };
                if bases[id.index()].is_none() {
                    return Err(not_planned(symbol));
                }
            }
        }
        let slots: Vec<Slot> = (0..block.values.len())
            .map(|i| {
                let meta = block.values[i].meta.clone();
                Slot {
                    base: bases[i].unwrap_or(Base::Arena(0)),
                    offset: layouts[i].offset * meta.dtype().size() as isize,
                    meta,
                    strides: layouts[i].strides.clone(),
                }
            })
            .collect();
        let mut outputs: Vec<Source> = Vec::with_capacity(block.results.len());
        let mut first_at = rustc_hash::FxHashMap::default();
        for (i, id) in block.results.iter().enumerate() {
            let at = *first_at.entry(*id).or_insert(i);
            let earlier = (at < i).then_some(at);
            outputs.push(match (earlier, donated[id.index()], bases[id.index()]) {
                (_, None, Some(Base::Input(input))) => Source::Passed(input),
                (Some(earlier), _, _) => Source::Same(earlier),
                (None, Some(input), _) => Source::Donated(input),
                (None, None, Some(Base::Output(n))) => Source::Fresh(n),
                _ => {
                    return Err(Error::Verify {
                        transform: StageName::PlanMemory.name().into(),
                        line: block.value(*id).name.to_string(),
                        message: "an output has no memory of its own".into(),
                        stack: CallStack::default(),
                    });
                }
            });
        }
        let mut taken = vec![false; fresh.len()];
        for (source, id) in outputs.iter().zip(&block.results) {
            if let Source::Fresh(n) = source
                && std::mem::replace(&mut taken[*n], true)
            {
                return Err(Error::Verify {
                    transform: StageName::PlanMemory.name().into(),
                    line: block.value(*id).name.to_string(),
                    message: "two outputs have one memory".into(),
                    stack: CallStack::default(),
                });
            }
        }
        let mut overwritten = vec![false; block.parameters.len()];
        donated.iter().flatten().for_each(|input| overwritten[*input] = true);
        let form = |meta: &TensorMeta| Form::new(meta.clone(), contiguous_strides(meta.shape()).into());
        let forms = fresh.iter().map(form).collect();
        Ok(Placement { slots, outputs, overwritten, fresh, forms })
    }

    /// Whether arrays are what the trace takes; those that the host still holds count as if they were on `device`.
    pub(super) fn check_inputs(&self, trace: &Trace, inputs: &[Array]) -> Result<()> {
        let block = &trace.block;
        if inputs.len() != block.parameters.len() {
            return Err(Error::Argument {
                argument: "inputs".into(),
                message: format!("the program takes {} inputs, got {}", block.parameters.len(), inputs.len()),
            });
        }
        for (i, array) in inputs.iter().enumerate() {
            let value = block.value(block.parameters[i]);
            let wrong = |message: String| Error::Argument { argument: value.name.to_string(), message };
            let staged = array.device().is_cpu() && array.meta().with_device(value.meta.device()) == value.meta;
            if *array.meta() != value.meta && !staged {
                return Err(wrong(format!("is {}, the program was compiled for {}", array.meta(), value.meta)));
            }
            let slot = &self.slots[block.parameters[i].index()];
            if array.strides() != &slot.strides[..]
                && !(array.is_contiguous() && fulgurite_kernels::view::is_contiguous(array.shape(), &slot.strides))
            {
                return Err(wrong(format!(
                    "has strides {:?}, the program was compiled for {:?}",
                    array.strides(),
                    slot.strides
                )));
            }
        }
        self.check_unique(trace, inputs)
    }

    /// Whether nobody else holds the inputs that kernels write to.
    pub(super) fn check_unique(&self, trace: &Trace, inputs: &[Array]) -> Result<()> {
        for ((array, overwritten), id) in inputs.iter().zip(&self.overwritten).zip(&trace.block.parameters) {
            if *overwritten && !array.is_unique() {
                return Err(not_unique(&trace.block.value(*id).name, array));
            }
        }
        Ok(())
    }

    /// The n-th fresh output in its memory.
    pub(super) fn fresh_array(&self, n: usize, memory: Memory) -> Array {
        Array::of_form(memory, self.forms[n].clone())
    }

    /// The outputs of a run, given its inputs and the memory of fresh outputs.
    pub(super) fn collect(&self, inputs: Vec<Array>, fresh: Vec<Memory>) -> Vec<Array> {
        let mut inputs: Vec<Option<Array>> = inputs.into_iter().map(Some).collect();
        let mut fresh: Vec<Option<Memory>> = fresh.into_iter().map(Some).collect();
        // Before anything is taken.
        let mut passed = (self.outputs.iter())
            .filter_map(|source| match source {
                Source::Passed(i) => inputs[*i].clone(),
                _ => None,
            })
            .collect::<Vec<Array>>()
            .into_iter();
        let mut outputs: Vec<Array> = Vec::with_capacity(self.outputs.len());
        for source in &self.outputs {
            let array = match source {
                Source::Fresh(n) => {
                    let memory = fresh[*n].take().unwrap_or_else(|| unreachable!("made once, taken once"));
                    self.fresh_array(*n, memory)
                }
                // What is updated where it is comes back as it came.
                Source::Donated(i) => {
                    inputs[*i].take().unwrap_or_else(|| unreachable!("an input is donated to one output"))
                }
                Source::Passed(_) => passed.next().unwrap_or_else(|| unreachable!("cloned above")),
                Source::Same(earlier) => outputs[*earlier].clone(),
            };
            outputs.push(array);
        }
        outputs
    }
}
