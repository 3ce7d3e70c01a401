//! What a compilation has measured: its costly calls are gathered first, so that those with the most to win come first.

use indexmap::IndexMap;

use crate::choices::{Call, Choices, Wanted};
use crate::trace::Trace;

/// A compilation is repeated until nothing more is to be measured: each choice may bring other calls. So often at most.
pub(super) const PASSES: usize = 8;

/// What a compilation would have measured.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) wanted: IndexMap<Call, Wanted>,
    /// What its programs need of the device's memory, in bytes, if that is known.
    pub(super) peak: Option<u64>,
}

impl Gathered {
    /// With what another program of the same compilation asks for.
    pub(super) fn and(mut self, other: Gathered) -> Gathered {
        for (call, one) in other.wanted {
            let count = one.count;
            self.wanted.entry(call).and_modify(|known| known.count += count).or_insert(one);
        }
        Gathered { peak: self.peak.max(other.peak), ..self }
    }
}

/// Compiles; has measured what the compilation asked for, and compiles again, until nothing is asked for.
pub(super) fn settled<T>(
    trace: Trace,
    choices: Option<&dyn Choices>,
    mut once: impl FnMut(Trace) -> (T, Gathered),
) -> T {
    let Some(choices) = choices else { return once(trace).0 };
    for _ in 1..PASSES {
        let (made, gathered) = once(trace.clone());
        if gathered.wanted.is_empty() {
            return made;
        }
        let wanted: Vec<Wanted> = gathered.wanted.into_values().collect();
        choices.measure(&wanted, gathered.peak);
    }
    once(trace).0
}
