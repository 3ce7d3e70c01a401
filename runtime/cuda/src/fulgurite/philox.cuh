// Random numbers by counter: Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
#ifndef FULGURITE_PHILOX
#define FULGURITE_PHILOX
#include "fulgurite/elements.cuh"

struct Words { u32 at[4]; };

// The four words of a block. The counter is the number of the block and the offset, the key the seed.
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

#endif
