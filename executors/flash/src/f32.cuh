// Products in f32, without tensor cores and without rounding of operands: sums of fused products in the order of the
// rows and of the width.
//
// A thread has columns 2 t and 2 t + 1 of every 8 of rows g and g + 8, as the tensor cores leave them, so that the
// kernels are those of the other products. Rows in shared memory are chunks of four elements, in an order that brings
// those of neighbouring rows to different banks.
#include "fulgurite/copies.cuh"
#include "fulgurite/vectors.cuh"

constexpr int SPANS = PADDED / 16;

// TILE rows in shared memory.
struct Tile {
    static constexpr int BYTES = TILE * PADDED * 4;
    float4* at;

    static __device__ __forceinline__ int place(int row, int chunk) {
        return row * QUARTERS + (chunk ^ (row >> 1 & 3) ^ (row & 1) << 2);
    }
    // Rows from `first` on, of which there are `count`, are on their way; zeros beyond.
    __device__ __forceinline__ void fetch(const T* rows, i64 stride, int first, int count) const {
        static_assert(TILE * QUARTERS % THREADS == 0, "every thread fetches as much");
        constexpr int EACH = TILE * QUARTERS / THREADS;
#pragma unroll(ALIGNED ? EACH : 1)
        for (int i = 0; i < EACH; ++i) {
            const int row = (threadIdx.x + i * THREADS) / QUARTERS, chunk = (threadIdx.x + i * THREADS) % QUARTERS;
            const bool real = first + row < count;
            const T* from = rows + (real ? (first + row) * stride : 0);
            float4* to = at + place(row, chunk);
            if constexpr (ALIGNED) {
                const bool there = real && 4 * chunk < WIDTH;
                fetch_or_clear<16>(to, there ? from + 4 * chunk : rows, there);
            } else {
                *to = real ? four(from, 4 * chunk) : make_float4(0, 0, 0, 0);
            }
        }
    }
    __device__ __forceinline__ float4 chunk(int row, int chunk) const { return at[place(row, chunk)]; }
};

// A tile of each of two tensors, and room for the next ones, which are on their way while these are worked on.
template <bool AHEAD> struct Tiles {
    static constexpr int BYTES = 4 * Tile::BYTES;
    static constexpr bool EARLY = true;
    float4* const shared;
    int turn;
    Tile one, other;

    __device__ __forceinline__ explicit Tiles(uint4* shared)
        : shared(reinterpret_cast<float4*>(shared)), turn(0), one{this->shared}, other{this->shared} {}
    __device__ __forceinline__ float4* place_of(int index) const {
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

// 16 rows of a warp as the left operand, in shared memory; the four threads of a row read them all. Chunks of the rows
// of half a warp are in different banks.
template <bool KEPT> struct Left {
    static constexpr int BYTES = OWN * PADDED * 4;
    float4* own;

    static __device__ __forceinline__ int place(int row, int chunk) { return row * QUARTERS + (chunk ^ (row & 7)); }
    __device__ __forceinline__ Left(uint4* shared, const T* rows, i64 stride, const int (&at)[2], int count)
        : own(reinterpret_cast<float4*>(shared) + threadIdx.x / 32 * 16 * QUARTERS) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int chunk = t; chunk < QUARTERS; chunk += 4) {
                float4 x = make_float4(0, 0, 0, 0);
                if (at[half] < count) x = four(rows + at[half] * stride, 4 * chunk);
                own[place(g + 8 * half, chunk)] = x;
            }
        __syncwarp();
    }
    __device__ __forceinline__ float4 get(int row, int chunk) const { return own[place(row, chunk)]; }
};

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum))));
}

// c[j] += left rowsᵀ: column n of c[j] belongs to row 8 j + n of the tile.
template <bool KEPT>
__device__ __forceinline__ void along_width(float (&c)[TILE / 8][4], const Left<KEPT>& left, const Tile& rows) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // Wide heads leave no registers for two chunks at once.
#pragma unroll(PADDED > 64 ? 1 : 2)
    for (int chunk = 0; chunk < QUARTERS; ++chunk) {
        const float4 top = left.get(g, chunk), bottom = left.get(g + 8, chunk);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float4 b = rows.chunk(8 * j + 2 * t + i, chunk);
                c[j][i] = dot(top, b, c[j][i]);
                c[j][2 + i] = dot(bottom, b, c[j][2 + i]);
            }
    }
}

// c += weights rows, where weights are results of `along_width`. c[2 s + p] has in columns i elements 16 s + 4 t + 2 p
// + i of the width: a thread has a chunk of each span.
template <int BEGIN = 0>
__device__ __forceinline__ void along_rows(float (&c)[WIDE][4], const float (&weights)[TILE / 8][4], const Tile& rows) {
    static_assert(BEGIN == 0, "heads are in one part");
    const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
        for (int column = 0; column < 8; ++column) {
            // The thread of the row that has the column's weights.
            const int source = (lane & ~3) | column / 2;
            const float top = __shfl_sync(0xffffffffu, weights[j][column % 2], source);
            const float bottom = __shfl_sync(0xffffffffu, weights[j][2 + column % 2], source);
#pragma unroll
            for (int span = 0; span < SPANS; ++span) {
                const float4 b = rows.chunk(8 * j + column, 4 * span + t);
                float(&low)[4] = c[2 * span], (&high)[4] = c[2 * span + 1];
                low[0] = __fmaf_rn(top, b.x, low[0]);
                low[1] = __fmaf_rn(top, b.y, low[1]);
                low[2] = __fmaf_rn(bottom, b.x, low[2]);
                low[3] = __fmaf_rn(bottom, b.y, low[3]);
                high[0] = __fmaf_rn(top, b.z, high[0]);
                high[1] = __fmaf_rn(top, b.w, high[1]);
                high[2] = __fmaf_rn(bottom, b.z, high[2]);
                high[3] = __fmaf_rn(bottom, b.w, high[3]);
            }
        }
}

// Writes what `along_rows` left of row g (half 0) or g + 8 (half 1), times a factor.
template <int BEGIN = 0>
__device__ __forceinline__ void write_row(T* row, const float (&c)[WIDE][4], int half, float factor) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int span = 0; span < SPANS; ++span) {
        const int at = 16 * span + 4 * t;
        Pack<T, 4> pack;
#pragma unroll
        for (int i = 0; i < 4; ++i) pack.at[i] = c[2 * span + i / 2][2 * half + i % 2] * factor;
        if constexpr (ALIGNED) {
            if (at < WIDTH) store<4>(row + at, pack);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (at + i < WIDTH) row[at + i] = pack.at[i];
        }
    }
}
