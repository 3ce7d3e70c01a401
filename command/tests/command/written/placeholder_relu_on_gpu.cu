#include "fulgurite/elements.cuh"

// PLACEHOLDER: the computation of a thread. The launch has 256 threads per block and one thread per element.
extern "C" __global__ void placeholder_relu_on_gpu(const float* input, float* out, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = input[i] + input[i];
}
