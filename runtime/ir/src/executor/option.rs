//! Options of executors: declared with a type and a default, given a value by a compilation.
//!
//! A rule reads the value that the compilation on its thread has: `sim::BLOCK.get()`. Rules that make kernels are
//! called when a program is prepared, also one that was read as text: what they depend on is an argument of the symbol,
//! which an `execution` or `grad` rule gives it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::argument::{Attribute, AttributeType, Scalar};

/// An option, whatever its type.
pub trait OptionDef: Sync {
    /// `sim.block`: the executor that declares it, and its name.
    fn path(&self) -> String;
    /// Its name behind the executor's: `block`.
    fn name(&self) -> &'static str;
    /// What the value changes, in a sentence for `doctor`.
    fn docs(&self) -> &'static str;
    /// What signatures call its type: `size`, `bool`.
    fn type_name(&self) -> String;
    /// The value where none is given.
    fn default(&self) -> Attribute;
    /// The value that a text says; `None` if it is of another type.
    fn parse(&self, text: &str) -> Option<Attribute>;
}

/// An option with values of type `T`, as `#[option]` declares it in the module of an executor.
#[derive(Debug)]
pub struct ExecutorOption<T> {
    /// The executor that declares it.
    pub executor: &'static str,
    /// Its name behind the executor's: `block`.
    pub name: &'static str,
    /// What the value changes, in a sentence for `doctor`.
    pub docs: &'static str,
    /// The value where none is given.
    pub default: T,
}

impl<T: AttributeType + Clone> ExecutorOption<T> {
    /// The value that the compilation on this thread has.
    pub fn get(&self) -> T {
        let path = format!("{}.{}", self.executor, self.name);
        let given = GIVEN.with_borrow(|given| given.0.get(&path).and_then(T::from_attribute));
        given.unwrap_or_else(|| self.default.clone())
    }
}

impl<T: AttributeType + Sync> OptionDef for ExecutorOption<T> {
    fn path(&self) -> String {
        format!("{}.{}", self.executor, self.name)
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn docs(&self) -> &'static str {
        self.docs
    }

    fn type_name(&self) -> String {
        T::type_name()
    }

    fn default(&self) -> Attribute {
        self.default.to_attribute()
    }

    fn parse(&self, text: &str) -> Option<Attribute> {
        let read = [
            text.parse().ok().map(|value| Attribute::Scalar(Scalar::Bool(value))),
            text.parse().ok().map(|value| Attribute::Scalar(Scalar::Int(value))),
            text.parse().ok().map(|value| Attribute::Scalar(Scalar::Float(value))),
            Some(Attribute::Text(text.into())),
        ];
        let value = read.into_iter().flatten().find_map(|value| T::from_attribute(&value))?;
        Some(value.to_attribute())
    }
}

/// The values that a compilation gives options; all others have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ExecutorOptions(BTreeMap<String, Attribute>);

thread_local! {
    /// Those of the compilation on this thread.
    static GIVEN: RefCell<ExecutorOptions> = RefCell::default();
}

impl ExecutorOptions {
    /// Gives an option a value.
    pub fn set(&mut self, option: &dyn OptionDef, value: Attribute) {
        match value == option.default() {
            // A value that changes nothing is no other compilation.
            true => self.0.remove(&option.path()),
            false => self.0.insert(option.path(), value),
        };
    }

    /// The paths of the options that have another value than their default.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Those of the compilation on this thread.
    pub fn current() -> ExecutorOptions {
        GIVEN.with_borrow(Clone::clone)
    }

    /// Has rules on this thread read these values, until the result is dropped.
    #[must_use = "the values hold until this is dropped"]
    pub fn enter(&self) -> Entered {
        Entered(GIVEN.replace(self.clone()))
    }
}

impl fmt::Display for ExecutorOptions {
    /// `sim.block=128, sim.fast=true`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given: Vec<String> = self.0.iter().map(|(path, value)| format!("{path}={value}")).collect();
        f.write_str(&given.join(", "))
    }
}

/// The values of before, which hold again when this is dropped.
#[derive(Debug)]
pub struct Entered(ExecutorOptions);

impl Drop for Entered {
    fn drop(&mut self) {
        GIVEN.set(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BLOCK: ExecutorOption<usize> =
        ExecutorOption { executor: "tt_host", name: "block", docs: "How much.", default: 256 };

    #[test]
    fn a_value_holds_where_it_was_entered() {
        let mut given = ExecutorOptions::default();
        given.set(&BLOCK, BLOCK.parse("32").unwrap());
        {
            let _entered = given.enter();
            assert_eq!(BLOCK.get(), 32);
            let _inner = ExecutorOptions::default().enter();
            assert_eq!(BLOCK.get(), 256);
        }
        assert_eq!(BLOCK.get(), 256);
        assert_eq!(given.to_string(), "tt_host.block=32");
        given.set(&BLOCK, BLOCK.parse("256").unwrap());
        assert_eq!(given, ExecutorOptions::default());
    }

    #[test]
    fn texts_are_read_by_the_type() {
        let float = ExecutorOption { executor: "e", name: "x", docs: "", default: 1.0f64 };
        assert_eq!(float.parse("2"), Some(2f64.to_attribute()));
        assert_eq!([BLOCK.parse("-1"), BLOCK.parse("many"), BLOCK.parse("1.5")], [None, None, None]);
        let flag = ExecutorOption { executor: "e", name: "f", docs: "", default: false };
        assert_eq!((flag.parse("true"), flag.parse("1")), (Some(true.to_attribute()), None));
    }
}
