//! The device in use: its context, the stream that programs run on, and memory that is used again.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use super::block::Block;
use super::context::DeviceContext;
use super::error::{Category, DeviceError};
use super::faults::FaultLog;
use super::fences::Streams;
use super::host_time::waiting;
use super::kept::Kept;
use super::kind::find_kind;
use super::stream::{DeviceEvent, DeviceStream, HostMemory};
use super::timeline::{Activity, Marks, Timeline};
use super::upload::{Lent, Staging};
use crate::error::Result;
use crate::meta::Device;
use crate::stream_kind::StreamKind;

/// Reads of at most so many bytes go through page-locked memory.
const PINNED_BYTES: usize = 64 << 10;

/// A device that this process uses. Programs run on its compute stream, copies between the host and the device on its
/// copy stream, if the kind has one.
#[derive(Debug)]
pub struct DeviceState {
    device: Device,
    kept: Mutex<Kept>,
    faults: FaultLog,
    spare_events: Arc<SpareEvents>,
    unfinished: Mutex<Unfinished>,
    timeline: Mutex<Option<Timeline>>,
    /// What small reads go through, once there was one.
    pinned: Mutex<Option<Box<dyn HostMemory>>>,
    /// What large arrays cross through.
    staging: Mutex<Lent>,
    /// What small inputs are copied on while the compute stream is busy: nobody else enqueues on it, so that waiting
    /// for such a copy is waiting for nothing else. `None` where the kind of device has no copy stream.
    inputs: Option<Box<dyn DeviceStream>>,
    /// By [`StreamKind::index`]; `None` where the kind of device has no such stream of its own.
    streams: [Option<Box<dyn DeviceStream>>; StreamKind::ALL.len()],
    compute: Box<dyn DeviceStream>,
    /// See [`DeviceState::uses`].
    uses: AtomicU64,
    /// What the next work here is to come behind; arrays that were imported keep it.
    awaited: Mutex<Vec<Weak<dyn Awaited>>>,
    /// Why work here does not come behind it. The next run is an error.
    unordered: Mutex<Option<crate::Error>>,
    /// Whether there is any.
    is_awaited: AtomicBool,
    context: Arc<dyn DeviceContext>,
}

/// A stream of another library that work here is to come behind.
pub(crate) trait Awaited: Debug + Send + Sync {
    /// Has the compute stream wait for it.
    fn order(&self) -> Result<()>;
}

/// A mark behind the run that wrote an array.
#[derive(Debug)]
pub struct Written {
    /// Taken where the value is dropped.
    event: Option<Box<dyn DeviceEvent>>,
    /// Where the event goes then: making one takes a driver as long as recording it.
    spare: Arc<SpareEvents>,
    /// The number of that run among those of the device.
    number: u64,
}

/// Events without timing that nobody waits for any more.
type SpareEvents = Mutex<Vec<Box<dyn DeviceEvent>>>;

/// Events that are kept for the next runs.
const MOST_SPARE_EVENTS: usize = 64;

impl Drop for Written {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MOST_SPARE_EVENTS {
            spare.extend(self.event.take());
        }
    }
}

impl Written {
    /// Waits on the host until the mark is reached.
    ///
    /// # Errors
    /// A fault of the device.
    pub fn wait(&self, state: &DeviceState) -> Result<()> {
        let synchronize = || self.event.as_ref().map_or(Ok(()), |event| event.synchronize());
        waiting(synchronize).map_err(|error| state.faulted(error))
    }
}

/// Functions that the compute stream has not been waited for since they were enqueued: one of them causes the next
/// error of the device.
#[derive(Debug, Default)]
struct Unfinished {
    enqueued: u64,
    /// Each with its last number, in the order of their first.
    functions: Vec<(Arc<str>, u64)>,
}

/// A device that is being opened; see [`DeviceState::open_ahead`].
#[derive(Debug)]
#[must_use = "waits for the thread where it is dropped"]
pub struct Opening(Option<JoinHandle<Result<()>>>);

impl Drop for Opening {
    /// The process may not end while the driver is at work.
    fn drop(&mut self) {
        // Users of the device get the error that the thread found.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl Streams for DeviceState {
    fn of_kind(&self, kind: StreamKind) -> &dyn DeviceStream {
        self.stream_of(kind)
    }
}

impl DeviceState {
    /// The state of `device`, opened on first use.
    ///
    /// # Errors
    /// If `device` is the host, or is not available; with the reason.
    pub fn of(device: Device) -> Result<Arc<DeviceState>> {
        static OPENED: Mutex<Vec<(Device, Arc<DeviceState>)>> = Mutex::new(Vec::new());
        if device.is_cpu() {
            return Err(crate::Error::Argument {
                argument: "device".into(),
                message: format!("'{device}' has no memory of its own, expected 'cuda', 'cuda:1', ..."),
            });
        }
        let kind = find_kind(device.kind())?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, state)) = opened.iter().find(|(known, _)| *known == device) {
            return Ok(state.clone());
        }
        let context = kind.open(device.index())?;
        let compute = context.stream()?;
        let mut streams: [Option<Box<dyn DeviceStream>>; StreamKind::ALL.len()] = Default::default();
        for own in kind.streams().iter().filter(|own| **own != StreamKind::Compute) {
            streams[own.index()] = Some(context.stream()?);
        }
        let inputs = kind.streams().contains(&StreamKind::Copy).then(|| context.stream()).transpose()?;
        tracing::debug!(%device, "context made");
        let state = Arc::new(DeviceState {
            device,
            kept: Mutex::new(Kept::of_free(context.memory_free())),
            faults: FaultLog::default(),
            spare_events: Arc::default(),
            unfinished: Mutex::default(),
            timeline: Mutex::default(),
            pinned: Mutex::default(),
            staging: Mutex::default(),
            inputs,
            streams,
            compute,
            uses: AtomicU64::new(0),
            awaited: Mutex::default(),
            unordered: Mutex::default(),
            is_awaited: AtomicBool::new(false),
            context,
        });
        opened.push((device, state.clone()));
        Ok(state)
    }

    /// Begins to open `device` and its libraries on its own thread, which takes some tenths of a second. A call that
    /// needs the device earlier waits and gets the error, if any. Dropping the returned value joins the thread.
    pub fn open_ahead(device: Device) -> Opening {
        let open = move || DeviceState::of(device).and_then(|state| Ok(state.context.warm()?));
        let thread =
            (!device.is_cpu()).then(|| std::thread::Builder::new().name("opening the device".into()).spawn(open));
        Opening(thread.and_then(std::io::Result::ok))
    }

    /// The device's context.
    pub fn context(&self) -> &dyn DeviceContext {
        &*self.context
    }

    /// The compute stream: that of programs.
    pub fn stream(&self) -> &dyn DeviceStream {
        self.behind_awaited();
        self.uses.fetch_add(1, Ordering::Relaxed);
        &*self.compute
    }

    /// Has whatever is enqueued from now on come behind a stream of another library, by one wait for all that is
    /// imported until then.
    pub(crate) fn await_later(&self, other: &Arc<impl Awaited + 'static>) {
        let other: Weak<dyn Awaited> = Arc::downgrade(&(other.clone() as Arc<dyn Awaited>));
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if !awaited.iter().any(|known| known.ptr_eq(&other)) {
            awaited.push(other);
        }
        self.is_awaited.store(true, Ordering::Release);
    }

    /// Orders what was imported by now.
    pub(crate) fn behind_awaited(&self) {
        if !self.is_awaited.load(Ordering::Acquire) {
            return;
        }
        // Another thread that is about to enqueue waits for the lock until all of it is ordered.
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<Arc<dyn Awaited>> = awaited.drain(..).filter_map(|other| other.upgrade()).collect();
        for other in &others {
            if let Err(error) = other.order() {
                *self.unordered.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
        self.is_awaited.store(false, Ordering::Release);
        drop(awaited);
        // The last owner of one may give memory back, which asks for streams.
        drop(others);
    }

    /// The compute stream, for marks and waits: no use of it that [`DeviceState::uses`] counts.
    pub(crate) fn compute(&self) -> &dyn DeviceStream {
        &*self.compute
    }

    /// The streams that work is enqueued on, each once. Not that of small inputs, which the host waits for where it
    /// uses it: it must wait for nothing else.
    fn work_streams(&self) -> impl Iterator<Item = &dyn DeviceStream> {
        std::iter::once(&self.compute).chain(self.streams.iter().flatten()).map(|stream| &**stream)
    }

    /// How often a stream was asked for to enqueue on it: the same number says that nothing was enqueued meanwhile.
    pub(crate) fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// The stream that work of a kind is enqueued on: the compute stream where the device has no other for it.
    pub fn stream_of(&self, kind: StreamKind) -> &dyn DeviceStream {
        self.behind_awaited();
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.streams[kind.index()].as_deref().unwrap_or(&*self.compute)
    }

    /// The stream for inputs that cross while the compute stream is busy; `None` if it is idle.
    pub fn beside_work(&self) -> Result<Option<&dyn DeviceStream>> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        match &self.inputs {
            Some(inputs) if !self.compute.is_idle().map_err(|error| self.faulted(error))? => Ok(Some(&**inputs)),
            _ => Ok(None),
        }
    }

    /// A block of exactly `bytes` bytes, maybe used before.
    pub fn take(&self, bytes: usize) -> Result<Block> {
        let mut free = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = free.take(bytes) {
            return Ok(memory);
        }
        drop(free);
        Ok(self.allocate(bytes)?)
    }

    /// A new block. If memory is short, what is kept for later is given up first. The caller drops the block only after
    /// the work that uses it has ended; [`DeviceState::give_back`] needs no such care.
    pub fn allocate(&self, bytes: usize) -> Result<Block, DeviceError> {
        let memory = match self.context.allocate(bytes) {
            Err(error) if error.category() == Category::OutOfMemory => {
                self.give_up_kept();
                self.context.allocate(bytes)
            }
            memory => memory,
        };
        memory.map(Block::from).map_err(|error| error.on(self.device))
    }

    /// Keeps a block for the next of its size. Work on the stream that still uses it comes before that of its next
    /// user.
    pub fn give_back(&self, memory: Block) {
        let mut free = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if free.has_room(memory.bytes()) {
            return free.add(memory);
        }
        drop(free);
        self.free(vec![memory]);
    }

    /// Frees blocks of arrays once the work that may use them has ended: a driver gives their place away at once, also
    /// to what is not ordered with the compute stream, such as code that it loads.
    pub(super) fn free(&self, blocks: Vec<Block>) {
        if blocks.is_empty() {
            return;
        }
        if let Err(error) = waiting(|| self.compute.synchronize()) {
            tracing::error!(%error, "waiting for work before memory is freed");
        }
        drop(blocks);
    }

    /// Free bytes of the device's memory, after what other processes use; what is kept for later is freed first. `None`
    /// if the backend does not know.
    pub fn memory_free(&self) -> Option<u64> {
        self.give_up_kept();
        self.context.memory_free().map(|bytes| bytes as u64)
    }

    /// Frees what is kept for later, once the work that may use it has ended.
    pub fn give_up_kept(&self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).give_up();
        self.free(kept);
    }

    /// What kernels reported of their data.
    pub fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// A mark behind what is enqueued on the compute stream by now, the end of run `number`.
    pub fn written(&self, number: u64) -> Result<Arc<Written>> {
        // Behind the work: a caller that looked at the number while it was being enqueued has not waited for all of it.
        self.uses.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.unordered.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let spare = self.spare_events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = spare.map_or_else(|| self.context.event(false), Ok)?;
        self.compute.record(&*event)?;
        Ok(Arc::new(Written { event: Some(event), spare: self.spare_events.clone(), number }))
    }

    /// Reads the first bytes of `memory` on the copy stream, once the run that wrote them has ended, and waits for
    /// them: work enqueued behind that run goes on meanwhile. Without `written`, it waits for all work first.
    pub fn read(&self, memory: &Block, written: Option<&Written>, to: &mut [u8]) -> Result<()> {
        match written {
            // On the host: what is enqueued on the copy stream behind this read need not wait for that run.
            Some(written) => written.wait(self)?,
            None => self.synchronize()?,
        }
        let bytes = to.len();
        self.timed(
            StreamKind::Copy,
            || format!("read {bytes} bytes"),
            |stream| {
                if bytes > PINNED_BYTES {
                    return memory.read(stream, 0, to);
                }
                let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
                let pinned = match &mut *pinned {
                    Some(pinned) => pinned,
                    none => none.insert(self.context.host_memory(PINNED_BYTES)?),
                };
                // SAFETY: the block has at least as many initialized bytes, and is used under its lock alone; the copy
                // into it is waited for before the lock is given up.
                let through = unsafe { std::slice::from_raw_parts_mut(pinned.pointer(), bytes) };
                memory.read(stream, 0, through)?;
                to.copy_from_slice(through);
                Ok(())
            },
        )
        .map_err(|error| self.faulted(error))?;
        if let Some(written) = written {
            self.finished(written.number);
        }
        Ok(())
    }

    /// Writes `from` to the beginning of a new block, and waits for it.
    pub(super) fn write(&self, memory: &mut Block, from: &[u8]) -> Result<()> {
        let staging = || self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = if Staging::pays(from.len()) { staging().lend(&*self.context) } else { None };
        // While another thread uses the pieces, this one copies without them.
        let Some(mut pieces) = lent else { return Ok(memory.write(self.stream(), 0, from)?) };
        pieces.write(self.stream(), memory, from).map_err(|error| self.faulted(error))?;
        staging().give_back(pieces);
        Ok(())
    }

    /// Has `work` enqueue an activity on the stream of a kind, and times it while a timeline is recorded.
    pub fn timed<T, E: From<DeviceError>>(
        &self,
        kind: StreamKind,
        what: impl FnOnce() -> String,
        work: impl FnOnce(&dyn DeviceStream) -> Result<T, E>,
    ) -> Result<T, E> {
        self.timed_on(self.stream_of(kind), kind, what, work)
    }

    /// As [`DeviceState::timed`], on `stream`, which is shown as one of that kind.
    pub fn timed_on<T, E: From<DeviceError>>(
        &self,
        stream: &dyn DeviceStream,
        kind: StreamKind,
        what: impl FnOnce() -> String,
        work: impl FnOnce(&dyn DeviceStream) -> Result<T, E>,
    ) -> Result<T, E> {
        let timeline = || self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        if timeline().is_none() {
            return work(stream);
        }
        let marks = Marks::begin(&*self.context, stream, kind, what())?;
        let done = work(stream)?;
        // It may have ended meanwhile.
        if let Some(timeline) = &mut *timeline() {
            marks.end(stream, timeline)?;
        }
        Ok(done)
    }

    /// Records what the streams do from now on, until [`DeviceState::end_timeline`]: runs, copies of inputs, reads.
    ///
    /// # Errors
    /// As [`DeviceState::synchronize`].
    pub fn begin_timeline(&self) -> Result<()> {
        self.synchronize()?;
        let timeline = Timeline::begin(&*self.context, &*self.compute)?;
        *self.timeline.lock().unwrap_or_else(PoisonError::into_inner) = Some(timeline);
        Ok(())
    }

    /// Whether a timeline is being recorded, other than one that times candidates.
    pub fn is_recording(&self) -> bool {
        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        timeline.as_ref().is_some_and(|timeline| !timeline.of_choices)
    }

    /// As [`DeviceState::begin_timeline`], to time candidates. False if another timeline is being recorded, which goes
    /// on.
    pub fn begin_choices(&self) -> Result<bool> {
        self.synchronize()?;
        let mut timeline = Timeline::begin(&*self.context, &*self.compute)?;
        timeline.of_choices = true;
        let mut recorded = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let free = recorded.is_none();
        if free {
            *recorded = Some(timeline);
        }
        Ok(free)
    }

    /// Ends the timeline of [`DeviceState::begin_choices`]; `None` if another thread began its own since.
    pub fn end_choices(&self) -> Result<Option<Vec<Activity>>> {
        self.take_timeline(true)
    }

    /// Ends a timeline before everything enqueued is waited for: what another thread enqueues after that is not in it.
    fn take_timeline(&self, of_choices: bool) -> Result<Option<Vec<Activity>>> {
        let mut recorded = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let timeline = recorded.take_if(|timeline| timeline.of_choices == of_choices);
        drop(recorded);
        self.synchronize()?;
        Ok(timeline.map(Timeline::activities).transpose()?)
    }

    /// Waits for everything enqueued, and gives what the streams did since [`DeviceState::begin_timeline`], in the
    /// order of the beginnings; nothing if no timeline was begun.
    ///
    /// # Errors
    /// As [`DeviceState::synchronize`].
    pub fn end_timeline(&self) -> Result<Vec<Activity>> {
        Ok(self.take_timeline(false)?.unwrap_or_default())
    }

    /// Says that the work of a function is being enqueued; the number of the run.
    pub fn enqueued(&self, function: &Arc<str>) -> u64 {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.enqueued += 1;
        let number = unfinished.enqueued;
        match unfinished.functions.iter_mut().find(|(known, _)| known == function) {
            Some((_, last)) => *last = number,
            None => unfinished.functions.push((function.clone(), number)),
        }
        number
    }

    /// The error for a failure of work that was enqueued earlier.
    pub fn faulted(&self, error: DeviceError) -> crate::Error {
        let unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = unfinished.functions.iter().map(|(name, _)| format!("'{name}'")).collect();
        match names.is_empty() {
            false => crate::Error::DeviceFault { functions: names.join(" or "), error },
            true => error.into(),
        }
    }

    /// Waits for everything enqueued.
    ///
    /// # Errors
    /// A fault of the device itself, such as an illegal address, after which the device runs nothing. The next
    /// synchronizing call returns the error, naming the functions that may have caused it.
    /// Invalid data that kernels report is an error of reading an array that depends on it.
    pub fn synchronize(&self) -> Result<()> {
        self.behind_awaited();
        let before = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).enqueued;
        for stream in self.work_streams().chain(self.inputs.as_deref()) {
            waiting(|| stream.synchronize()).map_err(|error| self.faulted(error))?;
        }
        self.finished(before);
        Ok(())
    }

    /// Runs up to this number have ended.
    fn finished(&self, number: u64) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.functions.retain(|(_, last)| *last > number);
    }

    /// Why nothing runs on the device any more in this process, after all work that is enqueued: it had a fault of
    /// the device itself.
    pub fn lost(&self) -> Option<crate::Error> {
        match self.compute.synchronize() {
            Err(error) if error.category() == Category::Lost => Some(self.faulted(error)),
            _ => None,
        }
    }
}
