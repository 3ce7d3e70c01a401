// Many tensors in one launch: a block has CHUNK elements of one of them, and which one, a table tells that comes with
// the arguments. Each source says how many TENSORS there are.
#include "fulgurite/elements.cuh"

constexpr u64 CHUNK = 8192;

struct Table {
    u64 length[TENSORS];
    // The first block of each tensor.
    u32 first[TENSORS];
};

// The tensor that a block works on: the last one that starts at it or before.
__device__ __forceinline__ int tensor_of(const Table& table) {
    int low = 0, high = TENSORS - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (table.first[middle] <= blockIdx.x) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// The elements that a block works on: up to `whole` by packs, the rest one by one.
struct Chunk {
    int tensor;
    u64 begin, whole, end;
    __device__ __forceinline__ Chunk(const Table& table) : tensor(tensor_of(table)) {
        const u64 length = table.length[tensor];
        begin = (blockIdx.x - table.first[tensor]) * CHUNK;
        end = begin + CHUNK < length ? begin + CHUNK : length;
        whole = begin + (end - begin) / PACK * PACK;
    }
};
