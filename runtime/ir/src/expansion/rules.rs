//! The macro that makes functions of the runtime's form out of rules.

/// A rule as a function of the runtime's form, which follows from its name. It refers to a function pointer, so that
/// all rules of a form share one table of methods. `$a` are the arguments in its call, and `__f` is this module there.
#[doc(hidden)]
#[macro_export]
macro_rules! __rule {
    (meta |$a:ident| $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::TensorMeta>, $crate::Failure> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            ::core::result::Result::Ok($crate::rules::IntoResults::into_results($call?))
        }
        &(rule as fn(&_) -> _)
    }};
    (requires |$a:ident| $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> ::core::result::Result<(), $crate::Failure> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (flops |$a:ident| $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> u64 {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (traced |$a:ident| $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::Tensor>]) -> ::std::vec::Vec<$crate::Tensor> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $crate::rules::IntoResults::into_results($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (grad |$a:ident| $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::Tensor>],
        ) -> (::std::vec::Vec<$crate::Tensor>, $crate::gradient::Pullback) {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $crate::rules::erase_grad($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (scalar |$a:ident| $call:expr) => {{
        fn rule(
            arguments: &[$crate::argument::Arg<$crate::TensorMeta>],
        ) -> ($crate::rules::ScalarProgram, ::std::vec::Vec<f64>) {
            fn rule($a: &[$crate::argument::Arg<$crate::rules::Expr>]) -> ::std::vec::Vec<$crate::rules::Expr> {
                #[allow(unused_imports)]
                use $crate::expansion as __f;
                $crate::rules::IntoResults::into_results($call)
            }
            $crate::expansion::record_scalar(PARAMS, arguments, rule)
        }
        &(rule as fn(&_) -> _)
    }};
    (reference |$a:ident| $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::ReferenceTensor>],
        ) -> ::core::result::Result<::std::vec::Vec<$crate::rules::ReferenceTensor>, $crate::Failure> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $crate::rules::ReferenceOutcome::outcome($call)
        }
        &(rule as fn(&_) -> _)
    }};
    (view |$a:ident| $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::strided::Strided>],
        ) -> ::core::option::Option<$crate::strided::View> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (channels |$a:ident| $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> ::core::option::Option<$crate::strided::Channels> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (padded |$a:ident| $call:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::strided::Strided>],
        ) -> ::core::option::Option<::std::vec::Vec<::std::vec::Vec<usize>>> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (checker |$a:ident| $call:expr) => {{
        fn rule($a: &[$crate::argument::Arg<$crate::TensorMeta>]) -> $crate::executor::Claim {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $call
        }
        &(rule as fn(&_) -> _)
    }};
    (condition |$a:ident| $call:expr) => {
        $crate::__rule!(checker | $a | $call)
    };
    (cpu |$a:ident, $outputs:ident| $work:expr) => {{
        fn rule(
            $a: &[$crate::argument::Arg<$crate::rules::TensorRef<'_>>],
            $outputs: &mut [$crate::rules::TensorMut<'_>],
        ) -> ::core::result::Result<(), $crate::Failure> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $work
        }
        &(rule as fn(&[$crate::argument::Arg<$crate::rules::TensorRef<'_>>], &mut [$crate::rules::TensorMut<'_>]) -> _)
    }};
    (plan |$plan:ident, $a:ident, $outputs:ident| $work:expr) => {{
        fn rule(
            $plan: &mut $crate::device::Plan,
            $a: &[$crate::argument::Arg<$crate::device::DeviceTensor>],
            $outputs: &[$crate::device::DeviceTensor],
        ) -> ::core::result::Result<(), $crate::Failure> {
            #[allow(unused_imports)]
            use $crate::expansion as __f;
            $work
        }
        &(rule as fn(&mut _, &_, &_) -> _)
    }};
    // What declares samples or errors has the runtime's form already.
    (samples = $rule:expr) => {
        &($rule as fn(&mut $crate::rules::Samples))
    };
    (errors = $rule:expr) => {
        &($rule as fn(&mut $crate::rules::ErrorSamples))
    };
    ($traced:ident |$a:ident| $call:expr) => {
        $crate::__rule!(traced | $a | $call)
    };
}
