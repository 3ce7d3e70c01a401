// Heads beside each other, [B, T, HEADS, SIZE], and one after another, [B, HEADS, T, SIZE]: packs of bits are moved,
// SIZE of them a head, four by each thread. Both sides move whole heads, so that reads and writes are coalesced.
#include "fulgurite/elements.cuh"

// The place in [B, HEADS, LENGTH, SIZE] of pack i of [B, LENGTH, HEADS, SIZE].
__device__ __forceinline__ INDEX by_head(INDEX i) {
    const INDEX at = i % SIZE, head = i / SIZE % HEADS, row = i / (SIZE * HEADS);
    const INDEX batch = row / LENGTH, position = row % LENGTH;
    return ((batch * HEADS + head) * LENGTH + position) * SIZE + at;
}

constexpr int EACH = 4;

// Calls `load(u, i)` for each of the thread's packs, then `store(u, i)`.
template <typename Load, typename Store> __device__ __forceinline__ void move_packs(u64 count, Load load, Store store) {
    const u64 first = (u64)blockIdx.x * (EACH * THREADS) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < EACH; ++u)
        if (first + u * THREADS < count) load(u, (INDEX)(first + u * THREADS));
#pragma unroll
    for (int u = 0; u < EACH; ++u)
        if (first + u * THREADS < count) store(u, (INDEX)(first + u * THREADS));
}

// Where pack i of [B, LENGTH, 3, HEADS, SIZE] is: in which of the three, and where there.
struct Part {
    INDEX which, at;
    __device__ __forceinline__ Part(INDEX i) {
        constexpr INDEX WIDTH = HEADS * SIZE;
        const INDEX row = i / (3 * WIDTH), rest = i % (3 * WIDTH);
        which = rest / WIDTH;
        at = by_head(row * WIDTH + rest % WIDTH);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) permute(const BITS* in, BITS* q, BITS* k, BITS* v, u64 count) {
    BITS held[EACH];
    move_packs(
        count, [&](int u, INDEX i) { held[u] = in[i]; },
        [&](int u, INDEX i) {
            const Part part(i);
            (part.which == 0 ? q : part.which == 1 ? k : v)[part.at] = held[u];
        });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    permute_backward(
    const BITS* d_q, const BITS* d_k, const BITS* d_v, BITS* d_in, u64 count) {
    BITS held[EACH];
    move_packs(
        count,
        [&](int u, INDEX i) {
            const Part part(i);
            held[u] = (part.which == 0 ? d_q : part.which == 1 ? d_k : d_v)[part.at];
        },
        [&](int u, INDEX i) { d_in[i] = held[u]; });
}

extern "C" __global__ void __launch_bounds__(THREADS) unpermute(const BITS* in, BITS* out, u64 count) {
    BITS held[EACH];
    move_packs(
        count, [&](int u, INDEX i) { held[u] = in[by_head(i)]; }, [&](int u, INDEX i) { out[i] = held[u]; });
}

extern "C" __global__ void __launch_bounds__(THREADS) unpermute_backward(const BITS* d_out, BITS* d_in, u64 count) {
    BITS held[EACH];
    move_packs(
        count, [&](int u, INDEX i) { held[u] = d_out[i]; }, [&](int u, INDEX i) { d_in[by_head(i)] = held[u]; });
}
