//! What the expansions of the macros are made of: they emit little and call this. Authors need none of it.
//!
//! What is emitted is compiled for every operator, so that it derives nothing that nobody calls, and pushes to lists through
//! functions of this module where `vec![...]` would clean up after each of its elements (`benches/authoring.py` measures it).
#![doc(hidden)]

use fulgurite_kernels::DType;
use fulgurite_kernels::scalar::{Expr, ScalarProgram};
use fulgurite_kernels::view::TensorMut;

use crate::argument::{Arg, Attribute, AttributeType, Operand, map_arguments};
use crate::error::Failure;
use crate::executor::{ExecutorDef, ImplementationDef, RewriteDef};
use crate::meta::TensorMeta;
use crate::operator::{Class, Effects, OperatorDef, OperatorKind, ParamDef, ParamKind, ResultsDef};
use crate::rules::FromResults;
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
    check: None,
    meta: None,
    decomposition: None,
    grad: None,
    no_grad: None,
    scalar: None,
    reference: None,
    cpu: None,
    plan: None,
    view: None,
    cheap: false,
    strided: false,
    in_place: false,
    in_place_over: &[],
    samples: None,
    errors: None,
    codes: &[],
    directives: &[],
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
    cpu: None,
    plan: None,
    strided: false,
    in_place: false,
    in_place_over: &[],
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
    prepare_region: None,
    plan_region: None,
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
    file: "",
    line: 0,
};

const fn param(name: &'static str, kind: ParamKind, type_name: fn() -> String) -> ParamDef {
    ParamDef { name, kind, type_name, default: None }
}

/// The parameter with a default.
pub const fn defaulted(param: ParamDef, default: fn() -> Attribute) -> ParamDef {
    ParamDef { name: param.name, kind: param.kind, type_name: param.type_name, default: Some(default) }
}

macro_rules! parameter {
    ($(#[$doc:meta])* $module:ident: $type:ty, $kind:ident, $name:literal, $write:ident, |$value:ident| $default:expr) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;
            /// From the next argument.
            pub fn read<V: Clone>(argument: Option<&Arg<V>>) -> $type {
                crate::rules::$module(super::given(argument))
            }
            /// As the next argument.
            pub fn write<V>(value: $type, arguments: &mut Vec<Arg<V>>) {
                arguments.push(crate::rules::$write(value));
            }
            /// The parameter's record.
            pub const fn define<T>(name: &'static str, class: Class) -> ParamDef {
                super::param(name, ParamKind::$kind(class), || $name.into())
            }
            /// A default, as the record keeps it.
            pub fn default<V>($value: $type) -> Attribute {
                $default
            }
            /// The form of tensors is checked by the record.
            pub fn check<V, T>(_argument: Option<&Arg<V>>, _name: &str) -> Result<(), Failure> {
                Ok(())
            }
        }
    };
}
parameter!(/// Tensors.
    tensor: V, Tensor, "tensor", from_tensor, |_value| Attribute::None);
parameter!(/// Optional tensors.
    optional: Option<V>, Optional, "tensor?", from_optional, |_value| Attribute::None);
parameter!(/// Lists of tensors.
    list: Vec<V>, List, "tensor[]", from_list, |_value| Attribute::None);
parameter!(/// Tensors or numbers.
operand: Operand<V>, Operand, "tensor|number", from_operand, |value| match value {
    Operand::Scalar(number) => Attribute::Scalar(number),
    Operand::Tensor(_) => Attribute::None,
});

/// Values known when a program is traced.
pub mod attribute {
    use super::*;
    /// From the next argument.
    pub fn read<V: Clone, T: AttributeType>(argument: Option<&Arg<V>>) -> T {
        crate::rules::attribute(super::given(argument))
    }
    /// As the next argument.
    pub fn write<V, T: AttributeType>(value: T, arguments: &mut Vec<Arg<V>>) {
        arguments.push(crate::rules::from_attribute(value));
    }
    /// The parameter's record.
    pub const fn define<T: AttributeType>(name: &'static str, _class: Class) -> ParamDef {
        super::param(name, ParamKind::Attribute, T::type_name)
    }
    /// A default, as the record keeps it.
    pub fn default<T: AttributeType>(value: T) -> Attribute {
        value.to_attribute()
    }
    /// Whether the argument is a `T`.
    pub fn check<V, T: AttributeType>(argument: Option<&Arg<V>>, name: &str) -> Result<(), Failure> {
        crate::rules::is_attribute::<V, T>(super::given(argument), name)
    }
}

fn given<V>(argument: Option<&Arg<V>>) -> &Arg<V> {
    argument.unwrap_or_else(|| unreachable!("the number of arguments is checked before a rule sees them"))
}

/// `none` for the arguments before the one at `index` that have no gradient.
pub fn fill(gradients: &mut Vec<Arg<Tensor>>, index: usize) {
    gradients.resize(index, Arg::Attribute(Attribute::None));
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

/// Fails the build if `rule` does not take every one of `names`.
pub const fn takes_all(rule: &str, names: &[&str], taken: &[&str]) {
    let mut i = 0;
    while i < names.len() {
        let (mut found, mut j) = (false, 0);
        while j < taken.len() {
            found |= equal(names[i], taken[j]);
            j += 1;
        }
        if !found {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("`").with(rule).with("` leaves out `").with(names[i]);
            text = text.with("`: it takes every argument, so that none falls back to a default unseen; write `_");
            text = text.with(names[i]).with(": ...` if it does not use it");
            panic!("{}", text.as_str());
        }
        i += 1;
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

/// The arguments of a declaration by name: `Args`, the reading and writing of it, `with` and the setters.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    (
        required { $($rkind:ident($rclass:ident) $rname:ident: $rtype:ty, $rgiven:ty => $rvalue:expr;)* }
        defaulted { $($dkind:ident($dclass:ident) $dname:ident: $dtype:ty = $default:expr, $dgiven:ty => $dvalue:expr;)* }
    ) => {
        /// The arguments by name; `V` is what stands for a tensor at the stage at hand.
        #[must_use = "arguments alone do nothing: end with `.call()`"]
        pub struct Args<V> {
            $(#[doc = concat!("`", stringify!($rname), "`")] pub $rname: $rtype,)*
            $(#[doc = concat!("`", stringify!($dname), "`")] pub $dname: $dtype,)*
            #[doc(hidden)]
            pub _stage: ::core::marker::PhantomData<V>,
        }

        #[doc(hidden)]
        impl<V> Args<V> {
            pub const NAMES: &'static [&'static str] = &[$(stringify!($rname),)* $(stringify!($dname),)*];
            pub const PARAMS: &'static [$crate::operator::ParamDef] = &[
                $($crate::expansion::$rkind::define::<$rtype>(
                    stringify!($rname),
                    $crate::operator::Class::$rclass,
                ),)*
                $($crate::expansion::defaulted(
                    $crate::expansion::$dkind::define::<$dtype>(
                        stringify!($dname),
                        $crate::operator::Class::$dclass,
                    ),
                    || $crate::expansion::$dkind::default({
                        let default: $dtype = $default;
                        default
                    }),
                ),)*
            ];
            pub fn check(arguments: &[$crate::argument::Arg<V>]) -> ::core::result::Result<(), $crate::Failure> {
                let mut arguments = arguments.iter();
                $($crate::expansion::$rkind::check::<V, $rtype>(arguments.next(), stringify!($rname))?;)*
                $($crate::expansion::$dkind::check::<V, $dtype>(arguments.next(), stringify!($dname))?;)*
                ::core::result::Result::Ok(())
            }
        }

        impl<V: Clone> Args<V> {
            /// From the arguments of a call, whose form was checked.
            pub fn read(arguments: &[$crate::argument::Arg<V>]) -> Self {
                let mut arguments = arguments.iter();
                Args {
                    $($rname: $crate::expansion::$rkind::read(arguments.next()),)*
                    $($dname: $crate::expansion::$dkind::read(arguments.next()),)*
                    _stage: ::core::marker::PhantomData,
                }
            }
        }

        impl<V> $crate::rules::OperatorArguments<V> for Args<V> {
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<V>> {
                let mut arguments = ::std::vec::Vec::new();
                $($crate::expansion::$rkind::write(self.$rname, &mut arguments);)*
                $($crate::expansion::$dkind::write(self.$dname, &mut arguments);)*
                arguments
            }
        }

        impl<V: Clone> Args<V> {
            $(
                #[doc = concat!("Gives `", stringify!($dname), "`, which is `", stringify!($default), "` otherwise.")]
                pub fn $dname(mut self, $dname: $dgiven) -> Self {
                    self.$dname = $dvalue;
                    self
                }
            )*
        }

        /// The arguments that must be given; the others follow by name.
        #[allow(clippy::too_many_arguments)]
        pub fn with<V: Clone>($($rname: $rgiven),*) -> Args<V> {
            Args { $($rname: $rvalue,)* $($dname: $default,)* _stage: ::core::marker::PhantomData }
        }
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

        impl Grads {
            /// In the order of the signature; `none` for what has no gradient.
            pub fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<$crate::Tensor>> {
                let mut all = ::std::vec::Vec::new();
                $(
                    $crate::expansion::fill(&mut all, $index);
                    $crate::expansion::$kind::write(self.$name, &mut all);
                )*
                $crate::expansion::fill(&mut all, $count);
                all
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
        #[derive(Clone, Copy)]
        pub enum Code {
            $(#[doc = concat!("`", stringify!($code), "`")] $code,)*
        }

        impl Code {
            /// The name.
            pub const fn name(&self) -> &'static str {
                match *self {
                    $(Code::$code => stringify!($code),)*
                }
            }
        }

        impl $crate::testing::samples::ErrorCode for Code {
            fn code(&self) -> &'static str {
                self.name()
            }
        }
    };
}
