#include "fulgurite/arithmetic.cuh"
#include "fulgurite/faults.cuh"

// Adding few elements at indices, or combining them by another rule: COMBINE(x, y) is that of two, the earlier one
// first. Lines are independent of each other: in each, `length` elements at SOURCE(line),
// `source_along` apart, are added to those at TARGET(line), `target_along` apart, that the indices at CHOICES(line),
// `index_along` apart, name.
//
// A thread has an element. The first one that names a target adds all that do, in their order; so nobody else writes
// it, and the sum is rounded once.
extern "C" __global__ void add_few(
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
        bool is_first = true;
        for (INDEX i = 0; i < own && is_first; ++i) is_first = widen(choices[(i64)i * index_along]) != chosen;
        if (!is_first) continue;
        ELEMENT* place = target + TARGET(line) + chosen * target_along;
        const ELEMENT* elements = source + SOURCE(line);
        Wide<ELEMENT>::type total = widen(*place);
        for (INDEX i = own; i < length; ++i) {
            if (widen(choices[(i64)i * index_along]) != chosen) continue;
            total = COMBINE(total, widen(elements[(i64)i * source_along]));
        }
        *place = narrow<ELEMENT>(total);
    }
}
