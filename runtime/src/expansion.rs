//! What the expansions of the macros are made of: they emit little and call this. Authors need none of it.
//!
//! What is emitted is compiled for every operator (`benches/authoring.py` measures it). So it derives nothing that nobody calls;
//! arguments lie in one list, of one type for all operators, and are read at their place; a rule is erased by a function of its
//! own, since a closure in the place of a function pointer is compiled twice; and lists are arrays of values that are there
//! already, after which nothing is cleaned up.
#![doc(hidden)]

use std::marker::PhantomData;

use fulgurite_kernels::DType;
use fulgurite_kernels::scalar::{Expr, ScalarProgram};
use fulgurite_kernels::view::TensorMut;

use crate::argument::{Arg, Attribute, AttributeType, Operand, Scalar, map_arguments};
use crate::error::Failure;
use crate::executor::{ExecutorDef, ImplementationDef, RewriteDef};
use crate::kernel::KernelRules;
use crate::meta::TensorMeta;
use crate::operator::{Class, Effects, OperatorDef, OperatorKind, ParamDef, ParamKind, ResultsDef};
use crate::rules::{FromResults, OperatorArguments};
use crate::testing::directives::{Directive, DirectiveKind, Template};
use crate::tracer::Tensor;

/// A record that declares nothing yet.
pub const OPERATOR: OperatorDef = OperatorDef {
    name: "",
    kind: OperatorKind::Composite,
    docs: "",
    torch: None,
    params: &[],
    results: ResultsDef::Fixed(1),
    effects: Effects::NONE,
    overload: None,
    autocast: None,
    dtypes: &[],
    cheap: false,
    rules: &[],
    package: "",
    file: "",
    line: 0,
};

/// An implementation that does nothing yet.
pub const IMPLEMENTATION: ImplementationDef = ImplementationDef {
    of: "",
    by: "",
    checker: |_| Err("has no checker".into()),
    execution: None,
    grad: None,
    kernel: KernelRules::EMPTY,
    package: "",
    file: "",
    line: 0,
};

/// An executor that takes nothing yet.
pub const EXECUTOR: ExecutorDef = ExecutorDef {
    name: "",
    docs: "",
    device: "",
    priority: None,
    strided: false,
    claims: None,
    prepare: None,
    plan: None,
    fuse: None,
    admits_region: None,
    prepare_region: None,
    plan_region: None,
    package: "",
};

/// A rewrite that changes nothing yet.
pub const REWRITE: RewriteDef = RewriteDef {
    name: "",
    docs: "",
    params: &[],
    pattern: |_| Vec::new(),
    replacement: |_| Vec::new(),
    condition: None,
    samples: None,
    default: false,
    late: false,
    executors: &[],
    commutes: &[],
    keep_inner: false,
    package: "",
    file: "",
    line: 0,
};

const fn param(name: &'static str, kind: ParamKind, type_name: fn() -> String) -> ParamDef {
    ParamDef { name, kind, type_name, accepts: |_| true, default: None }
}

/// The parameter with a default.
pub const fn defaulted(param: ParamDef, default: fn() -> Attribute) -> ParamDef {
    ParamDef { default: Some(default), ..param }
}

macro_rules! parameter {
    ($(#[$doc:meta])* $module:ident: $type:ty, $kind:ident, $name:literal, |$value:ident| $write:expr, $read:ident => $as:ty) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;
            /// Where such an argument stands: at `INDEX`.
            pub struct At<const INDEX: usize, T>(pub PhantomData<fn() -> T>);
            impl<const INDEX: usize, T> At<INDEX, T> {
                /// The argument, to be handed to a rule.
                pub fn read<V: Clone>(self, arguments: &[Arg<V>]) -> $as {
                    super::$read(arguments, INDEX)
                }
                /// The arguments with another value here: calls that must fail are those that must not, but for one argument.
                pub fn set<V>(self, arguments: impl OperatorArguments<V>, value: $type) -> Vec<Arg<V>> {
                    with_argument(arguments.into_arguments(), INDEX, write(value))
                }
            }
            /// As an argument.
            pub fn write<V>($value: $type) -> Arg<V> {
                $write
            }
            /// The parameter's record.
            pub const fn define<T>(name: &'static str, class: Class) -> ParamDef {
                super::param(name, ParamKind::$kind(class), || $name.into())
            }
        }
    };
}
parameter!(/// Tensors.
    tensor: V, Tensor, "tensor", |tensor| Arg::Tensor(tensor), read_tensor => &V);
parameter!(/// Optional tensors.
    optional: Option<V>, Optional, "tensor?", |tensor| Arg::Optional(tensor), read_optional => &Option<V>);
parameter!(/// Lists of tensors.
    list: Vec<V>, List, "tensor[]", |tensors| Arg::List(tensors), read_list => &Vec<V>);
parameter!(/// Tensors or numbers.
    operand: Operand<V>, Operand, "tensor|number", |operand| from_operand(operand), read_operand => Made<Operand<V>>);

/// Values known when a program is traced.
pub mod attribute {
    use super::*;
    /// Where such an argument stands: at `INDEX`.
    pub struct At<const INDEX: usize, T>(pub PhantomData<fn() -> T>);
    impl<const INDEX: usize, T: AttributeType> At<INDEX, T> {
        /// The argument, to be handed to a rule.
        pub fn read<V>(self, arguments: &[Arg<V>]) -> Made<T> {
            Made(super::read_attribute(arguments, INDEX))
        }
        /// The arguments with another value here: calls that must fail are those that must not, but for one argument.
        pub fn set<V>(self, arguments: impl OperatorArguments<V>, value: T) -> Vec<Arg<V>> {
            with_argument(arguments.into_arguments(), INDEX, write(value))
        }
    }
    /// As an argument.
    pub fn write<V, T: AttributeType>(value: T) -> Arg<V> {
        Arg::Attribute(value.to_attribute())
    }
    /// The parameter's record.
    pub const fn define<T: AttributeType>(name: &'static str, _class: Class) -> ParamDef {
        let accepts: fn(&Attribute) -> bool = |given| T::from_attribute(given).is_some();
        ParamDef { accepts, ..super::param(name, ParamKind::Attribute, T::type_name) }
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
pub fn read_attribute<V, T: AttributeType>(arguments: &[Arg<V>], index: usize) -> T {
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

/// Calls an operator.
#[track_caller]
pub fn call<Results: FromResults>(def: &'static OperatorDef, arguments: Vec<Arg<Tensor>>) -> Results {
    Results::from_results(crate::tracer::call(def, arguments))
}

/// Records a scalar rule: `rule` sees the arguments with a handle in place of each tensor.
pub fn record_scalar(
    arguments: &[Arg<TensorMeta>],
    rule: impl FnOnce(&[Arg<Expr>]) -> Vec<Expr>,
) -> (ScalarProgram, Vec<f64>) {
    let inputs = arguments.iter().map(|argument| argument.tensors().len()).sum();
    ScalarProgram::record_with_numbers(inputs, |handles| {
        let mut handles = handles.iter();
        rule(&map_arguments(arguments, |_| *handles.next().unwrap_or_else(|| unreachable!("one for each tensor"))))
    })
}

/// The outputs of a host kernel, one by one.
pub fn outputs<'a, 'b, const N: usize>(
    outputs: &'a mut [TensorMut<'b>],
) -> Result<[&'a mut TensorMut<'b>; N], Failure> {
    let given = outputs.len();
    match <&mut [TensorMut<'b>; N]>::try_from(outputs) {
        Ok(outputs) => Ok(outputs.each_mut()),
        Err(_) => Err(Failure::new("ResultCount", format!("the kernel writes {N} results, the symbol has {given}"))),
    }
}

/// Fails the build if `rule` does not take every one of `params`.
pub const fn takes_all(rule: &str, params: &[ParamDef], taken: &[&str]) {
    let mut i = 0;
    while i < params.len() {
        let (mut found, mut j) = (false, 0);
        while j < taken.len() {
            found |= equal(params[i].name, taken[j]);
            j += 1;
        }
        if !found {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("`").with(rule).with("` leaves out `").with(params[i].name);
            text = text.with("`: it takes every argument, so that none falls back to a default unseen; write `_");
            text = text.with(params[i].name).with(": ...` if it does not use it");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Fails the build if no kernel of the kind that `rule` describes is ever run by `executor`, which runs on `device`.
pub const fn runs_on(rule: &str, executor: &str, device: &str) {
    let needed = if equal(device, "cpu") { "cpu" } else { "plan" };
    if !equal(rule, needed) {
        let mut text = Text { bytes: [0; 512], len: 0 };
        text = text.with("`").with(rule).with("` is never run: executor `").with(executor).with("` runs on ");
        text = text.with(device).with(", where the kernel is the rule `").with(needed);
        text = text.with("`; kernels for host and GPU are two executors, each with its own implementation");
        panic!("{}", text.as_str());
    }
}

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = a.len() == b.len();
    let mut i = 0;
    while same && i < a.len() {
        same = a[i] == b[i];
        i += 1;
    }
    same
}

/// A message made while constants are evaluated.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    const fn with(mut self, more: &str) -> Text {
        let more = more.as_bytes();
        let mut i = 0;
        while i < more.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = more[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "a rule leaves out an argument",
        }
    }
}

/// A directive on generated tests.
pub const fn directive(
    kind: DirectiveKind,
    template: Template,
    executor: Option<&'static str>,
    dtype: Option<DType>,
    sample: Option<usize>,
    reason: &'static str,
) -> Directive {
    Directive { kind, template, executor, dtype, sample, reason }
}

/// A list of tensors as arguments.
pub fn tensors<V: Clone>(tensors: &[V]) -> Vec<Arg<V>> {
    tensors.iter().cloned().map(Arg::Tensor).collect()
}

/// The arguments of a declaration by name: `ArgsWithoutCall` (whose name is the hint where a tensor is expected), `with` and the setters, and where rules find each.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    (
        required { $($rindex:literal $rkind:ident($rclass:ident) $rname:ident: $rtype:ty, $rgiven:ty => $rvalue:expr;)* }
        defaulted { $($dindex:literal $dkind:ident($dclass:ident) $dname:ident: $dtype:ty = $default:expr, $text:expr, $dgiven:ty => $dvalue:expr;)* }
    ) => {
        /// The arguments of a call, made by `with`; `V` is what stands for a tensor at the stage at hand.
        #[must_use = "arguments alone do nothing: end with `.call()`"]
        pub struct ArgsWithoutCall<V>(::std::vec::Vec<$crate::argument::Arg<V>>);

        /// The parameters in order.
        pub const PARAMS: &[$crate::operator::ParamDef] = &[
            $($crate::expansion::$rkind::define::<$rtype>(stringify!($rname), $crate::operator::Class::$rclass),)*
            $($crate::expansion::defaulted(
                $crate::expansion::$dkind::define::<$dtype>(stringify!($dname), $crate::operator::Class::$dclass),
                || $default,
            ),)*
        ];

        /// Where each argument stands.
        #[doc(hidden)]
        pub struct Arguments {
            $(pub $rname: $crate::expansion::$rkind::At<$rindex, $rtype>,)*
            $(pub $dname: $crate::expansion::$dkind::At<$dindex, $dtype>,)*
        }
        #[doc(hidden)]
        pub const ARGUMENTS: Arguments = Arguments {
            $($rname: $crate::expansion::$rkind::At(::core::marker::PhantomData),)*
            $($dname: $crate::expansion::$dkind::At(::core::marker::PhantomData),)*
        };

        impl<V> ArgsWithoutCall<V> {
            $(
                #[doc = concat!("Gives `", stringify!($dname), "`, which is `", $text, "` otherwise.")]
                pub fn $dname(self, $dname: $dgiven) -> Self {
                    ArgsWithoutCall($crate::__set!($dkind self.0, $dindex, $dvalue))
                }
            )*
        }

        impl<V> $crate::rules::OperatorArguments<V> for ArgsWithoutCall<V> {
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<V>> {
                self.0
            }
        }

        /// The arguments that must be given; the others follow by name.
        #[allow(clippy::too_many_arguments)]
        pub fn with<V: Clone>($($rname: $rgiven),*) -> ArgsWithoutCall<V> {
            ArgsWithoutCall($crate::expansion::begin(PARAMS, [$($crate::__write!($rkind $rvalue)),*]))
        }
    };
}

/// A value as an argument. A call could unwind, after which every argument before it would have to be dropped.
#[doc(hidden)]
#[macro_export]
macro_rules! __write {
    (tensor $value:expr) => {
        $crate::argument::Arg::Tensor($value)
    };
    (optional $value:expr) => {
        $crate::argument::Arg::Optional($value)
    };
    (list $value:expr) => {
        $crate::argument::Arg::List($value)
    };
    ($kind:ident $value:expr) => {
        $crate::expansion::$kind::write($value)
    };
}

/// Arguments with another one.
#[doc(hidden)]
#[macro_export]
macro_rules! __set {
    (attribute $arguments:expr, $index:literal, $value:expr) => {
        $crate::expansion::with_attribute($arguments, $index, $value)
    };
    ($kind:ident $arguments:expr, $index:literal, $value:expr) => {
        $crate::expansion::with_argument($arguments, $index, $crate::__write!($kind $value))
    };
}

/// The gradients of a declaration's arguments by name.
#[doc(hidden)]
#[macro_export]
macro_rules! __gradients {
    ($count:literal: $($index:literal $kind:ident $name:ident: $type:ty;)*) => {
        /// The gradient of every argument that has one.
        pub struct Grads {
            $(#[doc = concat!("Of `", stringify!($name), "`.")] pub $name: $type,)*
        }

        impl $crate::rules::Gradients for Grads {
            // Compiled where it is used: not every operator has a gradient of its own.
            #[inline]
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<$crate::Tensor>> {
                $crate::expansion::gradients($count, [$(($index, $crate::__write!($kind self.$name))),*])
            }
        }
    };
}

/// The named preconditions of a declaration.
#[doc(hidden)]
#[macro_export]
macro_rules! __codes {
    ($($code:ident),*) => {
        /// The named preconditions of the rules.
        #[allow(non_snake_case, non_upper_case_globals)]
        pub mod Code {
            $(
                #[doc = concat!("`", stringify!($code), "`")]
                pub const $code: $crate::rules::Precondition = $crate::rules::Precondition::new(stringify!($code));
            )*
        }
    };
}

/// A rule as a function of the runtime's form. `$a` are the arguments in the rule's call.
#[doc(hidden)]
#[macro_export]
macro_rules! __rule {
    (meta $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::TensorMeta>, $crate::Failure> {
            ::core::result::Result::Ok($crate::rules::IntoResults::into_results($call?))
        }
        rule
    }};
    (requires $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> ::core::result::Result<(), $crate::Failure> {
            $call
        }
        rule
    }};
    (traced $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::Tensor>]) -> ::std::vec::Vec<$crate::Tensor> {
            $crate::rules::IntoResults::into_results($call)
        }
        rule
    }};
    (grad $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::Tensor>],
        ) -> (::std::vec::Vec<$crate::Tensor>, $crate::transforms::autodiff::rules::Pullback) {
            $crate::rules::erase_grad($call)
        }
        rule
    }};
    (scalar $a:ident => $call:expr) => {{
        fn rule(
            arguments: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ($crate::rules::ScalarProgram, ::std::vec::Vec<f64>) {
            fn rule($a: &[$crate::argument::Arg<$crate::rules::Expr>]) -> ::std::vec::Vec<$crate::rules::Expr> {
                $crate::rules::IntoResults::into_results($call)
            }
            $crate::expansion::record_scalar(arguments, rule)
        }
        rule
    }};
    (reference $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::ReferenceTensor>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::rules::ReferenceTensor>, $crate::Failure> {
            $crate::rules::ReferenceOutcome::outcome($call)
        }
        rule
    }};
    (view $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::strided::Strided>],
        ) -> ::core::option::Option<$crate::strided::View> {
            $call
        }
        rule
    }};
    (checker $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> $crate::executor::Claim {
            $call
        }
        rule
    }};
    (condition $a:ident => $call:expr) => {{
        fn rule(tensors: &[$crate::TensorMeta]) -> $crate::executor::Claim {
            let $a = &$crate::expansion::tensors(tensors)[..];
            $call
        }
        rule
    }};
    (cpu $a:ident $outputs:ident => $work:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::TensorRef<'_>>],
            $outputs: &mut [$crate::rules::TensorMut<'_>],
        ) -> ::core::result::Result<(), $crate::Failure> {
            $work
        }
        rule
    }};
    (plan $plan:ident $a:ident $outputs:ident => $work:expr) => {{
        fn rule(
            $plan: &mut $crate::device::Plan,
            $a: &[$crate::argument::Arg<$crate::device::DeviceTensor>],
            $outputs: &[$crate::device::DeviceTensor],
        ) -> ::core::result::Result<(), $crate::Failure> {
            $work
        }
        rule
    }};
}
