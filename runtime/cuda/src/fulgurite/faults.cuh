// The report of data that a kernel cannot work with, such as an index out of range.
#ifndef FULGURITE_FAULTS
#define FULGURITE_FAULTS
#include "fulgurite/elements.cuh"

// The first fault of a run is kept: which kernel reported it, the index, and how many there are.
struct Fault {
    u32 code;
    u32 reserved;
    i64 index;
    i64 size;
};
__device__ __forceinline__ void report_fault(Fault* fault, u32 code, i64 index, i64 size) {
    if (atomicCAS(&fault->code, 0u, code) == 0u) {
        fault->index = index;
        fault->size = size;
    }
}

#endif
