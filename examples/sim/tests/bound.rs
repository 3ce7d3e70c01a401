//! States that a function of a device updates call after call: the same as by calls that are given the state, whatever
//! happens in between.

use std::sync::Mutex;

use fulgurite::compile::Options;
use fulgurite::device::{DeviceState, HostTime};
use fulgurite::jit::{Bound, Jit};
use fulgurite::ops::prelude::*;
use fulgurite::registration::Transform;
use fulgurite::tree::Tree;
use fulgurite::{Array, DType, Device, Result, Tensor, jit};
use fulgurite_example_sim as _;
use fulgurite_models::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::step::{BatchTensors, Guard, StepScalars, TrainState, guarded_step};
use fulgurite_models::train::{initial_parameters, step_scalars, zeros};

/// Arrays of the state.
const ARRAYS: usize = 5;

type Arguments<T> = (Vec<T>, T, T);
type Step = Jit<Arguments<Array>, (Vec<Tensor>, Tensor), fn(Arguments<Tensor>) -> (Vec<Tensor>, Tensor)>;
type State = Bound<Vec<Tensor>, Tensor>;

/// What one registers concerns all programs of the process, and a timeline has all that its device does.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn update((state, rate, batch): Arguments<Tensor>) -> (Vec<Tensor>, Tensor) {
    let loss = state.iter().map(|array| sum(*array * batch)).reduce(|a, b| a + b);
    let updated = state.iter().map(|array| *array * 0.5 + batch * rate).collect();
    (updated, loss.expect("the state has arrays"))
}

fn options() -> Options {
    Options { device: Some(Device::new("sim", 0)), ..Options::default() }
}

fn step() -> Step {
    jit(update as fn(_) -> _)
        .named("step")
        .arguments(["state", "rate", "batch"])
        .results(["state", "loss"])
        .donate("state")
        .options(options())
}

fn initial() -> Vec<Array> {
    let array = |at: usize| Array::new([4], &[at as f32, 0.25, -1.5, 3.0 / (at + 1) as f32]).unwrap();
    (0..ARRAYS).map(array).collect()
}

/// The other arguments of call `number`.
fn others(number: usize) -> (Array, Array) {
    let batch = [number as f32, 0.1 * number as f32, -1.0, 1.0 / (number + 1) as f32];
    (Array::new([4], &[1.0 / (number + 2) as f32; 4]).unwrap(), Array::new([4], &batch).unwrap())
}

fn values(state: &[Array]) -> Vec<Vec<f32>> {
    state.iter().map(|array| array.to_vec().unwrap()).collect()
}

/// Results and states after each of so many calls that are given the state.
fn called(count: usize) -> Vec<(f64, Vec<Vec<f32>>)> {
    let (step, mut state) = (step(), initial());
    let one = |number: usize| {
        let (rate, batch) = others(number);
        let (updated, loss) = step.call((std::mem::take(&mut state), rate, batch)).unwrap();
        let told = (loss.item().unwrap(), values(&updated));
        state = updated;
        told
    };
    (0..count).map(one).collect()
}

fn loss_of(step: &Step, state: &mut State, number: usize) -> Result<f64> {
    step.call_bound(state, others(number))?.item()
}

#[test]
fn bound_calls_give_the_same_bits() {
    let _alone = alone();
    let (expected, step) = (called(8), step());
    let mut state = State::new(initial());
    assert!(!state.is_bound());
    let mut losses = Vec::new();
    for number in 0..8 {
        // Nobody reads one before the next is enqueued.
        losses.push(step.call_bound(&mut state, others(number)).unwrap());
        assert!(state.is_bound(), "after call {number}");
    }
    let losses: Vec<f64> = losses.iter().map(|loss| loss.item().unwrap()).collect();
    assert_eq!(losses, expected.iter().map(|(loss, _)| *loss).collect::<Vec<_>>());
    assert_eq!(values(&state.into_inner().unwrap()), expected[7].1);
    assert_eq!(step.compiles(), 1);
    let counts = step.compile(&(initial(), others(0).0, others(0).1)).unwrap().program().counts().unwrap();
    assert_eq!((counts.runs, counts.graphs, counts.replays, counts.updates), (8, 1, 7, 0));
}

/// What is read in between has the values of that time, and the next calls go on.
#[test]
fn the_state_is_read_between_calls() {
    let _alone = alone();
    let (expected, step) = (called(6), step());
    let mut state = State::new(initial());
    for (number, (loss, after)) in expected.iter().enumerate() {
        assert_eq!(loss_of(&step, &mut state, number).unwrap(), *loss);
        if number % 2 == 1 {
            assert_eq!(values(state.get().unwrap()), *after);
            assert!(!state.is_bound());
        }
    }
    // Taken out, and bound again: to the same function or to another one of the same code.
    let taken = state.into_inner().unwrap();
    let (again, mut state) = (self::step(), State::new(taken));
    let all = called(9);
    for (number, (loss, _)) in all.iter().enumerate().skip(6) {
        let by = if number == 7 { &step } else { &again };
        assert_eq!(loss_of(by, &mut state, number).unwrap(), *loss);
    }
    assert_eq!(values(state.get().unwrap()), all[8].1);
}

#[test]
fn a_part_of_the_state_that_somebody_holds_is_not_overwritten() {
    let _alone = alone();
    let step = step();
    let message = |error: fulgurite::Error| error.to_string();
    let plain = {
        let mut state = initial();
        for number in 0..3 {
            let (rate, batch) = others(number);
            state = step.call((state, rate, batch)).unwrap().0;
        }
        let held = state[2].clone();
        let (rate, batch) = others(3);
        let error = message(step.call((state, rate, batch)).unwrap_err());
        (error, held.to_vec::<f32>().unwrap())
    };
    let mut state = State::new(initial());
    for number in 0..3 {
        step.call_bound(&mut state, others(number)).unwrap();
    }
    let held = state.get().unwrap()[2].clone();
    let error = message(step.call_bound(&mut state, others(3)).unwrap_err());
    assert!(error.contains("state.2") && error.contains("another array still shares its memory"), "{error}");
    assert_eq!((error, held.to_vec::<f32>().unwrap()), plain);
    // The state went with the call, as it does where it is an argument.
    let error = message(step.call_bound(&mut state, others(4)).unwrap_err());
    assert!(error.contains("state") && error.contains("a call that failed"), "{error}");
    assert!(state.get().is_err() && state.into_inner().is_err());
    // One that was let go of by then is no hindrance.
    let mut state = State::new(initial());
    for number in 0..4 {
        step.call_bound(&mut state, others(number)).unwrap();
        let held = state.get().unwrap()[0].clone();
        assert!(held.to_f64().is_ok());
    }
    step.call_bound(&mut state, others(4)).unwrap();
    assert_eq!(values(state.get().unwrap()), called(5)[4].1);
}

/// Other forms, another call of the function, and other registrations in between.
#[test]
fn what_is_not_as_before_goes_the_usual_way() {
    let _alone = alone();
    let (expected, step) = (called(9), step());
    let mut state = State::new(initial());
    let mut check = |number: usize| {
        assert_eq!(loss_of(&step, &mut state, number).unwrap(), expected[number].0, "call {number}");
        assert!(state.is_bound(), "after call {number}");
    };
    (0..3).for_each(&mut check);
    // Another form, by another state.
    let (rate, batch) = (Array::new([4], &[0.5_f32; 4]).unwrap(), Array::new([2, 4], &[1.0_f32; 8]).unwrap());
    let wide = vec![Array::new([2, 4], &[2.0_f32; 8]).unwrap()];
    step.call((wide, rate, batch)).unwrap();
    assert_eq!(step.compiles(), 2);
    (3..5).for_each(&mut check);
    // The same form with other addresses.
    let (rate, batch) = others(0);
    let (other, _) = step.call((initial(), rate, batch)).unwrap();
    (5..7).for_each(&mut check);
    assert_eq!(values(&other), expected[0].1);
    let registered = Transform::build("nothing", |trace| Ok(trace.clone())).register().unwrap();
    check(7);
    assert_eq!(step.compiles(), 3);
    registered.withdraw().unwrap();
    check(8);
    assert_eq!(values(state.get().unwrap()), expected[8].1);
    // A form that the function refuses, with a state that is bound: the error is that of a call.
    let mut state = State::new(initial());
    step.call_bound(&mut state, others(0)).unwrap();
    assert!(state.is_bound());
    let refused = (Array::new([4], &[1.0_f32; 4]).unwrap(), Array::new([3], &[1.0_f32; 3]).unwrap());
    let error = step.call_bound(&mut state, refused.clone()).unwrap_err().to_string();
    assert_eq!(error, step.call((initial(), refused.0, refused.1)).unwrap_err().to_string());
    assert!(state.get().is_err());
}

/// A shape that the function takes as well: the state is broadcast, and no longer comes back in its place.
#[test]
fn other_shapes_are_compiled_and_bound_if_they_can_be() {
    let _alone = alone();
    let step = step();
    let state = || vec![Array::new([4], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap()];
    let wide = || (Array::new([4], &[0.5_f32; 4]).unwrap(), Array::new([2, 4], &[1.0_f32; 8]).unwrap());
    let expected = {
        let (rate, batch) = others(1);
        let (state, _) = step.call((state(), rate, batch)).unwrap();
        let (rate, batch) = wide();
        let (state, loss) = step.call((state, rate, batch)).unwrap();
        (loss.item().unwrap(), values(&state))
    };
    let mut bound = State::new(state());
    step.call_bound(&mut bound, others(1)).unwrap();
    assert!(bound.is_bound());
    let loss = step.call_bound(&mut bound, wide()).unwrap();
    // [2, 4] is no place for [4].
    assert!(!bound.is_bound());
    assert_eq!((loss.item().unwrap(), values(bound.get().unwrap())), expected);
    // From now on the state has the form of its results.
    step.call_bound(&mut bound, wide()).unwrap();
    assert!(bound.is_bound());
}

#[test]
fn functions_that_do_not_update_in_place_are_called_as_always() {
    let _alone = alone();
    let expected = called(4);
    let kept = jit(update as fn(_) -> _).options(options());
    let host =
        jit(update as fn(_) -> _).arguments(["state", "rate", "batch"]).results(["state", "loss"]).donate("state");
    for step in [kept, host] {
        let mut state = State::new(initial());
        for (number, (loss, after)) in expected.iter().enumerate() {
            let found = loss_of(&step, &mut state, number).unwrap();
            assert!((found - loss).abs() < 1e-5, "{found}, expected {loss}");
            assert!(!state.is_bound());
            for (found, expected) in values(state.get().unwrap()).iter().flatten().zip(after.iter().flatten()) {
                assert!((found - expected).abs() < 1e-5);
            }
        }
    }
}

/// A part of the state that comes back as it came need not be the caller's alone.
#[test]
fn a_part_that_stays_may_be_shared() {
    let _alone = alone();
    let frozen = |((weight, mean), x): ((Tensor, Tensor), Tensor)| ((weight, mean * 0.5 + x), sum(weight * x));
    let step: Jit<((Array, Array), Array), _, _> =
        jit(frozen).arguments(["state", "x"]).results(["state", "out"]).donate("state.1").options(options());
    let array = |value: f32| Array::new([3], &[value; 3]).unwrap();
    let weight = array(2.0).to_device(Device::new("sim", 0)).unwrap();
    let mut state = Bound::new((weight.clone(), array(8.0)));
    for _ in 0..3 {
        let out = step.call_bound(&mut state, (array(1.0),)).unwrap();
        assert_eq!(out.item().unwrap(), 6.0);
        assert!(state.is_bound());
    }
    let (same, mean) = state.into_inner().unwrap();
    assert!(same.shares_memory(&weight));
    assert_eq!(mean.to_vec::<f32>().unwrap(), [2.75; 3]);
}

/// Data that a kernel refuses is the same error, and the state is gone as an argument would be.
#[test]
fn a_call_that_fails_takes_the_state_with_it() {
    let _alone = alone();
    let look_up = |(table, index): (Tensor, Tensor)| {
        let row = embedding(index, table);
        (table * 1.0 + sum(row) * 0.0, sum(row))
    };
    let step = || -> Jit<(Array, Array), _, _> {
        jit(look_up)
            .named("look_up")
            .arguments(["table", "index"])
            .results(["table", "row"])
            .donate("table")
            .options(options())
    };
    let table = || Array::new([3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let index = |at: i64| Array::new([1], &[at]).unwrap();
    let texts = |bound: bool| -> Vec<String> {
        let (step, mut state, mut plain) = (step(), Bound::new(table()), table());
        let mut told = Vec::new();
        for at in [0, 1, 9, 2] {
            let out = match bound {
                true => step.call_bound(&mut state, (index(at),)),
                false => step.call((std::mem::replace(&mut plain, table()), index(at))).map(|(table, out)| {
                    plain = table;
                    out
                }),
            };
            let out = out.and_then(|out| out.item());
            if out.is_err() {
                // It went with the call.
                assert!(!bound || state.get().is_err());
                state = Bound::new(table());
            }
            told.push(out.map_or_else(|error| error.to_string(), |value| value.to_string()));
        }
        let state = if bound { state.into_inner().unwrap() } else { plain };
        told.push(state.to_f64().map_or_else(|error| error.to_string(), |values| format!("{values:?}")));
        told
    };
    let (bound, plain) = (texts(true), texts(false));
    assert_eq!(bound, plain);
    assert!(bound[2].contains("9") && bound[0] == "3", "{bound:?}");
}

/// The memory of a state that is dropped is there for the next one.
#[test]
fn memory_is_given_back() {
    let _alone = alone();
    let step = step();
    let device = DeviceState::of(Device::new("sim", 0)).unwrap();
    let held = || {
        device.memory_free();
        device.context().memory_held().now
    };
    let mut before = None;
    for _ in 0..3 {
        let mut state = State::new(initial());
        for number in 0..4 {
            step.call_bound(&mut state, others(number)).unwrap();
        }
        drop(state);
        let now = held();
        assert_eq!(*before.get_or_insert(now), now);
    }
}

/// Several threads call one function, each with a state of its own.
#[test]
fn threads_have_states_of_their_own() {
    let _alone = alone();
    let (expected, step) = (called(12), step());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut state = State::new(initial());
                for (number, (loss, _)) in expected.iter().enumerate() {
                    assert_eq!(loss_of(&step, &mut state, number).unwrap(), *loss);
                }
                assert_eq!(values(state.get().unwrap()), expected[11].1);
            });
        }
    });
    assert_eq!(step.compiles(), 1);
}

#[test]
fn a_timeline_has_bound_runs() {
    let _alone = alone();
    let (step, mut state) = (step(), State::new(initial()));
    for number in 0..2 {
        step.call_bound(&mut state, others(number)).unwrap();
    }
    let device = DeviceState::of(Device::new("sim", 0)).unwrap();
    device.begin_timeline().unwrap();
    step.call_bound(&mut state, others(2)).unwrap();
    step.call_bound(&mut state, others(3)).unwrap();
    let timeline = device.end_timeline().unwrap();
    assert_eq!(timeline.iter().filter(|activity| activity.what == "step").count(), 2, "{timeline:?}");
}

/// The step that `train` takes, of parameters and moments that begin on the host.
#[test]
fn a_training_step_is_bound() {
    let _alone = alone();
    let (config, optimizer) = (GptConfig::named("nano", 256).unwrap(), OptimizerSettings::default());
    type Arguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>, T);
    let function = |(state, batch, scalars, previous): Arguments<Tensor>| {
        let guard = Guard { measure: false, previous: Some(previous) };
        guarded_step(&config, &optimizer, state, batch, scalars, guard)
    };
    let step: Jit<Arguments<Array>, _, _> = jit(function)
        .arguments(["state", "batch", "scalars", "previous"])
        .results(["state", "report"])
        .donate("state")
        .options(Options { verify: false, ..options() });
    let state = || {
        let moments = || zeros(&config, DType::F32, Device::new("sim", 0)).unwrap();
        TrainState {
            params: initial_parameters(&config, 3).unwrap(),
            exp_avg: moments(),
            exp_avg_sq: moments(),
            copies: fulgurite_models::Parameters::none(),
            buffers: fulgurite_models::Parameters::none(),
        }
    };
    let others = |number: u64| {
        let ids: Vec<i64> = (0..9).map(|at| (at * at + number as i64) % 256).collect();
        let tokens = |from: usize| Array::new([1, 8], &ids[from..from + 8]).unwrap();
        let batch = BatchTensors::of_tokens(tokens(0), tokens(1));
        (batch, step_scalars(1e-2, number, 1).unwrap())
    };
    let first = || Array::new([2], &[0.0_f32; 2]).unwrap();
    let (mut plain, mut report, mut expected) = (state(), first(), Vec::new());
    for number in 1..=4 {
        let (batch, scalars) = others(number);
        (plain, report) = step.call((plain, batch, scalars, report)).unwrap();
        expected.push(report.to_vec::<f32>().unwrap());
    }
    let (mut bound, mut report) = (Bound::new(state()), first());
    for number in 1..=4 {
        let (batch, scalars) = others(number);
        report = step.call_bound(&mut bound, (batch, scalars, report)).unwrap();
        assert!(bound.is_bound(), "after step {number}");
        assert_eq!(report.to_vec::<f32>().unwrap(), expected[number as usize - 1]);
    }
    let state = bound.into_inner().unwrap();
    for ((name, found), (_, expected)) in state.leaves().into_iter().zip(plain.leaves()) {
        assert_eq!(found.to_bytes().unwrap(), expected.to_bytes().unwrap(), "{name}");
    }
}

/// Prints the host's time for a call beside launching, with a state of as many arrays as GPT-2 124M has:
/// `cargo test --release -p fulgurite-example-sim --test bound -- --ignored --nocapture`
#[test]
#[ignore = "measures, and asserts nothing"]
fn times() {
    type Six<T> = (Vec<T>, T, T, T, T, T);
    const CALLS: usize = 400;
    let _alone = alone();
    let update = |(state, a, b, c, d, e): Six<Tensor>| {
        let sum = a + b + c + d + e;
        (state.into_iter().map(|array| array + a).collect::<Vec<_>>(), sum)
    };
    let step: Jit<Six<Array>, _, _> = jit(update)
        .arguments(["state", "a", "b", "c", "d", "e"])
        .results(["state", "sum"])
        .donate("state")
        .options(options());
    let initial =
        |count: usize| -> Vec<Array> { (0..count).map(|at| Array::new([2], &[at as f32, 1.0]).unwrap()).collect() };
    // Larger than the caches of a core: what a training step's other work leaves of them.
    let mut other = vec![0_u64; 8 << 20];
    for (count, cold) in [(2, false), (450, false), (450, true)] {
        let mut measure = |name: &str, call: &mut dyn FnMut([Array; 5]) -> Array| {
            let mut parts: Vec<[f64; 3]> = Vec::new();
            for _ in 0..CALLS {
                if cold {
                    other.iter_mut().for_each(|number| *number = number.wrapping_add(1));
                }
                let inputs = [0.5_f32, 1.0, 2.0, 3.0, 4.0].map(|value| Array::new([2], &[value; 2]).unwrap());
                let (before, begun) = (HostTime::now(), std::time::Instant::now());
                let _sum = call(inputs);
                let (all, spent) = (begun.elapsed(), HostTime::now().since(&before));
                let arguments = all.saturating_sub(spent.total());
                parts.push([arguments, spent.inputs, spent.results].map(|part| part.as_secs_f64() * 1e6));
                DeviceState::of(Device::new("sim", 0)).unwrap().synchronize().unwrap();
            }
            // The threads of the simulated device take the processor from this one: the tenth says what it does itself.
            let told = |at: usize| {
                let mut all: Vec<f64> = parts.iter().map(|parts| parts[at]).collect();
                all.sort_by(f64::total_cmp);
                format!("{:.2} us (a tenth below {:.2})", all[all.len() / 2], all[all.len() / 10])
            };
            let caches = if cold { "cold" } else { "warm" };
            let [arguments, inputs, results] = [0, 1, 2].map(told);
            println!("{name}, {count} arrays, {caches}: arguments {arguments}, inputs {inputs}, results {results}");
        };
        let mut state = initial(count);
        measure("call", &mut |[a, b, c, d, e]| {
            let (updated, sum) = step.call((std::mem::take(&mut state), a, b, c, d, e)).unwrap();
            state = updated;
            sum
        });
        let mut state = Bound::new(initial(count));
        measure("call_bound", &mut |[a, b, c, d, e]| step.call_bound(&mut state, (a, b, c, d, e)).unwrap());
    }
}
