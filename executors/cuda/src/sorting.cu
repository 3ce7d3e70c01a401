// A radix sort of keys with the numbers of what they belong to, from the lowest digit up; each pass keeps the order of
// equal digits. Atomics only count, so the order of the result is that of (key, number before) whatever the order of
// threads.
#include "fulgurite/reductions.cuh"

const u32 DIGITS = 256, WARPS = 8, THREADS = 32 * WARPS, TILE = 1024;
// Counts that a block sums.
const u32 SUMMED = 4096;

__device__ __forceinline__ u32 digit_of(KEY key, u32 shift) { return (u32)(key >> shift) & (DIGITS - 1); }

// How often each digit occurs in each tile: first all tiles of digit 0, then those of digit 1, ...
extern "C" __global__ void count_digits(const KEY* keys, u32* counts, u32 count, u32 tiles, u32 shift) {
    __shared__ u32 found[DIGITS];
    found[threadIdx.x] = 0;
    __syncthreads();
    const u32 begin = blockIdx.x * TILE, end = begin + TILE < count ? begin + TILE : count;
    for (u32 n = begin + threadIdx.x; n < end; n += THREADS) atomicAdd(&found[digit_of(keys[n], shift)], 1u);
    __syncthreads();
    counts[threadIdx.x * tiles + blockIdx.x] = found[threadIdx.x];
}

// Each count becomes the sum of those before it in its block's part of SUMMED, and each total that of a part. 1024
// threads, four counts each.
extern "C" __global__ void __launch_bounds__(1024) sum_counts(u32* counts, u32* totals, u32 length) {
    __shared__ u32 sums[32];
    const u32 first = blockIdx.x * SUMMED + 4 * threadIdx.x;
    u32 own[4], total = 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        own[i] = first + i < length ? counts[first + i] : 0;
        total += own[i];
    }
    u32 all;
    u32 before = block_sum_before(total, sums, all);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        if (first + i < length) counts[first + i] = before;
        before += own[i];
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = all;
}

// Each total becomes the sum of those before it: one block, as there is one total for 4096 counts.
extern "C" __global__ void __launch_bounds__(1024) sum_totals(u32* totals, u32 length) {
    __shared__ u32 sums[32];
    u32 carry = 0;
    for (u32 begin = 0; begin < length; begin += 1024) {
        const u32 at = begin + threadIdx.x;
        u32 all;
        const u32 before = block_sum_before(at < length ? totals[at] : 0, sums, all);
        if (at < length) totals[at] = carry + before;
        carry += all;
    }
}

// Moves each key and number to its place by this digit. `before` is null where key n has number n. A warp has TILE /
// WARPS neighbouring keys, 32 at a time.
extern "C" __global__ void place_keys(const KEY* keys, const u32* before, KEY* sorted, u32* after, const u32* counts,
                                      const u32* totals, u32 count, u32 tiles, u32 shift) {
    __shared__ u32 next[WARPS][DIGITS];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 i = 0; i < WARPS; ++i) next[i][threadIdx.x] = 0;
    __syncthreads();
    const u32 begin = blockIdx.x * TILE + warp * (TILE / WARPS), end = begin + TILE / WARPS;
    for (u32 n = begin + lane; n < end; n += 32) {
        if (n < count) atomicAdd(&next[warp][digit_of(keys[n], shift)], 1u);
    }
    __syncthreads();
    // Where each warp's first key of a digit goes: thread d sees to digit d.
    const u32 first = threadIdx.x * tiles + blockIdx.x;
    u32 place = totals[first / SUMMED] + counts[first];
    for (u32 i = 0; i < WARPS; ++i) {
        const u32 found = next[i][threadIdx.x];
        next[i][threadIdx.x] = place;
        place += found;
    }
    __syncthreads();
    for (u32 n = begin + lane; n < end; n += 32) {
        const bool valid = n < count;
        const KEY key = valid ? keys[n] : 0;
        const u32 digit = valid ? digit_of(key, shift) : DIGITS;
        const u32 peers = __match_any_sync(0xffffffffu, digit), rank = __popc(peers & ((1u << lane) - 1));
        if (valid) {
            const u32 to = next[warp][digit] + rank;
            sorted[to] = key;
            after[to] = before ? before[n] : n;
        }
        __syncwarp();
        if (valid && rank == 0) next[warp][digit] += __popc(peers);
        __syncwarp();
    }
}
