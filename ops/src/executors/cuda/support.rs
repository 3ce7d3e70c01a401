//! What plans of hand-written kernels share.

use fulgurite::DType;

/// The element type's name in the kernels' header.
pub fn type_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::U8 => "u8",
        DType::Bool => "boolean",
    }
}

/// The type that arithmetic on elements is carried out in.
pub fn wide_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 | DType::BF16 | DType::F16 => "float",
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => "i64",
    }
}
