//! The operators that batches are made of.

use crate::operator::{OperatorDef, Role};
use crate::registry::role;

/// Found by the roles that they declare.
pub(super) struct Operators {
    pub cat: &'static OperatorDef,
    pub reshape: &'static OperatorDef,
    pub permute: &'static OperatorDef,
    pub slice: &'static OperatorDef,
    pub matmul: &'static OperatorDef,
    pub sum: &'static OperatorDef,
}

impl Operators {
    /// `None` if the program links no operators that play these roles.
    pub(super) fn linked() -> Option<Operators> {
        let of = |wanted| role(wanted).ok();
        Some(Operators {
            cat: of(Role::Cat)?,
            reshape: of(Role::Reshape)?,
            permute: of(Role::Permute)?,
            slice: of(Role::Slice)?,
            matmul: of(Role::Matmul)?,
            sum: of(Role::Sum)?,
        })
    }
}
