//! Arguments of operators: tensors, and attributes that are known when a program is traced.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use fulgurite_kernels::DType;

/// A number of PyTorch's Python front end. `1`, `1.0` and `true` promote differently.
#[derive(Debug, Clone, Copy)]
pub enum Scalar {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// The value as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => f64::from(u8::from(value)),
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }

    /// The value as i64; floating-point numbers truncate.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => i64::from(value),
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
        }
    }

    /// Whether an element of `dtype` can be made of it, a fraction being cut off and whatever is not zero being true:
    /// integers have limits, and must be exact in f64, in which scalar rules hold their numbers.
    pub fn fits(self, dtype: DType) -> bool {
        let Some(limits) = dtype.limits() else { return true };
        match self {
            Scalar::Bool(_) => true,
            Scalar::Int(value) => self.is_exact() && (limits.0..=limits.1).contains(&value),
            Scalar::Float(value) => value.trunc() >= limits.0 as f64 && value.trunc() < limits.1 as f64 + 1.0,
        }
    }

    /// Whether f64, in which scalar rules hold their numbers, holds it exactly.
    pub fn is_exact(self) -> bool {
        !matches!(self, Scalar::Int(value) if value as f64 as i128 != i128::from(value))
    }

    /// Whether it can replace a tensor of `dtype` in strict arithmetic: it [fits](Scalar::fits) exactly but for the
    /// rounding of floating-point numbers. Integers have no fraction, booleans are 0 or 1.
    pub fn stands_for(self, dtype: DType) -> bool {
        let number = self.to_f64();
        let whole = match dtype {
            DType::Bool => number == 0.0 || number == 1.0,
            _ => dtype.is_differentiable() || number.fract() == 0.0,
        };
        whole && self.is_exact() && self.fits(dtype)
    }
}

// Attributes are part of cache keys: numbers are equal when their bits are, so that NaN equals itself.
impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}
impl Eq for Scalar {}
impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Scalar::Bool(value) => value.hash(state),
            Scalar::Int(value) => value.hash(state),
            Scalar::Float(value) => value.to_bits().hash(state),
        }
    }
}

/// A value known when a program is traced. It is printed in the trace and is part of every cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// No value.
    None,
    /// A number or boolean.
    Scalar(Scalar),
    /// A string, or the name of an enum's variant.
    Text(Arc<str>),
    /// An element type.
    DType(DType),
    /// A list.
    List(Arc<[Attribute]>),
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::None => f.write_str("none"),
            Attribute::Scalar(Scalar::Bool(value)) => write!(f, "{value}"),
            Attribute::Scalar(Scalar::Int(value)) => write!(f, "{value}"),
            Attribute::Scalar(Scalar::Float(value)) => write_float(f, *value),
            Attribute::Text(text) => write!(f, "{text:?}"),
            Attribute::DType(dtype) => write!(f, "{dtype}"),
            Attribute::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// The shortest text that reads back as the same number; always with a point, an exponent, or one of `inf`, `nan`.
fn write_float(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    if value.is_nan() {
        // Only the canonical NaN has a name; any other is given by its bits.
        if value.to_bits() == f64::NAN.to_bits() {
            f.write_str("nan")
        } else {
            write!(f, "nan({:#x})", value.to_bits())
        }
    } else {
        write!(f, "{value:?}")
    }
}

/// A Rust type of an attribute in signatures.
pub trait AttributeType: Sized {
    /// What a reader of a signature sees: `int`, `float?`, `int[]`, ...
    fn type_name() -> String;
    /// Its type in Rust, where that is an enum, with its variants: `Reduction::{None, Mean, Sum}`.
    fn rust_enum() -> Option<String> {
        None
    }
    /// As an attribute.
    fn to_attribute(&self) -> Attribute;
    /// From an attribute; `None` if it is of another type.
    fn from_attribute(attribute: &Attribute) -> Option<Self>;
}

macro_rules! simple_attribute {
    ($($type:ty, $name:literal, $to:expr, $pattern:pat => $from:expr;)*) => {$(
        impl AttributeType for $type {
            fn type_name() -> String { $name.into() }
            fn to_attribute(&self) -> Attribute { let to: fn(&$type) -> Attribute = $to; to(self) }
            fn from_attribute(attribute: &Attribute) -> Option<Self> {
                #[allow(unreachable_patterns)]
                match attribute { $pattern => $from, _ => None }
            }
        }
    )*};
}

simple_attribute! {
    bool, "bool", |v| Attribute::Scalar(Scalar::Bool(*v)), Attribute::Scalar(Scalar::Bool(v)) => Some(*v);
    i64, "int", |v| Attribute::Scalar(Scalar::Int(*v)), Attribute::Scalar(Scalar::Int(v)) => Some(*v);
    usize, "size", |v| Attribute::Scalar(Scalar::Int(*v as i64)), Attribute::Scalar(Scalar::Int(v)) => usize::try_from(*v).ok();
    f64, "float", |v| Attribute::Scalar(Scalar::Float(*v)), Attribute::Scalar(Scalar::Float(v)) => Some(*v);
    Scalar, "number", |v| Attribute::Scalar(*v), Attribute::Scalar(v) => Some(*v);
    String, "str", |v| Attribute::Text(v.as_str().into()), Attribute::Text(v) => Some(v.to_string());
    DType, "dtype", |v| Attribute::DType(*v), Attribute::DType(v) => Some(*v);
}

impl<T: AttributeType> AttributeType for Option<T> {
    fn type_name() -> String {
        format!("{}?", T::type_name())
    }
    fn rust_enum() -> Option<String> {
        T::rust_enum()
    }
    fn to_attribute(&self) -> Attribute {
        self.as_ref().map_or(Attribute::None, T::to_attribute)
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        if *attribute == Attribute::None { Some(None) } else { T::from_attribute(attribute).map(Some) }
    }
}

impl<T: AttributeType> AttributeType for Vec<T> {
    fn type_name() -> String {
        format!("{}[]", T::type_name())
    }
    fn rust_enum() -> Option<String> {
        T::rust_enum()
    }
    fn to_attribute(&self) -> Attribute {
        Attribute::List(self.iter().map(T::to_attribute).collect())
    }
    fn from_attribute(attribute: &Attribute) -> Option<Self> {
        match attribute {
            Attribute::List(items) => items.iter().map(T::from_attribute).collect(),
            _ => None,
        }
    }
}

/// Declares an enum that is an attribute, with the strings that PyTorch uses for its variants:
/// `attribute_enum! { /// How. pub enum Reduction { /// No. None = "none", /// Mean. Mean = "mean" } }`
#[macro_export]
macro_rules! attribute_enum {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$vdoc])* $variant),+ }
        impl $crate::argument::AttributeType for $name {
            fn type_name() -> String { [$($text),+].map(|t| format!("{t:?}")).join("|") }
            fn rust_enum() -> Option<String> {
                Some(format!("{}::{{{}}}", stringify!($name), [$(stringify!($variant)),+].join(", ")))
            }
            fn to_attribute(&self) -> $crate::argument::Attribute {
                $crate::argument::Attribute::Text(match self { $($name::$variant => $text),+ }.into())
            }
            fn from_attribute(attribute: &$crate::argument::Attribute) -> Option<Self> {
                match attribute {
                    $crate::argument::Attribute::Text(text) => match &**text { $($text => Some($name::$variant),)+ _ => None },
                    _ => None,
                }
            }
        }
    };
}

/// What a caller may give where a list may be left out: `[-1]`, a slice, a vector, or an `Option` of one.
pub trait IntoOptionalList<T> {
    /// As the attribute is kept.
    fn into_optional_list(self) -> Option<Vec<T>>;
}

impl<T> IntoOptionalList<T> for Option<Vec<T>> {
    fn into_optional_list(self) -> Option<Vec<T>> {
        self
    }
}
impl<T> IntoOptionalList<T> for Vec<T> {
    fn into_optional_list(self) -> Option<Vec<T>> {
        Some(self)
    }
}
impl<T, const N: usize> IntoOptionalList<T> for [T; N] {
    fn into_optional_list(self) -> Option<Vec<T>> {
        Some(self.into())
    }
}
impl<T: Clone> IntoOptionalList<T> for &[T] {
    fn into_optional_list(self) -> Option<Vec<T>> {
        Some(self.to_vec())
    }
}
impl<T: Clone> IntoOptionalList<T> for &Vec<T> {
    fn into_optional_list(self) -> Option<Vec<T>> {
        Some(self.clone())
    }
}

/// A tensor or a number, where PyTorch takes either.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand<V> {
    /// A tensor.
    Tensor(V),
    /// A number.
    Scalar(Scalar),
}

impl<V> Operand<V> {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&V> {
        match self {
            Operand::Tensor(tensor) => Some(tensor),
            Operand::Scalar(_) => None,
        }
    }

    /// The cotangent of an operand: what `f` makes, if the operand is a tensor. A number has none.
    pub fn cotangent<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        self.tensor().map(|_| f())
    }
}

impl<V> From<i32> for Operand<V> {
    fn from(value: i32) -> Self {
        Operand::Scalar(Scalar::Int(value.into()))
    }
}
macro_rules! scalar_operand {
    ($($value:ty),*) => {$(
        impl<V> From<$value> for Operand<V> {
            fn from(value: $value) -> Self { Operand::Scalar(Scalar::from(value)) }
        }
    )*};
}
scalar_operand!(f64, i64, bool, Scalar);

/// One argument of a call; `V` is the type of a tensor at the current stage (a meta, a handle, a value of a trace,
/// data).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Arg<V> {
    /// A tensor.
    Tensor(V),
    /// An optional tensor.
    Optional(Option<V>),
    /// A list of tensors.
    List(Vec<V>),
    /// An attribute; also a number in place of a tensor.
    Attribute(Attribute),
}

impl<V> Arg<V> {
    /// An attribute of that value.
    pub fn value(value: impl AttributeType) -> Arg<V> {
        Arg::Attribute(value.to_attribute())
    }

    /// The tensor, for rules: their arguments were checked against the signature.
    ///
    /// # Panics
    /// If it is no tensor.
    pub fn tensor(&self) -> &V {
        match self.tensors() {
            [tensor] => tensor,
            _ => panic!("the argument is no tensor; the signature says what is at its place"),
        }
    }

    /// The value of an attribute, for rules: their arguments were checked against the signature.
    ///
    /// # Panics
    /// If it is no attribute of that type.
    pub fn get<T: AttributeType>(&self) -> T {
        let attribute = if let Arg::Attribute(attribute) = self { T::from_attribute(attribute) } else { None };
        attribute
            .unwrap_or_else(|| panic!("the argument is no {}; the signature says what is at its place", T::type_name()))
    }

    /// The tensors in this argument, in order.
    pub fn tensors(&self) -> &[V] {
        match self {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::Optional(tensor) => tensor.as_slice(),
            Arg::List(tensors) => tensors,
            Arg::Attribute(_) => &[],
        }
    }

    /// The tensors in this argument, to be changed.
    pub fn tensors_mut(&mut self) -> &mut [V] {
        match self {
            Arg::Tensor(tensor) => std::slice::from_mut(tensor),
            Arg::Optional(tensor) => tensor.as_mut_slice(),
            Arg::List(tensors) => tensors,
            Arg::Attribute(_) => &mut [],
        }
    }

    /// The same argument with other tensors.
    pub fn map<W>(&self, mut f: impl FnMut(&V) -> W) -> Arg<W> {
        match self {
            Arg::Tensor(tensor) => Arg::Tensor(f(tensor)),
            Arg::Optional(tensor) => Arg::Optional(tensor.as_ref().map(f)),
            Arg::List(tensors) => Arg::List(tensors.iter().map(f).collect()),
            Arg::Attribute(attribute) => Arg::Attribute(attribute.clone()),
        }
    }
}

/// Applies [`Arg::map`] to a whole list.
pub fn map_arguments<V, W>(arguments: &[Arg<V>], mut f: impl FnMut(&V) -> W) -> Vec<Arg<W>> {
    arguments.iter().map(|argument| argument.map(&mut f)).collect()
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Scalar {
        Scalar::Float(value)
    }
}
impl From<i64> for Scalar {
    fn from(value: i64) -> Scalar {
        Scalar::Int(value)
    }
}
impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Bool(value)
    }
}

#[cfg(test)]
mod tests {
    use super::IntoOptionalList;

    #[test]
    fn a_list_that_may_be_left_out_is_given_in_any_form() {
        let given = |list: Option<Vec<i64>>| list;
        let (array, vector) = ([-1, 2], vec![-1_i64, 2]);
        assert_eq!(given(array.into_optional_list()), Some(vec![-1, 2]));
        assert_eq!(given(vector.as_slice().into_optional_list()), Some(vec![-1, 2]));
        assert_eq!(given((&vector).into_optional_list()), Some(vec![-1, 2]));
        assert_eq!(given(Some(vector.clone()).into_optional_list()), Some(vec![-1, 2]));
        assert_eq!(given(vector.into_optional_list()), Some(vec![-1, 2]));
        assert_eq!(given(None.into_optional_list()), None);
    }
}
