//! What work on a device of any kind is described by: addresses of its memory, copies within it, and the shape of a
//! launch.

use std::fmt;

/// An address in device memory: a number that the device's backend gives for the start of an allocation. Bytes further
/// on are found by adding. It is no pointer of the host, and owns nothing: the plan of the memory says what is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// No address: for operands that a call does not use.
    pub const NULL: DeviceAddress = DeviceAddress(0);

    /// The address `bytes` bytes further.
    pub fn offset(self, bytes: usize) -> DeviceAddress {
        DeviceAddress(self.0 + bytes as u64)
    }

    /// Whether it is no address.
    pub fn is_null(self) -> bool {
        self == DeviceAddress::NULL
    }
}

impl fmt::Debug for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A copy within a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// First byte of the source.
    pub from: DeviceAddress,
    /// First byte of the destination.
    pub to: DeviceAddress,
    /// Size in bytes.
    pub bytes: usize,
}

/// The shape of a launch. Zero is no size: what has nothing to do is not launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks, along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster, if the kernel is launched in clusters (compute capability 9.0 and newer).
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be resident at once, so that they may wait for each other.
    pub cooperative: bool,
    /// Whether the kernel may start while the one before it on the stream still runs. It must wait, by
    /// `griddepcontrol.wait`, before it reads what that one writes (compute capability 9.0 and newer).
    pub overlaps_previous: bool,
}

impl LaunchShape {
    /// `grid` blocks of `block` threads, along x.
    pub fn linear(grid: u32, block: u32) -> LaunchShape {
        LaunchShape::new([grid, 1, 1], [block, 1, 1])
    }

    /// A plain launch.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> LaunchShape {
        LaunchShape { grid, block, cluster: None, shared_bytes: 0, cooperative: false, overlaps_previous: false }
    }

    /// With dynamic shared memory.
    pub fn shared(self, shared_bytes: u32) -> LaunchShape {
        LaunchShape { shared_bytes, ..self }
    }

    /// With blocks in clusters of this size.
    pub fn cluster(self, cluster: [u32; 3]) -> LaunchShape {
        LaunchShape { cluster: Some(cluster), ..self }
    }

    /// What is wrong with it for a kernel of at most `max_threads` threads a block, if anything is.
    pub fn fault(&self, max_threads: u32) -> Option<String> {
        let cluster = self.cluster.unwrap_or([1; 3]);
        if [self.grid, self.block, cluster].concat().contains(&0) {
            return Some(format!(
                "a size is zero in grid {:?}, block {:?}, cluster {cluster:?}",
                self.grid, self.block
            ));
        }
        let threads = self.block.iter().map(|&n| u64::from(n)).product::<u64>();
        if threads > u64::from(max_threads) {
            return Some(format!("{threads} threads a block, at most {max_threads} are possible with its registers"));
        }
        (0..3)
            .find(|&axis| !self.grid[axis].is_multiple_of(cluster[axis]))
            .map(|_| format!("grid {:?} is not a multiple of cluster {cluster:?}", self.grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_are_told_before_the_driver_is_asked() {
        let shape = LaunchShape::linear(6, 256);
        assert_eq!(shape.fault(1024), None);
        assert!(shape.fault(128).unwrap().contains("256 threads"));
        assert!(shape.cluster([4, 1, 1]).fault(1024).unwrap().contains("not a multiple"));
        assert_eq!(shape.cluster([3, 1, 1]).fault(1024), None);
        assert!(LaunchShape::linear(0, 1).fault(1024).unwrap().contains("zero"));
    }
}
