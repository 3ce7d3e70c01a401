// Matrix products of any strides: a tile of 64 x 64 of the result a block, 4 x 4 of it a thread; products are summed in
// the order of the inner dimension, in WIDE, and rounded to RESULT. LEFT(b), RIGHT(b) and b * rows * columns are where
// the matrices of batch b start. LEFT_ROWS and RIGHT_ROWS say along which dimension neighbouring threads read: the one
// with the smaller stride.
#include "fulgurite/arithmetic.cuh"

typedef Wide<ELEMENT>::type WIDE;
const u32 TILE = 64, DEPTH = 16;

// Sums of products are rounded once a step where the device can; the host's products do so too.
__device__ __forceinline__ float add_product(float a, float b, float sum) { return fmaf(a, b, sum); }
__device__ __forceinline__ double add_product(double a, double b, double sum) { return fma(a, b, sum); }
__device__ __forceinline__ i64 add_product(i64 a, i64 b, i64 sum) { return wrapping_add(sum, wrapping_mul(a, b)); }

struct Strides {
    i64 row, column;
};

// Elements of a matrix from (row, column) on, `HEIGHT` x `WIDTH` many, zero beyond its ends: element (r, c) goes to
// to[r][c], or to to[c][r] if TURNED. Columns are read by neighbouring threads if BY_COLUMNS, and otherwise rows.
template <u32 HEIGHT, u32 WIDTH, bool TURNED, bool BY_COLUMNS>
__device__ __forceinline__ void load_tile(
    const ELEMENT* from, Strides strides, u64 row, u64 column, u64 rows, u64 columns, WIDE (*to)[TILE + 1]) {
#pragma unroll
    for (u32 i = 0; i < HEIGHT * WIDTH / 256; ++i) {
        const u32 n = i * 256 + threadIdx.x;
        const u32 r = BY_COLUMNS ? n / WIDTH : n % HEIGHT, c = BY_COLUMNS ? n % WIDTH : n / HEIGHT;
        const u64 y = row + r, x = column + c;
        const bool inside = y < rows && x < columns;
        const WIDE value = inside ? widen(from[(i64)y * strides.row + (i64)x * strides.column]) : (WIDE)0;
        if (TURNED) to[c][r] = value;
        else to[r][c] = value;
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) matmul(
    const ELEMENT* left, const ELEMENT* right, RESULT* out, u64 batches, u64 rows, u64 columns, u64 inner,
    i64 left_row, i64 left_inner, i64 right_inner, i64 right_column, u64 tiles_across) {
    __shared__ WIDE a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    const u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    const u64 row = blockIdx.x / tiles_across * TILE, column = blockIdx.x % tiles_across * TILE;
    const Strides of_left = {left_row, left_inner}, of_right = {right_inner, right_column};
    for (u64 batch = blockIdx.y; batch < batches; batch += gridDim.y) {
        const ELEMENT* left_matrix = left + LEFT(batch);
        const ELEMENT* right_matrix = right + RIGHT(batch);
        WIDE sums[4][4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
#pragma unroll
            for (u32 j = 0; j < 4; ++j) sums[i][j] = 0;
        }
        for (u64 depth = 0; depth < inner; depth += DEPTH) {
            load_tile<TILE, DEPTH, true, !LEFT_ROWS>(left_matrix, of_left, row, depth, rows, inner, a);
            load_tile<DEPTH, TILE, false, !RIGHT_ROWS>(right_matrix, of_right, depth, column, inner, columns, b);
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < DEPTH; ++k) {
                WIDE of_row[4], of_column[4];
#pragma unroll
                for (u32 i = 0; i < 4; ++i) of_row[i] = a[k][down * 4 + i], of_column[i] = b[k][across + 16 * i];
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                    for (u32 j = 0; j < 4; ++j) sums[i][j] = add_product(of_row[i], of_column[j], sums[i][j]);
                }
            }
            __syncthreads();
        }
        RESULT* matrix = out + batch * rows * columns;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u64 y = row + down * 4 + i;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                const u64 x = column + across + 16 * j;
                if (y < rows && x < columns) matrix[y * columns + x] = narrow<RESULT>(sums[i][j]);
            }
        }
    }
}
