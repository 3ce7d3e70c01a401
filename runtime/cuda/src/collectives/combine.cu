#include "fulgurite/elements.cuh"

// Parts of tensors of RANKS ranks as one, of RESULT, elementwise and in the order of ranks: COMBINE(a, b) of two
// numbers and FINISH(a) of the last one are of the type that arithmetic on ELEMENT is carried out in. Block y has the
// y-th part, of which this rank has its own; those of the others are one after another, `stride` elements apart.
struct Parts {
    struct { const ELEMENT* own; const ELEMENT* others; RESULT* to; u64 count, stride; } at[LIMIT];
};

typedef Wide<ELEMENT>::type Number;
// As many elements as 16 bytes have.
#define TOGETHER (16 / (int)sizeof(ELEMENT))
union Vector {
    uint4 bits;
    ELEMENT at[TOGETHER];
};
// As many results.
#define WIDTH ((int)(sizeof(RESULT) / sizeof(ELEMENT)))
union Results {
    uint4 bits[WIDTH];
    RESULT at[TOGETHER];
};

extern "C" __global__ void __launch_bounds__(256) combine_parts(const __grid_constant__ Parts parts, u32 place) {
    const ELEMENT* own = parts.at[blockIdx.y].own;
    const ELEMENT* others = parts.at[blockIdx.y].others;
    RESULT* to = parts.at[blockIdx.y].to;
    const u64 count = parts.at[blockIdx.y].count, stride = parts.at[blockIdx.y].stride;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    u64 done = 0;
    if (((u64)own | (u64)to) % 16 == 0) {
        for (u64 i = first; i < count / TOGETHER; i += step) {
            Vector given[RANKS];
            Results out;
#pragma unroll
            for (u32 rank = 0; rank < RANKS; ++rank) {
                const ELEMENT* from = rank == place ? own : others + (rank - (rank > place)) * stride;
                given[rank].bits = ((const uint4*)from)[i];
            }
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k) {
                Number total = widen(given[0].at[k]);
#pragma unroll
                for (u32 rank = 1; rank < RANKS; ++rank) {
                    const Number next = widen(given[rank].at[k]);
                    total = COMBINE(total, next);
                }
                out.at[k] = narrow<RESULT>(FINISH(total));
            }
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) ((uint4*)to)[i * WIDTH + k] = out.bits[k];
        }
        done = count / TOGETHER * TOGETHER;
    }
    for (u64 i = done + first; i < count; i += step) {
        Number total = Number();
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            const ELEMENT* from = rank == place ? own : others + (rank - (rank > place)) * stride;
            const Number next = widen(from[i]);
            total = rank == 0 ? next : COMBINE(total, next);
        }
        to[i] = narrow<RESULT>(FINISH(total));
    }
}
