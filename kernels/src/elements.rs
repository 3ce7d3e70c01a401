//! Elements read and written one at a time, for host kernels whose result may have the memory of an operand. A slice
//! says that nobody else writes to its elements, which is not true there; these types say nothing of the kind, and an
//! element has the value that was written last.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::dtype::Element;

/// The elements of a contiguous operand, by [`TensorRef::elements`](crate::view::TensorRef::elements).
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a, T> {
    pointer: *mut u8,
    len: usize,
    memory: PhantomData<&'a T>,
}

/// The elements of a contiguous result, by [`TensorMut::elements_mut`](crate::view::TensorMut::elements_mut).
#[derive(Debug)]
pub struct ElementsMut<'a, T>(Elements<'a, T>);

// SAFETY: elements are read and written by atomic instructions alone, on whatever thread.
unsafe impl<T: Element> Send for Elements<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Elements<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Send for ElementsMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for ElementsMut<'_, T> {}

impl<'a, T: Element> Elements<'a, T> {
    /// # Safety
    /// For `'a`, `len` elements of type `T` are contiguous from `pointer`, in live memory, aligned; writes to them
    /// meanwhile are on the same thread or through [`ElementsMut`].
    pub(crate) unsafe fn new(pointer: *const u8, len: usize) -> Self {
        Elements { pointer: pointer.cast_mut(), len, memory: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element as it is now; panics beyond the last one, as a slice does.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        let at = self.at(index);
        // SAFETY: `at` is an element by `new`'s contract: valid, and aligned for integers of its size. No element type
        // has padding, so that its bytes are those of an integer.
        unsafe {
            match size_of::<T>() {
                1 => AtomicU8::from_ptr(at).load(Relaxed).to_ne_bytes().as_element(),
                2 => AtomicU16::from_ptr(at.cast()).load(Relaxed).to_ne_bytes().as_element(),
                4 => AtomicU32::from_ptr(at.cast()).load(Relaxed).to_ne_bytes().as_element(),
                _ => AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes().as_element(),
            }
        }
    }

    fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.len, "element {index} of {}", self.len);
        self.pointer.wrapping_add(index * size_of::<T>())
    }
}

/// Bytes that are an element.
trait AsElement {
    fn as_element<T: Element>(&self) -> T;
}

impl<const N: usize> AsElement for [u8; N] {
    fn as_element<T: Element>(&self) -> T {
        bytemuck::pod_read_unaligned(self)
    }
}

impl<'a, T: Element> ElementsMut<'a, T> {
    /// # Safety
    /// As [`Elements::new`], and the elements may be written.
    pub(crate) unsafe fn new(pointer: *mut u8, len: usize) -> Self {
        // SAFETY: the caller's promise.
        ElementsMut(unsafe { Elements::new(pointer, len) })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The element as it is now.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        self.0.get(index)
    }

    /// Writes an element; panics beyond the last one, as a slice does.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        let at = self.0.at(index);
        let bytes = bytemuck::bytes_of(&value);
        // SAFETY: `at` is an element by `new`'s contract: valid for writes, and aligned for integers of its size.
        unsafe {
            match size_of::<T>() {
                1 => AtomicU8::from_ptr(at).store(bytemuck::pod_read_unaligned(bytes), Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(bytemuck::pod_read_unaligned(bytes), Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(bytemuck::pod_read_unaligned(bytes), Relaxed),
                _ => AtomicU64::from_ptr(at.cast()).store(bytemuck::pod_read_unaligned(bytes), Relaxed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::view::{TensorMut, TensorRef};

    #[test]
    fn a_result_over_its_operand_gives_elements_and_no_slices() {
        let mut data = [1.0f32, 2.0, 3.0];
        let (shape, strides) = ([3], [1]);
        let first = data.as_mut_ptr().cast::<u8>();
        // SAFETY: both reach the three elements of `data`, which outlives them, and both say that they overlap.
        let (operand, mut result) = unsafe {
            let operand = TensorRef::overlapped(DType::F32, &shape, &strides, first);
            (operand, TensorMut::overlapped(DType::F32, &shape, &strides, first))
        };
        assert!(operand.as_slice::<f32>().is_none() && result.as_mut_slice::<f32>().is_none());
        assert!(operand.reshaped(&[3, 1], &[1, 1]).is_some_and(|view| view.as_slice::<f32>().is_none()));
        assert!(operand.elements::<f64>().is_none() && result.elements_mut::<i32>().is_none());
        let read = operand.elements::<f32>().unwrap();
        let written = result.elements_mut::<f32>().unwrap();
        for i in 0..3 {
            written.set(i, read.get(2 - i));
        }
        assert_eq!((0..3).map(|i| read.get(i)).collect::<Vec<_>>(), [3.0, 2.0, 3.0]);
        assert_eq!(data, [3.0, 2.0, 3.0]);
    }
}
