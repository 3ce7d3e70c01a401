// Places of numbers in sorted lines. Number n is at VALUE(n), its line starts at LINE(n) and has `length` elements that
// are `along` apart, and its place goes to TO(n). With `right` it is that behind equal elements. A comparison with NaN
// does not hold, so that the search goes on behind it.
#include "fulgurite/elements.cuh"

extern "C" __global__ void search(
    const ELEMENT* sorted, const ELEMENT* values, i64* out, u64 count, u64 length, i64 along, u32 right) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX n = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; n < (INDEX)count; n += step) {
        const Wide<ELEMENT>::type value = widen(values[VALUE(n)]);
        const ELEMENT* line = sorted + LINE(n);
        u64 place = 0, end = length;
        while (place < end) {
            const u64 middle = place + (end - place) / 2;
            const Wide<ELEMENT>::type element = widen(line[(i64)middle * along]);
            if (right ? element > value : element >= value) {
                end = middle;
            } else {
                place = middle + 1;
            }
        }
        out[TO(n)] = (i64)place;
    }
}
