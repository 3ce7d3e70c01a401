//! An index out of range on a device is an error for readers of values that depend on it, and for no others.

use fulgurite_ops::prelude::*;
use fulgurite_runtime::jit::Jit;
use fulgurite_runtime::{Array, DType, Device, Error, Tensor, jit};

use super::on;
use crate::device;

fn look_up(cuda: Device) -> Jit<(Array, Array), Tensor, impl Fn((Tensor, Tensor)) -> Tensor> {
    jit(|(indices, weight): (Tensor, Tensor)| embedding(indices, weight)).options(on(cuda))
}

fn weight() -> Array {
    Array::new([3, 2], &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()
}

fn indices(last: i64) -> Array {
    Array::new([2], &[2, last]).unwrap()
}

fn values(last: i64) -> [f32; 4] {
    [4.0, 5.0, 2.0 * last as f32, 2.0 * last as f32 + 1.0]
}

fn assert_faulted<T: std::fmt::Debug>(read: Result<T, Error>, index: i64) {
    let error = read.unwrap_err();
    let Error::Run { failure, .. } = &error else { panic!("{error}") };
    assert_eq!(failure.code, "IndexOutOfRange");
    let text = error.to_string();
    assert!(text.contains(&format!("holds {index}, expected 0 to below 3")), "{text}");
    assert!(text.contains("ind") && text.contains("embedding"), "names operator and argument: {text}");
}

#[test]
fn an_index_out_of_range_is_the_error_of_every_read_of_its_results_and_of_no_other() {
    let Some(cuda) = device::cuda() else { return };
    let (first, second) = (look_up(cuda), look_up(cuda));
    // Before and after a graph is recorded.
    for round in 0..4 {
        let bad = first.call((indices(7), weight())).unwrap();
        let after = first.call((indices(1), weight())).unwrap();
        let other = second.call((indices(0), weight())).unwrap();
        let other_bad = second.call((indices(-1), weight())).unwrap();
        // The first wait does not return errors of other runs.
        assert_eq!(other.to_vec::<f32>().unwrap(), values(0), "round {round}");
        assert_eq!(after.to_vec::<f32>().unwrap(), values(1), "round {round}");
        for _ in 0..2 {
            assert_faulted(bad.to_vec::<f32>(), 7);
            assert_faulted(bad.to_host(), 7);
            assert_faulted(bad.permute(&[1, 0]).unwrap().to_vec::<f32>(), 7);
            assert_faulted(bad.to_device(Device::CPU), 7);
            assert_faulted(other_bad.to_vec::<f32>(), -1);
        }
        let again = first.call((indices(0), weight())).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap(), values(0), "a later correct run is not blamed");
    }
}

/// Classes are drawn by weights; what nothing can be drawn by is no class.
#[test]
fn weights_that_nothing_can_be_drawn_by_are_an_error_of_those_who_read() {
    let Some(cuda) = device::cuda() else { return };
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
        let draw = jit(|(weights, generator): (Tensor, Tensor)| {
            multinomial::with(weights, 3, generator).replacement(true).call() + 0_i64
        })
        .options(on(cuda));
        let generator = Array::new([2], &[5_i64, 0]).unwrap();
        let call = |second: [f64; 3]| {
            let rows: Vec<f64> = [[0.0, 0.5, 0.0], second, [2.0, 0.0, 0.0]].concat();
            let weights = Array::from_f64([3, 3], dtype, &rows).unwrap();
            draw.call((weights, generator.clone())).unwrap()
        };
        // Before and after a graph is recorded.
        for round in 0..3 {
            for wrong in
                [[0.5, f64::NAN, 0.5], [0.5, -0.25, 0.5], [0.0; 3], [0.0, -0.0, 0.0], [1.0, f64::INFINITY, 1.0]]
            {
                let (bad, good) = (call(wrong), call([0.0, 0.0, 0.25]));
                let error = bad.to_vec::<i64>().unwrap_err();
                let Error::Run { failure, .. } = &error else { panic!("{error}") };
                assert_eq!(failure.code, "Weights", "{dtype}, round {round}, {wrong:?}");
                let text = error.to_string();
                assert!(text.contains("row 1 of the weights") && text.contains("multinomial"), "{text}");
                assert_eq!(good.to_vec::<i64>().unwrap(), [1, 1, 1, 2, 2, 2, 0, 0, 0], "{dtype}, round {round}");
            }
        }
    }
}

#[test]
fn what_is_computed_from_a_faulted_run_is_no_number_either() {
    let Some(cuda) = device::cuda() else { return };
    let first = look_up(cuda);
    let add = jit(|(x, y): (Tensor, Tensor)| x + y).options(on(cuda));
    let count = jit(|(x, total): (Tensor, Tensor)| total + sum(x)).donate("arg1").options(on(cuda));
    let zeros = || Array::zeros_on(cuda, [2, 2], DType::F32).unwrap();
    let mut total = Array::zeros_on(cuda, [], DType::F32).unwrap();
    let mut sound = Array::zeros_on(cuda, [], DType::F32).unwrap();
    for round in 0..4 {
        let good = first.call((indices(1), weight())).unwrap();
        let bad = first.call((indices(9 + round), weight())).unwrap();
        let sum_of_bad = add.call((add.call((bad, zeros())).unwrap(), good.clone())).unwrap();
        let sum_of_good = add.call((good.clone(), zeros())).unwrap();
        total = count.call((sum_of_bad.clone(), total)).unwrap();
        sound = count.call((sum_of_good.clone(), sound)).unwrap();
        assert_eq!(sum_of_good.to_vec::<f32>().unwrap(), values(1));
        assert_faulted(sum_of_bad.to_vec::<f32>(), 9 + round);
    }
    // The first of them.
    assert_faulted(total.item(), 9);
    assert_eq!(sound.item().unwrap(), f64::from(4.0 * values(1).iter().sum::<f32>()));
}

#[test]
fn hundreds_of_runs_that_nobody_waits_for_are_told_apart() {
    let Some(cuda) = device::cuda() else { return };
    let run = look_up(cuda);
    let bad = |i: i64| i % 37 == 5;
    let outputs: Vec<Array> =
        (0..300).map(|i| run.call((indices(if bad(i) { 100 + i } else { i % 3 }), weight())).unwrap()).collect();
    for (i, output) in outputs.iter().enumerate().rev() {
        let i = i as i64;
        match bad(i) {
            true => assert_faulted(output.to_vec::<f32>(), 100 + i),
            false => assert_eq!(output.to_vec::<f32>().unwrap(), values(i % 3), "run {i}"),
        }
    }
}

#[test]
fn threads_are_told_of_their_own_faults_alone() {
    let Some(cuda) = device::cuda() else { return };
    let compiled = look_up(cuda).compile(&(indices(0), weight())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let compiled = compiled.clone();
            scope.spawn(move || {
                for round in 0..100_i64 {
                    let bad = (round + thread) % 3 == 0;
                    let last = if bad { 1000 * thread + round + 3 } else { round % 3 };
                    let output = compiled.program().run(vec![indices(last), weight()]).unwrap().remove(0);
                    match bad {
                        true => assert_faulted(output.to_vec::<f32>(), last),
                        false => assert_eq!(output.to_vec::<f32>().unwrap(), values(last)),
                    }
                }
            });
        }
    });
}
