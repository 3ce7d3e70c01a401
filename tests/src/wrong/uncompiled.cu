// Takes f64 where it is given f32.
extern "C" __global__ void uncompiled(const double* input, float* out, unsigned long long count) {
    const unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = -input[i];
}
