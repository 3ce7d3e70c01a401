//! What the host does for a run that is replayed, as in training: a state that is donated and comes back, and small
//! inputs. It is counted; `--ignored --nocapture` of a release build measures it too.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fulgurite::compile::Options;
use fulgurite::device::{DeviceState, HostTime, Uploader};
use fulgurite::program::RunCounts;
use fulgurite::{Array, DType, Device, Tensor, jit};
use fulgurite_example_sim::kind::EVENTS;
use fulgurite_models::batches::{Batches, Order};
use fulgurite_models::train::batch_arrays;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Not where the thread ends.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests run one after the other: events are counted of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the last of several runs took.
struct Steady {
    counts: RunCounts,
    compiles: usize,
    /// Of this thread in each of the last runs.
    allocations: Vec<usize>,
    /// Events made in each run.
    events: Vec<usize>,
    /// The time of each call, and what the runtime counts of it.
    times: Vec<(Duration, HostTime)>,
    /// The first number of the last loss, and of the first and the last array of the state behind it.
    read: [f64; 3],
}

type Arguments<T> = (Vec<T>, Vec<T>, T);

/// Inputs from the host. What is broadcast the device would leave to the host, and not replay.
fn pair(rate: f32) -> Vec<Array> {
    [rate, 0.5].map(|value| Array::new([2], &[value; 2]).unwrap()).to_vec()
}

/// Runs of a step whose state is `arrays` arrays on the simulated device.
fn runs(arrays: usize, runs: usize) -> Steady {
    let device = Device::new("sim", 0);
    let step = jit(|(state, inputs, previous): Arguments<Tensor>| {
        let rate = inputs[0];
        let state: Vec<Tensor> = state.into_iter().map(|array| array * rate).collect();
        let loss = state[0] + previous;
        (state, loss)
    })
    .named("step")
    .arguments(["state", "inputs", "previous"])
    .results(["state", "loss"])
    .donate("state")
    .options(Options { verify: false, device: Some(device), ..Options::default() });
    let ones = |_| Array::new([2], &[1.0f32; 2]).unwrap().to_device(device).unwrap();
    let mut state: Vec<Array> = (0..arrays).map(ones).collect();
    let mut previous = Array::new([2], &[0.0f32; 2]).unwrap();
    let (mut allocations, mut events, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let inputs = pair(2.0);
        let made = EVENTS.load(Ordering::Relaxed);
        let before = (ALLOCATIONS.get(), Instant::now(), HostTime::now());
        let (next, loss) = step.call((state, inputs, previous)).unwrap();
        times.push((before.1.elapsed(), HostTime::now().since(&before.2)));
        allocations.push(ALLOCATIONS.get() - before.0);
        events.push(EVENTS.load(Ordering::Relaxed) - made);
        (state, previous) = (next, loss);
    }
    // Each waits for the last run.
    let read = [&state[arrays - 1], &previous, &state[0]].map(|array| array.to_f64().unwrap()[0]);
    let compiled = step.compile(&(state, pair(0.0), previous)).unwrap();
    let counts = compiled.program().counts().unwrap();
    Steady { counts, compiles: step.compiles(), allocations, events, times, read }
}

#[test]
fn a_replayed_step_patches_nothing_and_allocates_nothing_for_each_array() {
    let _alone = alone();
    let few = runs(8, 12);
    let many = runs(400, 12);
    for steady in [&few, &many] {
        assert_eq!(steady.events[6..], [0; 6], "events are used again: {:?}", steady.events);
        let RunCounts { runs, graphs, replays, updates, refused, .. } = steady.counts;
        // The first run is launched.
        assert_eq!((runs, graphs, replays, updates, refused), (12, 1, 11, 0, 0));
        // 2 + 4 + 8 + ...
        assert_eq!((steady.compiles, steady.read), (1, [4096.0, 8190.0, 4096.0]));
    }
    // The simulated device makes a piece of work for each array; the runtime allocates lists.
    let of = |steady: &Steady| *steady.allocations.iter().skip(4).min().unwrap();
    let (few, many) = (of(&few), of(&many));
    let lists = many.saturating_sub(400 - 8).saturating_sub(few);
    assert!(few < 60 && lists < 30, "{few} allocations with 8 arrays, {many} with 400");
}

/// Inputs that another thread sends ahead, and reports that are read one step late.
#[test]
fn inputs_sent_ahead_give_the_same_results_in_memory_that_is_used_again() {
    const RUNS: usize = 60;
    let _alone = alone();
    let device = Device::new("sim", 1);
    let step = jit(|(state, inputs): (Tensor, Vec<Tensor>)| {
        let state = state * inputs[0] + inputs[1];
        (state, state * inputs[0])
    })
    .named("step")
    .arguments(["state", "inputs"])
    .results(["state", "report"])
    .donate("state")
    .options(Options { verify: false, device: Some(device), ..Options::default() });
    let inputs = |number: usize| {
        let offsets: Vec<f32> = (0..300).map(|i| ((number * 37 + i * 11) % 101) as f32).collect();
        [Array::new([300], &[1.0 / (number + 1) as f32; 300]).unwrap(), Array::new([300], &offsets).unwrap()]
    };
    let state = || Array::new([300], &[1.0f32; 300]).unwrap().to_device(device).unwrap();
    let held = || DeviceState::of(device).unwrap().context().memory_held().now;
    let run = |next: &mut dyn FnMut(usize) -> [Array; 2]| {
        let (mut state, mut unread, mut reports, mut memory) = (state(), None::<Array>, Vec::new(), Vec::new());
        for number in 0..RUNS {
            let (after, report) = step.call((state, next(number).to_vec())).unwrap();
            reports.extend(unread.replace(report).map(|before| before.to_f64().unwrap()));
            memory.push(held());
            state = after;
        }
        reports.extend(unread.map(|last| last.to_f64().unwrap()));
        reports.push(state.to_f64().unwrap());
        (reports, memory)
    };
    let (expected, _) = run(&mut |number| inputs(number));
    let uploader = Uploader::new(device, "step").unwrap();
    let (found, memory) = std::thread::scope(|scope| {
        let (send, made) = std::sync::mpsc::sync_channel(0);
        scope.spawn(move || (0..RUNS).for_each(|number| send.send(uploader.send(inputs(number)).unwrap()).unwrap()));
        run(&mut |_| made.recv().unwrap())
    });
    assert!(found == expected, "results differ");
    // Inputs of a few steps exist at a time: twice 1,200 bytes, each from a multiple of 256 on.
    let (most, block) = (*memory.iter().max().unwrap() - memory[0], 2 * 1280);
    assert!(most <= 6 * block, "{memory:?}");
    let state = Array::zeros_on(device, [300], DType::F32).unwrap();
    let counts = step.compile(&(state, inputs(0).to_vec())).unwrap().program().counts().unwrap();
    assert_eq!((counts.runs, counts.graphs, counts.updates), (2 * RUNS, 1, 0));
    assert_eq!(step.compiles(), 1);
}

/// `cargo test --release -p fulgurite-example-sim --test host_work -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn the_time_of_a_replayed_step_by_part() {
    let _alone = alone();
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    for arrays in [8, 150, 446] {
        let Steady { times, .. } = runs(arrays, 400);
        let times = &times[100..];
        let of = |part: fn(&(Duration, HostTime)) -> Duration| median(times.iter().map(part).collect());
        println!(
            "{arrays} arrays: arguments {:.1} us, inputs {:.1}, results {:.1}; waiting {:.1}; launches {:.1}",
            of(|(all, spent)| all.saturating_sub(spent.total())),
            of(|(_, spent)| spent.inputs),
            of(|(_, spent)| spent.results),
            of(|(_, spent)| spent.waiting),
            of(|(_, spent)| spent.launching),
        );
    }
    let tokens: Vec<u32> = (0..1u32 << 21).map(|i| i * 7919 % 50257).collect();
    for (rows, context) in [(4, 64), (4, 1024), (16, 1024), (64, 1024)] {
        let mut batches = Batches::new(tokens.clone(), rows, context, Order::Shuffled, 5).unwrap();
        let time = |_| {
            let begun = Instant::now();
            let arrays = batch_arrays(&batches.next_batch().unwrap()).unwrap();
            let time = begun.elapsed();
            drop(arrays);
            time
        };
        println!("batch {rows} x {context}: {:.1} us", median((0..200).map(time).collect()));
    }
}
