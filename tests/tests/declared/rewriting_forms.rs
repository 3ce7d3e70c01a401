//! Patterns and programs that say the same in several ways match in each of them.

use fulgurite_executors as _;
use fulgurite_ops::core::{div, full, maximum};
use fulgurite_ops::nn::relu;
use fulgurite_ops::prims;
use fulgurite_ops_macros::rewrite;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::executor::RewriteDef;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::{Filter, Settings, generated_tests};
use fulgurite_runtime::tracer::value_and_grad;
use fulgurite_runtime::{Array, DType, Tensor, jit};

/// A constant like `x`, for patterns and programs that fill a tensor with their number.
fn number_like(x: Tensor, value: f64) -> Tensor {
    prims::full(&*x.shape(), value, x.dtype(), x.device().to_string())
}

/// Declares a rewrite of a function of `x` in one of its forms.
macro_rules! forms {
    ($($name:literal $module:ident $($late:ident)?: |$x:ident| $pattern:expr => $replacement:expr;)*) => {
        $(
            #[rewrite($($late,)? name = $name)]
            mod $module {
                fn pattern($x: Tensor) -> Tensor {
                    $pattern
                }

                fn replacement($x: Tensor) -> Tensor {
                    $replacement
                }

                fn samples(s: &mut Samples) {
                    s.case(with(s.normal([2, 3])));
                }
            }
        )*
        const NAMES: &[&str] = &[$($name),*];
    };
}

forms! {
    "test::by_relu" by_relu late: |x| relu(prims::neg(x)) => prims::neg(prims::minimum(x, 0.0));
    "test::by_maximum" by_maximum late: |x| maximum(prims::neg(x), number_like(x, 0.0))
        => prims::neg(prims::minimum(x, 0.0));
    "test::by_prim" by_prim late: |x| prims::maximum(prims::neg(x), 0) => prims::neg(prims::minimum(x, 0.0));
    "test::by_zeros" by_zeros late: |x| prims::maximum(prims::neg(x), number_like(x, 0.0))
        => prims::neg(prims::minimum(x, 0.0));
    "test::early_relu" early_relu: |x| relu(prims::neg(x)) => prims::neg(prims::minimum(x, 0.0));
    "test::early_maximum" early_maximum: |x| prims::maximum(prims::neg(x), 0) => prims::neg(prims::minimum(x, 0.0));
    "test::by_quotient" by_quotient: |x| prims::exp(x) / 4.0 => prims::exp(prims::sub(x, 4.0_f64.ln()));
    "test::by_product" by_product: |x| prims::exp(x) * 0.25 => prims::exp(prims::sub(x, 4.0_f64.ln()));
    "test::by_constant" by_constant: |x| prims::mul(prims::exp(x), number_like(x, 0.25))
        => prims::exp(prims::sub(x, 4.0_f64.ln()));
    "test::by_third" by_third: |x| prims::exp(x) / 3.0 => prims::exp(prims::sub(x, 3.0_f64.ln()));
}

/// What a program is after a rewrite that needs no executor, in the rewrite's stage.
fn rewritten(rewrite: &'static RewriteDef, f: fn(Tensor) -> Tensor) -> String {
    let options = Options { rewrites: Some(vec![rewrite]), ..Options::default() };
    let x = Array::new([2, 3], &[1.0_f32, -2.0, 0.5, 0.0, -0.25, 3.0]).unwrap();
    let stage = if rewrite.late { "late_rewrite" } else { "rewrite" };
    jit(f).options(options).compile(&x).unwrap().stage(stage).unwrap().to_string()
}

#[test]
fn their_generated_tests_pass() {
    for name in NAMES {
        let filter = Filter { templates: vec![Template::Rewrite], ..Filter::operator(name) };
        let mut tests = generated_tests(&filter, &Settings::default());
        tests.retain(|test| test.operator == *name);
        assert_eq!(tests.len(), 1, "{name}");
        (tests[0].run)().unwrap_or_else(|message| panic!("{message}"));
    }
}

#[test]
fn relu_is_the_maximum_with_zero() {
    let programs: [fn(Tensor) -> Tensor; 6] = [
        |x| relu(prims::neg(x)),
        |x| relu(-x),
        |x| prims::maximum(prims::neg(x), 0.0),
        |x| prims::maximum(0, prims::neg(x)),
        |x| maximum(prims::neg(x), full(vec![2, 3], 0.0)),
        |x| maximum(-x, number_like(x, 0.0)),
    ];
    for rewrite in [&by_relu::REWRITE, &by_maximum::REWRITE, &by_prim::REWRITE, &by_zeros::REWRITE] {
        for (i, program) in programs.into_iter().enumerate() {
            let text = rewritten(rewrite, program);
            assert!(text.contains(" = minimum(arg, 0.0)"), "{} of program {i}: {text}", rewrite.name);
        }
        for other in [|x| prims::maximum(prims::neg(x), 1.0), |x| prims::minimum(prims::neg(x), 0.0)] {
            let other: fn(Tensor) -> Tensor = other;
            let text = rewritten(rewrite, other);
            assert!(text.contains(" = neg(arg)"), "{}: {text}", rewrite.name);
        }
    }
}

/// A program that is differentiated keeps the gradient that it was written with, at the kink as well.
#[test]
fn rewrites_before_autodiff_tell_gradients_apart() {
    let by_composite: fn(Tensor) -> Tensor = |x| relu(prims::neg(x));
    let by_prim: fn(Tensor) -> Tensor = |x| prims::maximum(prims::neg(x), 0.0);
    let fires = |rewrite, program| rewritten(rewrite, program).contains(" = minimum(arg, 0.0)");
    assert!(fires(&early_relu::REWRITE, by_composite) && !fires(&early_relu::REWRITE, by_prim));
    assert!(fires(&early_maximum::REWRITE, by_prim) && !fires(&early_maximum::REWRITE, by_composite));
    let x = Array::new([3], &[0.0_f32, -2.0, 1.0]).unwrap();
    let gradient = |program: fn(Tensor) -> Tensor, rewrites: Vec<&'static RewriteDef>| {
        let f = jit(move |x: Tensor| value_and_grad(x, |x| prims::sum(program(*x), [0])));
        let (_, gradient) =
            f.options(Options { rewrites: Some(rewrites), ..Options::default() }).call(x.clone()).unwrap();
        gradient.to_f64().unwrap()
    };
    let late = vec![&by_relu::REWRITE, &by_maximum::REWRITE, &by_prim::REWRITE, &by_zeros::REWRITE];
    for (program, at_kink, other) in
        [(by_composite, 0.0, &early_maximum::REWRITE), (by_prim, -0.5, &early_relu::REWRITE)]
    {
        let expected = [at_kink, -1.0, 0.0];
        assert_eq!(gradient(program, Vec::new()), expected);
        assert_eq!(gradient(program, late.clone()), expected);
        assert_eq!(gradient(program, vec![other]), expected);
    }
}

#[test]
fn a_division_by_a_power_of_two_is_a_product() {
    let programs: [fn(Tensor) -> Tensor; 6] = [
        |x| prims::exp(x) / 4.0,
        |x| div(prims::exp(x), 4),
        |x| prims::div(prims::exp(x), 4.0),
        |x| prims::exp(x) * 0.25,
        |x| 0.25 * prims::exp(x),
        |x| prims::mul(prims::exp(x), number_like(x, 0.25)),
    ];
    for rewrite in [&by_quotient::REWRITE, &by_product::REWRITE, &by_constant::REWRITE] {
        for (i, program) in programs.into_iter().enumerate() {
            let text = rewritten(rewrite, program);
            assert!(text.contains(" = sub(arg, "), "{} of program {i}: {text}", rewrite.name);
        }
        let text = rewritten(rewrite, |x| prims::exp(x) / 2.0);
        assert!(!text.contains(" = sub(arg, "), "{}: {text}", rewrite.name);
    }
    // A third is rounded: the product is another number than the quotient.
    let quotient = rewritten(&by_third::REWRITE, |x| prims::exp(x) / 3.0);
    assert!(quotient.contains(" = sub(arg, "), "{quotient}");
    let product = rewritten(&by_third::REWRITE, |x| prims::exp(x) * (1.0 / 3.0));
    assert!(!product.contains(" = sub(arg, "), "{product}");
}

/// A tensor of another element type is no number: with it the result is of that type.
#[test]
fn constants_of_another_type_are_not_numbers() {
    let text =
        rewritten(&by_product::REWRITE, |x| prims::exp(x) * full::with(vec![2, 3], 0.25).dtype(DType::F64).call());
    assert!(!text.contains(" = sub(arg, "), "{text}");
}
