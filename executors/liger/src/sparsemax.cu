// Sparsemax of rows of COLUMNS elements: max(x - tau, 0), with the tau for which a row sums to one. Of differences to
// the largest element, tau is between -1 and 0. From -1 on, the mean of the elements above the last tau, less their
// share of one, comes nearer to it from below, until no element more falls out: Newton's method for a convex function,
// which ends.
#include "fulgurite/reductions.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

// The next tau, if fewer elements are above the last one than before: `sum` and `count` are those of the row's.
struct Threshold {
    float tau, left;
    __device__ __forceinline__ Threshold() : tau(-1.0f), left(INFINITY_F32) {}
    // Whether that changed anything. Of NaN nothing is above a threshold, and nothing changes.
    __device__ __forceinline__ bool next(float sum, float count) {
        if (!(count < left) || count == 0.0f) return false;
        left = count;
        tau = (sum - 1.0f) / count;
        return true;
    }
};

#ifdef GROUP
// GROUP threads a row, which they keep in registers: it is read once.
extern "C" __global__ void __launch_bounds__(THREADS) sparsemax_kept(const T* in, T* out, u64 rows) {
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
        for (int i = 0; i < PACK; ++i) top = Max::combine(top, held[s][i]);
    top = group_reduce<GROUP, Max>(top, scratch, -INFINITY_F32);
    Threshold threshold;
    // Rows of one warp go round together.
    for (bool again = true; __any_sync(0xffffffffu, again);) {
        float sum = 0, count = 0;
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                const float centred = held[s][i] - top;
                if (centred > threshold.tau) {
                    sum += centred;
                    count += 1.0f;
                }
            }
        sum = group_reduce<GROUP, Sum>(sum, scratch, 0.0f);
        count = group_reduce<GROUP, Sum>(count, scratch, 0.0f);
        again = threshold.next(sum, count);
    }
    if (own >= rows) return;
    T* y = out + row * COLUMNS;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const int at = (lane + s * GROUP) * PACK;
        if (at < COLUMNS) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[s][i] = Max::combine(held[s][i] - top - threshold.tau, 0.0f);
            write<PACK, ALIGNED>(y + at, held[s]);
        }
    }
}
#else
// A block a row that is too long for registers, which goes along it again for each threshold, mostly in the cache.
struct Largest {
    float top = -INFINITY_F32;
    template <int N, typename At> __device__ __forceinline__ void add(const float (&x)[N], At) {
#pragma unroll
        for (int i = 0; i < N; ++i) top = Max::combine(top, x[i]);
    }
};
struct Above {
    float top, tau, sum = 0, count = 0;
    __device__ __forceinline__ Above(float top, float tau) : top(top), tau(tau) {}
    template <int N, typename At> __device__ __forceinline__ void add(const float (&x)[N], At) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float centred = x[i] - top;
            if (centred > tau) {
                sum += centred;
                count += 1.0f;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) sparsemax_streamed(const T* in, T* out, u64 rows) {
    __shared__ float scratch[32];
    const Stream<T> x(in, blockIdx.x);
    Largest largest;
    x.visit(largest);
    const float top = block_reduce<Max, float>(largest.top, scratch, -INFINITY_F32);
    Threshold threshold;
    bool again = true;
    while (again) {
        Above above(top, threshold.tau);
        x.visit(above);
        const float sum = block_reduce<Sum, float>(above.sum, scratch, 0.0f);
        const float count = block_reduce<Sum, float>(above.count, scratch, 0.0f);
        again = threshold.next(sum, count);
    }
    x.each([&](float value, int) { return Max::combine(value - top - threshold.tau, 0.0f); }, out);
}
#endif
