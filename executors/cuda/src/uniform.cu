// Random numbers by counter: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011). The
// counter is the number of a block of four words and the offset, the key the seed. NUMBER is float, or double for
// results of that type.
#include "fulgurite/elements.cuh"

struct Words { u32 at[4]; };

__device__ __forceinline__ Words philox(u64 seed, u64 offset, u64 block) {
    u32 a = (u32)block, b = (u32)(block >> 32), c = (u32)offset, d = (u32)(offset >> 32);
    u32 low_key = (u32)seed, high_key = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 first = (u64)a * 0xD2511F53u, second = (u64)c * 0xCD9E8D57u;
        a = (u32)(second >> 32) ^ b ^ low_key;
        b = (u32)second;
        c = (u32)(first >> 32) ^ d ^ high_key;
        d = (u32)first;
        low_key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
    Words words = {{a, b, c, d}};
    return words;
}

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

// `generator` holds the seed and the offset; `below` is the largest number that may come out. Where the bounds are
// further apart than the largest number, `start` and `range` are halves, and `scale` is 2; otherwise it is 1. A thread
// makes a block of words.
extern "C" __global__ void uniform(const u64* generator, OUT* out, u64 count, NUMBER start, NUMBER range, NUMBER scale,
                                   NUMBER below) {
    const int per_block = Unit<NUMBER>::PER_BLOCK;
    const u64 seed = generator[0], offset = generator[1];
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 block = (u64)blockIdx.x * blockDim.x + threadIdx.x; block * per_block < count; block += threads) {
        const Words words = philox(seed, offset, block);
#pragma unroll
        for (int i = 0; i < per_block; ++i) {
            const u64 at = block * per_block + i;
            const NUMBER number = Unit<NUMBER>::at_most((start + Unit<NUMBER>::of(words, i) * range) * scale, below);
            if (at < count) out[at] = narrow<OUT>(number);
        }
    }
}
