// The k best elements of each line, best first, and their positions; of equal elements the earlier one is first. Line i starts at
// FROM(i), its results at TO(i); elements are `from_along` and `to_along` apart.
//
// A block a line. The key of the k-th best element is found digit by digit, from the highest down (radix select): of the keys that
// agree with what is known of it, each digit's are counted. Then all better elements, and as many equal ones as are missing,
// are collected in the order of their positions, and each is put where the number of those before it says. KEY is u32 or u64. Lines
// have fewer than 2^32 elements.

const u32 DIGITS = 256, HELD = 512;

// An unsigned number that is larger for better elements.
__device__ __forceinline__ KEY rank_key(IN x) {
    const KEY highest = (KEY)1 << (8 * sizeof(KEY) - 1);
    const KEY key = (KEY)order_key(widen(x)) ^ highest;
    return LARGEST ? key : ~key;
}

// The sum of the values of the threads before this one, and of all. `scratch` holds 32 numbers. All threads come here.
__device__ __forceinline__ u32 sum_before(u32 value, u32* scratch, u32& all) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u32 through = value;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const u32 lower = __shfl_up_sync(0xffffffffu, through, distance);
        if (lane >= distance) through += lower;
    }
    __syncthreads();
    if (lane == 31) scratch[warp] = through;
    __syncthreads();
    u32 before = through - value;
    all = 0;
    for (u32 w = 0; w < warps; ++w) {
        if (w < warp) before += scratch[w];
        all += scratch[w];
    }
    return before;
}

// `held_keys` and `held_places` hold k of each line, if k is above HELD; otherwise they are null.
extern "C" __global__ void __launch_bounds__(1024, 1) topk(const IN* in, IN* values, i64* indices, KEY* held_keys, i64* held_places, u64 length, u64 k,
                                i64 from_along, i64 to_along) {
    __shared__ u32 counts[DIGITS];
    __shared__ u32 scratch[32];
    __shared__ KEY few_keys[HELD];
    __shared__ i64 few_places[HELD];
    __shared__ KEY chosen_digit;
    __shared__ u32 still_missing;
    const u64 i = blockIdx.x;
    const IN* from = in + FROM(i);
    KEY* keys = held_keys ? held_keys + i * k : few_keys;
    i64* places = held_keys ? held_places + i * k : few_places;

    // `known` is what is known of the k-th best key, in the digits of `mask`; `missing` is its rank among those that agree.
    KEY known = 0, mask = 0;
    u32 missing = (u32)k;
    for (int shift = 8 * (int)sizeof(KEY) - 8; shift >= 0; shift -= 8) {
        for (u32 d = threadIdx.x; d < DIGITS; d += blockDim.x) counts[d] = 0;
        __syncthreads();
        for (u64 j = threadIdx.x; j < length; j += blockDim.x) {
            const KEY key = rank_key(from[(i64)j * from_along]);
            if ((key & mask) == known) atomicAdd(&counts[(u32)(key >> shift) & (DIGITS - 1)], 1u);
        }
        __syncthreads();
        // The first warp finds the digit: its lanes have eight digits each, the best ones first.
        if (threadIdx.x < 32) {
            const u32 highest = DIGITS - 1 - threadIdx.x * 8;
            u32 own = 0;
            for (u32 d = 0; d < 8; ++d) own += counts[highest - d];
            u32 through = own;
            for (u32 distance = 1; distance < 32; distance *= 2) {
                const u32 lower = __shfl_up_sync(0xffffffffu, through, distance);
                if (threadIdx.x >= distance) through += lower;
            }
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
        const KEY key = j < length ? rank_key(from[(i64)j * from_along]) : 0;
        const bool is_equal = j < length && key == known;
        u32 equal_here, taken_here;
        const u32 equal_before = equal + sum_before(is_equal, scratch, equal_here);
        const bool is_taken = j < length && (key > known || (is_equal && equal_before < missing));
        const u32 place = collected + sum_before(is_taken, scratch, taken_here);
        if (is_taken) {
            keys[place] = key;
            places[place] = (i64)j;
        }
        equal += equal_here;
        collected += taken_here;
    }
    __syncthreads();

    // Equal keys are collected in the order of their positions.
    for (u64 own = threadIdx.x; own < k; own += blockDim.x) {
        const KEY key = keys[own];
        u32 rank = 0;
        for (u64 other = 0; other < k; ++other) rank += keys[other] > key || (keys[other] == key && other < own);
        const i64 to = TO(i) + (i64)rank * to_along;
        values[to] = from[places[own] * from_along];
        indices[to] = places[own];
    }
}
