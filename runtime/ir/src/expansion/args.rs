//! All arguments of a call as one struct, for rules that take `Args<T>`: how each rule sees tensors.

use fulgurite_kernels::scalar::Expr;
use fulgurite_kernels::view::TensorRef;
use ndarray::ArrayD;

use super::arguments::{read_attribute, read_list, read_optional, read_tensor};
use crate::argument::{Arg, AttributeType, Operand};
use crate::device::DeviceTensor;
use crate::meta::TensorMeta;
use crate::reference::ReferenceTensor;
use crate::rules::Pass;
use crate::strided::Strided;
use crate::tracer::Tensor;

/// How a rule sees tensors: `T` of the generated `Args<T>`. A field for a tensor has the type of the tensor's class.
#[diagnostic::on_unimplemented(
    message = "no rule sees tensors as `{Self}`",
    label = "not how a rule sees tensors",
    note = "rules take `Args<&TensorMeta>`, `Args<Tensor>`, `Args<&ReferenceTensor>`, `Args<TensorRef>`, \
            `Args<&DeviceTensor>` or `Args<&Strided>`"
)]
pub trait Form {
    /// Tensors of every element type.
    type Any;
    /// Tensors of floating-point numbers.
    type Floating;
    /// Tensors of integers.
    type Integer;
    /// Tensors of booleans.
    type Boolean;
    /// Tensors of numbers.
    type Number;
    /// Tensors of complex numbers.
    type Complex;
}

/// A form that is read from arguments which are borrowed for `'a`.
pub trait Seen<'a>: Form {
    /// What arguments hold for a tensor.
    type Value: Clone
        + Pass<'a, Self::Any>
        + Pass<'a, Self::Floating>
        + Pass<'a, Self::Integer>
        + Pass<'a, Self::Boolean>
        + Pass<'a, Self::Number>
        + Pass<'a, Self::Complex>;
}

/// A form in which tensors of all classes are alike.
macro_rules! alike {
    ([$($lifetime:lifetime)?] $form:ty) => {
        impl<$($lifetime)?> Form for $form {
            type Any = Self;
            type Floating = Self;
            type Integer = Self;
            type Boolean = Self;
            type Number = Self;
            type Complex = Self;
        }
    };
}
/// The same of a reference to what arguments hold.
macro_rules! by_reference {
    ($($value:ty)*) => {$(
        alike!(['a] &'a $value);
        impl<'a> Seen<'a> for &'a $value {
            type Value = $value;
        }
    )*};
}
by_reference!(TensorMeta DeviceTensor Strided);
alike!([] Tensor);
impl Seen<'_> for Tensor {
    type Value = Tensor;
}
// `scalar` takes its arguments by name, which its author is told by the macro, and by nothing else.
alike!([] Expr);
alike!(['t] TensorRef<'t>);
impl<'t> Seen<'_> for TensorRef<'t> {
    type Value = TensorRef<'t>;
}

/// A reference sees arrays where the class says what the elements are.
impl<'a> Form for &'a ReferenceTensor {
    type Any = &'a ReferenceTensor;
    type Floating = &'a ArrayD<f64>;
    type Integer = &'a ArrayD<i64>;
    type Boolean = &'a ArrayD<bool>;
    type Number = &'a ReferenceTensor;
    type Complex = &'a ReferenceTensor;
}
impl<'a> Seen<'a> for &'a ReferenceTensor {
    type Value = ReferenceTensor;
}

/// The fields of `Args` by kind of argument: the type of each, where a rule sees tensors as `S`, and how it is read.
pub mod fields {
    use super::*;

    macro_rules! field {
        ($kind:ident => $field:ty, |$arguments:ident, $index:ident| $read:expr) => {
            #[allow(missing_docs, reason = "what each is, the module says")]
            pub mod $kind {
                use super::*;
                pub type Field<S> = $field;
                pub fn seen<'a, V: Pass<'a, S>, S>($arguments: &'a [Arg<V>], $index: usize) -> Field<S> {
                    $read
                }
            }
        };
    }
    field!(tensor => S, |arguments, index| read_tensor(arguments, index).pass());
    field!(optional => Option<S>, |arguments, index| read_optional(arguments, index).as_ref().map(V::pass));
    field!(list => Vec<S>, |arguments, index| read_list(arguments, index).iter().map(V::pass).collect());
    field!(operand => Operand<S>, |arguments, index| match &arguments[index] {
        Arg::Attribute(_) => Operand::Scalar(read_attribute(arguments, index)),
        _ => Operand::Tensor(read_tensor(arguments, index).pass()),
    });
    pub use operand as factor;

    /// An attribute is the same in all rules.
    #[allow(missing_docs, reason = "what each is, the module says")]
    pub mod attribute {
        use super::*;
        pub type Field<T> = T;
        pub fn seen<V, T: AttributeType>(arguments: &[Arg<V>], index: usize) -> T {
            read_attribute(arguments, index)
        }
    }
}
