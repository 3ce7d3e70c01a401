// `squareplus` and its slope, in one pass over the input; each block takes THREADS elements.
extern "C" __global__ void squareplus_with_slope(
    const ELEMENT* input, ELEMENT b, ELEMENT* out, ELEMENT* slope, unsigned long long count) {
    const unsigned long long at = (unsigned long long)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    const ELEMENT x = input[at];
    const ELEMENT root = sqrt(x * x + b);
    out[at] = (x + root) / 2;
    slope[at] = (1 + x / root) / 2;
}
