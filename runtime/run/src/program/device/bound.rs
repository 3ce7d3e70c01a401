//! A program and the state that it updates where it is: runs that look at none of the state's arrays. Where a training
//! step has hundreds of them, looking at each takes longer than all else that the host does for a run, the more so
//! since they are in no cache of the processor by then.

use std::sync::Arc;

use fulgurite_kernels::launch::DeviceAddress;

use super::DeviceProgram;
use super::inputs::{Seen, is_aligned};
use crate::array::{Array, Memory};
use crate::device::host_time::counted;
use crate::device::memory::Content;
use crate::device::{DeviceBuffer, DeviceCode, DeviceState};
use crate::error::Result;
use crate::program::placement::Source as OutputSource;
use crate::stream_kind::StreamKind;

/// The state that a program's first inputs and outputs are, as a run left it.
pub(in crate::program) struct State {
    /// Nobody else holds the memory of those that are overwritten.
    arrays: Vec<Array>,
    /// Of the state, of staged inputs, of small fresh outputs: all that a run is given.
    starts: Arc<[DeviceAddress]>,
    /// What the arrays that are overwritten say of their content. No other array shares it.
    content: Arc<Content>,
    /// What the other arrays of the state say.
    others: Vec<Arc<Content>>,
    /// The program's, to tell it from others.
    code: Arc<DeviceCode>,
}

impl State {
    /// The arrays of the state.
    pub(in crate::program) fn into_arrays(self) -> Vec<Array> {
        self.arrays
    }
}

impl DeviceProgram {
    /// Whether each of the first `count` outputs is the input of its number, updated in place or as it came, and
    /// nothing else of a run is elsewhere in the next one: other inputs and outputs have places of the program's own.
    fn is_updated_in_place(&self, count: usize) -> bool {
        let (outputs, overwritten) = (&self.placement.outputs, &self.placement.overwritten);
        let stays = |(at, source): (usize, &OutputSource)| match source {
            OutputSource::Donated(input) => *input == at,
            OutputSource::Passed(input) => *input == at && !overwritten[at],
            OutputSource::Fresh(_) | OutputSource::Same(_) => false,
        };
        count > 0
            && count <= outputs.len()
            && count <= overwritten.len()
            && outputs[..count].iter().enumerate().all(stays)
            && outputs[count..].iter().all(|source| matches!(source, OutputSource::Fresh(_)))
            && self.regions.staging[count..].iter().all(Option::is_some)
            && self.regions.outputs.iter().all(Option::is_some)
    }

    /// Keeps the first `count` of `outputs`, those of a run of this program, as the state of the runs to come; the rest
    /// are left. `None`, and all are left, where runs do not update that state in place, or another array shares a part
    /// of it.
    pub(in crate::program) fn bind(&self, outputs: &mut Vec<Array>, count: usize) -> Option<State> {
        if !self.is_updated_in_place(count) || count > outputs.len() {
            return None;
        }
        let loaded = self.loaded.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let loaded = loaded.as_ref()?;
        let mut starts = Vec::with_capacity(self.regions.staging.len() + self.regions.outputs.len());
        let (mut content, mut members, mut others) = (None::<Arc<Content>>, 0, Vec::new());
        for (array, overwritten) in outputs[..count].iter().zip(&self.placement.overwritten) {
            let buffer = own(array, &loaded.state)?;
            let start = buffer.address().offset(array.byte_offset());
            if (array.is_external() && !array.is_lent()) || !is_aligned(array, start) {
                return None;
            }
            starts.push(start);
            match (overwritten, buffer.shared_content()) {
                (true, Some(of)) if array.is_unique() && content.as_ref().is_none_or(|own| Arc::ptr_eq(own, &of)) => {
                    content = Some(of);
                    members += 1;
                }
                (true, _) => return None,
                (false, of) => others.extend(of),
            }
        }
        let content = content.filter(|content| Arc::strong_count(content) == members + 1)?;
        let places = self.regions.staging[count..].iter().chain(&self.regions.outputs);
        starts.extend(places.flatten().map(|offset| loaded.own().offset(*offset as usize)));
        let rest = outputs.split_off(count);
        let arrays = std::mem::replace(outputs, rest);
        Some(State { arrays, starts: starts.into(), content, others, code: self.code.clone() })
    }

    /// Enqueues a run of the state and `inputs`, the inputs behind it, which have the metas and strides that the
    /// program takes. The outputs behind the state. After an error the state is not to be used.
    pub(in crate::program) fn run_bound(&self, bound: &State, mut inputs: Vec<Array>) -> Result<Vec<Array>> {
        if !Arc::ptr_eq(&bound.code, &self.code) {
            unreachable!("a state is run by the program that it is bound to");
        }
        let count = bound.arrays.len();
        // Before the program is held, and so dropped behind it.
        let mut seen;
        let mut held = self.hold()?;
        let loaded = held.get();
        let state = loaded.state.clone();
        let _entered = state.context().enter()?;
        seen = Seen::look(&mut inputs, &self.placement.overwritten[count..], &state)
            .unwrap_or_else(|_| unreachable!("inputs behind the state are staged, and so not overwritten"));
        bound.content.add_origins(&mut seen.origins);
        bound.others.iter().for_each(|content| content.add_origins(&mut seen.origins));
        counted(|spent| &mut spent.inputs, || self.stage(loaded, &inputs, &self.regions.staging[count..]))?;
        let fresh = self.placement.fresh.iter().map(|meta| DeviceBuffer::on(&state, meta.bytes()));
        let fresh = fresh.collect::<Result<Vec<DeviceBuffer>>>()?;
        let number = state.enqueued(&self.code.name);
        counted(
            |spent| &mut spent.launching,
            || {
                let name = || self.trace.name.clone();
                state.timed(StreamKind::Compute, name, |_| self.replay(loaded, &bound.starts))
            },
        )?;
        counted(
            |spent| &mut spent.results,
            || {
                let (known, fresh) = self.ended(loaded, fresh, std::mem::take(&mut seen.origins), number)?;
                bound.content.replace(known.clone());
                let content = Content::new(known);
                let mut fresh: Vec<Option<Memory>> = fresh.into_iter().map(Some).collect();
                let outputs = self.placement.outputs[count..].iter().map(|source| {
                    let OutputSource::Fresh(n) = source else { unreachable!("outputs behind the state are fresh") };
                    let memory = fresh[*n].take().unwrap_or_else(|| unreachable!("made once, taken once"));
                    if let Memory::Device(buffer) = &memory {
                        buffer.set_written(&content);
                    }
                    self.placement.fresh_array(*n, memory)
                });
                Ok(outputs.collect())
            },
        )
    }
}

/// The memory of an array, if it is on the device.
fn own<'a>(array: &'a Array, state: &Arc<DeviceState>) -> Option<&'a Arc<DeviceBuffer>> {
    match array.memory() {
        Memory::Device(buffer) if Arc::ptr_eq(buffer.state(), state) => Some(buffer),
        Memory::Device(_) | Memory::Host(_) => None,
    }
}
