// The barrier of a cluster of blocks, and what its blocks tell one another through shared memory (sm_90 and later).
#ifndef FULGURITE_CLUSTERS
#define FULGURITE_CLUSTERS
#include "fulgurite/reductions.cuh"

// The barrier in two halves. Together they order writes to the shared memory of the cluster's blocks.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ __forceinline__ void store_bits(u32 there, u32 bits) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(there), "r"(bits) : "memory");
}
__device__ __forceinline__ void store_bits(u32 there, u64 bits) {
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(there), "l"(bits) : "memory");
}
__device__ __forceinline__ u32 bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
__device__ __forceinline__ u64 bits_of(i64 x) { return (u64)x; }

// Writes `x` to the place that block `rank` of the cluster has for `here`, an address of this block's shared memory.
template <typename W> __device__ __forceinline__ void store_in_block(W* here, u32 rank, W x) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((u32)__cvta_generic_to_shared(here)), "r"(rank));
    store_bits(there, bits_of(x));
}

// Of a cluster of BLOCKS blocks, in their order; `x` is that of the block, and all threads get the same result.
// `partial` holds BLOCKS values, and is written by this call alone.
template <typename R, int BLOCKS, typename W> __device__ __forceinline__ W cluster_reduce(W x, W* partial) {
    if (threadIdx.x < BLOCKS) store_in_block(partial + blockIdx.x % BLOCKS, threadIdx.x, x);
    cluster_arrive();
    cluster_wait();
    W total = partial[0];
#pragma unroll
    for (int block = 1; block < BLOCKS; ++block) total = R::combine(total, partial[block]);
    return total;
}

#endif
