//! CUDA graphs: work recorded once from a stream, and launched again and again for the host cost of one call.

use super::call::driver;
use super::context::Context;
use super::error::{CudaError, Result};
use super::stream::Stream;
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUstreamCaptureMode_enum as Mode};

/// Which calls that no graph can hold are refused while a capture is open: allocations, waiting on the host, and such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaptureMode {
    /// Those of this thread. Other threads go on as they like.
    #[default]
    ThreadLocal,
    /// None; the caller knows that they do no harm.
    Relaxed,
}

/// Work recorded from a stream.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    raw: CUgraph,
}

/// A graph made ready for launching.
#[derive(Debug)]
pub struct ExecutableGraph {
    context: Context,
    raw: CUgraphExec,
}

// SAFETY: a graph may be used by any thread, though only by one at a time, so it is not `Sync`.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Send for ExecutableGraph {}

/// A capture that is open. If it goes out of scope without having been ended (by an error or a panic), the capture is
/// ended and thrown away, so that the stream can be used again.
struct Capture<'a>(Option<&'a Stream>);

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream, mode: CaptureMode) -> Result<Capture<'a>> {
        let mode = match mode {
            CaptureMode::ThreadLocal => Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: the stream is alive, and its context is current.
        unsafe { driver!(cuStreamBeginCapture_v2(stream.bound()?, mode)) }?;
        Ok(Capture(Some(stream)))
    }

    fn end(mut self) -> Result<Graph> {
        // There always is one: only this function and `drop` take it.
        let stream = self.0.take();
        stream.map_or(Err(no_graph()), end)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        // The graph is dropped. An error tells of what the caller hears about already: an invalidated capture.
        let _ = self.0.take().map(end);
    }
}

fn end(stream: &Stream) -> Result<Graph> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the stream is alive, and a capture that `Capture::begin` began is open on it.
    unsafe { driver!(cuStreamEndCapture(stream.bound()?, &mut raw)) }?;
    if raw.is_null() { Err(no_graph()) } else { Ok(Graph { context: stream.context().clone(), raw }) }
}

fn no_graph() -> CudaError {
    let text = "the capture was invalidated by a call that no graph can hold".into();
    CudaError::Driver { call: "cuStreamEndCapture", name: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED".into(), text }
}

impl Stream {
    /// Records what `record` enqueues on this stream, and on streams that wait for it and that it waits for in the end,
    /// instead of running it.
    ///
    /// # Errors
    /// Those of `record`, which end the capture, and the driver's. The stream can be used again in any case.
    pub fn capture<E: From<CudaError>>(
        &self,
        mode: CaptureMode,
        record: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = Capture::begin(self, mode)?;
        record()?;
        Ok(capture.end()?)
    }
}

impl Graph {
    /// Number of nodes: kernels, copies, fills, and events between streams.
    pub fn nodes(&self) -> Result<usize> {
        self.context.bind()?;
        let mut count = 0;
        // SAFETY: the graph is alive; with no place for nodes, the driver only writes their number.
        unsafe { driver!(cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Makes it ready for launching.
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is alive; the pointer is valid for the call.
        unsafe { driver!(cuGraphInstantiateWithFlags(&mut raw, self.raw, 0)) }?;
        Ok(ExecutableGraph { context: self.context.clone(), raw })
    }
}

impl ExecutableGraph {
    /// Brings the graph to the device, so that the first launch is as quick as the others.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive, and the stream's context is current.
        unsafe { driver!(cuGraphUpload(self.raw, stream.bound()?)) }
    }

    /// Enqueues all of it on `stream`. Launches of one graph run one after the other, whatever the stream.
    ///
    /// # Safety
    /// What holds for each piece of recorded work must hold now: the memory it uses is allocated and not used by work
    /// that is not ordered with the stream, and its modules are loaded.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive; what the work does is promised by the caller.
        unsafe { driver!(cuGraphLaunch(self.raw, stream.bound()?)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph is alive and not used afterwards; what was instantiated from it has its own copy.
        self.context.keep(self.context.bind().and_then(|()| unsafe { driver!(cuGraphDestroy(self.raw)) }));
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        // SAFETY: the graph is alive and not used afterwards; the driver waits for launches under way.
        self.context.keep(self.context.bind().and_then(|()| unsafe { driver!(cuGraphExecDestroy(self.raw)) }));
    }
}
