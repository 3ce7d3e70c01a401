//! Where each template applies to an operator: for which executors and element types it makes a test.

use fulgurite_kernels::DType;

use super::choice::{
    Runner, TypedMetas, dtypes_of, floating_input, is_further_integer, may_claim, tested_with, wanted_under_autocast,
};
use crate::argument::Arg;
use crate::directives::Template;
use crate::executor::{ExecutorDef, executors, find_executor};
use crate::executor_list::REFERENCE;
use crate::golden::Golden;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, OperatorKind, RuleSet};
use crate::rules::TestRules;
use crate::samples::ErrorSamples;
use crate::templates;
use crate::templates::ranks::devices_of;
use crate::tracer::rules::TracingRules;
use crate::transforms::autodiff::rules::GradientRules;

/// An executor and an element type; none where the test is not about one.
pub(super) type Place = (Option<&'static ExecutorDef>, Option<DType>);

/// No executor and no element type.
const ONCE: Place = (None, None);

/// An operator, and what decides where its tests apply.
pub(super) struct Tested<'a> {
    pub(super) def: &'static OperatorDef,
    /// The element types of its samples, each with the metas of these.
    dtypes: Vec<TypedMetas>,
    runners: &'a [Runner],
    golden: &'a Golden,
    /// Whether all operators are run for the sake of one kind of device.
    on_device: bool,
}

impl<'a> Tested<'a> {
    pub(super) fn new(
        def: &'static OperatorDef,
        runners: &'a [Runner],
        golden: &'a Golden,
        on_device: bool,
    ) -> Tested<'a> {
        // A signed and an unsigned one speak for what composites make of further integers: prims are their lines.
        let spoken_for = |dtype| matches!(dtype, DType::I16 | DType::U32) && def.kind == OperatorKind::Composite;
        let dtypes = dtypes_of(def).into_iter().filter(|(dtype, _)| !spoken_for(*dtype)).collect();
        Tested { def, dtypes, runners, golden, on_device }
    }

    /// The places of a template, in the order of its tests.
    pub(super) fn places(&self, template: Template) -> Vec<Place> {
        let once = |applies: bool| if applies { vec![ONCE] } else { Vec::new() };
        match template {
            Template::Samples => once(true),
            Template::Snapshot => once(self.first().is_some()),
            Template::Sources => self.sources(),
            Template::Errors => self.errors(),
            Template::Golden => self.golden(),
            Template::Decomposition => self.of_types(|_| TracingRules::of(self.def).decomposition.is_some()),
            // One in which operators compute, and one that is promoted to it.
            Template::Types => self.of_types(|dtype| Some(dtype) == self.first() || dtype == DType::BF16),
            Template::Autocast => self.autocast(),
            Template::SecondGradient => self.second_gradient(),
            // Of rewrites and of programs, not of operators.
            Template::Rewrite | Template::Programs => Vec::new(),
            // The reference itself is compared with the decomposition.
            Template::Consistency => self.of_runners(any_size, |executor, _| {
                executor.name != REFERENCE || TracingRules::of(self.def).decomposition.is_some()
            }),
            Template::Checker => self.of_runners(self.types(each_arithmetic), |executor, metas| {
                executor.name != REFERENCE && may_claim(self.def, executor, metas)
            }),
            // Both types of 16 bits, which regions round in ways of their own.
            Template::Bits => self
                .of_runners(self.types(|dtype| dtype == DType::F16 || is_of_each_kind(dtype)), |executor, _| {
                    executor.name != REFERENCE
                }),
            Template::Gradient => self
                .of_runners(self.types(|dtype| dtype.is_floating() || dtype == DType::C128), |_, metas| {
                    self.is_differentiated(metas)
                }),
            Template::CotangentLinearity => {
                self.of_runners(|dtype| dtype == DType::F64, |_, metas| self.is_differentiated(metas))
            }
            Template::Meta | Template::Bounds => self.of_runners(self.types(each_arithmetic), |_, _| true),
            Template::Layout | Template::Determinism | Template::Effects | Template::InPlace => {
                self.of_runners(self.types(is_of_each_kind), |_, _| true)
            }
            // Each rank has a device of its own; the host is one of all of them.
            Template::Ranks => self.of_runners(any_type, |executor, _| {
                self.def.effects.axis.is_some() && devices_of(executor.device) >= 2
            }),
            Template::RoundTrip => self.of_runners(self.types(|_| false), |_, _| true),
        }
    }

    /// The first element type of the samples, which speaks for all where one is enough.
    fn first(&self) -> Option<DType> {
        self.dtypes.first().map(|(dtype, _)| *dtype)
    }

    fn is_differentiated(&self, metas: &[Vec<Arg<TensorMeta>>]) -> bool {
        GradientRules::of(self.def).no_grad.is_none() && floating_input(metas)
    }

    /// Without an executor, in these element types of the samples.
    fn of_types(&self, types: impl Fn(DType) -> bool) -> Vec<Place> {
        let types = self.dtypes.iter().map(|(dtype, _)| *dtype).filter(|dtype| types(*dtype));
        types.map(|dtype| (None, Some(dtype))).collect()
    }

    /// These element types and the first one; the first one alone where operators are run for the sake of a device.
    fn types(&self, types: impl Fn(DType) -> bool) -> impl Fn(DType) -> bool {
        let (first, on_device) = (self.first(), self.on_device);
        move |dtype| Some(dtype) == first || (!on_device && types(dtype))
    }

    /// For each executor that the operator is tested with and `applies` says yes of, in these element types.
    fn of_runners(
        &self,
        types: impl Fn(DType) -> bool,
        applies: impl Fn(&ExecutorDef, &[Vec<Arg<TensorMeta>>]) -> bool,
    ) -> Vec<Place> {
        let mut places = Vec::new();
        for runner in self.runners {
            for (dtype, metas) in self.dtypes.iter().filter(|(dtype, _)| types(*dtype)) {
                if tested_with(self.def, runner, metas) && applies(runner.first, metas) {
                    places.push((Some(runner.first), Some(*dtype)));
                }
            }
        }
        places
    }

    fn sources(&self) -> Vec<Place> {
        let compiled = executors().into_iter().filter(|executor| templates::sources::applies(self.def, executor));
        compiled.map(|executor| (Some(executor), None)).collect()
    }

    fn errors(&self) -> Vec<Place> {
        let mut places = Vec::new();
        if self.first().is_some() || TestRules::of(self.def).errors.is_some() {
            places.push(ONCE);
        }
        // What is wrong with data is found where the operator runs.
        let of_data = |(dtype, _): &&TypedMetas| !ErrorSamples::of_data(self.def, *dtype).is_empty();
        if let Some((_, metas)) = self.dtypes.first().filter(|_| self.on_device).filter(of_data) {
            let run = self.runners.iter().filter(|runner| tested_with(self.def, runner, metas));
            places.extend(run.map(|runner| (Some(runner.first), None)));
        }
        places
    }

    fn golden(&self) -> Vec<Place> {
        let stored = |dtype| self.golden.has(self.def.name, dtype);
        self.of_runners(|dtype| (!self.on_device || Some(dtype) == self.first()) && stored(dtype), |_, _| true)
    }

    fn autocast(&self) -> Vec<Place> {
        // Kernel symbols are chosen after autocast.
        let called = !matches!(self.def.kind, OperatorKind::Symbol(_));
        let Some(plain) = find_executor(REFERENCE).ok().filter(|_| called) else { return Vec::new() };
        let types = self.dtypes.iter().map(|(dtype, _)| *dtype).filter(|dtype| wanted_under_autocast(*dtype));
        types.map(|dtype| (Some(plain), Some(dtype))).collect()
    }

    fn second_gradient(&self) -> Vec<Place> {
        let f64s = self.dtypes.iter().find(|(dtype, _)| *dtype == DType::F64);
        let applies = f64s.is_some_and(|(_, metas)| self.is_differentiated(metas));
        applies.then_some((None, Some(DType::F64))).into_iter().collect()
    }
}

fn any_type(_: DType) -> bool {
    true
}

/// All but the larger complex numbers, whose parts are computed as f64 is; their gradients are compared.
fn any_size(dtype: DType) -> bool {
    dtype != DType::C128
}

/// All but the integers that are computed as others are, and complex numbers, whose parts are.
fn each_arithmetic(dtype: DType) -> bool {
    !is_further_integer(dtype) && !dtype.is_complex()
}

/// One of each way to do arithmetic.
fn is_of_each_kind(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16 | DType::I64 | DType::Bool)
}
