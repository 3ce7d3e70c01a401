//! What the expansion of `#[operator]` calls, and the names that rules are written with.

pub use fulgurite_kernels::DType;
pub use fulgurite_kernels::scalar::{Expr, ScalarNode, ScalarOp, ScalarProgram};
pub use fulgurite_kernels::view::{TensorMut, TensorRef};
pub use ndarray::{ArrayD, IxDyn};

pub use crate::argument::{Arg, Attribute, AttributeType, Operand, Scalar};
pub use crate::device::{Address, Command, DeviceTensor, Parameter, Plan, Report, SourceText};
pub use crate::elementwise::{as_rounded, filled, scalar_meta};
pub use crate::error::Failure;
pub use crate::executor::Claim;
pub use crate::meta::{Device, TensorMeta, normalize_dim};
pub use crate::reference::ReferenceTensor;
pub use crate::strided::Channels;
pub use crate::strided::Strided;
pub use crate::strided::View;
pub use crate::testing::directives::Directive;
pub use crate::testing::samples::{Domain, ErrorSamples, SampleTensor, Samples};
pub use crate::tracer::{Tensor, recomputed, wants_gradient};
pub use crate::{binds, refuse_unless, require, source_files};
pub use fulgurite_kernels;
pub use fulgurite_kernels::launch::LaunchShape;

/// All arguments of a call, for a rule that only passes them on: `fn execution(arguments: Arguments) -> Tensor {
/// forward::call(arguments) }`. The operator that gets them has parameters of the same kinds in the same order.
#[derive(Debug, Clone)]
pub struct Arguments(Vec<Arg<Tensor>>);

impl Arguments {
    /// What a rule was given.
    pub fn of(arguments: &[Arg<Tensor>]) -> Arguments {
        Arguments(arguments.to_vec())
    }

    /// The list of the arguments.
    pub fn into_inner(self) -> Vec<Arg<Tensor>> {
        self.0
    }
}

/// The result of a rule.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// States a named precondition of a rule: `require!(condition, Code, "message with {values}")`.
/// The code is one of the operator's own `Code`, and an error sample must trip it.
#[macro_export]
macro_rules! require {
    ($condition:expr, $code:ident, $($message:tt)+) => {
        if !$condition {
            return ::core::result::Result::Err(Code::$code.unmet(::core::format_args!($($message)+)));
        }
    };
}

/// States what an executor needs in order to take a symbol: `refuse_unless!(condition, "reason with {values}")`.
#[macro_export]
macro_rules! refuse_unless {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return ::core::result::Result::Err(::std::format!($($reason)+));
        }
    };
}

/// How an argument is handed to a rule: by value, by reference, as a slice, as the rule's parameter asks.
#[diagnostic::on_unimplemented(
    message = "an argument of type `{Self}` cannot be handed to a rule as `{Target}`",
    label = "the rule asks for `{Target}`",
    note = "rules take `T`, `&T`, `&[T]` for lists, `&str` for strings, `Option<&T>` for optional tensors, `Expr` in \
            `scalar`, `&ArrayD<f64>` in `reference`"
)]
pub trait Pass<'a, Target> {
    /// The argument in the type that the rule takes.
    fn pass(&'a self) -> Target;
}

/// Hands an argument to a rule; see [`Pass`].
pub fn pass<'a, S: Pass<'a, Target> + ?Sized, Target>(argument: &'a S) -> Target {
    argument.pass()
}

impl<'a, T: Clone> Pass<'a, T> for T {
    fn pass(&'a self) -> T {
        self.clone()
    }
}
impl<'a, T> Pass<'a, &'a T> for T {
    fn pass(&'a self) -> &'a T {
        self
    }
}
impl<'a, T> Pass<'a, &'a [T]> for Vec<T> {
    fn pass(&'a self) -> &'a [T] {
        self
    }
}
impl<'a> Pass<'a, &'a str> for String {
    fn pass(&'a self) -> &'a str {
        self
    }
}
impl<'a, T> Pass<'a, Option<&'a T>> for Option<T> {
    fn pass(&'a self) -> Option<&'a T> {
        self.as_ref()
    }
}
impl<'a> Pass<'a, Option<&'a str>> for Option<String> {
    fn pass(&'a self) -> Option<&'a str> {
        self.as_deref()
    }
}
impl<'a, T> Pass<'a, Option<&'a [T]>> for Option<Vec<T>> {
    fn pass(&'a self) -> Option<&'a [T]> {
        self.as_deref()
    }
}
impl<'a> Pass<'a, Operand<&'a TensorMeta>> for Operand<TensorMeta> {
    fn pass(&'a self) -> Operand<&'a TensorMeta> {
        match self {
            Operand::Tensor(meta) => Operand::Tensor(meta),
            Operand::Scalar(scalar) => Operand::Scalar(*scalar),
        }
    }
}
/// A floating-point attribute becomes a run-time number of the scalar program.
impl<'a> Pass<'a, Expr> for f64 {
    fn pass(&'a self) -> Expr {
        Expr::number(*self)
    }
}
/// An integer attribute likewise.
impl<'a> Pass<'a, Expr> for i64 {
    fn pass(&'a self) -> Expr {
        Expr::number(*self as f64)
    }
}
/// A number attribute likewise.
impl<'a> Pass<'a, Expr> for Scalar {
    fn pass(&'a self) -> Expr {
        Expr::number(self.to_f64())
    }
}
/// A tensor's value, or the number in its place.
impl<'a> Pass<'a, Expr> for Operand<Expr> {
    fn pass(&'a self) -> Expr {
        match self {
            Operand::Tensor(value) => *value,
            Operand::Scalar(number) => number.pass(),
        }
    }
}
impl<'a> Pass<'a, &'a ArrayD<f64>> for ReferenceTensor {
    fn pass(&'a self) -> &'a ArrayD<f64> {
        self.floats()
    }
}
impl<'a> Pass<'a, &'a ArrayD<i64>> for ReferenceTensor {
    fn pass(&'a self) -> &'a ArrayD<i64> {
        self.integers()
    }
}
impl<'a> Pass<'a, &'a ArrayD<bool>> for ReferenceTensor {
    fn pass(&'a self) -> &'a ArrayD<bool> {
        self.booleans()
    }
}
impl<'a> Pass<'a, Option<&'a ArrayD<f64>>> for Option<ReferenceTensor> {
    fn pass(&'a self) -> Option<&'a ArrayD<f64>> {
        self.as_ref().map(ReferenceTensor::floats)
    }
}
impl<'a> Pass<'a, Option<&'a ArrayD<i64>>> for Option<ReferenceTensor> {
    fn pass(&'a self) -> Option<&'a ArrayD<i64>> {
        self.as_ref().map(ReferenceTensor::integers)
    }
}
impl<'a> Pass<'a, Option<&'a ArrayD<bool>>> for Option<ReferenceTensor> {
    fn pass(&'a self) -> Option<&'a ArrayD<bool>> {
        self.as_ref().map(ReferenceTensor::booleans)
    }
}
impl<'a> Pass<'a, Vec<&'a ArrayD<f64>>> for Vec<ReferenceTensor> {
    fn pass(&'a self) -> Vec<&'a ArrayD<f64>> {
        self.iter().map(ReferenceTensor::floats).collect()
    }
}
/// A number becomes a zero-dimensional array.
impl<'a> Pass<'a, ArrayD<f64>> for Operand<ReferenceTensor> {
    fn pass(&'a self) -> ArrayD<f64> {
        match self {
            Operand::Tensor(tensor) => tensor.floats().clone(),
            Operand::Scalar(scalar) => ArrayD::from_elem(IxDyn(&[]), scalar.to_f64()),
        }
    }
}

/// What a traced or meta rule returns, as a list.
pub trait IntoResults<V> {
    /// The values in order.
    fn into_results(self) -> Vec<V>;
}

macro_rules! into_results {
    ($value:ty) => {
        impl IntoResults<$value> for $value {
            fn into_results(self) -> Vec<$value> {
                vec![self]
            }
        }
    };
}
into_results!(Tensor);
into_results!(TensorMeta);
into_results!(Expr);
impl<V> IntoResults<V> for Vec<V> {
    fn into_results(self) -> Vec<V> {
        self
    }
}
/// A traced rule may end with `?`: the failure becomes the error of the call.
impl<T: IntoResults<Tensor>> IntoResults<Tensor> for Result<T> {
    fn into_results(self) -> Vec<Tensor> {
        match self {
            Ok(results) => results.into_results(),
            Err(failure) => crate::tracer::end_rule(failure),
        }
    }
}
macro_rules! tuple_results {
    ($($name:ident)+) => {
        impl<V> IntoResults<V> for ($(tuple_results!(@ $name V),)+) {
            #[allow(non_snake_case)]
            fn into_results(self) -> Vec<V> {
                let ($($name,)+) = self;
                vec![$($name),+]
            }
        }
    };
    (@ $name:ident $v:ident) => { $v };
}
tuple_results!(a b);
tuple_results!(a b c);
tuple_results!(a b c d);
tuple_results!(a b c d e);
tuple_results!(a b c d e f);

/// A list of results in the form that a signature returns: one tensor, a tuple, a `Vec`.
pub trait FromResults {
    /// From values in order; the number was checked.
    fn from_results(results: Vec<Tensor>) -> Self;
}
impl FromResults for Tensor {
    fn from_results(results: Vec<Tensor>) -> Tensor {
        results[0]
    }
}
impl FromResults for Vec<Tensor> {
    fn from_results(results: Vec<Tensor>) -> Vec<Tensor> {
        results
    }
}
macro_rules! tuple_from_results {
    ($($index:literal)+) => {
        impl FromResults for ($(tuple_from_results!(@ $index),)+) {
            fn from_results(results: Vec<Tensor>) -> Self {
                ($(results[$index],)+)
            }
        }
    };
    (@ $index:literal) => { Tensor };
}
tuple_from_results!(0 1);
tuple_from_results!(0 1 2);
tuple_from_results!(0 1 2 3);
tuple_from_results!(0 1 2 3 4);
tuple_from_results!(0 1 2 3 4 5);

/// The cotangents of a call in the form that a pullback takes: `Tensor` (a symbolic zero is made concrete),
/// `Option<Tensor>` (`None` is the symbolic zero), tuples and `Vec`s of these.
pub trait FromCotangents {
    /// `results` are the call's own results, whose metas give the zeros their shape.
    fn from_cotangents(cotangents: &[Option<Tensor>], results: &[Tensor]) -> Self;
}
impl FromCotangents for Tensor {
    fn from_cotangents(cotangents: &[Option<Tensor>], results: &[Tensor]) -> Tensor {
        cotangents[0].unwrap_or_else(|| crate::tracer::zeros_like(results[0]))
    }
}
impl FromCotangents for Option<Tensor> {
    fn from_cotangents(cotangents: &[Option<Tensor>], _results: &[Tensor]) -> Self {
        cotangents[0]
    }
}
impl FromCotangents for Vec<Tensor> {
    fn from_cotangents(cotangents: &[Option<Tensor>], results: &[Tensor]) -> Self {
        cotangents.iter().zip(results).map(|(c, r)| c.unwrap_or_else(|| crate::tracer::zeros_like(*r))).collect()
    }
}
impl FromCotangents for Vec<Option<Tensor>> {
    fn from_cotangents(cotangents: &[Option<Tensor>], _results: &[Tensor]) -> Self {
        cotangents.to_vec()
    }
}
macro_rules! tuple_cotangents {
    ($($name:ident $index:literal),+) => {
        impl<$($name: FromCotangents),+> FromCotangents for ($($name,)+) {
            fn from_cotangents(c: &[Option<Tensor>], r: &[Tensor]) -> Self {
                ($($name::from_cotangents(&c[$index..$index + 1], &r[$index..$index + 1]),)+)
            }
        }
    };
}
tuple_cotangents!(A 0, B 1);
tuple_cotangents!(A 0, B 1, C 2);
tuple_cotangents!(A 0, B 1, C 2, D 3);
tuple_cotangents!(A 0, B 1, C 2, D 3, E 4);
tuple_cotangents!(A 0, B 1, C 2, D 3, E 4, F 5);

/// The generated `Args` of an operator or rewrite: its arguments, `V` standing for a tensor.
pub trait OperatorArguments<V> {
    /// In the order of the signature.
    fn into_arguments(self) -> Vec<Arg<V>>;
}

impl<V> OperatorArguments<V> for Vec<Arg<V>> {
    fn into_arguments(self) -> Vec<Arg<V>> {
        self
    }
}

/// A named precondition of an operator's rules: `Code::SameShape`. `require!` states it, and an error sample must trip
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precondition(&'static str);

impl Precondition {
    /// The precondition of that name.
    pub const fn new(name: &'static str) -> Precondition {
        Precondition(name)
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.0
    }

    /// What is returned where it does not hold.
    pub fn unmet(self, message: std::fmt::Arguments<'_>) -> Failure {
        Failure::new(self.0, message.to_string())
    }
}

/// The generated `Grads` of an operator.
pub trait Gradients {
    /// In the order of the signature; `none` for what has no gradient.
    fn into_arguments(self) -> Vec<Arg<Tensor>>;
}

/// Erases a `grad` rule: results and closure to values and a boxed pullback.
pub fn erase_grad<Results, Cotangents, Back, Grads>(
    (results, back): (Results, Back),
) -> (Vec<Tensor>, crate::gradient::Pullback)
where
    Results: IntoResults<Tensor>,
    Cotangents: FromCotangents,
    Back: FnOnce(Cotangents) -> Grads + 'static,
    Grads: Gradients,
{
    let results = results.into_results();
    (results, Box::new(|cotangents, results| back(Cotangents::from_cotangents(cotangents, results)).into_arguments()))
}

/// `f` of every element, for references: what `input.mapv(f)` gives. `mapv` is compiled again for every closure it is
/// given, which was more than half of what an operator took to compile; this is compiled once for all of them.
pub fn elementwise(input: &ArrayD<f64>, f: impl Fn(f64) -> f64) -> ArrayD<f64> {
    elementwise_dyn(input, &f)
}

fn elementwise_dyn(input: &ArrayD<f64>, f: &dyn Fn(f64) -> f64) -> ArrayD<f64> {
    input.mapv(f)
}

/// What a reference returns, as a list.
pub trait IntoReference {
    /// The values in order.
    fn into_reference(self) -> Vec<ReferenceTensor>;
}
macro_rules! into_reference {
    ($($element:ty),*) => {$(
        impl IntoReference for ArrayD<$element> {
            fn into_reference(self) -> Vec<ReferenceTensor> { vec![self.into()] }
        }
    )*};
}
into_reference!(f64, i64, bool);
impl IntoReference for ReferenceTensor {
    fn into_reference(self) -> Vec<ReferenceTensor> {
        vec![self]
    }
}
impl<T: Into<ReferenceTensor>> IntoReference for Vec<T> {
    fn into_reference(self) -> Vec<ReferenceTensor> {
        self.into_iter().map(Into::into).collect()
    }
}
macro_rules! tuple_reference {
    ($($name:ident)+) => {
        impl<$($name: Into<ReferenceTensor>),+> IntoReference for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_reference(self) -> Vec<ReferenceTensor> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}
tuple_reference!(A B);
tuple_reference!(A B C);
tuple_reference!(A B C D);
tuple_reference!(A B C D E);
tuple_reference!(A B C D E F);

/// A reference may fail on data (an index out of range): `ArrayD`s or a `Result` of them.
pub trait ReferenceOutcome {
    /// The values, or what is wrong with the data.
    fn outcome(self) -> Result<Vec<ReferenceTensor>>;
}
impl<T: IntoReference> ReferenceOutcome for T {
    fn outcome(self) -> Result<Vec<ReferenceTensor>> {
        Ok(self.into_reference())
    }
}
impl<T: IntoReference> ReferenceOutcome for Result<T> {
    fn outcome(self) -> Result<Vec<ReferenceTensor>> {
        self.map(IntoReference::into_reference)
    }
}
