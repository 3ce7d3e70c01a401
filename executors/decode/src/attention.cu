#include "fulgurite/arithmetic.cuh"
#include "fulgurite/clusters.cuh"
#include "fulgurite/faults.cuh"
#include "fulgurite/reductions.cuh"
#include "fulgurite/tensor_cores.cuh"
#include "fulgurite/vectors.cuh"

// Attention of one new token of each sequence to the filled part of its cache. A block has ROWS of the heads that share
// keys: keys and values are read once for all of them. The positions are shared by the SPLITS blocks of a cluster and
// their warps, 16 of them at a time, which the tensor cores multiply. Each warp carries the largest score, the sum of
// weights, and the weighted sum of values of each row along; they are joined in a fixed order at the end.
//
// With EXTENDS the new position of a sequence comes from `new_key` and `new_value`, is written to the cache, and is not
// read from there; with ROTATED queries and new keys are rotated before.
//
// As in the products, a thread with g = lane / 4 and t = lane % 4 has 8 neighbours of 32 elements of a row: of row g
// and, where there are more than 8, g + 8 of the queries, and of positions g and g + 8 of keys and values.
typedef ELEMENT T;

struct Strides {
    i64 batch, head;
};

constexpr int STEPS = WIDTH / 32;
constexpr int CHUNKS = (SHARED + ROWS - 1) / ROWS;
// Rows that a thread has.
constexpr int OWN = ROWS > 8 ? 2 : 1;
constexpr int TILE = 16;
constexpr int WARPS_OF_ALL = WARPS * SPLITS;

// As long as a row has no key, nothing is subtracted from its scores, which are all -infinity.
__device__ __forceinline__ float shift(float top) { return top == -INFINITY_F32 ? 0.0f : top; }

// Of a matrix of 8 x 8 elements, of which a thread has elements 2 t and 2 t + 1 of row g: those of column g.
__device__ __forceinline__ u32 transposed(u32 pair) {
    u32 other;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
    return other;
}

__device__ __forceinline__ u32 word_of(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

__device__ __forceinline__ uint4 words_at(const T* from) { return *reinterpret_cast<const uint4*>(from); }

// 8 elements of a row from `column` on; with ROTATED turned by the angles of the sequence.
__device__ __forceinline__ uint4
turned(const T* row, int column, const float* cosines, const float* sines) {
#if ROTATED
    constexpr int HALF = WIDTH / 2;
    float x[8], partner[8], c[8], s[8];
    read<8, true>(row + column, x);
    read<8, true>(row + (column + HALF) % WIDTH, partner);
    read<8, true>(cosines + column, c);
    read<8, true>(sines + column, s);
    // The halves [a, b] turn to [a cos - b sin, b cos + a sin].
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = x[i] * c[i] + (column < HALF ? -partner[i] : partner[i]) * s[i];
    return make_uint4(
        Halves<T>::of(x[0], x[1]), Halves<T>::of(x[2], x[3]), Halves<T>::of(x[4], x[5]), Halves<T>::of(x[6], x[7]));
#else
    return words_at(row + column);
#endif
}

// The positions that a sequence attends to when its new token is at `start`, by tiles of which a warp has every
// WARPS_OF_ALL-th from `tile` on.
struct Share {
    i64 first, last, tile;

    __device__ Share(i64 start, i64 positions, int of_all) {
        first = WINDOW ? max(start - (WINDOW - 1), (i64)0) : 0;
        last = min(start, positions - 1);
        tile = first / TILE + of_all;
    }
    __device__ bool has(i64 at) const { return at >= first && at <= last; }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) attend(
    const T* query,
#if ROTATED
    const float* cosines, const float* sines,
#endif
#if EXTENDS
    const T* new_key, const T* new_value, T* key, T* value,
#else
    const T* key, const T* value,
#endif
    const STARTS* starts, T* out, Strides of_query,
#if EXTENDS
    Strides of_key, Strides of_value, Fault* fault, unsigned code,
#endif
    int groups, int positions, float scale, float cap) {
    // Of each warp, then of each block of the cluster: sums of values, largest score, sum of weights.
    extern __shared__ float shared[];
    typedef float Rows[ROWS][WIDTH + 2];
    Rows* of_warp = reinterpret_cast<Rows*>(shared);
    Rows* of_block = of_warp + WARPS;
#if SPLITS > 1
    cluster_arrive();
#endif
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int split = blockIdx.x % SPLITS, chunk = blockIdx.x / SPLITS % CHUNKS;
    const int group = blockIdx.x / SPLITS / CHUNKS % groups;
    const i64 batch = blockIdx.x / SPLITS / CHUNKS / groups;
    const i64 of_head = (batch * groups + group) * (i64)positions * WIDTH;
    // Neighbouring tiles are of different blocks: a short sequence is spread over all of them.
    const int of_all = warp * SPLITS + split;
#if OVERLAPS
    {
        // The kernel before may still write `starts`: what it holds now decides only what is fetched.
        const Share now(min(max(widen(load_now(starts + batch)), (i64)0), (i64)positions - 1), positions, of_all);
        for (i64 tile = now.tile; lane == 0 && tile * TILE <= now.last; tile += WARPS_OF_ALL) {
            const u32 bytes = (u32)min((i64)TILE, positions - tile * TILE) * WIDTH * sizeof(T);
            fetch(key + of_head + tile * TILE * WIDTH, bytes);
            fetch(value + of_head + tile * TILE * WIDTH, bytes);
        }
    }
#endif
    let_next_begin();
    wait_for_previous();
    const i64 start = widen(load_now(starts + batch));
#if ROTATED
    cosines += batch * WIDTH;
    sines += batch * WIDTH;
#else
    const float *cosines = nullptr, *sines = nullptr;
#endif

    uint4 q[2][STEPS] = {};
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        const int row = min(chunk * ROWS + g + 8 * own, SHARED - 1);
        const T* from = query + batch * of_query.batch + (i64)(group * SHARED + row) * of_query.head;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) q[own][step] = turned(from, 32 * step + 8 * t, cosines, sines);
    }
#if EXTENDS
    if (threadIdx.x == 0 && split == 0 && chunk == 0 && (start < 0 || start >= positions)) {
        report_fault(fault, code, start, positions);
    }
#endif

    float top[OWN], total[OWN] = {}, sums[STEPS][4][4] = {};
#pragma unroll
    for (int own = 0; own < OWN; ++own) top[own] = -INFINITY_F32;
    const Share share(start, positions, of_all);
    for (i64 tile = share.tile; tile * TILE <= share.last; tile += WARPS_OF_ALL) {
        uint4 k[2][STEPS] = {}, v[2][STEPS] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 at = tile * TILE + 8 * half + g;
            // What the sequence does not attend to may be anything, also NaN.
            if (!share.has(at)) continue;
            const T* keys = key + of_head + at * WIDTH + 8 * t;
            const T* values = value + of_head + at * WIDTH + 8 * t;
#if EXTENDS
            if (at == start) {
                const T* from_key = new_key + batch * of_key.batch + group * of_key.head;
                const T* from_value = new_value + batch * of_value.batch + group * of_value.head + 8 * t;
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    k[half][step] = turned(from_key, 32 * step + 8 * t, cosines, sines);
                    v[half][step] = words_at(from_value + 32 * step);
                    if (chunk == 0) {
                        *reinterpret_cast<uint4*>(key + of_head + at * WIDTH + 8 * t + 32 * step) = k[half][step];
                        *reinterpret_cast<uint4*>(value + of_head + at * WIDTH + 8 * t + 32 * step) = v[half][step];
                    }
                }
                continue;
            }
#endif
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                k[half][step] = words_at(keys + 32 * step);
                v[half][step] = words_at(values + 32 * step);
            }
        }
        // Of the tile: rows g and g + 8, positions 2 t and 2 t + 1 of each half.
        float scores[2][4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                const uint4 a = q[0][step], b = q[1][step], x = k[half][step];
                multiply_add(T(), scores[half], a.x, b.x, a.y, b.y, x.x, x.y);
                multiply_add(T(), scores[half], a.z, b.z, a.w, b.w, x.z, x.w);
            }
        u32 weights[2][2] = {};
        float shrink[2] = {};
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            float of_row[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float score = scores[i / 2][2 * own + i % 2] * scale;
#if CAPPED
                score = cap * tanhf(score / cap);
#endif
                // Weights are powers of two.
                of_row[i] = share.has(tile * TILE + i / 2 * 8 + 2 * t + i % 2) ? score * LOG2_E : -INFINITY_F32;
            }
            const float own_top = fmaxf(fmaxf(of_row[0], of_row[1]), fmaxf(of_row[2], of_row[3]));
            const float next = fmaxf(top[own], lanes_reduce<Max, 4>(own_top)), from = shift(next);
            shrink[own] = power_of_two(top[own] - from);
            top[own] = next;
            total[own] *= shrink[own];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // The sum of weights is that of the rounded ones, which values are multiplied by.
                const T low = narrow<T>(power_of_two(of_row[2 * half] - from));
                const T high = narrow<T>(power_of_two(of_row[2 * half + 1] - from));
                weights[half][own] = (u32)low.bits | (u32)high.bits << 16;
                total[own] += widen(low) + widen(high);
            }
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float(&sum)[4] = sums[step][i];
#pragma unroll
                for (int place = 0; place < 4; ++place) sum[place] *= shrink[place / 2];
                const u32 b0 = transposed(word_of(v[0][step], i)), b1 = transposed(word_of(v[1][step], i));
                multiply_add(T(), sum, weights[0][0], weights[0][1], weights[1][0], weights[1][1], b0, b1);
            }
    }
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        total[own] = lanes_reduce<Sum, 4>(total[own]);
        const int row = g + 8 * own;
        if (row >= ROWS) continue;
        float* to = of_warp[warp][row];
        if (t == 0) {
            to[WIDTH] = top[own];
            to[WIDTH + 1] = total[own];
        }
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int i = 0; i < 8; ++i) to[32 * step + 8 * t + i] = sums[step][i / 2][2 * own + i % 2];
    }
    __syncthreads();
#if SPLITS > 1
    // The first block's memory is there once all blocks have begun.
    cluster_wait();
#endif
    for (int place = threadIdx.x; place < ROWS * (WIDTH + 2); place += 32 * WARPS) {
        const int r = place / (WIDTH + 2), e = place % (WIDTH + 2);
        float most = -INFINITY_F32, sum = 0;
        for (int w = 0; w < WARPS; ++w) most = fmaxf(most, of_warp[w][r][WIDTH]);
        const float from = shift(most);
        for (int w = 0; w < WARPS; ++w) {
            sum += of_warp[w][r][e == WIDTH ? WIDTH + 1 : e] * power_of_two(of_warp[w][r][WIDTH] - from);
        }
        const float result = e == WIDTH ? most : sum;
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
        if (row >= SHARED) continue;
        float most = -INFINITY_F32, all = 0, sum = 0;
        for (int b = 0; b < SPLITS; ++b) most = fmaxf(most, of_block[b][r][WIDTH]);
        const float from = shift(most);
        for (int b = 0; b < SPLITS; ++b) {
            const float part = power_of_two(of_block[b][r][WIDTH] - from);
            all += of_block[b][r][WIDTH + 1] * part;
            sum += of_block[b][r][e] * part;
        }
        // A query that attends to nothing gets zeros.
        const i64 head = (batch * groups + group) * SHARED + row;
        out[head * WIDTH + e] = narrow<T>(all == 0 ? 0.0f : sum / all);
    }
}
