#include "fulgurite/faults.cuh"

// Reading at indices, WORD at a time: word i of the result is that at SOURCE(i) plus the chosen index's distance, where
// the index is the one at CHOICE(i). Offsets are in elements.
extern "C" __global__ void take(
    const ELEMENT* from, const INDICES* index, WORD* to, i64 size, i64 along, u64 count, Fault* fault, unsigned code) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const i64 chosen = widen(index[CHOICE(i)]);
        if (chosen < 0 || chosen >= size) {
            report_fault(fault, code, chosen, size);
        } else {
            to[i] = *reinterpret_cast<const WORD*>(from + SOURCE(i) + chosen * along);
        }
    }
}
