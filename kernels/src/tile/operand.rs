//! Where an instruction finds its operands.

/// An operand of an instruction on a tile of `rows` rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand {
    /// One value for each element.
    Tile(*const u8),
    /// One value for each row.
    PerRow(*const u8),
    /// One value.
    Scalar(*const u8),
}

/// An operand within one segment of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument<'a, T> {
    Slice(&'a [T]),
    Scalar(T),
}

impl Operand {
    pub(crate) fn is_per_row(self) -> bool {
        matches!(self, Operand::PerRow(_))
    }

    /// The operand in segment `index` of segments of `length` elements.
    ///
    /// # Safety
    /// The address holds elements of type `T`: one for a scalar, more than `index` per row, `(index + 1) * length` for
    /// a tile.
    #[inline(always)]
    pub(crate) unsafe fn segment<'a, T: Copy>(self, index: usize, length: usize) -> Argument<'a, T> {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                Operand::Tile(address) => {
                    Argument::Slice(std::slice::from_raw_parts(address.cast::<T>().add(index * length), length))
                }
                Operand::PerRow(address) => Argument::Scalar(address.cast::<T>().add(index).read()),
                Operand::Scalar(address) => Argument::Scalar(address.cast::<T>().read()),
            }
        }
    }
}

/// Calls `$body` for each segment: once for the whole tile, or once a row where an operand has one value a row.
macro_rules! for_segments {
    ($operands:expr, $rows:expr, $width:expr, |$index:ident, $length:ident| $body:expr) => {{
        let by_row = $operands.iter().any(|operand: &Operand| operand.is_per_row());
        let (segments, $length) = if by_row { ($rows, $width) } else { (1, $rows * $width) };
        for $index in 0..segments {
            $body
        }
    }};
}
pub(crate) use for_segments;
