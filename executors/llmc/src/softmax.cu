// Softmax of rows of COLUMNS elements.
#include "fulgurite/clusters.cuh"
#include "fulgurite/copies.cuh"
#include "fulgurite/reductions.cuh"

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
            read<PACK, ALIGNED>(x + at, held[s]);
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
            write<PACK, ALIGNED>(y + at, held[s]);
        }
    }
}
#elif defined(PAIRED)
// The gradient of rows that are too long for registers, p (d - Σ p d). A row belongs to a cluster of two blocks: each
// keeps half of its packs, of p and of d, in shared memory, each pack at a place of the thread that handles it. While a
// row is written, the next one of the pair is on its way to the places that become free. A block's part of a row's
// packs.
struct Half {
    const Stream<T> row;
    int first, count;
    __device__ __forceinline__ Half(const T* in, u64 number, int rank) : row(in, number) {
        const int half = (row.packs + 1) / 2;
        first = rank * half;
        count = rank == 0 ? half : row.packs - half;
    }
    // Where the thread's s-th pack of the row starts in it.
    __device__ __forceinline__ int at(int s) const { return row.head + (first + threadIdx.x + s * THREADS) * PACK; }
    __device__ __forceinline__ bool has(int s) const { return threadIdx.x + s * THREADS < count; }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    softmax_backward_shared(
    const T* p, const T* d_out, T* d_in, u64 rows) {
    extern __shared__ __align__(16) unsigned char bytes[];
    __shared__ float scratch[32];
    // Two rows' worth: while a block reads the sums of one, the other may write those of the next.
    __shared__ float halves[2][2];
    T *ps = reinterpret_cast<T*>(bytes), *ds = ps + STEPS * THREADS * PACK;
    auto place = [](int s) { return (s * THREADS + (int)threadIdx.x) * PACK; };
    const int rank = blockIdx.x & 1;
    auto ask = [&](const Half& half, u64 number, int s) {
        if (number < rows && half.has(s)) {
            fetch<ALIGNED>(ps + place(s), half.row.x + half.at(s));
            fetch<ALIGNED>(ds + place(s), d_out + half.row.start + half.at(s));
        }
    };
    {
        const Half half(p, blockIdx.x / 2, rank);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) ask(half, blockIdx.x / 2, s);
        end_batch();
    }
    // Nobody writes to a block that has not begun.
    cluster_arrive();
    cluster_wait();
    int turn = 0;
    for (u64 number = blockIdx.x / 2; number < rows; number += gridDim.x / 2, turn ^= 1) {
        const Half half(p, number, rank);
        const T* d_row = d_out + half.row.start;
        await_all_but<0>();
        float sum = 0;
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (half.has(s)) {
                float held[PACK], d[PACK];
                read<PACK, ALIGNED>(ps + place(s), held);
                read<PACK, ALIGNED>(ds + place(s), d);
#pragma unroll
                for (int i = 0; i < PACK; ++i) sum = __fmaf_rn(held[i], d[i], sum);
            }
        if (rank == 0) half.row.ends([&](int at) { sum = __fmaf_rn(widen(half.row.x[at]), widen(d_row[at]), sum); });
        sum = block_reduce<Sum, float>(sum, scratch, 0.0f);
        if (threadIdx.x < 2) store_in_block(&halves[turn][rank], threadIdx.x, sum);
        cluster_arrive();
        cluster_wait();
        const float total = halves[turn][0] + halves[turn][1];
        const u64 next = number + gridDim.x / 2;
        const Half following(p, next < rows ? next : number, rank);
        T* y = d_in + half.row.start;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (half.has(s)) {
                float held[PACK], d[PACK];
                read<PACK, ALIGNED>(ps + place(s), held);
                read<PACK, ALIGNED>(ds + place(s), d);
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[i] *= d[i] - total;
                write<PACK, ALIGNED>(y + half.at(s), held);
            }
            ask(following, next, s);
        }
        end_batch();
        if (rank == 0)
            half.row.ends([&](int at) { y[at] = narrow<T>(widen(half.row.x[at]) * (widen(d_row[at]) - total)); });
    }
    // Nor to one that has ended.
    cluster_arrive();
    cluster_wait();
}
#elif defined(STEPS)
// A row that is too long for registers is kept in the shared memory of its block, each pack at a place of the thread
// that handles it: nobody waits for another but in the reduction. While a row is written, the block's next one is on
// its way to the places that become free.
struct Kept {
    T* places;
    __device__ __forceinline__ T* place(int s) const { return places + (s * THREADS + (int)threadIdx.x) * PACK; }
    // Asks for the thread's s-th pack of a row, if it has one there: a batch.
    __device__ __forceinline__ void ask(const Stream<T>& x, int s) const {
        const int pack = threadIdx.x + s * THREADS;
        if (pack < x.packs) fetch<ALIGNED>(place(s), x.x + x.head + pack * PACK);
        end_batch();
    }
};

template <int S> __device__ __forceinline__ void see(const Stream<T>& x, const Kept& kept, Exponentials<T>& seen) {
    if constexpr (S < STEPS) {
        await_all_but<STEPS - 1 - S>();
        if (threadIdx.x + S * THREADS < x.packs) {
            float held[PACK];
            read<PACK, ALIGNED>(kept.place(S), held);
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
    // What is in no pack waits in a register.
    T end;
    auto ask_end = [&](const Stream<T>& x) {
        if (x.end() >= 0) end = x.x[x.end()];
    };
    {
        const Stream<T> x(in, blockIdx.x);
        ask_end(x);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) kept.ask(x, s);
    }
    int turn = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const Stream<T> x(in, row);
        Exponentials<T> seen;
        see<0>(x, kept, seen);
        const float last[1] = {x.end() >= 0 ? widen(end) : -INFINITY_F32};
        seen.add(last);
        seen.over_block(scratch[turn]);
        const Portion<T> portion(seen);
        // Behind the last row nothing is asked for.
        const u64 next = row + gridDim.x;
        Stream<T> following(in, next < rows ? next : row);
        ask_end(following);
        if (next >= rows) following.packs = 0;
        T* y = out + x.start;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int pack = threadIdx.x + s * THREADS;
            if (pack < x.packs) {
                float held[PACK];
                read<PACK, ALIGNED>(kept.place(s), held);
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[i] = portion.of(held[i]);
                write<PACK, ALIGNED>(y + x.head + pack * PACK, held);
            }
            kept.ask(following, s);
        }
        if (x.end() >= 0) y[x.end()] = narrow<T>(portion.of(last[0]));
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

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    softmax_backward_streamed(
    const T* p, const T* d_out, T* d_in, u64 rows) {
    __shared__ float scratch[32];
    const Stream<T> x(p, blockIdx.x);
    const T* d = d_out + x.start;
    float sum = 0;
    for (int at = threadIdx.x; at < COLUMNS; at += THREADS) sum = __fmaf_rn(widen(x.x[at]), widen(d[at]), sum);
    const float total = block_reduce<Sum, float>(sum, scratch, 0.0f);
    x.each([&](float value, int at) { return value * (widen(d[at]) - total); }, d_in);
}
#endif
