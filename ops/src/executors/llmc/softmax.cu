// Softmax of rows of COLUMNS elements.

typedef ELEMENT T;

#ifdef GROUP
// GROUP threads a row, which they keep in registers: it is read once.
extern "C" __global__ void __launch_bounds__(THREADS) softmax_kept(const T* in, T* out, u64 rows) {
    constexpr int STEPS = (COLUMNS + PACK * GROUP - 1) / (PACK * GROUP);
    __shared__ float scratch[32];
    const int lane = threadIdx.x % GROUP;
    const u64 own = (u64)blockIdx.x * (THREADS / GROUP) + threadIdx.x / GROUP;
    // Threads without a row stay to take part in the reductions.
    const u64 row = own < rows ? own : rows - 1;
    const T* x = in + row * COLUMNS;
    float held[STEPS][PACK];
    float top = -INFINITY_F32;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const int at = (lane + s * GROUP) * PACK;
        if (at < COLUMNS) {
            read<PACK>(x + at, held[s]);
        } else {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[s][i] = -INFINITY_F32;
        }
    }
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) top = fmaxf(top, held[s][i]);
    top = group_reduce<GROUP, Top>(top, scratch, -INFINITY_F32);
    float total = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
            held[s][i] = exponential<T>(held[s][i] - top);
            total += held[s][i];
        }
    total = group_reduce<GROUP, Sum>(total, scratch, 0.0f);
    const float share = 1.0f / total;
    if (own >= rows) return;
    T* y = out + row * COLUMNS;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const int at = (lane + s * GROUP) * PACK;
        if (at < COLUMNS) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[s][i] *= share;
            write<PACK>(y + at, held[s]);
        }
    }
}
#else
// A block a row that is too long for registers: read twice, the second time from the cache.
extern "C" __global__ void __launch_bounds__(THREADS, 2) softmax_streamed(const T* in, T* out, u64 rows) {
    __shared__ float scratch[64];
    const u64 row = blockIdx.x;
    const Stream<T> x(in, row);
    Exponentials<T> seen = x.exponentials();
    seen.over_block(scratch);
    const float share = 1.0f / seen.total;
    x.each([&](float value, int) { return exponential<T>(value - seen.top) * share; }, out);
}
#endif
