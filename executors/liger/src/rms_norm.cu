// Root-mean-square normalization of rows that are kept in registers: each element is read once.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rms_norm(
    const T* in, RESIDUAL_AND_SUM const WEIGHT* weight, T* out, float* rstd, u64 count, float eps, float offset) {
    const INDEX rows = (INDEX)count;
    // Two turns' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float partial[2][32];
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
        Held held[1 + RESIDUAL];
        ahead.take(first, operands, held);
        Held& x = held[0];
#if RESIDUAL
        x.add(held[1]);
#endif
        float sums[1] = {0};
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) sums[0] = __fmaf_rn(x.at(s, i), x.at(s, i), sums[0]);
            }
        group_sums<GROUP>(sums, partial[turn]);
        if (!has_row(first, rows)) continue;
        const u64 row = row_of(first, rows);
        const float scale = scale_of(sums[0], eps);
        x.forget();
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                float y[PACK], gain[PACK];
#if RESIDUAL
#pragma unroll
                for (int i = 0; i < PACK; ++i) y[i] = x.at(s, i);
                write<PACK, ALIGNED>(sum + row * COLUMNS + Row::column(s), y);
#endif
                gains(weight, offset, Row::column(s), gain);
#pragma unroll
                for (int i = 0; i < PACK; ++i) y[i] = cast_normal(x.at(s, i) * scale) * gain[i];
                write<PACK, ALIGNED>(out + row * COLUMNS + Row::column(s), y);
            }
        if (threadIdx.x % GROUP == 0) rstd[row] = scale;
    }
}
