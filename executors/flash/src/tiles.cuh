// Tiles of rows in shared memory as the products of `wgmma.cuh` read them, and how one warp group, which computes
// nothing, fills them for the others: tile after tile, each as soon as its place is free.
#include "fulgurite/copies.cuh"

// A block is CONSUMERS warp groups with 64 rows each, and one that fills shared memory. SHARED_ROWS: they have the same
// 64 rows, of which each computes another result.
#ifndef SHARED_ROWS
#define SHARED_ROWS 0
#endif
constexpr int GROUP = 128;
constexpr int OWN = SHARED_ROWS ? 64 : 64 * CONSUMERS;
constexpr int THREADS = GROUP * (CONSUMERS + 1);
// Tiles of 64 elements beside each other, and chunks of 16 bytes, that a row has with zeros behind it.
constexpr int PARTS = PADDED / 64;
constexpr int CHUNKS = PADDED / 8;

// Rows of a head in memory as a thread of the filling warp group copies them: its chunk of 16 bytes of every AT_ONCE-th
// row, and of wide rows the same chunk of each part. Copies follow each other closely only if little is computed for
// each of them.
struct Rows {
    static constexpr int TOGETHER = PARTS > 2 ? 8 : CHUNKS;
    static constexpr int AT_ONCE = GROUP / TOGETHER;
    static_assert(AT_ONCE % 8 == 0, "the order of chunks is the same for all rows of a thread");
    const T* from;

    // The filling warp group has few registers: places are computed where they are used.
    static __device__ __forceinline__ int thread() {
        int thread = threadIdx.x;
        asm volatile("" : "+r"(thread));
        return thread % GROUP;
    }
    static __device__ __forceinline__ int chunk() { return thread() % TOGETHER; }
    static __device__ __forceinline__ int row() { return thread() / TOGETHER; }

    __device__ __forceinline__ Rows(const T* rows, i64 stride) : from(rows + row() * stride + 8 * chunk()) {}

    // Starts the copy of ROWS rows from `first` on, of which there are `count`; zeros beyond. Chunks of 16 bytes begin
    // at multiples of as many.
    template <int ROWS> __device__ __forceinline__ void fetch(u32 to, i64 stride, int first, int count) const {
        static_assert(ROWS % AT_ONCE == 0, "every thread copies as many");
        to += chunk() / 8 * (ROWS * ROW_BYTES) + row() * ROW_BYTES + (chunk() % 8 ^ row() % 8) * 16;
        const T* at = from + first * stride;
        if (WIDTH == PADDED && first + ROWS <= count) {
#pragma unroll
            for (int i = 0; i < ROWS; i += AT_ONCE, at += AT_ONCE * stride)
#pragma unroll
                for (int part = 0; part < CHUNKS / TOGETHER; ++part)
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                                 :
                                 : "r"(to + part * (ROWS * ROW_BYTES) + i * ROW_BYTES), "l"(at + 64 * part)
                                 : "memory");
            return;
        }
        const int left = count - first - row();
#pragma unroll
        for (int i = 0; i < ROWS; i += AT_ONCE, at += AT_ONCE * stride) {
#pragma unroll
            for (int part = 0; part < CHUNKS / TOGETHER; ++part) {
                // Nothing is read where there are 0 bytes to copy.
                const bool real = i < left && 64 * part + 8 * chunk() < WIDTH;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                             :
                             : "r"(to + part * (ROWS * ROW_BYTES) + i * ROW_BYTES), "l"(at + 64 * part),
                               "r"(real ? 16 : 0)
                             : "memory");
            }
        }
    }
};

// Places in shared memory for COUNT tiles, filled and used in turn.
template <int COUNT, int BYTES> struct Ring {
    u32 tiles, barriers;

    static constexpr int BARRIERS = 16 * COUNT;
    __device__ __forceinline__ u32 tile(u32 turn) const { return tiles + turn % COUNT * BYTES; }
    __device__ __forceinline__ Barrier filled(u32 turn) const { return {barriers + turn % COUNT * 16}; }
    __device__ __forceinline__ Barrier used(u32 turn) const { return {barriers + turn % COUNT * 16 + 8}; }
    static __device__ __forceinline__ u32 parity(u32 turn) { return turn / COUNT % 2; }

    // By one thread, before all others use it; `users` warps use each tile, and `fillers` fill it.
    __device__ __forceinline__ void start(int users, int fillers = GROUP / 32) const {
        for (int turn = 0; turn < COUNT; ++turn) {
            filled(turn).start_for_warps(fillers);
            used(turn).start_for_warps(users);
        }
    }
    __device__ __forceinline__ void await_filled(u32 turn) const { filled(turn).await(parity(turn)); }
    // By a warp whose products have read the tile.
    __device__ __forceinline__ void release(u32 turn) const {
        used(turn).arrive_for_warp();
    }
};

// What the filling warp group asked for last, and did not yet tell others of.
struct Filler {
    u32 pending = 0;

    template <int LATER> __device__ __forceinline__ void tell() {
        await_all_but<LATER>();
        show_to_products();
        __syncwarp();
        Barrier{pending}.arrive_for_warp();
    }
    __device__ __forceinline__ void finish() {
        if (pending != 0) tell<0>();
        pending = 0;
    }
    // `fetch` starts the copies to the place that it is given.
    template <typename R, typename F> __device__ __forceinline__ void fill(const R& ring, u32 turn, F fetch) {
        const u32 parity = R::parity(turn) ^ 1;
        if (!__all_sync(0xffffffffu, ring.used(turn).passed(parity))) {
            finish();
            ring.used(turn).await(parity);
        }
        fetch(ring.tile(turn));
        end_batch();
        if (pending != 0) tell<1>();
        pending = ring.filled(turn).at;
    }
};

// The piece of work that a block takes in a round: rounds go over the blocks there and back, so that pieces which grow
// smaller add up alike.
__device__ __forceinline__ int piece(int round) {
    return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

// Pieces of work are taken from a counter in memory, which begins at zero, as soon as the copies of the one before are
// under way: which block takes which changes no sum. One of the warps that fill takes them for all.
struct Pieces {
    typedef Ring<2, 16> Indices;
    static constexpr int BYTES = 2 * 16 + Indices::BARRIERS;
    Indices ring;

    __device__ __forceinline__ explicit Pieces(u32 at) : ring{at, at + 2 * 16} {}
    // By one thread; `users` warps are told.
    __device__ __forceinline__ void start(int users) const { ring.start(users, 1); }
    __device__ __forceinline__ int give(u32* counter, u32 round) const {
        ring.used(round).await(Indices::parity(round) ^ 1);
        u32 index = 0;
        if (threadIdx.x % 32 == 0) {
            index = atomicAdd(counter, 1u);
            asm volatile("st.shared.u32 [%0], %1;" : : "r"(ring.tile(round)), "r"(index) : "memory");
        }
        ring.filled(round).arrive_for_warp();
        return __shfl_sync(0xffffffffu, index, 0);
    }
    __device__ __forceinline__ int take(u32 round) const {
        ring.await_filled(round);
        int index;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(index) : "r"(ring.tile(round)) : "memory");
        // All threads have the same, and are known to.
        index = __shfl_sync(0xffffffffu, index, 0);
        ring.release(round);
        return index;
    }
};

// Which block of rows, of which of `columns` heads of all batches, a piece of work has. Those of `at_once` heads are
// taken in turn: what their blocks read is in the cache meanwhile.
struct Place {
    int column, block;

    __device__ __forceinline__ Place(int index, int columns, int blocks, int at_once) {
        const int of_group = at_once * blocks, first = index / of_group * at_once;
        at_once = min(at_once, columns - first);
        column = first + index % of_group % at_once;
        block = index % of_group / at_once;
    }
};

// Two elements beside each other of a row of the result, from `at` on.
__device__ __forceinline__ void write_pair(T* row, int at, float low, float high) {
    const u32 both = Halves<T>::of(low, high);
    if constexpr (ALIGNED) {
        if (at < WIDTH) *reinterpret_cast<u32*>(row + at) = both;
    } else {
        if (at < WIDTH) row[at].bits = (u16)both;
        if (at + 1 < WIDTH) row[at + 1].bits = (u16)(both >> 16);
    }
}

// Writes 8 N neighbouring columns of a row of the result from `first` on, of which each of the four threads that have
// the row has two of eight, as numbers 2 half and 2 half + 1. Where rows allow it, the threads exchange them, and write
// 16 bytes each. All threads of a warp take part, whether their row is `real` or not.
template <int N>
__device__ __forceinline__ void write_columns(
    T* row, bool real, int first, const float (&c)[N][4], int half, float factor) {
    const int t = threadIdx.x % 4;
    if constexpr (ALIGNED && N % 4 == 0) {
#pragma unroll
        for (int j = 0; j < N; j += 4) {
            u32 x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                x[i] = Halves<T>::of(c[j + i][2 * half] * factor, c[j + i][2 * half + 1] * factor);
            // Thread t gives its columns of eight i to thread i.
#pragma unroll
            for (int apart = 1; apart < 4; apart *= 2)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (i & apart) continue;
                    const bool upper = t & apart;
                    const u32 other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + apart], apart);
                    if (upper) x[i] = other;
                    else x[i + apart] = other;
                }
            const int at = first + 8 * (j + t);
            if (real && at < WIDTH) *reinterpret_cast<uint4*>(row + at) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    } else if (real) {
#pragma unroll
        for (int j = 0; j < N; ++j)
            write_pair(row, first + 8 * j + 2 * t, c[j][2 * half] * factor, c[j][2 * half + 1] * factor);
    }
}

// Starts c = own rowsᵀ, of 64 of the OWN rows and of a tile's.
__device__ __forceinline__ void along_width(float (&c)[TILE / 8][4], u32 own, u32 rows) {
    const u64 left = describe(own, 0), right = describe(rows, 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < PADDED / 16; ++step) {
        const int part = step / 4, along = step % 4 * 32;
        multiply<false>(T(), c, left + (part * (OWN * ROW_BYTES) + along) / 16,
                        right + (part * (TILE * ROW_BYTES) + along) / 16, step > 0);
    }
    end_products();
}

// 64 of the OWN rows as left operands in registers: products then read half as much of shared memory.
__device__ __forceinline__ void hold(u32 (&held)[PADDED / 16][4], u32 own) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % GROUP / 32 * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < PADDED / 16; ++step) {
        const int chunk = 2 * step + lane / 16;
        const u32 from = own + chunk / 8 * (OWN * ROW_BYTES) + row * ROW_BYTES + (chunk % 8 ^ row % 8) * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(held[step][0]), "=r"(held[step][1]), "=r"(held[step][2]), "=r"(held[step][3])
                     : "r"(from)
                     : "memory");
    }
}

// Starts c = held rowsᵀ.
__device__ __forceinline__ void along_width(float (&c)[TILE / 8][4], const u32 (&held)[PADDED / 16][4], u32 rows) {
    const u64 right = describe(rows, 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < PADDED / 16; ++step)
        multiply<false>(T(), c, held[step], right + (step / 4 * (TILE * ROW_BYTES) + step % 4 * 32) / 16, step > 0);
    end_products();
}

// Results of `along_width`, rounded, as the left operand of `along_rows`.
__device__ __forceinline__ void pack(u32 (&weights)[TILE / 16][4], const float (&scores)[TILE / 8][4]) {
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            weights[j][i] = Halves<T>::of(scores[2 * j + i / 2][i % 2 * 2], scores[2 * j + i / 2][i % 2 * 2 + 1]);
}

// Starts sums += weights rows, of a tile's rows.
__device__ __forceinline__ void along_rows(float (&sums)[WIDE][4], const u32 (&weights)[TILE / 16][4], u32 rows) {
    const u64 right = describe(rows, TILE * ROW_BYTES);
    begin_products();
#pragma unroll
    for (int step = 0; step < TILE / 16; ++step)
        multiply<true>(T(), sums, weights[step], right + step * (16 * ROW_BYTES / 16), true);
    end_products();
}
