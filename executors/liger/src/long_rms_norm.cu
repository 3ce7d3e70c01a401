// Root-mean-square normalization of rows of COLUMNS elements that do not fit registers: a block of THREADS threads goes
// along each row twice.
constexpr int PACKS = COLUMNS / PACK;

extern "C" __global__ void __launch_bounds__(THREADS) long_rms_norm(
    const T* in, RESIDUAL_AND_SUM const WEIGHT* weight, T* out, float* rstd, u64 rows, float eps, float offset) {
    __shared__ float scratch[32];
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
#if RESIDUAL
        const T* x = sum + row * COLUMNS;
#else
        const T* x = in + row * COLUMNS;
#endif
        float squares = 0;
#pragma unroll 4
        for (int pack = threadIdx.x; pack < PACKS; pack += THREADS) {
            float held[PACK];
            read<PACK, ALIGNED>(in + row * COLUMNS + pack * PACK, held);
#if RESIDUAL
            float added[PACK];
            read<PACK, ALIGNED>(residual + row * COLUMNS + pack * PACK, added);
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[i] = rounded(held[i] + added[i]);
            write<PACK, ALIGNED>(sum + row * COLUMNS + pack * PACK, held);
#endif
#pragma unroll
            for (int i = 0; i < PACK; ++i) squares = __fmaf_rn(held[i], held[i], squares);
        }
        const float scale = scale_of(block_reduce<Sum>(squares, scratch, 0.0f), eps);
        for (int pack = threadIdx.x; pack < PACKS; pack += THREADS) {
            float held[PACK], gain[PACK];
            read<PACK, ALIGNED>(x + pack * PACK, held);
            gains(weight, offset, pack * PACK, gain);
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[i] = cast_normal(held[i] * scale) * gain[i];
            write<PACK, ALIGNED>(out + row * COLUMNS + pack * PACK, held);
        }
        if (threadIdx.x == 0) rstd[row] = scale;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) long_rms_norm_backward(
    const T* d_out, D_SUM const T* in, const WEIGHT* weight, const float* rstd, T* d_in, u64 rows, float offset) {
    __shared__ float scratch[32];
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const float scale = rstd[row];
        // The scaled cotangent and the normalized row, in a pack.
        auto both = [&](int pack, float (&m)[PACK], float (&normal)[PACK]) {
            float d[PACK];
            read<PACK, ALIGNED>(in + row * COLUMNS + pack * PACK, normal);
            read<PACK, ALIGNED>(d_out + row * COLUMNS + pack * PACK, d);
            gains(weight, offset, pack * PACK, m);
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                normal[i] *= scale;
                m[i] = d_normal(d[i], m[i]);
            }
        };
        float sum = 0;
#pragma unroll 4
        for (int pack = threadIdx.x; pack < PACKS; pack += THREADS) {
            float m[PACK], normal[PACK];
            both(pack, m, normal);
#pragma unroll
            for (int i = 0; i < PACK; ++i) sum = __fmaf_rn(m[i], normal[i], sum);
        }
        const float along = block_reduce<Sum>(sum, scratch, 0.0f) * PER_COLUMN;
        for (int pack = threadIdx.x; pack < PACKS; pack += THREADS) {
            float m[PACK], normal[PACK];
            both(pack, m, normal);
#pragma unroll
            for (int i = 0; i < PACK; ++i) m[i] = __fmaf_rn(-along, normal[i], m[i]) * scale;
#if RESIDUAL
            float straight[PACK];
            read<PACK, ALIGNED>(d_sum + row * COLUMNS + pack * PACK, straight);
#pragma unroll
            for (int i = 0; i < PACK; ++i) m[i] += straight[i];
#endif
            write<PACK, ALIGNED>(d_in + row * COLUMNS + pack * PACK, m);
        }
    }
}

// The weight's gradient of the rows from piece blockIdx.y on, for the THREADS packs from blockIdx.x on: piece p leaves
// its sums in d_weights[p].
extern "C" __global__ void __launch_bounds__(THREADS) long_rms_norm_weight(
    const T* d_out, const T* in, const float* rstd, float* d_weights, u64 rows) {
    const int pack = blockIdx.x * THREADS + threadIdx.x;
    if (pack >= PACKS) return;
    float sums[PACK];
#pragma unroll
    for (int i = 0; i < PACK; ++i) sums[i] = 0;
#pragma unroll 4
    for (u64 row = blockIdx.y; row < rows; row += gridDim.y) {
        const float scale = rstd[row];
        float x[PACK], d[PACK];
        read<PACK, ALIGNED>(in + row * COLUMNS + pack * PACK, x);
        read<PACK, ALIGNED>(d_out + row * COLUMNS + pack * PACK, d);
#pragma unroll
        for (int i = 0; i < PACK; ++i) sums[i] = __fmaf_rn(d[i], cast_normal(x[i] * scale), sums[i]);
    }
#pragma unroll
    for (int i = 0; i < PACK; ++i) d_weights[(u64)blockIdx.y * COLUMNS + pack * PACK + i] = sums[i];
}
