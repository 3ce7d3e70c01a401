// What the gradients of attention need of each query.
#include "fulgurite/reductions.cuh"

// A thread has a chunk of 16 bytes of a row. A block has NEAR neighbouring queries, whose results fill a sector of
// memory, of several heads, whose elements are neighbours where heads are beside each other.
constexpr int EACH = 16 / sizeof(T);
constexpr int OF_ROW = PADDED / EACH;
constexpr int HEADS = THREADS_OF_ROWS / OF_ROW / NEAR;

__device__ __forceinline__ float dot(const T* a, const T* b, int at) {
    float sum = 0;
    if constexpr (ALIGNED) {
        if (at < WIDTH) {
            const Pack<T, EACH> x = load<EACH>(a + at), y = load<EACH>(b + at);
#pragma unroll
            for (int i = 0; i < EACH; ++i) sum = __fmaf_rn(widen(x.at[i]), widen(y.at[i]), sum);
        }
    } else {
#pragma unroll
        for (int i = 0; i < EACH; ++i)
            if (at + i < WIDTH) sum = __fmaf_rn(widen(a[at + i]), widen(b[at + i]), sum);
    }
    return sum;
}

// The logarithm to base 2 of the sum of its weights, and δ = Σ d_out out, of results as they are rounded to T:
// in 16 bits δ is off by a rounding of each term.
extern "C" __global__ void __launch_bounds__(THREADS_OF_ROWS) attention_rows(
    const T* d_out, const T* out, const float* log_sums, float* rows, Strides of_d_out, Strides of_out, int heads,
    int queries, i64 count) {
    const int groups = (heads + HEADS - 1) / HEADS, blocks = (queries + NEAR - 1) / NEAR;
    const int place = threadIdx.x / OF_ROW, at = threadIdx.x % OF_ROW * EACH;
    const int head = blockIdx.x % groups * HEADS + place % HEADS;
    const int query = blockIdx.x / groups % blocks * NEAR + place / HEADS;
    const i64 batch = blockIdx.x / groups / blocks;
    const bool real = head < heads && query < queries;
    const i64 h = real ? head : 0, q = real ? query : 0;
    const T* d = d_out + batch * of_d_out.batch + h * of_d_out.head + q * of_d_out.row;
    const T* own = out + batch * of_out.batch + h * of_out.head + q * of_out.row;
    const float delta = lanes_reduce<Sum, OF_ROW>(dot(d, own, at));
    if (at == 0 && real) {
        const i64 row = (batch * heads + head) * queries + query;
        rows[row] = log_sums[row] * LOG2_E;
        rows[count + row] = delta;
    }
}
