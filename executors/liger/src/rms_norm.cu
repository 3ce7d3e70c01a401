// Root-mean-square normalization of rows that are kept in registers: each element is read once.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rms_norm(
    const T* in, RESIDUAL_AND_SUM const WEIGHT* weight, T* out, float* rstd, u64 count, float eps, float offset) {
    const INDEX rows = (INDEX)count;
    // Two turns' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float partial[2][32 * BATCH];
    extern __shared__ __align__(16) unsigned char bytes[];
#if RESIDUAL
    const T* const operands[2] = {in, residual};
#else
    const T* const operands[1] = {in};
#endif
    Ahead<1 + RESIDUAL> ahead(bytes, rows);
    ahead.begin(operands);
    int turn = 0;
    // All threads of a block go round equally often, since they sum together.
    for (INDEX first = first_row(); first < rows; first += rows_of_a_turn(), turn ^= 1) {
        Held held[1 + RESIDUAL][BATCH];
        ahead.take(first, operands, held);
        Held(&x)[BATCH] = held[0];
        float sums[BATCH];
#if RESIDUAL
#pragma unroll
        for (int n = 0; n < BATCH; ++n) x[n].add(held[1][n]);
#endif
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
            sums[n] = 0;
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (Row::has(s)) {
#pragma unroll
                    for (int i = 0; i < PACK; ++i) sums[n] = __fmaf_rn(x[n].at(s, i), x[n].at(s, i), sums[n]);
                }
        }
        group_sums<GROUP>(sums, partial[turn]);
#pragma unroll
        for (int n = 0; n < BATCH; ++n) {
            if (!is_row(first, n, rows)) continue;
            const u64 row = row_of(first, n, rows);
            const float scale = scale_of(sums[n], eps);
            x[n].forget();
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (Row::has(s)) {
                    float y[PACK], gain[PACK];
#if RESIDUAL
#pragma unroll
                    for (int i = 0; i < PACK; ++i) y[i] = x[n].at(s, i);
                    write<PACK, ALIGNED>(sum + row * COLUMNS + Row::column(s), y);
#endif
                    gains(weight, offset, Row::column(s), gain);
#pragma unroll
                    for (int i = 0; i < PACK; ++i) y[i] = cast_normal(x[n].at(s, i) * scale) * gain[i];
                    write<PACK, ALIGNED>(out + row * COLUMNS + Row::column(s), y);
                }
            if (threadIdx.x % GROUP == 0) rstd[row] = scale;
        }
    }
}
