//! The streams that a program's work is recorded on. The recording is begun and ended on the main one; the others take
//! part as they wait for it, and it waits for them in the end. The events between them become edges of the graph.

use crate::{Context, CudaError, Event, Stream};

use super::stream::CudaStream;
use fulgurite_base::device::fences::{Fences, Streams};
use fulgurite_base::device::{DeviceCode, DeviceError, DeviceStream, StreamKind};

/// The streams of a recording.
pub(super) struct Recorders {
    main: CudaStream,
    others: Vec<(StreamKind, CudaStream)>,
    /// If steps are on several streams.
    pub(super) fences: Option<Fences>,
}

impl Recorders {
    /// Makes what the steps of `code` need.
    pub(super) fn new(context: &Context, code: &DeviceCode) -> Result<Recorders, DeviceError> {
        let others = code.other_streams().into_iter().map(|kind| Ok((kind, CudaStream::new(context)?)));
        Ok(Recorders {
            main: CudaStream::new(context)?,
            others: others.collect::<Result<_, CudaError>>()?,
            fences: Fences::new(code, || Ok(Box::new(Event::new(context)?)))?,
        })
    }

    /// The stream that the recording begins and ends on.
    pub(super) fn main(&self) -> &Stream {
        self.main.raw()
    }

    /// The stream of a kind.
    pub(super) fn of(&self, kind: StreamKind) -> &CudaStream {
        self.others.iter().find(|(other, _)| *other == kind).map_or(&self.main, |(_, stream)| stream)
    }
}

impl Streams for Recorders {
    fn of_kind(&self, kind: StreamKind) -> &dyn DeviceStream {
        self.of(kind)
    }
}
