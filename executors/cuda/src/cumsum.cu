// Running sums of lines: line i of the operand starts at FROM(i) and that of the result at TO(i); elements are
// `from_along` and `to_along` apart. Sums are kept in SUM (double or i64) and rounded when they are stored.
#include "fulgurite/reductions.cuh"

const u32 ITEMS = 4;

// A block a line, ITEMS neighbouring elements a thread and round.
extern "C" __global__ void __launch_bounds__(512) cumsum_rows(
    const IN* in, OUT* out, u64 length, i64 from_along, i64 to_along) {
    __shared__ SUM sums[32];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const u64 i = blockIdx.x;
    const IN* from = in + FROM(i);
    OUT* to = out + TO(i);
    SUM carry = 0;
    for (u64 begin = 0; begin < length; begin += blockDim.x * ITEMS) {
        const u64 first = begin + threadIdx.x * ITEMS;
        SUM own[ITEMS], total = 0;
#pragma unroll
        for (u32 j = 0; j < ITEMS; ++j) {
            if (first + j < length) total += (SUM)widen(from[(i64)(first + j) * from_along]);
            own[j] = total;
        }
        const SUM through = sum_up_to(total);
        if (lane == 31) sums[warp] = through;
        // What the lanes before this one have. A difference would not do: infinity less infinity is no number.
        SUM before = __shfl_up_sync(0xffffffffu, through, 1);
        if (lane == 0) before = 0;
        __syncthreads();
        SUM earlier = carry;
        for (u32 w = 0; w < warps; ++w) {
            if (w < warp) earlier += sums[w];
            carry += sums[w];
        }
#pragma unroll
        for (u32 j = 0; j < ITEMS; ++j) {
            if (first + j < length) {
                to[(i64)(first + j) * to_along] = narrow<OUT>((Wide<OUT>::type)(earlier + before + own[j]));
            }
        }
        __syncthreads();
    }
}

// A thread a line: neighbouring threads have neighbouring elements where lines are adjacent.
extern "C" __global__ void cumsum_columns(const IN* in, OUT* out, u64 lines, u64 length, i64 from_along, i64 to_along) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lines) return;
    const IN* from = in + FROM(i);
    OUT* to = out + TO(i);
    SUM total = 0;
    for (u64 j = 0; j < length; ++j) {
        total += (SUM)widen(from[(i64)j * from_along]);
        to[(i64)j * to_along] = narrow<OUT>((Wide<OUT>::type)total);
    }
}
