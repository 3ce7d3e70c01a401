// Of each row of a mask of numbers, the largest one of a key that the query sees; 0 where that is -infinity. Lengths of
// batches, a window and CAUSAL say which keys a query sees.
#include "fulgurite/elements.cuh"
#include "fulgurite/reductions.cuh"

typedef ELEMENT T;

// Of [batch, heads, queries, keys], in elements; 0 where one is for all.
struct MarkStrides {
    i64 batch, head, query, key;
};

// A warp has a row of the `count` of all batches, heads and queries that differ. A window that is not there is longer
// than all rows.
extern "C" __global__ void __launch_bounds__(256) mask_bases(
    const T* mask, MarkStrides of_mask,
#ifdef LENGTHS
    const LENGTHS* lengths,
#endif
    int window, float* bases, int heads, int queries, int keys, i64 count) {
    const i64 row = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= count) return;
    const int query = row % queries;
    const i64 head = row / queries % heads, batch = row / queries / heads;
    i64 end = keys;
#ifdef LENGTHS
    const i64 length = widen(lengths[batch]);
    if (length < end) end = length;
#endif
    if (CAUSAL && query + 1 < end) end = query + 1;
    const i64 begin = query >= window ? query - window + 1 : 0;
    const T* from = mask + batch * of_mask.batch + head * of_mask.head + query * of_mask.query;
    float largest = -INFINITY_F32;
    for (i64 key = begin + threadIdx.x % 32; key < end; key += 32) {
        const float number = widen(from[key * of_mask.key]);
        largest = number > largest ? number : largest;
    }
    largest = lanes_reduce<Top>(largest);
    if (threadIdx.x % 32 == 0) bases[row] = largest == -INFINITY_F32 ? 0.0f : largest;
}
