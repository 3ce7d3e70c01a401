//! Element types as run-time values.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// A complex number of two `F32`: its real and its imaginary part, one after the other.
    C64,
    /// A complex number of two `F64`.
    C128,
}

impl DType {
    /// Every element type, from `Bool` to `C128`.
    pub const ALL: [DType; 14] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
    ];

    /// Every element type that kernels compute in: all but complex numbers, which programs are rid of before.
    pub const REAL: [DType; 12] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Booleans and integers, which hold what they say: nothing is rounded.
    pub const EXACT: [DType; 8] =
        [DType::Bool, DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::I64];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// Bytes of which the address of an element is a multiple: those of one part of a complex number.
    pub const fn alignment(self) -> usize {
        self.part().size()
    }

    /// The type of the two parts of a complex number; any other type itself.
    pub const fn part(self) -> DType {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The type of complex numbers whose parts are of this type; a complex type is its own. None for integers,
    /// booleans, `f16` and `bf16`.
    pub const fn complex(self) -> Option<DType> {
        match self {
            DType::F32 | DType::C64 => Some(DType::C64),
            DType::F64 | DType::C128 => Some(DType::C128),
            _ => None,
        }
    }

    /// How many numbers an element consists of: two of a complex one.
    pub const fn parts(self) -> usize {
        if self.is_complex() { 2 } else { 1 }
    }

    /// The short name used in traces: `f32`, `i64`, `bool`, ...
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::U16 => "u16",
            DType::I16 => "i16",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// PyTorch's name without the `torch.` prefix: `float32`, `int64`, ...
    pub const fn torch_name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::U16 => "uint16",
            DType::I16 => "int16",
            DType::U32 => "uint32",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C64 => "complex64",
            DType::C128 => "complex128",
        }
    }

    /// `f16`, `bf16`, `f32` or `f64`.
    pub const fn is_floating(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// `c64` or `c128`, neither of which [is floating](Self::is_floating).
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// Floating-point or complex: what gradients exist for.
    pub const fn is_differentiable(self) -> bool {
        self.is_floating() || self.is_complex()
    }

    /// `u8`, `u16`, `u32`, `i8`, `i16`, `i32` or `i64`; `bool` is not an integer.
    pub const fn is_integer(self) -> bool {
        self.limits().is_some()
    }

    /// `u8`, `u16` or `u32`.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32)
    }

    /// The least and the largest number of an integer type; none for the others.
    pub const fn limits(self) -> Option<(i64, i64)> {
        Some(match self {
            DType::U8 => (0, u8::MAX as i64),
            DType::I8 => (i8::MIN as i64, i8::MAX as i64),
            DType::U16 => (0, u16::MAX as i64),
            DType::I16 => (i16::MIN as i64, i16::MAX as i64),
            DType::U32 => (0, u32::MAX as i64),
            DType::I32 => (i32::MIN as i64, i32::MAX as i64),
            DType::I64 => (i64::MIN, i64::MAX),
            _ => return None,
        })
    }

    /// An integer as an integer type stores it: the low bits are kept. Left as it is for other types.
    pub const fn wrapped(self, integer: i64) -> i64 {
        match self {
            DType::U8 => integer as u8 as i64,
            DType::I8 => integer as i8 as i64,
            DType::U16 => integer as u16 as i64,
            DType::I16 => integer as i16 as i64,
            DType::U32 => integer as u32 as i64,
            DType::I32 => integer as i32 as i64,
            _ => integer,
        }
    }

    /// The type in which arithmetic on this type is carried out: f32 for `f16` and `bf16`, otherwise the type itself.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// The largest finite number of a floating type, and of a part of a complex one; infinity for the others.
    pub const fn largest(self) -> f64 {
        match self {
            DType::F16 => 65_504.0,
            // (2 - 2⁻⁷) · 2¹²⁷
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F32 | DType::C64 => f32::MAX as f64,
            DType::F64 | DType::C128 => f64::MAX,
            _ => f64::INFINITY,
        }
    }

    /// Machine epsilon of a floating type (distance from 1 to the next value), and of the parts of a complex one; 0 for
    /// the others.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F16 => 9.765_625e-4,
            DType::BF16 => 7.812_5e-3,
            DType::F32 | DType::C64 => f32::EPSILON as f64,
            DType::F64 | DType::C128 => f64::EPSILON,
            _ => 0.0,
        }
    }

    /// The number of a floating type that is nearest to `number`; of types of 16 bits by way of f32, in which they are
    /// computed. Of a complex type, of one part. A number of another type is left as it is.
    pub fn nearest(self, number: f64) -> f64 {
        match self {
            DType::F16 => half::f16::from_f32(number as f32).to_f64(),
            DType::BF16 => half::bf16::from_f32(number as f32).to_f64(),
            DType::F32 | DType::C64 => f64::from(number as f32),
            _ => number,
        }
    }
}

/// Ends a kernel that was given complex numbers. Programs are rid of them before a kernel is chosen; kernels see their
/// parts.
#[cold]
pub(crate) const fn refuse_complex() -> ! {
    panic!("kernels compute with the parts of complex numbers, and take no complex numbers")
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown dtype '{0}', expected one of bool, u8, i8, u16, i16, u32, i32, i64, f16, bf16, f32, f64, c64, c128 or \
     PyTorch's names"
)]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    /// Reads the short name (`f32`), PyTorch's name (`float32`) or the latter with the prefix `torch.`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix("torch.").unwrap_or(text);
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == bare || dtype.torch_name() == bare)
            .ok_or_else(|| UnknownDType(text.to_owned()))
    }
}

/// A Rust type that is the storage of one [`DType`].
pub trait Element: bytemuck::Pod + PartialEq + PartialOrd + Send + Sync + fmt::Debug {
    /// The element type stored.
    const DTYPE: DType;
    /// Nearest value to `value`; integers truncate towards zero and saturate.
    fn from_f64(value: f64) -> Self;
    /// Exact for every type but `i64` beyond 2⁵³.
    fn to_f64(self) -> f64;
}

macro_rules! element {
    ($($type:ty => $dtype:ident, $from:expr, $to:expr;)*) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn from_f64(value: f64) -> Self { let from: fn(f64) -> $type = $from; from(value) }
            fn to_f64(self) -> f64 { let to: fn($type) -> f64 = $to; to(self) }
        }
    )*};
}

element! {
    u8 => U8, |v| v as u8, |v| v as f64;
    i8 => I8, |v| v as i8, |v| v as f64;
    u16 => U16, |v| v as u16, |v| v as f64;
    i16 => I16, |v| v as i16, |v| v as f64;
    u32 => U32, |v| v as u32, |v| v as f64;
    i32 => I32, |v| v as i32, |v| v as f64;
    i64 => I64, |v| v as i64, |v| v as f64;
    // By way of f32, in which they are computed: `half` drops half of an f64's fraction before it rounds.
    half::f16 => F16, |v| half::f16::from_f32(v as f32), half::f16::to_f64;
    half::bf16 => BF16, |v| half::bf16::from_f32(v as f32), half::bf16::to_f64;
    f32 => F32, |v| v as f32, |v| v as f64;
    f64 => F64, |v| v, |v| v;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_next_to_a_tie_go_to_the_nearer_side() {
        // Halfway between two numbers of 16 bits, and the next f32 on each side.
        for tie in [1.0 + f64::from(f32::EPSILON) * 4096.0, 1.0 + f64::from(f32::EPSILON) * 32768.0] {
            for (beside, up) in [((tie as f32).next_up(), true), ((tie as f32).next_down(), false)] {
                let (f16, bf16) = (half::f16::from_f32(beside), half::bf16::from_f32(beside));
                assert_eq!(<half::f16 as Element>::from_f64(beside.into()), f16, "{beside:e} to f16");
                assert_eq!(<half::bf16 as Element>::from_f64(beside.into()), bf16, "{beside:e} to bf16");
                let found = if tie < 1.001 { f16.to_f64() } else { bf16.to_f64() };
                assert_eq!(found > tie, up, "{beside:e}");
            }
        }
    }

    #[test]
    fn the_largest_numbers() {
        assert_eq!(DType::F16.largest(), half::f16::MAX.to_f64());
        assert_eq!(DType::BF16.largest(), half::bf16::MAX.to_f64());
    }

    #[test]
    fn integers_keep_their_low_bits() {
        for dtype in DType::ALL {
            let Some((least, largest)) = dtype.limits() else { continue };
            assert_eq!(dtype.wrapped(largest.wrapping_add(1)), least, "{dtype}");
            assert_eq!(dtype.wrapped(least.wrapping_sub(1)), largest, "{dtype}");
            assert_eq!(dtype.is_unsigned(), least == 0, "{dtype}");
        }
    }

    #[test]
    fn complex_numbers_are_two_parts() {
        for dtype in DType::ALL {
            assert_eq!(dtype.size(), dtype.parts() * dtype.part().size(), "{dtype}");
            assert_eq!(dtype.is_complex(), !DType::REAL.contains(&dtype), "{dtype}");
            assert_eq!(dtype.complex().is_some(), matches!(dtype.part(), DType::F32 | DType::F64), "{dtype}");
            assert!(dtype.complex().is_none_or(|complex| complex.part() == dtype.part()), "{dtype}");
        }
    }

    #[test]
    fn names_parse_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(format!("torch.{}", dtype.torch_name()).parse(), Ok(dtype));
        }
        assert_eq!("float31".parse::<DType>(), Err(UnknownDType("float31".into())));
    }
}
