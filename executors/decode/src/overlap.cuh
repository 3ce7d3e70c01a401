// A kernel that begins while the one before it on the stream still runs (compute capability 9.0). It has its weights
// brought to the second cache, which is right whichever kernel wrote them, and reads and writes nothing before the one
// before has ended.
#include "fulgurite/elements.cuh"

// The next kernel may begin as soon as all blocks of this one have said so.
__device__ __forceinline__ void let_next_begin() {
#if OVERLAPS
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until all that came before on the stream has ended, and what it wrote can be read. All threads call it.
__device__ __forceinline__ void wait_for_previous() {
#if OVERLAPS
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Has `bytes` bytes brought to the second cache; `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void fetch(const void* from, u32 bytes) {
#if OVERLAPS
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// Reads what another kernel may have written since it was read before.
template <typename T> __device__ __forceinline__ T load_now(const T* from) {
    return *(const volatile T*)from;
}
