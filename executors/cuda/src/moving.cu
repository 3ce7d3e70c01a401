#include "fulgurite/elements.cuh"

// Elements moved as they are, WORD at a time: FROM(i) and TO(i) are the offsets, in elements, of the i-th word.
extern "C" __global__ void move(const ELEMENT* from, ELEMENT* to, u64 count) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        *reinterpret_cast<WORD*>(to + TO(i)) = *reinterpret_cast<const WORD*>(from + FROM(i));
    }
}
