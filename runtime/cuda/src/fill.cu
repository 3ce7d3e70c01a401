// Fills a range of memory with one byte, which `four` has four times.
#include "fulgurite/elements.cuh"

extern "C" __global__ void __launch_bounds__(256) fill_range(u8* to, u64 bytes, u32 four) {
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    u64 done = 0;
    if ((u64)to % 16 == 0) {
        for (u64 i = first; i < bytes / 16; i += step) ((uint4*)to)[i] = make_uint4(four, four, four, four);
        done = bytes / 16 * 16;
    } else if ((u64)to % 4 == 0) {
        for (u64 i = first; i < bytes / 4; i += step) ((u32*)to)[i] = four;
        done = bytes / 4 * 4;
    }
    for (u64 i = done + first; i < bytes; i += step) to[i] = (u8)four;
}
