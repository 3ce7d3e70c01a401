//! Streams of a simulated device: threads that do what was enqueued, in order, each piece after a random delay. What is
//! not ordered by a stream or an event is seen in any order.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fulgurite::Failure;
use fulgurite::device::{DeviceError, DeviceEvent, DeviceStream};
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};

use crate::error::SimError;
use crate::heap::Heap;

/// One piece of work of so many is late, at random,
const RARITY: u64 = 16;
/// by up to as many microseconds: enough for other streams to pass it.
const LONGEST_DELAY: u64 = 200;

/// A race made on purpose: the environment variable says N, and every N-th wait of a stream for an event is left out.
pub const LOST_WAITS: &str = "FULGURITE_SIM_LOST_WAITS";

/// Whether the next wait is left out.
fn is_lost() -> bool {
    static EVERY: OnceLock<u64> = OnceLock::new();
    static WAITS: AtomicU64 = AtomicU64::new(0);
    let every = *EVERY.get_or_init(|| std::env::var(LOST_WAITS).ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    every > 0 && (WAITS.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
}

/// A piece of work on memory.
pub type Work = Box<dyn FnOnce(&Heap) -> Result<(), SimError> + Send>;

enum Task {
    /// Left out once the device is lost.
    Work(Work),
    /// Done in any case, so that nobody waits for ever.
    Mark(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// Whether a task is being done.
    busy: bool,
    closed: bool,
    /// Whether the thread waits for a task.
    sleeps: bool,
    /// How many wait until nothing is enqueued.
    drainers: usize,
}

/// What a stream's thread and its users share.
pub struct Shared {
    queue: Mutex<Queue>,
    /// Waking is a call of the system even if nothing waits. The thread and callers of `drain` wait for changes of
    /// their own, and are told only if they wait.
    enqueued: Condvar,
    drained: Condvar,
    heap: Heap,
    /// The first error of any stream of the device: nothing runs on it any more.
    lost: Arc<Mutex<Option<SimError>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does a piece of work. A panic is an error of the device: the thread goes on, so that nobody waits for ever.
fn done(work: Work, heap: &Heap) -> Result<(), SimError> {
    catch_unwind(AssertUnwindSafe(|| work(heap)))
        .unwrap_or_else(|panic| Err(SimError::Panicked(Failure::text_of_panic(&*panic).into_owned())))
}

impl Shared {
    fn push(&self, task: Task) -> Result<(), DeviceError> {
        let mut queue = lock(&self.queue);
        queue.tasks.push_back(task);
        if queue.sleeps {
            self.enqueued.notify_one();
        }
        Ok(())
    }

    /// Waits until nothing is enqueued.
    pub fn drain(&self) {
        let mut queue = lock(&self.queue);
        queue.drainers += 1;
        while queue.busy || !queue.tasks.is_empty() {
            queue = self.drained.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.drainers -= 1;
    }

    fn work(&self, mut seed: u64) {
        let mut queue = lock(&self.queue);
        loop {
            let Some(task) = queue.tasks.pop_front() else {
                if queue.closed {
                    return;
                }
                queue.sleeps = true;
                queue = self.enqueued.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.sleeps = false;
                continue;
            };
            queue.busy = true;
            drop(queue);
            match task {
                // A mark that is late only keeps others waiting, which hides races.
                Task::Mark(mark) => mark(),
                Task::Work(work) => {
                    // xorshift64: any sequence does, as long as a seed repeats it.
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    if seed.is_multiple_of(RARITY) {
                        std::thread::sleep(Duration::from_micros(seed / RARITY % LONGEST_DELAY));
                    }
                    if lock(&self.lost).is_none()
                        && let Err(error) = done(work, &self.heap)
                    {
                        lock(&self.lost).get_or_insert(error);
                    }
                }
            }
            queue = lock(&self.queue);
            queue.busy = false;
            if queue.drainers > 0 && queue.tasks.is_empty() {
                self.drained.notify_all();
            }
        }
    }
}

/// A stream. Its thread ends, after what is enqueued, when it is dropped.
pub struct SimStream {
    shared: Arc<Shared>,
    /// `None` where another value ends the thread.
    thread: Option<JoinHandle<()>>,
}

impl SimStream {
    /// A stream of the device with this memory, whose delays follow from `seed`.
    pub fn new(heap: &Heap, lost: &Arc<Mutex<Option<SimError>>>, seed: u64) -> Result<SimStream, SimError> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            enqueued: Condvar::new(),
            drained: Condvar::new(),
            heap: heap.clone(),
            lost: lost.clone(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("a stream".into()).spawn(move || own.work(seed | 1));
        Ok(SimStream { shared, thread: Some(thread.map_err(|_| SimError::Ended)?) })
    }

    /// The same stream, as another value: this one ends its thread.
    pub fn borrowed(&self) -> SimStream {
        SimStream { shared: self.shared.clone(), thread: None }
    }

    /// The stream that `stream` is.
    pub fn of(stream: &dyn DeviceStream) -> Result<&SimStream, SimError> {
        (stream as &dyn Any).downcast_ref().ok_or(SimError::Foreign)
    }

    /// What its thread works on.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Enqueues work.
    pub fn enqueue(&self, work: Work) -> Result<(), DeviceError> {
        self.shared.push(Task::Work(work))
    }
}

impl std::fmt::Debug for SimStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimStream")
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        lock(&self.shared.queue).closed = true;
        self.shared.enqueued.notify_all();
        // A panic of the thread has been printed by it.
        let _ = thread.join();
    }
}

/// A pointer that work takes to another thread.
struct Pointer(*mut u8);

// SAFETY: the caller that enqueues a copy promises that the memory is alive, and not used otherwise, until it is done.
unsafe impl Send for Pointer {}

impl Pointer {
    /// The pointer; a method, so that closures take the whole.
    fn get(&self) -> *mut u8 {
        self.0
    }
}

impl DeviceStream for SimStream {
    fn synchronize(&self) -> Result<(), DeviceError> {
        self.shared.drain();
        match lock(&self.shared.lost).clone() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn is_idle(&self) -> Result<bool, DeviceError> {
        if let Some(error) = lock(&self.shared.lost).clone() {
            return Err(error.into());
        }
        let queue = lock(&self.shared.queue);
        Ok(!queue.busy && queue.tasks.is_empty())
    }

    fn wait(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        let marks = SimEvent::of(event)?.0.clone();
        let number = lock(&marks.state).recorded;
        if is_lost() {
            return Ok(());
        }
        self.shared.push(Task::Mark(Box::new(move || marks.wait(number))))
    }

    fn record(&self, event: &dyn DeviceEvent) -> Result<(), DeviceError> {
        let marks = SimEvent::of(event)?.0.clone();
        let number = {
            let mut state = lock(&marks.state);
            state.recorded += 1;
            state.recorded
        };
        self.shared.push(Task::Mark(Box::new(move || marks.reach(number))))
    }

    unsafe fn copy_in(&self, to: DeviceAddress, from: &[u8]) -> Result<(), DeviceError> {
        let (pointer, bytes) = (Pointer(from.as_ptr().cast_mut()), from.len());
        self.enqueue(Box::new(move |heap| {
            // SAFETY: the caller keeps the memory alive and unchanged until the copy is done.
            heap.write(to.0, unsafe { std::slice::from_raw_parts(pointer.get(), bytes) })
        }))
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: DeviceAddress) -> Result<(), DeviceError> {
        let (pointer, bytes) = (Pointer(to.as_mut_ptr()), to.len());
        self.enqueue(Box::new(move |heap| {
            let content = heap.read(from.0, bytes)?;
            // SAFETY: the caller keeps the memory alive, and looks at it after the copy.
            unsafe { std::slice::from_raw_parts_mut(pointer.get(), bytes) }.copy_from_slice(&content);
            Ok(())
        }))
    }

    unsafe fn copy(&self, range: CopyRange) -> Result<(), DeviceError> {
        self.enqueue(Box::new(move |heap| heap.write(range.to.0, &heap.read(range.from.0, range.bytes)?)))
    }

    unsafe fn fill(&self, to: DeviceAddress, byte: u8, bytes: usize) -> Result<(), DeviceError> {
        self.enqueue(Box::new(move |heap| heap.fill(to.0, byte, bytes)))
    }
}

#[derive(Debug, Default)]
struct Marks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    recorded: u64,
    reached: u64,
    at: Option<Instant>,
}

impl Marks {
    fn reach(&self, number: u64) {
        let mut state = lock(&self.state);
        state.reached = state.reached.max(number);
        state.at = Some(Instant::now());
        self.changed.notify_all();
    }

    fn wait(&self, number: u64) {
        let mut state = lock(&self.state);
        while state.reached < number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A mark in a stream.
#[derive(Debug, Default)]
pub struct SimEvent(Arc<Marks>);

impl SimEvent {
    fn of(event: &dyn DeviceEvent) -> Result<&SimEvent, SimError> {
        (event as &dyn Any).downcast_ref().ok_or(SimError::Foreign)
    }

    fn at(&self) -> Result<Instant, SimError> {
        lock(&self.0.state).at.ok_or(SimError::NotReached)
    }
}

impl DeviceEvent for SimEvent {
    fn synchronize(&self) -> Result<(), DeviceError> {
        let number = lock(&self.0.state).recorded;
        self.0.wait(number);
        Ok(())
    }

    fn is_reached(&self) -> Result<bool, DeviceError> {
        let state = lock(&self.0.state);
        Ok(state.reached >= state.recorded)
    }

    fn milliseconds_since(&self, earlier: &dyn DeviceEvent) -> Result<f64, DeviceError> {
        Ok(self.at()?.saturating_duration_since(SimEvent::of(earlier)?.at()?).as_secs_f64() * 1e3)
    }
}
