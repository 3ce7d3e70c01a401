// Copies of many small ranges, by one launch. Block y has the y-th range; its x-th block every gridDim.x-th part of it.
struct Copies {
    struct { const unsigned char* from; unsigned char* to; unsigned long long bytes; } at[LIMIT];
};

extern "C" __global__ void __launch_bounds__(256) copy_ranges(const __grid_constant__ Copies copies) {
    const unsigned char* from = copies.at[blockIdx.y].from;
    unsigned char* to = copies.at[blockIdx.y].to;
    const unsigned long long bytes = copies.at[blockIdx.y].bytes;
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x, step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long both = (unsigned long long)from | (unsigned long long)to;
    unsigned long long done = 0;
    if (both % 16 == 0) {
        for (unsigned long long i = first; i < bytes / 16; i += step) ((uint4*)to)[i] = ((const uint4*)from)[i];
        done = bytes / 16 * 16;
    } else if (both % 4 == 0) {
        for (unsigned long long i = first; i < bytes / 4; i += step) ((unsigned*)to)[i] = ((const unsigned*)from)[i];
        done = bytes / 4 * 4;
    }
    for (unsigned long long i = done + first; i < bytes; i += step) to[i] = from[i];
}
