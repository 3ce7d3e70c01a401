// Layer normalization of rows of COLUMNS elements, which the GROUP threads of a row keep in registers: it is read once,
// and the variance is that of the centred row. Statistics are f32. A thread has the same columns in every row it comes
// to.
#include "fulgurite/copies.cuh"
#include "fulgurite/reductions.cuh"
#include "fulgurite/rows.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

typedef KeptRow<COLUMNS, PACK, GROUP> Row;
constexpr int STEPS = Row::STEPS;
constexpr int ROWS = THREADS / GROUP;
constexpr float PER_COLUMN = 1.0f / COLUMNS;

extern "C" __global__ void __launch_bounds__(THREADS) layernorm(
    const T* in, const WEIGHT* weight, const WEIGHT* bias, T* out, float* mean, float* rstd, u64 rows, float eps) {
    __shared__ float scratch[32];
    const u64 own = (u64)blockIdx.x * ROWS + threadIdx.x / GROUP;
    // Threads without a row stay to take part in the reductions.
    const u64 row = own < rows ? own : rows - 1;
    const T* x = in + row * COLUMNS;
    float held[STEPS][PACK];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        if (Row::has(s)) {
            read<PACK, ALIGNED>(x + Row::column(s), held[s]);
        } else {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[s][i] = 0;
        }
    }
    float sum = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) sum += held[s][i];
    const float centre = group_reduce<GROUP, Sum>(sum, scratch, 0.0f) * PER_COLUMN;
    float squares = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (Row::has(s)) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                held[s][i] -= centre;
                squares += held[s][i] * held[s][i];
            }
        }
    const float variance = group_reduce<GROUP, Sum>(squares, scratch, 0.0f) * PER_COLUMN;
    const float scale = rsqrtf(variance + eps);
    if (own >= rows) return;
    // All parameters are read before anything is written: the compiler must take it that they could be the same memory.
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (Row::has(s)) {
            float w[PACK], b[PACK];
            read<PACK, ALIGNED>(weight + Row::column(s), w);
            read<PACK, ALIGNED>(bias + Row::column(s), b);
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[s][i] = held[s][i] * scale * w[i] + b[i];
        }
    T* y = out + row * COLUMNS;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        if (Row::has(s)) write<PACK, ALIGNED>(y + Row::column(s), held[s]);
    if (threadIdx.x % GROUP == 0) {
        mean[row] = centre;
        rstd[row] = scale;
    }
}

// Gradients of the rows that the block comes to, and the sums over them of the weight's and the bias's gradients: block
// b leaves them in partial[b][0] and partial[b][1]. A multiprocessor has BLOCKS blocks at a time at least.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) layernorm_backward(
    const T* d_out, const T* in, const WEIGHT* weight, const float* mean, const float* rstd, T* d_in, float* partial,
    u64 rows) {
    // Two rows' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float scratch[2][64];
    float d_weight[STEPS][PACK], d_bias[STEPS][PACK];
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) d_weight[s][i] = d_bias[s][i] = 0;
    // Threads without a row take part in the reductions with the last one.
    auto row_of = [&](u64 first) {
        const u64 own = first + threadIdx.x / GROUP;
        return own < rows ? own : rows - 1;
    };
    // The next DEPTH rows are on their way while one is worked on: each thread fetches the packs that it reads itself.
    extern __shared__ __align__(16) unsigned char bytes[];
    constexpr int PLACES = STEPS * THREADS * PACK;
    T* const fetched = reinterpret_cast<T*>(bytes);
    auto place = [&](int stage, int s) {
        return fetched + 2 * stage * PLACES + (s * THREADS + (int)threadIdx.x) * PACK;
    };
    auto ask = [&](u64 first, int stage) {
        const u64 row = row_of(first);
        if (DEPTH > 0) {
            if (first < rows) {
#pragma unroll
                for (int s = 0; s < STEPS; ++s)
                    if (Row::has(s)) {
                        fetch<ALIGNED>(place(stage, s), in + row * COLUMNS + Row::column(s));
                        fetch<ALIGNED>(place(stage, s) + PLACES, d_out + row * COLUMNS + Row::column(s));
                    }
            }
            end_batch();
        }
    };
#pragma unroll
    for (int stage = 0; stage < DEPTH; ++stage) ask(((u64)blockIdx.x + (u64)stage * gridDim.x) * ROWS, stage);
    int stage = 0, turn = 0;
    // So are the next row's statistics.
    float next_centre = mean[row_of((u64)blockIdx.x * ROWS)], next_scale = rstd[row_of((u64)blockIdx.x * ROWS)];
    // All threads of a block go round equally often, since they reduce together.
    for (u64 first = (u64)blockIdx.x * ROWS; first < rows; first += (u64)gridDim.x * ROWS, turn ^= 1) {
        const u64 own = first + threadIdx.x / GROUP;
        const bool real = own < rows;
        const u64 row = real ? own : rows - 1;
        const float centre = next_centre, scale = next_scale;
        const u64 following = row_of(first + (u64)gridDim.x * ROWS);
        next_centre = mean[following];
        next_scale = rstd[following];
        float normal[STEPS][PACK], d[STEPS][PACK];
        if constexpr (DEPTH > 0) await_all_but<DEPTH - 1>();
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                const u64 at = row * COLUMNS + Row::column(s);
                read<PACK, ALIGNED>(DEPTH > 0 ? place(stage, s) : in + at, normal[s]);
                read<PACK, ALIGNED>(DEPTH > 0 ? place(stage, s) + PLACES : d_out + at, d[s]);
            }
        ask(first + (u64)DEPTH * gridDim.x * ROWS, stage);
        stage = stage + 1 < DEPTH ? stage + 1 : 0;
        float sums[2] = {0, 0};
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                float w[PACK];
                read<PACK, ALIGNED>(weight + Row::column(s), w);
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    // The difference first: nothing is lost to the size of the mean.
                    normal[s][i] = (normal[s][i] - centre) * scale;
                    if (real) {
                        d_weight[s][i] = __fmaf_rn(d[s][i], normal[s][i], d_weight[s][i]);
                        d_bias[s][i] += d[s][i];
                    }
                    d[s][i] *= w[i];
                    sums[0] += d[s][i];
                    sums[1] = __fmaf_rn(d[s][i], normal[s][i], sums[1]);
                }
            }
        group_sums<GROUP>(sums, scratch[turn]);
        const float sum = sums[0] * PER_COLUMN, along = sums[1] * PER_COLUMN;
        if (real) {
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (Row::has(s)) {
#pragma unroll
                    for (int i = 0; i < PACK; ++i)
                        // The difference first: of rows of one element nothing is left, whatever the scale.
                        d[s][i] = __fmaf_rn(-normal[s][i], along, d[s][i] - sum) * scale;
                    write<PACK, ALIGNED>(d_in + row * COLUMNS + Row::column(s), d[s]);
                }
        }
    }
    float* own = partial + (u64)blockIdx.x * (2 * COLUMNS);
    if constexpr (ROWS == 1) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    own[Row::column(s) + i] = d_weight[s][i];
                    own[COLUMNS + Row::column(s) + i] = d_bias[s][i];
                }
            }
    } else {
        // The groups add theirs one after another: the order is fixed.
        __shared__ float sums[2][COLUMNS];
        for (int group = 0; group < ROWS; ++group) {
            if (threadIdx.x / GROUP == group) {
#pragma unroll
                for (int s = 0; s < STEPS; ++s)
                    if (Row::has(s)) {
#pragma unroll
                        for (int i = 0; i < PACK; ++i) {
                            const int at = Row::column(s) + i;
                            sums[0][at] = group == 0 ? d_weight[s][i] : sums[0][at] + d_weight[s][i];
                            sums[1][at] = group == 0 ? d_bias[s][i] : sums[1][at] + d_bias[s][i];
                        }
                    }
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < 2 * COLUMNS; i += THREADS) own[i] = (&sums[0][0])[i];
    }
}

// The blocks' sums in all, in a fixed order: 32 columns a block, each by 16 threads, with several sums on their way.
extern "C" __global__ void __launch_bounds__(512)
    layernorm_parameters(
    const float* partial, WEIGHT* d_weight, WEIGHT* d_bias, int blocks) {
    constexpr int AHEAD = 8;
    __shared__ float sums[16][32];
    const int at = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (at < 2 * COLUMNS) {
        int block = threadIdx.y;
        for (; block + 16 * (AHEAD - 1) < blocks; block += 16 * AHEAD) {
            float next[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) next[i] = partial[(u64)(block + 16 * i) * (2 * COLUMNS) + at];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) sum += next[i];
        }
        for (; block < blocks; block += 16) sum += partial[(u64)block * (2 * COLUMNS) + at];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || at >= 2 * COLUMNS) return;
#pragma unroll
    for (int i = 1; i < 16; ++i) sum += sums[i][threadIdx.x];
    if (at < COLUMNS) {
        d_weight[at] = narrow<WEIGHT>(sum);
    } else {
        d_bias[at - COLUMNS] = narrow<WEIGHT>(sum);
    }
}
