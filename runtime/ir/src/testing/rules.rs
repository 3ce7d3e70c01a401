//! What the generated tests ask of an operator.

use fulgurite_kernels::DType;

use crate::argument::Arg;
use crate::failure::Failure;
use crate::operator::{OperatorDef, RuleSet};
use crate::reference::ReferenceTensor;
use crate::testing::directives::Directive;
use crate::testing::samples::{ErrorSample, ErrorSamples, Sample, Samples};

/// The independent f64 reference.
pub type ReferenceRule =
    &'static (dyn Fn(&[Arg<ReferenceTensor>]) -> Result<Vec<ReferenceTensor>, Failure> + Send + Sync);

/// Adds inputs on which an operator or a rewrite must be right.
pub type SamplesRule = &'static (dyn Fn(&mut Samples) + Send + Sync);
/// Adds inputs that an operator must refuse.
pub type ErrorsRule = &'static (dyn Fn(&mut ErrorSamples) + Send + Sync);

/// How an operator is known to be right.
#[derive(Clone, Copy)]
pub struct TestRules {
    /// Independent reference.
    pub reference: Option<ReferenceRule>,
    /// Inputs on which it must agree with its reference.
    pub samples: Option<SamplesRule>,
    /// Inputs that it must refuse.
    pub errors: Option<ErrorsRule>,
    /// Named preconditions of its rules.
    pub codes: &'static [&'static str],
    /// Skips and expected failures of generated tests.
    pub directives: &'static [Directive],
    /// Arguments that decide about no result of any sample, each with the reason.
    pub undecided: &'static [(&'static str, &'static str)],
}

impl TestRules {
    /// Nothing that could be tested.
    pub const EMPTY: TestRules =
        TestRules { reference: None, samples: None, errors: None, codes: &[], directives: &[], undecided: &[] };
}

impl RuleSet for TestRules {
    const NONE: &'static TestRules = &TestRules::EMPTY;
}

impl Samples {
    /// The samples that `operator` declares for `dtype`.
    pub fn of_operator(operator: &'static OperatorDef, dtype: DType) -> Vec<Sample> {
        // What takes no complex numbers declares its samples without a thought of them.
        if dtype.is_complex() && !operator.takes_complex() {
            return Vec::new();
        }
        let mut samples = Samples::new(Some(operator), dtype);
        if let Some(declare) = TestRules::of(operator).samples {
            declare(&mut samples);
        }
        samples.add_numbers(operator);
        samples.into_cases()
    }
}

impl ErrorSamples {
    /// The calls that `operator` declares to fail when they are traced, made in `dtype`.
    pub fn of_operator(operator: &'static OperatorDef, dtype: DType) -> Vec<ErrorSample> {
        ErrorSamples::declared(operator, dtype).into_cases()
    }

    /// The calls that `operator` declares to fail when they run, for what their data is.
    pub fn of_data(operator: &'static OperatorDef, dtype: DType) -> Vec<ErrorSample> {
        ErrorSamples::declared(operator, dtype).into_runs()
    }

    fn declared(operator: &'static OperatorDef, dtype: DType) -> ErrorSamples {
        let mut samples = ErrorSamples::new(dtype);
        if let Some(declare) = TestRules::of(operator).errors {
            declare(&mut samples);
        }
        samples
    }
}
