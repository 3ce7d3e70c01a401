//! Operators of a running program.

use std::sync::OnceLock;

use fulgurite_kernels::DType;

use crate::argument::Arg;
use crate::arithmetic::Arithmetic;
use crate::cost::CostRules;
use crate::elementwise::{record_scalar, scalar_meta};
use crate::error::{Place, Result};
use crate::executor::{EXECUTORS, ExecutorDef, find_executor};
use crate::expansion;
use crate::failure::Failure;
use crate::kernel::{HostRule, KernelRules};
use crate::meta::{Device, TensorMeta};
use crate::operator::{AnyRules, Autocast, OperatorDef, OperatorKind, ParamDef, ParamKind};
use crate::reference::ReferenceTensor;
use crate::registered::refused;
use crate::registry::OPERATORS;
use crate::rules::{Expr, IntoResults, ReferenceOutcome};
use crate::strided::{Channels, LayoutRules, Strided, View};
use crate::testing::directives::Directive;
use crate::testing::rules::TestRules;
use crate::testing::samples::{ErrorSamples, Samples};
use crate::tracer::rules::TracingRules;
use crate::tracer::{Tensor, call};
use crate::transforms::autodiff::rules::{GradientRules, Pullback};

use super::signature::{self, Signature};
use super::{Registration, leaked, leaked_text, names, need, place_in};

const WHAT: &str = "operator";

/// The arithmetic of one element of each operand, as it is given.
type Scalar = Box<dyn Fn(&[Arg<Expr>]) -> Vec<Expr> + Send + Sync>;

/// An operator to be registered: [`Operator::build`], then what `#[operator]` takes as functions, as closures over the
/// arguments in the order of the signature; [`Arg::tensor`] and [`Arg::get`] read them. With a `decomposition` it is a
/// composite, otherwise a prim.
#[must_use = "nothing is registered before `.register()`"]
pub struct Operator {
    name: String,
    version: u32,
    signature: Option<String>,
    docs: String,
    owners: Vec<String>,
    place: Option<Place>,
    base: OperatorDef,
    tracing: TracingRules,
    gradient: GradientRules,
    scalar: Option<Scalar>,
    cost: CostRules,
    layout: LayoutRules,
    kernel: KernelRules,
    test: TestRules,
}

impl Operator {
    /// An operator of that name, with a namespace where it has one: `mine::swish`. Its version is 1.
    pub fn build(name: impl Into<String>) -> Operator {
        Operator {
            name: name.into(),
            version: 1,
            signature: None,
            docs: String::new(),
            owners: Vec::new(),
            place: None,
            base: expansion::OPERATOR,
            tracing: TracingRules::EMPTY,
            gradient: GradientRules::EMPTY,
            scalar: None,
            cost: CostRules::EMPTY,
            layout: LayoutRules::EMPTY,
            kernel: KernelRules::EMPTY,
            test: TestRules::EMPTY,
        }
    }

    /// Its version, for people and errors.
    pub fn version(self, version: u32) -> Self {
        Operator { version, ..self }
    }

    /// Where it is declared, if that is not where it is registered: in a script that a program reads.
    pub fn declared_at(self, file: impl Into<String>, line: u32) -> Self {
        Operator { place: Some(place_in(file, line)), ..self }
    }

    /// Parameters, with classes of element types and defaults, and results:
    /// `(input: tensor<floating>, beta: float = 1.0) -> tensor`.
    pub fn signature(self, text: impl Into<String>) -> Self {
        Operator { signature: Some(text.into()), ..self }
    }

    /// What it computes, for people.
    pub fn docs(self, docs: impl Into<String>) -> Self {
        Operator { docs: docs.into(), ..self }
    }

    /// The PyTorch function that it mirrors, below `torch.`.
    pub fn torch(mut self, function: impl Into<String>) -> Self {
        self.base.torch = Some(leaked_text(function));
        self
    }

    /// The element types that its tensors may have, narrower than their classes.
    pub fn dtypes(mut self, dtypes: &[DType]) -> Self {
        self.base.dtypes = dtypes.to_vec().leak();
        self
    }

    /// What autocast makes of its operands.
    pub fn autocast(mut self, class: Autocast) -> Self {
        self.base.autocast = Some(class);
        self
    }

    /// Operands that autocast leaves as they are, beside those of its class.
    pub fn autocast_keeps<N: Into<String>>(mut self, operands: impl IntoIterator<Item = N>) -> Self {
        self.base.autocast_keeps = operands.into_iter().map(leaked_text).collect::<Vec<_>>().leak();
        self
    }

    /// It costs about as much as reading its operands and writing its results: it may be computed again.
    pub fn cheap(mut self) -> Self {
        self.base.cheap = true;
        self
    }

    /// It moves, chooses or makes elements and rounds nothing but its result: every executor gives the same bits.
    pub fn exact(mut self) -> Self {
        self.base.exact = true;
        self
    }

    /// Its first two operands may be exchanged while the other arguments are at their defaults.
    pub fn commutes(mut self) -> Self {
        self.base.commutes = true;
        self
    }

    /// What its arguments must be, beyond the signature.
    pub fn requires(
        mut self,
        rule: impl Fn(&[Arg<TensorMeta>]) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        self.tracing.requires = Some(leaked(rule));
        self
    }

    /// Metas of the results. It follows from the decomposition or the arithmetic where it is left out.
    pub fn meta<R: IntoResults<TensorMeta>>(
        mut self,
        rule: impl Fn(&[Arg<TensorMeta>]) -> Result<R, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.tracing.meta = Some(leaked(move |a: &[Arg<TensorMeta>]| rule(a).map(R::into_results)));
        self
    }

    /// What it stands for, in traced code.
    pub fn decomposition<R: IntoResults<Tensor>>(
        mut self,
        rule: impl Fn(&[Arg<Tensor>]) -> R + Send + Sync + 'static,
    ) -> Self {
        self.tracing.decomposition = Some(leaked(move |a: &[Arg<Tensor>]| rule(a).into_results()));
        self
    }

    /// What is made of one element of each operand.
    pub fn scalar<R: IntoResults<Expr>>(mut self, rule: impl Fn(&[Arg<Expr>]) -> R + Send + Sync + 'static) -> Self {
        self.scalar = Some(Box::new(move |a| rule(a).into_results()));
        self
    }

    /// Results and pullback. It follows from the decomposition where it is left out.
    pub fn grad(mut self, rule: impl Fn(&[Arg<Tensor>]) -> (Vec<Tensor>, Pullback) + Send + Sync + 'static) -> Self {
        self.gradient.grad = Some(leaked(rule));
        self
    }

    /// Why it has no gradient.
    pub fn no_grad(mut self, reason: impl Into<String>) -> Self {
        self.gradient.no_grad = Some(leaked_text(reason));
        self
    }

    /// How many operations a call takes.
    pub fn flops(mut self, rule: impl Fn(&[Arg<TensorMeta>]) -> u64 + Send + Sync + 'static) -> Self {
        self.cost.flops = Some(leaked(rule));
        self
    }

    /// The view of its first operand's memory that stands for a call.
    pub fn view(mut self, rule: impl Fn(&[Arg<Strided>]) -> Option<View> + Send + Sync + 'static) -> Self {
        self.layout.view = Some(leaked(rule));
        self
    }

    /// Whether its kernel would rather have channels innermost. Its signature has `channels_innermost: bool = false`.
    pub fn channels(mut self, rule: impl Fn(&[Arg<TensorMeta>]) -> Option<Channels> + Send + Sync + 'static) -> Self {
        self.layout.channels = Some(leaked(rule));
        self
    }

    /// It is a kernel symbol of `executor`, which runs on the host, and `cpu` is its kernel.
    pub fn symbol_of(self, executor: impl Into<String>, cpu: HostRule) -> Self {
        self.kernels_of([executor], KernelRules { cpu: Some(cpu), ..KernelRules::EMPTY })
    }

    /// It is a kernel symbol of these executors, one for each kind of device, and these are its kernels.
    pub fn kernels_of<N: Into<String>>(mut self, executors: impl IntoIterator<Item = N>, kernel: KernelRules) -> Self {
        self.owners = executors.into_iter().map(Into::into).collect();
        self.kernel = kernel;
        self
    }

    /// The independent reference, in f64.
    pub fn reference<R: ReferenceOutcome>(
        mut self,
        rule: impl Fn(&[Arg<ReferenceTensor>]) -> R + Send + Sync + 'static,
    ) -> Self {
        self.test.reference = Some(leaked(move |a: &[Arg<ReferenceTensor>]| rule(a).outcome()));
        self
    }

    /// Inputs on which it must be right.
    pub fn samples(mut self, rule: impl Fn(&mut Samples) + Send + Sync + 'static) -> Self {
        self.test.samples = Some(leaked(rule));
        self
    }

    /// Inputs that it must refuse, each by one of `codes`.
    pub fn errors(mut self, codes: &[&str], rule: impl Fn(&mut ErrorSamples) + Send + Sync + 'static) -> Self {
        self.test.codes = codes.iter().map(|code| leaked_text(*code)).collect::<Vec<_>>().leak();
        self.test.errors = Some(leaked(rule));
        self
    }

    /// Skips, expected failures and looser tolerances of its generated tests.
    pub fn directives(mut self, directives: Vec<Directive>) -> Self {
        self.test.directives = directives.leak();
        self
    }

    /// The argument decides about no result of a sample, for this reason.
    pub fn waive(mut self, argument: impl Into<String>, reason: impl Into<String>) -> Self {
        let mut all = self.test.undecided.to_vec();
        all.push((leaked_text(argument), leaked_text(reason)));
        self.test.undecided = all.leak();
        self
    }

    /// Registers it.
    ///
    /// # Errors
    /// If an operator of that name is declared, or registered and not withdrawn; if the name is not words separated by
    /// `::`, the signature cannot be read, an executor of a symbol is unknown or has no kernel for its device, or there
    /// is no rule that gives results.
    #[track_caller]
    pub fn register(self) -> Result<Registration<OperatorDef>> {
        // Asked here: a function that is passed on has no caller of its own.
        let here = Place::caller();
        let place = self.place.unwrap_or(here);
        let fail = |message: String| refused(WHAT, &self.name, place, message);
        let Some(signature) = &self.signature else { return Err(fail("has no signature".into())) };
        let Signature { params, results } = signature::parse(signature).map_err(&fail)?;
        names::path(&self.name).map_err(&fail)?;
        kept_are_operands(&self.base, params).map_err(&fail)?;
        let owners = self.owners.iter().map(|name| find_executor(name)).collect::<Result<Vec<_>>>();
        let owners = owners.map_err(|error| fail(error.to_string()))?;
        kernels_run(&owners, &self.kernel).map_err(&fail)?;
        let tracing = &self.tracing;
        let kind = match (owners.is_empty(), tracing.decomposition) {
            (false, Some(_)) => return Err(fail("is a kernel symbol, which has no decomposition".into())),
            (false, None) => OperatorKind::Symbol(owners.iter().map(|owner| owner.name).collect::<Vec<_>>().leak()),
            (true, Some(_)) => OperatorKind::Composite,
            (true, None) if tracing.meta.is_none() && self.scalar.is_none() => {
                let message = "has neither meta, decomposition nor scalar, which say what its results are";
                return Err(fail(message.into()));
            }
            (true, None) => OperatorKind::Prim,
        };
        let declared = OPERATORS.iter().find(|def| def.name == self.name);
        let declared = declared.map(|def| format!("at {}:{}", def.file, def.line));
        let name = leaked_text(self.name);
        // The record of an elementwise prim whose metas follow from its arithmetic.
        let own: &'static OnceLock<&'static OperatorDef> = leaked(OnceLock::new());
        let mut tracing = self.tracing;
        let arithmetic = match self.scalar {
            Some(scalar) => {
                if tracing.meta.is_none() && tracing.decomposition.is_none() {
                    tracing.meta = Some(leaked(move |a: &[Arg<TensorMeta>]| match own.get() {
                        Some(def) => scalar_meta(def, a),
                        None => Err(Failure::new("Unregistered", "the operator was never registered")),
                    }));
                }
                Arithmetic {
                    scalar: Some(leaked(move |a: &[Arg<TensorMeta>]| record_scalar(params, a, |seen| scalar(seen)))),
                    ..Arithmetic::EMPTY
                }
            }
            None => Arithmetic::EMPTY,
        };
        let rules: [&'static AnyRules; 7] = [
            leaked(tracing),
            leaked(self.gradient),
            leaked(arithmetic),
            leaked(self.cost),
            leaked(self.layout),
            leaked(self.kernel),
            leaked(self.test),
        ];
        let record: &'static OperatorDef = leaked(OperatorDef {
            name,
            kind,
            docs: leaked_text(self.docs),
            params,
            results,
            rules: leaked(rules),
            file: place.file(),
            line: place.line(),
            ..self.base
        });
        // Before anybody can find the record, whose rules read this.
        let _ = own.set(record);
        let needs = owners.iter().filter_map(|owner| need("executor", owner.name, *owner, &EXECUTORS)).collect();
        Registration::new((WHAT, name, self.version), place, record, needs, declared)
    }
}

/// Checks that each executor of a kernel symbol runs on a kind of device of its own, and has a kernel for it.
///
/// # Errors
/// Which one has not.
fn kernels_run(owners: &[&'static ExecutorDef], kernel: &KernelRules) -> Result<(), String> {
    for (i, ExecutorDef { name, device, .. }) in owners.iter().enumerate() {
        if let Some(other) = owners[..i].iter().find(|other| other.device == *device) {
            return Err(format!("is a symbol of {} and {name}, which both run on {device}", other.name));
        }
        if !kernel.runs_on(device) {
            let (rule, given) = if Device::is_host(device) { ("cpu", "plan") } else { ("plan", "cpu") };
            return Err(format!("is a symbol of {name}, which runs on {device}, and has no `{rule}`, but `{given}`"));
        }
    }
    Ok(())
}

/// Checks that what autocast keeps are tensors of the signature, of an operator that has a class.
///
/// # Errors
/// Which one is not.
fn kept_are_operands(base: &OperatorDef, params: &[ParamDef]) -> Result<(), String> {
    let operands = || params.iter().filter(|param| param.kind != ParamKind::Attribute).map(|param| param.name);
    match base.autocast_keeps.iter().find(|kept| base.autocast.is_none() || !operands().any(|name| name == **kept)) {
        Some(kept) if base.autocast.is_none() => {
            Err(format!("autocast keeps '{kept}', and the operator has no class of autocast"))
        }
        Some(kept) => Err(format!(
            "autocast keeps '{kept}', which is no tensor of the signature; there are: {}",
            operands().collect::<Vec<_>>().join(", ")
        )),
        None => Ok(()),
    }
}

impl Registration<OperatorDef> {
    /// Calls the operator in traced code: arguments in the order of the signature, the last ones left out where they
    /// have defaults. What does not fit the signature is an error of the trace.
    #[track_caller]
    pub fn call(&self, arguments: impl IntoIterator<Item = Arg<Tensor>>) -> Vec<Tensor> {
        let def = self.record();
        let mut all: Vec<Arg<Tensor>> = arguments.into_iter().collect();
        all.extend(def.params.iter().skip(all.len()).map(|param| param.default_argument()));
        call(def, all)
    }
}
