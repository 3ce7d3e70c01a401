// `squareplus` of EACH elements a thread, which are THREADS apart.
extern "C" __global__ void squareplus(const ELEMENT* input, ELEMENT b, ELEMENT* out, unsigned long long count) {
    const unsigned long long first = (unsigned long long)blockIdx.x * (THREADS * EACH) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const unsigned long long at = first + i * THREADS;
        if (at >= count) return;
        const ELEMENT x = input[at];
        out[at] = (x + sqrt(x * x + b)) / 2;
    }
}
