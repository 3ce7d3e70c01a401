#include "fulgurite/elements.cuh"

// Tensors of RANKS ranks, one after another, as one, elementwise and in the order of ranks: COMBINE(a, b) of two
// numbers and FINISH(a) of the last one are of the type that arithmetic on ELEMENT is carried out in.
extern "C" __global__ void combine(const ELEMENT* all, ELEMENT* out, u64 count) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        Wide<ELEMENT>::type total = widen(all[i]);
        for (u64 rank = 1; rank < RANKS; ++rank) {
            const Wide<ELEMENT>::type next = widen(all[rank * count + i]);
            total = COMBINE(total, next);
        }
        out[i] = narrow<ELEMENT>(FINISH(total));
    }
}
