//! The devices that run one program, as a grid.

use smallvec::SmallVec;

/// A grid of devices of one kind, of consecutive indices in row-major order. A mesh without axes is one device, and the
/// only mesh that a target has today; the verifier asks it where values may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// The number of devices along each axis.
    axes: SmallVec<[usize; 2]>,
}

impl Mesh {
    /// One device.
    pub fn one() -> Mesh {
        Mesh { axes: SmallVec::new() }
    }

    /// So many devices along each axis.
    pub fn grid(axes: impl AsRef<[usize]>) -> Mesh {
        Mesh { axes: SmallVec::from_slice(axes.as_ref()) }
    }

    /// The number of devices along each axis.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// The number of devices (saturating).
    pub fn len(&self) -> usize {
        self.axes.iter().fold(1, |count: usize, extent| count.saturating_mul(*extent))
    }

    /// Whether it has no devices: an axis of none.
    pub fn is_empty(&self) -> bool {
        self.axes.contains(&0)
    }

    /// Whether the device of this index is one of the mesh that begins with the index `first`.
    pub fn contains(&self, first: u32, index: u32) -> bool {
        index.checked_sub(first).is_some_and(|place| (place as usize) < self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_has_devices_of_consecutive_indices() {
        for (mesh, devices) in [(Mesh::one(), 1), (Mesh::grid([3]), 3), (Mesh::grid([2, 2]), 4), (Mesh::grid([0]), 0)] {
            assert_eq!((mesh.len(), mesh.is_empty()), (devices, devices == 0), "{mesh:?}");
            for first in 0..3 {
                let contained: Vec<u32> = (0..9).filter(|index| mesh.contains(first, *index)).collect();
                assert_eq!(contained, (first..first + devices as u32).collect::<Vec<_>>(), "{mesh:?} from {first}");
            }
        }
    }
}
