#include "fulgurite/elements.cuh"

// Padding: word i of the result is that of the operand at FROM(i) where INSIDE(i), and otherwise full of `fill`, eight
// bytes of the padding element. A word is inside or outside as a whole.
template <typename W> __device__ __forceinline__ W full_of(u64 fill) { return (W)fill; }
template <> __device__ __forceinline__ uint4 full_of<uint4>(u64 fill) {
    const u32 low = (u32)fill, high = (u32)(fill >> 32);
    return make_uint4(low, high, low, high);
}

extern "C" __global__ void pad(const ELEMENT* from, WORD* to, u64 fill, u64 count) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = INSIDE(i) ? *reinterpret_cast<const WORD*>(from + FROM(i)) : full_of<WORD>(fill);
    }
}
