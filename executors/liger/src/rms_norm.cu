// Root-mean-square normalization of rows that are kept in registers: each element is read once.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) rms_norm(
    const T* in, const WEIGHT* weight, T* out, float* rstd, u64 rows, float eps, float offset) {
    // Two rows' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float partial[2][32];
    const u64 stride = (u64)gridDim.x * ROWS;
    Held next;
    next.take(in + row_of((u64)blockIdx.x * ROWS, rows) * COLUMNS);
    int turn = 0;
    // All threads of a block go round equally often, since they sum together.
    for (u64 first = (u64)blockIdx.x * ROWS; first < rows; first += stride, turn ^= 1) {
        const bool real = first + threadIdx.x / GROUP < rows;
        const u64 row = row_of(first, rows);
        const Held x = next;
        if (first + stride < rows) next.take(in + row_of(first + stride, rows) * COLUMNS);
        float sums[1] = {0};
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) sums[0] = __fmaf_rn(x.at(s, i), x.at(s, i), sums[0]);
            }
        group_sums<GROUP>(sums, partial[turn]);
        const float scale = scale_of(sums[0], eps);
        if (!real) continue;
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) {
                float y[PACK], gain[PACK];
                gains(weight, offset, Row::column(s), gain);
#pragma unroll
                for (int i = 0; i < PACK; ++i) y[i] = cast_normal(x.at(s, i) * scale) * gain[i];
                write<PACK, ALIGNED>(out + row * COLUMNS + Row::column(s), y);
            }
        if (threadIdx.x % GROUP == 0) rstd[row] = scale;
    }
}
