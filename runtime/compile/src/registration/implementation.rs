//! Implementations of a running program: how an executor runs an operator that it does not own.

use crate::argument::Arg;
use crate::device::{DeviceTensor, Plan};
use crate::error::{Place, Result};
use crate::executor::{Claim, EXECUTORS, IMPLEMENTATIONS, ImplementationDef, find_executor};
use crate::expansion;
use crate::failure::Failure;
use crate::meta::{Device, TensorMeta};
use crate::registered::refused;
use crate::registry::{OPERATORS, find_operator};
use crate::rules::{IntoResults, TensorMut, TensorRef};
use crate::tracer::Tensor;
use crate::transforms::autodiff::rules::Pullback;

use super::{Registration, idle, leaked, leaked_text, need, place_in};

const WHAT: &str = "implementation";

/// An implementation to be registered: what `#[implementation]` takes as functions, as closures over the arguments in
/// the order of the operator's signature.
#[must_use = "nothing is registered before `.register()`"]
pub struct Implementation {
    of: String,
    by: String,
    version: u32,
    place: Option<Place>,
    base: ImplementationDef,
}

impl Implementation {
    /// How `executor` runs `operator`. Its version is 1, and it takes every call unless a checker refuses some.
    pub fn build(operator: impl Into<String>, executor: impl Into<String>) -> Implementation {
        let base = ImplementationDef { checker: &|_| Ok(()), ..expansion::IMPLEMENTATION };
        Implementation { of: operator.into(), by: executor.into(), version: 1, place: None, base }
    }

    /// Its version, for people and errors.
    pub fn version(self, version: u32) -> Self {
        Implementation { version, ..self }
    }

    /// Where it is declared, if that is not where it is registered: in a script that a program reads.
    pub fn declared_at(self, file: impl Into<String>, line: u32) -> Self {
        Implementation { place: Some(place_in(file, line)), ..self }
    }

    /// Whether it takes these arguments, or the reason why not.
    pub fn checker(mut self, rule: impl Fn(&[Arg<TensorMeta>]) -> Claim + Send + Sync + 'static) -> Self {
        self.base.checker = leaked(rule);
        self
    }

    /// What a call becomes, in traced code.
    pub fn execution<R: IntoResults<Tensor>>(
        mut self,
        rule: impl Fn(&[Arg<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Self {
        self.base.execution = Some(leaked(move |a: &[Arg<Tensor>]| rule(a).into_results()));
        self
    }

    /// A gradient of its own: results and pullback.
    pub fn grad(mut self, rule: impl Fn(&[Arg<Tensor>]) -> (Vec<Tensor>, Pullback) + Send + Sync + 'static) -> Self {
        self.base.grad = Some(leaked(rule));
        self
    }

    /// The host kernel.
    pub fn cpu(
        mut self,
        rule: impl Fn(&[Arg<TensorRef<'_>>], &mut [TensorMut<'_>]) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        self.base.kernel.cpu = Some(leaked(rule));
        self
    }

    /// The device work.
    pub fn plan(
        mut self,
        rule: impl Fn(&mut Plan, &[Arg<DeviceTensor>], &[DeviceTensor]) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        self.base.kernel.plan = Some(leaked(rule));
        self
    }

    /// Its kernel takes operands of any strides.
    pub fn strided(mut self) -> Self {
        self.base.kernel.strided = true;
        self
    }

    /// Its kernel writes results with strides, of which the last `packed` dimensions are packed.
    pub fn strided_results(mut self, packed: usize) -> Self {
        self.base.kernel.strided_results = Some(packed);
        self
    }

    /// Its kernel may write a result over an operand: see [`crate::kernel::KernelRules::in_place`].
    pub fn in_place(mut self) -> Self {
        self.base.kernel.in_place = true;
        self
    }

    /// Registers it.
    ///
    /// # Errors
    /// If the operator or the executor is unknown, if the executor runs the operator already, if there is nothing that
    /// the executor could run (a kernel for its kind of device, an execution, or a gradient), or if there is a kernel
    /// for another kind of device.
    #[track_caller]
    pub fn register(self) -> Result<Registration<ImplementationDef>> {
        // Asked here: a function that is passed on has no caller of its own.
        let here = Place::caller();
        let place = self.place.unwrap_or(here);
        let name = format!("{} by {}", self.of, self.by);
        let fail = |message: String| refused(WHAT, &name, place, message);
        let of = find_operator(&self.of).map_err(|error| fail(error.to_string()))?;
        let by = find_executor(&self.by).map_err(|error| fail(error.to_string()))?;
        let base = self.base;
        if !base.kernel.runs_on(by.device) && base.execution.is_none() && base.grad.is_none() {
            let kernel = if Device::is_host(by.device) { "cpu" } else { "plan" };
            let message = format!("has nothing to run on {}, expected one of {kernel}, execution, grad", by.device);
            return Err(fail(message));
        }
        let (host, other) = (base.kernel.cpu.is_some(), base.kernel.plan.is_some());
        idle(by.name, by.device, [("cpu", host), ("plan", other)]).map_err(&fail)?;
        let declared = IMPLEMENTATIONS.iter().find(|own| own.of == of.name && own.by == by.name);
        let declared = declared.map(|own| format!("at {}:{}", own.file, own.line));
        let record = ImplementationDef { of: of.name, by: by.name, file: place.file(), line: place.line(), ..base };
        let needs = [need("operator", of.name, of, &OPERATORS), need("executor", by.name, by, &EXECUTORS)];
        let what = (WHAT, leaked_text(name), self.version);
        Registration::new(what, place, leaked(record), needs.into_iter().flatten().collect(), declared)
    }
}
