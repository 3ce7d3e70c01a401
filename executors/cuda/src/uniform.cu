// Uniform random numbers by counter. NUMBER is float, or double for results of that type.
#include "fulgurite/philox.cuh"

// Numbers in [0, 1): from 53 bits of two words, or from 24 bits of one.
template <typename N> struct Unit;
template <> struct Unit<double> {
    static const int PER_BLOCK = 2;
    static __device__ __forceinline__ double of(const Words& words, int i) {
        const u64 bits = ((u64)words.at[2 * i] << 21) ^ ((u64)words.at[2 * i + 1] >> 11);
        return (double)bits * (1.0 / 9007199254740992.0);
    }
    static __device__ __forceinline__ double at_most(double x, double most) { return fmin(x, most); }
};
template <> struct Unit<float> {
    static const int PER_BLOCK = 4;
    static __device__ __forceinline__ float of(const Words& words, int i) {
        return (float)(words.at[i] >> 8) * (1.0f / 16777216.0f);
    }
    static __device__ __forceinline__ float at_most(float x, float most) { return fminf(x, most); }
};

// `generator` holds the seed and the offset; with PART also the sum of the offset and the number of the part of a
// larger tensor that is drawn, which may begin inside of a block of words. `below` is the largest number that may come
// out. Where the bounds are further apart than the largest number, `start` and `range` are halves, and `scale` is 2;
// otherwise it is 1. A thread makes a block of words.
extern "C" __global__ void uniform(const u64* generator, OUT* out, u64 count, NUMBER start, NUMBER range, NUMBER scale,
                                   NUMBER below) {
    const int per_block = Unit<NUMBER>::PER_BLOCK;
    const u64 seed = generator[0], offset = generator[1];
    const u64 threads = (u64)gridDim.x * blockDim.x;
#if PART
    const u64 first = (generator[2] - offset) * count;
    const u64 skipped = first % per_block;
#else
    const u64 first = 0, skipped = 0;
#endif
    for (u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x; block * per_block < count + skipped; block += threads) {
        const Words words = philox(seed, offset, first / per_block + block);
#pragma unroll
        for (int i = 0; i < per_block; ++i) {
            // Before the first one it is beyond all.
            const u64 at = block * per_block + i - skipped;
            const NUMBER number = Unit<NUMBER>::at_most((start + Unit<NUMBER>::of(words, i) * range) * scale, below);
            if (at < count) out[at] = narrow<OUT>(number);
        }
    }
}
