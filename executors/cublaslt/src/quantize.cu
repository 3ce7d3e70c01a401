// Matrices as numbers of 8 bits and a factor: the largest number, or what is expected to be it (DELAYED), becomes the
// largest of the format.
#include "fulgurite/reductions.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

// The bits of the largest absolute value, which are ordered as the values are. Those of no number are above all.
struct Largest {
    static __device__ __forceinline__ u32 combine(u32 x, u32 y) { return x > y ? x : y; }
};
__device__ __forceinline__ u32 size_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

constexpr int EACH = 4;

// The largest of each block's elements; DELAYED: of all elements, and of what is there.
extern "C" __global__ void __launch_bounds__(THREADS) largest(const T* x, u64 count, u32* partial) {
    __shared__ u32 scratch[32];
    u32 own = 0;
    const u64 whole = ALIGNED ? count / PACK * PACK : 0, step = (u64)gridDim.x * THREADS * PACK;
    for (u64 first = ((u64)blockIdx.x * THREADS + threadIdx.x) * PACK; first < whole; first += EACH * step) {
        float held[EACH][PACK];
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * step;
            if (at < whole) {
                read<PACK, true>(x + at, held[u]);
            } else {
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[u][i] = 0;
            }
        }
#pragma unroll
        for (int u = 0; u < EACH; ++u)
#pragma unroll
            for (int i = 0; i < PACK; ++i) own = Largest::combine(own, size_bits(held[u][i]));
    }
    for (u64 at = whole + (u64)blockIdx.x * THREADS + threadIdx.x; at < count; at += (u64)gridDim.x * THREADS)
        own = Largest::combine(own, size_bits(widen(x[at])));
    own = block_reduce<Largest, u32>(own, scratch, 0u);
#if DELAYED
    if (threadIdx.x == 0) atomicMax(partial, own);
#else
    if (threadIdx.x == 0) partial[blockIdx.x] = own;
#endif
}

// Two numbers rounded to nearest, to the largest finite number at most; the first is in the low byte. Architectures
// before sm_89 have no such numbers, and only look for the largest one.
__device__ __forceinline__ u16 narrow_two(float first, float second) {
    u16 both = 0;
#if __CUDA_ARCH__ < 890
#elif E5M2
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
#else
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(second), "f"(first));
#endif
    return both;
}

constexpr int TILE = 64, GROUPS = THREADS / 16;

// A tile of TILE x TILE elements: written as it is if `plain` is given, and transposed if `transposed` is. Rows and
// columns are multiples of 16. `factor` is what elements are multiplied by to give what they were. DELAYED: `seen`, if
// it is given, becomes the largest of it and of all elements.
extern "C" __global__ void __launch_bounds__(THREADS) quantize(
    const T* x, u64 rows, u64 columns,
#if DELAYED
    const float* expected, u32* seen,
#else
    const u32* partial, u32 partials,
#endif
    u8* plain, u8* transposed, float* factor) {
    __shared__ u32 scratch[32];
    // Padded, so that columns are in different banks.
    __shared__ u8 tile[TILE][TILE + 4];
    u32 own = 0;
#if DELAYED
    const float size = *expected;
#else
    for (u32 i = threadIdx.x; i < partials; i += THREADS) own = Largest::combine(own, partial[i]);
    const float size = __uint_as_float(block_reduce<Largest, u32>(own, scratch, 0u));
#endif
    // Of zeros the factor is one. Of tiny numbers the scale would be infinite.
    const float most = 3.402823466e38f, wanted = size > 0 ? LARGEST / size : 1.0f;
    const float scale = wanted <= most ? wanted : most;
    // What is infinite or no number must not look like the largest number: all results become so.
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *factor = size <= most ? 1.0f / scale : size;
    const u64 row0 = (u64)blockIdx.x * TILE, column0 = (u64)blockIdx.y * TILE;
    const int column = threadIdx.x % 16 * 4, group = threadIdx.x / 16;
    for (int row = group; row < TILE; row += GROUPS) {
        if (row0 + row >= rows || column0 + column >= columns) continue;
        const u64 at = (row0 + row) * columns + column0 + column;
        float held[4];
        read<4, ALIGNED>(x + at, held);
#if DELAYED
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 bits = size_bits(held[i]);
            own = Largest::combine(own, bits);
            // What is infinite would become the largest number.
            if (bits >= 0x7f800000u) held[i] = __uint_as_float(0x7fffffffu);
        }
#endif
        const u32 four = (u32)narrow_two(held[0] * scale, held[1] * scale) |
            ((u32)narrow_two(held[2] * scale, held[3] * scale) << 16);
        if (plain) *reinterpret_cast<u32*>(plain + at) = four;
        *reinterpret_cast<u32*>(&tile[row][column]) = four;
    }
#if DELAYED
    if (seen) {
        own = block_reduce<Largest, u32>(own, scratch, 0u);
        if (threadIdx.x == 0) atomicMax(seen, own);
    }
#endif
    if (!transposed) return;
    __syncthreads();
    for (int line = group; line < TILE; line += GROUPS) {
        if (column0 + line >= columns || row0 + column >= rows) continue;
        u32 four = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) four |= (u32)tile[column + i][line] << (8 * i);
        *reinterpret_cast<u32*>(transposed + (column0 + line) * rows + row0 + column) = four;
    }
}
