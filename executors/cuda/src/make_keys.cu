// The keys that updates are sorted by. Update n is for target BASE(n) plus ALONG times the index at CHOICE(n). KEY
// holds a target, or the number of targets, which stands for an index out of range.
#include "fulgurite/faults.cuh"

extern "C" __global__ void make_keys(const INDICES* index, KEY* keys, u32 count, i64 size, u64 targets, Fault* fault,
                                     unsigned code) {
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count) return;
    const i64 chosen = widen(index[CHOICE(n)]);
    const bool valid = chosen >= 0 && chosen < size;
    if (!valid) report_fault(fault, code, chosen, size);
    keys[n] = valid ? (KEY)(BASE(n) + chosen * ALONG) : (KEY)targets;
}
