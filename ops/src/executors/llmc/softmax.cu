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
#elif defined(STEPS)
// A row that is too long for registers is kept in the shared memory of its block, each pack at a place of the thread that
// handles it: nobody waits for another but in the reduction. While a row is written, the block's next one is on its way to the
// places that become free.
struct Kept {
    T* places;
    __device__ __forceinline__ T* place(int s) const { return places + (s * THREADS + (int)threadIdx.x) * PACK; }
    // Asks for the thread's s-th pack of a row, if it has one there: a batch.
    __device__ __forceinline__ void ask(const Stream<T>& x, int s) const {
        const int pack = threadIdx.x + s * THREADS;
        if (pack < x.packs) fetch(place(s), x.x + x.head + pack * PACK);
        end_batch();
    }
};

template <int S> __device__ __forceinline__ void see(const Stream<T>& x, const Kept& kept, Exponentials<T>& seen) {
    if constexpr (S < STEPS) {
        await_all_but<STEPS - 1 - S>();
        if (threadIdx.x + S * THREADS < x.packs) {
            float held[PACK];
            read<PACK>(kept.place(S), held);
            seen.add(held);
        }
        see<S + 1>(x, kept, seen);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) softmax_shared(const T* in, T* out, u64 rows) {
    extern __shared__ __align__(16) unsigned char bytes[];
    // Two rows' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float scratch[2][64];
    const Kept kept = {reinterpret_cast<T*>(bytes)};
    {
        const Stream<T> x(in, blockIdx.x);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) kept.ask(x, s);
    }
    int turn = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const Stream<T> x(in, row);
        Exponentials<T> seen;
        see<0>(x, kept, seen);
        x.ends([&](int at) {
            const float held[1] = {widen(x.x[at])};
            seen.add(held);
        });
        seen.over_block(scratch[turn]);
        const float share = 1.0f / seen.total;
        // Behind the last row nothing is asked for.
        const u64 next = row + gridDim.x;
        Stream<T> following(in, next < rows ? next : row);
        if (next >= rows) following.packs = 0;
        T* y = out + x.start;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int pack = threadIdx.x + s * THREADS;
            if (pack < x.packs) {
                float held[PACK];
                read<PACK>(kept.place(s), held);
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[i] = exponential<T>(held[i] - seen.top) * share;
                write<PACK>(y + x.head + pack * PACK, held);
            }
            kept.ask(following, s);
        }
        x.ends([&](int at) { y[at] = narrow<T>(exponential<T>(widen(x.x[at]) - seen.top) * share); });
    }
}
#else
// A block a row that is too long for shared memory as well: read twice, the second time from the cache.
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
