//! What a choice is made for: a call, as text that people can read.

use std::fmt;

use crate::argument::Arg;
use crate::meta::TensorMeta;
use crate::operator::OperatorDef;
use crate::precision::Precisions;

/// What an implementation is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The call alone.
    Forward,
    /// The call and its gradient.
    Differentiated,
}

impl Purpose {
    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Forward => "forward",
            Purpose::Differentiated => "forward and backward",
        }
    }

    /// The purpose of that name.
    pub fn named(name: &str) -> Option<Purpose> {
        [Purpose::Forward, Purpose::Differentiated].into_iter().find(|purpose| purpose.name() == name)
    }
}

/// A call without its tensors' values and devices: what a choice depends on beside the machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The operator's name.
    pub operator: String,
    /// Element types and shapes of the tensors, and the attributes: `input: f32[8, 64], dim: -1`.
    pub arguments: String,
    /// What it is chosen for.
    pub purpose: Purpose,
    /// The precisions that the list of executors asks for.
    pub precisions: Precisions,
    /// The versions of executors that are not the library's, executors that are values of tuned parameters, and the
    /// values of executors' options: `sim 1.2, sim.block=128`.
    pub executors: String,
    /// Whether the program is this call and nothing else: then it has no neighbours.
    pub is_program: bool,
}

impl Call {
    /// A call of `def` with these arguments, one of several in a program.
    pub fn new(
        def: &OperatorDef,
        metas: &[Arg<TensorMeta>],
        purpose: Purpose,
        precisions: impl Into<Precisions>,
    ) -> Call {
        let named = |(param, argument): (&crate::operator::ParamDef, &Arg<TensorMeta>)| {
            format!("{}: {}", param.name, Shown(argument))
        };
        let arguments: Vec<String> = def.params.iter().zip(metas).map(named).collect();
        let (operator, arguments, precisions) = (def.name.to_owned(), arguments.join(", "), precisions.into());
        Call { operator, arguments, purpose, precisions, executors: String::new(), is_program: false }
    }

    /// The same call in a program with others.
    pub fn elsewhere(&self) -> Call {
        Call { is_program: false, ..self.clone() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}), {}", self.operator, self.arguments, self.purpose.name())?;
        if self.precisions != Precisions::default() {
            write!(f, ", {}", self.precisions)?;
        }
        if !self.executors.is_empty() {
            write!(f, ", {}", self.executors)?;
        }
        if self.is_program { f.write_str(", a program of its own") } else { Ok(()) }
    }
}

/// An argument without devices.
struct Shown<'a>(&'a Arg<TensorMeta>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = |meta: &TensorMeta| {
            let extents: Vec<String> = meta.shape().iter().map(usize::to_string).collect();
            format!("{}[{}]", meta.dtype(), extents.join(", "))
        };
        match self.0 {
            Arg::Tensor(meta) | Arg::Optional(Some(meta)) => f.write_str(&tensor(meta)),
            Arg::Optional(None) => f.write_str("none"),
            Arg::List(metas) => write!(f, "[{}]", metas.iter().map(tensor).collect::<Vec<_>>().join(", ")),
            Arg::Attribute(attribute) => fmt::Display::fmt(attribute, f),
        }
    }
}
