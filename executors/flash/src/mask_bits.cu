// The booleans of a mask as bits, 32 to a word: of each query those of its keys, and with BY_KEY of each key those of
// its queries. Warp groups read 32 of them at once. Bits beyond the last query and key are clear. Where all queries see
// the same keys there is one row of them, and where all keys are seen by the same queries one of these.
#include "fulgurite/elements.cuh"

// Of [batch, heads, queries, keys], in elements; 0 where one is for all.
struct MarkStrides {
    i64 batch, head, query, key;
};

// A warp has 32 queries by 32 keys of a mask of the `count` of all heads and batches.
extern "C" __global__ void __launch_bounds__(256) pack_mask(
    const u8* mask, MarkStrides of_mask, u32* by_query,
#if BY_KEY
    u32* by_key,
#endif
    int heads, int count, int queries, int keys, int query_rows, int key_rows, int words_of_query, int words_of_key) {
    const int lane = threadIdx.x % 32, index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (index >= words_of_query * words_of_key) return;
    const int key_word = index % words_of_query, query_word = index / words_of_query;
    const int key = 32 * key_word + lane, query = 32 * query_word + lane;
    for (int of = blockIdx.y; of < count; of += gridDim.y) {
        const u8* from = mask + of / heads * of_mask.batch + of % heads * of_mask.head;
        u32 own = 0;
#pragma unroll 8
        for (int i = 0; i < 32; ++i) {
            const i64 row = 32 * query_word + i;
            const bool seen = row < queries && key < keys && from[row * of_mask.query + key * of_mask.key];
            const u32 word = __ballot_sync(0xffffffffu, seen);
            if (i == lane) own = word;
        }
        if (query < query_rows) by_query[((i64)of * query_rows + query) * words_of_query + key_word] = own;
#if BY_KEY
        u32 column = 0;
#pragma unroll 8
        for (int i = 0; i < 32; ++i) {
            const u32 word = __ballot_sync(0xffffffffu, own >> i & 1);
            if (i == lane) column = word;
        }
        if (key < key_rows) by_key[((i64)of * key_rows + key) * words_of_key + query_word] = column;
#endif
    }
}
