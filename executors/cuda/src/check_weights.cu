#include "fulgurite/faults.cuh"
#include "fulgurite/reductions.cuh"

// Copies rows of weights, a block a row at a time, and reports a row that nothing can be drawn by: with a weight that
// is negative, infinite or no number, or with a sum of zero or beyond `largest`. The record has the row, and how many
// weights it has.
extern "C" __global__ void __launch_bounds__(256) check_weights(
    const ELEMENT* in, ELEMENT* out, u64 rows, u64 columns, double largest, Fault* fault, unsigned code) {
    __shared__ double scratch[32];
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double sum = 0, wrong = 0;
        for (u64 i = threadIdx.x; i < columns; i += blockDim.x) {
            const ELEMENT weight = in[row * columns + i];
            const double value = (double)widen(weight);
            // NaN is not at least zero. The sum of finite numbers of fewer than 2^64 elements may still overflow; it
            // is looked at below.
            if (!(value >= 0.0 && value <= largest)) wrong = 1;
            sum += value;
            out[row * columns + i] = weight;
        }
        sum = block_reduce<Sum, double>(sum, scratch, 0.0);
        wrong = block_reduce<Sum, double>(wrong, scratch, 0.0);
        const bool is_wrong = wrong != 0.0 || !(sum > 0.0 && sum <= largest);
        if (threadIdx.x == 0 && is_wrong) report_fault(fault, code, (i64)row, (i64)columns);
    }
}
