//! What a running program has registered beside the declarations that are linked into it.
//!
//! Records live as long as the process: traces and programs refer to them without a count. A registration that is
//! withdrawn is found no more, and its record stays where it is, so that what was compiled with it keeps running.
//!
//! A compilation looks at one state of the registrations from its beginning to its end ([`pin`]), whatever other
//! threads register meanwhile. States are numbered ([`epoch`]); the number is part of the keys of `jit`.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Place, Result};

/// A record of any kind.
pub type AnyRecord = dyn Any + Send + Sync;

/// A registered record without which another one is of no use.
#[derive(Clone, Copy)]
pub struct Need {
    /// What it is, in a word: `operator`, `executor`, ...
    pub what: &'static str,
    /// The name it is registered by.
    pub name: &'static str,
    /// The record itself: another version of it does not do.
    pub record: &'static AnyRecord,
}

/// A record, and the place of its registration.
pub struct Entry {
    /// What it is, in a word: `operator`, `executor`, ...
    pub what: &'static str,
    /// The name it is registered by.
    pub name: &'static str,
    /// Its version; a later one replaces an earlier one.
    pub version: u32,
    /// Where it was registered.
    pub place: Place,
    /// The record.
    pub record: &'static AnyRecord,
    /// The registered records without which this one is of no use.
    pub needs: Vec<Need>,
    withdrawn: AtomicBool,
}

impl Entry {
    /// A record of this kind, name and version.
    pub fn new(
        (what, name, version): (&'static str, &'static str, u32),
        place: Place,
        record: &'static AnyRecord,
        needs: Vec<Need>,
    ) -> Entry {
        Entry { what, name, version, place, record, needs, withdrawn: AtomicBool::new(false) }
    }

    fn refused(&self, message: String) -> Error {
        refused(self.what, self.name, self.place, message)
    }

    /// Whether it is the record that `need` names, and not another version of it.
    fn is(&self, need: &Need) -> bool {
        std::ptr::addr_eq(self.record, need.record)
    }
}

/// The error of a registration or a withdrawal.
pub fn refused(what: &'static str, name: &str, place: Place, message: String) -> Error {
    Error::Registration { what, name: name.to_owned(), message, place }
}

/// One state of the registrations. In the first there are none.
#[derive(Default)]
struct State {
    epoch: u64,
    entries: Vec<Arc<Entry>>,
}

static STATE: Mutex<Option<Arc<State>>> = Mutex::new(None);
/// The number of the present state.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// The last number that a state had.
static ISSUED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The state that this thread looks at while it compiles, and how many compilations it is in.
    static PINNED: RefCell<Option<(usize, Option<Arc<State>>)>> = const { RefCell::new(None) };
}

/// The present state, whatever is pinned; none where nothing is registered.
fn current() -> Option<Arc<State>> {
    match EPOCH.load(Ordering::Acquire) {
        0 => None,
        _ => STATE.lock().unwrap_or_else(PoisonError::into_inner).clone(),
    }
}

/// The state that this thread looks at.
fn seen() -> Option<Arc<State>> {
    match PINNED.with_borrow(|pinned| pinned.as_ref().map(|(_, state)| state.clone())) {
        Some(pinned) => pinned,
        None => current(),
    }
}

/// The number of the state that this thread looks at: 0 where nothing is registered, and no two other states share one.
pub fn epoch() -> u64 {
    let pinned =
        PINNED.with_borrow(|pinned| pinned.as_ref().map(|(_, state)| state.as_ref().map_or(0, |state| state.epoch)));
    pinned.unwrap_or_else(|| EPOCH.load(Ordering::Acquire))
}

/// The registered records of a type, in the order of their registration.
pub fn records<T: Any>() -> Vec<&'static T> {
    seen().map_or_else(Vec::new, |state| state.entries.iter().filter_map(|entry| entry.record.downcast_ref()).collect())
}

/// The first registered record of a type for which `is` holds.
pub fn find<T: Any>(is: impl Fn(&T) -> bool) -> Option<&'static T> {
    let state = seen()?;
    let records = state.entries.iter().filter_map(|entry| entry.record.downcast_ref());
    records.into_iter().find(|record| is(record))
}

/// All that is registered now, in the order of registration.
pub fn entries() -> Vec<Arc<Entry>> {
    current().map_or_else(Vec::new, |state| state.entries.clone())
}

fn change<T>(f: impl FnOnce(&mut Vec<Arc<Entry>>) -> Result<T>) -> Result<T> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entries = state.as_ref().map_or_else(Vec::new, |state| state.entries.clone());
    let value = f(&mut entries)?;
    let epoch = match entries.is_empty() {
        true => 0,
        false => ISSUED.fetch_add(1, Ordering::Relaxed) + 1,
    };
    *state = Some(Arc::new(State { epoch, entries }));
    EPOCH.store(epoch, Ordering::Release);
    Ok(value)
}

/// Adds a record. `declared` is where a declaration of the same name is.
pub fn add(entry: Entry, declared: Option<String>) -> Result<Arc<Entry>> {
    if let Some(declared) = declared {
        return Err(entry.refused(format!("it is declared {declared}")));
    }
    let entry = Arc::new(entry);
    change(|entries| {
        if let Some(other) = entries.iter().find(|other| other.what == entry.what && other.name == entry.name) {
            let message = format!(
                "version {} of it is registered at {}; withdraw that before version {} is registered",
                other.version, other.place, entry.version
            );
            return Err(entry.refused(message));
        }
        // It was found before this lock was taken, perhaps in an earlier state that the thread is pinned to.
        if let Some(Need { what, name, .. }) = entry.needs.iter().find(|need| !entries.iter().any(|own| own.is(need))) {
            return Err(entry.refused(format!("the {what} '{name}', which it needs, was withdrawn meanwhile")));
        }
        entries.push(entry.clone());
        Ok(())
    })?;
    Ok(entry)
}

/// Takes a record back.
pub fn remove(entry: &Arc<Entry>, place: Place) -> Result<()> {
    change(|entries| {
        if entry.withdrawn.load(Ordering::Relaxed) {
            let message = format!("what was registered at {} is withdrawn already", entry.place);
            return Err(refused(entry.what, entry.name, place, message));
        }
        if let Some(other) = entries.iter().find(|other| other.needs.iter().any(|need| entry.is(need))) {
            let message = format!(
                "the {} '{}', registered at {}, needs it; withdraw that first",
                other.what, other.name, other.place
            );
            return Err(refused(entry.what, entry.name, place, message));
        }
        entries.retain(|other| !Arc::ptr_eq(other, entry));
        entry.withdrawn.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// While it is alive, the thread that made it looks at the state of the registrations at its making.
pub struct Pin(std::marker::PhantomData<*const ()>);

/// Has this thread look at one state of the registrations; that of the outermost pin.
pub fn pin() -> Pin {
    PINNED.with_borrow_mut(|pinned| match pinned {
        Some((depth, _)) => *depth += 1,
        none => *none = Some((1, current())),
    });
    Pin(std::marker::PhantomData)
}

impl Drop for Pin {
    fn drop(&mut self) {
        PINNED.with_borrow_mut(|pinned| match pinned {
            Some((depth, _)) if *depth > 1 => *depth -= 1,
            last => *last = None,
        });
    }
}
