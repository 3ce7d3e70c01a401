//! Attributes that patterns bind, ranks that they declare, and what is told of matches that are refused.

use fulgurite_executors as _;
use fulgurite_ops::nn::{linear, rms_norm};
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_ops_macros::rewrite;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::executor::{RewriteDef, rewrites};
use fulgurite_runtime::fuel::Fuel;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::testing::{Filter, Settings, generated_tests};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::rewrite;
use fulgurite_runtime::{Array, Tensor, jit};

/// A number that is in two places.
#[rewrite(name = "test::same_scale")]
mod same_scale {
    fn pattern(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        prims::add(prims::mul(x, scale), prims::mul(y, scale))
    }

    fn replacement(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        prims::mul(prims::add(x, y), scale)
    }

    fn condition(x: &TensorMeta, scale: f64) -> Claim {
        refuse_unless!(x.dtype() != DType::F64, "x is {x}, f64 is refused");
        refuse_unless!(scale != 3.0, "scale is {scale}");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 2.0, [6]), s.uniform(0.5, 2.0, [6]), 0.5));
    }
}

/// A dimension, as a part of a list, of matrices alone.
#[rewrite(name = "test::sum_of_negatives")]
mod sum_of_negatives {
    fn pattern(#[rank(2..=3)] x: Tensor, dim: usize) -> Tensor {
        prims::sum(prims::neg(x), [dim])
    }

    fn replacement(x: Tensor, dim: usize) -> Tensor {
        prims::neg(prims::sum(x, [dim]))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), 1));
        s.case(with(s.normal([4, 3, 2]), 0));
    }
}

/// Declares a rewrite whose pattern has other operators for vectors, with its samples in an order.
macro_rules! by_rank {
    ($module:ident, $name:literal, $first:expr, $second:expr) => {
        #[rewrite(name = $name)]
        mod $module {
            fn pattern(x: Tensor) -> Tensor {
                if x.rank() == 1 { prims::log(prims::exp(prims::neg(x))) } else { prims::log(prims::exp(x)) }
            }

            fn replacement(x: Tensor) -> Tensor {
                if x.rank() == 1 { prims::neg(x) } else { x }
            }

            fn samples(s: &mut Samples) {
                for shape in [&$first[..], &$second[..]] {
                    s.case(with(s.uniform(-1.0, 1.0, shape)));
                }
            }
        }
    };
}

by_rank!(vectors_first, "test::vectors_first", [6], [2, 3]);
by_rank!(vectors_last, "test::vectors_last", [2, 3], [6]);

/// The program of a function of tensors of these shapes, as it was written.
fn traced<const N: usize>(shapes: [&[usize]; N], f: impl Fn(Vec<Tensor>) -> Tensor) -> (Trace, Vec<Array>) {
    let array = |(i, shape): (usize, &&[usize])| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|at| ((at * 7 + i * 3) % 11) as f32 / 8.0 - 0.5).collect();
        Array::new(*shape, &values).unwrap()
    };
    let arrays: Vec<Array> = shapes.iter().enumerate().map(array).collect();
    let compiled = jit(f).compile(&arrays).unwrap();
    (compiled.stages()[0].trace.clone(), arrays)
}

/// What a rewrite makes of a program, and how often it fires.
fn rewritten(rewrite: &'static RewriteDef, trace: &Trace) -> (Trace, u64) {
    let mut fuel = Fuel::limited(64);
    let next = trace.transformed("rewrite", rewrite::apply(&trace.block, rewrite, &mut fuel).unwrap());
    next.verify().unwrap();
    (next, 64 - fuel.left().unwrap())
}

fn results(trace: &Trace, arrays: &[Array]) -> Vec<f64> {
    let options = Options { rewrites: Some(Vec::new()), ..Options::default() };
    let (program, _) = compile(trace.clone(), &options).unwrap();
    program.run(arrays.to_vec()).unwrap()[0].to_f64().unwrap()
}

#[test]
fn their_generated_tests_pass() {
    for name in ["test::same_scale", "test::sum_of_negatives", "test::vectors_first", "test::vectors_last"] {
        let filter = Filter { templates: vec![Template::Rewrite], ..Filter::operator(name) };
        let mut tests = generated_tests(&filter, &Settings::default());
        tests.retain(|test| test.operator == name);
        assert_eq!(tests.len(), 1, "{name}");
        (tests[0].run)().unwrap_or_else(|message| panic!("{message}"));
    }
}

/// Both are rewritten alike with a value that no sample has, to the same numbers.
#[test]
fn every_value_of_an_attribute_matches() {
    for scale in [0.5, 1e-8, -7.0] {
        let shapes: [&[usize]; 2] = [&[6], &[6]];
        let f = |x: Vec<Tensor>| prims::add(prims::mul(x[0], scale), prims::mul(x[1], scale));
        let (trace, arrays) = traced(shapes, f);
        let (next, fired) = rewritten(&same_scale::REWRITE, &trace);
        assert!(fired == 1 && next.to_string().contains(&format!(", {scale:?})")), "{next}");
        let (before, after) = (results(&trace, &arrays), results(&next, &arrays));
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1e-6 * scale.abs()), "{before:?} {after:?}");
    }
    for dim in [0, 1] {
        let (trace, arrays) = traced([&[4, 3]], |x| prims::sum(prims::neg(x[0]), [dim]));
        let (next, fired) = rewritten(&sum_of_negatives::REWRITE, &trace);
        assert!(fired == 1 && results(&trace, &arrays) == results(&next, &arrays), "{next}");
    }
}

#[test]
fn the_same_attribute_twice_is_one_value() {
    let f = |x: Vec<Tensor>| prims::add(prims::mul(x[0], 0.5), prims::mul(x[1], 0.25));
    let (next, fired) = rewritten(&same_scale::REWRITE, &traced([&[6], &[6]], f).0);
    let told = "scale is 0.5 in one place and 0.25 in another";
    assert!(fired == 0 && next.to_string().contains(told), "{next}");
}

#[test]
fn ranks_are_those_that_the_pattern_declares() {
    for (shape, fires) in [(&[6][..], 0), (&[2, 3], 1), (&[1, 2, 3], 1), (&[1, 1, 2, 3], 0)] {
        let (next, fired) =
            rewritten(&sum_of_negatives::REWRITE, &traced([shape], |x| prims::sum(prims::neg(x[0]), [0])).0);
        assert_eq!(fired, fires, "{next}");
        let told = next.to_string().contains("the pattern takes 2 to 3 dimensions");
        assert_eq!(told, fires == 0, "{next}");
    }
}

#[test]
fn the_order_of_samples_decides_about_nothing() {
    for rewrite in [&vectors_first::REWRITE, &vectors_last::REWRITE] {
        for shape in [&[5][..], &[2, 2], &[1, 2, 3]] {
            let f = |x: Vec<Tensor>| {
                let x = if x[0].rank() == 1 { prims::neg(x[0]) } else { x[0] };
                prims::log(prims::exp(x))
            };
            let (next, fired) = rewritten(rewrite, &traced([shape], f).0);
            assert_eq!(fired, 1, "{next}");
        }
    }
}

/// The reason is in the text of the stage and in `explain`, also of a match inside of a function that is
/// differentiated, after which no line of it is left.
#[test]
fn a_refused_match_is_told_with_its_reason() {
    let options = Options { rewrites: Some(vec![&same_scale::REWRITE]), ..Options::default() };
    let f = |x: Tensor| prims::add(prims::mul(x, 3.0), prims::mul(prims::exp(x), 3.0));
    let x = Array::new([2], &[1.0_f32, 2.0]).unwrap();
    let compiled = jit(f).options(options.clone()).compile(&x).unwrap();
    let stage = compiled.stage("rewrite").unwrap().to_string();
    assert!(stage.contains("refused by") && stage.contains("\"scale is 3\""), "{stage}");
    assert!(compiled.explain().contains("  not test::same_scale: scale is 3\n"), "{}", compiled.explain());
    let of_f64 = Array::new([2], &[1.0_f64, 2.0]).unwrap();
    let g = jit(move |x: Tensor| value_and_grad(x, |x| prims::sum(f(*x), [0]))).options(options);
    let explained = g.compile(&of_f64).unwrap().explain();
    assert!(explained.contains("not test::same_scale: x is f64[2], f64 is refused\n"), "{explained}");
}

/// The rewrites of the library match every `eps`.
#[test]
fn every_eps_is_fused() {
    let named = |name: &str| rewrites().into_iter().find(|rewrite| rewrite.name == name).unwrap();
    for eps in [Some(1e-8), Some(1e-5), Some(1e-6), Some(0.25), None] {
        let norm = |x: Tensor, gain: Tensor| rms_norm::with(x, gain.shape()).weight(gain).eps(eps).call();
        let sum = traced([&[4, 8], &[4, 8], &[8]], |x| norm(x[0] + x[1], x[2]));
        let layer = traced([&[4, 8], &[8], &[16, 8]], |x| linear(norm(x[0], x[1]), x[2]));
        for ((trace, arrays), rewrite) in [(sum, "merge_add_rms_norm"), (layer, "linear_of_norm")] {
            let (next, fired) = rewritten(named(rewrite), &trace);
            assert_eq!(fired, 1, "{rewrite} with {eps:?}: {next}");
            let (before, after) = (results(&trace, &arrays), results(&next, &arrays));
            let near = before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1e-3));
            assert!(near, "{rewrite} with {eps:?}: {before:?} {after:?}");
        }
    }
}
