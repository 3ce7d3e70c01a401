//! Concrete tensors: a buffer, a layout, an element type, a device.

mod values;

use std::fmt;
use std::sync::Arc;

use fulgurite_kernels::dtype::Element;
use fulgurite_kernels::view::{contiguous_strides, is_contiguous};
use fulgurite_kernels::{Buffer, DType, TensorRef};
use smallvec::SmallVec;

use crate::device::DeviceBuffer;
use crate::error::{Error, Result};
use crate::meta::{Device, TensorMeta};
use crate::tree::{Leaf, Tree};

/// Strides in elements, small ones without an allocation.
pub type Strides = SmallVec<[isize; 5]>;

/// The memory of an array.
#[derive(Debug, Clone)]
pub enum Memory {
    /// Memory of the host.
    Host(Arc<Buffer>),
    /// Memory of a device.
    Device(Arc<DeviceBuffer>),
}

/// A tensor with data, on the host or on a device. Clones share the data; nothing writes to shared data.
///
/// It is one pointer, because a training step moves hundreds of arrays a dozen times.
#[derive(Clone)]
pub struct Array(Box<Parts>);

#[derive(Clone)]
struct Parts {
    memory: Memory,
    /// Shared by arrays that are made of one another: two with one form need not be compared.
    form: Arc<Form>,
    /// In elements, from the start of the buffer.
    offset: usize,
    /// Whether programs may write to memory of others that it is in.
    lent: bool,
}

/// What a program is compiled for, of an array.
#[derive(Debug)]
pub struct Form {
    meta: TensorMeta,
    strides: Strides,
    contiguous: bool,
}

impl Form {
    /// The form of an array of `meta` with strides in elements, one for each dimension.
    pub fn new(meta: TensorMeta, strides: Strides) -> Arc<Form> {
        let contiguous = is_contiguous(meta.shape(), &strides);
        Arc::new(Form { meta, strides, contiguous })
    }
}

/// From the lowest place that an element has: how many elements further the first one is, and the highest. `None` if
/// that is more than a number holds.
pub fn reach(shape: &[usize], strides: &[isize]) -> Option<(usize, usize)> {
    if shape.contains(&0) {
        return Some((0, 0));
    }
    let sum = |wanted: fn(isize) -> bool| {
        let mut pairs = shape.iter().zip(strides).filter(|(_, stride)| wanted(**stride));
        pairs.try_fold(0usize, |last, (extent, stride)| {
            last.checked_add((extent - 1).checked_mul(stride.unsigned_abs())?)
        })
    };
    Some((sum(|stride| stride < 0)?, sum(|_| true)?))
}

fn wrong(argument: &str, message: String) -> Error {
    Error::Argument { argument: argument.into(), message }
}

impl Array {
    /// An array on the host from values in row-major order. Booleans are made by [`Array::from_f64`].
    pub fn new<T: Element>(shape: impl AsRef<[usize]>, values: &[T]) -> Result<Array> {
        let meta = TensorMeta::new(shape, T::DTYPE, Device::CPU);
        if meta.len() != values.len() {
            return Err(wrong("values", format!("{} values do not fill {meta}", values.len())));
        }
        let mut buffer = Buffer::uninitialized(std::mem::size_of_val(values))?;
        buffer.as_bytes_mut().copy_from_slice(bytemuck::cast_slice(values));
        Ok(Array::from_buffer(buffer, meta))
    }

    /// An array on the host whose elements `write` sets, in row-major order; their initial values are unspecified.
    pub fn written<T: Element>(shape: impl AsRef<[usize]>, write: impl FnOnce(&mut [T])) -> Result<Array> {
        let meta = TensorMeta::new(shape, T::DTYPE, Device::CPU);
        let mut buffer = Buffer::uninitialized(meta.bytes())?;
        write(bytemuck::cast_slice_mut(buffer.as_bytes_mut()));
        Ok(Array::from_buffer(buffer, meta))
    }

    /// An array of `dtype` on the host whose bytes `write` sets, in row-major order, little endian; their initial
    /// values are unspecified.
    ///
    /// # Errors
    /// If there is not as much memory; that of `write`.
    pub fn written_bytes(
        shape: impl AsRef<[usize]>,
        dtype: DType,
        write: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Array> {
        let meta = TensorMeta::new(shape, dtype, Device::CPU);
        let mut buffer = Buffer::uninitialized(meta.bytes())?;
        write(buffer.as_bytes_mut())?;
        Ok(Array::from_buffer(buffer, meta))
    }

    /// An array of `dtype` on the host: each value rounded to the nearest that `dtype` holds. Of complex numbers the
    /// real and the imaginary part of each, one after the other.
    pub fn from_f64(shape: impl AsRef<[usize]>, dtype: DType, values: &[f64]) -> Result<Array> {
        fn convert<T: Element>(shape: &[usize], values: &[f64]) -> Result<Array> {
            Array::new(shape, &values.iter().map(|v| T::from_f64(*v)).collect::<Vec<T>>())
        }
        let shape = shape.as_ref();
        match dtype {
            DType::Bool => {
                let bytes: Vec<u8> = values.iter().map(|v| u8::from(*v != 0.0)).collect();
                let mut array = Array::new(shape, &bytes)?;
                array.0.form = Form::new(array.0.form.meta.with_dtype(DType::Bool), array.0.form.strides.clone());
                Ok(array)
            }
            DType::U8 => convert::<u8>(shape, values),
            DType::I8 => convert::<i8>(shape, values),
            DType::U16 => convert::<u16>(shape, values),
            DType::I16 => convert::<i16>(shape, values),
            DType::U32 => convert::<u32>(shape, values),
            DType::I32 => convert::<i32>(shape, values),
            DType::I64 => convert::<i64>(shape, values),
            DType::F16 => convert::<half::f16>(shape, values),
            DType::BF16 => convert::<half::bf16>(shape, values),
            DType::F32 => convert::<f32>(shape, values),
            DType::F64 => convert::<f64>(shape, values),
            DType::C64 | DType::C128 => {
                let meta = TensorMeta::new(shape, dtype, Device::CPU);
                if values.len() != 2 * meta.len() {
                    return Err(wrong("values", format!("{} values are not the parts of {meta}", values.len())));
                }
                let parts = Array::from_f64([values.len()], dtype.part(), values)?;
                Array::from_bytes(shape, dtype, &parts.to_bytes()?)
            }
        }
    }

    /// A zero-dimensional f32 array on the host.
    pub fn scalar(value: f32) -> Array {
        Array::new([], &[value]).unwrap_or_else(|_| unreachable!("one value fills a zero-dimensional array"))
    }

    /// Zeros on the host.
    pub fn zeros(shape: impl AsRef<[usize]>, dtype: DType) -> Result<Array> {
        let meta = TensorMeta::new(shape, dtype, Device::CPU);
        Ok(Array::from_buffer(Buffer::zeroed(meta.bytes())?, meta))
    }

    /// Zeros (`false`) on `device`, written there.
    ///
    /// # Errors
    /// If the device is not available, with the reason, or its memory is full.
    pub fn zeros_on(device: Device, shape: impl AsRef<[usize]>, dtype: DType) -> Result<Array> {
        if device.is_cpu() {
            return Array::zeros(shape, dtype);
        }
        let meta = TensorMeta::new(shape, dtype, device);
        let memory = Memory::Device(Arc::new(DeviceBuffer::zeroed(device, meta.bytes())?));
        let strides = contiguous_strides(meta.shape()).into();
        Ok(Array::from_memory(memory, meta, strides, 0))
    }

    /// From bytes in row-major order, little endian (as in safetensors).
    pub fn from_bytes(shape: impl AsRef<[usize]>, dtype: DType, bytes: &[u8]) -> Result<Array> {
        let meta = TensorMeta::new(shape, dtype, Device::CPU);
        if meta.bytes() != bytes.len() {
            return Err(wrong("bytes", format!("{} bytes do not fill {meta}", bytes.len())));
        }
        let mut buffer = Buffer::uninitialized(bytes.len())?;
        buffer.as_bytes_mut().copy_from_slice(bytes);
        Ok(Array::from_buffer(buffer, meta))
    }

    /// An array on the host with these strides, in elements, from bytes in row-major order. A negative stride stores a
    /// dimension backwards. What is between the elements is zero. If several elements have one place, the last one is
    /// stored.
    ///
    /// # Errors
    /// If there is not one stride for each dimension, or the elements reach further than the machine has memory.
    pub fn strided(shape: impl AsRef<[usize]>, dtype: DType, strides: &[isize], bytes: &[u8]) -> Result<Array> {
        let meta = TensorMeta::new(shape, dtype, Device::CPU);
        if meta.bytes() != bytes.len() {
            return Err(wrong("bytes", format!("{} bytes do not fill {meta}", bytes.len())));
        }
        let (shape, size) = (meta.shape(), dtype.size());
        if strides.len() != shape.len() {
            return Err(wrong("strides", format!("are {strides:?}, expected {} for {meta}", shape.len())));
        }
        let most = fulgurite_kernels::machine::available_memory().unwrap_or(isize::MAX as u64);
        let reached = reach(shape, strides);
        let len = reached.and_then(|(_, last)| last.checked_add(1)?.checked_mul(size));
        let (Some(len), Some((first, _))) = (len.filter(|len| *len as u64 <= most), reached) else {
            return Err(wrong("strides", format!("are {strides:?}, with which {meta} reaches further than memory")));
        };
        let mut buffer = Buffer::uninitialized(len)?;
        let data = buffer.as_bytes_mut();
        data.fill(0);
        let mut index = vec![0; shape.len()];
        for element in bytes.chunks_exact(size) {
            let steps = index.iter().zip(strides).map(|(i, stride)| *i as isize * stride).sum::<isize>();
            let at = (first as isize + steps) as usize * size;
            data[at..at + size].copy_from_slice(element);
            for dim in (0..shape.len()).rev() {
                index[dim] += 1;
                if index[dim] < shape[dim] {
                    break;
                }
                index[dim] = 0;
            }
        }
        Ok(Array::from_shared(Arc::new(buffer), meta, Strides::from_slice(strides), first))
    }

    pub(crate) fn from_buffer(buffer: Buffer, meta: TensorMeta) -> Array {
        let strides = contiguous_strides(meta.shape()).into();
        Array::from_memory(Memory::Host(Arc::new(buffer)), meta, strides, 0)
    }

    /// An array in a buffer of the host; strides and `offset`, the place of its first element, are in elements.
    pub fn from_shared(buffer: Arc<Buffer>, meta: TensorMeta, strides: Strides, offset: usize) -> Array {
        Array::from_memory(Memory::Host(buffer), meta, strides, offset)
    }

    /// As [`Array::from_shared`], in memory of any device.
    pub fn from_memory(memory: Memory, meta: TensorMeta, strides: Strides, offset: usize) -> Array {
        Array(Box::new(Parts { memory, form: Form::new(meta, strides), offset, lent: false }))
    }

    /// The whole of some memory, in a form that other arrays have too.
    pub fn of_form(memory: Memory, form: Arc<Form>) -> Array {
        Array(Box::new(Parts { memory, form, offset: 0, lent: false }))
    }

    /// The same values on `device`; the same data if they are there already.
    ///
    /// # Errors
    /// If the device is not available, with the reason, or its memory is full.
    pub fn to_device(&self, device: Device) -> Result<Array> {
        if self.device() == device {
            return Ok(self.clone());
        }
        let meta = self.0.form.meta.with_device(device);
        if device.is_cpu() {
            return Array::from_bytes(self.shape(), self.dtype(), &self.to_bytes()?);
        }
        // The layout stays, so that a program compiled for it takes the array.
        let buffer = match &self.0.memory {
            Memory::Host(buffer) => DeviceBuffer::from_bytes(device, buffer.as_bytes())?,
            Memory::Device(buffer) => DeviceBuffer::from_bytes(device, &buffer.to_bytes()?)?,
        };
        let memory = Memory::Device(Arc::new(buffer));
        Ok(Array::from_memory(memory, meta, self.0.form.strides.clone(), self.0.offset))
    }

    /// The same values on the host.
    pub fn to_host(&self) -> Result<Array> {
        match &self.0.memory {
            Memory::Host(_) => Ok(self.clone()),
            Memory::Device(buffer) => {
                let bytes = buffer.to_bytes()?;
                let mut host = Buffer::uninitialized(bytes.len())?;
                host.as_bytes_mut().copy_from_slice(&bytes);
                let memory = Memory::Host(Arc::new(host));
                let meta = self.0.form.meta.with_device(Device::CPU);
                Ok(Array::from_memory(memory, meta, self.0.form.strides.clone(), self.0.offset))
            }
        }
    }

    /// The device that it is on.
    pub fn device(&self) -> Device {
        self.0.form.meta.device()
    }

    /// Shape, element type, device.
    pub fn meta(&self) -> &TensorMeta {
        &self.0.form.meta
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        self.0.form.meta.shape()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.form.meta.dtype()
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.0.form.strides
    }

    /// Whether the elements are in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.0.form.contiguous
    }

    /// Whether no other array holds the data. [Memory of others](Array::from_external) is unique only where it was
    /// [lent](Array::lent).
    pub fn is_unique(&self) -> bool {
        let holders = match &self.0.memory {
            Memory::Host(buffer) => Arc::strong_count(buffer),
            Memory::Device(buffer) => Arc::strong_count(buffer),
        };
        holders == 1 && (self.0.lent || !self.is_external())
    }

    /// Whether the data is in [memory of others](Array::from_external).
    pub fn is_external(&self) -> bool {
        match &self.0.memory {
            Memory::Host(buffer) => buffer.is_external(),
            Memory::Device(buffer) => buffer.is_external(),
        }
    }

    /// The array, whose [memory of others](Array::from_external) programs may write to where they are given it to keep
    /// (`donate`): what they update is then updated where its owner sees it. Views of the array are not lent.
    ///
    /// # Safety
    /// While a program runs to which the array is donated, nobody else reads or writes the bytes between its lowest and
    /// its highest element; on a device, work that was enqueued elsewhere is ordered before and behind the device's
    /// stream. No other argument of the program is in these bytes.
    pub unsafe fn lent(mut self) -> Array {
        self.0.lent = true;
        self
    }

    /// Whether programs may write to the [memory of others](Array::lent) that it is in.
    pub fn is_lent(&self) -> bool {
        self.0.lent
    }

    /// Whether both see the same memory.
    pub fn shares_memory(&self, other: &Array) -> bool {
        match (&self.0.memory, &other.0.memory) {
            (Memory::Host(own), Memory::Host(other)) => Arc::ptr_eq(own, other),
            (Memory::Device(own), Memory::Device(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// Its meta and strides, which arrays made of one another share.
    pub fn form(&self) -> &Arc<Form> {
        &self.0.form
    }

    /// To look at memory that nobody else holds without its lock.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.0.memory
    }

    /// The memory that it is in, which other arrays may share.
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// The memory of an array on the host.
    pub fn buffer(&self) -> Result<&Arc<Buffer>> {
        match &self.0.memory {
            Memory::Host(buffer) => Ok(buffer),
            Memory::Device(_) => Err(wrong("array", format!("is on {}, expected it on the host", self.device()))),
        }
    }

    /// The place of its first element, in bytes from the start of its memory.
    pub fn byte_offset(&self) -> usize {
        // Most arrays are whole, and their form is not looked at.
        if self.0.offset == 0 { 0 } else { self.0.offset * self.dtype().size() }
    }

    /// The data, for host kernels to read.
    ///
    /// # Errors
    /// If the array is not on the host.
    pub fn view(&self) -> Result<TensorRef<'_>> {
        let first = self.buffer()?.as_ptr().wrapping_add(self.byte_offset());
        // SAFETY: every constructor keeps the elements that shape and strides reach within the buffer, whose start is
        // aligned for every element type; shared data is never written.
        Ok(unsafe { TensorRef::new(self.dtype(), self.shape(), &self.0.form.strides, first) })
    }

    /// The same data with the dimensions in another order.
    pub fn permute(&self, dims: &[usize]) -> Result<Array> {
        let rank = self.0.form.meta.rank();
        let mut seen = vec![false; rank];
        if dims.len() != rank || !dims.iter().all(|d| *d < rank && !std::mem::replace(&mut seen[*d], true)) {
            return Err(wrong("dims", format!("{dims:?} is not a permutation of {rank} dimensions")));
        }
        let shape: Vec<usize> = dims.iter().map(|d| self.shape()[*d]).collect();
        let strides = dims.iter().map(|d| self.0.form.strides[*d]).collect();
        Ok(Array::from_memory(self.0.memory.clone(), self.0.form.meta.with_shape(shape), strides, self.0.offset))
    }

    /// The elements `start`, `start + step`, ... below `end` of dimension `dim`.
    pub fn slice(&self, dim: usize, start: usize, end: usize, step: usize) -> Result<Array> {
        let extent = *self
            .shape()
            .get(dim)
            .ok_or_else(|| wrong("dim", format!("{dim} is out of range for {}", self.0.form.meta)))?;
        if start > end || end > extent || step == 0 {
            let message = format!("{start}..{end} step {step} is not within dimension {dim} of {}", self.0.form.meta);
            return Err(Error::Array { method: "slice", message });
        }
        let mut shape = self.shape().to_vec();
        shape[dim] = (end - start).div_ceil(step);
        let mut strides = self.0.form.strides.clone();
        strides[dim] *= step as isize;
        let offset = (self.0.offset as isize
            + if shape.contains(&0) { 0 } else { start as isize * self.0.form.strides[dim] })
            as usize;
        Ok(Array::from_memory(self.0.memory.clone(), self.0.form.meta.with_shape(shape), strides, offset))
    }

    /// The same data broadcast to a larger shape: missing leading dimensions and extents of one are repeated (stride
    /// 0).
    pub fn expand(&self, shape: &[usize]) -> Result<Array> {
        let missing = shape.len().checked_sub(self.0.form.meta.rank());
        let fits =
            missing.is_some_and(|m| self.shape().iter().zip(&shape[m..]).all(|(own, new)| own == new || *own == 1));
        let Some(missing) = missing.filter(|_| fits) else {
            return Err(wrong("shape", format!("{} does not expand to {shape:?}", self.0.form.meta)));
        };
        let elements = shape.iter().try_fold(1usize, |elements, extent| elements.checked_mul(*extent));
        let bytes = elements.and_then(|elements| elements.checked_mul(self.dtype().size()));
        if !shape.contains(&0) && bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(wrong(
                "shape",
                format!("{} expanded to {shape:?} is larger than any memory", self.0.form.meta),
            ));
        }
        let strides = (0..shape.len())
            .map(|i| {
                if i < missing || self.shape()[i - missing] != shape[i] { 0 } else { self.0.form.strides[i - missing] }
            })
            .collect();
        Ok(Array::from_memory(self.0.memory.clone(), self.0.form.meta.with_shape(shape), strides, self.0.offset))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.device().is_cpu() {
            return write!(f, "{}", self.0.form.meta);
        }
        let (shown, len) = (self.first_f64(8).unwrap_or_default(), self.0.form.meta.len());
        let all = shown.len() == len * self.dtype().parts();
        write!(f, "{}{shown:?}{}", self.0.form.meta, if all { "" } else { "..." })
    }
}

impl Leaf for Array {}
impl Tree for Array {
    type Leaf = Array;
    type With<U: Leaf> = U;
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a Array)) {
        f(path, self);
    }
    fn map<U: Leaf>(self, f: &mut dyn FnMut(Array) -> U) -> U {
        f(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_take_strides() {
        for (shape, strides) in [
            (vec![2, 3], vec![1, 2]),
            (vec![2, 3], vec![12, 4]),
            // Neither is a multiple of the other.
            (vec![3, 4], vec![7, 2]),
            (vec![2, 3], vec![0, 1]),
            (vec![4, 2, 3], vec![3, 0, 1]),
            (vec![4], vec![3]),
            (vec![2, 2], vec![0, 0]),
            (vec![3, 2], vec![1, 1]),
            (vec![0, 3], vec![5, 1]),
            (vec![0, 3], vec![5, -1]),
            // Backwards.
            (vec![2, 3], vec![3, -1]),
            (vec![4, 2, 3], vec![-6, 3, -1]),
            (vec![], vec![]),
        ] {
            let count = shape.iter().product::<usize>();
            let values: Vec<f32> = (0..count).map(|value| value as f32).collect();
            let array = Array::strided(&shape, DType::F32, &strides, bytemuck::cast_slice(&values)).unwrap();
            assert_eq!(array.strides(), strides);
            if !strides.contains(&0) && strides != [1, 1] {
                assert_eq!(array.to_vec::<f32>().unwrap(), values, "{shape:?} {strides:?}");
            }
            for most in [0, 1, 5, 100] {
                let all = array.to_f64().unwrap();
                assert_eq!(array.first_f64(most).unwrap(), all[..most.min(all.len())], "{shape:?} {strides:?}");
            }
        }
        let wrong = |strides: &[isize]| Array::strided([2, 3], DType::F32, strides, &[0; 24]).unwrap_err().to_string();
        assert!(wrong(&[1]).contains("are [1], expected 2"));
        // More than any machine has, and than a number holds.
        assert!(wrong(&[1 << 50, 1 << 51]).contains("reaches further than memory"));
        assert!(wrong(&[isize::MAX, isize::MAX]).contains("reaches further than memory"));
        assert!(wrong(&[isize::MIN, 1]).contains("reaches further than memory"));
        assert!(Array::strided([2], DType::F32, &[1], &[0; 4]).unwrap_err().to_string().contains("do not fill"));
    }
}
