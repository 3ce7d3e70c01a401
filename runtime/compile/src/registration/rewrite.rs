//! Rewrites of a running program.

use crate::argument::Arg;
use crate::error::{Place, Result};
use crate::executor::{Claim, EXECUTORS, REWRITES, RewriteDef, find_executor};
use crate::expansion;
use crate::meta::TensorMeta;
use crate::registered::refused;
use crate::rules::IntoResults;
use crate::testing::samples::Samples;
use crate::tracer::Tensor;

use super::{Registration, leaked, leaked_text, names, need};

const WHAT: &str = "rewrite";

/// A rewrite to be registered: what `#[rewrite]` takes as functions, as closures over the pattern's tensors.
#[must_use = "nothing is registered before `.register()`"]
pub struct Rewrite {
    name: String,
    version: u32,
    has_sides: [bool; 2],
    executors: Vec<String>,
    base: RewriteDef,
}

impl Rewrite {
    /// A rewrite of a pattern with tensors of these names. Its version is 1. It takes part where it is asked for,
    /// unless it is made a default or prepares for an executor.
    pub fn build<const N: usize>(name: impl Into<String>, tensors: [&str; N]) -> Rewrite {
        let params = leaked(tensors.map(leaked_text));
        Rewrite {
            name: name.into(),
            version: 1,
            has_sides: [false; 2],
            executors: Vec::new(),
            base: RewriteDef { params, ..expansion::REWRITE },
        }
    }

    /// Its version, for people and errors.
    pub fn version(self, version: u32) -> Self {
        Rewrite { version, ..self }
    }

    /// What it does, in a sentence.
    pub fn docs(mut self, docs: impl Into<String>) -> Self {
        self.base.docs = leaked_text(docs);
        self
    }

    /// What is looked for.
    pub fn pattern<R: IntoResults<Tensor>>(
        mut self,
        rule: impl Fn(&[Arg<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Self {
        self.base.pattern = leaked(move |a: &[Arg<Tensor>]| rule(a).into_results());
        self.has_sides[0] = true;
        self
    }

    /// What takes its place.
    pub fn replacement<R: IntoResults<Tensor>>(
        mut self,
        rule: impl Fn(&[Arg<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Self {
        self.base.replacement = leaked(move |a: &[Arg<Tensor>]| rule(a).into_results());
        self.has_sides[1] = true;
        self
    }

    /// What the matched tensors must be, beyond the pattern.
    pub fn condition(mut self, rule: impl Fn(&[TensorMeta]) -> Claim + Send + Sync + 'static) -> Self {
        self.base.condition = Some(leaked(rule));
        self
    }

    /// Inputs on which both sides must agree.
    pub fn samples(mut self, rule: impl Fn(&mut Samples) + Send + Sync + 'static) -> Self {
        self.base.samples = Some(leaked(rule));
        self
    }

    /// It takes part without being asked for.
    pub fn by_default(mut self) -> Self {
        self.base.default = true;
        self
    }

    /// It works on what autodiff leaves, instead of on what was acquired.
    pub fn late(mut self) -> Self {
        self.base.late = true;
        self
    }

    /// It prepares for `executor`: it takes part, late, where that is in the list.
    pub fn for_executor(mut self, executor: impl Into<String>) -> Self {
        self.base.late = true;
        self.executors.push(executor.into());
        self
    }

    /// A match is replaced only where an executor of the list runs the replacement as it is.
    pub fn claimed(mut self) -> Self {
        self.base.claimed = true;
        self
    }

    /// Inner values of the pattern may be read elsewhere.
    pub fn keep_inner(mut self) -> Self {
        self.base.keep_inner = true;
        self
    }

    /// Registers it.
    ///
    /// # Errors
    /// If a rewrite of that name is declared, or registered and not withdrawn; if the name or one of its tensors' is
    /// not one word, a side or the samples are missing, or an executor that it names is unknown.
    #[track_caller]
    pub fn register(self) -> Result<Registration<RewriteDef>> {
        let place = Place::caller();
        let fail = |message: String| refused(WHAT, &self.name, place, message);
        names::word(&self.name).map_err(&fail)?;
        for tensor in self.base.params {
            names::word(tensor).map_err(&fail)?;
        }
        for (side, there) in ["pattern", "replacement"].into_iter().zip(self.has_sides) {
            if !there {
                return Err(fail(format!("has no {side}")));
            }
        }
        if self.base.samples.is_none() {
            return Err(fail("has no samples; the pattern is traced on the first one".into()));
        }
        let (mut executors, mut needs) = (Vec::new(), Vec::new());
        for executor in &self.executors {
            let executor = find_executor(executor).map_err(|error| fail(error.to_string()))?;
            executors.push(executor.name);
            needs.extend(need("executor", executor.name, executor, &EXECUTORS));
        }
        let declared = REWRITES.iter().find(|rewrite| rewrite.name == self.name);
        let declared = declared.map(|rewrite| format!("at {}:{}", rewrite.file, rewrite.line));
        let name = leaked_text(self.name);
        let record =
            RewriteDef { name, executors: executors.leak(), file: place.file(), line: place.line(), ..self.base };
        Registration::new((WHAT, name, self.version), place, leaked(record), needs, declared)
    }
}
