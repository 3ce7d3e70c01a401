#include "fulgurite/faults.cuh"

// Writing many elements at indices: see placing.cu. `last` has a number for each place of each line of indices, which
// are all -1 at first.

// A thread has an index: the place it names gets the largest number of those that name it.
extern "C" __global__ void note_last(
    const INDICES* index, int* last, i64 size, u64 length, u64 lines, i64 index_along, Fault* fault, unsigned code) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x, count = (INDEX)(length * lines);
    for (INDEX n = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += step) {
        const INDEX own = n / (INDEX)lines, line = n % (INDEX)lines;
        const i64 chosen = widen(index[INDICES_OF(line) + (i64)own * index_along]);
        if (chosen < 0 || chosen >= size) {
            report_fault(fault, code, chosen, size);
        } else {
            atomicMax(last + NUMBERS_OF(line) + chosen, (int)own);
        }
    }
}

// A thread has an element, and writes it if its number is that of its place.
extern "C" __global__ void place_last(
    const INDICES* index, const int* last, const ELEMENT* source, ELEMENT* target, i64 size, u64 length, u64 lines,
    i64 index_along, i64 source_along, i64 target_along) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x, count = (INDEX)(length * lines);
    for (INDEX n = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += step) {
        // Neighbouring threads have neighbouring lines.
        const INDEX own = n / (INDEX)lines, line = n % (INDEX)lines;
        const i64 chosen = widen(index[CHOICES(line) + (i64)own * index_along]);
        if (chosen < 0 || chosen >= size || last[NUMBERS(line) + chosen] != (int)own) continue;
        target[TARGET(line) + chosen * target_along] = source[SOURCE(line) + (i64)own * source_along];
    }
}
