//! The classes of arithmetic that element types are computed in.

use crate::dtype::{DType, refuse_complex};

/// What a tile holds: one byte (0 or 1), i64, f32 or f64 for each element. The order is that of promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// 0 or 1 in a byte.
    Bool,
    /// All integers.
    I64,
    /// f32, f16 and bf16.
    F32,
    /// f64.
    F64,
}

impl Class {
    /// The class in which values of `dtype` are computed.
    pub const fn of(dtype: DType) -> Class {
        match dtype {
            DType::Bool => Class::Bool,
            DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::I64 => Class::I64,
            DType::F16 | DType::BF16 | DType::F32 => Class::F32,
            DType::F64 => Class::F64,
            DType::C64 | DType::C128 => refuse_complex(),
        }
    }

    /// The element type that is stored just as the class is.
    pub const fn dtype(self) -> DType {
        match self {
            Class::Bool => DType::Bool,
            Class::I64 => DType::I64,
            Class::F32 => DType::F32,
            Class::F64 => DType::F64,
        }
    }

    /// Bytes per element of a tile.
    pub const fn size(self) -> usize {
        self.dtype().size()
    }

    /// Whether the class is f32 or f64.
    pub const fn is_floating(self) -> bool {
        matches!(self, Class::F32 | Class::F64)
    }

    /// `value` as the bytes of one element, in the low bytes; integers truncate.
    pub fn bits(self, value: f64) -> u64 {
        match self {
            Class::Bool => u64::from(value != 0.0),
            Class::I64 => value as i64 as u64,
            Class::F32 => u64::from((value as f32).to_bits()),
            Class::F64 => value.to_bits(),
        }
    }
}
