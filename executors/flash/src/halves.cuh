// Products by the tensor cores of elements of 16 bits: operands as they are, sums in f32. Weights and gradients of
// scores, results of a product in f32, are rounded before they are multiplied.
//
// A tile is read by `ldmatrix`, which gives each thread two neighbours along the width of one row, or, transposed, of
// two rows at one place of the width: both ways are what the multiplication wants of its right operand. Rows are chunks
// of 8 elements, in an order that brings those of 8 neighbouring rows to different banks.
#include "fulgurite/copies.cuh"
#include "fulgurite/elements.cuh"

// Results may begin anywhere where operands do not.
#ifndef RESULTS_ALIGNED
#define RESULTS_ALIGNED ALIGNED
#endif

constexpr int STEPS = PADDED / 16;
constexpr int CHUNKS = PADDED / 8;

// c += a b, with a 16 x 16, b 16 x 8. Of a the thread has elements 2 t and 2 t + 1 of rows g and g + 8, then elements 8
// further; of b elements 2 t and 2 t + 1 of column g, then 8 further.
#define MULTIPLY_ADD(TYPE, OF_TYPE) \
    __device__ __forceinline__ void multiply_add(OF_TYPE, float (&c)[4], const u32 (&a)[4], u32 b, u32 b_next) { \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, " \
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(b_next)); \
    }
MULTIPLY_ADD("bf16", bf16)
MULTIPLY_ADD("f16", f16)

// TILE rows in shared memory.
struct Tile {
    static constexpr int BYTES = TILE * PADDED * 2;
    uint4* at;

    static __device__ __forceinline__ int place(int row, int chunk) {
        return row * CHUNKS + (chunk ^ (CHUNKS == 4 ? row >> 1 & 3 : row & 7));
    }
    // Rows from `first` on, of which there are `count`, are on their way; zeros beyond.
    __device__ __forceinline__ void fetch(const T* rows, i64 stride, int first, int count) const {
        static_assert(TILE * CHUNKS % THREADS == 0, "every thread fetches as much");
        constexpr int EACH = TILE * CHUNKS / THREADS;
        // Elements that are read one by one take registers, which the widest heads do not leave for several chunks at
        // once.
#pragma unroll(ALIGNED ? EACH : 1)
        for (int i = 0; i < EACH; ++i) {
            const int row = (threadIdx.x + i * THREADS) / CHUNKS, chunk = (threadIdx.x + i * THREADS) % CHUNKS;
            const bool real = first + row < count;
            const T* from = rows + (real ? (first + row) * stride : 0);
            uint4* to = at + place(row, chunk);
            if constexpr (ALIGNED) {
                const bool there = real && 8 * chunk < WIDTH;
                fetch_or_clear<16>(to, there ? from + 8 * chunk : rows, there);
            } else {
                unsigned short bits[8];
#pragma unroll
                for (int e = 0; e < 8; ++e) bits[e] = real && 8 * chunk + e < WIDTH ? from[8 * chunk + e].bits : 0;
                auto pair = [&](int e) { return bits[e] | (u32)bits[e + 1] << 16; };
                *to = make_uint4(pair(0), pair(2), pair(4), pair(6));
            }
        }
    }
    // Two chunks of each of 16 rows, as they are: the first 8 rows' two, then the others'.
    __device__ __forceinline__ void read(u32 (&bits)[4], int row, int chunk) const {
        const int lane = threadIdx.x % 32;
        const uint4* from = at + place(row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                     : "r"((u32)__cvta_generic_to_shared(from))
                     : "memory");
    }
    // The same transposed: the first chunk of both 8 rows, then the second's.
    __device__ __forceinline__ void read_across(u32 (&bits)[4], int row, int chunk) const {
        const int lane = threadIdx.x % 32;
        const uint4* from = at + place(row + lane / 8 % 2 * 8 + lane % 8, chunk + lane / 16);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                     : "r"((u32)__cvta_generic_to_shared(from))
                     : "memory");
    }
};

// A tile of each of two tensors, and room for the next ones, which are on their way while these are worked on.
template <bool AHEAD> struct Tiles {
    static constexpr int BYTES = 4 * Tile::BYTES;
    static constexpr bool EARLY = true;
    uint4* const shared;
    int turn;
    Tile one, other;

    __device__ __forceinline__ explicit Tiles(uint4* shared) : shared(shared), turn(0), one{shared}, other{shared} {}
    __device__ __forceinline__ uint4* place_of(int index) const {
        return shared + (2 * turn + index) * (Tile::BYTES / 16);
    }
    // Asks for rows from `first` on.
    __device__ __forceinline__ void ask(
        const T* of_one, i64 stride, const T* of_other, i64 other_stride, int first, int count) {
        Tile{place_of(0)}.fetch(of_one, stride, first, count);
        Tile{place_of(1)}.fetch(of_other, other_stride, first, count);
    }
    // What was asked for is there, and all threads are done with the tiles before.
    __device__ __forceinline__ void arrive() {
        await_fetched();
        __syncthreads();
        one.at = place_of(0);
        other.at = place_of(1);
        turn ^= 1;
    }
};

// 16 rows of a warp as the left operand. In registers where the width leaves room, otherwise in shared memory, where
// each thread reads what it wrote itself.
template <bool KEPT> struct Left {
    static constexpr int BYTES = KEPT ? 0 : OWN * PADDED * 2;
    u32 held[KEPT ? STEPS : 1][4];
    uint4* own;

    __device__ __forceinline__ Left(uint4* shared, const T* rows, i64 stride, const int (&at)[2], int count)
        : own(shared + threadIdx.x) {
        const int t = threadIdx.x % 4;
        // Rows that are too wide for registers are read eight steps at a time.
#pragma unroll(KEPT ? STEPS : 8)
        for (int step = 0; step < STEPS; ++step) {
            u32 bits[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = at[i % 2], first = 16 * step + 8 * (i / 2) + 2 * t;
                const T* from = rows + row * stride + first;
                if constexpr (ALIGNED) {
                    bits[i] = row < count && first < WIDTH ? *reinterpret_cast<const u32*>(from) : 0;
                } else {
                    bits[i] = row < count && first < WIDTH ? from[0].bits : 0;
                    if (row < count && first + 1 < WIDTH) bits[i] |= (u32)from[1].bits << 16;
                }
                if constexpr (KEPT) held[step][i] = bits[i];
            }
            if constexpr (!KEPT) own[step * THREADS] = make_uint4(bits[0], bits[1], bits[2], bits[3]);
        }
    }
    __device__ __forceinline__ void get(int step, u32 (&bits)[4]) const {
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < 4; ++i) bits[i] = held[step][i];
        } else {
            const uint4 all = own[step * THREADS];
            bits[0] = all.x, bits[1] = all.y, bits[2] = all.z, bits[3] = all.w;
        }
    }
};

// c[j] += left rowsᵀ: column n of c[j] belongs to row 8 j + n of the tile.
template <bool KEPT>
__device__ __forceinline__ void along_width(float (&c)[TILE / 8][4], const Left<KEPT>& left, const Tile& rows) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        u32 a[4];
        left.get(step, a);
#pragma unroll
        for (int j = 0; j < TILE / 8; j += 2) {
            u32 b[4];
            rows.read(b, 8 * j, 2 * step);
            multiply_add(T(), c[j], a, b[0], b[1]);
            multiply_add(T(), c[j + 1], a, b[2], b[3]);
        }
    }
}

// c += weights rows, where weights are results of `along_width`. Column n of c[j] is element 8 (j + BEGIN) + n of the
// width.
template <int BEGIN = 0, int N>
__device__ __forceinline__ void along_rows(float (&c)[N][4], const float (&weights)[TILE / 8][4], const Tile& rows) {
#pragma unroll
    for (int j = 0; j < TILE / 8; j += 2) {
        auto pair = [&](int j, int i) { return Halves<T>::of(weights[j][i], weights[j][i + 1]); };
        const u32 a[4] = {pair(j, 0), pair(j, 2), pair(j + 1, 0), pair(j + 1, 2)};
#pragma unroll
        for (int chunk = 0; chunk < N; chunk += 2) {
            u32 b[4];
            rows.read_across(b, 8 * j, BEGIN + chunk);
            multiply_add(T(), c[chunk], a, b[0], b[1]);
            multiply_add(T(), c[chunk + 1], a, b[2], b[3]);
        }
    }
}

// Writes what `along_rows` left of row g (half 0) or g + 8 (half 1), times a factor.
template <int BEGIN = 0, int N>
__device__ __forceinline__ void write_row(T* row, const float (&c)[N][4], int half, float factor) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int chunk = 0; chunk < N; ++chunk) {
        const int at = 8 * (BEGIN + chunk) + 2 * t;
        const float low = c[chunk][2 * half] * factor, high = c[chunk][2 * half + 1] * factor;
        if constexpr (RESULTS_ALIGNED) {
            if (at < WIDTH) *reinterpret_cast<u32*>(row + at) = Halves<T>::of(low, high);
        } else {
            if (at < WIDTH) row[at] = narrow<T>(low);
            if (at + 1 < WIDTH) row[at + 1] = narrow<T>(high);
        }
    }
}
