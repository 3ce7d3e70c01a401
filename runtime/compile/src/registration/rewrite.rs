//! Rewrites of a running program.

use std::ops::{Bound, RangeBounds};

use crate::argument::{Arg, AttributeType};
use crate::error::{Place, Result};
use crate::executor::{Claim, EXECUTORS, REWRITES, Ranks, RewriteDef, find_executor};
use crate::expansion;
use crate::meta::TensorMeta;
use crate::operator::{Class, ParamDef, ParamKind, did_you_mean};
use crate::registered::refused;
use crate::rules::IntoResults;
use crate::testing::samples::Samples;
use crate::tracer::Tensor;
use crate::transforms::rewrite;

use super::{Registration, leaked, leaked_text, names, need};

const WHAT: &str = "rewrite";

/// A rewrite to be registered: what `#[rewrite]` takes as functions, as closures over the pattern's
/// tensors, and the attributes that it binds.
#[must_use = "nothing is registered before `.register()`"]
pub struct Rewrite {
    name: String,
    version: u32,
    has_sides: [bool; 2],
    params: Vec<ParamDef>,
    ranks: Vec<(String, Ranks)>,
    executors: Vec<String>,
    base: RewriteDef,
}

impl Rewrite {
    /// A rewrite of a pattern with tensors of these names. Its version is 1. It takes part where it is asked for,
    /// unless it is made a default or prepares for an executor.
    pub fn build<const N: usize>(name: impl Into<String>, tensors: [&str; N]) -> Rewrite {
        let param = |name: &str| expansion::tensor::define(leaked_text(name), Class::Any);
        Rewrite {
            name: name.into(),
            version: 1,
            has_sides: [false; 2],
            params: tensors.map(param).to_vec(),
            ranks: Vec::new(),
            executors: Vec::new(),
            base: expansion::REWRITE,
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

    /// An attribute that the pattern binds, behind the arguments named before: the pattern gives it to an operator, and
    /// the replacement and the condition get what the program has there. In all places it must be the same.
    pub fn attribute<T: AttributeType + 'static>(mut self, name: impl Into<String>) -> Self {
        self.params.push(expansion::attribute::define::<T>(leaked_text(name)));
        self
    }

    /// How many dimensions a tensor of the pattern may have: `.rank("weight", 2..=2)`. Others may have any number.
    pub fn rank(mut self, tensor: impl Into<String>, dimensions: impl RangeBounds<usize>) -> Self {
        let least = match dimensions.start_bound() {
            Bound::Included(least) => *least,
            Bound::Excluded(below) => below.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let most = match dimensions.end_bound() {
            Bound::Included(most) => *most,
            Bound::Excluded(above) => above.saturating_sub(1),
            Bound::Unbounded => usize::MAX,
        };
        // Nothing is below 0.
        let least = if dimensions.end_bound() == Bound::Excluded(&0) { least.max(1) } else { least };
        self.ranks.push((tensor.into(), Ranks { least, most }));
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

    /// What the matched tensors and attributes must be, beyond the pattern.
    pub fn condition(mut self, rule: impl Fn(&[Arg<TensorMeta>]) -> Claim + Send + Sync + 'static) -> Self {
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
    /// If a rewrite of that name is declared, or registered and not withdrawn; if the name or one of its arguments' is
    /// not one word or is given twice, a side or the samples are missing, an executor or a tensor that it names is
    /// unknown, a range of ranks is empty, the pattern cannot be traced on the samples, or it gives an attribute to no
    /// operator.
    #[track_caller]
    pub fn register(self) -> Result<Registration<RewriteDef>> {
        let place = Place::caller();
        let fail = |message: String| refused(WHAT, &self.name, place, message);
        names::word(&self.name).map_err(&fail)?;
        for (i, param) in self.params.iter().enumerate() {
            names::word(param.name).map_err(&fail)?;
            if self.params[..i].iter().any(|earlier| earlier.name == param.name) {
                return Err(fail(format!("has two arguments '{}'", param.name)));
            }
        }
        let tensors = self.params.iter().enumerate().filter(|(_, param)| param.kind != ParamKind::Attribute);
        let mut ranks = Vec::new();
        for (name, declared) in &self.ranks {
            match tensors.clone().find(|(_, param)| param.name == name.as_str()) {
                Some(_) if declared.least > declared.most => {
                    return Err(fail(format!("lets '{name}' have no number of dimensions, expected a range of some")));
                }
                Some((place, _)) => ranks.push((place, *declared)),
                None => {
                    let hint = did_you_mean(name, tensors.map(|(_, param)| param.name));
                    return Err(fail(format!("says how many dimensions '{name}' has, which is no tensor of it{hint}")));
                }
            }
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
        let record = RewriteDef {
            name,
            params: self.params.leak(),
            ranks: ranks.leak(),
            executors: executors.leak(),
            file: place.file(),
            line: place.line(),
            ..self.base
        };
        rewrite::check(&record).map_err(|error| refused(WHAT, name, place, error.to_string()))?;
        Registration::new((WHAT, name, self.version), place, leaked(record), needs, declared)
    }
}
