// PLACEHOLDER: what a thread computes. The launch has 256 threads a block and one thread an element.
extern "C" __global__ void placeholder_relu_on_gpu(const float* input, float* out, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = input[i] + input[i];
}
