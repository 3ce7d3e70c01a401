//! Wrong data that kernels report, such as an index out of range: which run reported it, and which arrays come from
//! that run.
//!
//! After a run of a program that checks its data, its record is copied to the host. Arrays know the runs that they
//! depend on ([`Origins`]), through any number of programs. Reading an array waits for the last of them and then
//! checks the records of these runs. So every read of an array that depends on a faulted run returns the error, and no
//! other read does.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fulgurite_kernels::launch::DeviceAddress;
use smallvec::SmallVec;

use super::code::RECORD_BYTES;
use super::context::DeviceContext;
use super::host_time::waiting;
use super::stream::{DeviceEvent, DeviceStream, HostMemory};
use crate::error::{Error, Result};

/// Copies of records that wait to be read. When all are in use, the oldest run is waited for.
const SLOTS: usize = 64;

/// What a kernel wrote: its fault code, the value, and the number that it must be below.
pub type Record = [u8; RECORD_BYTES];

/// Turns a record into an error. It keeps the device's record alive.
pub trait Reporter: Debug + Send + Sync {
    /// The error in a record; `None` if no fault was reported.
    fn error(&self, record: &Record) -> Option<Error>;
}

/// A record with an error.
#[derive(Debug)]
struct Fault {
    /// The run that reported it.
    number: u64,
    reporter: Arc<dyn Reporter>,
    record: Record,
    /// Whether an error was returned for it.
    told: AtomicBool,
}

/// A run whose kernels check their data.
#[derive(Debug)]
pub(crate) struct CheckedRun {
    number: u64,
    reporter: Arc<dyn Reporter>,
    /// The runs that its inputs come from, until its outcome is known.
    inputs: Mutex<Origins>,
    /// Its record, once it was read.
    record: OnceLock<Record>,
    /// The first fault that its results depend on, if there is one.
    outcome: OnceLock<Option<Arc<Fault>>>,
}

/// The runs that the content of an array comes from, as far as they are not known to be without fault.
#[derive(Debug, Clone, Default)]
pub struct Origins(SmallVec<[Arc<CheckedRun>; 1]>);

impl Origins {
    /// Adds those of another array.
    pub fn add(&mut self, others: &Origins) {
        for run in &others.0 {
            let sound = matches!(run.outcome.get(), Some(None));
            if !sound && !self.0.iter().any(|known| Arc::ptr_eq(known, run)) {
                self.0.push(run.clone());
            }
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The records of a device's runs, in the order of its stream.
#[derive(Debug, Default)]
pub struct FaultLog(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    issued: u64,
    slots: Option<Slots>,
}

#[derive(Debug)]
struct Slots {
    memory: Box<dyn HostMemory>,
    /// For each slot a mark behind the copy into it.
    copied: Vec<Box<dyn DeviceEvent>>,
    runs: Vec<Option<Arc<CheckedRun>>>,
}

impl Slots {
    fn new(context: &dyn DeviceContext) -> Result<Slots> {
        Ok(Slots {
            memory: context.host_memory(SLOTS * RECORD_BYTES)?,
            copied: (0..SLOTS).map(|_| context.event(false)).collect::<std::result::Result<_, _>>()?,
            runs: vec![None; SLOTS],
        })
    }

    /// The copy in a slot. It must be complete.
    fn read(&self, slot: usize) -> Record {
        let mut record = [0; RECORD_BYTES];
        // SAFETY: the slot is in this memory, and the copy into it is complete, as the caller says; the bytes were
        // zero before.
        let copy = unsafe { std::slice::from_raw_parts(self.memory.pointer().add(slot * RECORD_BYTES), RECORD_BYTES) };
        record.copy_from_slice(copy);
        record
    }
}

impl FaultLog {
    /// Enqueues a copy of the record at `address`, behind the run that may have written to it, and gives the origins of
    /// the run's results. Until the results' readers are gone the record is the reporter's to keep alive.
    pub fn fetch(
        &self,
        (context, stream): (&dyn DeviceContext, &dyn DeviceStream),
        address: DeviceAddress,
        reporter: Arc<dyn Reporter>,
        inputs: Origins,
    ) -> Result<Origins> {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Ring { issued, slots } = &mut *ring;
        let slots = match slots {
            Some(slots) => slots,
            none => none.insert(Slots::new(context)?),
        };
        let slot = (*issued % SLOTS as u64) as usize;
        let earlier = slots.runs[slot].take();
        if let Some(earlier) = &earlier {
            waiting(|| slots.copied[slot].synchronize())?;
            let _ = earlier.record.set(slots.read(slot));
        }
        // SAFETY: the slot is in pinned memory that lives as long as the stream's state, and is read after the event
        // below; no other slice of these bytes exists, since the earlier run has its record.
        unsafe {
            let to = std::slice::from_raw_parts_mut(slots.memory.pointer().add(slot * RECORD_BYTES), RECORD_BYTES);
            stream.copy_out(to, address)?;
        }
        stream.record(&*slots.copied[slot])?;
        let run = Arc::new(CheckedRun {
            number: *issued,
            reporter,
            inputs: Mutex::new(inputs),
            record: OnceLock::new(),
            outcome: OnceLock::new(),
        });
        slots.runs[slot] = Some(run.clone());
        *issued += 1;
        drop(ring);
        // So that no chain of runs grows that nobody reads from.
        if let Some(earlier) = earlier {
            self.fault_of(&earlier);
        }
        Ok(Origins(SmallVec::from_elem(run, 1)))
    }

    /// The fault that the results of a run depend on. The run must have ended.
    fn fault_of(&self, run: &CheckedRun) -> Option<Arc<Fault>> {
        let outcome = run.outcome.get_or_init(|| {
            let record = self.record_of(run);
            let inputs = run.inputs.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // What went wrong first is told: the rest may follow from it.
            self.first_of(&inputs).or_else(|| {
                let fault = |_| Fault {
                    number: run.number,
                    reporter: run.reporter.clone(),
                    record,
                    told: AtomicBool::new(false),
                };
                run.reporter.error(&record).map(fault).map(Arc::new)
            })
        });
        *run.inputs.lock().unwrap_or_else(PoisonError::into_inner) = Origins::default();
        outcome.clone()
    }

    fn first_of(&self, origins: &Origins) -> Option<Arc<Fault>> {
        origins.0.iter().filter_map(|run| self.fault_of(run)).min_by_key(|fault| fault.number)
    }

    /// The record of a run that has ended.
    fn record_of(&self, run: &CheckedRun) -> Record {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Set before the slot is given to another run, also under the lock.
        *run.record.get_or_init(|| match &ring.slots {
            Some(slots) => slots.read((run.number % SLOTS as u64) as usize),
            None => [0; RECORD_BYTES],
        })
    }

    /// Whether what comes from these runs can be read. All of them must have ended.
    ///
    /// # Errors
    /// The first fault that it depends on.
    pub fn check(&self, origins: &Origins) -> Result<()> {
        self.first_of(origins).map_or(Ok(()), |fault| told(&fault))
    }

    /// As [`FaultLog::check`], of the runs that have ended by now, which are taken out of `origins`; the host does not
    /// wait for the others.
    ///
    /// # Errors
    /// As there; the driver's.
    pub fn check_ended(&self, origins: &mut Origins) -> Result<()> {
        let ended = self.take_ended(origins)?;
        self.check(&ended)
    }

    /// As [`FaultLog::check_ended`], without faults that were told before: many results depend on one.
    ///
    /// # Errors
    /// As there.
    pub fn check_ended_once(&self, origins: &mut Origins) -> Result<()> {
        let ended = self.take_ended(origins)?;
        let untold = |run: &Arc<CheckedRun>| self.fault_of(run).filter(|fault| !fault.told.load(Ordering::Relaxed));
        let first = ended.0.iter().filter_map(untold).min_by_key(|fault| fault.number);
        let done = first.map_or(Ok(()), |fault| told(&fault));
        // The next one is told by the next call.
        origins.0.extend(ended.0.iter().filter(|run| untold(run).is_some()).cloned());
        done
    }

    /// Takes the runs that have ended by now.
    fn take_ended(&self, origins: &mut Origins) -> Result<Origins> {
        let mut ended = Origins::default();
        let mut left = Origins::default();
        for run in &origins.0 {
            let of = if self.has_ended(run)? { &mut ended } else { &mut left };
            of.0.push(run.clone());
        }
        *origins = left;
        Ok(ended)
    }

    fn has_ended(&self, run: &CheckedRun) -> Result<bool> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &ring.slots {
            // The slot is the run's own until its record was taken from it.
            Some(slots) if run.record.get().is_none() => {
                Ok(slots.copied[(run.number % SLOTS as u64) as usize].is_reached()?)
            }
            _ => Ok(true),
        }
    }
}

/// The error of a fault.
fn told(fault: &Fault) -> Result<()> {
    fault.told.store(true, Ordering::Relaxed);
    fault.reporter.error(&fault.record).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    /// Says the first byte of a record.
    #[derive(Debug)]
    struct Says;

    impl Reporter for Says {
        fn error(&self, record: &Record) -> Option<Error> {
            let failure = Failure::new("IndexOutOfRange", format!("fault {}", record[0]));
            (record[0] != 0).then(|| Error::Operator { operator: "f".into(), failure, stack: Default::default() })
        }
    }

    /// A run that has ended with a record.
    fn run(number: u64, said: u8, inputs: &[&Origins]) -> Origins {
        let mut from = Origins::default();
        inputs.iter().for_each(|input| from.add(input));
        let mut record = [0; RECORD_BYTES];
        record[0] = said;
        Origins(SmallVec::from_elem(
            Arc::new(CheckedRun {
                number,
                reporter: Arc::new(Says),
                inputs: Mutex::new(from),
                record: OnceLock::from(record),
                outcome: OnceLock::new(),
            }),
            1,
        ))
    }

    fn told(log: &FaultLog, origins: &Origins) -> String {
        log.check(origins).map_or_else(|error| error.to_string(), |()| "sound".into())
    }

    #[test]
    fn a_fault_reaches_all_that_depends_on_it_each_time_and_nothing_else() {
        let log = FaultLog::default();
        let (good, bad) = (run(0, 0, &[]), run(1, 7, &[]));
        let after_bad = run(2, 0, &[&good, &bad]);
        let after_good = run(3, 0, &[&good]);
        for _ in 0..2 {
            assert_eq!(told(&log, &after_good), "sound");
            assert!(told(&log, &after_bad).contains("fault 7"));
            assert!(told(&log, &bad).contains("fault 7"));
        }
        // The first: its own follows from that of its inputs.
        assert!(told(&log, &run(4, 9, &[&after_bad])).contains("fault 7"));
        assert!(told(&log, &run(5, 9, &[&after_good])).contains("fault 9"));
        // Faults of several arrays.
        let mut both = Origins::default();
        [&after_good, &after_bad, &bad].into_iter().for_each(|origins| both.add(origins));
        assert!(told(&log, &both).contains("fault 7"));
    }

    #[test]
    fn a_fault_is_told_once_where_each_is_told_once() {
        let log = FaultLog::default();
        let bad = run(0, 7, &[]);
        let after = run(1, 0, &[&bad]);
        assert!(log.check_ended_once(&mut after.clone()).unwrap_err().to_string().contains("fault 7"));
        // Of what depends on the same fault no more, but of another one.
        log.check_ended_once(&mut bad.clone()).unwrap();
        log.check_ended_once(&mut run(2, 0, &[&after]).clone()).unwrap();
        assert!(log.check_ended_once(&mut run(3, 9, &[]).clone()).is_err());
        // Two at once are told one after the other.
        let mut both = run(4, 5, &[]);
        both.add(&run(5, 6, &[]));
        assert!(log.check_ended_once(&mut both).unwrap_err().to_string().contains("fault 5"));
        assert!(log.check_ended_once(&mut both).unwrap_err().to_string().contains("fault 6"));
        log.check_ended_once(&mut both).unwrap();
        assert!(both.is_empty());
        // Readers are told each time.
        assert!(log.check_ended(&mut after.clone()).is_err());
        assert!(log.check(&bad).is_err());
    }

    #[test]
    fn what_is_known_to_be_sound_is_forgotten() {
        let log = FaultLog::default();
        let good = run(0, 0, &[]);
        let mut origins = Origins::default();
        origins.add(&good);
        origins.add(&good);
        assert_eq!(origins.0.len(), 1);
        log.check(&good).unwrap();
        let mut later = Origins::default();
        later.add(&origins);
        assert!(later.is_empty());
        // A chain that is settled from its start on holds nothing.
        let mut last = good;
        for number in 1..10_000 {
            last = run(number, 0, &[&last]);
            log.check(&last).unwrap();
            assert!(last.0[0].inputs.lock().unwrap().is_empty());
        }
    }
}
