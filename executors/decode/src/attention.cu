#include "fulgurite/arithmetic.cuh"
#include "fulgurite/clusters.cuh"
#include "fulgurite/vectors.cuh"

// Attention of the new tokens of a sequence to the filled part of its cache. A block has ROWS of the rows (heads that
// share keys, and tokens) of one head of keys: keys and values are read once for all of them. The positions are shared
// by the SPLITS blocks of a cluster, their warps, and within a warp by groups of LANES lanes, each of which has 8
// elements of the width. Every group carries the largest score, the sum of weights, and the weighted sum of values
// along; they are joined in a fixed order at the end.
typedef ELEMENT T;

struct Strides {
    i64 batch, head, row;
};

constexpr int LANES = WIDTH / 8;
constexpr int GROUPS = 32 / LANES;
// Positions that the groups of a block have at a time.
constexpr int AT_A_TIME = WARPS * GROUPS;
constexpr int CHUNKS = (ALL_ROWS + ROWS - 1) / ROWS;

// As long as a row has no key, nothing is subtracted from its scores, which are all -infinity.
__device__ __forceinline__ float shift(float top) { return top == -INFINITY_F32 ? 0.0f : top; }

struct State {
    float top[ROWS], total[ROWS], sums[ROWS][8];

    // With what another thread has of the same elements. Both get the same result.
    __device__ __forceinline__ void join_lanes(int apart) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const float other_top = __shfl_xor_sync(0xffffffffu, top[r], apart);
            const float other_total = __shfl_xor_sync(0xffffffffu, total[r], apart);
            const float next = fmaxf(top[r], other_top), from = shift(next);
            const float own = power_of_two(top[r] - from), other = power_of_two(other_top - from);
            total[r] = total[r] * own + other_total * other;
            top[r] = next;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float sum = __shfl_xor_sync(0xffffffffu, sums[r][i], apart);
                sums[r][i] = sums[r][i] * own + sum * other;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) attend(
    const T* query, const T* key, const T* value, const STARTS* starts, T* out, Strides of_query, int groups,
    int positions, float scale, float cap) {
    // Of each warp, then of each block of the cluster: largest score, sum of weights, sums of values.
    __shared__ float of_warp[WARPS][ROWS][WIDTH + 2];
    __shared__ float of_block[SPLITS][ROWS][WIDTH + 2];
#if SPLITS > 1
    cluster_arrive();
#endif
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int split = blockIdx.x % SPLITS, chunk = blockIdx.x / SPLITS % CHUNKS;
    const int group = blockIdx.x / SPLITS / CHUNKS % groups;
    const i64 batch = blockIdx.x / SPLITS / CHUNKS / groups;
    const int column = lane % LANES * 8;
    const i64 start = widen(starts[batch]);
    constexpr int SHARED = ALL_ROWS / LENGTH;

    float q[ROWS][8];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = min(chunk * ROWS + r, ALL_ROWS - 1), token = row % LENGTH;
        const T* from = query + batch * of_query.batch + (i64)(group * SHARED + row / LENGTH) * of_query.head
                      + token * of_query.row;
        read<8, true>(from + column, q[r]);
    }

    // What some row attends to, and this block's share of it.
    const i64 last = min(start + LENGTH, (i64)positions);
    const i64 first = WINDOW ? max(start - (WINDOW - 1), (i64)0) : 0;
    const i64 steps = last > first ? (last - first + AT_A_TIME - 1) / AT_A_TIME : 0;
    const i64 each = (steps + SPLITS - 1) / SPLITS;
    const i64 begin = first + split * each * AT_A_TIME, end = min(last, begin + each * AT_A_TIME);
    const T* keys = key + (batch * groups + group) * (i64)positions * WIDTH + column;
    const T* values = value + (batch * groups + group) * (i64)positions * WIDTH + column;

    State state;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        state.top[r] = -INFINITY_F32;
        state.total[r] = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) state.sums[r][i] = 0;
    }
    // All lanes go the same number of steps: they exchange parts of scores.
    for (i64 from = begin; from < end; from += AT_A_TIME) {
        const i64 at = from + warp * GROUPS + lane / LANES;
        const bool real = at < end;
        float k[8] = {}, v[8] = {};
        if (real) {
            read<8, true>(keys + at * WIDTH, k);
            read<8, true>(values + at * WIDTH, v);
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float score = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) score += q[r][i] * k[i];
            score = lanes_reduce<Sum, LANES>(score) * scale;
#if CAPPED
            score = cap * tanhf(score / cap);
#endif
            const i64 own = start + min(chunk * ROWS + r, ALL_ROWS - 1) % LENGTH;
            const bool visible = real && at <= own && (WINDOW == 0 || at > own - WINDOW);
            // Weights are powers of two.
            score = visible ? score * LOG2_E : -INFINITY_F32;
            const float next = fmaxf(state.top[r], score), shifted = shift(next);
            const float shrink = power_of_two(state.top[r] - shifted), weight = power_of_two(score - shifted);
            state.top[r] = next;
            state.total[r] = state.total[r] * shrink + weight;
#pragma unroll
            for (int i = 0; i < 8; ++i) state.sums[r][i] = state.sums[r][i] * shrink + weight * v[i];
        }
    }
#pragma unroll
    for (int apart = LANES; apart < 32; apart *= 2) state.join_lanes(apart);
    if (lane < LANES) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            if (lane == 0) {
                of_warp[warp][r][WIDTH] = state.top[r];
                of_warp[warp][r][WIDTH + 1] = state.total[r];
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) of_warp[warp][r][column + i] = state.sums[r][i];
        }
    }
    __syncthreads();
#if SPLITS > 1
    // The first block's memory is there once all blocks have begun.
    cluster_wait();
#endif
    for (int place = threadIdx.x; place < ROWS * (WIDTH + 2); place += 32 * WARPS) {
        const int r = place / (WIDTH + 2), e = place % (WIDTH + 2);
        float top = -INFINITY_F32, sum = 0;
        for (int w = 0; w < WARPS; ++w) top = fmaxf(top, of_warp[w][r][WIDTH]);
        const float from = shift(top);
        for (int w = 0; w < WARPS; ++w) {
            sum += of_warp[w][r][e == WIDTH ? WIDTH + 1 : e] * power_of_two(of_warp[w][r][WIDTH] - from);
        }
        const float result = e == WIDTH ? top : sum;
#if SPLITS > 1
        store_in_block(&of_block[split][r][e], 0u, result);
#else
        of_block[0][r][e] = result;
#endif
    }
#if SPLITS > 1
    cluster_arrive();
    cluster_wait();
    if (split != 0) return;
#else
    __syncthreads();
#endif
    for (int place = threadIdx.x; place < ROWS * WIDTH; place += 32 * WARPS) {
        const int r = place / WIDTH, e = place % WIDTH, row = chunk * ROWS + r;
        if (row >= ALL_ROWS) continue;
        float top = -INFINITY_F32, total = 0, sum = 0;
        for (int b = 0; b < SPLITS; ++b) top = fmaxf(top, of_block[b][r][WIDTH]);
        const float from = shift(top);
        for (int b = 0; b < SPLITS; ++b) {
            const float share = power_of_two(of_block[b][r][WIDTH] - from);
            total += of_block[b][r][WIDTH + 1] * share;
            sum += of_block[b][r][e] * share;
        }
        // Who attends to nothing gets zeros.
        const i64 head = group * SHARED + row / LENGTH, heads = groups * SHARED;
        out[((batch * heads + head) * LENGTH + row % LENGTH) * WIDTH + e] = narrow<T>(total > 0 ? sum / total : 0.0f);
    }
}
