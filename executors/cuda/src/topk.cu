// The k best elements of each line, best first, and their positions; of equal elements the earlier one is first. Line i
// starts at FROM(i), its results at TO(i); elements are `from_along` and `to_along` apart. Lines have fewer than 2^32
// elements.
//
// A block finds the key of the k-th best element digit by digit, from the highest down (radix select): of the keys that
// agree with what is known of it, each digit's are counted. Then all better elements, and as many equal ones as are
// missing, are collected in the order of their positions. Up to HELD are put in order by counting those before each;
// more are sorted by other kernels. KEY is u32 or u64.
#include "fulgurite/reductions.cuh"

const u32 DIGITS = 256, HELD = 512;

// An unsigned number that is larger for better elements.
__device__ __forceinline__ KEY rank_key(IN x) {
    const KEY highest = (KEY)1 << (8 * sizeof(KEY) - 1);
    const KEY key = (KEY)order_key(widen(x)) ^ highest;
    return LARGEST ? key : ~key;
}

// The keys of elements of the input.
struct Elements {
    const IN* from;
    i64 along;
    __device__ __forceinline__ KEY operator()(u64 j) const { return rank_key(from[(i64)j * along]); }
};

// Keys as they are.
struct Candidates {
    const KEY* keys;
    __device__ __forceinline__ KEY operator()(u64 j) const { return keys[j]; }
};

// Collects the k best of `length` keys, in the order of their positions: `take(place, key, position)` for each. All
// threads come here, and what is taken is there for all of them afterwards.
template <typename Keys, typename Take>
__device__ __forceinline__ void select(const Keys& key_of, u64 length, u64 k, const Take& take) {
    __shared__ u32 counts[DIGITS];
    __shared__ u32 scratch[32];
    __shared__ KEY chosen_digit;
    __shared__ u32 still_missing;
    // `known` is what is known of the k-th best key, in the digits of `mask`; `missing` is its rank among those that
    // agree.
    KEY known = 0, mask = 0;
    u32 missing = (u32)k;
    for (int shift = 8 * (int)sizeof(KEY) - 8; shift >= 0; shift -= 8) {
        for (u32 d = threadIdx.x; d < DIGITS; d += blockDim.x) counts[d] = 0;
        __syncthreads();
        for (u64 j = threadIdx.x; j < length; j += blockDim.x) {
            const KEY key = key_of(j);
            if ((key & mask) == known) atomicAdd(&counts[(u32)(key >> shift) & (DIGITS - 1)], 1u);
        }
        __syncthreads();
        // The first warp finds the digit: its lanes have eight digits each, the best ones first.
        if (threadIdx.x < 32) {
            const u32 highest = DIGITS - 1 - threadIdx.x * 8;
            u32 own = 0;
            for (u32 d = 0; d < 8; ++d) own += counts[highest - d];
            const u32 through = sum_up_to(own);
            u32 before = through - own;
            if (before < missing && missing <= through) {
                u32 digit = highest;
                while (before + counts[digit] < missing) before += counts[digit--];
                chosen_digit = digit;
                still_missing = missing - before;
            }
        }
        __syncthreads();
        known |= chosen_digit << shift;
        mask |= (KEY)(DIGITS - 1) << shift;
        missing = still_missing;
        __syncthreads();
    }

    // Now `known` is the key, and `missing` of those equal to it are among the best.
    u32 collected = 0, equal = 0;
    for (u64 begin = 0; begin < length && collected < k; begin += blockDim.x) {
        const u64 j = begin + threadIdx.x;
        const KEY key = j < length ? key_of(j) : 0;
        const bool is_equal = j < length && key == known;
        u32 equal_here, taken_here;
        const u32 equal_before = equal + block_sum_before((u32)is_equal, scratch, equal_here);
        const bool is_taken = j < length && (key > known || (is_equal && equal_before < missing));
        const u32 place = collected + block_sum_before((u32)is_taken, scratch, taken_here);
        if (is_taken) take(place, key, j);
        equal += equal_here;
        collected += taken_here;
    }
    __syncthreads();
}

// What a block holds of the best: up to HELD.
struct Held {
    KEY* keys;
    u32* places;
    __device__ __forceinline__ void operator()(u32 place, KEY key, u64 j) const {
        keys[place] = key;
        places[place] = (u32)j;
    }
    // How many are before one of them; equal ones are held in the order of their positions.
    __device__ __forceinline__ u32 rank(u64 own, u64 k) const {
        const KEY key = keys[own];
        u32 rank = 0;
        for (u64 other = 0; other < k; ++other) rank += keys[other] > key || (keys[other] == key && other < own);
        return rank;
    }
};

// A block a line; k is at most HELD.
extern "C" __global__ void __launch_bounds__(1024, 1) topk(
    const IN* in, IN* values, i64* indices, u64 length, u64 k, i64 from_along, i64 to_along) {
    __shared__ KEY keys[HELD];
    __shared__ u32 places[HELD];
    const u64 i = blockIdx.x;
    const IN* from = in + FROM(i);
    const Held held = {keys, places};
    const Elements elements = {from, from_along};
    select(elements, length, k, held);
    for (u64 own = threadIdx.x; own < k; own += blockDim.x) {
        const i64 to = TO(i) + (i64)held.rank(own, k) * to_along;
        values[to] = from[(i64)places[own] * from_along];
        indices[to] = places[own];
    }
}

// A block a part of a line, all as long but the last, which has the rest; each has k elements at least, and k is at
// most HELD. The best of a part are stored best first, behind those of the parts before it.
extern "C" __global__ void __launch_bounds__(1024, 1) topk_of_parts(
    const IN* in, KEY* part_keys, i64* part_places, u64 length, u64 parts, u64 k, i64 from_along) {
    __shared__ KEY keys[HELD];
    __shared__ u32 places[HELD];
    const u64 i = blockIdx.x / parts, part = blockIdx.x % parts, each = length / parts, begin = part * each;
    const Held held = {keys, places};
    const Elements elements = {in + FROM(i) + (i64)begin * from_along, from_along};
    select(elements, part + 1 == parts ? length - begin : each, k, held);
    for (u64 own = threadIdx.x; own < k; own += blockDim.x) {
        const u64 to = (u64)blockIdx.x * k + held.rank(own, k);
        part_keys[to] = keys[own];
        part_places[to] = (i64)(begin + places[own]);
    }
}

// A block a line: the best of its parts' best. Of equal ones the earlier is also earlier among these.
extern "C" __global__ void __launch_bounds__(1024, 1) topk_of_candidates(
    const IN* in, const KEY* part_keys, const i64* part_places, IN* values, i64* indices, u64 candidates, u64 k,
    i64 from_along, i64 to_along) {
    __shared__ KEY keys[HELD];
    __shared__ u32 places[HELD];
    const u64 i = blockIdx.x;
    const IN* from = in + FROM(i);
    const Held held = {keys, places};
    const Candidates of_line = {part_keys + i * candidates};
    select(of_line, candidates, k, held);
    for (u64 own = threadIdx.x; own < k; own += blockDim.x) {
        const i64 place = part_places[i * candidates + places[own]], to = TO(i) + (i64)held.rank(own, k) * to_along;
        values[to] = from[place * from_along];
        indices[to] = place;
    }
}

// Keys that are sorted are smaller for better elements.
struct Collected {
    KEY* keys;
    i64* places;
    u64 begin;
    __device__ __forceinline__ void operator()(u32 place, KEY key, u64 j) const {
        keys[place] = ~key;
        places[place] = (i64)(begin + j);
    }
};

// A block a part of a line, as for `topk_of_parts`: its best, in the order of their positions, to be sorted.
extern "C" __global__ void __launch_bounds__(1024, 1) topk_collect(
    const IN* in, KEY* keys, i64* places, u64 length, u64 parts, u64 k, i64 from_along) {
    const u64 i = blockIdx.x / parts, part = blockIdx.x % parts, each = length / parts, begin = part * each;
    const Collected collected = {keys + (u64)blockIdx.x * k, places + (u64)blockIdx.x * k, begin};
    const Elements elements = {in + FROM(i) + (i64)begin * from_along, from_along};
    select(elements, part + 1 == parts ? length - begin : each, k, collected);
}

// All elements of all lines, to be sorted.
extern "C" __global__ void topk_keys(const IN* in, KEY* keys, u64 count, u64 length, i64 from_along) {
    const u32 step = gridDim.x * blockDim.x;
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < (u32)(count * length); n += step) {
        const u32 i = n / (u32)length, j = n % (u32)length;
        keys[n] = ~rank_key((in + FROM(i))[(i64)j * from_along]);
    }
}

// The line of each of what was sorted: number n is of line n / taken.
extern "C" __global__ void topk_lines(const u32* numbers, u32* lines, u64 count, u64 taken) {
    const u32 step = gridDim.x * blockDim.x;
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < (u32)count; n += step) lines[n] = numbers[n] / (u32)taken;
}

// The first k of each line of what was sorted. `places` has the position of each number, or is null, and the number
// says it.
extern "C" __global__ void topk_write(
    const IN* in, const u32* numbers, const i64* places, IN* values, i64* indices, u64 count, u64 taken, u64 k,
    i64 from_along, i64 to_along) {
    const u32 step = gridDim.x * blockDim.x;
    for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < (u32)(count * k); n += step) {
        const u32 i = n / (u32)k, rank = n % (u32)k;
        const u32 number = numbers[(u64)i * taken + rank];
        const i64 place = places ? places[number] : (i64)(number - i * (u32)taken);
        const i64 to = TO(i) + (i64)rank * to_along;
        values[to] = (in + FROM(i))[place * from_along];
        indices[to] = place;
    }
}
