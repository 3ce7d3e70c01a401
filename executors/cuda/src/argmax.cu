// Positions of largest elements: the first of equal ones, NaN above all. KEPT(i) is the offset of output i's first
// element; the others follow `along` apart. blockIdx.y is a piece of `piece` elements; with several pieces the result
// of piece p for output i goes to keys[p * outputs + i] and places[p * outputs + i], which are null otherwise.
#include "fulgurite/arithmetic.cuh"

struct Found {
    i64 key;
    i64 at;
};
// Less than any element at any position.
__device__ __forceinline__ Found nothing() {
    Found found = {(i64)0x8000000000000000ULL, 0x7fffffffffffffffLL};
    return found;
}
__device__ __forceinline__ Found better(Found a, Found b) {
    return a.key > b.key || (a.key == b.key && a.at < b.at) ? a : b;
}
__device__ __forceinline__ Found best_of_warp(Found found) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        Found other;
        other.key = __shfl_xor_sync(0xffffffffu, found.key, offset);
        other.at = __shfl_xor_sync(0xffffffffu, found.at, offset);
        found = better(found, other);
    }
    return found;
}
__device__ __forceinline__ void write(Found found, i64* out, i64* keys, i64* places, u64 i, u64 outputs) {
    if (keys) {
        keys[blockIdx.y * outputs + i] = found.key;
        places[blockIdx.y * outputs + i] = found.at;
    } else {
        out[i] = found.at;
    }
}

// A block an output and piece.
extern "C" __global__ void __launch_bounds__(512) argmax_rows(
    const IN* in, i64* out, i64* keys, i64* places, u64 outputs, u64 length, u64 piece, i64 along) {
    __shared__ Found found[32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const u64 i = blockIdx.x, begin = blockIdx.y * piece, end = begin + piece < length ? begin + piece : length;
    const IN* first = in + KEPT(i);
    Found best = nothing();
    for (u64 j = begin + threadIdx.x; j < end; j += blockDim.x) {
        const Found next = {order_key(widen(first[(i64)j * along])), (i64)j};
        best = better(best, next);
    }
    best = best_of_warp(best);
    if (lane == 0) found[warp] = best;
    __syncthreads();
    if (warp == 0) {
        best = best_of_warp(lane < warps ? found[lane] : nothing());
        if (lane == 0) write(best, out, keys, places, i, outputs);
    }
}

// A thread an output and piece: neighbouring threads read neighbouring elements where outputs are adjacent.
extern "C" __global__ void argmax_columns(
    const IN* in, i64* out, i64* keys, i64* places, u64 outputs, u64 length, u64 piece, i64 along) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outputs) return;
    const u64 begin = blockIdx.y * piece, end = begin + piece < length ? begin + piece : length;
    const IN* first = in + KEPT(i);
    Found best = nothing();
    for (u64 j = begin; j < end; ++j) {
        const Found next = {order_key(widen(first[(i64)j * along])), (i64)j};
        best = better(best, next);
    }
    write(best, out, keys, places, i, outputs);
}

// The best of the pieces.
extern "C" __global__ void argmax_pieces(const i64* keys, const i64* places, i64* out, u64 outputs, u64 pieces) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= outputs) return;
    Found best = nothing();
    for (u64 p = 0; p < pieces; ++p) {
        const Found next = {keys[p * outputs + i], places[p * outputs + i]};
        best = better(best, next);
    }
    out[i] = best.at;
}
