// The gradients of the rows that the block comes to, and, with WEIGHT_GRADIENT, the sum over them of the weight's
// gradient, which block b leaves in d_weights[b].
#if WEIGHT_GRADIENT
#define D_WEIGHTS float *d_weights,
#else
#define D_WEIGHTS
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rms_norm_backward(
    const T* d_out, D_SUM const T* in, const WEIGHT* weight, const float* rstd, T* d_in, D_WEIGHTS u64 count,
    float offset) {
    const INDEX rows = (INDEX)count;
    __shared__ float partial[2][32];
#if WEIGHT_GRADIENT
    float d_weight[STEPS][PACK];
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) d_weight[s][i] = 0;
#endif
    extern __shared__ __align__(16) unsigned char bytes[];
    const T* const operands[2] = {in, d_out};
    Ahead<2> ahead(bytes, rows);
    ahead.begin(operands);
    // The next row's scale is on its way as well.
    float next_scale = rstd[row_of(first_row(), rows)];
    int turn = 0;
    for (INDEX first = first_row(); first < rows; first += rows_of_a_turn(), turn ^= 1) {
        const float scale = next_scale;
        next_scale = rstd[row_of(first + rows_of_a_turn(), rows)];
        Held held[2];
        ahead.take(first, operands, held);
        Held &x = held[0], &d = held[1];
        float sums[1] = {0};
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                float gain[PACK];
                gains(weight, offset, Row::column(s), gain);
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    const float normal = x.at(s, i) * scale, m = d_normal(d.at(s, i), gain[i]);
                    sums[0] = __fmaf_rn(m, normal, sums[0]);
#if WEIGHT_GRADIENT
                    if (has_row(first, rows))
                        d_weight[s][i] = __fmaf_rn(d.at(s, i), cast_normal(normal), d_weight[s][i]);
#endif
                }
            }
        group_sums<GROUP>(sums, partial[turn]);
        if (!has_row(first, rows)) continue;
        const u64 start = (u64)row_of(first, rows) * COLUMNS;
        const float along = sums[0] * PER_COLUMN;
        x.forget();
        d.forget();
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                float y[PACK];
#if RESIDUAL
                float straight[PACK];
                read<PACK, ALIGNED>(d_sum + start + Row::column(s), straight);
#endif
                gains(weight, offset, Row::column(s), y);
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    const float normal = x.at(s, i) * scale, m = d_normal(d.at(s, i), y[i]);
                    y[i] = __fmaf_rn(-along, normal, m) * scale;
#if RESIDUAL
                    y[i] += straight[i];
#endif
                }
                write<PACK, ALIGNED>(d_in + start + Row::column(s), y);
            }
    }
#if WEIGHT_GRADIENT
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
#endif
}
