//! Derivatives of derivatives, auxiliary outputs, and forward and backward as two programs.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, implementation, operator};
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::strided::LayoutRules;
use fulgurite_runtime::trace::parse;
use fulgurite_runtime::{Array, Error, Result, Tensor, jit};

/// `Σ x³`, whose gradient it also gives.
#[operator(name = "test::cubes_and_slope")]
pub mod cubes_and_slope {
    #[results(sum, slope)]
    fn cubes_and_slope(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn decomposition(input: Tensor) -> (Tensor, Tensor) {
        value_and_grad(input, |x| (*x * *x * *x).sum())
    }

    fn reference(input: &ArrayD<f64>) -> (ArrayD<f64>, ArrayD<f64>) {
        let sum = input.iter().map(|x| x * x * x).sum();
        (ArrayD::from_elem(IxDyn(&[]), sum), input.mapv(|x| 3.0 * x * x))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

/// Both lists of executors: kernels with gradients of their own, and plain ones.
fn lists() -> [Options; 2] {
    [Options::default(), Options::default().with_executors(&["reference"]).unwrap()]
        .map(|options| Options { verify: true, ..options })
}

fn x() -> Array {
    Array::new([3], &[1.0_f32, -2.0, 0.5]).unwrap()
}

fn near(array: &Array, expected: &[f32]) {
    let values: Vec<f32> = array.to_vec().unwrap();
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!((value - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{values:?}, expected {expected:?}");
    }
}

#[test]
fn second_and_third_derivatives() -> Result<()> {
    for options in lists() {
        // f = Σ x³, |f'|² = Σ 9 x⁴, its gradient 36 x³.
        let squared = jit(|x: Tensor| {
            value_and_grad(x, |x| {
                let (_, slope) = value_and_grad(*x, |x| (*x * *x * *x).sum());
                (slope * slope).sum()
            })
        })
        .options(options.clone());
        let (value, gradient) = squared.call(x())?;
        near(&value, &[9.0 * (1.0 + 16.0 + 0.0625)]);
        near(&gradient, &[36.0, -288.0, 4.5]);
        // f = Σ x⁵ three times: 60 x².
        let third = jit(|x: Tensor| {
            let second = |x: Tensor| {
                let first = |x: Tensor| value_and_grad(x, |x| (*x * *x * *x * *x * *x).sum()).1.sum();
                value_and_grad(x, |x| first(*x)).1.sum()
            };
            value_and_grad(x, |x| second(*x)).1
        })
        .options(options);
        near(&third.call(x())?, &[60.0, 240.0, 15.0]);
    }
    Ok(())
}

#[test]
fn mixed_derivatives_through_tensors_of_the_function_around() -> Result<()> {
    for options in lists() {
        // f = Σ w x², df/dx = 2 w x, and the gradient of its sum with respect to w is 2 x.
        let penalty = jit(|(w, x): (Tensor, Tensor)| {
            value_and_grad(w, |w| {
                let (value, slope) = value_and_grad(x, |x| (*w * *x * *x).sum());
                slope.sum() + value * 0.0
            })
        })
        .options(options);
        let (value, gradient) = penalty.call((Array::new([3], &[2.0_f32, 3.0, 4.0])?, x()))?;
        near(&value, &[2.0 * (2.0 - 6.0 + 2.0)]);
        near(&gradient, &[2.0, -4.0, 1.0]);
    }
    Ok(())
}

#[test]
fn gradients_of_executors_are_not_differentiated_again() -> Result<()> {
    let step = |options: Options| {
        jit(|(logits, target): (Tensor, Tensor)| {
            value_and_grad(logits, |logits| {
                let (loss, slope) = value_and_grad(*logits, |logits| cross_entropy(*logits, target));
                loss + (slope * slope).sum()
            })
        })
        .options(options)
    };
    let logits = Array::new([2, 3], &[0.1_f32, -0.4, 0.7, 1.2, 0.3, -0.8])?;
    let arguments = (logits, Array::new([2], &[2_i64, 0])?);
    let [default, plain] = lists();
    let (ours, expected) = (step(default).call(arguments.clone())?, step(plain).call(arguments)?);
    near(&ours.0, &expected.0.to_vec::<f32>()?);
    near(&ours.1, &expected.1.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn auxiliary_outputs_come_back_in_their_structure() -> Result<()> {
    for options in lists() {
        let step = jit(|(w, x): (Tensor, Tensor)| {
            let ((loss, (hidden, list)), gradient) = value_and_grad_aux(w, |w| {
                let hidden = *w * x;
                ((hidden * hidden).sum(), (hidden, vec![argmax(hidden), *w]))
            });
            (loss, hidden, list, gradient)
        })
        .options(options.clone());
        let (loss, hidden, list, gradient) = step.call((Array::new([3], &[2.0_f32, 3.0, 4.0])?, x()))?;
        near(&loss, &[4.0 + 36.0 + 4.0]);
        near(&hidden, &[2.0, -6.0, 2.0]);
        assert_eq!(list[0].to_vec::<i64>()?, [0]);
        near(&list[1], &[2.0, 3.0, 4.0]);
        near(&gradient, &[4.0, 24.0, 2.0]);
        // An auxiliary output of the inner function is differentiated like all that it gives.
        let nested = jit(|x: Tensor| {
            value_and_grad(x, |x| {
                let ((_, cube), slope) = value_and_grad_aux(*x, |x| ((*x * *x).sum(), *x * *x * *x));
                cube.sum() + slope.sum()
            })
        })
        .options(options);
        near(&nested.call(x())?.1, &[5.0, 14.0, 2.75]);
    }
    Ok(())
}

#[test]
fn a_function_that_fails_says_so_with_auxiliary_outputs_too() {
    let vector = jit(|x: Tensor| value_and_grad_aux(x, |x| (*x, *x)).0.1);
    let message = vector.call(x()).unwrap_err().to_string();
    assert!(message.contains("the function returned f32[3], expected a zero-dimensional"), "{message}");
    let wrong = jit(|x: Tensor| value_and_grad_aux(x, |x| ((*x + x.reshape([7])).sum(), *x)).0.1);
    let message = wrong.call(x()).unwrap_err().to_string();
    assert!(message.contains("reshape"), "{message}");
}

#[test]
fn composites_may_stand_for_derivatives() -> Result<()> {
    for options in lists() {
        let (cubes, slope) = jit(cubes_and_slope).options(options.clone()).call(x())?;
        near(&cubes, &[1.0 - 8.0 + 0.125]);
        near(&slope, &[3.0, 12.0, 0.75]);
        let second = jit(|x: Tensor| value_and_grad(x, |x| cubes_and_slope(*x).1.sum()).1).options(options);
        near(&second.call(x())?, &[6.0, -12.0, 3.0]);
    }
    Ok(())
}

#[test]
fn composites_without_a_body_are_differentiated_by_their_decomposition() -> Result<()> {
    let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[3]) {\n  \
                loss: f32[], grad.x: f32[3] = value_and_grad([x], wrt=[0]) {\n    (x: f32[3])\n    \
                softmax: f32[3] = softmax(x, dim=0, dtype=none)\n    sum: f32[] = prims::sum(softmax, dims=[0])\n    yield sum\n  }\n  \
                return loss, grad.x\n}\n";
    let (program, _) = compile(parse(text)?, &Options { verify: true, ..Options::default() })?;
    let outputs = program.run(vec![x()])?;
    near(&outputs[0], &[1.0]);
    near(&outputs[1], &[0.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn an_operator_without_a_second_derivative_is_named() {
    let twice = jit(|x: Tensor| {
        value_and_grad(x, |x| {
            let (_, slope) = value_and_grad(*x, |x| test_once(*x).sum());
            slope.sum()
        })
        .1
    });
    let error = twice.call(x()).unwrap_err();
    assert!(matches!(&error, Error::NoGradient { operator, .. } if operator == "test::slope_of_once"), "{error}");
    assert!(error.to_string().contains("nobody needed it yet"), "{error}");
}

use once::once as test_once;

/// A square whose slope is opaque.
#[operator(name = "test::once")]
pub mod once {
    use super::slope_of_once;

    fn once(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * input
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (input * input, move |d_out: Tensor| Grads { input: d_out * slope_of_once(input) })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

/// Twice the input.
#[operator(prim, name = "test::slope_of_once", no_grad = "nobody needed it yet")]
pub mod slope_of_once {
    fn slope_of_once(input: Tensor<Floating>) -> Tensor;

    fn scalar(input: Expr) -> Expr {
        input * 2.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * 2.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[test]
fn the_programs_of_a_function_take_any_cotangents() -> Result<()> {
    for options in lists() {
        let f = jit(|(w, x): (Tensor, Tensor)| {
            let hidden = tanh(w * x);
            ((hidden * hidden).sum(), hidden, argmax(hidden))
        })
        .arguments(["w", "x"])
        .results(["loss", "hidden", "best"])
        .options(options)
        .vjp();
        let w = Array::new([3], &[0.5_f32, 0.25, 1.0])?;
        let ((loss, hidden, best), pullback) = f.call((w.clone(), x()))?;
        let t: Vec<f32> = hidden.to_vec()?;
        near(&loss, &[t.iter().map(|t| t * t).sum()]);
        assert_eq!(best.to_vec::<i64>()?, [0]);
        let xs: Vec<f32> = x().to_vec()?;
        let slope = |i: usize| (1.0 - t[i] * t[i]) * xs[i];
        // Of one result, of the other, of both: the pullback may be called again.
        let of_loss = pullback.call([("loss", Array::new([], &[1.0_f32])?)])?;
        near(of_loss.of("w")?, &[0, 1, 2].map(|i| 2.0 * t[i] * slope(i)));
        let of_hidden = pullback.call([("hidden", Array::new([3], &[1.0_f32, 0.0, -2.0])?)])?;
        near(of_hidden.of("w")?, &[slope(0), 0.0, -2.0 * slope(2)]);
        let both = [("hidden", Array::new([3], &[1.0_f32, 0.0, -2.0])?), ("loss", Array::new([], &[0.5_f32])?)];
        let of_both = pullback.call(both)?;
        near(of_both.of("w")?, &[t[0] * slope(0) + slope(0), t[1] * slope(1), t[2] * slope(2) - 2.0 * slope(2)]);
        assert_eq!(of_both.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["w", "x"]);
        near(&of_loss.tree("w", w.clone())?, &of_loss.of("w")?.to_vec::<f32>()?);
        near(pullback.call(Vec::<(&str, Array)>::new())?.of("x")?, &[0.0, 0.0, 0.0]);
        // The arguments and the hyperbolic tangent are kept; the product and the squares are not.
        let saved: Vec<String> = f.compile(&(w, x()))?.saved().iter().map(|saved| saved.name.to_string()).collect();
        assert_eq!(saved.len(), 3, "{saved:?}");
        for name in ["w", "x", "tanh"] {
            assert!(saved.iter().any(|saved| saved == name), "{saved:?}");
        }
    }
    Ok(())
}

#[test]
fn chosen_arguments_and_results() -> Result<()> {
    let f = || {
        jit(|(w, x): (Tensor, Tensor)| ((w * x).sum(), w.exp(), argmax(x)))
            .arguments(["w", "x"])
            .results(["loss", "other", "best"])
            .vjp()
    };
    let arguments = || (x(), x());
    let one = || Array::new([], &[1.0_f32]);
    let chosen = f().with_respect_to("w").cotangents_of("loss");
    let unnamed = jit(|(w, x): (Tensor, Tensor)| (w * x).sum()).arguments(["w"]);
    let refused = unnamed.call(arguments()).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("has 2 arguments, and names for 1 of them: w"), "{refused}");
    let (_, pullback) = chosen.call(arguments())?;
    let gradients = pullback.call([("loss", one()?)])?;
    near(gradients.of("w")?, &[1.0, -2.0, 0.5]);
    // Only what that gradient needs is saved.
    let saved = chosen.compile(&arguments())?.saved();
    assert_eq!(saved.len(), 1, "{saved:?}");
    assert!(saved[0].argument && &*saved[0].name == "x", "{saved:?}");
    let message = |outcome: Result<_>| outcome.map(|_| ()).unwrap_err().to_string();
    for (error, expected) in [
        (
            message(gradients.of("x").map(|_| ())),
            "gradient 'x': no argument of that path has a gradient here, did you mean 'w'? There are: w\n  at ",
        ),
        (
            message(pullback.call([("other", x())]).map(|_| ())),
            "cotangent 'other': is of no result that has cotangents, there are: loss\n  at ",
        ),
        (message(pullback.call([("loss", x())]).map(|_| ())), "cotangent 'loss': is f32[3], expected f32[]\n  at "),
        (
            message(pullback.call([("loss", one()?), ("loss", one()?)]).map(|_| ())),
            "cotangent 'loss': is given twice\n  at ",
        ),
        (
            message(f().with_respect_to("wieght").call(arguments()).map(|_| ())),
            "argument 'wieght': no argument's path starts with it, there are: w, x\n  at ",
        ),
        (message(pullback.call([("lsos", x())]).map(|_| ())), ", did you mean 'loss'? There are: loss\n  at "),
        (message(f().cotangents_of("best").call(arguments()).map(|_| ())), "no floating-point tensor"),
    ] {
        assert!(error.contains(expected), "{error}\n  expected {expected}");
    }
    Ok(())
}

/// Views and numbers that the backward pass reads are made again from what is saved, and not saved themselves.
#[test]
fn views_and_numbers_are_not_saved() -> Result<()> {
    let f = jit(|(x, w): (Tensor, Tensor)| matmul(x.permute([1, 0]) * 0.5, w).exp().sum())
        .arguments(["x", "w"])
        .results(["loss"])
        .vjp();
    let arguments = || -> Result<_> {
        let values: Vec<f32> = (0..6).map(|i| i as f32 / 10.0).collect();
        Ok((Array::new([2, 3], &values)?, Array::new([2, 2], &values[..4])?))
    };
    let compiled = f.compile(&arguments()?)?;
    let block = &compiled.programs().forward[0].trace.block;
    for saved in compiled.saved() {
        let maker = block.symbols.iter().find(|line| line.results.iter().any(|id| block.value(*id).name == saved.name));
        let view = maker.and_then(|line| line.operator()).is_some_and(|def| LayoutRules::of(def).view.is_some());
        let number = maker.is_some_and(|line| line.operands().next().is_none());
        assert!(!view && !number, "{} is saved", saved.name);
    }
    let (_, pullback) = f.call(arguments()?)?;
    let gradients = pullback.call([("loss", Array::new([], &[1.0_f32])?)])?;
    let joint = jit(|(x, w): (Tensor, Tensor)| {
        value_and_grad((x, w), |(x, w)| matmul(x.permute([1, 0]) * 0.5, *w).exp().sum())
    });
    let (_, (x, w)) = joint.call(arguments()?)?;
    near(gradients.of("x")?, &x.to_vec::<f32>()?);
    near(gradients.of("w")?, &w.to_vec::<f32>()?);
    Ok(())
}

/// What backward reads of the arguments are the arguments themselves, which may be views of memory in another order.
#[test]
fn arguments_that_are_saved_have_any_strides() -> Result<()> {
    for options in lists() {
        let f = jit(|(x, w): (Tensor, Tensor)| (x * w).sum())
            .arguments(["x", "w"])
            .results(["loss"])
            .options(options)
            .vjp();
        let x = Array::new([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
        let w = Array::new([3, 2], &[1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0])?.permute(&[1, 0])?;
        let (_, pullback) = f.call((x, w))?;
        let gradients = pullback.call([("loss", Array::new([], &[1.0_f32])?)])?;
        near(gradients.of("x")?, &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        near(gradients.of("w")?, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
    Ok(())
}

/// Kernels without gradients.
#[executor(device = "cpu")]
pub mod silent {}

/// Kernels with gradients, for vectors of even length.
#[executor(device = "cpu")]
pub mod loud {}

/// `input² + 1`.
#[operator(name = "test::square_plus_one")]
pub mod square_plus_one {
    fn square_plus_one(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * input + 1.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x * x + 1.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[implementation(of = square_plus_one, by = silent)]
mod square_plus_one_by_silent {
    fn checker(_input: &TensorMeta) -> Claim {
        Ok(())
    }

    fn execution(input: Tensor) -> Tensor {
        1.0 + input * input
    }
}

#[implementation(of = square_plus_one, by = loud)]
mod square_plus_one_by_loud {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.len().is_multiple_of(2), "takes an even number of elements, input has {}", input.len());
        Ok(())
    }

    fn execution(input: Tensor) -> Tensor {
        1.0 + input * input
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (1.0 + input * input, move |d_out: Tensor| Grads { input: d_out * (input + input) })
    }
}

/// The trace and `explain` name the source of the gradient rule of a call, and why others did not supply it.
#[test]
fn who_supplied_a_gradient_rule_is_said() -> Result<()> {
    let compiled = |executors: &[&str], length: usize| {
        let step = jit(|x: Tensor| value_and_grad(x, |x| square_plus_one(*x).sum()))
            .options(Options { verify: true, ..Options::default() }.with_executors(executors)?);
        step.compile(&Array::new([length], &vec![1.0_f32; length])?)
    };
    let silence = "its implementation has no `grad`, so it takes no part where this is differentiated; ";
    for (executors, length, from, refusals) in [
        (&["silent", "reference"][..], 4, "its decomposition is differentiated", &[("silent", silence)][..]),
        (&["silent", "loud", "reference"], 4, "the gradient rule is that of loud", &[("silent", silence)]),
        (&["loud", "silent", "reference"], 4, "the gradient rule is that of loud", &[]),
        (
            &["silent", "loud", "reference"],
            3,
            "its decomposition is differentiated",
            &[("loud", "takes an even number of elements, input has 3"), ("silent", silence)],
        ),
    ] {
        let compiled = compiled(executors, length)?;
        let explained = compiled.explain();
        assert!(explained.contains(&format!("square_plus_one: test::square_plus_one; {from}\n")), "{explained}");
        let trace = compiled.stage("autodiff").map(ToString::to_string).unwrap_or_default();
        // Long reasons go on in the next line.
        let trace = trace.split(" \\\n").map(str::trim_start).collect::<Vec<&str>>().join(" ");
        assert_eq!(trace.matches("refused by").count(), refusals.len(), "{trace}");
        for (executor, reason) in refusals {
            assert!(explained.contains(&format!("  not {executor}: {reason}")), "{explained}");
            assert!(trace.contains(&format!("refused by {executor}: \"test::square_plus_one: {reason}")), "{trace}");
        }
    }
    Ok(())
}

/// Where the operator's own rule calls the operator, its executors run it forward: nothing is to be said.
#[test]
fn calls_that_stay_are_not_explained() -> Result<()> {
    let step = jit(|x: Tensor| value_and_grad(x, |x| tanh(*x).sum()));
    let compiled = step.compile(&x())?;
    assert!(!compiled.explain().contains("has no `grad`"), "{}", compiled.explain());
    Ok(())
}
