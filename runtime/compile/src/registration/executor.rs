//! Executors of a running program.

use crate::argument::Arg;
use crate::device::{DeviceTensor, Plan, find_kind};
use crate::error::{Place, Result};
use crate::executor::{Claim, EXECUTORS, ExecutorDef, HostKernel};
use crate::expansion;
use crate::failure::Failure;
use crate::fuel::Fuel;
use crate::meta::{Device, TensorMeta};
use crate::operator::OperatorDef;
use crate::precision::Precision;
use crate::registered::refused;
use crate::strided::Strided;
use crate::trace::Block;

use super::{Registration, idle, leaked, leaked_text, names, place_in};

const WHAT: &str = "executor";

/// An executor to be registered: what `#[executor]` takes as functions, as closures.
#[must_use = "nothing is registered before `.register()`"]
pub struct Executor {
    name: String,
    version: u32,
    release: Option<String>,
    place: Option<Place>,
    device: String,
    base: ExecutorDef,
}

impl Executor {
    /// An executor that runs on devices of a kind: `cpu`, `cuda`, ... Its version is 1. Without a priority it takes
    /// part where a list names it.
    pub fn build(name: impl Into<String>, device: impl Into<String>) -> Executor {
        Executor {
            name: name.into(),
            version: 1,
            release: None,
            place: None,
            device: device.into(),
            base: expansion::EXECUTOR,
        }
    }

    /// Its version, for people and errors. What was measured of another version is not followed.
    pub fn version(self, version: u32) -> Self {
        Executor { version, ..self }
    }

    /// As [`Executor::version`], as people write it: `"0.1"`.
    pub fn release(self, release: impl Into<String>) -> Self {
        Executor { release: Some(release.into()), ..self }
    }

    /// Where it is declared, if that is not where it is registered: in a script that a program reads.
    pub fn declared_at(self, file: impl Into<String>, line: u32) -> Self {
        Executor { place: Some(place_in(file, line)), ..self }
    }

    /// What it is, in a sentence.
    pub fn docs(mut self, docs: impl Into<String>) -> Self {
        self.base.docs = leaked_text(docs);
        self
    }

    /// Its place in the default list of its device: lower ones are asked first.
    pub fn priority(mut self, priority: u32) -> Self {
        self.base.priority = Some(priority);
        self
    }

    /// How exactly it computes; the tolerances of its generated tests follow from it.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.base.precision = precision;
        self
    }

    /// Its kernels take operands of any strides.
    pub fn strided(mut self) -> Self {
        self.base.strided = true;
        self
    }

    /// Its regions and elementwise kernels write results with strides; the last `packed` dimensions are packed.
    pub fn strided_results(mut self, packed: usize) -> Self {
        self.base.strided_results = Some(packed);
        self
    }

    /// Takes calls by the operator's rules instead of by its name. Of an elementwise operator its kernel reads an
    /// element of every operand before it writes that element of the result: a plan may put the result over an operand.
    pub fn claims(
        mut self,
        rule: impl Fn(&'static OperatorDef, &[Arg<TensorMeta>]) -> Claim + Send + Sync + 'static,
    ) -> Self {
        self.base.claims = Some(leaked(rule));
        self
    }

    /// The host kernel of a call that `claims` takes.
    pub fn prepare(
        mut self,
        rule: impl Fn(&'static OperatorDef, &[Arg<Strided>], &[Strided]) -> Result<HostKernel, Failure>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.base.prepare = Some(leaked(rule));
        self
    }

    /// The device work of a call that `claims` takes.
    pub fn plan(
        mut self,
        rule: impl Fn(&mut Plan, &'static OperatorDef, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.base.plan = Some(leaked(rule));
        self
    }

    /// Groups claimed symbols into regions.
    pub fn fuse(mut self, rule: impl Fn(&Block, &mut Fuel) -> Block + Send + Sync + 'static) -> Self {
        self.base.fuse = Some(leaked(rule));
        self
    }

    /// Whether a region is one that it computes as its operators say.
    pub fn admits_region(mut self, rule: impl Fn(&Block) -> Claim + Send + Sync + 'static) -> Self {
        self.base.admits_region = Some(leaked(rule));
        self
    }

    /// The host kernel of a region.
    pub fn prepare_region(
        mut self,
        rule: impl Fn(&Block, &[Strided], &[Strided]) -> Result<HostKernel, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.base.prepare_region = Some(leaked(rule));
        self
    }

    /// The device work of a region.
    pub fn plan_region(
        mut self,
        rule: impl Fn(&mut Plan, &Block, &[DeviceTensor], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        self.base.plan_region = Some(leaked(rule));
        self
    }

    /// Registers it.
    ///
    /// # Errors
    /// If an executor of that name is declared, or registered and not withdrawn, if the name is not one word, there is
    /// no such kind of device, or a rule makes kernels for another kind.
    #[track_caller]
    pub fn register(self) -> Result<Registration<ExecutorDef>> {
        // Asked here: a function that is passed on has no caller of its own.
        let here = Place::caller();
        let place = self.place.unwrap_or(here);
        names::word(&self.name).map_err(|message| refused(WHAT, &self.name, place, message))?;
        if !Device::is_host(&self.device) && self.device != "any" {
            find_kind(&self.device).map_err(|error| refused(WHAT, &self.name, place, error.to_string()))?;
        }
        let base = &self.base;
        let rules = [
            [("prepare", base.prepare.is_some()), ("plan", base.plan.is_some())],
            [("prepare_region", base.prepare_region.is_some()), ("plan_region", base.plan_region.is_some())],
        ];
        for pair in rules {
            idle(&self.name, &self.device, pair).map_err(|message| refused(WHAT, &self.name, place, message))?;
        }
        let declared = EXECUTORS.iter().find(|executor| executor.name == self.name);
        let declared = declared.map(|executor| format!("by the package '{}'", executor.package));
        let name = leaked_text(self.name);
        let version = leaked_text(self.release.unwrap_or_else(|| self.version.to_string()));
        let record = ExecutorDef { name, device: leaked_text(self.device), version, ..self.base };
        Registration::new((WHAT, name, self.version), place, leaked(record), Vec::new(), declared)
    }
}
