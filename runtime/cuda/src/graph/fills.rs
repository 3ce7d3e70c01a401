//! Fills that the driver recorded, by libraries' calls among others, done by a kernel instead: of a graph with hundreds
//! of the driver's fills each launch takes the host tens of milliseconds, of kernels alone microseconds.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use super::{Graph, kind_of};
use crate::call::driver;
use crate::error::Result;
use crate::fill::Fill;
use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUgraphNode, CUgraphNodeType_enum as NodeType,
};
use fulgurite_kernels::launch::{DeviceAddress, LaunchShape};

/// The byte that a fill of one row repeats, and the number of bytes; none if its bytes differ, or it has more rows.
fn bytes_of(fill: &CUDA_MEMSET_NODE_PARAMS) -> Option<(u8, usize)> {
    let size = fill.elementSize as usize;
    let pattern = fill.value.to_le_bytes();
    let own = pattern.get(..size).filter(|own| own.iter().all(|byte| *byte == pattern[0]))?;
    (fill.height <= 1 && !own.is_empty()).then_some((pattern[0], fill.width.checked_mul(size)?))
}

/// The nodes that `others` has where `nodes` has this one.
fn beside(nodes: &[CUgraphNode], others: &[CUgraphNode], node: CUgraphNode) -> Vec<CUgraphNode> {
    nodes.iter().zip(others).filter(|(own, _)| **own == node).map(|(_, other)| *other).collect()
}

impl Graph {
    /// Has `fill` do what the driver's fills in this graph do, in their places. Those of several rows, and of patterns
    /// of different bytes, stay.
    ///
    /// # Errors
    /// The driver's; the graph must not be launched then.
    pub fn fill_by(&mut self, fill: &Fill) -> Result<()> {
        let _current = self.context.enter()?;
        let mut fills = Vec::new();
        for node in self.all_nodes()? {
            // SAFETY: the node is one of a graph that is alive.
            if unsafe { kind_of(node) }? == NodeType::CU_GRAPH_NODE_TYPE_MEMSET {
                fills.push(node);
            }
        }
        if fills.is_empty() {
            return Ok(());
        }
        let (mut from, mut to) = self.edges()?;
        for node in fills {
            let mut parameters = MaybeUninit::<CUDA_MEMSET_NODE_PARAMS>::zeroed();
            // SAFETY: the node is a fill; what is written are numbers, for which zero is a value.
            let parameters = unsafe {
                driver!(cuGraphMemsetNodeGetParams(node, parameters.as_mut_ptr()))?;
                parameters.assume_init()
            };
            let Some((byte, bytes)) = bytes_of(&parameters) else { continue };
            let (before, behind) = (beside(&to, &from, node), beside(&from, &to, node));
            let kernel = self.add_fill(fill, &before, (DeviceAddress(parameters.dst), byte, bytes))?;
            if !behind.is_empty() {
                let own = vec![kernel; behind.len()];
                // SAFETY: all are nodes of this graph; without kinds each edge is of the whole of both nodes.
                unsafe {
                    driver!(cuGraphAddDependencies_v2(self.raw, own.as_ptr(), behind.as_ptr(), null(), behind.len()))
                }?;
            }
            // SAFETY: the node is one of this graph, which nothing was instantiated from yet.
            unsafe { driver!(cuGraphDestroyNode(node)) }?;
            let replace = |nodes: &mut Vec<CUgraphNode>| {
                nodes.iter_mut().filter(|other| **other == node).for_each(|other| *other = kernel);
            };
            replace(&mut from);
            replace(&mut to);
            if let Some((nodes, _)) = &mut self.pieces {
                replace(nodes);
            }
        }
        Ok(())
    }

    /// A node that sets bytes from an address on, behind others.
    fn add_fill(
        &self,
        fill: &Fill,
        before: &[CUgraphNode],
        (to, byte, bytes): (DeviceAddress, u8, usize),
    ) -> Result<CUgraphNode> {
        let (function, shape, arguments) = fill.launch_of(to, byte, bytes);
        let mut pointers = arguments.pointers();
        let LaunchShape { grid, block, shared_bytes, .. } = shape;
        let parameters = CUDA_KERNEL_NODE_PARAMS {
            func: function.raw(),
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        let mut node = null_mut();
        // SAFETY: graph and function are alive, and of the context that is current; the nodes are this graph's; the
        // driver copies the arguments during the call.
        unsafe { driver!(cuGraphAddKernelNode_v2(&mut node, self.raw, before.as_ptr(), before.len(), &parameters)) }?;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(value: u32, size: u32, [width, height]: [usize; 2]) -> CUDA_MEMSET_NODE_PARAMS {
        CUDA_MEMSET_NODE_PARAMS { dst: 256, pitch: 0, value, elementSize: size, width, height }
    }

    #[test]
    fn fills_of_equal_bytes_in_one_row_are_taken() {
        assert_eq!(bytes_of(&fill(0, 4, [6, 1])), Some((0, 24)));
        assert_eq!(bytes_of(&fill(0x7F, 1, [5, 1])), Some((0x7F, 5)));
        assert_eq!(bytes_of(&fill(0xAB12, 1, [5, 1])), Some((0x12, 5)), "what is above the element is not written");
        assert_eq!(bytes_of(&fill(0x3F3F, 2, [3, 1])), Some((0x3F, 6)));
        assert_eq!(bytes_of(&fill(0x3F00, 2, [3, 1])), None);
        assert_eq!(bytes_of(&fill(1, 4, [3, 1])), None);
        assert_eq!(bytes_of(&fill(0, 4, [6, 2])), None);
    }
}
