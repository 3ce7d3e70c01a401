//! Traces: straight-line programs in single-assignment form that own their values.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::argument::{Arg, map_arguments};
use crate::error::Place;
use crate::meta::{Target, TensorMeta};
use crate::operator::{OperatorDef, ResultsDef};
use crate::refusal::Refusal;
use crate::stream_kind::StreamKind;

/// A value of one block: an index into [`Block::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The index into [`Block::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the memory plan puts a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// At this byte of the transient arena.
    Arena(u64),
    /// In memory of its own that outlives the call (an output).
    Output,
    /// In the memory of another value: a view, or an update in place.
    Shared(ValueId),
}

/// A value: name, meta, and where it is kept once memory is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Unique in its block; scope, operator and a counter.
    pub name: Arc<str>,
    /// Shape, element type, device.
    pub meta: TensorMeta,
    /// Set by the memory plan.
    pub storage: Option<Storage>,
}

/// What a symbol calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callee {
    /// A declared operator.
    Operator(&'static OperatorDef),
    /// The value of the body (a scalar) and its gradients with respect to the parameters listed.
    ValueAndGrad {
        /// Indices into the body's parameters.
        wrt: Vec<usize>,
    },
    /// The results of the body. What it computes on the way is not kept for the backward pass, which computes it again.
    Checkpoint,
    /// A region of symbols that an executor runs as one.
    Region {
        /// The executor.
        executor: &'static str,
    },
    /// The end of its arguments' lives.
    Delete,
}

impl Callee {
    /// Whether the body of its line is a part of the author's program: what changes a program changes it too.
    pub fn holds_program(&self) -> bool {
        matches!(self, Callee::ValueAndGrad { .. } | Callee::Checkpoint)
    }
}

/// On which stream of the device a line runs, and what it waits for there. Lines of one stream run in their order;
/// lines of two streams are ordered by what they wait for, and by nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The stream.
    pub stream: StreamKind,
    /// Values whose lines must have ended before this one begins.
    pub after: SmallVec<[ValueId; 2]>,
}

impl Schedule {
    /// Whether it runs on the compute stream and waits for nothing but the lines there.
    pub fn is_plain(&self) -> bool {
        *self == Schedule::default()
    }
}

/// Which pass over the program a symbol belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Pass {
    /// What the author's function computes.
    #[default]
    Forward,
    /// The pass that computes gradients.
    Backward,
    /// What computes values of the forward pass again, for the backward pass.
    Recomputed,
}

impl Pass {
    /// Every pass.
    pub const ALL: [Pass; 3] = [Pass::Forward, Pass::Backward, Pass::Recomputed];

    /// The word in the text of a trace: `forward`, `backward`, `recomputed`.
    pub const fn name(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
            Pass::Recomputed => "recomputed",
        }
    }
}

/// Results of a symbol; nearly always one.
pub type Results = SmallVec<[ValueId; 2]>;

/// One line of a trace.
#[derive(Debug, Clone)]
pub struct BoundSymbol {
    /// The operator, region or statement.
    pub callee: Callee,
    /// The arguments of the call.
    pub arguments: Vec<Arg<ValueId>>,
    /// The values that it defines.
    pub results: Results,
    /// Its decomposition: a closed block whose parameters are the tensors among the arguments, in order.
    pub body: Option<Arc<Block>>,
    /// The pass it belongs to. Lines of bodies belong to that of the line whose body they are, and say `Forward`.
    pub pass: Pass,
    /// The executor that runs it, once claimed.
    pub executor: Option<&'static str>,
    /// On which stream it runs, and what it waits for there.
    pub schedule: Schedule,
    /// The executors that refused to run it, the rewrites that refused to replace it, and why.
    pub refusals: Vec<Refusal>,
    /// The author's line that made the call; not part of the text.
    pub place: Option<Place>,
}

impl PartialEq for BoundSymbol {
    fn eq(&self, other: &BoundSymbol) -> bool {
        self.callee == other.callee
            && self.arguments == other.arguments
            && self.results == other.results
            && (self.pass == other.pass || self.callee == Callee::Delete)
            && self.executor == other.executor
            && self.schedule == other.schedule
            && self.refusals == other.refusals
            && match (&self.body, &other.body) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                (None, None) => true,
                _ => false,
            }
    }
}

impl BoundSymbol {
    /// The values it reads, in order, with repetitions.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.arguments.iter().flat_map(|argument| argument.tensors().iter().copied())
    }

    /// What failed, for messages: the name of what is called, below the operator that the author called.
    pub fn called(&self) -> String {
        // A region holds parts of several calls.
        let outer = self.operator().and(self.place).and_then(|place| place.operator());
        match outer.filter(|outer| *outer != self.name()) {
            Some(outer) => format!("{outer}: {}", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// The place of what it consists of.
    pub fn place_inside(&self) -> Option<Place> {
        match self.operator() {
            Some(def) => self.place.map(|place| place.inside(def)),
            None => self.place,
        }
    }

    /// Whether it must be reached in the same order as others of which that is true: collectives. (Regions hold none.)
    pub fn is_ordered(&self) -> bool {
        match &self.callee {
            Callee::Operator(def) => def.effects.collective,
            Callee::ValueAndGrad { .. } | Callee::Checkpoint => {
                self.body.as_ref().is_some_and(|body| body.symbols.iter().any(BoundSymbol::is_ordered))
            }
            Callee::Region { .. } | Callee::Delete => false,
        }
    }

    /// What the call is named after: `first`, the name of its first result, without the result's own name if the
    /// operator has several. What the call stands for is named below it.
    pub fn call_name<'a>(&self, first: &'a str) -> &'a str {
        let Some(ResultsDef::Named([own, _, ..])) = self.operator().map(|def| def.results) else { return first };
        first.strip_suffix(own).and_then(|call| call.strip_suffix('.')).unwrap_or(first)
    }

    /// The operator called, if it is one.
    pub fn operator(&self) -> Option<&'static OperatorDef> {
        match self.callee {
            Callee::Operator(def) => Some(def),
            _ => None,
        }
    }

    /// The name of what is called, as the text has it.
    pub fn name(&self) -> &str {
        match &self.callee {
            Callee::Operator(def) => def.name,
            Callee::ValueAndGrad { .. } => "value_and_grad",
            Callee::Checkpoint => "checkpoint",
            Callee::Region { .. } => "region",
            Callee::Delete => "del",
        }
    }
}

/// A straight-line program, closed: it reads nothing but its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Block {
    /// Every value, parameters first.
    pub values: Vec<Value>,
    /// The values that come from outside.
    pub parameters: Vec<ValueId>,
    /// Its lines in order.
    pub symbols: Vec<BoundSymbol>,
    /// What it gives back.
    pub results: Vec<ValueId>,
}

impl Block {
    /// The value `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The meta of value `id`.
    pub fn meta(&self, id: ValueId) -> &TensorMeta {
        &self.values[id.index()].meta
    }

    /// Adds a value.
    pub fn define(&mut self, name: impl Into<Arc<str>>, meta: TensorMeta) -> ValueId {
        self.values.push(Value { name: name.into(), meta, storage: None });
        ValueId((self.values.len() - 1) as u32)
    }

    /// The arguments of a symbol with metas in place of values.
    pub fn argument_metas(&self, symbol: &BoundSymbol) -> Vec<Arg<TensorMeta>> {
        map_arguments(&symbol.arguments, |id| self.meta(*id).clone())
    }

    /// The same program with values numbered in the order of their definition, and none that is not defined.
    pub fn canonical(mut self) -> Block {
        let defined = || self.parameters.iter().chain(self.symbols.iter().flat_map(|symbol| &symbol.results));
        if defined().enumerate().all(|(i, id)| id.index() == i) && defined().count() == self.values.len() {
            return self;
        }
        let mut old: Vec<Option<Value>> = self.values.drain(..).map(Some).collect();
        let mut renumbered: Vec<Option<ValueId>> = vec![None; old.len()];
        let mut values: Vec<Value> = Vec::with_capacity(old.len());
        let mut define = |id: &mut ValueId| {
            let Some(at) = renumbered.get_mut(id.index()) else {
                *id = ValueId(u32::MAX);
                return;
            };
            // A value that is defined twice stays two; the verifier names it.
            let again = || at.map(|first| values[first.index()].clone());
            let Some(value) = old[id.index()].take().or_else(again) else { return };
            *id = ValueId(values.len() as u32);
            *at = Some(*id);
            values.push(value);
        };
        self.parameters.iter_mut().for_each(&mut define);
        self.symbols.iter_mut().flat_map(|symbol| &mut symbol.results).for_each(&mut define);
        // A value that is read but never defined keeps a number past the end; the verifier names it.
        let renumber = |id: &mut ValueId| {
            *id = renumbered.get(id.index()).copied().flatten().unwrap_or(ValueId(u32::MAX));
        };
        let arguments = self.symbols.iter_mut().flat_map(|symbol| &mut symbol.arguments);
        arguments.flat_map(Arg::tensors_mut).for_each(renumber);
        self.symbols.iter_mut().flat_map(|symbol| &mut symbol.schedule.after).for_each(renumber);
        self.results.iter_mut().for_each(renumber);
        for value in &mut values {
            if let Some(Storage::Shared(id)) = &mut value.storage {
                renumber(id);
            }
        }
        self.values = values;
        self
    }
}

/// What an input of a trace is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InputRole {
    /// A plain argument.
    #[default]
    Input,
    /// A trained parameter.
    Parameter,
    /// A value that the forward trace saved for the backward trace.
    Saved,
    /// A cotangent of a backward trace.
    Cotangent,
}

/// An input of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub role: InputRole,
    /// Whether the caller gives its memory away.
    pub donated: bool,
    /// The strides that the program was compiled for; `None` is contiguous.
    pub strides: Option<Vec<isize>>,
}

/// An output of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Path in the returned tree: `loss`, `params.wte.weight`.
    pub path: String,
}

/// A program: a block, what its inputs and outputs are called, what it is compiled for, and which transforms made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The function's name.
    pub name: String,
    /// What it is compiled for.
    pub target: Target,
    /// The transforms that made it, oldest first.
    pub history: Vec<String>,
    /// One for each parameter of the block.
    pub inputs: Vec<Input>,
    /// One for each result of the block.
    pub outputs: Vec<Output>,
    /// Size of the transient arena in bytes, once planned.
    pub arena: Option<u64>,
    /// The program.
    pub block: Block,
}

impl Trace {
    /// Whether a stage of this name is in its history.
    pub fn has_been_through(&self, stage: StageName) -> bool {
        self.history.iter().any(|past| past == stage.name())
    }

    /// The same trace over another block, with `stage` added to its history.
    pub fn at_stage(&self, stage: StageName, block: Block) -> Trace {
        self.transformed(stage.name(), block)
    }

    /// The same trace over another block, with `transform` added to its history.
    pub fn transformed(&self, transform: &str, block: Block) -> Trace {
        let mut history = self.history.clone();
        history.push(transform.to_owned());
        Trace {
            name: self.name.clone(),
            target: self.target.clone(),
            history,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            arena: self.arena,
            block: block.canonical(),
        }
    }
}

pub mod correspond;
pub mod diff;
pub mod donations;
mod failed;
pub mod implied;
pub mod in_place;
pub mod inlined;
pub mod joins;
pub mod layouts;
pub mod memory_use;
pub mod nested;
pub mod order;
pub mod parse;
pub mod paths;
pub mod print;
mod stage_name;
mod trees;
pub mod verify;
pub mod views;
mod word;

#[cfg(test)]
pub(crate) mod test_support;

pub use diff::{TraceDiff, diff};
pub use parse::marks::{MarkedBlock, MarkedLine, MarkedName, MarkedValue, Marks, Naming};
pub use parse::{attribute_from_text, attributes::fits as fits_type};
pub use parse::{parse, parse_marked};
pub use print::{PrintOptions, print_name, print_symbol};
pub use stage_name::StageName;
