// Rows that threads keep in registers: where a thread's elements are, and sums over the threads of a row.
#ifndef FULGURITE_ROWS
#define FULGURITE_ROWS
#include "fulgurite/elements.cuh"

// A row of COLUMNS elements is kept by GROUP threads: a part of a warp, a warp, or a block of a multiple of 32 threads.
// A thread has the same columns in every row: STEPS packs of PACK neighbours.
template <int COLUMNS, int PACK, int GROUP> struct KeptRow {
    static constexpr int STEPS = (COLUMNS + PACK * GROUP - 1) / (PACK * GROUP);
    // The thread's s-th pack starts at this column, if it has one there.
    static __device__ __forceinline__ int column(int s) { return (threadIdx.x % GROUP + s * GROUP) * PACK; }
    static __device__ __forceinline__ bool has(int s) {
        return COLUMNS % (PACK * GROUP) == 0 || column(s) < COLUMNS;
    }
};

// N sums at once over the LANES threads of a row, in a fixed order; all of them get the results. All threads of the
// block come here. `partial` holds 32 * N numbers, which no thread may write again before the block's next barrier.
template <int LANES, int N> __device__ __forceinline__ void group_sums(float (&sums)[N], float* partial) {
    constexpr int WIDTH = LANES > 32 ? 32 : LANES;
#pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) sums[n] += __shfl_xor_sync(0xffffffffu, sums[n], offset);
    }
    if constexpr (LANES > 32) {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (lane == 0) {
#pragma unroll
            for (int n = 0; n < N; ++n) partial[32 * n + warp] = sums[n];
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; ++n) sums[n] = lane < LANES / 32 ? partial[32 * n + lane] : 0.0f;
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
#pragma unroll
            for (int n = 0; n < N; ++n) sums[n] += __shfl_xor_sync(0xffffffffu, sums[n], offset);
        }
    }
}

#endif
