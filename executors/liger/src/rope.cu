// Rotary position embedding of queries and keys in one launch. A thread has PACK neighbouring columns of the first half
// of the rotated width, and those of the second half that are rotated with them, at one position of the tables; it goes
// along SHARED rows, up to EACH of them, which all are rotated by the same angles, and reads cosines and sines once.
// INVERSE rotates back. Columns behind the ROTATED ones are copied. Results may overwrite operands: each thread reads
// the elements of its rows before it writes them, and no other thread has them.
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

constexpr int HALF = ROTATED / 2;
constexpr int PAIRS = HALF / PACK;
constexpr int UNITS = PAIRS + (WIDTH - ROTATED) / PACK;
// Rows that are on their way together.
constexpr int AHEAD = 2;

// Where rows are: `from` and `to` of a position, and of a row of those that share it; the steps from column to column.
struct Query {
    static constexpr i64 FROM_STEP = QUERY_FROM_STEP, TO_STEP = QUERY_TO_STEP;
    static constexpr u64 POSITIONS = QUERY_POSITIONS, SHARED = QUERY_SHARED;
    static __device__ __forceinline__ i64 from(INDEX at) { return QUERY_FROM(at); }
    static __device__ __forceinline__ i64 to(INDEX at) { return QUERY_TO(at); }
    static __device__ __forceinline__ i64 cos(INDEX at) { return QUERY_COS(at); }
    static __device__ __forceinline__ i64 sin(INDEX at) { return QUERY_SIN(at); }
    static __device__ __forceinline__ i64 from_shared(INDEX at) { return QUERY_FROM_SHARED(at); }
    static __device__ __forceinline__ i64 to_shared(INDEX at) { return QUERY_TO_SHARED(at); }
};
struct Key {
    static constexpr i64 FROM_STEP = KEY_FROM_STEP, TO_STEP = KEY_TO_STEP;
    static constexpr u64 POSITIONS = KEY_POSITIONS, SHARED = KEY_SHARED;
    static __device__ __forceinline__ i64 from(INDEX at) { return KEY_FROM(at); }
    static __device__ __forceinline__ i64 to(INDEX at) { return KEY_TO(at); }
    static __device__ __forceinline__ i64 cos(INDEX at) { return KEY_COS(at); }
    static __device__ __forceinline__ i64 sin(INDEX at) { return KEY_SIN(at); }
    static __device__ __forceinline__ i64 from_shared(INDEX at) { return KEY_FROM_SHARED(at); }
    static __device__ __forceinline__ i64 to_shared(INDEX at) { return KEY_TO_SHARED(at); }
};

template <i64 STEP> __device__ __forceinline__ void factors(const TABLE* table, int column, float (&to)[PACK]) {
    if constexpr (STEP == 1) {
        read<PACK, TABLE_ALIGNED>(table + column, to);
    } else {
#pragma unroll
        for (int i = 0; i < PACK; ++i) to[i] = widen(table[(column + i) * STEP]);
    }
}


template <typename Place>
__device__ __forceinline__ void turn(
    const T* x, T* out, const TABLE* __restrict__ cos, const TABLE* __restrict__ sin,
    u64 index, u32 piece) {
    const INDEX position = index / UNITS;
    const int unit = index % UNITS;
    if (position >= Place::POSITIONS) return;
    x += Place::from(position);
    out += Place::to(position);
    const u64 first = (u64)piece * EACH, after = first + EACH < Place::SHARED ? first + EACH : Place::SHARED;
    if (unit >= PAIRS) {
        const int column = ROTATED + (unit - PAIRS) * PACK;
        for (u64 row = first; row < after; ++row) {
            const Pack<T, PACK> kept = load<PACK>(x + Place::from_shared(row) + column * Place::FROM_STEP);
            store<PACK>(out + Place::to_shared(row) + column * Place::TO_STEP, kept);
        }
        return;
    }
    const int column = unit * PACK;
    float c1[PACK], c2[PACK], a1[PACK], a2[PACK];
    factors<COS_STEP>(cos + Place::cos(position), column, c1);
    factors<COS_STEP>(cos + Place::cos(position), column + HALF, c2);
    // The transpose exchanges the factors beside the diagonal.
    factors<SIN_STEP>(sin + Place::sin(position), INVERSE ? column + HALF : column, a1);
    factors<SIN_STEP>(sin + Place::sin(position), INVERSE ? column : column + HALF, a2);
#pragma unroll
    for (int i = 0; i < PACK; ++i) {
        a1[i] = INVERSE ? a1[i] : -a1[i];
        a2[i] = INVERSE ? -a2[i] : a2[i];
    }
    for (u64 row = first; row < after; row += AHEAD) {
        Pack<T, PACK> x1[AHEAD], x2[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; ++n)
            if (row + n < after) {
                const T* const from = x + Place::from_shared(row + n);
                x1[n] = load<PACK>(from + column * Place::FROM_STEP);
                x2[n] = load<PACK>(from + (column + HALF) * Place::FROM_STEP);
            }
#pragma unroll
        for (int n = 0; n < AHEAD; ++n)
            if (row + n < after) {
                float y1[PACK], y2[PACK];
#pragma unroll
                for (int i = 0; i < PACK; ++i) {
                    const float first = widen(x1[n].at[i]), second = widen(x2[n].at[i]);
                    y1[i] = __fmaf_rn(first, c1[i], second * a1[i]);
                    y2[i] = __fmaf_rn(second, c2[i], first * a2[i]);
                }
                T* const y = out + Place::to_shared(row + n);
                write<PACK, true>(y + column * Place::TO_STEP, y1);
                write<PACK, true>(y + (column + HALF) * Place::TO_STEP, y2);
            }
    }
}

// BLOCKS blocks have all positions of a piece of the rows; the first QUERY_PIECES pieces are those of queries.
extern "C" __global__ void __launch_bounds__(THREADS)
    rope(const T* q, const T* k, const TABLE* cos, const TABLE* sin, T* query, T* key) {
    const u32 piece = blockIdx.x / BLOCKS;
    const u64 index = (u64)(blockIdx.x % BLOCKS) * THREADS + threadIdx.x;
    if (piece < QUERY_PIECES) {
        turn<Query>(q, query, cos, sin, index, piece);
    } else {
        turn<Key>(k, key, cos, sin, index, piece - QUERY_PIECES);
    }
}
