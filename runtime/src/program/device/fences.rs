//! Events between the streams of a program: a run begins on the compute stream and ends there, and in between a step
//! waits for the steps of other streams that its line says.

use crate::device::{DeviceCode, DeviceEvent, DeviceState, DeviceStream};
use crate::error::Result;
use crate::stream_kind::StreamKind;

/// The events of a program whose steps are on several streams.
pub(super) struct Fences {
    /// Behind what is on the compute stream before the run.
    begin: Box<dyn DeviceEvent>,
    /// Behind each step that another waits for.
    steps: Vec<Option<Box<dyn DeviceEvent>>>,
    /// The other streams, each with the event behind its last step.
    others: Vec<(StreamKind, Box<dyn DeviceEvent>)>,
}

impl Fences {
    /// The events that the steps of `code` need; `None` if all are on the compute stream.
    pub(super) fn new(state: &DeviceState, code: &DeviceCode) -> Result<Option<Fences>> {
        let others = code.other_streams();
        if others.is_empty() {
            return Ok(None);
        }
        let event = || state.context().event(false);
        let steps = code.awaited().into_iter().map(|awaited| awaited.then(event).transpose());
        Ok(Some(Fences {
            begin: event()?,
            steps: steps.collect::<Result<_, _>>()?,
            others: others.into_iter().map(|stream| Ok((stream, event()?))).collect::<Result<_>>()?,
        }))
    }

    /// The other streams go on behind what is enqueued on the compute stream.
    pub(super) fn begin(&self, state: &DeviceState) -> Result<()> {
        state.stream().record(&*self.begin)?;
        Ok(self.others.iter().try_for_each(|(stream, _)| state.stream_of(*stream).wait(&*self.begin))?)
    }

    /// The work of a step that waits for `after` comes next on `stream`.
    pub(super) fn before(&self, stream: &dyn DeviceStream, after: &[usize]) -> Result<()> {
        Ok(after.iter().filter_map(|step| self.steps[*step].as_ref()).try_for_each(|event| stream.wait(&**event))?)
    }

    /// The work of a step is enqueued on `stream`.
    pub(super) fn after(&self, stream: &dyn DeviceStream, step: usize) -> Result<()> {
        Ok(self.steps[step].as_ref().map_or(Ok(()), |event| stream.record(&**event))?)
    }

    /// The compute stream goes on behind what is enqueued on the others.
    pub(super) fn end(&self, state: &DeviceState) -> Result<()> {
        for (stream, event) in &self.others {
            state.stream_of(*stream).record(&**event)?;
            state.stream().wait(&**event)?;
        }
        Ok(())
    }
}
