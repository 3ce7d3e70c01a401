// Adds rows of COLUMNS parts of sums, which blocks of another kernel have left: SUMS are the parts and the results of
// each sum, and ADD adds those of the sum with the number blockIdx.y.
#include "fulgurite/elements.cuh"

// A block has 32 columns, and OF_A_COLUMN threads for each, which add every OF_A_COLUMN-th row; their sums are added in
// order.
template <int STRIDE, typename OUT>
__device__ __forceinline__ void add(const float* parts, OUT* out, u32 rows) {
    constexpr int AHEAD = 12;
    __shared__ float sums[OF_A_COLUMN][33];
    const u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (column < COLUMNS) {
        for (u32 row = threadIdx.y; row < rows; row += AHEAD * OF_A_COLUMN) {
            float held[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) {
                const u32 at = row + a * OF_A_COLUMN;
                held[a] = at < rows ? parts[(u64)at * COLUMNS + column] : 0.0f;
            }
#pragma unroll
            for (int a = 0; a < AHEAD; ++a) sum += held[a];
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= COLUMNS) return;
#pragma unroll
    for (int thread = 1; thread < OF_A_COLUMN; ++thread) sum += sums[thread][threadIdx.x];
    out[(i64)column * STRIDE] = narrow<OUT>(sum);
}

extern "C" __global__ void __launch_bounds__(32 * OF_A_COLUMN) add_parts(SUMS, u32 rows) {
    ADD
}
