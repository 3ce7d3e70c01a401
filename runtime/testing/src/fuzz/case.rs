//! A random program: inputs, calls, and what it returns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::arrange::{Arrangement, arrange};
use crate::argument::{Arg, Attribute, Scalar, map_arguments};
use crate::array::Array;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, ParamDef, ParamKind, RuleSet};
use crate::problem::{Check, ensure};
use crate::samples::SampleTensor;
use crate::subject::{accepted_samples, trace_of};
use crate::trace::Trace;
use crate::tracer::{self, trace_block};
use fulgurite_ir::cost::{CostRules, flops};
use fulgurite_kernels::DType;

/// An input of a program.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    /// Shape, element type and values.
    pub tensor: SampleTensor,
    /// Its layout in memory, where layouts are asked for.
    pub arrangement: Arrangement,
    /// Whether the caller gives it away, where donations are asked for.
    pub donated: bool,
    /// The earlier input whose memory it is as well.
    pub same_as: Option<usize>,
}

/// One call: the operator, for each tensor the value it reads, and how many values it gives.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub def: &'static OperatorDef,
    pub arguments: Vec<Arg<usize>>,
    pub results: usize,
}

/// A program. Values are numbered: the inputs, then the results of the calls in order.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub inputs: Vec<Input>,
    pub calls: Vec<Call>,
    /// The values it returns.
    pub results: Vec<usize>,
    /// Whether it is run together with its vjp.
    pub gradient: bool,
}

impl Case {
    /// How many values there are before call `at`.
    pub(super) fn values_before(&self, at: usize) -> usize {
        self.inputs.len() + self.calls[..at].iter().map(|call| call.results).sum::<usize>()
    }

    /// The executors of each kernel symbol that is called.
    pub(super) fn owners(&self) -> impl Iterator<Item = &'static [&'static str]> + '_ {
        self.calls.iter().filter_map(|call| match call.def.kind {
            OperatorKind::Symbol(owners) => Some(owners),
            _ => None,
        })
    }

    /// The program as a trace for the host.
    pub(super) fn trace(&self) -> Check<Trace> {
        let parameters: Vec<(Arc<str>, TensorMeta)> = (self.inputs.iter().enumerate())
            .map(|(i, input)| (Arc::from(format!("x{i}")), input.tensor.meta(Device::CPU)))
            .collect();
        let mut changed = false;
        let block = trace_block(&parameters, |handles| {
            let mut values = handles.to_vec();
            for call in &self.calls {
                let results = tracer::call(call.def, map_arguments(&call.arguments, |value| values[*value]));
                changed |= results.len() != call.results;
                let last = results.last().or(values.last()).copied();
                values.extend(results.into_iter().chain(last.into_iter().cycle()).take(call.results));
            }
            self.results.iter().map(|value| values[*value]).collect()
        })?;
        ensure!(!changed, "an operator gives another number of results at these sizes");
        Ok(trace_of("fuzz", block))
    }

    /// The inputs' data: row-major, or as they are arranged.
    pub(super) fn arrays(&self, arranged: bool) -> Check<Vec<Array>> {
        let mut arrays: Vec<Array> = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let shared = input
                .same_as
                .and_then(|other| arrays.get(other))
                .filter(|other| other.shape() == input.tensor.shape() && other.dtype() == input.tensor.dtype());
            if let Some(shared) = shared {
                arrays.push(shared.clone());
                continue;
            }
            let tensor = &input.tensor;
            let array =
                arrange(&Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values())?, input.arrangement)?;
            arrays.push(if arranged { array } else { array.to_contiguous()? });
        }
        Ok(arrays)
    }

    /// Without calls and inputs that no result comes from.
    pub(super) fn pruned(&self) -> Case {
        let count = self.values_before(self.calls.len());
        let mut needed = vec![false; count];
        self.results.iter().for_each(|value| needed[*value] = true);
        for (at, call) in self.calls.iter().enumerate().rev() {
            let first = self.values_before(at);
            if needed[first..first + call.results].contains(&true) {
                needed[first..first + call.results].fill(true);
                call.arguments.iter().flat_map(Arg::tensors).for_each(|value| needed[*value] = true);
            }
        }
        for (at, input) in self.inputs.iter().enumerate().rev() {
            if let (true, Some(other)) = (needed[at], input.same_as) {
                needed[other] = true;
            }
        }
        let mut renumbered = vec![usize::MAX; count];
        let kept = (0..count).filter(|value| needed[*value]);
        kept.enumerate().for_each(|(new, old)| renumbered[old] = new);
        let inputs = (self.inputs.iter().enumerate().filter(|(at, _)| needed[*at]))
            .map(|(_, input)| Input { same_as: input.same_as.map(|other| renumbered[other]), ..input.clone() })
            .collect();
        let calls = (0..self.calls.len())
            .filter(|at| self.calls[*at].results > 0 && needed[self.values_before(*at)])
            .map(|at| {
                let call = &self.calls[at];
                Call { arguments: map_arguments(&call.arguments, |value| renumbered[*value]), ..call.clone() }
            })
            .collect();
        let results = self.results.iter().map(|value| renumbered[*value]).collect();
        Case { inputs, calls, results, gradient: self.gradient }
    }

    /// With other extents wherever they occur: in inputs, and in attributes that are sizes.
    pub(super) fn resized(&self, extent: &dyn Fn(usize) -> usize) -> Case {
        let inputs = (self.inputs.iter())
            .map(|input| Input { tensor: input.tensor.clone().resized(extent), ..input.clone() })
            .collect();
        let calls = (self.calls.iter())
            .map(|call| Call { arguments: resized_attributes(call.def, &call.arguments, extent), ..call.clone() })
            .collect();
        Case { inputs, calls, ..self.clone() }
    }

    /// Extents of the inputs, each once.
    pub(super) fn extents(&self) -> Vec<usize> {
        let mut extents: Vec<usize> = self.inputs.iter().flat_map(|input| input.tensor.shape().to_vec()).collect();
        extents.sort_unstable();
        extents.dedup();
        extents
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, input) in self.inputs.iter().enumerate() {
            write!(f, "x{i}: {:?}", input.tensor)?;
            if input.arrangement != Arrangement::Dense {
                write!(f, " {:?}", input.arrangement)?;
            }
            if input.donated {
                f.write_str(" donated")?;
            }
            if let Some(other) = input.same_as {
                write!(f, " same memory as x{other}")?;
            }
            f.write_str(if i + 1 < self.inputs.len() { ", " } else { "; " })?;
        }
        let names: Vec<&str> = self.calls.iter().map(|call| call.def.name).collect();
        write!(f, "{}{}", names.join(", "), if self.gradient { "; with its gradient" } else { "" })
    }
}

/// The arguments with other sizes in their attributes. Small numbers by themselves are axes and counts; in lists they
/// are sizes. What stands for a tensor is none.
pub(super) fn resized_attributes<V: Clone>(
    def: &OperatorDef,
    arguments: &[Arg<V>],
    extent: &dyn Fn(usize) -> usize,
) -> Vec<Arg<V>> {
    fn attribute(value: &Attribute, extent: &dyn Fn(usize) -> usize, least: usize) -> Attribute {
        match value {
            Attribute::List(items) => Attribute::List(items.iter().map(|item| attribute(item, extent, 2)).collect()),
            Attribute::Scalar(Scalar::Int(value)) => match usize::try_from(*value) {
                Ok(size) if size >= least => Attribute::Scalar(Scalar::Int(extent(size) as i64)),
                _ => Attribute::Scalar(Scalar::Int(*value)),
            },
            other => other.clone(),
        }
    }
    let one = |(param, argument): (&ParamDef, &Arg<V>)| match (param.kind, argument) {
        (ParamKind::Attribute, Arg::Attribute(value)) => Arg::Attribute(attribute(value, extent, 5)),
        (_, other) => other.clone(),
    };
    def.params.iter().zip(arguments).map(one).collect()
}

/// Whether gradients of it are asked for anywhere: floating-point inputs and results.
pub(super) fn has_gradient(trace: &Trace) -> bool {
    let block = &trace.block;
    let floating = |id: &crate::trace::ValueId| block.meta(*id).dtype().is_floating();
    block.parameters.iter().any(floating) && block.results.iter().any(floating)
}

/// What it takes to run a block as its composites decompose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Symbols that stand for no others.
    pub symbols: usize,
    /// Elements of their results.
    pub elements: usize,
    /// Operations of the references of factorizations, which go over a matrix again and again: for each matrix the cube
    /// of twice its larger extent, however narrow it is, or what they declare.
    pub operations: u64,
}

/// The work of a block.
pub(super) fn work(block: &crate::trace::Block) -> Work {
    let one = |symbol: &crate::trace::BoundSymbol| match &symbol.body {
        Some(body) => work(body),
        None => Work {
            symbols: 1,
            elements: symbol.results.iter().map(|id| block.meta(*id).len()).sum(),
            operations: match symbol.operator() {
                Some(def) if is_factorization(def) => {
                    let values = symbol.operands().chain(symbol.results.iter().copied());
                    let cubes = values.map(|id| cubes(block.meta(id).shape()));
                    cubes.fold(flops(block, symbol), u64::max)
                }
                _ => 0,
            },
        },
    };
    block.symbols.iter().map(one).fold(Work::default(), |all, one| Work {
        symbols: all.symbols + one.symbols,
        elements: all.elements + one.elements,
        operations: all.operations.saturating_add(one.operations),
    })
}

/// Whether an operator says how many operations it takes, and computes in f32 and f64 alone.
fn is_factorization(def: &'static OperatorDef) -> bool {
    static KNOWN: Mutex<BTreeMap<&'static str, bool>> = Mutex::new(BTreeMap::new());
    if matches!(def.kind, OperatorKind::Symbol(_)) || CostRules::of(def).flops.is_none() {
        return false;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let others = || [DType::BF16, DType::I64].into_iter().all(|dtype| accepted_samples(def, dtype).is_empty());
    *known.entry(def.name).or_insert_with(others)
}

/// For each matrix of a tensor the cube of twice its larger extent, together: the reference of singular values rotates
/// a matrix of as many rows as both extents have.
fn cubes(shape: &[usize]) -> u64 {
    let (batch, matrix) = shape.split_at(shape.len().saturating_sub(2));
    let side = matrix.iter().max().map_or(1, |extent| 2 * *extent as u64);
    batch.iter().fold(side.saturating_pow(3), |all, extent| all.saturating_mul(*extent as u64))
}

/// The most elements of any value of a trace, at any depth.
pub(super) fn largest(block: &crate::trace::Block) -> usize {
    let inner = block.symbols.iter().filter_map(|symbol| symbol.body.as_deref()).map(largest).max().unwrap_or(0);
    block.values.iter().map(|value| value.meta.len()).max().unwrap_or(0).max(inner)
}
