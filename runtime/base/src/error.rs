//! The errors of this library, each with the facts that are needed to fix the cause.

use std::fmt;
use std::panic::Location;

use crate::device::error::DeviceError;
pub use crate::failure::Failure;
use crate::operator::OperatorDef;
use crate::refusal::Refusal;

/// The result of this library's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The place of an operator's declaration. Two pointers, so that errors stay small.
static DECLARED: &Location<'static> = Location::caller();

/// A place in the author's source.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    location: &'static Location<'static>,
    operator: Option<&'static OperatorDef>,
}

impl Place {
    /// The place of the caller of the calling `#[track_caller]` function.
    #[track_caller]
    pub fn caller() -> Place {
        Place { location: Location::caller(), operator: None }
    }

    /// Where `operator` is declared.
    pub fn declared(operator: &'static OperatorDef) -> Place {
        Place { location: DECLARED, operator: Some(operator) }
    }

    /// The operator whose declaration the place is.
    fn declaration(&self) -> Option<&'static OperatorDef> {
        self.operator.filter(|_| std::ptr::eq(self.location, DECLARED))
    }

    /// Whether the place is in this crate: nothing that its author wrote.
    fn is_internal(&self) -> bool {
        // The folder of the compiler's crates, as the compiler of this file was given it.
        let own = file!().strip_suffix("base/src/error.rs").unwrap_or(file!());
        self.file().starts_with(own)
    }

    /// The same line, for what `operator`, which is called there, consists of. The first operator stays: it is what the
    /// author wrote.
    pub fn inside(self, operator: &'static OperatorDef) -> Place {
        Place { operator: self.operator.or(Some(operator)), ..self }
    }

    /// The operator that is called there, if the code at this place is a part of it.
    pub fn operator(&self) -> Option<&'static str> {
        match self.declaration() {
            Some(_) => None,
            None => self.operator.map(|operator| operator.name),
        }
    }

    /// The source file, as the compiler names it.
    pub fn file(&self) -> &'static str {
        self.declaration().map_or(self.location.file(), |operator| operator.file)
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        self.declaration().map_or(self.location.line(), |operator| operator.line)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.declaration() {
            Some(operator) => write!(f, "{}:{}:1", operator.file, operator.line),
            None => fmt::Display::fmt(self.location, f),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The place of a failing call, and the operators whose rules contain it, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallStack {
    /// The failing call itself.
    pub at: Option<Place>,
    /// The operators whose rules made the call, and where those were called.
    pub frames: Vec<(String, Option<Place>)>,
}

impl fmt::Display for CallStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |place: &&Place| !place.is_internal();
        if let Some(at) = self.at.as_ref().filter(shown) {
            write!(f, "\n  at {at}")?;
        }
        for (operator, place) in &self.frames {
            write!(f, "\n  in {operator}")?;
            if let Some(place) = place.as_ref().filter(shown) {
                write!(f, ", called at {place}")?;
            }
        }
        Ok(())
    }
}

/// A line of a trace, of which a long one is told by its beginning and its end: a collective may be of all gradients of
/// a model.
fn brief(line: &str) -> String {
    const ENDS: [usize; 2] = [160, 120];
    let characters = line.chars().count();
    if characters <= ENDS[0] + ENDS[1] {
        return line.to_owned();
    }
    let start: String = line.chars().take(ENDS[0]).collect();
    let end: String = line.chars().skip(characters - ENDS[1]).collect();
    format!("{start} ... {end}")
}

fn list_refusals(refusals: &[Refusal]) -> String {
    if refusals.is_empty() {
        return "\n  no executor was asked".into();
    }
    refusals.iter().map(|r| format!("\n  {}: {}", r.executor, r.reason)).collect()
}

/// What comes between a hint and the names that there are: a hint is a question.
pub fn there_are(hint: &str) -> &'static str {
    if hint.is_empty() { ", there are:" } else { " There are:" }
}

/// An error of this library.
#[derive(Clone, thiserror::Error)]
pub enum Error {
    // === Tracing ===
    /// An operator did not accept its arguments.
    #[error("{operator}: {}{stack}", failure.message)]
    Operator {
        /// The operator called.
        operator: String,
        /// Which precondition failed, and how.
        failure: Failure,
        /// The caller's source line.
        stack: CallStack,
    },
    /// A handle was used outside of the trace that made it.
    #[error(
        "{operator}: argument '{argument}' belongs to another trace; a handle lives only inside the trace that made \
         it{stack}"
    )]
    StaleHandle {
        /// The operator called.
        operator: String,
        /// The argument that holds the handle.
        argument: String,
        /// The caller's source line.
        stack: CallStack,
    },
    /// Traced code ran outside of `trace` or `jit`.
    #[error(
        "{operator}: called outside of a trace; call it inside `trace(...)` or a function given to `jit(...)`{stack}"
    )]
    NoTrace {
        /// The operator called.
        operator: String,
        /// The caller's source line.
        stack: CallStack,
    },
    /// A symbol on the way to a differentiated input has no gradient.
    #[error("{operator}: has no gradient: {reason}{stack}")]
    NoGradient {
        /// The operator without a rule.
        operator: String,
        /// The reason of the refusal.
        reason: String,
        /// Where it was called.
        stack: CallStack,
    },

    // === Traces ===
    /// A trace breaks a rule of the language.
    #[error("after {transform}: line '{line}': {message}{stack}")]
    Verify {
        /// The transform that made the trace.
        transform: String,
        /// The offending line of the trace.
        line: String,
        /// What is wrong with it.
        message: String,
        /// The source line the symbol came from.
        stack: CallStack,
    },
    /// A text that is not a trace.
    #[error("trace text, line {line}, column {column}: {message}")]
    Parse {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected and what came.
        message: String,
    },

    // === Compilation ===
    /// No executor takes a symbol, and it does not decompose.
    #[error("{operator}: no executor takes it{}{stack}", list_refusals(refusals))]
    Unclaimed {
        /// The operator, behind the one that the author called.
        operator: String,
        /// What each executor said.
        refusals: Vec<Refusal>,
        /// Where it was called.
        stack: CallStack,
    },
    /// A list names an executor that does not exist.
    #[error(
        "no executor is called '{name}'{hint}{} is its crate linked? (`use the_crate as _;`) There are: {known}",
        if hint.is_empty() { ":" } else { " Or" }
    )]
    UnknownExecutor {
        /// The name given.
        name: String,
        /// `, did you mean ...?` or nothing.
        hint: String,
        /// The names there are.
        known: String,
    },
    /// No operator has this name.
    #[error("no operator is called '{name}'{hint}")]
    UnknownOperator {
        /// The name given.
        name: String,
        /// `, did you mean ...?` or nothing.
        hint: String,
    },
    /// The plan needs more memory than is allowed.
    #[error(
        "the plan needs {predicted} bytes ({resident} resident, {transient} transient), the limit is {limit}{tried}"
    )]
    PlanTooLarge {
        /// Predicted peak.
        predicted: u64,
        /// Inputs and outputs.
        resident: u64,
        /// The arena.
        transient: u64,
        /// The limit in bytes.
        limit: u64,
        /// What else was planned, `; ...`, or nothing.
        tried: String,
    },

    // === Registration ===
    /// What a running program registers does not fit what there is.
    #[error("{what} '{name}', at {place}: {message}")]
    Registration {
        /// What is registered or withdrawn: `operator`, `executor`, ...
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, with the other place if two registrations clash.
        message: String,
        /// The caller's source line.
        place: Place,
    },

    // === Running ===
    /// A symbol failed on its data.
    #[error("{operator}: {} (in trace line '{}'){stack}", failure.message, brief(line))]
    Run {
        /// The operator that ran, behind the one that the author called: `embedding: prims::index_select`.
        operator: String,
        /// The failure of the rule.
        failure: Failure,
        /// The line of the trace.
        line: Box<str>,
        /// Where it was called.
        stack: CallStack,
    },
    /// A compiled function was called with arguments that it does not take.
    #[error("argument '{argument}': {message}")]
    Argument {
        /// Path of the argument.
        argument: String,
        /// What was expected and what came.
        message: String,
    },
    /// A path names no argument, result or gradient, or what is given for one does not fit it.
    #[error("{what} '{path}': {message}{stack}")]
    Path {
        /// What the path is of: an argument, a result, a cotangent, a gradient.
        what: &'static str,
        /// The path.
        path: String,
        /// What is wrong, and which paths there are.
        message: String,
        /// The caller's source line.
        stack: Box<CallStack>,
    },
    /// Arguments that a method of an array refuses.
    #[error("Array::{method}: {message}")]
    Array {
        /// The method.
        method: &'static str,
        /// What was expected and what came.
        message: String,
    },
    /// Memory allocation failed.
    #[error("{0}")]
    OutOfMemory(#[from] fulgurite_kernels::buffer::OutOfMemory),
    /// A program does not fit its device.
    #[error("{message}")]
    DeviceMemory {
        /// The requested and the free memory, the plan's peak, and the largest values.
        message: String,
    },
    /// Work that was enqueued earlier failed. The device does not say which kernel it was.
    #[error(
        "{error}; it comes from {functions}. To learn which symbol failed, run again with every symbol waited for \
         (FULGURITE_GRAPH=0, or --no-graph)"
    )]
    DeviceFault {
        /// The functions that ran since the last synchronization of the device, in quotes.
        functions: String,
        /// The device's error.
        error: DeviceError,
    },
    /// A device is absent, refused a call, or faulted.
    #[error(transparent)]
    Device(DeviceError),

    // === Files ===
    /// A file could not be read or written.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: String,
        /// What is wrong, and where in the file.
        message: String,
    },
}

/// The message. `main` and `unwrap` print errors in this form; the fields are for programs.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.code())
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Device(error)
    }
}

impl Error {
    /// A short name of the kind of error; for a failing precondition its code.
    pub fn code(&self) -> &str {
        match self {
            Error::Operator { failure, .. } | Error::Run { failure, .. } => failure.code,
            Error::StaleHandle { .. } => "StaleHandle",
            Error::NoTrace { .. } => "NoTrace",
            Error::NoGradient { .. } => "NoGradient",
            Error::Verify { .. } => "Verify",
            Error::Parse { .. } => "Parse",
            Error::Unclaimed { .. } => "Unclaimed",
            Error::UnknownExecutor { .. } => "UnknownExecutor",
            Error::UnknownOperator { .. } => "UnknownOperator",
            Error::PlanTooLarge { .. } => "PlanTooLarge",
            Error::Registration { .. } => "Registration",
            Error::Argument { .. } => "Argument",
            Error::Path { .. } => "Path",
            Error::Array { .. } => "Array",
            Error::OutOfMemory(_) => "OutOfMemory",
            Error::DeviceMemory { .. } => "OutOfMemory",
            Error::Device(error) | Error::DeviceFault { error, .. } => error.code(),
            Error::File { .. } => "File",
        }
    }

    /// Adds the frame of an operator whose rule made the failing call.
    pub fn in_operator(mut self, name: &str, place: Option<Place>) -> Error {
        match &mut self {
            Error::Operator { stack, .. }
            | Error::StaleHandle { stack, .. }
            | Error::NoTrace { stack, .. }
            | Error::NoGradient { stack, .. }
            | Error::Unclaimed { stack, .. } => stack.frames.push((name.to_owned(), place)),
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::brief;

    #[test]
    fn a_line_of_many_tensors_is_told_in_short() {
        assert_eq!(brief("sum = add(a, b)"), "sum = add(a, b)");
        let names = vec!["grad.state.params.h.3.mlp.c_proj.weight"; 148].join(", ");
        let told = brief(&format!("{names} = all_reduce([{names}], axis=\"data=2\", op=\"mean\") by nccl"));
        assert!(told.len() < 300 && told.starts_with("grad.state.params.h.3"), "{told}");
        assert!(told.ends_with("c_proj.weight], axis=\"data=2\", op=\"mean\") by nccl"), "{told}");
    }
}
