//! Strided views of memory, with the element type as a run-time value: what kernels read and write.

use std::marker::PhantomData;

use crate::dtype::{DType, Element};
use crate::elements::{Elements, ElementsMut};
use crate::not_contiguous::NotContiguous;

/// Number of elements of a shape; a shape of more than fit a `usize` has no memory.
#[track_caller]
fn elements(shape: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    let count = shape.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent));
    count.unwrap_or_else(|| panic!("shape {shape:?} has more elements than there are addresses"))
}

/// Strides of a contiguous (row-major) tensor of `shape`, in elements.
pub fn contiguous_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].saturating_mul(isize::try_from(shape[axis + 1].max(1)).unwrap_or(isize::MAX));
    }
    strides
}

/// Whether `strides` lay `shape` out row-major without gaps. Extents of one may have any stride; empty tensors are
/// contiguous.
pub fn is_contiguous(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 && stride != expected {
            return false;
        }
        expected = expected.saturating_mul(isize::try_from(extent).unwrap_or(isize::MAX));
    }
    true
}

/// A tensor to read: element type, shape, strides in elements, and the address of its first element.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    dtype: DType,
    shape: &'a [usize],
    strides: &'a [isize],
    pointer: *const u8,
    /// Whether the memory is also that of a result of the same kernel.
    overlapped: bool,
    memory: PhantomData<&'a u8>,
}

/// A tensor to write. It may be read as well, once written.
#[derive(Debug)]
pub struct TensorMut<'a> {
    dtype: DType,
    shape: &'a [usize],
    strides: &'a [isize],
    pointer: *mut u8,
    /// Whether the memory is also that of an operand of the same kernel.
    overlapped: bool,
    memory: PhantomData<&'a mut u8>,
}

// SAFETY: a `TensorRef` is a shared borrow of plain numbers.
unsafe impl Send for TensorRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorRef<'_> {}
// SAFETY: a `TensorMut` is an exclusive borrow of plain numbers.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: shared access to a `TensorMut` only hands out its address; writing through it takes `unsafe`.
unsafe impl Sync for TensorMut<'_> {}

/// Whether two layouts reach the same elements in the same order, but for repetition: they differ in dimensions of
/// extent one and, if `repeat`, in dimensions of stride zero. What has no elements reaches none: its address is
/// nobody's.
fn reaches_the_same(own: (&[usize], &[isize]), other: (&[usize], &[isize]), repeat: bool) -> bool {
    if own.0.contains(&0) != other.0.contains(&0) {
        return false;
    }
    let essential = |(shape, strides): (&[usize], &[isize])| -> Vec<(usize, isize)> {
        let all = shape.iter().copied().zip(strides.iter().copied());
        all.filter(|(extent, stride)| *extent != 1 && !(repeat && *stride == 0)).collect()
    };
    essential(own) == essential(other)
}

/// The addresses from the first to the last byte that a layout reaches; none of a tensor without elements.
fn bytes(shape: &[usize], strides: &[isize], first: *const u8, dtype: DType) -> std::ops::Range<usize> {
    if shape.contains(&0) {
        return 0..0;
    }
    let far = |keep: fn(isize) -> bool| -> isize {
        let steps = shape.iter().zip(strides).filter(|(_, stride)| keep(**stride));
        steps.map(|(extent, stride)| (extent - 1) as isize * stride).sum::<isize>() * dtype.size() as isize
    };
    let (low, high) = (far(|stride| stride < 0), far(|stride| stride > 0));
    first.addr().wrapping_add_signed(low)..first.addr().wrapping_add_signed(high) + dtype.size()
}

impl<'a> TensorRef<'a> {
    /// A view of memory that it does not own.
    ///
    /// # Safety
    /// For `'a`, every element that `shape` and `strides` reach from `pointer` is in one live allocation, is aligned
    /// for `dtype`, and is not written.
    pub unsafe fn new(dtype: DType, shape: &'a [usize], strides: &'a [isize], pointer: *const u8) -> Self {
        assert_eq!(shape.len(), strides.len(), "a view has one stride for each dimension");
        TensorRef { dtype, shape, strides, pointer, overlapped: false, memory: PhantomData }
    }

    /// As [`TensorRef::new`], of memory that is also that of a result of the same kernel: there are
    /// [elements](Self::elements) to be read one at a time, and no slices.
    ///
    /// # Safety
    /// As [`TensorRef::new`], but the elements may be written through a [`TensorMut::overlapped`] given to the same
    /// kernel.
    pub unsafe fn overlapped(dtype: DType, shape: &'a [usize], strides: &'a [isize], pointer: *const u8) -> Self {
        // SAFETY: the caller's promise; what could tell the difference is not handed out.
        TensorRef { overlapped: true, ..unsafe { TensorRef::new(dtype, shape, strides, pointer) } }
    }

    /// Other elements of the same memory.
    ///
    /// # Safety
    /// Every element that `shape` and `strides` reach from `pointer` is one of this tensor's.
    pub(crate) unsafe fn part<'b>(&self, shape: &'b [usize], strides: &'b [isize], pointer: *const u8) -> TensorRef<'b>
    where
        'a: 'b,
    {
        // SAFETY: the caller's promise, and that of this tensor's own view.
        TensorRef { overlapped: self.overlapped, ..unsafe { TensorRef::new(self.dtype, shape, strides, pointer) } }
    }

    /// Whether the memory is also that of a result of the same kernel.
    pub fn is_overlapped(&self) -> bool {
        self.overlapped
    }

    /// Whether some of the memory may be that of `result`. Views that are not marked as overlapped are promised to
    /// share none.
    pub(crate) fn shares_memory_with(&self, result: &TensorMut<'_>) -> bool {
        self.overlapped && result.overlapped && {
            let own = bytes(self.shape, self.strides, self.pointer, self.dtype);
            let other = bytes(result.shape, result.strides, result.pointer, result.dtype);
            own.start < other.end && other.start < own.end
        }
    }

    /// Whether each element has the place of the same element of `result`, and is as large.
    pub(crate) fn is_view_of(&self, result: &TensorMut<'_>) -> bool {
        std::ptr::eq(self.pointer, result.pointer)
            && self.dtype.size() == result.dtype.size()
            && self.shape.len() == result.shape.len()
            && reaches_the_same((self.shape, self.strides), (result.shape, result.strides), false)
    }

    /// The elements of a contiguous tensor, to be read one at a time; `None` if it is strided or not of type `T`. What
    /// a kernel declared `in_place` reads an operand by.
    pub fn elements<T: Element>(&self) -> Option<Elements<'a, T>> {
        // SAFETY: `new`'s contract covers all `len()` elements, which are contiguous.
        (self.dtype == T::DTYPE && self.is_contiguous()).then(|| unsafe { Elements::new(self.non_null(), self.len()) })
    }

    /// A contiguous view of a slice. `strides` must be those of `shape` (see [`contiguous_strides`]).
    pub fn from_slice<T: Element>(data: &'a [T], shape: &'a [usize], strides: &'a [isize]) -> Self {
        assert_eq!(elements(shape), data.len(), "the shape holds as many elements as the slice");
        assert!(is_contiguous(shape, strides), "a slice is viewed contiguously");
        // SAFETY: the slice is live for 'a, aligned for T, and borrowed shared.
        unsafe { TensorRef::new(T::DTYPE, shape, strides, data.as_ptr().cast()) }
    }

    /// The same elements seen with other dimensions of extent one or of stride zero; `None` if anything else differs.
    pub fn reshaped<'b>(&self, shape: &'b [usize], strides: &'b [isize]) -> Option<TensorRef<'b>>
    where
        'a: 'b,
    {
        (shape.len() == strides.len() && reaches_the_same((self.shape, self.strides), (shape, strides), true))
            // SAFETY: the new layout reaches no element that the old one does not.
            .then(|| unsafe { self.part(shape, strides, self.pointer) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Strides in elements.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        elements(self.shape)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first element.
    pub fn as_ptr(&self) -> *const u8 {
        self.pointer
    }

    /// Whether the elements are row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(self.shape, self.strides)
    }

    /// The elements of a contiguous tensor, or `None` if it is strided, not of type `T`, or of memory that a result of
    /// the same kernel has too.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        // SAFETY: `new`'s contract covers all `len()` elements, which are contiguous; nothing writes to them.
        (self.dtype == T::DTYPE && self.is_contiguous() && !self.overlapped)
            .then(|| unsafe { std::slice::from_raw_parts(self.non_null().cast(), self.len()) })
    }

    /// As [`TensorRef::as_slice`], of the operand that the kernel calls `name`.
    ///
    /// # Errors
    /// What is asked for and what is given.
    pub fn contiguous<T: Element>(&self, name: &str) -> Result<&'a [T], NotContiguous> {
        self.as_slice().ok_or_else(|| refusal(name, T::DTYPE, self.dtype, (self.shape, self.strides)))
    }

    fn non_null(&self) -> *const u8 {
        if self.is_empty() { std::ptr::without_provenance(64) } else { self.pointer }
    }
}

impl<'a> TensorMut<'a> {
    /// A view of memory that it does not own.
    ///
    /// # Safety
    /// As [`TensorRef::new`], and no other code reads or writes the elements for `'a`.
    pub unsafe fn new(dtype: DType, shape: &'a [usize], strides: &'a [isize], pointer: *mut u8) -> Self {
        assert_eq!(shape.len(), strides.len(), "a view has one stride for each dimension");
        TensorMut { dtype, shape, strides, pointer, overlapped: false, memory: PhantomData }
    }

    /// As [`TensorMut::new`], of memory that is also that of operands of the same kernel: there are
    /// [elements](Self::elements_mut) to be written one at a time, and no slices.
    ///
    /// # Safety
    /// As [`TensorMut::new`], but the elements may be read through a [`TensorRef::overlapped`] given to the same
    /// kernel.
    pub unsafe fn overlapped(dtype: DType, shape: &'a [usize], strides: &'a [isize], pointer: *mut u8) -> Self {
        // SAFETY: the caller's promise; what could tell the difference is not handed out.
        TensorMut { overlapped: true, ..unsafe { TensorMut::new(dtype, shape, strides, pointer) } }
    }

    /// Other elements of the same memory.
    ///
    /// # Safety
    /// Every element that `shape` and `strides` reach from `pointer` is one of this tensor's.
    pub(crate) unsafe fn part<'b>(
        &'b mut self,
        shape: &'b [usize],
        strides: &'b [isize],
        pointer: *mut u8,
    ) -> TensorMut<'b> {
        // SAFETY: the caller's promise, and that of this tensor's own view, whose exclusive borrow is lent on.
        TensorMut { overlapped: self.overlapped, ..unsafe { TensorMut::new(self.dtype, shape, strides, pointer) } }
    }

    /// Whether the memory is also that of an operand of the same kernel.
    pub fn is_overlapped(&self) -> bool {
        self.overlapped
    }

    /// The elements of a contiguous tensor, to be written one at a time; `None` if it is strided or not of type `T`.
    /// What a kernel declared `in_place` writes a result by.
    pub fn elements_mut<T: Element>(&mut self) -> Option<ElementsMut<'_, T>> {
        if self.dtype != T::DTYPE || !self.is_contiguous() {
            return None;
        }
        let pointer = if self.is_empty() { std::ptr::without_provenance_mut(64) } else { self.pointer };
        // SAFETY: `new`'s contract covers all `len()` elements, which are contiguous.
        Some(unsafe { ElementsMut::new(pointer, self.len()) })
    }

    /// A contiguous view of a slice. `strides` must be those of `shape` (see [`contiguous_strides`]).
    pub fn from_slice<T: Element>(data: &'a mut [T], shape: &'a [usize], strides: &'a [isize]) -> Self {
        assert_eq!(elements(shape), data.len(), "the shape holds as many elements as the slice");
        assert!(is_contiguous(shape, strides), "a slice is viewed contiguously");
        // SAFETY: the slice is live for 'a, aligned for T, and borrowed exclusively.
        unsafe { TensorMut::new(T::DTYPE, shape, strides, data.as_mut_ptr().cast()) }
    }

    /// The same view, for reading what has been written.
    pub fn as_ref(&self) -> TensorRef<'_> {
        // SAFETY: the exclusive borrow is lent out as a shared one.
        let view = unsafe { TensorRef::new(self.dtype, self.shape, self.strides, self.pointer) };
        TensorRef { overlapped: self.overlapped, ..view }
    }

    /// The same view again, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> TensorMut<'_> {
        // SAFETY: the same elements.
        unsafe { self.part(self.shape, self.strides, self.pointer) }
    }

    /// The same elements seen with other dimensions of extent one; `None` if anything else differs.
    pub fn reshaped<'b>(&'b mut self, shape: &'b [usize], strides: &'b [isize]) -> Option<TensorMut<'b>> {
        (shape.len() == strides.len() && reaches_the_same((self.shape, self.strides), (shape, strides), false))
            // SAFETY: the new layout reaches the same elements.
            .then(|| unsafe { self.part(shape, strides, self.pointer) })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Strides in elements.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        elements(self.shape)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first element.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pointer
    }

    /// Whether the elements are row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        is_contiguous(self.shape, self.strides)
    }

    /// The elements of a contiguous tensor, or `None` if it is strided, not of type `T`, or of memory that an operand
    /// of the same kernel has too.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        if self.dtype != T::DTYPE || !self.is_contiguous() || self.overlapped {
            return None;
        }
        let pointer = if self.is_empty() { std::ptr::without_provenance_mut(64) } else { self.pointer };
        // SAFETY: `new`'s contract covers all `len()` elements, which are contiguous.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), self.len()) })
    }

    /// As [`TensorMut::as_mut_slice`], of the result that the kernel calls `name`.
    ///
    /// # Errors
    /// What is asked for and what is given.
    pub fn contiguous_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T], NotContiguous> {
        let (dtype, layout) = (self.dtype, (self.shape, self.strides));
        self.as_mut_slice().ok_or_else(|| refusal(name, T::DTYPE, dtype, layout))
    }
}

fn refusal(name: &str, asked: DType, given: DType, (shape, strides): (&[usize], &[isize])) -> NotContiguous {
    let contiguous = is_contiguous(shape, strides);
    NotContiguous { name: name.to_owned(), asked, given, shape: shape.to_vec(), strides: strides.to_vec(), contiguous }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguity() {
        assert_eq!(contiguous_strides(&[2, 3, 4]), [12, 4, 1]);
        assert!(is_contiguous(&[2, 3], &[3, 1]));
        assert!(is_contiguous(&[1, 3], &[77, 1]));
        assert!(!is_contiguous(&[2, 3], &[1, 2]));
        assert!(!is_contiguous(&[2, 3], &[0, 1]));
        assert!(is_contiguous(&[0, 3], &[0, 0]));
        assert!(is_contiguous(&[], &[]));
    }

    #[test]
    fn the_message_says_what_is_asked_for_and_what_is_given() {
        let data = [1.0_f32; 6];
        let strided = |strides: &[isize]| {
            // SAFETY: six elements, of which the strides reach none beyond the last.
            let view = unsafe { TensorRef::new(DType::F32, &[2, 3], strides, data.as_ptr().cast()) };
            (view.contiguous::<f32>("x").map(<[f32]>::len), view.contiguous::<f64>("x").map(<[f64]>::len))
        };
        let (same, wider) = strided(&[3, 1]);
        assert_eq!(same, Ok(6));
        assert_eq!(wider.unwrap_err().to_string(), "the kernel asks for contiguous f64, 'x' is f32[2, 3]");
        let (turned, _) = strided(&[1, 2]);
        let expected = "the kernel asks for contiguous f32, 'x' is f32[2, 3] with strides [1, 2]";
        assert_eq!(turned.unwrap_err().to_string(), expected);
        // SAFETY: as above.
        let shared = unsafe { TensorRef::overlapped(DType::F32, &[6], &[1], data.as_ptr().cast()) };
        let message = shared.contiguous::<f32>("x").unwrap_err().to_string();
        assert!(message.ends_with("share: `elements` reads it and `elements_mut` writes it"), "{message}");
    }
}
