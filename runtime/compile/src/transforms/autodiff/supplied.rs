//! The source of the rule by which a call was differentiated, and where its lines are.

use std::fmt;
use std::sync::Arc;

use crate::refusal::Refusal;

/// The scope of the names of the backward pass.
pub(super) const BACKWARD: &str = "grad";

/// The source of the rule by which a call was differentiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleSource {
    /// An executor's implementation.
    Executor(&'static str),
    /// The operator's declaration.
    Operator,
    /// No rule: the call's decomposition was differentiated.
    Decomposition,
}

impl fmt::Display for RuleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleSource::Executor(name) => write!(f, "the gradient rule is that of {name}"),
            RuleSource::Operator => f.write_str("the gradient rule is the operator's own"),
            RuleSource::Decomposition => f.write_str("its decomposition is differentiated"),
        }
    }
}

/// How one call was differentiated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientRule {
    /// The name of the call's first result.
    pub value: Arc<str>,
    /// The operator.
    pub operator: &'static str,
    /// The source of the rule.
    pub from: RuleSource,
    /// Executors that have an implementation of the operator and did not supply the rule, with their reasons.
    pub refusals: Vec<Refusal>,
}
