//! Events between the streams of a program: a run begins on the compute stream and ends there, and in between a step
//! waits for the steps of other streams that its line says. The runtime enqueues them; a backend that records a run on
//! streams of its own makes edges of a graph of them.

use super::code::DeviceCode;
use super::error::DeviceError;
use super::stream::{DeviceEvent, DeviceStream};
use crate::stream_kind::StreamKind;

/// Streams by their kinds.
pub trait Streams {
    /// The stream of a kind; the compute stream where there is no other for it.
    fn of_kind(&self, kind: StreamKind) -> &dyn DeviceStream;
}

/// The events of a program whose steps are on several streams.
#[derive(Debug)]
pub struct Fences {
    /// Behind what is on the compute stream before the run.
    begin: Box<dyn DeviceEvent>,
    /// Behind each step that another waits for.
    steps: Vec<Option<Box<dyn DeviceEvent>>>,
    /// The other streams, each with the event behind its last step.
    others: Vec<(StreamKind, Box<dyn DeviceEvent>)>,
}

impl Fences {
    /// The events that the steps of `code` need, made by `event`; `None` if all are on the compute stream.
    pub fn new(
        code: &DeviceCode,
        event: impl Fn() -> Result<Box<dyn DeviceEvent>, DeviceError>,
    ) -> Result<Option<Fences>, DeviceError> {
        let others = code.other_streams();
        if others.is_empty() {
            return Ok(None);
        }
        let steps = code.awaited().into_iter().map(|awaited| awaited.then(&event).transpose());
        Ok(Some(Fences {
            begin: event()?,
            steps: steps.collect::<Result<_, _>>()?,
            others: others.into_iter().map(|stream| Ok((stream, event()?))).collect::<Result<_, DeviceError>>()?,
        }))
    }

    /// The other streams go on behind what is enqueued on the compute stream.
    pub fn begin(&self, streams: &impl Streams) -> Result<(), DeviceError> {
        streams.of_kind(StreamKind::Compute).record(&*self.begin)?;
        self.others.iter().try_for_each(|(kind, _)| streams.of_kind(*kind).wait(&*self.begin))
    }

    /// The work of a step that waits for `after` comes next on `stream`.
    pub fn before(&self, stream: &dyn DeviceStream, after: &[usize]) -> Result<(), DeviceError> {
        after.iter().filter_map(|step| self.steps[*step].as_ref()).try_for_each(|event| stream.wait(&**event))
    }

    /// The work of a step is enqueued on `stream`.
    pub fn after(&self, stream: &dyn DeviceStream, step: usize) -> Result<(), DeviceError> {
        self.steps[step].as_ref().map_or(Ok(()), |event| stream.record(&**event))
    }

    /// The compute stream goes on behind what is enqueued on the others.
    pub fn end(&self, streams: &impl Streams) -> Result<(), DeviceError> {
        for (kind, event) in &self.others {
            streams.of_kind(*kind).record(&**event)?;
            streams.of_kind(StreamKind::Compute).wait(&**event)?;
        }
        Ok(())
    }
}
