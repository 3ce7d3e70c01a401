//! Values that look at the memory of others.

use fulgurite_kernels::view::contiguous_strides;

use super::{Block, BoundSymbol, ValueId};
use crate::argument::map_arguments;
use crate::array::Strides;
use crate::operator::RuleSet;
use crate::strided::{LayoutRules, Strided, View};

/// Alignment of values in the arena, in bytes.
pub const ALIGNMENT: u64 = 64;

/// The layout of a value in the memory of its root: strides and offset in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The value whose memory it is; itself unless it is a view.
    pub root: ValueId,
    /// Strides in elements.
    pub strides: Strides,
    /// In elements, from the root's first element.
    pub offset: isize,
}

impl Layout {
    /// Memory of its own, row by row.
    pub fn own(block: &Block, id: ValueId) -> Layout {
        Layout { root: id, strides: contiguous_strides(block.meta(id).shape()).into(), offset: 0 }
    }
}

/// The operand of a view, and how it is looked at; `None` if the operand's layout does not allow it.
pub fn view_of(
    block: &Block,
    symbol: &BoundSymbol,
    strides: impl Fn(ValueId) -> Vec<isize>,
) -> Option<(ValueId, View)> {
    let rule = LayoutRules::of(symbol.operator()?).view?;
    let operand = symbol.operands().next()?;
    let arguments =
        map_arguments(&symbol.arguments, |id| Strided { meta: block.meta(*id).clone(), strides: strides(*id) });
    Some((operand, rule(&arguments)?))
}

/// The layout of a view of a value with the layout `base`.
pub fn laid_over(base: &Layout, view: View) -> Layout {
    Layout { root: base.root, strides: view.strides.into(), offset: base.offset + view.offset }
}
