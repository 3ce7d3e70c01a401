//! What differentiation asks of an operator.

use crate::argument::Arg;
use crate::operator::RuleSet;
use crate::tracer::Tensor;

/// The pullback of a call: cotangents of the results (absent where none arrived) and the results themselves, to the
/// arguments' cotangents, in the order and form of the parameters (attributes and integer tensors as
/// `Attribute::None`).
pub type Pullback = Box<dyn FnOnce(&[Option<Tensor>], &[Tensor]) -> Vec<Arg<Tensor>>>;
/// Outputs and pullback.
pub type GradRule = &'static (dyn Fn(&[Arg<Tensor>]) -> (Vec<Tensor>, Pullback) + Send + Sync);

/// How a call is differentiated.
#[derive(Clone, Copy)]
pub struct GradientRules {
    /// Its gradient; derived from the decomposition if absent.
    pub grad: Option<GradRule>,
    /// Why it has no gradient, if it has none.
    pub no_grad: Option<&'static str>,
}

impl GradientRules {
    /// Derived from the decomposition.
    pub const EMPTY: GradientRules = GradientRules { grad: None, no_grad: None };
}

impl RuleSet for GradientRules {
    const NONE: &'static GradientRules = &GradientRules::EMPTY;
}
