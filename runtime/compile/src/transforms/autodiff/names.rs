//! Names of values.

use std::sync::Arc;

use crate::trace::Block;

/// The body of a line with its own values renamed. Parameters are values of the program around, and keep their names.
pub(super) fn with_names(body: &Block, mut renamed: impl FnMut(&str) -> Arc<str>) -> Block {
    let mut body = body.clone();
    let mut own = vec![true; body.values.len()];
    body.parameters.iter().for_each(|id| own[id.index()] = false);
    for (value, _) in body.values.iter_mut().zip(own).filter(|(_, own)| *own) {
        value.name = renamed(&value.name);
    }
    body
}
