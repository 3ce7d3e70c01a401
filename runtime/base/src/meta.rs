//! What is known of a tensor while a program is traced: shape, element type, device.

use std::fmt;
use std::ops::{Deref, Index};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use fulgurite_kernels::DType;
use smallvec::SmallVec;

use crate::mesh::Mesh;

/// Extents, small ones without an allocation.
pub type Dims = SmallVec<[usize; 5]>;

/// Where a tensor lives: a kind of device and its index. Kinds are an open set; a backend brings its own name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    kind: &'static str,
    index: u32,
}

impl Device {
    /// The host.
    pub const CPU: Device = Device { kind: "cpu", index: 0 };

    /// A device of some kind, e.g. `Device::new("cuda", 1)`.
    pub fn new(kind: &str, index: u32) -> Device {
        static KINDS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
        if Device::is_host(kind) {
            return Device { index, ..Device::CPU };
        }
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.iter().copied().find(|known| *known == kind).unwrap_or_else(|| {
            let leaked: &'static str = Box::leak(kind.to_owned().into_boxed_str());
            kinds.push(leaked);
            leaked
        });
        Device { kind, index }
    }

    /// `cpu`, `cuda`, ...
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Which device of its kind.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether this is the host.
    pub fn is_cpu(&self) -> bool {
        Device::is_host(self.kind)
    }

    /// Whether a kind of device is the host, where kernels are functions that are called. On every other kind they are
    /// planned work.
    pub fn is_host(kind: &str) -> bool {
        kind == Device::CPU.kind
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cpu() { f.write_str("cpu") } else { write!(f, "{}:{}", self.kind, self.index) }
    }
}

/// The text of the device, which operators that make tensors take: `arange::with(0, 4).device(x.device())`.
impl From<Device> for String {
    fn from(device: Device) -> String {
        device.to_string()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Device {
    type Err = String;
    fn from_str(text: &str) -> Result<Device, String> {
        let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
        let named = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match index.parse() {
            // It would be the host, and not equal to it.
            Ok(index) if Device::is_host(kind) && index > 0 => {
                Err(format!("'{text}' is not a device: there is one host, 'cpu'"))
            }
            Ok(index) if named => Ok(Device::new(kind, index)),
            _ => Err(format!("'{text}' is not a device, expected 'cpu', 'cuda', 'cuda:1', ...")),
        }
    }
}

/// What a program is compiled for: a kind of device and, where it matters, its architecture (`cpu`, `cuda:sm_90a`), and
/// the mesh of ranks that run it, each on a device of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    kind: String,
    architecture: Option<String>,
    mesh: Mesh,
}

impl Target {
    /// The host.
    pub fn cpu() -> Target {
        Target::new(Device::CPU.kind, None)
    }

    /// Programs for one device of a kind and, where it matters, an architecture.
    pub fn new(kind: &str, architecture: Option<String>) -> Target {
        Target { kind: kind.into(), architecture, mesh: Mesh::ONE }
    }

    /// The same for the ranks of a mesh.
    pub fn on_mesh(self, mesh: Mesh) -> Target {
        Target { mesh, ..self }
    }

    /// The same for one rank: what kernels are chosen for.
    pub fn of_one_rank(&self) -> Target {
        self.clone().on_mesh(Mesh::ONE)
    }

    /// The kind of device: `cpu`, `cuda`, ...
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The architecture, e.g. `sm_90a`.
    pub fn architecture(&self) -> Option<&str> {
        self.architecture.as_deref()
    }

    /// The ranks that run a program for this target.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The first device of its kind, on which the values of a program for this target are unless they say otherwise.
    pub fn device(&self) -> Device {
        Device::new(&self.kind, 0)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if let Some(architecture) = &self.architecture {
            write!(f, ":{architecture}")?;
        }
        if self.mesh != Mesh::ONE {
            write!(f, " x {}", self.mesh)?;
        }
        Ok(())
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Target, String> {
        let (device, mesh) = match text.split_once(" x ") {
            Some((device, mesh)) => (device, mesh.parse()?),
            None => (text, Mesh::ONE),
        };
        let (kind, architecture) = match device.split_once(':') {
            Some((kind, architecture)) => (kind, Some(architecture)),
            None => (device, None),
        };
        let meshed = text.contains(" x ");
        let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !word(kind) || !architecture.is_none_or(word) || (meshed && mesh == Mesh::ONE) {
            return Err(format!("'{text}' is not a target, expected 'cpu', 'cuda:sm_90a' or 'cpu x data=4'"));
        }
        Ok(Target::new(kind, architecture.map(Into::into)).on_mesh(mesh))
    }
}

/// The most bytes a tensor may have: what processors of today address, 2⁴⁷.
pub const LARGEST_TENSOR: usize = 1 << 47;

/// Shape, element type and device of a tensor whose data is not there (yet).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorMeta {
    shape: Dims,
    dtype: DType,
    device: Device,
}

impl TensorMeta {
    /// A tensor of `shape` and `dtype` on `device`.
    pub fn new(shape: impl AsRef<[usize]>, dtype: DType, device: Device) -> TensorMeta {
        TensorMeta { shape: Dims::from_slice(shape.as_ref()), dtype, device }
    }

    /// The same with another shape.
    pub fn with_shape(&self, shape: impl AsRef<[usize]>) -> TensorMeta {
        TensorMeta::new(shape, self.dtype, self.device)
    }

    /// The meta of the real and imaginary parts of complex numbers of this meta, in a last dimension of two.
    pub fn in_parts(&self) -> TensorMeta {
        self.with_shape([self.shape(), &[2]].concat()).with_dtype(self.dtype.part())
    }

    /// The meta of the complex numbers whose parts have this meta, if they can be parts: f32 or f64, with a last
    /// dimension of two.
    pub fn of_parts(&self) -> Option<TensorMeta> {
        let complex = self.dtype.complex().filter(|_| self.dtype.is_floating())?;
        let (last, outer) = self.shape().split_last()?;
        (*last == 2).then(|| self.with_shape(outer).with_dtype(complex))
    }

    /// The same with another element type.
    pub fn with_dtype(&self, dtype: DType) -> TensorMeta {
        TensorMeta { dtype, ..self.clone() }
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements (saturating).
    pub fn len(&self) -> usize {
        self.shape.iter().fold(1usize, |n, &extent| n.saturating_mul(extent))
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// The same on another device.
    pub fn with_device(&self, device: Device) -> TensorMeta {
        TensorMeta { device, ..self.clone() }
    }

    /// Size in bytes of a contiguous tensor (saturating).
    pub fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype.size())
    }

    /// Refuses a tensor that no memory can hold: more than [`LARGEST_TENSOR`] bytes, extents of zero counted as one so
    /// that strides and offsets are computed without overflow.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn addressable(&self) -> Result<(), crate::Failure> {
        let bytes = self.shape.iter().try_fold(self.dtype.size(), |bytes, extent| bytes.checked_mul((*extent).max(1)));
        match bytes {
            Some(bytes) if bytes <= LARGEST_TENSOR => Ok(()),
            _ => {
                let message = format!("the result {self} is larger than any memory, {LARGEST_TENSOR} bytes");
                Err(crate::Failure::new("TooLarge", message))
            }
        }
    }

    /// Extent of dimension `dim`, counted from the end if negative.
    pub fn dim(&self, dim: i64) -> Result<usize, crate::Failure> {
        Ok(self.shape[normalize_dim(dim, self.rank())?])
    }
}

impl fmt::Display for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, extent) in self.shape.iter().enumerate() {
            write!(f, "{}{extent}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")?;
        if !self.device.is_cpu() {
            write!(f, "@{}", self.device)?;
        }
        Ok(())
    }
}

impl fmt::Debug for TensorMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Position of dimension `dim` (counted from the end if negative) in a tensor of `rank`; as in PyTorch, a
/// zero-dimensional tensor answers to 0 and -1.
pub fn normalize_dim(dim: i64, rank: usize) -> Result<usize, crate::Failure> {
    let bound = rank.max(1) as i64;
    if dim < -bound || dim >= bound {
        return Err(crate::Failure::new(
            "DimensionRange",
            format!("dimension {dim} is out of range for rank {rank}, expected {} to {}", -bound, bound - 1),
        ));
    }
    Ok(if dim < 0 { dim + bound } else { dim } as usize)
}

/// The extents of a `Tensor` of traced code. Those of a poisoned handle are one for every dimension, so that code
/// between a failing call and the end of the trace cannot panic on them.
#[derive(Clone, PartialEq, Eq)]
pub struct Shape {
    dims: Dims,
    poisoned: bool,
}

impl Shape {
    /// The shape of these extents.
    pub fn new(dims: Dims) -> Shape {
        Shape { dims, poisoned: false }
    }

    /// The shape of a poisoned handle, which answers every question with ones.
    pub fn poisoned() -> Shape {
        Shape { dims: Dims::new(), poisoned: true }
    }

    /// The extents as an array, if the rank is `N` (ones if the handle is poisoned).
    pub fn to_array<const N: usize>(&self) -> Option<[usize; N]> {
        if self.poisoned { Some([1; N]) } else { <[usize; N]>::try_from(self.dims.as_slice()).ok() }
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims
    }
}

impl AsRef<[usize]> for Shape {
    fn as_ref(&self) -> &[usize] {
        &self.dims
    }
}

impl Index<usize> for Shape {
    type Output = usize;
    fn index(&self, axis: usize) -> &usize {
        if self.poisoned { &1 } else { &self.dims[axis] }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.poisoned { f.write_str("[poisoned]") } else { fmt::Debug::fmt(&self.dims, f) }
    }
}
