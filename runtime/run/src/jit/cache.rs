//! Compiled programs by key, the most recently used ones. One thread compiles a key, and other threads that need this
//! key wait for it. A thread that is compiling (a function may call others while it is traced) never waits, because two
//! threads could wait for each other; it compiles the key again itself.

use std::cell::Cell;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use rustc_hash::FxHashMap;

thread_local! {
    /// How many compilations this thread is in, of whatever function.
    static COMPILING: Cell<usize> = const { Cell::new(0) };
}

/// See the module. Calls of one key may look different, as `C` says: the look of the last call is kept beside its key.
pub(super) struct Cache<K, C, V> {
    limit: usize,
    state: Mutex<State<K, C, V>>,
    /// A compilation has ended.
    ended: Condvar,
}

struct State<K, C, V> {
    known: FxHashMap<Arc<K>, Entry<V>>,
    /// What was called last is mostly called next: comparing is faster than making a key.
    last: Option<Last<K, C, V>>,
    /// Counts changes of `last`.
    time: u64,
    compiling: Vec<(Arc<K>, ThreadId)>,
}

struct Last<K, C, V> {
    key: Arc<K>,
    call: C,
    value: Arc<V>,
}

struct Entry<V> {
    value: Arc<V>,
    used: u64,
}

/// The answer of [`Cache::find`].
pub(super) enum Found<'a, K: Hash + Eq, C, V> {
    Ready(Arc<V>),
    /// It is for the caller to compile.
    Missing(Place<'a, K, C, V>),
    /// This thread is compiling here already.
    Recursive,
}

/// The right to compile a key; others that want it wait until it is gone.
pub(super) struct Place<'a, K: Hash + Eq, C, V> {
    cache: &'a Cache<K, C, V>,
    key: Arc<K>,
    call: Option<C>,
}

impl<K: Hash + Eq, C, V> Cache<K, C, V> {
    pub(super) fn new(limit: usize) -> Self {
        let state = State { known: FxHashMap::default(), last: None, time: 0, compiling: Vec::new() };
        Cache { limit, state: Mutex::new(state), ended: Condvar::new() }
    }

    /// How many values are kept at most.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn len(&self) -> usize {
        self.lock().known.len()
    }

    /// The value used last, if `matches` says that its key and call are the ones wanted.
    pub(super) fn last(&self, matches: impl FnOnce(&K, &C) -> bool) -> Option<Arc<V>> {
        self.lock().last.as_ref().filter(|last| matches(&last.key, &last.call)).map(|last| last.value.clone())
    }

    /// The value of a key, for a call that looks like `call`.
    pub(super) fn find(&self, key: &Arc<K>, call: C) -> Found<'_, K, C, V> {
        let me = thread::current().id();
        let mut state = self.lock();
        loop {
            if let Some(value) = state.known.get(key).map(|entry| entry.value.clone()) {
                state.use_now(key, call, &value);
                return Found::Ready(value);
            }
            if state.compiling.iter().any(|(_, by)| *by == me) {
                return Found::Recursive;
            }
            if COMPILING.get() > 0 || state.compiling.iter().all(|(other, _)| other != key) {
                state.compiling.push((key.clone(), me));
                COMPILING.set(COMPILING.get() + 1);
                return Found::Missing(Place { cache: self, key: key.clone(), call: Some(call) });
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Drops what was compiled for keys that `is_stale` names.
    pub(super) fn forget(&self, is_stale: impl Fn(&K) -> bool) {
        let mut gone = Vec::new();
        {
            let mut state = self.lock();
            let stale: Vec<Arc<K>> = state.known.keys().filter(|key| is_stale(key)).cloned().collect();
            gone.extend(stale.iter().filter_map(|key| state.known.remove(key)));
            if state.last.as_ref().is_some_and(|last| is_stale(&last.key)) {
                state.last = None;
            }
        }
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, State<K, C, V>> {
        // No code of others runs while it is held, so that it is whole even if a thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, C, V> State<K, C, V> {
    fn use_now(&mut self, key: &Arc<K>, call: C, value: &Arc<V>) {
        self.time += 1;
        let time = self.time;
        // The one before was used until now.
        let before = self.last.replace(Last { key: key.clone(), call, value: value.clone() });
        for (key, used) in before.iter().map(|last| (&last.key, time - 1)).chain([(key, time)]) {
            if let Some(entry) = self.known.get_mut(key) {
                entry.used = used;
            }
        }
    }
}

impl<K: Hash + Eq, C, V> Place<'_, K, C, V> {
    /// Keeps what was compiled; what was used longest ago goes where there is too much.
    pub(super) fn fill(mut self, value: V) -> Arc<V> {
        let value = Arc::new(value);
        let mut gone = Vec::new();
        {
            let mut state = self.cache.lock();
            state.known.insert(self.key.clone(), Entry { value: value.clone(), used: 0 });
            if let Some(call) = self.call.take() {
                state.use_now(&self.key, call, &value);
            }
            while state.known.len() > self.cache.limit {
                let oldest = state.known.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
                gone.extend(oldest.and_then(|key| state.known.remove(&key)));
            }
        }
        // Giving back a program's memory takes a while: nobody waits for it.
        drop(gone);
        value
    }
}

impl<K: Hash + Eq, C, V> Drop for Place<'_, K, C, V> {
    fn drop(&mut self) {
        COMPILING.set(COMPILING.get().saturating_sub(1));
        self.cache.lock().compiling.retain(|(key, _)| !Arc::ptr_eq(key, &self.key));
        self.cache.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(cache: &Cache<u32, (), u32>, key: u32) -> (u32, bool) {
        match cache.find(&Arc::new(key), ()) {
            Found::Ready(value) => (*value, true),
            Found::Missing(place) => (*place.fill(key * 10), false),
            Found::Recursive => panic!("nobody compiles"),
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes() {
        let cache = Cache::new(2);
        assert_eq!([get(&cache, 1), get(&cache, 2), get(&cache, 1)], [(10, false), (20, false), (10, true)]);
        assert_eq!(get(&cache, 3), (30, false), "2 goes");
        assert_eq!([get(&cache, 1), get(&cache, 2)], [(10, true), (20, false)]);
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.last(|key, ()| *key == 2).as_deref(), Some(&20));
        assert!(cache.last(|key, ()| *key == 1).is_none());
    }

    #[test]
    fn what_is_stale_goes() {
        let cache = Cache::new(4);
        for key in 1..=3 {
            get(&cache, key);
        }
        cache.forget(|key| *key != 2);
        assert_eq!((cache.len(), cache.last(|_, ()| true)), (1, None));
        assert_eq!([get(&cache, 2), get(&cache, 3)], [(20, true), (30, false)]);
    }

    #[test]
    fn a_thread_that_compiles_is_not_waited_for_by_itself() {
        let cache: Cache<u32, (), u32> = Cache::new(2);
        let Found::Missing(place) = cache.find(&Arc::new(1), ()) else { panic!("nothing is known") };
        assert!(matches!(cache.find(&Arc::new(1), ()), Found::Recursive));
        assert!(matches!(cache.find(&Arc::new(2), ()), Found::Recursive));
        // Another thread compiles another key meanwhile, and gets this one when the place is given up.
        std::thread::scope(|scope| {
            assert_eq!(scope.spawn(|| get(&cache, 2)).join().unwrap(), (20, false));
            let waits = scope.spawn(|| get(&cache, 1));
            drop(place);
            assert_eq!(waits.join().unwrap(), (10, false));
        });
    }

    #[test]
    fn a_thread_that_compiles_waits_for_nobody() {
        let (f, g): (Cache<u32, (), u32>, Cache<u32, (), u32>) = (Cache::new(2), Cache::new(2));
        let Found::Missing(ours) = f.find(&Arc::new(1), ()) else { panic!("nothing is known") };
        let (began, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let Found::Missing(theirs) = g.find(&Arc::new(1), ()) else { panic!("nothing is known") };
                began.wait();
                go.wait();
                theirs.fill(10);
            });
            began.wait();
            // Waiting here would be waiting for a thread that may wait for `f`.
            assert_eq!(get(&g, 1), (10, false));
            go.wait();
        });
        ours.fill(10);
        assert_eq!(get(&g, 1), (10, true));
        assert_eq!(g.len(), 1);
    }
}
