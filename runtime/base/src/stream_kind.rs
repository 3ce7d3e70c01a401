//! Kinds of stream: what work of a device is enqueued together.

use std::fmt;

/// A kind of stream. Work of one stream runs in order; work of two streams is ordered by events alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum StreamKind {
    /// Kernels and calls of libraries. Every kind of device has it.
    #[default]
    Compute,
    /// Copies between the host and the device.
    Copy,
    /// Collectives.
    Communication,
}

impl StreamKind {
    /// All kinds; their places here are [`StreamKind::index`].
    pub const ALL: [StreamKind; 3] = [StreamKind::Compute, StreamKind::Copy, StreamKind::Communication];

    /// Its place in [`StreamKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// As traces and profiles name it.
    pub fn name(self) -> &'static str {
        match self {
            StreamKind::Compute => "compute",
            StreamKind::Copy => "copy",
            StreamKind::Communication => "communication",
        }
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
