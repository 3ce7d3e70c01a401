//! Streams: what the host runs for the device is on a stream of its own; events order it, the memory plan and the
//! verifier count on them, and the random delays of the device show where one is missing.

use fulgurite::compile::{Options, stages};
use fulgurite::device::{DeviceState, StreamKind};
use fulgurite::ops::prelude::*;
use fulgurite::ops::prims;
use fulgurite::program::Program;
use fulgurite::testing::mutation::{Verdict, changed, judge, random_programs, run_unverified};
use fulgurite::testing::samples::Random;
use fulgurite::trace::{Schedule, Trace, parse};
use fulgurite::transforms::{donate, plan, schedule};
use fulgurite::{Array, Device, Tensor, jit};
use fulgurite_example_sim::heap::Heap;
use fulgurite_example_sim::stream::SimStream;

fn sim() -> Device {
    Device::new("sim", 0)
}

fn options() -> Options {
    Options { device: Some(sim()), ..Options::default() }
}

fn numbers(shape: [usize; 2]) -> Array {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    Array::new(shape, &values).unwrap()
}

/// Much for the device, and something for the host in the middle, beside which the device goes on.
fn function((x, weight): (Tensor, Tensor)) -> Tensor {
    let mut deep = x;
    for _ in 0..30 {
        deep = tanh(deep * 1.5);
    }
    let on_host = gelu(matmul(deep, weight));
    let mut beside = deep;
    for _ in 0..10 {
        beside = tanh(beside);
    }
    matmul(on_host, transpose(weight, 0, 1)) + beside
}

fn inputs() -> Vec<Array> {
    vec![numbers([5, 12]), numbers([12, 7])]
}

/// The stages of the function, compiled for the device.
fn stage(name: &str) -> Trace {
    let compiled = jit(function).options(options()).compile(&(numbers([5, 12]), numbers([12, 7]))).unwrap();
    compiled.stage(name).unwrap_or_else(|| panic!("no stage is called {name}")).clone()
}

/// The rest of a compilation, from the layout on.
fn finished(laid_out: &Trace) -> Trace {
    plan::delete_last_used(&plan::plan(&donate::donate(laid_out)))
}

fn bits(arrays: &[Array]) -> Vec<Vec<u8>> {
    arrays.iter().map(|array| array.to_bytes().unwrap()).collect()
}

fn run(trace: Trace) -> Vec<Vec<u8>> {
    bits(&Program::new(trace, None).unwrap().run(inputs()).unwrap())
}

#[test]
fn what_the_host_runs_is_on_the_copy_stream() {
    let scheduled = stage("schedule");
    let text = scheduled.to_string();
    assert!(text.contains(" by host on copy after "), "{text}");
    assert!(text.lines().any(|line| line.contains(" by sim after ")), "nobody waits for the host:\n{text}");
    let last = stage("delete_last_used");
    for trace in [&scheduled, &last] {
        assert_eq!(parse(&trace.to_string()).unwrap(), *trace, "{trace}");
    }
    let without = finished(&stage("layout"));
    assert!(!without.to_string().contains(" on copy"), "{without}");
    // All of it waits for one thing after the other.
    let plain = run(without);
    for _ in 0..5 {
        assert_eq!(run(last.clone()), plain);
    }
}

/// Whatever stream each line is given, the events and the memory plan that follow give the same bits.
#[test]
fn lines_on_any_streams_give_the_same_bits() {
    let laid_out = stage("layout");
    let plain = run(finished(&laid_out));
    let (mut crossing, mut larger) = (0, 0);
    let arena = finished(&laid_out).arena.unwrap();
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let scheduled = schedule::schedule_on(&laid_out, |_| StreamKind::ALL[(random.next() % 3) as usize]);
        let last = finished(&scheduled);
        assert_eq!(parse(&last.to_string()).unwrap(), last, "{last}");
        crossing += last.block.symbols.iter().filter(|symbol| !symbol.schedule.after.is_empty()).count();
        larger += usize::from(last.arena.unwrap() > arena);
        assert_eq!(run(last), plain, "seed {seed}");
    }
    assert!(crossing > 100, "only {crossing} lines wait for another stream");
    assert!(larger > 0, "no plan keeps values longer, though lines of other streams may still read them");
}

/// A race made on purpose: a line of the host no longer waits for what it reads.
fn racing() -> Trace {
    let mut trace = stage("delete_last_used");
    let waits = |schedule: &Schedule| schedule.stream == StreamKind::Copy && !schedule.after.is_empty();
    let reader = trace.block.symbols.iter_mut().find(|symbol| waits(&symbol.schedule)).unwrap();
    reader.schedule.after.clear();
    trace
}

#[test]
fn the_verifier_refuses_a_missing_event() {
    let error = racing().verify().unwrap_err().to_string();
    assert!(error.contains("may not have been written on the compute stream; wait with 'after'"), "{error}");
    assert!(Program::new(racing(), None).is_err());
}

#[test]
fn the_delays_of_the_device_show_a_missing_event() {
    let expected = run(stage("delete_last_used"));
    let differs = |_| {
        // SAFETY: the memory of this device has a lock, and every place of the plan is within it: a race gives other
        // numbers, and nothing else.
        let raced = unsafe { run_unverified(racing(), inputs()) };
        bits(&raced.unwrap()) != expected
    };
    assert!((0..20).any(differs), "20 runs without the event gave the right bits");
}

fn text(target: &str, lines: &str) -> String {
    format!("# fulgurite trace 2\ntrace f for {target} (x: f32[4]) {{\n  {lines}\n  return b\n}}\n")
}

#[test]
fn streams_that_mean_nothing_are_refused() {
    let refused = |target: &str, line: &str, message: &str| {
        let text = text(target, &format!("a: f32[4] = prims::tanh(x)\n  b: f32[4] = prims::tanh(a){line}"));
        let error = parse(&text).and_then(|trace| trace.verify()).unwrap_err().to_string();
        assert!(error.contains(message), "{line}: {error}");
    };
    refused("sim", " on copy", "reads 'a' on the copy stream while it may not have been written on the compute stream");
    refused("cpu", " on copy after a", "is on the copy stream, which 'cpu' has not");
    refused("sim", " after x", "waits for 'x', which no earlier line computes");
    refused("sim", " on nowhere", "'compute', 'copy' or 'communication'");
    let good = parse(&text("sim", "a: f32[4] = prims::tanh(x)\n  b: f32[4] = prims::tanh(a) on copy after a"));
    good.unwrap().verify().unwrap();
}

/// The words have their meaning behind a call alone.
#[test]
fn values_may_be_called_on_and_after() {
    let lines = "on: f32[4] = prims::tanh(x)\n  after: f32[4] = prims::tanh(on)\n  \
                 b: f32[4] = prims::add(on, after) on copy after after";
    let trace = parse(&text("sim", lines)).unwrap();
    trace.verify().unwrap();
    assert_eq!(parse(&trace.to_string()).unwrap(), trace);
}

/// Two values may not share bytes while a line of another stream may still use the first.
#[test]
fn the_verifier_refuses_memory_that_is_still_read() {
    let mut random = Random::new(3);
    let scheduled = schedule::schedule_on(&stage("layout"), |_| StreamKind::ALL[(random.next() % 2) as usize]);
    let good = finished(&scheduled);
    // The places that a plan for one stream has.
    let mut bad = finished(&stage("layout"));
    bad.block.symbols.clone_from(&good.block.symbols);
    good.verify().unwrap();
    let error = bad.verify().unwrap_err().to_string();
    assert!(error.contains("may not have ended; wait with 'after'"), "{error}");
}

#[test]
fn what_verifies_runs_right_on_several_streams() {
    let programs = random_programs(0..8, "sim").unwrap();
    let scheduled = |trace: &Trace, seed: u64| {
        let mut random = Random::new(seed);
        let unplanned = stages(fulgurite::testing::mutation::unplanned(trace), &options()).unwrap();
        let laid_out = unplanned.iter().find(|stage| stage.name == "layout").unwrap().trace.clone();
        finished(&schedule::schedule_on(&laid_out, |_| StreamKind::ALL[(random.next() % 3) as usize]))
    };
    let mut random = Random::new(1);
    let (mut refused, mut right, mut wrong) = (0, 0, Vec::new());
    for (i, program) in programs.iter().enumerate() {
        let trace = scheduled(&program.trace, i as u64);
        assert_eq!(judge(&trace, &program.inputs), Ok(Verdict::Right), "{}:\n{trace}", program.name);
        for _ in 0..20 {
            let (other, what) = changed(&trace, &mut random);
            match judge(&other, &program.inputs) {
                Ok(Verdict::Refused | Verdict::Fails) => refused += 1,
                Ok(Verdict::Right) => right += 1,
                Err(why) => wrong.push(format!("{}: {what}\n{why}\n{other}", program.name)),
            }
        }
    }
    eprintln!("{refused} refused, {right} right, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong[0]);
    assert!(right > 10 && refused > 50, "{right} right, {refused} refused");
}

/// Inputs of the next call are copied while the call before computes, and results are read while the next one does: the
/// numbers are those of calls that wait for one another.
#[test]
fn calls_that_run_ahead_give_the_same_bits() {
    let step = |(state, x, scale): (Tensor, Tensor, Tensor)| {
        let next = tanh(state + x * scale);
        (next, prims::sum(next, vec![0, 1]))
    };
    let make =
        || jit(step).arguments(["state", "x", "scale"]).results(["state", "sum"]).donate("state").options(options());
    let input = |i: usize| (numbers([3, 4]), Array::scalar(i as f32 / 8.0));
    let (ahead, waiting) = (make(), make());
    let mut expected = Vec::new();
    let mut state = numbers([3, 4]);
    for i in 0..30 {
        let (x, scale) = input(i);
        let (next, sum) = waiting.call((state, x, scale)).unwrap();
        expected.push(sum.to_bytes().unwrap());
        state = next;
        DeviceState::of(sim()).unwrap().synchronize().unwrap();
    }
    let last = state.to_bytes().unwrap();
    let (mut state, mut sums, mut got) = (numbers([3, 4]), Vec::new(), Vec::new());
    for i in 0..30 {
        let (x, scale) = input(i);
        let (next, sum) = ahead.call((state, x, scale)).unwrap();
        state = next;
        sums.push(sum);
        // Three calls later.
        if i >= 3 {
            got.push(sums[i - 3].to_bytes().unwrap());
        }
    }
    got.extend(sums[27..].iter().map(|sum| sum.to_bytes().unwrap()));
    assert_eq!(got, expected);
    assert_eq!(state.to_bytes().unwrap(), last);
}

/// The memory of a program may have been that of another one, whose work is not done: the first copies of inputs come
/// behind all work on the compute stream.
#[test]
fn first_copies_of_inputs_are_behind_earlier_work() {
    let busy = jit(|x: Tensor| (0..200).fold(x, |x, _| tanh(x))).named("busy").options(options());
    let next = jit(|x: Tensor| tanh(x)).named("next").options(options());
    busy.call(numbers([2, 2])).unwrap();
    next.compile(&numbers([2, 2])).unwrap();
    let state = DeviceState::of(sim()).unwrap();
    state.begin_timeline().unwrap();
    for _ in 0..20 {
        busy.call(numbers([2, 2])).unwrap();
    }
    for _ in 0..2 {
        next.call(numbers([2, 2])).unwrap();
    }
    let timeline = state.end_timeline().unwrap();
    let of = |what: &'static str| timeline.iter().filter(move |activity| activity.what == what);
    let done = of("busy").map(|run| run.start + run.time).max().unwrap();
    assert_eq!((of("busy").count(), of("inputs of next").count()), (20, 2));
    assert!(of("inputs of next").all(|copy| copy.start >= done), "{timeline:?}");
}

/// Has the compute stream wait until what is returned says that it may go on, or is dropped.
fn busy(state: &DeviceState) -> std::sync::mpsc::Sender<()> {
    let (go_on, waited) = std::sync::mpsc::channel::<()>();
    let work = Box::new(move |_: &Heap| {
        // An error says that the other end is gone.
        let _ = waited.recv();
        Ok(())
    });
    SimStream::of(state.stream()).unwrap().enqueue(work).unwrap();
    go_on
}

/// A function of few numbers, on `device` under a name; what it gives for the `i`-th input, by the host.
fn small(name: &'static str, device: Device) -> (impl Fn(usize) -> Array, impl Fn(usize) -> Vec<u8>) {
    let input = |i: usize| Array::new([2], &[i as f32, -0.5]).unwrap();
    let options = Options { device: Some(device), ..Options::default() };
    let on_device = jit(|x: Tensor| x * 3.0 + 0.25).named(name).options(options);
    let on_host = jit(|x: Tensor| x * 3.0 + 0.25);
    (move |i| on_device.call(input(i)).unwrap(), move |i| on_host.call(input(i)).unwrap().to_bytes().unwrap())
}

/// While the compute stream is busy, inputs cross beside it, each to a landing that nobody reads any more. The third
/// call finds none, and one that finds the stream idle needs none: their inputs are copied on the compute stream.
#[test]
fn inputs_cross_beside_work() {
    let device = Device::new("sim", 1);
    let (f, expected) = small("timed", device);
    f(9).to_bytes().unwrap();
    let state = DeviceState::of(device).unwrap();
    state.begin_timeline().unwrap();
    let go_on = busy(&state);
    let mut results: Vec<Array> = (0..4).map(&f).collect();
    go_on.send(()).unwrap();
    state.synchronize().unwrap();
    results.push(f(4));
    assert_eq!(bits(&results), (0..5).map(expected).collect::<Vec<_>>());
    let timeline = state.end_timeline().unwrap();
    let count = |what: &str, stream: StreamKind| {
        timeline.iter().filter(|activity| activity.what == what && activity.stream == stream).count()
    };
    assert_eq!(count("timed", StreamKind::Compute), 5, "{timeline:?}");
    assert_eq!(count("inputs of timed", StreamKind::Copy), 2, "{timeline:?}");
    assert_eq!(count("inputs of timed", StreamKind::Compute), 3, "{timeline:?}");
    assert_eq!(count("read 8 bytes", StreamKind::Copy), 5, "{timeline:?}");
    assert!(state.end_timeline().unwrap().is_empty(), "none was begun");
}

/// Some of the copies are late: a run that began before its inputs are there would have those of two calls before.
#[test]
fn runs_begin_behind_their_inputs() {
    let device = sim();
    let (f, expected) = small("behind", device);
    f(0).to_bytes().unwrap();
    let state = DeviceState::of(device).unwrap();
    for i in 0..400 {
        // Goes on as soon as the run is enqueued.
        let go_on = busy(&state);
        let result = f(i);
        drop(go_on);
        assert_eq!(result.to_bytes().unwrap(), expected(i), "call {i}");
    }
}

/// An array of another library is ready when that library's stream says so. Until then calls of other arrays go on, up
/// to what they give: the other library may wait for this thread.
#[test]
fn inputs_do_not_wait_for_other_libraries() {
    let device = sim();
    let (f, expected) = small("goes_on", device);
    f(0).to_bytes().unwrap();
    let state = DeviceState::of(device).unwrap();
    let go_on = busy(&state);
    let ready = state.context().event(false).unwrap();
    state.stream().record(&*ready).unwrap();
    for kind in StreamKind::ALL {
        state.stream_of(kind).wait(&*ready).unwrap();
    }
    let result = f(5);
    go_on.send(()).unwrap();
    assert_eq!(result.to_bytes().unwrap(), expected(5));
}

/// A driver may give the memory and the code of a dropped program to the next one at once, and so may this device: what
/// is still on its way then has neither.
#[test]
fn a_program_that_is_dropped_waits_for_its_work() {
    let compiled = jit(function).options(options()).compile(&(numbers([5, 12]), numbers([12, 7]))).unwrap();
    let trace = compiled.stages().last().unwrap().trace.clone();
    let expected = bits(&Program::new(trace.clone(), None).unwrap().run(inputs()).unwrap());
    for _ in 0..20 {
        // Nobody waits for the first results, and the program of the others is gone when they are read.
        drop(Program::new(trace.clone(), None).unwrap().run(inputs()).unwrap());
        let results = Program::new(trace.clone(), None).unwrap().run(inputs()).unwrap();
        assert_eq!(bits(&results), expected);
    }
}

/// More and larger blocks than are kept for later: some are given back to the device while work uses them.
#[test]
fn memory_of_arrays_is_freed_behind_the_work_that_uses_it() {
    let compiled = jit(|x: Tensor| (tanh(x), x * 2.0, -x)).options(options());
    for rows in 1..150 {
        let array = numbers([rows, 3]);
        let (first, second, third) = compiled.call(array.clone()).unwrap();
        drop((first, second));
        assert_eq!(third.to_bytes().unwrap().len(), array.to_bytes().unwrap().len());
    }
    DeviceState::of(sim()).unwrap().synchronize().unwrap();
}

/// Large arrays cross through a few pieces of host memory, each of which is filled again once its copy has ended.
#[test]
fn large_arrays_cross_in_pieces() {
    let large = |count: usize, seed: usize| {
        let values: Vec<i32> = (0..count).map(|i| (i * 7919 + seed) as i32).collect();
        Array::new([count], &values).unwrap()
    };
    std::thread::scope(|scope| {
        // Not a whole number of pieces; twice what all pieces hold; just as much as goes that way; one byte less.
        for (seed, count) in [(1, (10 << 20) / 4 + 3), (2, (24 << 20) / 4), (3, (4 << 20) / 4), (4, (4 << 20) / 4 - 1)]
        {
            scope.spawn(move || {
                let array = large(count, seed);
                for _ in 0..3 {
                    let there = array.to_device(sim()).unwrap();
                    assert!(there.to_bytes().unwrap() == array.to_bytes().unwrap(), "{count} elements");
                }
            });
        }
    });
}

/// Cores that fill the pieces of one array may take up the copy of another one meanwhile.
#[test]
fn large_arrays_cross_from_many_cores_at_once() {
    use rayon::prelude::*;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let values = |seed: i32| vec![seed; (5 << 20) / 4];
    let arrays: Vec<Array> = (0..24).map(|seed| Array::new([(5 << 20) / 4], &values(seed)).unwrap()).collect();
    pool.install(|| {
        arrays.par_iter().for_each(|array| {
            let there = array.to_device(sim()).unwrap();
            assert!(there.to_bytes().unwrap() == array.to_bytes().unwrap());
        });
    });
}
