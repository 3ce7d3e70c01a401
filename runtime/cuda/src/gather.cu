// Copies of many small ranges, by one launch. Block y has the y-th range; its x-th block every gridDim.x-th part of it.
#include "fulgurite/elements.cuh"

struct Copies {
    struct { const u8* from; u8* to; u64 bytes; } at[LIMIT];
};

extern "C" __global__ void __launch_bounds__(256) copy_ranges(const __grid_constant__ Copies copies) {
    const u8* from = copies.at[blockIdx.y].from;
    u8* to = copies.at[blockIdx.y].to;
    const u64 bytes = copies.at[blockIdx.y].bytes;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    const u64 both = (u64)from | (u64)to;
    u64 done = 0;
    if (both % 16 == 0) {
        for (u64 i = first; i < bytes / 16; i += step) ((uint4*)to)[i] = ((const uint4*)from)[i];
        done = bytes / 16 * 16;
    } else if (both % 4 == 0) {
        for (u64 i = first; i < bytes / 4; i += step) ((u32*)to)[i] = ((const u32*)from)[i];
        done = bytes / 4 * 4;
    }
    for (u64 i = done + first; i < bytes; i += step) to[i] = from[i];
}
