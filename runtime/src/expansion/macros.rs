//! The macros that expansions call: one declaration's arguments, gradients, preconditions and rules.

/// The arguments of a declaration by name: `ArgsWithoutCall` (whose name is the hint where a tensor is expected),
/// `with` and the setters, and where rules find each.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    (
        required {
            $($rindex:literal $rkind:ident($rclass:ident) $rname:ident: $rtype:ty, $rgiven:ty => $rvalue:expr;)*
        }
        defaulted {
            $(
                $dindex:literal $dkind:ident($dclass:ident) $dname:ident: $dtype:ty = $default:expr, $text:expr,
                $dgiven:ty => $dvalue:expr;
            )*
        }
    ) => {
        /// The arguments of a call, made by `with`; `V` is the type of a tensor at the current stage.
        #[must_use = "arguments alone do nothing: end with `.call()`"]
        pub struct ArgsWithoutCall<V>(::std::vec::Vec<$crate::argument::Arg<V>>);

        /// The parameters in order.
        pub const PARAMS: &[$crate::operator::ParamDef] = &[
            $($crate::expansion::$rkind::define::<$rtype>(stringify!($rname), $crate::operator::Class::$rclass),)*
            $($crate::expansion::defaulted(
                $crate::expansion::$dkind::define::<$dtype>(stringify!($dname), $crate::operator::Class::$dclass),
                &((|| $default) as fn() -> $crate::argument::Attribute),
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

/// A rule in the runtime's form. `$a` are the arguments in the rule's call. It refers to a function pointer, so that
/// all rules of a form share one table of methods.
#[doc(hidden)]
#[macro_export]
macro_rules! __rule {
    (meta $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::TensorMeta>, $crate::Failure> {
            ::core::result::Result::Ok($crate::rules::IntoResults::into_results($call?))
        }
        &(rule as fn(&_) -> _)
    }};
    (requires $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> ::core::result::Result<(), $crate::Failure> {
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (flops $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> u64 {
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (traced $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::Tensor>]) -> ::std::vec::Vec<$crate::Tensor> {
            $crate::rules::IntoResults::into_results($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (grad $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::Tensor>],
        ) -> (::std::vec::Vec<$crate::Tensor>, $crate::transforms::autodiff::rules::Pullback) {
            $crate::rules::erase_grad($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (scalar $a:ident => $call:expr) => {{
        fn rule(
            arguments: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ($crate::rules::ScalarProgram, ::std::vec::Vec<f64>) {
            fn rule($a: &[$crate::argument::Arg<$crate::rules::Expr>]) -> ::std::vec::Vec<$crate::rules::Expr> {
                $crate::rules::IntoResults::into_results($call)
            }
            $crate::expansion::record_scalar(PARAMS, arguments, rule)
        }
        &(rule as fn(&_) -> _)
    }};
    (reference $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::ReferenceTensor>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::rules::ReferenceTensor>, $crate::Failure> {
            $crate::rules::ReferenceOutcome::outcome($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (view $a:ident => $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::strided::Strided>],
        ) -> ::core::option::Option<$crate::strided::View> {
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (checker $a:ident => $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> $crate::executor::Claim {
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (condition $a:ident => $call:expr) => {{
        fn rule(tensors: &[$crate::TensorMeta]) -> $crate::executor::Claim {
            let $a = &$crate::expansion::tensors(tensors)[..];
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (cpu $a:ident $outputs:ident => $work:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::TensorRef<'_>>],
            $outputs: &mut [$crate::rules::TensorMut<'_>],
        ) -> ::core::result::Result<(), $crate::Failure> {
            $work
        }
        &(rule as fn(&[$crate::argument::Arg<$crate::rules::TensorRef<'_>>], &mut [$crate::rules::TensorMut<'_>]) -> _)
    }};
    (plan $plan:ident $a:ident $outputs:ident => $work:expr) => {{
        fn rule(
            $plan: &mut $crate::device::Plan,
            $a: &[$crate::argument::Arg<$crate::device::DeviceTensor>],
            $outputs: &[$crate::device::DeviceTensor],
        ) -> ::core::result::Result<(), $crate::Failure> {
            $work
        }
        &(rule as fn(&mut _, &_, &_) -> _)
    }};
    // What declares samples or errors has the runtime's form already.
    (samples $rule:expr) => {
        &($rule as fn(&mut $crate::rules::Samples))
    };
    (errors $rule:expr) => {
        &($rule as fn(&mut $crate::rules::ErrorSamples))
    };
}
