//! Skips, expected failures and looser tolerances of generated tests, each with its reason.

use fulgurite_kernels::DType;

use crate::precision::Precision;

/// A template of the generated tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Template {
    /// There are samples, and each argument decides about a result in one of them.
    Samples,
    /// Device sources compile, and launches fit their kernels.
    Sources,
    /// Metas equal what execution returns.
    Meta,
    /// Agrees with the independent reference.
    Consistency,
    /// Agrees with stored PyTorch outputs and gradients.
    Golden,
    /// Error samples fail as they say.
    Errors,
    /// Any layout gives the same result.
    Layout,
    /// Declared meta, grad and kernels agree with the decomposition.
    Decomposition,
    /// Dot-product identity against directional derivatives.
    Gradient,
    /// The derivative of the gradient against differences of the gradient.
    SecondGradient,
    /// The vjp is linear in the cotangent.
    CotangentLinearity,
    /// Inputs unchanged unless declared; outputs alias only what is declared.
    Effects,
    /// Outputs are fully written, and nothing around them.
    Bounds,
    /// A result laid over an operand has the same bits.
    InPlace,
    /// Two runs give the same bits.
    Determinism,
    /// Where the checker accepts, the executor runs and agrees.
    Checker,
    /// Every stage's trace prints, parses, verifies and runs.
    RoundTrip,
    /// Forward and backward traces as stored.
    Snapshot,
    /// Both sides of a rewrite agree, forward and backward, and it fires.
    Rewrite,
    /// Under autocast a call has the types of its class, and stays near the reference.
    Autocast,
    /// Fused or not, kept or computed again, every value has the same bits.
    Bits,
    /// With one tensor in another element type a call is refused, or its types agree.
    Types,
    /// Random programs made of samples.
    Programs,
    /// A collective on several ranks.
    Ranks,
}

impl Template {
    /// All templates.
    pub const ALL: [Template; 24] = [
        Template::Samples,
        Template::Sources,
        Template::Meta,
        // Before what runs a kernel at full size: guards say which kernel writes out of bounds.
        Template::Bounds,
        Template::Consistency,
        Template::Golden,
        Template::Errors,
        Template::Layout,
        Template::Decomposition,
        Template::Gradient,
        Template::SecondGradient,
        Template::CotangentLinearity,
        Template::Effects,
        Template::InPlace,
        Template::Determinism,
        Template::Checker,
        Template::RoundTrip,
        Template::Snapshot,
        Template::Rewrite,
        Template::Autocast,
        Template::Bits,
        Template::Types,
        Template::Programs,
        Template::Ranks,
    ];

    /// The name in test names and directives.
    pub const fn name(self) -> &'static str {
        match self {
            Template::Samples => "samples",
            Template::Sources => "sources",
            Template::Meta => "meta",
            Template::Consistency => "consistency",
            Template::Golden => "golden",
            Template::Errors => "errors",
            Template::Layout => "layout",
            Template::Decomposition => "decomposition",
            Template::Gradient => "gradient",
            Template::SecondGradient => "second_gradient",
            Template::CotangentLinearity => "cotangent_linearity",
            Template::Effects => "effects",
            Template::Bounds => "bounds",
            Template::InPlace => "in_place",
            Template::Determinism => "determinism",
            Template::Checker => "checker",
            Template::RoundTrip => "round_trip",
            Template::Snapshot => "snapshot",
            Template::Rewrite => "rewrite",
            Template::Autocast => "autocast",
            Template::Bits => "bits",
            Template::Types => "types",
            Template::Programs => "programs",
            Template::Ranks => "ranks",
        }
    }
}

/// How far results may be off beyond what a test allows by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// What is allowed is multiplied by this.
    pub factor: f64,
    /// This part of each element's scale is added: of its own size, and of what is usual in its tensor. For roundings
    /// on the way that a sum of terms leaves also in an element where they cancel.
    pub scaled: f64,
    /// The results that `scaled` is for: those in the element type of the test.
    pub dtype: Option<DType>,
}

impl Tolerance {
    /// No more than the test allows.
    pub const NONE: Tolerance = Tolerance::new(1.0, 0.0);

    /// What an executor of this precision is allowed by a test in `dtype`.
    ///
    /// TF32 rounds operands to 10 bits, by at most 2^-11 of each, 0.4 of that as a rule: a product is off by 2^-10 at
    /// most, and sums by half of how far they move when all operands are moved by 2^-11. Allowed are four times that
    /// (256 x 32 times the move by 2^-23) and 2^-10 of what is usual; operands rounded to bf16 are off by four times
    /// as much, and are caught.
    ///
    /// E4M3 rounds by at most 2^-4 of an element, E5M2 by 2^-3, 0.4 of that as a rule: a sum of products of both is off
    /// by 6 % of what is usual, an element of a thousand by four times as much. Allowed are 3/8 of an element and of
    /// what is usual; operands that are exchanged, or scaled twice, are off by more.
    pub fn of(precision: Precision, template: Template, dtype: Option<DType>) -> Tolerance {
        let compared =
            matches!(template, Template::Consistency | Template::Gradient | Template::Golden | Template::Checker);
        match precision {
            // Complex numbers are multiplied by products of their parts.
            Precision::Tf32 if compared && matches!(dtype, Some(DType::F32 | DType::C64)) => {
                Tolerance::new(256.0, 0.0009765625)
            }
            // Where an address refuses the library's products of 8 bits, others replace them.
            Precision::Fp8 if compared || template == Template::Bounds => {
                Tolerance { dtype, ..Tolerance::new(1.0, 0.375) }
            }
            _ => Tolerance::NONE,
        }
    }

    /// What a directive says.
    pub const fn new(factor: f64, scaled: f64) -> Tolerance {
        Tolerance { factor, scaled, dtype: None }
    }

    /// Both at once.
    pub fn and(self, other: Tolerance) -> Tolerance {
        let dtype = self.dtype.or(other.dtype);
        Tolerance { factor: self.factor * other.factor, scaled: self.scaled + other.scaled, dtype }
    }

    /// The part of the scale that is allowed of results in `dtype`.
    pub fn scaled_of(self, dtype: DType) -> f64 {
        if self.dtype == Some(dtype) { self.scaled } else { 0.0 }
    }
}

/// The change that a directive makes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DirectiveKind {
    /// The test is not run.
    Skip,
    /// The test must fail; if it passes, the build fails.
    ExpectedFailure,
    /// The test allows more.
    Tolerance(Tolerance),
}

/// A directive on some of an operator's generated tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Directive {
    /// The change that it makes.
    pub kind: DirectiveKind,
    /// The templates.
    pub templates: &'static [Template],
    /// Only with this executor.
    pub executor: Option<&'static str>,
    /// Only with executors of this precision.
    pub precision: Option<Precision>,
    /// Only with this element type.
    pub dtype: Option<DType>,
    /// Only for this sample.
    pub sample: Option<usize>,
    /// The reason that the author gives.
    pub reason: &'static str,
}

impl Directive {
    /// Whether the directive matches this test, whose executor has this name and precision.
    pub fn matches(&self, template: Template, executor: Option<(&str, Precision)>, dtype: Option<DType>) -> bool {
        self.templates.contains(&template)
            && self.executor.is_none_or(|own| executor.is_some_and(|(name, _)| name == own))
            && self.precision.is_none_or(|own| executor.is_some_and(|(_, precision)| precision == own))
            && self.dtype.is_none_or(|own| Some(own) == dtype)
    }
}
