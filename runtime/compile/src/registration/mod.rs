//! Registration at run time: a running program adds operators, executors, implementations, rewrites and transforms to
//! those that are linked into it, and takes them back. Rules are closures.
//!
//! - Each registration has a version. A name can be registered once at a time: to register another version, withdraw
//!   the present one first. What is declared cannot be replaced.
//! - A compilation sees one state of the registrations from its beginning to its end. Threads may register while others
//!   compile.
//! - The state is part of the keys of `jit`: after a registration or a withdrawal each function is
//!   compiled again when it is next called. What was compiled before keeps running for its holders.
//! - Options that name an executor or a rewrite mean the record that was found then. Once it is withdrawn, compiling
//!   with these options is an error, also if another version has the name.
//! - Records and rules are never freed, since traces and programs refer to them without a count; a registration costs
//!   some hundred bytes and what its closures hold, also one that is refused.
//! - Names are those that declarations can have: words, of an operator with namespaces. Traces print names, and read
//!   them back.
//!
//! The generated tests (`generated_tests` of `fulgurite-testing`) are made for what is registered as well.

mod executor;
mod implementation;
mod names;
mod operator;
mod rewrite;
mod signature;
mod transform;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::{Place, Result};
use crate::expansion;
use crate::meta::Device;
use crate::operator::OperatorDef;
use crate::registered::{self, Entry, Need};

pub use executor::Executor;
pub use implementation::Implementation;
pub use operator::Operator;
pub use rewrite::Rewrite;
pub use transform::Transform;

/// Something that was registered. Dropping it changes nothing; [`Registration::withdraw`] takes it back.
pub struct Registration<T: 'static> {
    record: &'static T,
    entry: Arc<Entry>,
}

impl<T: Any + Send + Sync> Registration<T> {
    /// Registers `record`, which other threads find from then on: its rules can be called already. `declared` is where
    /// a declaration of the same name is.
    fn new(
        what: (&'static str, &'static str, u32),
        place: Place,
        record: &'static T,
        needs: Vec<Need>,
        declared: Option<String>,
    ) -> Result<Registration<T>> {
        let entry = registered::add(Entry::new(what, place, record, needs), declared)?;
        Ok(Registration { record, entry })
    }

    /// The record. It stays valid after a withdrawal.
    pub fn record(&self) -> &'static T {
        self.record
    }

    /// The name.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The version.
    pub fn version(&self) -> u32 {
        self.entry.version
    }

    /// Takes the registration back: no compilation that begins later finds it. Programs that were compiled with it keep
    /// running.
    ///
    /// # Errors
    /// If it is withdrawn already, or another registration needs it (an implementation needs its operator and its
    /// executor), with the places of both.
    #[track_caller]
    pub fn withdraw(&self) -> Result<()> {
        registered::remove(&self.entry, Place::caller())
    }
}

impl<T> fmt::Debug for Registration<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { what, name, version, place, .. } = &*self.entry;
        write!(f, "{what} {name}, version {version}, registered at {place}")
    }
}

/// What is registered, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// `operator`, `executor`, `implementation`, `rewrite` or `transform`.
    pub what: &'static str,
    /// The name; of an implementation `OPERATOR by EXECUTOR`.
    pub name: &'static str,
    /// The version.
    pub version: u32,
    /// Where it was registered.
    pub place: Place,
}

/// All that is registered at run time, in the order of registration.
pub fn registrations() -> Vec<Registered> {
    let one = |entry: &Arc<Entry>| {
        let Entry { what, name, version, place, .. } = **entry;
        Registered { what, name, version, place }
    };
    registered::entries().iter().map(one).collect()
}

/// What a registration needs that uses `record`: nothing of a declared one, which is there as long as the process.
fn need<T: Any + Send + Sync>(
    what: &'static str,
    name: &'static str,
    record: &'static T,
    declared: &[&'static T],
) -> Option<Need> {
    let is_declared = declared.iter().any(|one| std::ptr::eq(*one, record));
    (!is_declared).then_some(Need { what, name, record })
}

/// Fails for a rule that the executor never runs: of two, the first makes kernels of the host, the second plans work of
/// devices.
fn idle(executor: &str, device: &str, [host, other]: [(&str, bool); 2]) -> std::result::Result<(), String> {
    let ((idle, given), (needed, _)) = if Device::is_host(device) { (other, host) } else { (host, other) };
    match given {
        true => Err(format!("`{idle}` is never run: {executor} runs on {device}, where the rule is `{needed}`")),
        false => Ok(()),
    }
}

/// A value that is never freed.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The place of a declaration in a file that this library was not compiled from, such as a script.
fn place_in(file: impl Into<String>, line: u32) -> Place {
    let file = leaked_text(file);
    Place::declared(leaked(OperatorDef { file, line, ..expansion::OPERATOR }))
}

/// A text that is never freed.
fn leaked_text(text: impl Into<String>) -> &'static str {
    Box::leak(text.into().into_boxed_str())
}
