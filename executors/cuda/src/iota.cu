// Evenly spaced numbers.
#include "fulgurite/arithmetic.cuh"

// Floating-point numbers truncate to integers, and saturate; NaN becomes zero.
template <typename W> __device__ __forceinline__ W from_f64(double x) { return (W)x; }
template <> __device__ __forceinline__ i64 from_f64<i64>(double x) { return truncated(x); }

// Integers are exact and wrap.
extern "C" __global__ void iota_exact(OUT* out, u64 count, i64 start, i64 step) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] = narrow<OUT>((Wide<OUT>::type)(i64)((u64)start + i * (u64)step));
    }
}

extern "C" __global__ void iota(OUT* out, u64 count, double start, double step) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        out[i] = narrow<OUT>(from_f64<Wide<OUT>::type>(start + (double)i * step));
    }
}
