// Copies from memory to shared memory that go on while the thread works (sm_80 and later).
#ifndef FULGURITE_COPIES
#define FULGURITE_COPIES
#include "fulgurite/elements.cuh"

// Starts an async copy of 16 bytes. Copies since the last `end_batch` form a group. The thread that started them may
// read them after `await_all_but`; other threads need `__syncthreads` as well. Elements that are not ALIGNED to 16
// bytes are copied at once.
template <bool ALIGNED, typename T> __device__ __forceinline__ void fetch(T* to, const T* from) {
    if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < 16 / (int)sizeof(T); ++i) to[i] = from[i];
        return;
    }
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

// Starts an async copy of BYTES bytes (4, 8 or 16). Before sm_80 they are copied at once.
template <int BYTES> __device__ __forceinline__ void fetch_bytes(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const u32 there = (u32)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(there), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(there), "l"(from), "n"(BYTES) : "memory");
    }
#else
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) ((u32*)to)[i] = ((const u32*)from)[i];
#endif
}

// Starts an async copy of BYTES bytes (4, 8 or 16), or of zeros. Before sm_80 they are copied at once.
template <int BYTES> __device__ __forceinline__ void fetch_or_clear(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "n"(BYTES), "r"(there ? BYTES : 0)
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) ((u32*)to)[i] = there ? ((const u32*)from)[i] : 0;
#endif
}

__device__ __forceinline__ void end_batch() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits until at most the last LATER groups are under way.
template <int LATER> __device__ __forceinline__ void await_all_but() {
    asm volatile("cp.async.wait_group %0;" : : "n"(LATER) : "memory");
}
// Waits for every copy, whether a group ended or not.
__device__ __forceinline__ void await_fetched() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

#endif
