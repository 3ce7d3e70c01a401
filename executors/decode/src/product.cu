#include "fulgurite/arithmetic.cuh"

// out[m][n] = Σ input[m][k] weight[n][k] for few rows m: the time is that of reading the weight, so each element is
// read once, 16 bytes at a time, and many reads are on their way. A block has 16 outputs n; its warps share the inputs
// k.
//
// Weights are the left operand of the tensor cores, rows of the input the columns of the right one. Which places of a
// sum a thread has does not matter as long as both operands agree: here a thread has 8 neighbours of 32 inputs.
typedef ELEMENT T;

constexpr int STEPS = INPUTS / 32;
constexpr int GROUPS = (ROWS + 7) / 8;
constexpr int MATRICES = GATED ? 2 : 1;
constexpr int AHEAD = GATED ? 2 : 4;

struct Steps {
    uint4 upper[MATRICES][AHEAD], lower[MATRICES][AHEAD];
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) product(
    const T* input, const T* weight,
#if GATED
    const T* up,
#endif
#if BIAS
    const T* bias,
#endif
    T* out) {
    __shared__ float partial[MATRICES][WARPS][8 * GROUPS][17];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int first = blockIdx.x * 16;
    const T* rows[MATRICES][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // Beyond the last output its weights are read again, and the result is not written.
        const int row = min(first + g + 8 * half, OUTPUTS - 1);
        rows[0][half] = weight + row * INPUTS + 8 * t;
#if GATED
        rows[1][half] = up + row * INPUTS + 8 * t;
#endif
    }
    auto load = [&](Steps& steps, int from) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int step = from + i * WARPS;
            if (step >= STEPS) continue;
#pragma unroll
            for (int m = 0; m < MATRICES; ++m) {
                steps.upper[m][i] = load_once(rows[m][0] + 32 * step);
                steps.lower[m][i] = load_once(rows[m][1] + 32 * step);
            }
        }
    };
    float sums[MATRICES][GROUPS][4] = {};
    auto multiply = [&](const Steps& now, int from) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int step = from + i * WARPS;
            if (step >= STEPS) continue;
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const int row = 8 * group + g;
                uint4 x = make_uint4(0, 0, 0, 0);
                if (row < ROWS) x = *reinterpret_cast<const uint4*>(input + row * INPUTS + 32 * step + 8 * t);
#pragma unroll
                for (int m = 0; m < MATRICES; ++m) {
                    const uint4 a = now.upper[m][i], b = now.lower[m][i];
                    multiply_add(T(), sums[m][group], a.x, b.x, a.y, b.y, x.x, x.y);
                    multiply_add(T(), sums[m][group], a.z, b.z, a.w, b.w, x.z, x.w);
                }
            }
        }
    };
    constexpr int STRIDE = AHEAD * WARPS;
    Steps steps[2];
    load(steps[0], warp);
#pragma unroll 1
    for (int from = warp; from < STEPS; from += 2 * STRIDE) {
        load(steps[1], from + STRIDE);
        multiply(steps[0], from);
        load(steps[0], from + 2 * STRIDE);
        multiply(steps[1], from + STRIDE);
    }
#pragma unroll
    for (int m = 0; m < MATRICES; ++m)
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
#pragma unroll
            for (int i = 0; i < 4; ++i) partial[m][warp][8 * group + 2 * t + i % 2][g + i / 2 * 8] = sums[m][group][i];
    __syncthreads();
    for (int place = threadIdx.x; place < 16 * ROWS; place += 32 * WARPS) {
        const int row = place / 16, n = place % 16;
        if (first + n >= OUTPUTS) continue;
        float total[MATRICES] = {};
#pragma unroll
        for (int m = 0; m < MATRICES; ++m)
#pragma unroll
            for (int from = 0; from < WARPS; ++from) total[m] += partial[m][from][row][n];
#if BIAS
        total[0] += widen(bias[first + n]);
#endif
#if GATED
        // Each result is rounded, as if it was written and read.
        const float gate = widen(narrow<T>(total[0])), other = widen(narrow<T>(total[1]));
        total[0] = widen(narrow<T>(gate / (1.0f + expf(-gate)))) * other;
#endif
        out[row * OUTPUTS + first + n] = narrow<T>(total[0]);
    }
}
