//! The record of an operator's declaration: the facts that traces, errors and printing use. Its rules are in sets, each
//! owned by the part of the runtime that uses it; the record only contains them.

mod autocast;
mod parameter;
mod spelling;

use std::any::Any;
use std::sync::Arc;

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute};
use crate::failure::Failure;
use crate::meta::TensorMeta;

pub use autocast::Autocast;
pub use parameter::{Accepts, Class, DefaultRule, ParamDef, ParamKind, RustEnum, TypeName};
pub use spelling::{did_you_mean, nearest, slip_of};

/// What kind of operation a declaration describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorKind {
    /// Does not decompose.
    Prim,
    /// Has a decomposition.
    Composite,
    /// Owned by the named executors, each on a kind of device of its own; opaque, backed by kernels.
    Symbol(&'static [&'static str]),
}

impl OperatorKind {
    /// Whether it is a kernel symbol of the executor of this name.
    pub fn is_owned_by(self, executor: &str) -> bool {
        matches!(self, OperatorKind::Symbol(owners) if owners.contains(&executor))
    }
}

/// What an operator returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultsDef {
    /// Tensors with these names: `out` where there is one.
    Named(&'static [&'static str]),
    /// A list whose length follows from the arguments.
    List,
}

impl ResultsDef {
    /// How many there are; `None` for a list.
    pub fn count(self) -> Option<usize> {
        match self {
            ResultsDef::Named(names) => Some(names.len()),
            ResultsDef::List => None,
        }
    }

    /// What messages call the result at `index`: `result mean`, or `result 2` of a list.
    pub fn describe(self, index: usize) -> String {
        match self {
            ResultsDef::Named(names) if index < names.len() => format!("result {}", names[index]),
            _ => format!("result {index}"),
        }
    }
}

/// Declared effects. Tracing, CSE, DCE, rematerialization, fusion and the verifier read these facts and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// Draws random numbers: two equal calls are two draws.
    pub random: bool,
    /// The parameter that says which numbers a random operator draws, called `generator`. The second call of a program
    /// with one generator is given another that is made of it, and so on: see `tracer::call` of
    /// `fulgurite-ir`.
    pub generator: Option<usize>,
    /// A collective: every rank must run it, in the same order. No transform drops, merges or reorders such calls.
    pub collective: bool,
    /// The parameter that says along which axis of the mesh (`data=4`) a collective goes, or the place of the rank is
    /// told, called `axis`.
    pub axis: Option<usize>,
}

impl Effects {
    /// No effects.
    pub const NONE: Effects = Effects { random: false, generator: None, collective: false, axis: None };

    /// Whether an unused symbol may be dropped.
    pub fn removable(&self) -> bool {
        !self.collective
    }

    /// Whether the result depends on the place of the rank, and on no data of other ranks.
    pub fn of_place(&self) -> bool {
        self.axis.is_some() && !self.collective
    }

    /// Whether two equal calls may become one.
    pub fn mergeable(&self) -> bool {
        !self.random && !self.collective
    }
}

/// What the runtime itself needs of the operator library. An operator takes a role by declaring `overload = Role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `a + b` of two operands; also how cotangents are accumulated.
    Add,
    /// `a - b` of two operands.
    Sub,
    /// `a * b` of two operands.
    Mul,
    /// `a / b` of two operands.
    Div,
    /// `-a`.
    Neg,
    /// A tensor filled with one number: size, number, element type, device.
    Full,
    /// A copy with a contiguous layout; inserted by the layout pass.
    Contiguous,
    /// The same numbers in another element type; inserted by the autocast transform.
    Convert,
    /// A number before and behind the elements: how many low, how many high, the number; inserted, as the following
    /// ones, by the pass `pad`.
    Pad,
    /// A part of each dimension: starts, ends, steps.
    Slice,
    /// Elements repeated along new dimensions: the shape, and where the dimensions of the operand are in it.
    Broadcast,
    /// One of two, elementwise, by a condition.
    Where,
    /// Whether `input < other`, elementwise.
    Less,
    /// Tensors one after another along a dimension.
    Cat,
    /// The same elements in another shape; inserted, as the following ones, by the pass `batch`.
    Reshape,
    /// The dimensions in another order.
    Permute,
    /// The product of the last two dimensions, of tensors with the same leading extents.
    Matmul,
    /// The sum over dimensions, which the result lacks.
    Sum,
    /// `start`, `start + step`, ...: length, start, step, element type, device.
    Iota,
    /// The tensors that the ranks along an axis of the mesh give, each of the list as one, by an operation (`"sum"`,
    /// `"mean"`); gives a list. Inserted by the strategies for several ranks.
    AllReduce,
    /// The tensor of which each rank along an axis of the mesh has a part, by its shape; inserted by them too.
    Whole,
    /// The generator by which a rank draws its part of what the ranks along an axis of the mesh draw together; inserted
    /// by them too.
    DrawsOfRank,
    /// What the ranks along an axis give, one after another along a dimension, each of the list as one; gives a list.
    AllGather,
    /// This rank's part along a dimension of what the ranks along an axis give together, each of the list as one, by an
    /// operation; gives a list.
    ReduceScatter,
    /// The place of this rank along an axis of the mesh, an integer on a device.
    Place,
    /// The parts along a dimension that a one-dimensional tensor of integers names.
    IndexSelect,
    /// The elements along a dimension that integers name, one for each of them.
    Gather,
    /// A tensor with other elements along a dimension where integers say.
    Scatter,
    /// The real and the imaginary parts of complex numbers, in a last dimension of two. What the pass
    /// `complex_to_real` makes of complex inputs.
    ViewAsReal,
    /// The complex numbers of such pairs. What the pass makes of complex results, which have the memory of their pairs.
    ViewAsComplex,
}

impl Role {
    /// The types of the arguments that the runtime gives, in order.
    pub const fn takes(self) -> &'static [&'static str] {
        match self {
            Role::Add | Role::Sub | Role::Mul | Role::Div | Role::Less => &["tensor|number", "tensor|number"],
            Role::Neg | Role::Contiguous | Role::ViewAsReal | Role::ViewAsComplex => &["tensor"],
            Role::Full => &["size[]", "number", "dtype", "str"],
            Role::Convert => &["tensor", "dtype"],
            Role::Pad => &["tensor", "size[]", "size[]", "number"],
            Role::Slice => &["tensor", "size[]", "size[]", "size[]"],
            Role::Broadcast => &["tensor", "size[]", "size[]"],
            Role::Where => &["tensor", "tensor|number", "tensor|number"],
            Role::Cat => &["tensor[]", "size"],
            Role::Reshape | Role::Permute | Role::Sum => &["tensor", "size[]"],
            Role::Matmul => &["tensor", "tensor"],
            Role::Iota => &["size", "number", "number", "dtype", "str"],
            Role::AllReduce => &["tensor[]", "str", "\"sum\"|\"mean\"|\"max\"|\"min\"|\"product\""],
            Role::Whole => &["tensor", "str", "size[]"],
            Role::DrawsOfRank => &["tensor", "str"],
            Role::AllGather => &["tensor[]", "str", "size"],
            Role::ReduceScatter => &["tensor[]", "str", "size", "\"sum\"|\"mean\"|\"max\"|\"min\"|\"product\""],
            Role::Place => &["str", "str"],
            Role::IndexSelect | Role::Gather => &["tensor", "size", "tensor"],
            Role::Scatter => &["tensor", "size", "tensor", "tensor"],
        }
    }

    /// How many tensors the runtime takes from it; `None` for a list.
    const fn gives(self) -> Option<usize> {
        if matches!(self, Role::AllReduce | Role::AllGather | Role::ReduceScatter) { None } else { Some(1) }
    }

    /// Checks that an operator can take the role: it has these parameters first and defaults for all others, and gives
    /// one tensor, or the list that the role wants.
    ///
    /// # Errors
    /// If it has others, with both.
    pub fn check(self, def: &OperatorDef) -> Result<(), Failure> {
        let wanted = self.takes();
        let given = def.params.get(..wanted.len());
        let alike = given.is_some_and(|given| given.iter().map(|param| (param.type_name)()).eq(wanted.iter().copied()));
        let others = def.params.iter().skip(wanted.len());
        let optional = others.into_iter().all(|param| param.default.is_some() || param.kind.is_optional());
        if alike && optional && def.results.count() == self.gives() {
            return Ok(());
        }
        let message = format!(
            "declares `overload = {self:?}`, and is {}; the runtime calls an operator of that role with ({}), and takes \
             {} from it",
            def.signature(),
            wanted.join(", "),
            if self.gives().is_some() { "one tensor" } else { "a list of tensors" }
        );
        Err(Failure::new("Role", message))
    }
}

/// Rules of operators that one part of the runtime uses: how calls are traced, how they are differentiated, which
/// kernels run them, how they are tested. Each part declares its set beside its code, so that the record depends on
/// none of them.
pub trait RuleSet: Any + Send + Sync + Sized {
    /// The set of an operator that declares none of these rules.
    const NONE: &'static Self;

    /// The rules that `operator` declares.
    fn of(operator: &OperatorDef) -> &'static Self {
        operator.rules.iter().find_map(|set| set.downcast_ref()).unwrap_or(Self::NONE)
    }
}

/// A set of rules of any kind, as a record carries it.
pub type AnyRules = dyn Any + Send + Sync;

/// A declared operator.
pub struct OperatorDef {
    /// Unique name: `rms_norm`, `prims::exp`, `llmc::permute`.
    pub name: &'static str,
    /// Prim, composite or kernel symbol.
    pub kind: OperatorKind,
    /// The declaration's documentation.
    pub docs: &'static str,
    /// The PyTorch function it mirrors, below `torch.`: `nn.functional.rms_norm`.
    pub torch: Option<&'static str>,
    /// Parameters in order.
    pub params: &'static [ParamDef],
    /// The results by number and name.
    pub results: ResultsDef,
    /// Declared effects.
    pub effects: Effects,
    /// The role it plays for the runtime.
    pub overload: Option<Role>,
    /// What autocast makes of its operands. Where nothing is declared they stay as they are, unless its decomposition
    /// holds an operator of the class low: then autocast goes into the decomposition.
    pub autocast: Option<Autocast>,
    /// The operands that autocast leaves as they are, whatever the class, where the operator takes them beside the
    /// others: what is as precise as a sum beside operands of 16 bits, such as the weights of classes.
    pub autocast_keeps: &'static [&'static str],
    /// The element types that its tensors may have, narrower than their classes; empty if the classes say it all. A
    /// tensor whose class has none of these types is not restricted.
    pub dtypes: &'static [DType],
    /// Whether it takes and makes complex numbers where its classes have real ones, booleans alone and integers alone
    /// apart: its decomposition computes with their parts.
    pub complex: bool,
    /// Whether it costs about as much as reading its operands and writing its results once: it may be computed again
    /// for the backward pass instead of being kept. (Arithmetic on elements always may.)
    pub cheap: bool,
    /// Whether it only moves, chooses or makes elements and rounds nothing but its result: every executor gives the
    /// same bits. (What elementwise operators round, their arithmetic tells.)
    pub exact: bool,
    /// Whether the first two operands may be exchanged, while the other arguments are at their defaults: the numbers of
    /// the result are the same.
    pub commutes: bool,
    /// Its rules, at most one set of each kind: ask by [`RuleSet::of`].
    pub rules: &'static [&'static AnyRules],
    /// The package that declares it.
    pub package: &'static str,
    /// Source file of the declaration.
    pub file: &'static str,
    /// Line of the declaration.
    pub line: u32,
}

impl OperatorDef {
    /// Names and metas of the parameters of a block that stands for a call: the operator's, one for each tensor.
    pub fn rule_parameters(&self, metas: &[Arg<TensorMeta>]) -> Vec<(Arc<str>, TensorMeta)> {
        let mut parameters: Vec<(Arc<str>, TensorMeta)> = Vec::new();
        for (param, argument) in self.params.iter().zip(metas) {
            match argument {
                Arg::List(metas) => {
                    let item = |(i, meta): (usize, &TensorMeta)| (format!("{}.{i}", param.name).into(), meta.clone());
                    parameters.extend(metas.iter().enumerate().map(item));
                }
                _ => parameters.extend(argument.tensors().iter().map(|meta| (param.name.into(), meta.clone()))),
            }
        }
        parameters
    }

    /// The name without its namespace: `exp` for `prims::exp`.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }

    /// Whether a tensor argument of this class may have elements of this type.
    pub fn takes(&self, class: Class, dtype: DType) -> bool {
        if self.complex && dtype.is_complex() {
            return matches!(class, Class::Any | Class::Floating | Class::Number | Class::Complex);
        }
        let restricted = self.dtypes.iter().any(|own| class.accepts(*own));
        class.accepts(dtype) && (!restricted || self.dtypes.contains(&dtype))
    }

    /// Whether any of its tensors may hold complex numbers.
    pub fn takes_complex(&self) -> bool {
        let class = |param: &ParamDef| match param.kind {
            ParamKind::Tensor(class) | ParamKind::Optional(class) | ParamKind::List(class) => Some(class),
            ParamKind::Operand(class) => Some(class),
            ParamKind::Attribute => None,
        };
        self.complex || self.params.iter().any(|param| class(param) == Some(Class::Complex))
    }

    /// The element types of a tensor argument of this class in words, for messages.
    fn describe_dtypes(&self, class: Class) -> String {
        let own: Vec<&str> = self.dtypes.iter().filter(|own| class.accepts(**own)).map(|own| own.name()).collect();
        match own.split_last() {
            None => class.describe().to_owned(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        }
    }

    /// Position of the parameter `name`.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// The signature as text: `rms_norm(input: tensor, normalized_shape: size[], weight: tensor? = none, ...)`.
    pub fn signature(&self) -> String {
        let params: Vec<String> = self
            .params
            .iter()
            .map(|param| {
                let default = param.default.map(|default| format!(" = {}", default())).unwrap_or_default();
                format!("{}: {}{default}", param.name, (param.type_name)())
            })
            .collect();
        let results = match self.results {
            ResultsDef::Named([_]) => "tensor".to_owned(),
            ResultsDef::Named(names) => {
                let results: Vec<String> = names.iter().map(|name| format!("{name}: tensor")).collect();
                format!("({})", results.join(", "))
            }
            ResultsDef::List => "tensor[]".to_owned(),
        };
        format!("{}({}) -> {results}", self.name, params.join(", "))
    }

    /// Checks the arguments against the signature, their element types against the declared classes, and that all
    /// tensors live on one device.
    pub fn check_arguments(&self, arguments: &[Arg<TensorMeta>]) -> Result<(), Failure> {
        if arguments.len() != self.params.len() {
            return Err(Failure::new(
                "ArgumentCount",
                format!("takes {} arguments, got {}", self.params.len(), arguments.len()),
            ));
        }
        let mut device = None;
        for (param, argument) in self.params.iter().zip(arguments) {
            let class = match (param.kind, argument) {
                (ParamKind::Tensor(class), Arg::Tensor(_))
                | (ParamKind::Optional(class), Arg::Optional(_))
                | (ParamKind::List(class), Arg::List(_))
                | (ParamKind::Operand(class), Arg::Tensor(_) | Arg::Attribute(Attribute::Scalar(_))) => class,
                (ParamKind::Attribute, Arg::Attribute(Attribute::DType(dtype)))
                    if dtype.is_complex() && !self.complex =>
                {
                    let message = format!("{} is {dtype}, and it makes no complex numbers", param.name);
                    return Err(Failure::new("ArgumentDType", message));
                }
                (ParamKind::Attribute, Arg::Attribute(given)) if (param.accepts)(given) => continue,
                (ParamKind::Attribute, Arg::Attribute(given)) => {
                    return Err(Failure::new(
                        "AttributeType",
                        format!("{} is {given}, expected {}", param.name, (param.type_name)()),
                    ));
                }
                _ => {
                    return Err(Failure::new(
                        "ArgumentKind",
                        format!("argument '{}' must be {}", param.name, (param.type_name)()),
                    ));
                }
            };
            for meta in argument.tensors() {
                if !self.takes(class, meta.dtype()) {
                    let (dtype, expected) = (meta.dtype(), self.describe_dtypes(class));
                    let no_complex = if dtype.is_complex() { "; it takes no complex numbers there" } else { "" };
                    return Err(Failure::new(
                        "ArgumentDType",
                        format!("{} has dtype {dtype}, expected {expected}{no_complex}", param.name),
                    ));
                }
                match device {
                    None => device = Some((param.name, meta.device())),
                    Some((first, on)) if on != meta.device() => {
                        return Err(Failure::new(
                            "ArgumentDevice",
                            format!(
                                "{} is on {}, but {first} is on {on}; what an operator makes of no tensor is on the \
                                 device that it is given: `.device({first}.device())`",
                                param.name,
                                meta.device()
                            ),
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for OperatorDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A record is itself alone: one that is registered later by the same name is another operator.
impl PartialEq for OperatorDef {
    fn eq(&self, other: &OperatorDef) -> bool {
        std::ptr::eq(self, other)
    }
}
impl Eq for OperatorDef {}
