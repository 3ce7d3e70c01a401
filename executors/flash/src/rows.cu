// What the gradients of attention need of each query.
#include "fulgurite/reductions.cuh"

__device__ __forceinline__ float dot(float4 a, float4 b) {
    return __fmaf_rn(a.x, b.x, __fmaf_rn(a.y, b.y, __fmaf_rn(a.z, b.z, a.w * b.w)));
}

// The logarithm to base 2 of the sum of its weights, and δ = Σ d_out out, by QUARTERS threads. `out` is [batch,
// queries, heads, WIDTH].
extern "C" __global__ void __launch_bounds__(THREADS_OF_ROWS) attention_rows(
    const T* d_out, const T* out, const float* log_sums, float* rows, Strides of_d_out, int heads, int queries,
    i64 count) {
    const i64 index = (blockIdx.x * (i64)THREADS_OF_ROWS + threadIdx.x) / QUARTERS, row = min(index, count - 1);
    const int at = threadIdx.x % QUARTERS * 4;
    const i64 query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    const T* d = d_out + batch * of_d_out.batch + head * of_d_out.head + query * of_d_out.row;
    float delta = dot(four(d, at), four(out + ((batch * queries + query) * heads + head) * WIDTH, at));
    delta = lanes_reduce<Sum, QUARTERS>(delta);
    if (at == 0 && index < count) {
        rows[row] = log_sums[row] * LOG2_E;
        rows[count + row] = delta;
    }
}
