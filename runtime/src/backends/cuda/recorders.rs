//! The streams that a program's work is recorded on, and the events between them, which become edges of the graph.

use fulgurite_kernels::cuda::{Context, CudaError, Event, Stream};

use crate::device::{DeviceCode, StreamKind};

/// The streams of a recording. It is begun and ended on the main one; the others take part as they wait for it, and it
/// waits for them in the end.
#[derive(Default)]
pub(super) struct Recorders {
    main: Option<Stream>,
    /// Behind what begins a run.
    begin: Option<Event>,
    /// Behind each step that another waits for.
    steps: Vec<Option<Event>>,
    /// Those beside the stream of computation, each with the event behind its last step.
    pub(super) others: Vec<(StreamKind, Stream, Event)>,
}

impl Recorders {
    /// Makes what the steps of `code` need, once.
    pub(super) fn prepare(&mut self, context: &Context, code: &DeviceCode) -> Result<(), CudaError> {
        if self.main.is_some() {
            return Ok(());
        }
        for stream in code.other_streams() {
            self.others.push((stream, Stream::new(context)?, Event::new(context)?));
        }
        if !self.others.is_empty() {
            self.begin = Some(Event::new(context)?);
            let event = |awaited: bool| awaited.then(|| Event::new(context)).transpose();
            self.steps = code.awaited().into_iter().map(event).collect::<Result<_, _>>()?;
        }
        self.main = Some(Stream::new(context)?);
        Ok(())
    }

    /// The stream that the recording begins and ends on.
    pub(super) fn main(&self) -> &Stream {
        self.main.as_ref().unwrap_or_else(|| unreachable!("prepared before"))
    }

    /// The stream of a kind.
    pub(super) fn of(&self, kind: StreamKind) -> &Stream {
        let other = self.others.iter().find(|(other, ..)| *other == kind);
        other.map_or_else(|| self.main(), |(_, stream, _)| stream)
    }

    /// The other streams go on behind what is recorded by now.
    pub(super) fn begin(&self) -> Result<(), CudaError> {
        let Some(begin) = &self.begin else { return Ok(()) };
        begin.record(self.main())?;
        self.others.iter().try_for_each(|(_, stream, _)| stream.wait(begin))
    }

    /// The work of a step that waits for `after` comes next.
    pub(super) fn before(&self, stream: &Stream, after: &[usize]) -> Result<(), CudaError> {
        after.iter().filter_map(|step| self.steps[*step].as_ref()).try_for_each(|event| stream.wait(event))
    }

    /// The work of a step is recorded on `stream`; behind the last one the main stream waits for all.
    pub(super) fn after(&self, stream: &Stream, step: usize, last: bool) -> Result<(), CudaError> {
        if let Some(event) = &self.steps[step] {
            event.record(stream)?;
        }
        for (_, other, event) in self.others.iter().filter(|_| last) {
            event.record(other)?;
            self.main().wait(event)?;
        }
        Ok(())
    }
}
