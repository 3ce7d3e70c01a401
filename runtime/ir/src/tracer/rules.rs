//! What tracing asks of an operator.

use super::tensor::Tensor;
use crate::argument::Arg;
use crate::failure::Failure;
use crate::meta::TensorMeta;
use crate::operator::RuleSet;

/// Whether metas are accepted.
pub type RequiresRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> Result<(), Failure> + Send + Sync);
/// Metas in, metas out.
pub type MetaRule = &'static (dyn Fn(&[Arg<TensorMeta>]) -> Result<Vec<TensorMeta>, Failure> + Send + Sync);
/// Traced code in terms of other operators.
pub type TracedRule = &'static (dyn Fn(&[Arg<Tensor>]) -> Vec<Tensor> + Send + Sync);

/// The checks, result metas and decomposition of a call.
#[derive(Clone, Copy)]
pub struct TracingRules {
    /// Preconditions, which are checked before the results' metas are made.
    pub requires: Option<RequiresRule>,
    /// Shape-and-type rule; derived from the decomposition if absent.
    pub meta: Option<MetaRule>,
    /// The decomposition.
    pub decomposition: Option<TracedRule>,
}

impl TracingRules {
    /// No rule.
    pub const EMPTY: TracingRules = TracingRules { requires: None, meta: None, decomposition: None };

    /// What the operator itself says of the results' metas, after its preconditions; `None` if they follow from its
    /// decomposition. The arguments fit the signature.
    ///
    /// # Errors
    /// A precondition that does not hold.
    pub fn declared_meta(&self, arguments: &[Arg<TensorMeta>]) -> Result<Option<Vec<TensorMeta>>, Failure> {
        if let Some(requires) = self.requires {
            requires(arguments)?;
        }
        self.meta.map(|meta| meta(arguments)).transpose()
    }
}

impl RuleSet for TracingRules {
    const NONE: &'static TracingRules = &TracingRules::EMPTY;
}
