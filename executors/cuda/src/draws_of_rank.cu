// The generator of a rank's part: seed, offset, and the sum of the offset and the number of the part. With PART the
// given generator is of a part already, which is divided among the ranks.
#include "fulgurite/elements.cuh"

extern "C" __global__ void draws_of_rank(const u64* generator, u64* out, u64 place, u64 ranks) {
    if (threadIdx.x > 0) return;
    const u64 offset = generator[1];
#if PART
    const u64 outer = generator[2] - offset;
#else
    const u64 outer = 0;
#endif
    out[0] = generator[0];
    out[1] = offset;
    out[2] = offset + outer * ranks + place;
}
