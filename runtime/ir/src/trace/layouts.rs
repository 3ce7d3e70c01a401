//! Layouts of the values of a claimed trace: views and parts of joins in the memory of others.

use super::joins::all_parts;
pub use super::views::{ALIGNMENT, Layout, laid_over, view_of};
use super::{Trace, ValueId};
use crate::executor::VIEW;

/// Layouts of all values of a claimed flat block, in the order of their ids.
pub fn layouts(trace: &Trace) -> Vec<Layout> {
    let block = &trace.block;
    let mut layouts: Vec<Layout> = (0..block.values.len() as u32).map(|id| Layout::own(block, ValueId(id))).collect();
    for (parameter, input) in block.parameters.iter().zip(&trace.inputs) {
        if let Some(strides) = &input.strides {
            layouts[parameter.index()].strides = strides.as_slice().into();
        }
    }
    for (part, layout) in all_parts(block) {
        layouts[part.index()] = layout;
    }
    for symbol in &block.symbols {
        let viewed = (symbol.executor == Some(VIEW))
            .then(|| view_of(block, symbol, |id| layouts[id.index()].strides.to_vec()))
            .flatten();
        if let Some((operand, view)) = viewed {
            let base = layouts[operand.index()].clone();
            layouts[symbol.results[0].index()] = laid_over(&base, view);
        }
    }
    layouts
}
