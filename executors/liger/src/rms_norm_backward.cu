// The gradients of the rows that the block comes to, and the sum over them of the weight's gradient, which block b
// leaves in partial[b].
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rms_norm_backward(
    const T* d_out, const T* in, const WEIGHT* weight, const float* rstd, T* d_in, float* d_weights, u64 rows,
    float offset) {
    __shared__ float partial[2][32];
    const u64 stride = (u64)gridDim.x * ROWS;
    float d_weight[STEPS][PACK];
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) d_weight[s][i] = 0;
    Held next_x, next_d;
    float next_scale;
    auto take = [&](u64 first) {
        const u64 row = row_of(first, rows);
        next_x.take(in + row * COLUMNS);
        next_d.take(d_out + row * COLUMNS);
        next_scale = rstd[row];
    };
    take((u64)blockIdx.x * ROWS);
    int turn = 0;
    for (u64 first = (u64)blockIdx.x * ROWS; first < rows; first += stride, turn ^= 1) {
        const bool real = first + threadIdx.x / GROUP < rows;
        const u64 row = row_of(first, rows);
        const Held x = next_x, d = next_d;
        const float scale = next_scale;
        if (first + stride < rows) take(first + stride);
        float sums[1] = {0};
        float m[STEPS][PACK];
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                gains(weight, offset, Row::column(s), m[s]);
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    const float normal = x.at(s, i) * scale;
                    if (real) d_weight[s][i] = __fmaf_rn(d.at(s, i), cast_normal(normal), d_weight[s][i]);
                    m[s][i] = d_normal(d.at(s, i), m[s][i]);
                    sums[0] = __fmaf_rn(m[s][i], normal, sums[0]);
                }
            }
        group_sums<GROUP>(sums, partial[turn]);
        const float along = sums[0] * PER_COLUMN;
        if (!real) continue;
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) m[s][i] = __fmaf_rn(-along, x.at(s, i) * scale, m[s][i]) * scale;
                write<PACK, ALIGNED>(d_in + row * COLUMNS + Row::column(s), m[s]);
            }
    }
    float* own = d_weights + (u64)blockIdx.x * COLUMNS;
    if constexpr (ROWS == 1) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) own[Row::column(s) + i] = d_weight[s][i];
            }
    } else {
        // The groups add theirs one after another: the order is fixed.
        __shared__ float sums[COLUMNS];
        for (int group = 0; group < ROWS; ++group) {
            if (threadIdx.x / GROUP == group) {
#pragma unroll
                for (int s = 0; s < STEPS; ++s)
                    if (Row::has(s)) {
#pragma unroll
                        for (int i = 0; i < PACK; ++i) {
                            const int at = Row::column(s) + i;
                            sums[at] = group == 0 ? d_weight[s][i] : sums[at] + d_weight[s][i];
                        }
                    }
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < COLUMNS; i += THREADS) own[i] = sums[i];
    }
}
