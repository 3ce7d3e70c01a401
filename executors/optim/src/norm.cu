// The norm of many tensors together, and their scaling by one number. Nothing is added atomically, so
// that the same bits come again.
#include "fulgurite/reductions.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

struct Sources {
    const T* at[TENSORS];
};
struct Targets {
    T* at[TENSORS];
};
constexpr int EACH = 4;

// The sum of the squares of a thread's elements of a chunk. Elements of S are widened to T.
template <class S> __device__ __forceinline__ float squares(const S* x, const Chunk& chunk) {
    // A sum for each element of a pack: the additions do not wait for each other.
    float sums[PACK];
#pragma unroll
    for (int i = 0; i < PACK; ++i) sums[i] = 0;
    for (u64 first = chunk.begin + threadIdx.x * PACK; first < chunk.whole; first += EACH * THREADS * PACK) {
        float held[EACH][PACK];
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * (THREADS * PACK);
            if (at < chunk.whole) {
                read<PACK, ALIGNED>(x + at, held[u]);
            } else {
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[u][i] = 0;
            }
        }
#pragma unroll
        for (int u = 0; u < EACH; ++u)
#pragma unroll
            for (int i = 0; i < PACK; ++i) sums[i] += held[u][i] * held[u][i];
    }
    float total = 0;
    const u64 last = chunk.whole + threadIdx.x;
    if (last < chunk.end) total = widen(x[last]) * widen(x[last]);
#pragma unroll
    for (int i = 0; i < PACK; ++i) total += sums[i];
    return total;
}

// The sum of the squares of the block's elements.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_of_squares(
    const __grid_constant__ Sources sources, const __grid_constant__ Table table, float* partial) {
    __shared__ float scratch[32];
    const Chunk chunk(table);
    const float total = block_reduce<Sum, float>(squares(sources.at[chunk.tensor], chunk), scratch, 0.0f);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

#ifdef NARROW
// Which tensors are of NARROW elements.
struct AreNarrow {
    bool at[TENSORS];
};

// The same of tensors some of which are not widened yet, with the same bits.
extern "C" __global__ void __launch_bounds__(THREADS)
    sum_of_widened_squares(
    const __grid_constant__ Sources sources, const __grid_constant__ AreNarrow narrow,
    const __grid_constant__ Table table, float* partial) {
    __shared__ float scratch[32];
    const Chunk chunk(table);
    const T* x = sources.at[chunk.tensor];
    const float own = narrow.at[chunk.tensor] ? squares((const NARROW*)x, chunk) : squares(x, chunk);
    const float total = block_reduce<Sum, float>(own, scratch, 0.0f);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}
#endif

// The sum of all blocks' sums, added in f64 by one block; thread 0 has it.
__device__ __forceinline__ double added(const float* partial, u64 count) {
    __shared__ double scratch[32];
    double total = 0;
    for (u64 i = threadIdx.x; i < count; i += 1024) total += partial[i];
    return block_reduce<Sum, double>(total, scratch, 0.0);
}

extern "C" __global__ void __launch_bounds__(1024) sum_of_sums(const float* partial, float* sum, u64 count) {
    const double total = added(partial, count);
    if (threadIdx.x == 0) *sum = (float)total;
}

extern "C" __global__ void __launch_bounds__(1024) norm_of_sums(const float* partial, float* norm, u64 count) {
    const double total = added(partial, count);
    if (threadIdx.x == 0) *norm = (float)sqrt(total);
}

// The block's elements times min(most / (norm + 1e-6), 1).
extern "C" __global__ void __launch_bounds__(THREADS) scale(
    const __grid_constant__ Sources sources, const __grid_constant__ Targets targets,
    const __grid_constant__ Table table, const float* norm, float most) {
    const Chunk chunk(table);
    const T* x = sources.at[chunk.tensor];
    T* y = targets.at[chunk.tensor];
    const float factor = minimum(most / (*norm + 1e-6f), 1.0f);
    for (u64 first = chunk.begin + threadIdx.x * PACK; first < chunk.whole; first += EACH * THREADS * PACK) {
        float held[EACH][PACK];
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * (THREADS * PACK);
            if (at < chunk.whole) read<PACK, ALIGNED>(x + at, held[u]);
        }
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * (THREADS * PACK);
            if (at < chunk.whole) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[u][i] *= factor;
                write<PACK, ALIGNED>(y + at, held[u]);
            }
        }
    }
    const u64 last = chunk.whole + threadIdx.x;
    if (last < chunk.end) y[last] = narrow<T>(widen(x[last]) * factor);
}
