// The transpose of a matrix of 32-bit elements, by tiles that go through shared memory: rows are read and columns are
// written as whole lines.
#include "fulgurite/vectors.cuh"

constexpr int PACK = 4, GROUPS = THREADS / (TILE / PACK);

// `from` has `rows` rows of `columns` elements, `leading` apart; `to` has a row of `rows` elements for each column.
// `rows` is a multiple of PACK; ALIGNED says that of `columns` and `leading` as well, and of `from`.
extern "C" __global__ void __launch_bounds__(THREADS)
    turn(const u32* from, u32* to, u64 rows, u64 columns, u64 leading) {
    // One element more a row: threads that read a column read different banks.
    __shared__ u32 tile[TILE][TILE + 1];
    const u64 row0 = (u64)blockIdx.x * TILE, column0 = (u64)blockIdx.y * TILE;
    const int lane = threadIdx.x % (TILE / PACK) * PACK, group = threadIdx.x / (TILE / PACK);
    Pack<u32, PACK> held[TILE / GROUPS];
#pragma unroll
    for (int i = 0; i < TILE / GROUPS; ++i) {
        const u64 row = row0 + group + i * GROUPS, column = column0 + lane;
        held[i] = {};
        if (row >= rows) continue;
        const u32* at = from + row * leading + column;
        if constexpr (ALIGNED) {
            if (column < columns) held[i] = load<PACK>(at);
        } else {
#pragma unroll
            for (int j = 0; j < PACK; ++j)
                if (column + j < columns) held[i].at[j] = at[j];
        }
    }
#pragma unroll
    for (int i = 0; i < TILE / GROUPS; ++i)
#pragma unroll
        for (int j = 0; j < PACK; ++j) tile[group + i * GROUPS][lane + j] = held[i].at[j];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE / GROUPS; ++i) {
        const int line = group + i * GROUPS;
        if (column0 + line >= columns || row0 + lane >= rows) continue;
        Pack<u32, PACK> pack;
#pragma unroll
        for (int j = 0; j < PACK; ++j) pack.at[j] = tile[lane + j][line];
        store<PACK>(to + (column0 + line) * rows + row0 + lane, pack);
    }
}
