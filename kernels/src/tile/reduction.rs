//! Reductions of slices, with a fixed order of additions: 64 lanes within a block of 1024 elements, the lanes folded in
//! halves, the blocks' sums added in the wider type.

use crate::vector::multiversion;

/// How values are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; 0 of nothing.
    Sum,
    /// The largest; NaN if any is NaN; -∞ (or the least integer) of nothing.
    Max,
    /// The smallest; NaN if any is NaN; ∞ (or the greatest integer) of nothing.
    Min,
    /// The product; 1 of nothing.
    Product,
}

const LANES: usize = 64;
/// Elements whose sum is formed before it is added in the wider type. Chunks of a longer row are multiples of this.
pub(crate) const BLOCK: usize = 1024;

macro_rules! halves {
    ($lanes:ident, $combine:ident, $($width:literal),*) => {$(
        for lane in 0..$width {
            $lanes[lane] = $combine($lanes[lane], $lanes[lane + $width]);
        }
    )*};
}

macro_rules! fold {
    ($input:ident, $type:ty, $start:expr, |$a:ident, $b:ident| $value:expr) => {{
        let combine = |$a: $type, $b: $type| -> $type { $value };
        let mut lanes = [$start; LANES];
        let (whole, rest) = $input.as_chunks::<LANES>();
        for chunk in whole {
            for lane in 0..LANES {
                lanes[lane] = combine(lanes[lane], chunk[lane]);
            }
        }
        for lane in 0..rest.len() {
            lanes[lane] = combine(lanes[lane], rest[lane]);
        }
        // Each half by a loop of a length that the compiler knows.
        halves!(lanes, combine, 32, 16, 8, 4, 2, 1);
        lanes[0]
    }};
}

macro_rules! slice_reductions {
    ($sum:ident $block:ident $max:ident $min:ident $product:ident $type:ty, $wide:ty, $zero:expr, $least:expr,
     $greatest:expr, |$a:ident, $b:ident| $add:expr, $larger:expr, $smaller:expr, $multiply:expr) => {
        multiversion! {
            fn $block[FMA](input: &[$type]) -> $type { fold!(input, $type, $zero, |$a, $b| $add) }
        }
        multiversion! {
            /// The largest element.
            pub(crate) fn $max[FMA](input: &[$type]) -> $type { fold!(input, $type, $least, |$a, $b| $larger) }
        }
        multiversion! {
            /// The smallest element.
            pub(crate) fn $min[FMA](input: &[$type]) -> $type { fold!(input, $type, $greatest, |$a, $b| $smaller) }
        }
        /// The product, in the wider type from the first element on: a block of a narrow one may leave its range where
        /// the whole product does not.
        pub(crate) fn $product(input: &[$type]) -> $wide {
            input.iter().fold(1 as $wide, |$a, &b| {
                let $b = b as $wide;
                $multiply
            })
        }
        /// The sum, in the wider type.
        pub(crate) fn $sum(input: &[$type]) -> $wide {
            let mut total = <$wide>::default();
            for block in input.chunks(BLOCK) {
                let ($a, $b) = (total, $block(block) as $wide);
                total = $add;
            }
            total
        }
    };
}
slice_reductions!(
    sum_f32 sum_block_f32 max_f32 min_f32 product_f32 f32, f64, 0.0, f32::NEG_INFINITY, f32::INFINITY,
    |a, b| a + b, if b > a || b.is_nan() { b } else { a }, if b < a || b.is_nan() { b } else { a }, a * b
);
slice_reductions!(
    sum_f64 sum_block_f64 max_f64 min_f64 product_f64 f64, f64, 0.0, f64::NEG_INFINITY, f64::INFINITY,
    |a, b| a + b, if b > a || b.is_nan() { b } else { a }, if b < a || b.is_nan() { b } else { a }, a * b
);
slice_reductions!(
    sum_i64 sum_block_i64 max_i64 min_i64 product_i64 i64, i64, 0, i64::MIN, i64::MAX,
    |a, b| a.wrapping_add(b), if b > a { b } else { a }, if b < a { b } else { a }, a.wrapping_mul(b)
);

/// The bits of a running total: f64 for floating-point classes, i64 for integers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Total {
    Floating(f64),
    Integer(i64),
}

impl Total {
    /// The result of reducing nothing.
    pub(crate) fn start(reduction: Reduction, floating: bool) -> Total {
        match (reduction, floating) {
            (Reduction::Sum, true) => Total::Floating(0.0),
            (Reduction::Max, true) => Total::Floating(f64::NEG_INFINITY),
            (Reduction::Min, true) => Total::Floating(f64::INFINITY),
            (Reduction::Product, true) => Total::Floating(1.0),
            (Reduction::Sum, false) => Total::Integer(0),
            (Reduction::Max, false) => Total::Integer(i64::MIN),
            (Reduction::Min, false) => Total::Integer(i64::MAX),
            (Reduction::Product, false) => Total::Integer(1),
        }
    }

    /// Both parts of a range combined, the earlier first.
    pub(crate) fn combine(self, reduction: Reduction, other: Total) -> Total {
        match (self, other) {
            (Total::Floating(a), Total::Floating(b)) => Total::Floating(match reduction {
                Reduction::Sum => a + b,
                Reduction::Product => a * b,
                Reduction::Max => {
                    if b > a || b.is_nan() {
                        b
                    } else {
                        a
                    }
                }
                Reduction::Min => {
                    if b < a || b.is_nan() {
                        b
                    } else {
                        a
                    }
                }
            }),
            (Total::Integer(a), Total::Integer(b)) => Total::Integer(match reduction {
                Reduction::Sum => a.wrapping_add(b),
                Reduction::Max => a.max(b),
                Reduction::Min => a.min(b),
                Reduction::Product => a.wrapping_mul(b),
            }),
            _ => unreachable!("totals of one reduction have one class"),
        }
    }
}

use super::Class;

/// The total of `length` elements of a tile.
///
/// # Safety
/// `input` holds `length` elements of `class`, which is not the class of booleans.
pub(crate) unsafe fn reduce(reduction: Reduction, class: Class, input: *const u8, length: usize) -> Total {
    use std::slice::from_raw_parts;
    // SAFETY: promised by the caller.
    unsafe {
        match class {
            Class::F32 => {
                let input = from_raw_parts(input.cast(), length);
                Total::Floating(match reduction {
                    Reduction::Sum => sum_f32(input),
                    Reduction::Max => f64::from(max_f32(input)),
                    Reduction::Min => f64::from(min_f32(input)),
                    Reduction::Product => product_f32(input),
                })
            }
            Class::F64 => {
                let input = from_raw_parts(input.cast(), length);
                Total::Floating(match reduction {
                    Reduction::Sum => sum_f64(input),
                    Reduction::Max => max_f64(input),
                    Reduction::Min => min_f64(input),
                    Reduction::Product => product_f64(input),
                })
            }
            Class::I64 => {
                let input = from_raw_parts(input.cast(), length);
                Total::Integer(match reduction {
                    Reduction::Sum => sum_i64(input),
                    Reduction::Max => max_i64(input),
                    Reduction::Min => min_i64(input),
                    Reduction::Product => product_i64(input),
                })
            }
            Class::Bool => unreachable!("booleans are reduced as integers"),
        }
    }
}
