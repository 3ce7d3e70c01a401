//! Concrete tensors: a buffer, a layout, an element type, a device.

use std::fmt;
use std::sync::Arc;

use fulgurite_kernels::dtype::Element;
use fulgurite_kernels::view::{contiguous_strides, is_contiguous};
use fulgurite_kernels::{Buffer, DType, TensorRef};
use ndarray::{ArrayD, IxDyn};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::meta::{Device, TensorMeta};
use crate::reference::ReferenceTensor;
use crate::tree::{Leaf, Tree};

/// Strides in elements, small ones without an allocation.
pub type Strides = SmallVec<[isize; 5]>;

/// A tensor with data. Clones share the data; nothing writes to shared data.
#[derive(Clone)]
pub struct Array {
    buffer: Arc<Buffer>,
    meta: TensorMeta,
    strides: Strides,
    /// In elements, from the start of the buffer.
    offset: usize,
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

    /// An array of `dtype` on the host: each value rounded to the nearest that `dtype` holds.
    pub fn from_f64(shape: impl AsRef<[usize]>, dtype: DType, values: &[f64]) -> Result<Array> {
        fn convert<T: Element>(shape: &[usize], values: &[f64]) -> Result<Array> {
            Array::new(shape, &values.iter().map(|v| T::from_f64(*v)).collect::<Vec<T>>())
        }
        let shape = shape.as_ref();
        match dtype {
            DType::Bool => {
                let bytes: Vec<u8> = values.iter().map(|v| u8::from(*v != 0.0)).collect();
                let mut array = Array::new(shape, &bytes)?;
                array.meta = array.meta.with_dtype(DType::Bool);
                Ok(array)
            }
            DType::U8 => convert::<u8>(shape, values),
            DType::I32 => convert::<i32>(shape, values),
            DType::I64 => convert::<i64>(shape, values),
            DType::F16 => convert::<half::f16>(shape, values),
            DType::BF16 => convert::<half::bf16>(shape, values),
            DType::F32 => convert::<f32>(shape, values),
            DType::F64 => convert::<f64>(shape, values),
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

    pub(crate) fn from_buffer(buffer: Buffer, meta: TensorMeta) -> Array {
        let strides = contiguous_strides(meta.shape()).into();
        Array { buffer: Arc::new(buffer), meta, strides, offset: 0 }
    }

    pub(crate) fn from_shared(buffer: Arc<Buffer>, meta: TensorMeta, strides: Strides, offset: usize) -> Array {
        Array { buffer, meta, strides, offset }
    }

    /// Shape, element type, device.
    pub fn meta(&self) -> &TensorMeta {
        &self.meta
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        self.meta.shape()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.meta.dtype()
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(self.shape(), &self.strides)
    }

    /// Whether nobody else holds the data.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }

    pub(crate) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    pub(crate) fn into_buffer(self) -> Arc<Buffer> {
        self.buffer
    }

    pub(crate) fn byte_offset(&self) -> usize {
        self.offset * self.dtype().size()
    }

    /// The data, for kernels to read.
    pub fn view(&self) -> TensorRef<'_> {
        // SAFETY: every constructor keeps the elements that shape and strides reach within the buffer, whose start is
        // aligned for every element type; shared data is never written.
        unsafe {
            TensorRef::new(self.dtype(), self.shape(), &self.strides, self.buffer.as_ptr().add(self.byte_offset()))
        }
    }

    /// The same data with the dimensions in another order.
    pub fn permute(&self, dims: &[usize]) -> Result<Array> {
        let rank = self.meta.rank();
        let mut seen = vec![false; rank];
        if dims.len() != rank || !dims.iter().all(|d| *d < rank && !std::mem::replace(&mut seen[*d], true)) {
            return Err(wrong("dims", format!("{dims:?} is no permutation of {rank} dimensions")));
        }
        let shape: Vec<usize> = dims.iter().map(|d| self.shape()[*d]).collect();
        let strides = dims.iter().map(|d| self.strides[*d]).collect();
        Ok(Array { buffer: self.buffer.clone(), meta: self.meta.with_shape(shape), strides, offset: self.offset })
    }

    /// The elements `start`, `start + step`, ... below `end` of dimension `dim`.
    pub fn slice(&self, dim: usize, start: usize, end: usize, step: usize) -> Result<Array> {
        let extent =
            *self.shape().get(dim).ok_or_else(|| wrong("dim", format!("{dim} is out of range for {}", self.meta)))?;
        if start > end || end > extent || step == 0 {
            return Err(wrong(
                "slice",
                format!("{start}..{end} step {step} does not lie in dimension {dim} of {}", self.meta),
            ));
        }
        let mut shape = self.shape().to_vec();
        shape[dim] = (end - start).div_ceil(step);
        let mut strides = self.strides.clone();
        strides[dim] *= step as isize;
        let offset =
            (self.offset as isize + if shape.contains(&0) { 0 } else { start as isize * self.strides[dim] }) as usize;
        Ok(Array { buffer: self.buffer.clone(), meta: self.meta.with_shape(shape), strides, offset })
    }

    /// The same data seen with a larger shape: missing leading dimensions and extents of one are repeated (stride 0).
    pub fn expand(&self, shape: &[usize]) -> Result<Array> {
        let missing = shape.len().checked_sub(self.meta.rank());
        let fits =
            missing.is_some_and(|m| self.shape().iter().zip(&shape[m..]).all(|(own, new)| own == new || *own == 1));
        let Some(missing) = missing.filter(|_| fits) else {
            return Err(wrong("shape", format!("{} does not expand to {shape:?}", self.meta)));
        };
        let strides = (0..shape.len())
            .map(|i| if i < missing || self.shape()[i - missing] != shape[i] { 0 } else { self.strides[i - missing] })
            .collect();
        Ok(Array { buffer: self.buffer.clone(), meta: self.meta.with_shape(shape), strides, offset: self.offset })
    }

    /// The values in row-major order. The element type must be `T`'s.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(wrong("to_vec", format!("{} holds no {}", self.meta, T::DTYPE)));
        }
        Ok(self.gather_elements())
    }

    fn gather_elements<T: Element>(&self) -> Vec<T> {
        let data: &[T] =
            bytemuck::cast_slice(&self.buffer.as_bytes()[..self.buffer.len() / size_of::<T>() * size_of::<T>()]);
        let mut values = Vec::with_capacity(self.meta.len());
        self.for_each_offset(|offset| values.push(data[offset]));
        values
    }

    fn for_each_offset(&self, mut f: impl FnMut(usize)) {
        if self.meta.is_empty() {
            return;
        }
        let shape = self.shape();
        let mut index = vec![0usize; shape.len()];
        let mut offset = self.offset as isize;
        loop {
            f(offset as usize);
            let mut axis = shape.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                offset += self.strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                offset -= self.strides[axis] * shape[axis] as isize;
                index[axis] = 0;
            }
        }
    }

    /// The values in row-major order as f64 (exact but for large i64).
    pub fn to_f64(&self) -> Vec<f64> {
        fn values<T: Element>(array: &Array) -> Vec<f64> {
            array.gather_elements::<T>().into_iter().map(T::to_f64).collect()
        }
        match self.dtype() {
            DType::Bool | DType::U8 => values::<u8>(self),
            DType::I32 => values::<i32>(self),
            DType::I64 => values::<i64>(self),
            DType::F16 => values::<half::f16>(self),
            DType::BF16 => values::<half::bf16>(self),
            DType::F32 => values::<f32>(self),
            DType::F64 => values::<f64>(self),
        }
    }

    /// The only element as f64.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64()[..] {
            [value] => Ok(value),
            _ => Err(wrong("item", format!("{} has not exactly one element", self.meta))),
        }
    }

    /// The bytes in row-major order, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.is_contiguous() {
            let start = self.byte_offset();
            return self.buffer.as_bytes()[start..start + self.meta.bytes()].to_vec();
        }
        let size = self.dtype().size();
        let data = self.buffer.as_bytes();
        let mut bytes = Vec::with_capacity(self.meta.bytes());
        self.for_each_offset(|offset| bytes.extend_from_slice(&data[offset * size..(offset + 1) * size]));
        bytes
    }

    /// The same values, laid out row-major, in memory of their own.
    pub fn to_contiguous(&self) -> Result<Array> {
        Array::from_bytes(self.shape(), self.dtype(), &self.to_bytes())
    }

    /// The values for a reference rule.
    pub fn to_reference(&self) -> ReferenceTensor {
        let shape = IxDyn(self.shape());
        let build = |values: Vec<f64>| {
            ArrayD::from_shape_vec(shape.clone(), values)
                .unwrap_or_else(|_| unreachable!("as many values as the shape holds"))
        };
        if self.dtype() == DType::I64 {
            let values = self.gather_elements::<i64>();
            let array = ArrayD::from_shape_vec(shape.clone(), values)
                .unwrap_or_else(|_| unreachable!("as many values as the shape holds"));
            return ReferenceTensor::from_integers(DType::I64, array);
        }
        ReferenceTensor::from_floats(self.dtype(), build(self.to_f64()))
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.to_f64();
        let shown = values.len().min(8);
        write!(f, "{}{:?}{}", self.meta, &values[..shown], if shown < values.len() { "..." } else { "" })
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
