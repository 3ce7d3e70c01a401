// The rows of each of GROUPS groups, one group after another, in their order; behind them those of no group. Group g
// has the places from starts[g] on, of GROUPS + 2 starts; the last one is the number of rows. A block for each group,
// and one for the rows of none.
#include "fulgurite/elements.cuh"

extern "C" __global__ void __launch_bounds__(1024)
    sort_rows(const INDEX* groups, u32* order, u32* starts, u32 rows) {
    __shared__ u32 counts[32];
    const int group = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    auto group_of = [&](u32 row) {
        const i64 own = (i64)groups[row];
        return own >= 0 && own < GROUPS ? (int)own : GROUPS;
    };
    u32 before = 0;
    for (u32 row = threadIdx.x; row < rows; row += 1024) before += group_of(row) < group;
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) before += __shfl_xor_sync(0xffffffffu, before, apart);
    if (lane == 0) counts[warp] = before;
    __syncthreads();
    u32 next = 0;
    for (int i = 0; i < 32; ++i) next += counts[i];
    __syncthreads();
    if (threadIdx.x == 0) starts[group] = next;
    // All threads go round equally often, since they count together.
    for (u32 first = 0; first < rows; first += 1024) {
        const u32 row = first + threadIdx.x;
        const bool own = row < rows && group_of(row) == group;
        const u32 mask = __ballot_sync(0xffffffffu, own);
        if (lane == 0) counts[warp] = __popc(mask);
        __syncthreads();
        u32 place = next + __popc(mask & ((1u << lane) - 1));
        for (int i = 0; i < 32; ++i) {
            const u32 count = counts[i];
            if (i < warp) place += count;
            next += count;
        }
        if (own) order[place] = row;
        // The counts are read before those of the next rows are written.
        __syncthreads();
    }
    if (group == GROUPS && threadIdx.x == 0) starts[GROUPS + 1] = next;
}
