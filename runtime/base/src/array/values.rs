//! The values of arrays as numbers and bytes.

use fulgurite_kernels::DType;
use fulgurite_kernels::dtype::Element;
use fulgurite_kernels::mesh::Axis;
use ndarray::{ArrayD, IxDyn};

use super::{Array, Memory, wrong};
use crate::error::{Error, Result};
use crate::reference::ReferenceTensor;

impl Array {
    /// The values in row-major order. The element type must be `T`'s.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::Array {
                method: "to_vec",
                message: format!("{} holds no {}", self.0.form.meta, T::DTYPE),
            });
        }
        self.gather_elements()
    }

    fn gather_elements<T: bytemuck::Pod>(&self) -> Result<Vec<T>> {
        if let (Memory::Device(buffer), true) = (&self.0.memory, self.is_contiguous()) {
            // What is read is not copied to an array of the host first.
            let bytes = buffer.to_bytes()?;
            let mut values: Vec<T> = self.room()?;
            values.resize(self.0.form.meta.len(), T::zeroed());
            let own = &bytes[self.byte_offset()..][..self.0.form.meta.bytes()];
            bytemuck::cast_slice_mut(&mut values).copy_from_slice(own);
            return Ok(values);
        }
        let host = self.to_host()?;
        let buffer = host.buffer()?;
        let data: &[T] = bytemuck::cast_slice(&buffer.as_bytes()[..buffer.len() / size_of::<T>() * size_of::<T>()]);
        let mut values = self.room()?;
        self.for_each_offset(|offset| values.push(data[offset]));
        Ok(values)
    }

    /// Room for the elements; a view may show more of them than memory holds.
    fn room<T>(&self) -> Result<Vec<T>> {
        let mut values = Vec::new();
        let room = values.try_reserve_exact(self.0.form.meta.len());
        room.map_err(|error| wrong("array", format!("{} cannot be laid out in memory: {error}", self.0.form.meta)))?;
        Ok(values)
    }

    fn for_each_offset(&self, mut f: impl FnMut(usize)) {
        if self.0.form.meta.is_empty() {
            return;
        }
        let shape = self.shape();
        let mut index = vec![0usize; shape.len()];
        let mut offset = self.0.offset as isize;
        loop {
            f(offset as usize);
            let mut axis = shape.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                offset += self.0.form.strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                offset -= self.0.form.strides[axis] * shape[axis] as isize;
                index[axis] = 0;
            }
        }
    }

    /// The values in row-major order as f64 (exact but for large i64); of complex numbers the real and the imaginary
    /// part of each, one after the other.
    pub fn to_f64(&self) -> Result<Vec<f64>> {
        fn values<T: Element>(array: &Array) -> Result<Vec<f64>> {
            let mut values = array.room()?;
            values.extend(array.gather_elements::<T>()?.into_iter().map(T::to_f64));
            Ok(values)
        }
        fn parts<T: Element>(array: &Array) -> Result<Vec<f64>>
        where
            [T; 2]: bytemuck::Pod,
        {
            let pairs = array.gather_elements::<[T; 2]>()?;
            Ok(pairs.into_iter().flatten().map(T::to_f64).collect())
        }
        match self.dtype() {
            DType::Bool | DType::U8 => values::<u8>(self),
            DType::I8 => values::<i8>(self),
            DType::U16 => values::<u16>(self),
            DType::I16 => values::<i16>(self),
            DType::U32 => values::<u32>(self),
            DType::I32 => values::<i32>(self),
            DType::I64 => values::<i64>(self),
            DType::F16 => values::<half::f16>(self),
            DType::BF16 => values::<half::bf16>(self),
            DType::F32 => values::<f32>(self),
            DType::F64 => values::<f64>(self),
            DType::C64 => parts::<f32>(self),
            DType::C128 => parts::<f64>(self),
        }
    }

    /// The first elements in row-major order, `most` at most, as [`to_f64`](Self::to_f64) gives them: of an array of
    /// any size, without a copy of it.
    pub fn first_f64(&self, most: usize) -> Result<Vec<f64>> {
        let host = self.to_host()?;
        let data = host.buffer()?.as_bytes();
        let (shape, strides, size) = (host.shape(), host.strides(), host.dtype().size());
        let count = most.min(host.meta().len());
        let mut bytes = Vec::new();
        for number in 0..count {
            let (mut rest, mut offset) = (number, host.0.offset as isize);
            for (extent, stride) in shape.iter().zip(strides).rev() {
                offset += (rest % extent) as isize * stride;
                rest /= extent;
            }
            bytes.extend_from_slice(&data[offset as usize * size..][..size]);
        }
        Array::from_bytes([count], host.dtype(), &bytes)?.to_f64()
    }

    /// The only element as f64. A complex number is none.
    pub fn item(&self) -> Result<f64> {
        if self.dtype().is_complex() {
            let message = format!("{} holds complex numbers: ask `to_f64` for their parts", self.0.form.meta);
            return Err(Error::Array { method: "item", message });
        }
        match self.to_f64()?[..] {
            [value] => Ok(value),
            _ => Err(Error::Array {
                method: "item",
                message: format!("{} has not exactly one element", self.0.form.meta),
            }),
        }
    }

    /// The bytes in row-major order, little endian.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let host = self.to_host()?;
        let data = host.buffer()?.as_bytes();
        let mut bytes = Vec::new();
        let room = bytes.try_reserve_exact(self.0.form.meta.bytes());
        room.map_err(|error| wrong("array", format!("{} cannot be laid out in memory: {error}", self.0.form.meta)))?;
        if self.is_contiguous() {
            let start = self.byte_offset();
            bytes.extend_from_slice(&data[start..start + self.0.form.meta.bytes()]);
            return Ok(bytes);
        }
        let size = self.dtype().size();
        self.for_each_offset(|offset| bytes.extend_from_slice(&data[offset * size..(offset + 1) * size]));
        Ok(bytes)
    }

    /// The same values, laid out row-major, in memory of their own on the host.
    pub fn to_contiguous(&self) -> Result<Array> {
        Array::from_bytes(self.shape(), self.dtype(), &self.to_bytes()?)
    }

    /// The part at `place` of this tensor, which is divided among the ranks along an axis: the elements in row-major
    /// order, in equal parts, of which the last ones end with zeros. On the host, one-dimensional, of
    /// [`Axis::part_length`] elements.
    ///
    /// # Errors
    /// If the axis has no such place, or there is not as much memory.
    pub fn part(&self, place: usize, axis: &Axis) -> Result<Array> {
        if place >= axis.extent() {
            return Err(wrong("place", format!("is {place}, expected a place along {axis}, below {}", axis.extent())));
        }
        let length = axis.part_length(self.shape());
        let bytes = self.to_bytes()?;
        let wanted = length * self.dtype().size();
        let own = bytes.get(place * wanted..).unwrap_or_default();
        Array::written_bytes([length], self.dtype(), |part| {
            let there = own.len().min(wanted);
            part[..there].copy_from_slice(&own[..there]);
            part[there..].fill(0);
            Ok(())
        })
    }

    /// The values for a reference rule.
    pub fn to_reference(&self) -> Result<ReferenceTensor> {
        let shape = IxDyn(self.shape());
        if self.dtype() == DType::I64 {
            let values = self.gather_elements::<i64>()?;
            let array = ArrayD::from_shape_vec(shape, values)
                .unwrap_or_else(|_| unreachable!("as many values as the shape holds"));
            return Ok(ReferenceTensor::from_integers(DType::I64, array));
        }
        let values = self.to_f64()?;
        let array_of = |values: Vec<f64>| {
            ArrayD::from_shape_vec(shape.clone(), values)
                .unwrap_or_else(|_| unreachable!("as many values as the shape holds"))
        };
        if self.dtype().is_complex() {
            let part = |which: usize| array_of(values.iter().skip(which).step_by(2).copied().collect());
            return Ok(ReferenceTensor::of_parts(self.dtype(), part(0), part(1)));
        }
        Ok(ReferenceTensor::from_floats(self.dtype(), array_of(values)))
    }
}
