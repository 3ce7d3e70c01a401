//! Memory of a size that follows from the operands' shapes: an error where the system has none, never an abort.
//!
//! Building blocks return nothing that could be an error. Where there is no memory for their scratch space they unwind
//! with [`OutOfMemory`], past the hook of panics. What runs a kernel catches that as it catches panics, and its error
//! names the operator.

use std::alloc::{Layout, alloc_zeroed};
use std::panic::resume_unwind;

use bytemuck::Zeroable;

use crate::buffer::OutOfMemory;

fn lacking<T>(length: usize) -> OutOfMemory {
    OutOfMemory { bytes: length.saturating_mul(size_of::<T>()) }
}

/// What there is memory for, for a kernel: it unwinds where there is none.
pub fn or_unwind<T>(memory: Result<T, OutOfMemory>) -> T {
    memory.unwrap_or_else(|error| resume_unwind(Box::new(error)))
}

/// An empty vector with room for so many elements.
pub fn try_room<T>(length: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut room = Vec::new();
    room.try_reserve_exact(length).map_err(|_| lacking::<T>(length))?;
    Ok(room)
}

/// So many elements of zeros, which cost nothing before they are written where the system has zeroed pages.
pub fn try_zeroed<T: Zeroable>(length: usize) -> Result<Vec<T>, OutOfMemory> {
    let layout = Layout::array::<T>(length).map_err(|_| lacking::<T>(length))?;
    if layout.size() == 0 {
        return Ok(std::iter::repeat_with(T::zeroed).take(length).collect());
    }
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(lacking::<T>(length));
    }
    // SAFETY: allocated by the global allocator with the layout of such a vector, and zeros are elements of `T`.
    Ok(unsafe { Vec::from_raw_parts(start.cast(), length, length) })
}

/// A copy of some bytes.
pub fn try_copy(bytes: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let mut copy = try_room(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// As [`try_room`], for a kernel: it unwinds where there is no memory.
pub fn room<T>(length: usize) -> Vec<T> {
    or_unwind(try_room(length))
}

/// As [`try_zeroed`], for a kernel: it unwinds where there is no memory.
pub fn zeroed<T: Zeroable>(length: usize) -> Vec<T> {
    or_unwind(try_zeroed(length))
}

/// So many elements of one value, for a kernel: it unwinds where there is no memory.
pub fn filled<T: Clone>(value: T, length: usize) -> Vec<T> {
    let mut filled = room(length);
    filled.resize(length, value);
    filled
}

/// The elements of an iterator that knows their number, for a kernel: it unwinds where there is no memory.
pub fn collected<T>(elements: impl ExactSizeIterator<Item = T>) -> Vec<T> {
    let mut collected = room(elements.len());
    collected.extend(elements);
    collected
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn what_the_system_lacks_is_an_error() {
        let beyond = 1usize << 58;
        assert_eq!(try_room::<f64>(beyond).unwrap_err(), OutOfMemory { bytes: beyond * 8 });
        assert_eq!(try_zeroed::<u8>(beyond).unwrap_err(), OutOfMemory { bytes: beyond });
        assert_eq!(try_zeroed::<u64>(usize::MAX).unwrap_err(), OutOfMemory { bytes: usize::MAX });
        let unwound = [
            catch_unwind(AssertUnwindSafe(|| drop(filled(1.5f32, beyond)))),
            catch_unwind(AssertUnwindSafe(|| drop(zeroed::<f32>(beyond)))),
            catch_unwind(AssertUnwindSafe(|| rayon::join(|| drop(room::<f32>(beyond)), || ()).1)),
        ];
        for unwound in unwound {
            assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&OutOfMemory { bytes: beyond * 4 }));
        }
    }

    #[test]
    fn what_there_is_has_its_values() {
        assert_eq!(zeroed::<i64>(3), [0, 0, 0]);
        assert_eq!(
            (zeroed::<i64>(0), filled('x', 2), collected([1, 2].into_iter())),
            (vec![], vec!['x', 'x'], vec![1, 2])
        );
        assert_eq!(try_copy(&[7, 8]).unwrap(), [7, 8]);
    }
}
