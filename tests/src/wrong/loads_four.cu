#include "fulgurite/elements.cuh"

// Ignores the alignment of its operand.
extern "C" __global__ void negate(const float* in, float* out, u64 count) {
    const float4* packs = reinterpret_cast<const float4*>((u64)in & ~15ULL);
    for (u64 i = threadIdx.x; i < count; i += 32) {
        const float4 pack = packs[i / 4];
        const float held[4] = {pack.x, pack.y, pack.z, pack.w};
        out[i] = -held[i % 4];
    }
}
