//! Copies that go past the caches, for results larger than the last-level cache: writing such a result through the
//! caches would first read every line that is about to be overwritten, and evict what others still need.

use std::sync::OnceLock;

use crate::machine::last_level_cache;

/// Outputs of at least this many bytes are streamed: three quarters of the last-level cache, as the C library's
/// `memcpy` does. In the unit tests of this crate the limit is the same on every machine.
pub(crate) fn streaming_threshold() -> usize {
    if cfg!(test) {
        return 1 << 20;
    }
    static THRESHOLD: OnceLock<usize> = OnceLock::new();
    *THRESHOLD.get_or_init(|| last_level_cache() / 4 * 3)
}

/// Bytes in a line of the caches.
pub(crate) const LINE: usize = 64;

/// Has a line fetched into the second-level cache, if there is memory at that address.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: part of the baseline of the architecture; a hint, which reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
    }
}

/// Copies `bytes` bytes to memory that is not read soon. Follow the last copy of a thread with [`fence`].
///
/// # Safety
/// The ranges are valid and do not overlap.
pub(crate) unsafe fn copy(source: *const u8, out: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = out.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: promised by the caller; the streamed part starts at a multiple of LINE. Four stores fill a line.
        unsafe {
            std::ptr::copy_nonoverlapping(source, out, head);
            for line in 0..lines {
                let from = source.add(head + line * LINE).cast::<__m128i>();
                let to = out.add(head + line * LINE).cast::<__m128i>();
                let values = [
                    _mm_loadu_si128(from),
                    _mm_loadu_si128(from.add(1)),
                    _mm_loadu_si128(from.add(2)),
                    _mm_loadu_si128(from.add(3)),
                ];
                for (part, value) in values.into_iter().enumerate() {
                    _mm_stream_si128(to.add(part), value);
                }
            }
            std::ptr::copy_nonoverlapping(source.add(tail), out.add(tail), bytes - tail);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: promised by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(source, out, bytes);
    }
}

/// Makes streamed copies visible before whatever this thread writes next.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of the baseline of the architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
