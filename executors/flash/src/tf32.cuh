// Products by the tensor cores in TF32, of f32 that is rounded and of f16, whose range nothing narrows.
//
// The tensor cores add along an index whose order does not matter as long as both operands have it the same. It is
// chosen so that each thread finds what it needs in 16 neighbouring bytes: along the width thread t of four takes
// elements 4 t to 4 t + 3 of every 16, and along rows the pair 2 t, 2 t + 1 of every 8, which is the layout of the
// results of the product before.
#include "fulgurite/vectors.cuh"

constexpr int STEPS = PADDED / 16;
constexpr int SPANS = PADDED / 32;

// The nearest number of TF32, ties away from zero. Elements of 16 bits are such numbers already.
__device__ __forceinline__ float rounded(float x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}
__device__ __forceinline__ float4 rounded(float4 x) {
    if constexpr (sizeof(T) == 2) return x;
    return make_float4(rounded(x.x), rounded(x.y), rounded(x.z), rounded(x.w));
}

// c += a b, with a 16 x 8, b 8 x 8. Of a the thread has rows g and g + 8 of elements t and t + 4, of b those elements
// of column g.
__device__ __forceinline__ void multiply_add(
    float (&c)[4], float a_top, float a_bottom, float a_top_next, float a_bottom_next, float b, float b_next) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a_top)), "r"(__float_as_uint(a_bottom)), "r"(__float_as_uint(a_top_next)),
                   "r"(__float_as_uint(a_bottom_next)), "r"(__float_as_uint(b)), "r"(__float_as_uint(b_next)));
}

// TILE rows in shared memory, in chunks of four elements. Two neighbouring rows read along the width, and four pairs of
// rows read across it, are in different banks.
struct Tile {
    static constexpr int BYTES = TILE * PADDED * 4;
    static constexpr int EACH = TILE * QUARTERS / THREADS;
    static_assert(TILE * QUARTERS % THREADS == 0, "every thread fills as much");
    float4* at;

    static __device__ __forceinline__ int row_of(int i) { return (threadIdx.x + i * THREADS) / QUARTERS; }
    static __device__ __forceinline__ int chunk_of(int i) { return (threadIdx.x + i * THREADS) % QUARTERS; }
    static __device__ __forceinline__ int place(int row, int chunk) {
        return row * QUARTERS + (chunk ^ (((row >> 1) & 3) << 1) ^ ((row & 1) << 2));
    }

    // The thread's part of the rows from `first` on, of which there are `count`; zeros beyond.
    static __device__ __forceinline__ void fetch(
        float4 (&held)[EACH], const T* rows, i64 stride, int first, int count) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            const int row = first + row_of(i);
            held[i] = row < count ? four(rows + row * stride, 4 * chunk_of(i)) : make_float4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void fill(const float4 (&held)[EACH]) const {
#pragma unroll
        for (int i = 0; i < EACH; ++i) at[place(row_of(i), chunk_of(i))] = rounded(held[i]);
    }
    __device__ __forceinline__ float4 chunk(int row, int chunk) const { return at[place(row, chunk)]; }
};

// A tile of each of two tensors. The next ones wait in registers while these are worked on; where registers are scarce
// they are asked for when these are done with.
template <bool AHEAD> struct Tiles {
    static constexpr int BYTES = 2 * Tile::BYTES;
    static constexpr bool EARLY = AHEAD;
    const Tile one, other;
    float4 next_one[Tile::EACH], next_other[Tile::EACH];

    __device__ __forceinline__ explicit Tiles(uint4* shared)
        : one{reinterpret_cast<float4*>(shared)}, other{reinterpret_cast<float4*>(shared) + TILE * QUARTERS} {}
    // Asks for rows from `first` on.
    __device__ __forceinline__ void ask(
        const T* of_one, i64 stride, const T* of_other, i64 other_stride, int first, int count) {
        Tile::fetch(next_one, of_one, stride, first, count);
        Tile::fetch(next_other, of_other, other_stride, first, count);
    }
    // What was asked for takes the place of the tiles before, with which all threads are done.
    __device__ __forceinline__ void arrive() {
        await_fetched();
        __syncthreads();
        one.fill(next_one);
        other.fill(next_other);
        __syncthreads();
    }
};

// 16 rows of a warp as the left operand: rows g and g + 8, chunk t of every 16 elements. In registers where the width
// leaves room, otherwise in shared memory, where each thread reads what it wrote itself.
template <bool KEPT> struct Left {
    static constexpr int BYTES = KEPT ? 0 : OWN * PADDED * 4;
    float4 held[KEPT ? STEPS : 1][2];
    float4* own;

    __device__ __forceinline__ Left(uint4* shared, const T* rows, i64 stride, const int (&at)[2], int count)
        : own(reinterpret_cast<float4*>(shared) + threadIdx.x) {
        const int t = threadIdx.x % 4;
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float4 x = make_float4(0, 0, 0, 0);
                if (at[half] < count) x = rounded(four(rows + at[half] * stride, 16 * step + 4 * t));
                if constexpr (KEPT) {
                    held[step][half] = x;
                } else {
                    own[(2 * step + half) * THREADS] = x;
                }
            }
    }
    __device__ __forceinline__ float4 get(int step, int half) const {
        if constexpr (KEPT) return held[step][half];
        return own[(2 * step + half) * THREADS];
    }
};

// c[j] += left rowsᵀ: column n of c[j] belongs to row 8 j + n of the tile.
template <bool KEPT>
__device__ __forceinline__ void along_width(float (&c)[TILE / 8][4], const Left<KEPT>& left, const Tile& rows) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const float4 top = left.get(step, 0), bottom = left.get(step, 1);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j) {
            const float4 b = rows.chunk(8 * j + g, 4 * step + t);
            multiply_add(c[j], top.x, bottom.x, top.y, bottom.y, b.x, b.y);
            multiply_add(c[j], top.z, bottom.z, top.w, bottom.w, b.z, b.w);
        }
    }
}

// c += weights rows, where weights are results of `along_width`, rounded. c[4 s + i] has in column n element 32 s + 4 n
// + i of the width: a thread has 8 neighbours of each span.
template <int BEGIN = 0>
__device__ __forceinline__ void along_rows(float (&c)[WIDE][4], const float (&weights)[TILE / 8][4], const Tile& rows) {
    static_assert(BEGIN == 0, "heads are in one part");
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        const float a[4] = {
            rounded(weights[j][0]), rounded(weights[j][2]), rounded(weights[j][1]), rounded(weights[j][3])};
#pragma unroll
        for (int span = 0; span < SPANS; ++span) {
            const float4 b = rows.chunk(8 * j + 2 * t, 8 * span + g);
            const float4 next = rows.chunk(8 * j + 2 * t + 1, 8 * span + g);
            multiply_add(c[4 * span], a[0], a[1], a[2], a[3], b.x, next.x);
            multiply_add(c[4 * span + 1], a[0], a[1], a[2], a[3], b.y, next.y);
            multiply_add(c[4 * span + 2], a[0], a[1], a[2], a[3], b.z, next.z);
            multiply_add(c[4 * span + 3], a[0], a[1], a[2], a[3], b.w, next.w);
        }
    }
}

// Writes what `along_rows` left of row g (half 0) or g + 8 (half 1), times a factor.
template <int BEGIN = 0>
__device__ __forceinline__ void write_row(T* row, const float (&c)[WIDE][4], int half, float factor) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int span = 0; span < SPANS; ++span)
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const int at = 32 * span + 8 * t + 4 * part;
            Pack<T, 4> pack;
#pragma unroll
            for (int i = 0; i < 4; ++i) pack.at[i] = narrow<T>(c[4 * span + i][2 * half + part] * factor);
            if constexpr (ALIGNED) {
                if (at < WIDTH) store<4>(row + at, pack);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (at + i < WIDTH) row[at + i] = pack.at[i];
            }
        }
}
