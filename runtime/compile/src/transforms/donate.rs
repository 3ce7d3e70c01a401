//! Donation: outputs take the memory of donated inputs of the same path, where nothing reads the input after the output
//! is written.

use rustc_hash::FxHashSet;

use crate::trace::donations::Donor;
pub use crate::trace::donations::{Donation, donations};
use crate::trace::{StageName, Storage, Trace, ValueId};

/// Lets outputs take the memory of donated inputs of the same path, where nothing reads the input after the output is
/// written.
pub fn donate(trace: &Trace) -> Trace {
    let mut planned = trace.at_stage(StageName::Donate, trace.block.clone());
    let mut taken: FxHashSet<ValueId> = FxHashSet::default();
    let mut shared: Vec<(ValueId, ValueId)> = Vec::new();
    {
        let mut donor = Donor::of(&planned);
        for (result, output) in planned.block.results.iter().zip(&planned.outputs) {
            let Some(parameter) = donor.of_path(&output.path) else { continue };
            if !taken.contains(&parameter) && donor.fits(*result, parameter).is_ok() {
                taken.insert(parameter);
                shared.push((*result, parameter));
            }
        }
    }
    for (result, parameter) in shared {
        planned.block.values[result.index()].storage = Some(Storage::Shared(parameter));
    }
    planned
}
