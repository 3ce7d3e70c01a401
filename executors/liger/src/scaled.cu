// A tensor times one number.
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

// Blocks go from pack to pack; the last elements, less than a pack, are taken one by one. IN_PLACE says that the result
// is in the tensor's memory: then there is nothing to do for a factor of one.
extern "C" __global__ void __launch_bounds__(THREADS) scaled(const T* in, const float* factor, T* out, u64 count) {
    const float by = *factor;
    if (IN_PLACE && by == 1.0f) return;
    const u64 step = (u64)gridDim.x * (THREADS * PACK);
    for (u64 at = ((u64)blockIdx.x * THREADS + threadIdx.x) * PACK; at < count; at += step) {
        if (at + PACK <= count) {
            float held[PACK];
            read<PACK, ALIGNED>(in + at, held);
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[i] *= by;
            write<PACK, ALIGNED>(out + at, held);
        } else {
#pragma unroll 1
            for (u64 i = at; i < count; ++i) out[i] = narrow<T>(widen(in[i]) * by);
        }
    }
}
