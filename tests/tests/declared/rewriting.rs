//! What rewrites find: operands in either order, inner values that are read elsewhere, symbols in any order; and that
//! the time is linear in the length of the program.

use fulgurite_executors as _;
use fulgurite_ops_macros::rewrite;
use fulgurite_runtime::executor::RewriteDef;
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::{Filter, Settings, generated_tests};
use fulgurite_runtime::trace::{Trace, parse};
use fulgurite_runtime::transforms::rewrite;

use fulgurite_ops::prims;

/// A sum with a product, whichever operand the product is.
#[rewrite(name = "test::product_plus")]
mod product_plus {
    fn pattern(a: Tensor, b: Tensor, c: Tensor) -> Tensor {
        prims::add(prims::mul(prims::exp(a), b), c)
    }

    fn replacement(a: Tensor, b: Tensor, c: Tensor) -> Tensor {
        prims::sub(c, prims::mul(prims::exp(a), prims::neg(b)))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6]), s.normal([6]), s.normal([6])));
    }
}

/// A logarithm of an exponential, which others may read.
#[rewrite(name = "test::log_of_exp", keep_inner)]
mod log_of_exp {
    fn pattern(x: Tensor) -> Tensor {
        prims::log(prims::exp(prims::neg(x)))
    }

    fn replacement(x: Tensor) -> Tensor {
        prims::neg(x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(-1.0, 1.0, [6])));
    }
}

/// A product with a tensor that is filled with one number.
#[rewrite(name = "test::product_with_number")]
mod product_with_number {
    fn pattern(a: Tensor) -> Tensor {
        prims::mul(a, prims::full(a.shape(), 3.0, a.dtype(), a.device()))
    }

    fn replacement(a: Tensor) -> Tensor {
        prims::mul(a, 3.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([6])));
    }
}

/// Of vectors the second operand of the sum counts twice, so that operands commute in matrices alone.
fn weight(b: fulgurite_runtime::Tensor) -> i64 {
    if b.shape().len() == 1 { 2 } else { 1 }
}

/// A sum whose operands do not commute in the first sample.
#[rewrite(name = "test::weighted_first")]
mod weighted_first {
    use fulgurite_ops::core::add;

    fn pattern(a: Tensor, b: Tensor) -> Tensor {
        add::with(prims::exp(a), b).alpha(super::weight(b)).call()
    }

    fn replacement(a: Tensor, b: Tensor) -> Tensor {
        prims::add(prims::exp(a), prims::mul(b, super::weight(b) as f64))
    }

    fn samples(s: &mut Samples) {
        for shape in [&[6][..], &[2, 3][..]] {
            s.case(with(s.normal(shape), s.normal(shape)));
        }
    }
}

/// A sum whose operands commute in the first sample.
#[rewrite(name = "test::weighted_last")]
mod weighted_last {
    use fulgurite_ops::core::add;

    fn pattern(a: Tensor, b: Tensor) -> Tensor {
        add::with(prims::exp(a), b).alpha(super::weight(b)).call()
    }

    fn replacement(a: Tensor, b: Tensor) -> Tensor {
        prims::add(prims::exp(a), prims::mul(b, super::weight(b) as f64))
    }

    fn samples(s: &mut Samples) {
        for shape in [&[2, 3][..], &[6][..]] {
            s.case(with(s.normal(shape), s.normal(shape)));
        }
    }
}

fn program(body: &str) -> Trace {
    let text = format!("# fulgurite trace 2\ntrace f for cpu (a: f32[6], b: f32[6], c: f32[6]) {{\n{body}\n}}\n");
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    trace.verify().unwrap();
    trace
}

/// What a rewrite makes of a program, and how often it fires.
fn rewritten(rewrite: &'static RewriteDef, body: &str) -> (String, u64) {
    let trace = program(body);
    let (limit, mut fuel) = (1000, Fuel::limited(1000));
    let next = trace.transformed("rewrite", rewrite::apply(&trace.block, rewrite, &mut fuel).unwrap());
    next.verify().unwrap();
    let fired = (0..limit).find(|left| fuel == Fuel::limited(limit - left)).unwrap();
    (next.to_string(), fired)
}

#[test]
fn their_generated_tests_pass() {
    for name in ["product_plus", "log_of_exp", "product_with_number", "weighted_first", "weighted_last"] {
        let name = &*format!("test::{name}");
        let filter = Filter { templates: vec![Template::Rewrite], ..Filter::operator(name) };
        let tests: Vec<_> =
            generated_tests(&filter, &Settings::default()).into_iter().filter(|test| test.operator == name).collect();
        assert_eq!(tests.len(), 1, "{name}");
        (tests[0].run)().unwrap_or_else(|message| panic!("{message}"));
    }
}

#[test]
fn operands_that_commute_are_found_in_either_order() {
    let exp = "e: f32[6] = prims::exp(a)";
    for product in ["prims::mul(e, b)", "prims::mul(b, e)"] {
        for sum in ["prims::add(m, c)", "prims::add(c, m)"] {
            let body = format!("{exp}\nm: f32[6] = {product}\ns: f32[6] = {sum}\nreturn s");
            let (text, fired) = rewritten(&product_plus::REWRITE, &body);
            assert!(fired == 1 && text.contains("s = sub(c, "), "{text}");
        }
    }
    // A difference is no sum.
    let body = format!("{exp}\nm: f32[6] = prims::mul(e, b)\ns: f32[6] = prims::sub(c, m)\nreturn s");
    assert_eq!(rewritten(&product_plus::REWRITE, &body).1, 0);
}

/// The pattern is looked for as the product with a number, which the replacement is.
#[test]
fn a_filled_tensor_becomes_its_number_once() {
    let filled = "f: f32[6] = prims::full(size=[6], fill_value=3.0, dtype=f32, device=\"cpu\")";
    let body = format!("{filled}\np: f32[6] = prims::mul(a, f)\nreturn p");
    let (text, fired) = rewritten(&product_with_number::REWRITE, &body);
    assert!(fired == 1 && text.contains("p = mul(a, 3.0)") && !text.contains("mul(a, f)"), "{fired}\n{text}");
    let (text, fired) = rewritten(&product_with_number::REWRITE, "p: f32[6] = prims::mul(a, 3.0)\nreturn p");
    assert!(fired == 0 && text.contains("p = mul(a, 3.0)"), "{fired}\n{text}");
}

#[test]
fn inner_values_stay_where_the_rewrite_keeps_them() {
    let chain = "n: f32[6] = prims::neg(a)\ne: f32[6] = prims::exp(n)\nl: f32[6] = prims::log(e)";
    let (text, fired) = rewritten(&log_of_exp::REWRITE, &format!("{chain}\nreturn l"));
    assert!(fired == 1 && !text.contains("exp("), "{text}");
    // What makes the value that is read elsewhere stays, and what that reads.
    for reader in ["return l, e", "s: f32[6] = prims::add(e, b)\nreturn l, s"] {
        let (text, fired) = rewritten(&log_of_exp::REWRITE, &format!("{chain}\n{reader}"));
        assert_eq!(fired, 1, "{text}");
        assert!(text.contains("e = exp(n)") && text.contains("l = neg(a)"), "{text}");
    }
    // Without the declaration nothing is taken apart.
    let body = "e: f32[6] = prims::exp(a)\nm: f32[6] = prims::mul(e, b)\ns: f32[6] = prims::add(m, c)\nreturn s, m";
    assert_eq!(rewritten(&product_plus::REWRITE, body).1, 0);
}

/// Every link of a long chain is found, each behind the one before. How long it takes is measured by `compile_time`.
#[test]
fn every_link_of_a_long_chain_is_rewritten() {
    let chain = |length: usize| {
        let lines: Vec<String> = (0..length)
            .map(|i| {
                let before = if i == 0 { "c".to_owned() } else { format!("s{}", i - 1) };
                format!(
                    "e{i}: f32[6] = prims::exp({before})\nm{i}: f32[6] = prims::mul(b, e{i})\n\
                     s{i}: f32[6] = prims::add(a, m{i})"
                )
            })
            .collect();
        program(&format!("{}\nreturn s{}", lines.join("\n"), length - 1))
    };
    let trace = chain(4000);
    let mut fuel = Fuel::UNLIMITED;
    let block = rewrite::apply(&trace.block, &product_plus::REWRITE, &mut fuel).unwrap();
    assert!(block.symbols.iter().all(|symbol| symbol.name() != "prims::add"));
    assert_eq!(block.symbols.iter().filter(|symbol| symbol.name() == "prims::exp").count(), 4000);
}
