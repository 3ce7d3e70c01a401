// What the kernels of attention share, whatever the tensor cores multiply: places in tensors of heads, and sums over
// the threads that have parts of one row.
//
// A warp has 16 rows of its own at a time. Of a 16 x 8 result the thread has, with g = lane / 4 and t = lane % 4,
// columns 2 t and 2 t + 1 of row g (numbers 0 and 1) and of row g + 8 (numbers 2 and 3).
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/copies.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

// Results of 8 columns each that a row of the width has, with zeros behind it: PADDED is 32, 64 or 128, or a multiple
// of 64 above.
constexpr int WIDE = PADDED / 8;
constexpr int QUARTERS = PADDED / 4;

constexpr float LN_2 = 0.6931471805599453f;

// Strides of [batch, heads, rows, WIDTH] in elements; along the width elements are neighbours.
struct Strides {
    i64 batch, head, row;
};

// Where a row of a head begins.
__device__ __forceinline__ T* place(T* tensor, const Strides& strides, i64 batch, int head, int row) {
    return tensor + batch * strides.batch + head * strides.head + row * strides.row;
}

// Four elements of a row from `at` on; zeros behind the width.
__device__ __forceinline__ float4 four(const T* row, int at) {
    float x[4] = {0, 0, 0, 0};
    if constexpr (ALIGNED) {
        if (at < WIDTH) {
            const Pack<T, 4> pack = load<4>(row + at);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] = widen(pack.at[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (at + i < WIDTH) x[i] = widen(row[at + i]);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

// Over the four threads that have parts of one row.
__device__ __forceinline__ float over_row(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float top_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

template <int N> __device__ __forceinline__ void clear(float (&c)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[j][i] = 0;
}
