//! Why a tensor is no slice of the elements that a kernel asks for.

use std::fmt;

use crate::dtype::DType;

/// What a kernel asked for and what it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotContiguous {
    /// The operand or result, as the kernel calls it.
    pub name: String,
    /// The element type that the kernel asked for.
    pub asked: DType,
    /// The element type that it was given.
    pub given: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// Whether its elements are row-major without gaps.
    pub contiguous: bool,
}

impl fmt::Display for NotContiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotContiguous { name, asked, given, shape, strides, contiguous } = self;
        write!(f, "the kernel asks for contiguous {asked}, '{name}' is {given}{shape:?}")?;
        match (given == asked, contiguous) {
            (_, false) => write!(f, " with strides {strides:?}"),
            (false, true) => Ok(()),
            // What a kernel that is declared `in_place` is given.
            (true, true) => f.write_str(
                " in memory that an operand and a result share: `elements` reads it and `elements_mut` writes it",
            ),
        }
    }
}

impl std::error::Error for NotContiguous {}
