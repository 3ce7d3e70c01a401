//! Arguments by kind: how each is written, where it is, how a rule reads it.

use std::marker::PhantomData;

use super::results::Operands;
use crate::argument::{Arg, Attribute, AttributeType, Operand, Scalar};
use crate::operator::{Class, DefaultRule, ParamDef, ParamKind, TypeName};
use crate::rules::OperatorArguments;
use crate::tracer::Tensor;

const fn param(name: &'static str, kind: ParamKind, type_name: TypeName) -> ParamDef {
    ParamDef { name, kind, type_name, rust_enum: &|| None, accepts: &|_| true, default: None, accumulates: false }
}

/// The parameter with a default.
pub const fn defaulted(param: ParamDef, default: DefaultRule) -> ParamDef {
    ParamDef { default: Some(default), ..param }
}

macro_rules! parameter {
    (
        $(#[$doc:meta])*
        $module:ident: $type:ty, $gradient:ty, $kind:ident, $name:literal, |$value:ident| $write:expr,
        $read:ident => $as:ty
    ) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;
            /// The place of such an argument: `INDEX`.
            pub struct At<const INDEX: usize>;
            /// The gradient of such an argument.
            pub type Gradient = $gradient;
            #[allow(clippy::needless_lifetimes, reason = "some forms of arguments are borrowed for the lifetime")]
            impl<const INDEX: usize> At<INDEX> {
                /// The value of this type.
                pub const HERE: Self = At;
                /// The argument, to be handed to a rule.
                pub fn read<'a, V: Clone>(self, arguments: &'a [Arg<V>]) -> $as {
                    super::$read(arguments, INDEX)
                }
                /// As [`read`](Self::read), for a plan rule.
                pub fn planned<'a, V: Clone>(self, operands: &Operands<'a, V>) -> $as {
                    super::$read(operands.arguments, INDEX)
                }
                /// The arguments with another value here: a call that must fail is one that must not, but for one
                /// argument.
                pub fn set<V>(self, arguments: impl OperatorArguments<V>, value: $type) -> Vec<Arg<V>> {
                    with_argument(arguments.into_arguments(), INDEX, write(value))
                }
            }
            /// As an argument.
            pub fn write<V>($value: $type) -> Arg<V> {
                $write
            }
            /// The parameter's record.
            pub const fn define(name: &'static str, class: Class) -> ParamDef {
                super::param(name, ParamKind::$kind(class), &|| $name.into())
            }
        }
    };
}
parameter!(/// Tensors.
    tensor: V, Tensor, Tensor, "tensor", |tensor| Arg::Tensor(tensor), read_tensor => &'a V);
parameter!(/// Optional tensors.
    optional: Option<V>, Option<Tensor>, Optional, "tensor?", |tensor| Arg::Optional(tensor), read_optional => &'a Option<V>);
parameter!(/// Lists of tensors.
    list: Vec<V>, Vec<Tensor>, List, "tensor[]", |tensors| Arg::List(tensors), read_list => &'a Vec<V>);
/// Tensors, or numbers of the accumulator's precision.
pub mod factor {
    pub use super::operand::{At, Gradient, write};
    use super::{Class, ParamDef};
    /// The parameter's record.
    pub const fn define(name: &'static str, class: Class) -> ParamDef {
        ParamDef { accumulates: true, ..super::operand::define(name, class) }
    }
}
parameter!(/// Tensors or numbers.
    operand: Operand<V>, Option<Tensor>, Operand, "tensor|number", |operand| from_operand(operand), read_operand => Made<Operand<V>>);

/// Values known when a program is traced.
pub mod attribute {
    use super::*;
    /// The place of such an argument: `INDEX`.
    pub struct At<const INDEX: usize, T>(pub PhantomData<fn() -> T>);
    impl<const INDEX: usize, T: AttributeType> At<INDEX, T> {
        /// The value of this type.
        pub const HERE: Self = At(PhantomData);
        /// The argument, to be handed to a rule.
        pub fn read<V>(self, arguments: &[Arg<V>]) -> Made<T> {
            Made(super::read_attribute(arguments, INDEX))
        }
        /// As [`read`](Self::read), for a plan rule.
        pub fn planned<V>(self, operands: &Operands<'_, V>) -> Made<T> {
            self.read(operands.arguments)
        }
        /// The arguments with another value here: a call that must fail is one that must not, but for one
        /// argument.
        pub fn set<V>(self, arguments: impl OperatorArguments<V>, value: T) -> Vec<Arg<V>> {
            with_argument(arguments.into_arguments(), INDEX, write(value))
        }
    }
    /// As an argument.
    pub fn write<V, T: AttributeType>(value: T) -> Arg<V> {
        Arg::Attribute(value.to_attribute())
    }
    /// The parameter's record.
    pub const fn define<T: AttributeType>(name: &'static str) -> ParamDef {
        fn accepts<T: AttributeType>(given: &Attribute) -> bool {
            T::from_attribute(given).is_some()
        }
        let accepts = &(accepts::<T> as fn(&Attribute) -> bool);
        let rust_enum = &(T::rust_enum as fn() -> Option<String>);
        ParamDef { accepts, rust_enum, ..super::param(name, ParamKind::Attribute, &(T::type_name as fn() -> String)) }
    }
}

/// An argument that is made when it is read.
pub struct Made<T>(T);

impl<T> std::ops::Deref for Made<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

const FORM: &str = "the form of arguments is checked against the signature before a rule sees them";

/// Reads the tensor at `index`.
pub fn read_tensor<V>(arguments: &[Arg<V>], index: usize) -> &V {
    match arguments.get(index) {
        Some(Arg::Tensor(tensor)) => tensor,
        _ => unreachable!("{FORM}"),
    }
}

/// Reads the optional tensor at `index`.
pub fn read_optional<V>(arguments: &[Arg<V>], index: usize) -> &Option<V> {
    match arguments.get(index) {
        Some(Arg::Optional(tensor)) => tensor,
        _ => unreachable!("{FORM}"),
    }
}

/// Reads the list of tensors at `index`.
pub fn read_list<V>(arguments: &[Arg<V>], index: usize) -> &Vec<V> {
    match arguments.get(index) {
        Some(Arg::List(tensors)) => tensors,
        _ => unreachable!("{FORM}"),
    }
}

/// Reads the tensor or number at `index`.
pub fn read_operand<V: Clone>(arguments: &[Arg<V>], index: usize) -> Made<Operand<V>> {
    match arguments.get(index) {
        Some(Arg::Tensor(tensor)) => Made(Operand::Tensor(tensor.clone())),
        Some(Arg::Attribute(Attribute::Scalar(scalar))) => Made(Operand::Scalar(*scalar)),
        _ => unreachable!("{FORM}"),
    }
}

/// Reads the attribute at `index`.
pub fn read_attribute<T: AttributeType>(arguments: &[Arg<impl Sized>], index: usize) -> T {
    match arguments.get(index) {
        Some(Arg::Attribute(attribute)) => T::from_attribute(attribute),
        _ => None,
    }
    .unwrap_or_else(|| unreachable!("{FORM}"))
}

/// A tensor or number as an argument.
pub fn from_operand<V>(operand: Operand<V>) -> Arg<V> {
    match operand {
        Operand::Tensor(tensor) => Arg::Tensor(tensor),
        Operand::Scalar(scalar) => Arg::Attribute(Attribute::Scalar(scalar)),
    }
}

/// The arguments with another one at `index`.
pub fn with_argument<V>(mut arguments: Vec<Arg<V>>, index: usize, argument: Arg<V>) -> Vec<Arg<V>> {
    arguments[index] = argument;
    arguments
}

/// As [`with_argument`], of an attribute.
pub fn with_attribute<V, T: AttributeType>(arguments: Vec<Arg<V>>, index: usize, value: T) -> Vec<Arg<V>> {
    with_argument(arguments, index, attribute::write(value))
}

/// A default, as the record keeps it.
pub fn default_attribute<T: AttributeType>(value: T) -> Attribute {
    value.to_attribute()
}

/// A default that is a number in the place of a tensor.
pub fn default_operand(value: impl Into<Scalar>) -> Attribute {
    Attribute::Scalar(value.into())
}

/// All arguments: those that must be given, and the defaults of the others.
pub fn begin<V, const N: usize>(params: &[ParamDef], required: [Arg<V>; N]) -> Vec<Arg<V>> {
    let mut arguments = Vec::with_capacity(params.len());
    arguments.extend(required);
    arguments.extend(params[N..].iter().map(ParamDef::default_argument));
    arguments
}

/// Gradients at their places among `count` arguments, `none` for those that have none.
pub fn gradients<const N: usize>(count: usize, given: [(usize, Arg<Tensor>); N]) -> Vec<Arg<Tensor>> {
    let mut all = vec![Arg::Attribute(Attribute::None); count];
    for (index, gradient) in given {
        all[index] = gradient;
    }
    all
}
