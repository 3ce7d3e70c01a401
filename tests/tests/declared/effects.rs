//! Declared effects through all passes: draws from one generator differ and are reproducible, collectives keep their
//! order.

use std::sync::Mutex;

use fulgurite_executors as _;
use fulgurite_ops::prelude::{dropout, sum};
use fulgurite_ops::prims;
use fulgurite_ops_macros::{executor, operator};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::{value_and_grad, value_and_grad_aux};
use fulgurite_runtime::{Array, Tensor};

/// Runs the symbols of this file.
#[executor(device = "cpu")]
pub mod effective {}

/// First elements of what collectives were called with, in order.
static CALLS: Mutex<Vec<f32>> = Mutex::new(Vec::new());

/// As if it were added over all processes.
#[operator(executor = effective, effects(collective), no_grad = "of no interest here")]
pub mod reduce_all {
    fn reduce_all(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values = fulgurite_kernels::access::read_f64(&input);
        super::CALLS.lock().unwrap().push(values[0] as f32);
        fulgurite_kernels::access::write_f64(out, &values);
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }
}

/// Twice dropout of half of the elements, each added to the other.
#[operator(effects(random))]
pub mod drop_twice {
    fn drop_twice(input: Tensor<Floating>, generator: Tensor<Integer>) -> Tensor;

    fn decomposition(input: Tensor, generator: Tensor) -> Tensor {
        let drop = || fulgurite_ops::nn::dropout::with(input).p(0.5).generator(generator).call();
        drop() + drop() * 3.0
    }

    fn samples(s: &mut Samples) {
        if s.dtype().is_floating() {
            s.case(with(s.normal([3]), s.integers(0, 9, [2])));
        }
    }
}

/// The input plus one draw, and plus another; the gradient is multiplied by a third.
#[operator(effects(random))]
pub mod noisy {
    use fulgurite_ops::prims::uniform;

    #[results(first, second)]
    fn noisy(input: Tensor<Floating>, generator: Tensor<Integer>) -> (Tensor, Tensor);

    fn decomposition(input: Tensor, generator: Tensor) -> (Tensor, Tensor) {
        let draw = || uniform(input.shape(), 0.0, 1.0, input.dtype(), generator);
        (input + draw(), input + draw())
    }

    fn grad(input: Tensor, generator: Tensor) -> ((Tensor, Tensor), impl FnOnce((Tensor, Tensor)) -> Grads) {
        let draw = move || uniform(input.shape(), 0.0, 1.0, input.dtype(), generator);
        let results = (input + draw(), input + draw());
        (results, move |(d_first, d_second): (Tensor, Tensor)| Grads { input: (d_first + d_second) * draw() })
    }

    fn samples(s: &mut Samples) {
        if s.dtype().is_floating() {
            s.case(with(s.normal([3]), s.integers(0, 9, [2])));
        }
    }
}

fn ones() -> Array {
    Array::new([64], &[1.0_f32; 64]).unwrap()
}

fn generator(seed: i64) -> Array {
    Array::new([2], &[seed, 5_i64]).unwrap()
}

fn drop(x: Tensor, generator: Tensor) -> Tensor {
    dropout::with(x).p(0.5).generator(generator).call()
}

fn values(arrays: Vec<Array>) -> Vec<Vec<f32>> {
    arrays.iter().map(|array| array.to_vec().unwrap()).collect()
}

#[test]
fn two_draws_from_one_generator_differ_and_are_reproducible() {
    let run = |options: Options, seed: i64| {
        let f = jit(|(x, g): (Tensor, Tensor)| vec![drop(x, g), drop(x, g), drop(x, g)]).options(options);
        values(f.call((ones(), generator(seed))).unwrap())
    };
    let drawn = run(Options::default(), 1);
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2], "{drawn:?}");
    assert_eq!(run(Options::default(), 1), drawn, "the same program and seed give the same numbers");
    let apart = Options { fuse: false, recompute: None, ..Options::default() };
    assert_eq!(run(apart, 1), drawn, "whatever transforms do");
    assert_ne!(run(Options::default(), 2)[1], drawn[1]);
    // The first is that of one call alone, and a draw that nobody reads counts.
    let first = jit(|(x, g): (Tensor, Tensor)| vec![drop(x, g)]);
    assert_eq!(values(first.call((ones(), generator(1))).unwrap())[0], drawn[0]);
    let third = jit(|(x, g): (Tensor, Tensor)| {
        drop(x, g);
        drop(x, g);
        vec![drop(x, g)]
    });
    assert_eq!(values(third.call((ones(), generator(1))).unwrap())[0], drawn[2]);
    // Numbers by themselves.
    let numbers = jit(|g: Tensor| {
        let draw = || prims::uniform([64], 0.0, 1.0, fulgurite_runtime::DType::F32, g);
        vec![draw(), draw()]
    });
    let numbers = values(numbers.call(generator(1)).unwrap());
    assert_ne!(numbers[0], numbers[1]);
}

#[test]
fn a_composite_that_draws_twice_draws_four_times_in_two_calls() {
    let f = jit(|(x, g): (Tensor, Tensor)| vec![drop_twice(x, g), drop_twice(x, g)]);
    let drawn = values(f.call((ones(), generator(3))).unwrap());
    // 2 of the first, 6 of the second: 0, 2, 6 or 8.
    let kept = |call: &[f32]| -> [Vec<bool>; 2] {
        [call.iter().map(|v| *v == 2.0 || *v == 8.0).collect(), call.iter().map(|v| *v >= 6.0).collect()]
    };
    assert!(drawn.iter().flatten().all(|v| [0.0, 2.0, 6.0, 8.0].contains(v)), "{drawn:?}");
    let masks: Vec<Vec<bool>> = drawn.iter().flat_map(|call| kept(call)).collect();
    for (i, mask) in masks.iter().enumerate() {
        assert!(masks[..i].iter().all(|other| other != mask), "draw {i} repeats an earlier one: {masks:?}");
    }
}

#[test]
fn gradients_are_of_what_was_drawn() {
    // The draw inside is the second from this generator; its gradient has the same zeros.
    let f = jit(|(x, g): (Tensor, Tensor)| {
        let outside = drop(x, g);
        let (_, gradient) = value_and_grad(x, |x| sum(drop(*x, g)));
        let (_, again) = value_and_grad(x, |x| sum(drop(*x, g)));
        vec![outside, gradient, again]
    });
    let drawn = values(f.call((ones(), generator(1))).unwrap());
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2], "{drawn:?}");
    let second = jit(|(x, g): (Tensor, Tensor)| {
        drop(x, g);
        vec![drop(x, g)]
    });
    assert_eq!(values(second.call((ones(), generator(1))).unwrap())[0], drawn[1]);
}

/// A gradient rule is traced into the program, where calls before and after it draw from the same generator.
#[test]
fn what_a_gradient_rule_draws_is_drawn_once() {
    let number = |g: Tensor| prims::uniform([64], 0.0, 1.0, fulgurite_runtime::DType::F32, g);
    let with_gradients = |options: Options| {
        let f = jit(move |(x, g): (Tensor, Tensor)| {
            let before = number(g);
            let half = |x: &Tensor| {
                let (first, second) = noisy(*x, g);
                ((sum(first) + sum(second)) * 0.5, (first, second))
            };
            let ((_, (first, second)), third) = value_and_grad_aux(x, half);
            let ((_, (fourth, fifth)), sixth) = value_and_grad_aux(x, half);
            vec![before, first, second, third, fourth, fifth, sixth, number(g)]
        });
        let zeros = Array::new([64], &[0.0_f32; 64]).unwrap();
        values(f.options(options).call((zeros, generator(1))).unwrap())
    };
    let drawn = with_gradients(Options::default());
    for (i, numbers) in drawn.iter().enumerate() {
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)), "draw {i}: {numbers:?}");
        assert!(drawn[..i].iter().all(|other| other != numbers), "draw {i} repeats an earlier one");
    }
    assert_eq!(with_gradients(Options::default()), drawn, "the same program and seed give the same numbers");
    let apart = Options { fuse: false, recompute: None, ..Options::default() };
    assert_eq!(with_gradients(apart), drawn, "whatever transforms do");
    // Without gradients the decomposition is run, and draws the same.
    let without = jit(move |(x, g): (Tensor, Tensor)| {
        let before = number(g);
        let ((first, second), (fourth, fifth)) = (noisy(x, g), noisy(x, g));
        vec![before, first, second, fourth, fifth, number(g)]
    });
    let zeros = Array::new([64], &[0.0_f32; 64]).unwrap();
    let without = values(without.call((zeros, generator(1))).unwrap());
    let own = [0, 1, 2, 4, 5, 7].map(|i| drawn[i].clone());
    assert_eq!(without, own);
}

#[test]
fn collectives_keep_their_order() {
    for fuse in [true, false] {
        let f = jit(|(x, y): (Tensor, Tensor)| {
            let a = prims::exp(x) * 10.0;
            // Reads the region that starts above; the next does not, and is not drawn before it.
            let first = reduce_all(a);
            let second = reduce_all(y);
            let third = reduce_all(y);
            reduce_all(prims::neg(y));
            vec![prims::add(prims::add(prims::neg(a), prims::abs(a)), y), first, prims::add(second, third)]
        })
        .options(Options { fuse, verify: true, ..Options::default() });
        let x = Array::new([4], &[0.0_f32; 4]).unwrap();
        let y = Array::new([4], &[2.0_f32; 4]).unwrap();
        CALLS.lock().unwrap().clear();
        f.call((x, y)).unwrap();
        // None is merged, dropped, or overtaken.
        assert_eq!(*CALLS.lock().unwrap(), [10.0, 2.0, 2.0, -2.0], "fuse: {fuse}");
    }
}
