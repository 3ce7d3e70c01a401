//! What the expansions of the macros are made of: they emit little and call this. Authors need none of it.
//!
//! What is emitted is compiled for every operator (`benches/authoring.py` measures it). So it derives nothing that
//! nobody calls; arguments are in one list, of one type for all operators, and are read at their place; a rule is
//! erased by a function of its own, since a closure in the place of a function pointer is compiled twice; and lists are
//! arrays of values that exist already, after which nothing is cleaned up.
#![doc(hidden)]

use crate::argument::Arg;
pub use crate::argument::Attribute;
pub use crate::arithmetic::{Arithmetic, Elements};
pub use crate::cost::CostRules;
pub use crate::elementwise::record_scalar;
use crate::executor::{ExecutorDef, ImplementationDef, Ranks, RewriteDef};
pub use crate::gradient::GradientRules;
pub use crate::kernel::KernelRules;
pub use crate::operator::{Autocast, Effects, OperatorDef, OperatorKind, ResultsDef, Role};
pub use crate::precision::Precision;
use crate::rules::FromResults;
pub use crate::rules::{Arguments, pass, scalar_meta};
pub use crate::strided::LayoutRules;
pub use crate::testing::directives::{Directive, DirectiveKind, Template, Tolerance};
pub use crate::testing::rules::TestRules;
use crate::tracer::Tensor;
pub use crate::tracer::rules::TracingRules;

mod args;
mod arguments;
mod checks;
mod macros;
mod results;
mod rules;

pub use args::{Form, Seen, fields};
pub use arguments::*;
pub use checks::{cotangents, has_kernel, in_one_form, one_a_device, one_runs_on, runs_on, takes_all, writes_all};
pub use fulgurite_kernels::DType;
pub use results::{Operands, outputs, result};

/// An executor that runs one implementation of `base` with other values of its tuned parameters. It must be named.
pub const fn tuned_executor(
    name: &'static str,
    docs: &'static str,
    package: &'static str,
    base: &ExecutorDef,
) -> ExecutorDef {
    ExecutorDef {
        name,
        docs,
        package,
        version: base.version,
        tuned: true,
        device: base.device,
        strided: base.strided,
        strided_results: base.strided_results,
        precision: base.precision,
        ..EXECUTOR
    }
}

/// A record that declares nothing yet.
pub const OPERATOR: OperatorDef = OperatorDef {
    name: "",
    kind: OperatorKind::Composite,
    docs: "",
    torch: None,
    params: &[],
    results: ResultsDef::Named(&["out"]),
    effects: Effects::NONE,
    overload: None,
    autocast: None,
    autocast_keeps: &[],
    dtypes: &[],
    complex: false,
    cheap: false,
    exact: false,
    commutes: false,
    rules: &[],
    package: "",
    file: "",
    line: 0,
};

/// An implementation that does nothing yet.
pub const IMPLEMENTATION: ImplementationDef = ImplementationDef {
    of: "",
    by: "",
    checker: &|_| Err("has no checker".into()),
    execution: None,
    grad: None,
    kernel: KernelRules::EMPTY,
    padded: None,
    package: "",
    file: "",
    line: 0,
};

/// An executor that takes nothing yet.
pub const EXECUTOR: ExecutorDef = ExecutorDef {
    name: "",
    docs: "",
    version: "",
    tuned: false,
    options: &[],
    device: "",
    priority: None,
    strided: false,
    strided_results: None,
    precision: Precision::Exact,
    claims: None,
    prepare: None,
    plan: None,
    fuse: None,
    admits_region: None,
    prepare_region: None,
    plan_region: None,
    package: "",
};

/// A rewrite that changes nothing yet.
pub const REWRITE: RewriteDef = RewriteDef {
    name: "",
    docs: "",
    params: &[],
    ranks: &[],
    pattern: &|_| Vec::new(),
    replacement: &|_| Vec::new(),
    condition: None,
    samples: None,
    default: false,
    late: false,
    executors: &[],
    claimed: false,
    keep_inner: false,
    package: "",
    file: "",
    line: 0,
};

/// The results of an operator: tensors with these names, or a list if there are none.
pub const fn results(names: &'static [&'static str]) -> ResultsDef {
    if names.is_empty() { ResultsDef::List } else { ResultsDef::Named(names) }
}

/// Calls an operator.
#[track_caller]
pub fn call<Results: FromResults>(def: &'static OperatorDef, arguments: Vec<Arg<Tensor>>) -> Results {
    Results::from_results(crate::tracer::call(def, arguments))
}

/// A directive on generated tests.
pub const fn directive(
    kind: DirectiveKind,
    templates: &'static [Template],
    executor: Option<&'static str>,
    precision: Option<Precision>,
    dtype: Option<DType>,
    sample: Option<usize>,
    reason: &'static str,
) -> Directive {
    Directive { kind, templates, executor, precision, dtype, sample, reason }
}

/// How many dimensions the tensor of a pattern at this place may have.
pub const fn ranks(place: usize, least: usize, most: usize) -> (usize, Ranks) {
    (place, Ranks { least, most })
}
