#include "fulgurite/elements.cuh"

// Logarithms of sums over paths: a block has a sequence, and its threads have the states of one step after another. A
// row is read where it was written, in the result. A path begins in state 0 or 1, and from each step to the next it
// stays, goes to the next state, or to the one after it where that one has a skip.
typedef Wide<ELEMENT>::type W;

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

// The logarithm of the sum of three exponentials, whatever their size; NaN if there is one.
__device__ __forceinline__ W log_sum(W a, W b, W c) {
    if (a != a || b != b || c != c) return a + b + c;
    W most = a > b ? a : b;
    most = most > c ? most : c;
    if (most == (W)INFINITY_F32 || most == -(W)INFINITY_F32) return most;
    return most + logarithm(exponential(a - most) + exponential(b - most) + exponential(c - most));
}

extern "C" __global__ void log_path_sums(
    const ELEMENT* emissions, const boolean* skips, ELEMENT* out, u64 sequences, u64 steps, u64 states,
    i64 from_sequence, i64 from_step, i64 from_state, i64 skip_sequence, i64 skip_state,
    i64 to_sequence, i64 to_step, i64 to_state) {
    const W none = -(W)INFINITY_F32;
    for (u64 n = blockIdx.x; n < sequences; n += gridDim.x) {
        const ELEMENT* from = emissions + (i64)n * from_sequence;
        const boolean* may_skip = skips + (i64)n * skip_sequence;
        ELEMENT* to = out + (i64)n * to_sequence;
        for (u64 t = 0; t < steps; ++t) {
            for (u64 s = threadIdx.x; s < states; s += blockDim.x) {
                W before = s < 2 ? (W)0 : none;
                if (t > 0) {
                    const ELEMENT* last = to + (i64)(t - 1) * to_step;
                    const W stays = widen(last[(i64)s * to_state]);
                    const W moves = s > 0 ? widen(last[(i64)(s - 1) * to_state]) : none;
                    const bool skipped = s > 1 && may_skip[(i64)s * skip_state].bits != 0;
                    before = log_sum(stays, moves, skipped ? widen(last[(i64)(s - 2) * to_state]) : none);
                }
                to[(i64)t * to_step + (i64)s * to_state] =
                    narrow<ELEMENT>(before + widen(from[(i64)t * from_step + (i64)s * from_state]));
            }
            // The next step reads what other threads wrote.
            __syncthreads();
        }
    }
}
