//! The parameters of an operator: what an argument may be, its type in words, its default.

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute};

/// Which element types a tensor argument takes. Complex ones belong to `Complex` alone; an operator that declares
/// `complex` takes them for `Any`, `Floating` and `Number` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Every real type.
    Any,
    /// f16, bf16, f32, f64.
    Floating,
    /// u8, i32, i64.
    Integer,
    /// bool alone.
    Boolean,
    /// Every real type but bool.
    Number,
    /// c64, c128.
    Complex,
}

impl Class {
    /// Whether `dtype` belongs to the class.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Class::Any => !dtype.is_complex(),
            Class::Floating => dtype.is_floating(),
            Class::Integer => dtype.is_integer(),
            Class::Boolean => dtype == DType::Bool,
            Class::Number => dtype != DType::Bool && !dtype.is_complex(),
            Class::Complex => dtype.is_complex(),
        }
    }

    /// In words, for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Class::Any => "any real dtype",
            Class::Floating => "a floating-point dtype",
            Class::Integer => "an integer dtype",
            Class::Boolean => "bool",
            Class::Number => "a number, not bool",
            Class::Complex => "a complex dtype",
        }
    }
}

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    /// A tensor.
    Tensor(Class),
    /// An optional tensor.
    Optional(Class),
    /// A list of tensors.
    List(Class),
    /// A tensor or a number.
    Operand(Class),
    /// A value known when a program is traced.
    Attribute,
}

impl ParamKind {
    /// Whether it is a tensor that may be absent.
    pub fn is_optional(self) -> bool {
        matches!(self, ParamKind::Optional(_))
    }
}

/// The name of a parameter's type.
pub type TypeName = &'static (dyn Fn() -> String + Send + Sync);
/// The enum that a parameter's type is in Rust, with its variants.
pub type RustEnum = &'static (dyn Fn() -> Option<String> + Send + Sync);
/// Whether an attribute is of a parameter's type.
pub type Accepts = &'static (dyn Fn(&Attribute) -> bool + Send + Sync);
/// The default of a parameter.
pub type DefaultRule = &'static (dyn Fn() -> Attribute + Send + Sync);

/// One parameter of a signature.
#[derive(Clone, Copy)]
pub struct ParamDef {
    /// Its name, PyTorch's where the operator mirrors one.
    pub name: &'static str,
    /// Tensor, list of tensors, or attribute.
    pub kind: ParamKind,
    /// Its type in words: `tensor`, `float?`, `int[]`, ...
    pub type_name: TypeName,
    /// The enum that its type is in Rust, if it is one: `Reduction::{None, Mean, Sum}`.
    pub rust_enum: RustEnum,
    /// Whether an attribute is of its type; tensors are not asked for.
    pub accepts: Accepts,
    /// Its default; `None` if it must be given. Optional tensors default to `Attribute::None`.
    pub default: Option<DefaultRule>,
    /// Whether a number for it has the precision of the accumulator: f32 beside tensors of f16 and bf16. Other numbers
    /// are rounded to the element type of the tensors.
    pub accumulates: bool,
}

impl std::fmt::Debug for ParamDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, (self.type_name)())
    }
}

impl ParamDef {
    /// The number that stands for a tensor here, beside tensors of `dtype`.
    pub fn number(&self, number: f64, dtype: DType) -> f64 {
        if self.accumulates { dtype.accumulator().nearest(number) } else { dtype.nearest(number) }
    }

    /// The argument where none is given.
    pub fn default_argument<V>(&self) -> Arg<V> {
        match self.kind {
            ParamKind::Optional(_) => Arg::Optional(None),
            ParamKind::List(_) => Arg::List(Vec::new()),
            _ => Arg::Attribute(self.default.map_or(Attribute::None, |default| default())),
        }
    }
}
