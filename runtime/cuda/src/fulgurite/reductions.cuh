// Reductions over lanes, warps and blocks, in a fixed order: the same numbers give the same bits.
#ifndef FULGURITE_REDUCTIONS
#define FULGURITE_REDUCTIONS
#include "fulgurite/arithmetic.cuh"

// What a reduction does with two parts, the earlier one first.
struct Sum {
    template <typename W> static __device__ __forceinline__ W combine(W x, W y) { return x + y; }
    static __device__ __forceinline__ i64 combine(i64 x, i64 y) { return wrapping_add(x, y); }
};
struct Product {
    template <typename W> static __device__ __forceinline__ W combine(W x, W y) { return x * y; }
    static __device__ __forceinline__ i64 combine(i64 x, i64 y) { return wrapping_mul(x, y); }
};
// NaN if either is. In f32 by one instruction, for which -0 is less than +0.
struct Max {
    template <typename W> static __device__ __forceinline__ W combine(W x, W y) { return maximum(x, y); }
    static __device__ __forceinline__ float combine(float x, float y) {
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
        return larger;
    }
};
struct Min {
    template <typename W> static __device__ __forceinline__ W combine(W x, W y) { return minimum(x, y); }
    static __device__ __forceinline__ float combine(float x, float y) {
        float smaller;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(x), "f"(y));
        return smaller;
    }
};
// The largest number, whatever NaN there is: what is computed with it brings NaN back.
struct Top {
    static __device__ __forceinline__ float combine(float x, float y) { return fmaxf(x, y); }
};

// Whether the result depends on which of two equal parts is first: an extremum of zeros of both signs.
template <typename R, typename W> struct KeepsOrder { enum { value = 0 }; };
template <> struct KeepsOrder<Max, double> { enum { value = 1 }; };
template <> struct KeepsOrder<Min, double> { enum { value = 1 }; };

// Of LANES neighbouring lanes; all of them get the same result. All lanes of the warp come here.
template <typename R, int LANES = 32, typename W> __device__ __forceinline__ W lanes_reduce(W x) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        const W other = __shfl_xor_sync(0xffffffffu, x, apart);
        x = R::combine(x, other);
    }
    // Lanes see the parts in different orders.
    if constexpr (KeepsOrder<R, W>::value) return __shfl_sync(0xffffffffu, x, 0, LANES);
    return x;
}

// Of a block of a multiple of 32 threads, all of which come here and get the result. `scratch` holds 32 values, and may
// be used again at once.
template <typename R, typename W> __device__ __forceinline__ W block_reduce(W x, W* scratch, W neutral) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = lanes_reduce<R>(x);
    if (warps == 1) return x;
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return lanes_reduce<R>(lane < warps ? scratch[lane] : neutral);
}

// Of a block of WARPS warps, a power of two. `partial` holds WARPS values, and is written by this call alone: that
// saves a barrier.
template <typename R, int WARPS, typename W> __device__ __forceinline__ W block_reduce_once(W x, W* partial) {
    x = lanes_reduce<R>(x);
    if (threadIdx.x % 32u == 0) partial[threadIdx.x / 32u] = x;
    __syncthreads();
    return lanes_reduce<R, WARPS>(partial[threadIdx.x % WARPS]);
}

// The same in two halves with a barrier of the block between them, so that several reductions share it.
template <typename R, typename W> __device__ __forceinline__ void write_warp_part(W x, W* partial) {
    x = lanes_reduce<R>(x);
    if (threadIdx.x % 32u == 0) partial[threadIdx.x / 32u] = x;
}
template <typename R, int WARPS, typename W> __device__ __forceinline__ W reduce_warp_parts(const W* partial) {
    return lanes_reduce<R, WARPS>(partial[threadIdx.x % WARPS]);
}

// Over the LANES threads of a row: a part of a warp, or the whole block. All threads of the block come here.
template <int LANES, typename R> __device__ __forceinline__ float group_reduce(float x, float* scratch, float neutral) {
    if constexpr (LANES > 32) {
        return block_reduce<R>(x, scratch, neutral);
    } else {
        return lanes_reduce<R, LANES>(x);
    }
}

// The sum of the values of the lanes of a warp up to this one.
template <typename W> __device__ __forceinline__ W sum_up_to(W x) {
    const u32 lane = threadIdx.x & 31;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const W lower = __shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x += lower;
    }
    return x;
}

// The sum of the values of the threads of a block before this one, and of all. `scratch` holds 32 numbers. The block is
// a multiple of 32 threads, all of which come here.
template <typename W> __device__ __forceinline__ W block_sum_before(W x, W* scratch, W& all) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const W through = sum_up_to(x);
    __syncthreads();
    if (lane == 31) scratch[warp] = through;
    __syncthreads();
    W before = through - x;
    all = 0;
    for (u32 w = 0; w < warps; ++w) {
        if (w < warp) before += scratch[w];
        all += scratch[w];
    }
    return before;
}

#endif
