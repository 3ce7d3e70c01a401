// Reductions: IN elements are combined by KIND (Sum, Product, Max, Min) in the type WIDE and stored as OUT. KEPT(i)
// is the offset of output i's first element, REDUCED(j) that of its j-th. blockIdx.y is a piece of `piece` elements
// of the range; with several pieces the results of piece p start at out[p * outputs].
#include "fulgurite/reductions.cuh"
#include "fulgurite/vectors.cuh"

struct Neutral {
    template <typename R> static __device__ WIDE of();
};
template <typename W> __device__ W lowest();
template <> __device__ float lowest<float>() { return -INFINITY_F32; }
template <> __device__ double lowest<double>() { return -INFINITY_F64; }
template <> __device__ i64 lowest<i64>() { return (i64)0x8000000000000000ULL; }
template <typename W> __device__ W highest();
template <> __device__ float highest<float>() { return INFINITY_F32; }
template <> __device__ double highest<double>() { return INFINITY_F64; }
template <> __device__ i64 highest<i64>() { return 0x7fffffffffffffffLL; }
template <> __device__ WIDE Neutral::of<Sum>() { return 0; }
template <> __device__ WIDE Neutral::of<Product>() { return 1; }
template <> __device__ WIDE Neutral::of<Max>() { return lowest<WIDE>(); }
template <> __device__ WIDE Neutral::of<Min>() { return highest<WIDE>(); }

// One block an output and piece.
extern "C" __global__ void reduce_rows(const IN* in, OUT* out, u64 outputs, u64 length, u64 piece) {
    __shared__ WIDE scratch[32];
    const u64 i = blockIdx.x, begin = blockIdx.y * piece, stop = begin + piece;
    const u64 end = stop < length ? stop : length;
    const IN* first = in + KEPT(i);
    WIDE total = Neutral::of<KIND>();
    u64 j = begin + threadIdx.x;
    // Several elements are on their way at a time.
    for (; j + (AHEAD - 1) * blockDim.x < end; j += AHEAD * blockDim.x) {
        IN held[AHEAD];
#pragma unroll
        for (u32 u = 0; u < AHEAD; ++u) held[u] = first[REDUCED(j + u * blockDim.x)];
#pragma unroll
        for (u32 u = 0; u < AHEAD; ++u) total = KIND::combine(total, (WIDE)widen(held[u]));
    }
    for (; j < end; j += blockDim.x) total = KIND::combine(total, (WIDE)widen(first[REDUCED(j)]));
    total = block_reduce<KIND, WIDE>(total, scratch, Neutral::of<KIND>());
    if (threadIdx.x == 0) out[blockIdx.y * outputs + i] = narrow<OUT>((Wide<OUT>::type)total);
}

// One thread an output and piece: neighbouring threads read neighbouring elements where outputs are adjacent.
extern "C" __global__ void reduce_columns(const IN* in, OUT* out, u64 outputs, u64 length, u64 piece) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outputs) return;
    const u64 begin = blockIdx.y * piece, stop = begin + piece;
    const u64 end = stop < length ? stop : length;
    const IN* first = in + KEPT(i);
    WIDE total = Neutral::of<KIND>();
    for (u64 j = begin; j < end; ++j) total = KIND::combine(total, (WIDE)widen(first[REDUCED(j)]));
    out[blockIdx.y * outputs + i] = narrow<OUT>((Wide<OUT>::type)total);
}

// A block has 32 packs of PACK neighbouring outputs, and OF_A_COLUMN threads for each, which combine every
// OF_A_COLUMN-th element; their results are combined in order.
extern "C" __global__ void __launch_bounds__(32 * OF_A_COLUMN, RESIDENT)
    reduce_side_by_side(
    const IN* in, OUT* out, u64 outputs, u64 length, u64 piece) {
    __shared__ WIDE parts[OF_A_COLUMN][PACK][33];
    const u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * PACK;
    const u64 begin = blockIdx.y * piece, stop = begin + piece;
    const u64 end = stop < length ? stop : length;
    WIDE total[PACK];
#pragma unroll
    for (int k = 0; k < PACK; ++k) total[k] = Neutral::of<KIND>();
    const auto add = [&](const Pack<IN, PACK>& pack) {
#pragma unroll
        for (int k = 0; k < PACK; ++k) total[k] = KIND::combine(total[k], (WIDE)widen(pack.at[k]));
    };
    if (i < outputs) {
        const IN* first = in + KEPT(i);
        u64 j = begin + threadIdx.y;
        // Several packs are on their way at a time.
        for (; j + (AHEAD - 1) * OF_A_COLUMN < end; j += AHEAD * OF_A_COLUMN) {
            Pack<IN, PACK> held[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                held[u] = load_anywhere<PACK, ALIGNED>(first + REDUCED(j + u * OF_A_COLUMN));
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) add(held[u]);
        }
        for (; j < end; j += OF_A_COLUMN) add(load_anywhere<PACK, ALIGNED>(first + REDUCED(j)));
    }
#pragma unroll
    for (int k = 0; k < PACK; ++k) parts[threadIdx.y][k][threadIdx.x] = total[k];
    __syncthreads();
    if (threadIdx.y != 0 || i >= outputs) return;
#pragma unroll
    for (int k = 0; k < PACK; ++k) {
#pragma unroll
        for (int part = 1; part < OF_A_COLUMN; ++part) total[k] = KIND::combine(total[k], parts[part][k][threadIdx.x]);
        out[blockIdx.y * outputs + i + k] = narrow<OUT>((Wide<OUT>::type)total[k]);
    }
}
