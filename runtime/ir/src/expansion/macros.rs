//! The macros that expansions call: an operator as a whole, and its arguments, functions, gradients and preconditions.

/// An operator: all that its module holds but the rules as they were written.
#[doc(hidden)]
#[macro_export]
macro_rules! __operator {
    (
        $kind:expr => $results:ty;
        required $required:tt
        defaulted $defaulted:tt
        results $names:tt
        $(seen as $form:ident;)?
        $(gradients $gradients:tt)?
        codes { $($code:ident)* }
        $ident:ident $name:literal, $docs:expr;
        $(method $method:ident;)?
        record { $($record:tt)* }
        $($set:ident {
            $($rule:ident |$($argument:ident),*| $call:expr;)*
            $(@$given:ident $own:expr;)*
            $(.$fact:ident = $declared:expr;)*
        })*
    ) => {
        // An operator needs not all of these names, and the lint counts them as its author's.
        #[allow(unused_imports)]
        use super::*;
        #[allow(unused_imports)]
        use $crate::rules::*;
        // Error samples call preconditions by name.
        #[allow(unused_imports)]
        use self::Code::*;

        $crate::__arguments! { required $required defaulted $defaulted results $names }
        $crate::__functions! { $ident -> $results, $docs; required $required }
        $(
            $crate::__args! { $form; required $required defaulted $defaulted }
            $crate::__call_args! { $form -> $results }
        )?
        $($crate::__method! { $ident $method -> $results, $docs; required $required })?
        $($crate::__gradients! $gradients)?
        $crate::__codes! { $($code)* }

        /// The record of this declaration.
        #[allow(clippy::needless_update)]
        pub static OPERATOR: $crate::operator::OperatorDef = {
            use $crate::expansion as __f;
            __f::OperatorDef {
                name: $name,
                kind: $kind,
                docs: $docs,
                params: PARAMS,
                results: __f::results(RESULTS),
                package: env!("CARGO_PKG_NAME"),
                file: file!(),
                line: line!(),
                rules: &[$(&__f::$set {
                    $($rule: Some($crate::__rule!($rule |$($argument),*| $call)),)*
                    $($given: Some($crate::__rule!($given = $own)),)*
                    $($fact: $declared,)*
                    ..__f::$set::EMPTY
                }),*],
                $($record)*
                ..__f::OPERATOR
            }
        };
        #[$crate::__private::linkme::distributed_slice($crate::registry::OPERATORS)]
        #[linkme(crate = $crate::__private::linkme)]
        static REGISTERED: &'static $crate::operator::OperatorDef = &OPERATOR;
    };
}

/// The arguments of a declaration by name: `ArgsWithoutCall` (whose name is the hint where a tensor is expected),
/// `with` and the setters, and the places of arguments and results. `Tensor` is the type of a tensor at the current
/// stage; an attribute's type follows what may be given for it.
#[doc(hidden)]
#[macro_export]
macro_rules! __arguments {
    (
        required {
            $($rindex:literal $rkind:ident $(($rclass:ident))? $rname:ident: $rgiven:ty
                $(as $rtype:ty $(=> $rvalue:expr)?)?;)*
        }
        defaulted {
            $($dindex:literal $dkind:ident $(($dclass:ident))? $dname:ident: $dgiven:ty
                $(as $dtype:ty $(=> $dvalue:expr)?)?, $text:expr, $default:expr;)*
        }
        results { $($oindex:literal $oname:ident)* }
    ) => {
        /// The arguments of a call, made by `with`; `Tensor` is the type of a tensor at the current stage.
        #[must_use = "arguments alone do nothing: end with `.call()`"]
        pub struct ArgsWithoutCall<Tensor>(::std::vec::Vec<$crate::argument::Arg<Tensor>>);

        /// The parameters in order.
        pub const PARAMS: &[$crate::operator::ParamDef] = &[
            $($crate::expansion::$rkind::define$(::<$rtype>)?(
                stringify!($rname) $(, $crate::operator::Class::$rclass)?
            ),)*
            $($crate::expansion::defaulted(
                $crate::expansion::$dkind::define$(::<$dtype>)?(
                    stringify!($dname) $(, $crate::operator::Class::$dclass)?
                ),
                {
                    use $crate::expansion as __f;
                    &((|| $default) as fn() -> $crate::argument::Attribute)
                },
            ),)*
        ];

        /// The names of the results in order; a list's have none.
        pub const RESULTS: &[&str] = &[$(stringify!($oname)),*];

        /// Where each argument and each result is.
        #[doc(hidden)]
        pub struct Places {
            $(pub $rname: $crate::expansion::$rkind::At<$rindex $(, $rtype)?>,)*
            $(pub $dname: $crate::expansion::$dkind::At<$dindex $(, $dtype)?>,)*
            $(pub $oname: $crate::expansion::result::At<$oindex>,)*
        }
        #[doc(hidden)]
        pub const ARGUMENTS: Places = Places {
            $($rname: $crate::expansion::$rkind::At::HERE,)*
            $($dname: $crate::expansion::$dkind::At::HERE,)*
            $($oname: $crate::expansion::result::At::HERE,)*
        };

        impl<Tensor> ArgsWithoutCall<Tensor> {
            $(
                #[doc = concat!("Gives `", stringify!($dname), "`, which is `", $text, "` otherwise.")]
                pub fn $dname(self, $dname: $dgiven) -> Self {
                    ArgsWithoutCall($crate::__set!(
                        $dkind self.0, $dindex, $crate::__given!($dkind $dname $($(, $dvalue)?)?)
                    ))
                }
            )*
        }

        impl<Tensor> $crate::rules::OperatorArguments<Tensor> for ArgsWithoutCall<Tensor> {
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<Tensor>> {
                self.0
            }
        }

        /// The arguments that must be given; the others follow by name.
        #[allow(clippy::too_many_arguments)]
        pub fn with<Tensor: Clone>($($rname: $rgiven),*) -> ArgsWithoutCall<Tensor> {
            ArgsWithoutCall($crate::expansion::begin(
                PARAMS,
                [$($crate::__write!($rkind $crate::__given!($rkind $rname $($(, $rvalue)?)?))),*],
            ))
        }
    };
}

/// All arguments as one struct, for rules that take them as a whole and for calls. `$form` is how a rule sees tensors.
#[doc(hidden)]
#[macro_export]
macro_rules! __args {
    (
        $form:ident;
        required {
            $($rindex:literal $rkind:ident $(($rclass:ident))? $rname:ident: $rgiven:ty
                $(as $rtype:ty $(=> $rvalue:expr)?)?;)*
        }
        defaulted {
            $($dindex:literal $dkind:ident $(($dclass:ident))? $dname:ident: $dgiven:ty
                $(as $dtype:ty $(=> $dvalue:expr)?)?, $text:expr, $default:expr;)*
        }
    ) => {
        /// All arguments by name, for a rule that takes them as a whole.
        #[allow(dead_code)]
        pub struct Args<$form: $crate::expansion::Form> {
            $(
                #[doc = concat!("`", stringify!($rname), "`")]
                pub $rname: $crate::expansion::fields::$rkind::Field<
                    $(<$form as $crate::expansion::Form>::$rclass)? $($rtype)?
                >,
            )*
            $(
                #[doc = concat!("`", stringify!($dname), "`, which is `", $text, "` where it is left out.")]
                pub $dname: $crate::expansion::fields::$dkind::Field<
                    $(<$form as $crate::expansion::Form>::$dclass)? $($dtype)?
                >,
            )*
        }

        impl<$form: $crate::expansion::Form> Args<$form> {
            #[doc(hidden)]
            pub fn of<'a>(arguments: &'a [$crate::argument::Arg<<$form as $crate::expansion::Seen<'a>>::Value>]) -> Self
            where
                $form: $crate::expansion::Seen<'a>,
            {
                Args {
                    $($rname: $crate::expansion::fields::$rkind::seen(arguments, $rindex),)*
                    $($dname: $crate::expansion::fields::$dkind::seen(arguments, $dindex),)*
                }
            }
        }

        impl $crate::rules::OperatorArguments<$crate::Tensor> for &Args<$crate::Tensor> {
            // Compiled where it is used: few operators are called so.
            #[inline]
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<$crate::Tensor>> {
                ::std::vec![
                    $($crate::__write!($rkind self.$rname.clone()),)*
                    $($crate::__write!($dkind self.$dname.clone()),)*
                ]
            }
        }
    };
}

/// The call of an operator with `Args`, if it has any.
#[doc(hidden)]
#[macro_export]
macro_rules! __call_args {
    ($form:ident -> $results:ty) => {
        impl Args<$crate::Tensor> {
            /// Calls the operator.
            #[inline]
            #[track_caller]
            pub fn call(&self) -> $results {
                $crate::expansion::call(&OPERATOR, $crate::rules::OperatorArguments::into_arguments(self))
            }
        }
    };
}

/// What a caller gives, as the value of its kind.
#[doc(hidden)]
#[macro_export]
macro_rules! __given {
    ($kind:ident $name:ident, $value:expr) => {
        $value
    };
    (tensor $name:ident) => {
        $name
    };
    (attribute $name:ident) => {
        $name
    };
    (list $name:ident) => {
        $name.as_ref().to_vec()
    };
    ($kind:ident $name:ident) => {
        $name.into()
    };
}

/// The ways to call an operator: with its arguments' builder, those of another call, or the required ones.
#[doc(hidden)]
#[macro_export]
macro_rules! __functions {
    (
        $ident:ident -> $results:ty, $docs:expr;
        required {
            $($index:literal $kind:ident $(($class:ident))? $name:ident: $given:ty
                $(as $type:ty $(=> $value:expr)?)?;)*
        }
    ) => {
        impl ArgsWithoutCall<$crate::Tensor> {
            /// Calls the operator.
            #[inline]
            #[track_caller]
            pub fn call(self) -> $results {
                $crate::expansion::call(&OPERATOR, self.0)
            }
        }

        /// Calls the operator with the arguments of another call.
        #[track_caller]
        pub fn call(arguments: $crate::rules::Arguments) -> $results {
            $crate::expansion::call(&OPERATOR, arguments.into_inner())
        }

        #[doc = $docs]
        #[inline]
        #[track_caller]
        #[allow(clippy::too_many_arguments)]
        pub fn $ident($($name: $given),*) -> $results {
            with($($name),*).call()
        }
    };
}

/// The operator as a method of its first argument, a tensor.
#[doc(hidden)]
#[macro_export]
macro_rules! __method {
    (
        $ident:ident $method:ident -> $results:ty, $docs:expr;
        required {
            0 tensor($($of:ident)?) $input:ident: Tensor;
            $($index:literal $kind:ident $(($class:ident))? $name:ident: $given:ty
                $(as $type:ty $(=> $value:expr)?)?;)*
        }
    ) => {
        #[doc = concat!("`input.", stringify!($ident), "(...)`.")]
        pub trait $method {
            #[doc = $docs]
            #[track_caller]
            #[allow(clippy::too_many_arguments)]
            fn $ident(self, $($name: $given),*) -> $results;
        }

        impl $method for $crate::Tensor {
            #[inline]
            #[track_caller]
            fn $ident(self, $($name: $given),*) -> $results {
                with(self, $($name),*).call()
            }
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
    ($($index:literal $kind:ident $name:ident)*) => {
        /// The gradient of every argument that has one.
        pub struct Grads {
            $(#[doc = concat!("Of `", stringify!($name), "`.")] pub $name: $crate::expansion::$kind::Gradient,)*
        }

        impl $crate::rules::Gradients for Grads {
            // Compiled where it is used: not every operator has a gradient of its own.
            #[inline]
            fn into_arguments(self) -> ::std::vec::Vec<$crate::argument::Arg<$crate::Tensor>> {
                $crate::expansion::gradients(PARAMS.len(), [$(($index, $crate::__write!($kind self.$name))),*])
            }
        }
    };
}

/// The named preconditions of a declaration.
#[doc(hidden)]
#[macro_export]
macro_rules! __codes {
    ($($code:ident)*) => {
        /// The names of the preconditions of the rules.
        pub const CODES: &[&str] = &[$(stringify!($code)),*];

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
