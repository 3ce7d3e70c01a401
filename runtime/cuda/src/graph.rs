//! CUDA graphs: work recorded once from a stream, and launched again and again for the host cost of one call.

mod fills;

use super::call::driver;
use super::context::Context;
use super::error::{CudaError, Result};
use super::stream::Stream;
use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraph, CUgraphEdgeData, CUgraphExec,
    CUgraphNode, CUgraphNodeType_enum as NodeType, CUstreamCaptureMode_enum as Mode,
    CUstreamCaptureStatus_enum as Status,
};
use std::collections::HashMap;
use std::mem::{MaybeUninit, zeroed};
use std::ops::Range;
use std::ptr::null_mut;

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
    /// The nodes in the order of the stream, and which of them each piece has; none if the graph was not recorded in
    /// pieces, or its nodes have no such order.
    pieces: Option<(Vec<CUgraphNode>, Vec<Range<usize>>)>,
}

/// How many nodes of each kind a graph has. The driver launches graphs of kernels and copies alone at once; of one with
/// many fills it takes long, and may wait for the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Launches of kernels.
    pub kernels: usize,
    /// Copies by the driver.
    pub copies: usize,
    /// Fills by the driver.
    pub fills: usize,
    /// Waits between streams, and what else there is.
    pub others: usize,
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
        unsafe { driver!(cuStreamBeginCapture_v2(stream.bound()?.raw, mode)) }?;
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
    unsafe { driver!(cuStreamEndCapture(stream.bound()?.raw, &mut raw)) }?;
    if raw.is_null() { Err(no_graph()) } else { Ok(Graph { context: stream.context().clone(), raw, pieces: None }) }
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

    /// As [`Stream::capture`], of `count` pieces of work one after the other, each of which can be put in the place of
    /// its like in another graph by [`ExecutableGraph::update`].
    ///
    /// # Errors
    /// As [`Stream::capture`].
    pub fn capture_pieces<E: From<CudaError>>(
        &self,
        mode: CaptureMode,
        count: usize,
        mut record: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = Capture::begin(self, mode)?;
        let mut pieces = Vec::with_capacity(count);
        let mut nodes = 0;
        for piece in 0..count {
            record(piece)?;
            let start = std::mem::replace(&mut nodes, self.captured_nodes()?);
            pieces.push(start..nodes);
        }
        let mut graph = capture.end()?;
        graph.pieces = graph.in_order(nodes)?.map(|nodes| (nodes, pieces));
        Ok(graph)
    }

    /// How many nodes the graph has that is being recorded.
    fn captured_nodes(&self) -> Result<usize> {
        let (mut status, mut graph) = (Status::CU_STREAM_CAPTURE_STATUS_NONE, null_mut());
        let (none, no_edges) = (null_mut(), null_mut());
        let stream = self.bound()?;
        // SAFETY: the stream is alive, and a capture is open on it; what is not asked for is null.
        unsafe {
            driver!(cuStreamGetCaptureInfo_v3(
                stream.raw,
                &mut status,
                null_mut(),
                &mut graph,
                none,
                no_edges,
                null_mut()
            ))
        }?;
        if status != Status::CU_STREAM_CAPTURE_STATUS_ACTIVE || graph.is_null() {
            return Err(no_graph());
        }
        let mut count = 0;
        // SAFETY: the graph is the capture's, and may be looked at; with no place for nodes the driver only writes
        // their number.
        unsafe { driver!(cuGraphGetNodes(graph, null_mut(), &mut count)) }?;
        Ok(count)
    }
}

impl Graph {
    /// Number of nodes: kernels, copies, fills, and events between streams.
    pub fn nodes(&self) -> Result<usize> {
        let _current = self.context.enter()?;
        let mut count = 0;
        // SAFETY: the graph is alive; with no place for nodes, the driver only writes their number.
        unsafe { driver!(cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count)) }?;
        Ok(count)
    }

    /// Number of nodes of each kind.
    pub fn node_counts(&self) -> Result<NodeCounts> {
        let _current = self.context.enter()?;
        let mut counts = NodeCounts::default();
        for node in self.all_nodes()? {
            // SAFETY: the node is one of a graph that is alive.
            let count = match unsafe { kind_of(node) }? {
                NodeType::CU_GRAPH_NODE_TYPE_KERNEL => &mut counts.kernels,
                NodeType::CU_GRAPH_NODE_TYPE_MEMCPY => &mut counts.copies,
                NodeType::CU_GRAPH_NODE_TYPE_MEMSET => &mut counts.fills,
                _ => &mut counts.others,
            };
            *count += 1;
        }
        Ok(counts)
    }

    /// Whether its work is one chain, each piece of it behind the one before. Otherwise pieces may run side by side,
    /// and none can be updated. Of a graph that [`Stream::capture_pieces`] recorded.
    pub fn is_chain(&self) -> bool {
        self.pieces.is_some()
    }

    /// The nodes in the driver's order.
    fn all_nodes(&self) -> Result<Vec<CUgraphNode>> {
        let _current = self.context.enter()?;
        let mut count = self.nodes()?;
        let mut all: Vec<CUgraphNode> = vec![null_mut(); count];
        if count > 0 {
            // SAFETY: the graph is alive, and there is room for all of its nodes.
            unsafe { driver!(cuGraphGetNodes(self.raw, all.as_mut_ptr(), &mut count)) }?;
        }
        Ok(all)
    }

    /// The edges: from a node, and at the same place to which.
    fn edges(&self) -> Result<(Vec<CUgraphNode>, Vec<CUgraphNode>)> {
        let _current = self.context.enter()?;
        let mut count = 0;
        // SAFETY: the graph is alive; with no place for edges the driver writes their number.
        unsafe { driver!(cuGraphGetEdges_v2(self.raw, null_mut(), null_mut(), null_mut(), &mut count)) }?;
        let (mut from, mut to): (Vec<CUgraphNode>, Vec<CUgraphNode>) =
            (vec![null_mut(); count], vec![null_mut(); count]);
        // SAFETY: plain numbers, for which zero is a value.
        let mut kinds: Vec<CUgraphEdgeData> = vec![unsafe { zeroed() }; count];
        if count > 0 {
            // SAFETY: there is room for all edges.
            unsafe {
                let (from, to) = (from.as_mut_ptr(), to.as_mut_ptr());
                driver!(cuGraphGetEdges_v2(self.raw, from, to, kinds.as_mut_ptr(), &mut count))
            }?;
        }
        Ok((from, to))
    }

    /// All nodes if each but the last has one other behind it, in this order.
    fn in_order(&self, count: usize) -> Result<Option<Vec<CUgraphNode>>> {
        let all = self.all_nodes()?;
        if all.len() != count {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(Vec::new()));
        }
        let (from, to) = self.edges()?;
        if from.len() != count - 1 {
            return Ok(None);
        }
        let next: HashMap<CUgraphNode, CUgraphNode> = from.into_iter().zip(to.iter().copied()).collect();
        let Some(first) = all.iter().find(|node| !to.contains(node)) else { return Ok(None) };
        let order: Vec<CUgraphNode> = std::iter::successors(Some(*first), |node| next.get(node).copied()).collect();
        Ok((order.len() == count).then_some(order))
    }

    /// The nodes of a piece.
    fn piece(&self, piece: usize) -> Option<&[CUgraphNode]> {
        let (nodes, pieces) = self.pieces.as_ref()?;
        nodes.get(pieces.get(piece)?.clone())
    }

    /// Makes it ready for launching.
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        let _current = self.context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph is alive; the pointer is valid for the call.
        unsafe { driver!(cuGraphInstantiateWithFlags(&mut raw, self.raw, 0)) }?;
        Ok(ExecutableGraph { context: self.context.clone(), raw })
    }
}

/// What a node does.
///
/// # Safety
/// The node must be of a graph that is alive.
unsafe fn kind_of(node: CUgraphNode) -> Result<NodeType> {
    let mut kind = NodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: promised by the caller; the pointer is valid for the call.
    unsafe { driver!(cuGraphNodeGetType(node, &mut kind)) }?;
    Ok(kind)
}

/// What a kernel node launches.
///
/// # Safety
/// The node must be a kernel's, of a graph that is alive; what is returned points to the node's own memory.
unsafe fn kernel_of(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let mut parameters = MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: promised by the caller; all is numbers and pointers, for which zero is a value.
    unsafe {
        driver!(cuGraphKernelNodeGetParams_v2(node, parameters.as_mut_ptr()))?;
        Ok(parameters.assume_init())
    }
}

impl ExecutableGraph {
    /// Brings the graph to the device, so that the first launch is as quick as the others.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive, and the stream's context is current.
        unsafe { driver!(cuGraphUpload(self.raw, stream.bound()?.raw)) }
    }

    /// Has launches from now on do a piece of work as `other` has recorded it, instead of as `own` has: the same
    /// kernels, copies and fills, with other arguments. False if the two pieces are not alike; then part of the piece
    /// may be changed already, and the graph must not be launched. `own` is the graph that this one was instantiated
    /// from.
    ///
    /// # Errors
    /// The driver's.
    pub fn update(&mut self, own: &Graph, piece: usize, other: &Graph, other_piece: usize) -> Result<bool> {
        let (Some(nodes), Some(others)) = (own.piece(piece), other.piece(other_piece)) else { return Ok(false) };
        if nodes.len() != others.len() {
            return Ok(false);
        }
        let _current = self.context.enter()?;
        for (&node, &other) in nodes.iter().zip(others) {
            if !self.update_node(node, other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn update_node(&self, node: CUgraphNode, other: CUgraphNode) -> Result<bool> {
        // SAFETY: both nodes are of graphs that are alive.
        let (of, of_other) = unsafe { (kind_of(node)?, kind_of(other)?) };
        if of_other != of {
            return Ok(false);
        }
        let context = self.context.raw();
        // SAFETY: both nodes are of graphs that are alive, and of the kind asked for; what the driver says of one,
        // pointers to the node's own memory among it, it takes for the other, and copies during the call.
        let updated = unsafe {
            match of {
                NodeType::CU_GRAPH_NODE_TYPE_KERNEL => {
                    let (own, parameters) = (kernel_of(node)?, kernel_of(other)?);
                    // The driver takes another kernel of the same context, but not the attributes of its launch: it
                    // would have the cluster of the kernel that was recorded.
                    if own.func != parameters.func || own.kern != parameters.kern {
                        return Ok(false);
                    }
                    driver!(cuGraphExecKernelNodeSetParams_v2(self.raw, node, &parameters))
                }
                NodeType::CU_GRAPH_NODE_TYPE_MEMCPY => {
                    let mut parameters = MaybeUninit::<CUDA_MEMCPY3D>::zeroed();
                    driver!(cuGraphMemcpyNodeGetParams(other, parameters.as_mut_ptr()))?;
                    driver!(cuGraphExecMemcpyNodeSetParams(self.raw, node, parameters.as_ptr(), context))
                }
                NodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
                    let mut parameters = MaybeUninit::<CUDA_MEMSET_NODE_PARAMS>::zeroed();
                    driver!(cuGraphMemsetNodeGetParams(other, parameters.as_mut_ptr()))?;
                    driver!(cuGraphExecMemsetNodeSetParams(self.raw, node, parameters.as_ptr(), context))
                }
                _ => return Ok(false),
            }
        };
        match updated {
            Ok(()) => Ok(true),
            Err(error) if error.is_fatal() => Err(error),
            // What the driver does not take, such as another kernel, is recorded anew.
            Err(error) => {
                tracing::debug!(%error, "a node of a graph cannot be updated");
                Ok(false)
            }
        }
    }

    /// Enqueues all of it on `stream`. Launches of one graph run one after the other, whatever the stream.
    ///
    /// # Safety
    /// What holds for each piece of recorded work must hold now: the memory it uses is allocated and not used by work
    /// that is not ordered with the stream, and its modules are loaded.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive; what the work does is promised by the caller.
        unsafe { driver!(cuGraphLaunch(self.raw, stream.bound()?.raw)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the graph is alive and not used afterwards; what was instantiated from it has its own copy.
        self.context.keep(self.context.enter().and_then(|_current| unsafe { driver!(cuGraphDestroy(self.raw)) }));
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        // SAFETY: the graph is alive and not used afterwards; the driver waits for launches under way.
        self.context.keep(self.context.enter().and_then(|_current| unsafe { driver!(cuGraphExecDestroy(self.raw)) }));
    }
}
