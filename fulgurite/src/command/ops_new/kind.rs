//! What is declared.

use fulgurite::operator::OperatorDef;

/// What is declared.
pub(super) enum Kind<'a> {
    Composite { torch: Option<&'a str> },
    Prim { torch: Option<&'a str> },
    Symbol { executor: &'a str, cuda: bool },
    Implementation { executor: &'a str, cuda: bool, of: &'static OperatorDef },
    Rewrite,
    Executor { cuda: bool },
}
