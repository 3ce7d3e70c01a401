//! Copies that go past the caches, for results larger than the last-level cache: writing such a result through the caches
//! would first read every line that is about to be overwritten, and evict what others still need.

use std::sync::OnceLock;

/// Outputs of at least this many bytes are streamed: three quarters of the last-level cache, as the C library's `memcpy` does.
pub(crate) fn streaming_threshold() -> usize {
    static THRESHOLD: OnceLock<usize> = OnceLock::new();
    *THRESHOLD.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
        let kibibytes = text.trim().trim_end_matches('K').parse::<usize>().unwrap_or(32 << 10);
        kibibytes * 1024 / 4 * 3
    })
}

/// Copies `bytes` bytes to memory that nobody reads soon. Follow the last copy of a thread with [`fence`].
///
/// # Safety
/// The ranges are valid and do not overlap.
pub(crate) unsafe fn copy(source: *const u8, out: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = out.align_offset(64).min(bytes);
        let lines = (bytes - head) / 64;
        let tail = head + lines * 64;
        // SAFETY: promised by the caller; the streamed part starts at a multiple of 64. Four stores fill a line.
        unsafe {
            std::ptr::copy_nonoverlapping(source, out, head);
            for line in 0..lines {
                let from = source.add(head + line * 64).cast::<__m128i>();
                let to = out.add(head + line * 64).cast::<__m128i>();
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
