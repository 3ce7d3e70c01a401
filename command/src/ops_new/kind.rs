//! Kinds of declarations that `ops new` writes.

use fulgurite::operator::OperatorDef;

/// A kind of declaration, with what belongs to it.
pub(super) enum Kind<'a> {
    Composite { torch: Option<&'a str> },
    Prim { torch: Option<&'a str> },
    Symbol { executor: &'a str, device: String },
    Implementation { executor: &'a str, device: String, of: &'static OperatorDef },
    Rewrite,
    Executor { device: String },
}

impl Kind<'_> {
    /// The kind of device of the kernel that is declared, if one is.
    pub(super) fn kernel_device(&self) -> Option<&str> {
        match self {
            Kind::Symbol { device, .. } | Kind::Implementation { device, .. } => Some(device),
            _ => None,
        }
    }
}
