#include "fulgurite/faults.cuh"

// Adding few rows at indices, where an index is that of a whole row: `length` rows of `lines` elements. Those of row i
// at SOURCE(line), `source_along` · i further, are added to those at TARGET(line), `target_along` further for each
// index.
//
// A block has a row, and some of its lines. Where several rows name one target, the block of the first of them adds
// all of these, in their order, and the other blocks do nothing. So one block writes a target, and the sum is rounded
// once.
extern "C" __global__ void add_rows(
    const INDICES* index, const ELEMENT* source, ELEMENT* target, i64 size, u64 length, u64 lines, i64 index_along,
    i64 source_along, i64 target_along, Fault* fault, unsigned code) {
    // Rows that name the target, in their order, and how many each warp found.
    __shared__ unsigned rows[MOST];
    __shared__ unsigned of_warps[THREADS / 32];
    const unsigned thread = threadIdx.x, warp = thread / 32, own = blockIdx.x;
    const i64 chosen = widen(index[(i64)own * index_along]);
    if (chosen < 0 || chosen >= size) {
        if (thread == 0 && blockIdx.y == 0) report_fault(fault, code, chosen, size);
        return;
    }
    bool is_later = false;
    for (unsigned i = thread; i < own; i += THREADS) is_later |= widen(index[(i64)i * index_along]) == chosen;
    if (__syncthreads_or(is_later)) return;
    unsigned found = 0;
    for (unsigned start = own; start < length; start += THREADS) {
        const unsigned i = start + thread;
        const bool same = i < length && widen(index[(i64)i * index_along]) == chosen;
        const unsigned mask = __ballot_sync(~0u, same);
        if (thread % 32 == 0) of_warps[warp] = __popc(mask);
        __syncthreads();
        unsigned place = found + __popc(mask & ((1u << thread % 32) - 1));
        for (unsigned other = 0; other < THREADS / 32; ++other) {
            if (other < warp) place += of_warps[other];
            found += of_warps[other];
        }
        if (same) rows[place] = i;
        __syncthreads();
    }
    for (u64 line = (u64)blockIdx.y * THREADS + thread; line < lines; line += (u64)gridDim.y * THREADS) {
        ELEMENT* place = target + TARGET((INDEX)line) + chosen * target_along;
        const ELEMENT* elements = source + SOURCE((INDEX)line);
        Wide<ELEMENT>::type total = widen(*place);
        // Several rows are on their way at a time.
#pragma unroll 8
        for (unsigned n = 0; n < found; ++n) total += widen(elements[(i64)rows[n] * source_along]);
        *place = narrow<ELEMENT>(total);
    }
}
