#include "fulgurite/faults.cuh"

// Writing few elements at indices. Lines are independent of each other: in each, `length` elements at SOURCE(line),
// `source_along` apart, take the places of those at TARGET(line), `target_along` apart, that the indices at
// CHOICES(line), `index_along` apart, name.
//
// A thread has an element, and writes it unless a later one of its line names the same place: the last one stays, in
// every run.
extern "C" __global__ void place(
    const INDICES* index, const ELEMENT* source, ELEMENT* target, i64 size, u64 length, u64 lines, i64 index_along,
    i64 source_along, i64 target_along, Fault* fault, unsigned code) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x, count = (INDEX)(length * lines);
    for (INDEX n = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += step) {
        // Neighbouring threads have neighbouring lines.
        const INDEX own = n / (INDEX)lines, line = n % (INDEX)lines;
        const INDICES* choices = index + CHOICES(line);
        const i64 chosen = widen(choices[(i64)own * index_along]);
        if (chosen < 0 || chosen >= size) {
            report_fault(fault, code, chosen, size);
            continue;
        }
        bool is_last = true;
        for (INDEX i = own + 1; i < length && is_last; ++i) {
            is_last = widen(choices[(i64)i * index_along]) != chosen;
        }
        if (is_last) target[TARGET(line) + chosen * target_along] = source[SOURCE(line) + (i64)own * source_along];
    }
}
