// Writes to no memory: what a kernel with a bug does.
extern "C" __global__ void trap(const float* input, float* out) {
    *reinterpret_cast<volatile float*>(8) = input[0];
    out[0] = 0.0f;
}
