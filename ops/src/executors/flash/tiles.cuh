// What the kernels of attention share: products of 16 x 8 tiles by the tensor cores in TF32, tiles of rows in shared memory that
// can be read both ways, and places in tensors of heads.
//
// The tensor cores add along an index whose order does not matter as long as both operands have it the same. It is chosen so
// that each thread finds what it needs in 16 neighbouring bytes: along the width thread t of four takes elements 4 t to 4 t + 3 of
// every 16, and along rows the pair 2 t, 2 t + 1 of every 8, which is how the results of the product before lie.

typedef ELEMENT T;

// A block is WARPS warps, each with 16 rows of its own; it goes over the other side's rows by tiles of TILE.
constexpr int THREADS = 32 * WARPS;
constexpr int OWN = 16 * WARPS;
// The width with zeros behind it: 32, 64 or 128.
constexpr int CHUNKS = PADDED / 4;
constexpr int STEPS = PADDED / 16;
constexpr int SPANS = PADDED / 32;

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

// How the elements of [batch, heads, rows, WIDTH] lie; along the width they are neighbours.
struct Strides {
    i64 batch, head, row;
};

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

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

// c += a b, with a 16 x 8, b 8 x 8. Of a the thread has rows g and g + 8 (g = lane / 4) of elements t and t + 4 (t = lane % 4), of
// b those elements of column g, of c columns 2 t and 2 t + 1 of both rows.
__device__ __forceinline__ void multiply_add(
    float (&c)[4], float a_top, float a_bottom, float a_top_next, float a_bottom_next, float b, float b_next) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a_top)), "r"(__float_as_uint(a_bottom)), "r"(__float_as_uint(a_top_next)),
                   "r"(__float_as_uint(a_bottom_next)), "r"(__float_as_uint(b)), "r"(__float_as_uint(b_next)));
}

// Four elements of a row from `at` on; zeros behind the width.
__device__ __forceinline__ float4 four(const T* row, int at) {
    float x[4] = {0, 0, 0, 0};
    if constexpr (ALIGNED) {
        if (at < WIDTH) {
            const Pack<T, 4> pack = Pack<T, 4>::load(row + at);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] = widen(pack.at[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (at + i < WIDTH) x[i] = widen(row[at + i]);
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

// Where chunk `chunk` (four elements) of a row lies in a tile. Two neighbouring rows read along the width, and four pairs of
// rows read across it, are in different banks.
__device__ __forceinline__ int place(int row, int chunk) {
    return row * CHUNKS + (chunk ^ (((row >> 1) & 3) << 1) ^ ((row & 1) << 2));
}

// Rows in shared memory.
template <int ROWS> struct Tile {
    static constexpr int EACH = ROWS * CHUNKS / THREADS;
    static_assert(ROWS * CHUNKS % THREADS == 0, "every thread fills as much");
    float4* at;

    static __device__ __forceinline__ int row_of(int i) { return (threadIdx.x + i * THREADS) / CHUNKS; }
    static __device__ __forceinline__ int chunk_of(int i) { return (threadIdx.x + i * THREADS) % CHUNKS; }

    // The thread's part of `ROWS` rows from `first` on, of which there are `count`; zeros beyond.
    static __device__ __forceinline__ void fetch(float4 (&held)[EACH], const T* rows, i64 stride, int first, int count) {
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

// 16 rows of a warp as the left operand: rows g and g + 8, chunk t of every 16 elements. In registers where the width leaves
// room, otherwise in shared memory.
template <bool KEPT> struct Left;
template <> struct Left<true> {
    static constexpr int BYTES = 0;
    float4 top[STEPS], bottom[STEPS];
    __device__ __forceinline__ explicit Left(float4*) {}
    __device__ __forceinline__ void set(int step, float4 upper, float4 lower) {
        top[step] = rounded(upper);
        bottom[step] = rounded(lower);
    }
    __device__ __forceinline__ void get(int step, float4& upper, float4& lower) const {
        upper = top[step];
        lower = bottom[step];
    }
};
template <> struct Left<false> {
    static constexpr int BYTES = OWN * PADDED * 4;
    float4* own;
    // Each thread reads what it wrote itself.
    __device__ __forceinline__ explicit Left(float4* shared) : own(shared + threadIdx.x) {}
    __device__ __forceinline__ void set(int step, float4 upper, float4 lower) {
        own[2 * step * THREADS] = rounded(upper);
        own[(2 * step + 1) * THREADS] = rounded(lower);
    }
    __device__ __forceinline__ void get(int step, float4& upper, float4& lower) const {
        upper = own[2 * step * THREADS];
        lower = own[(2 * step + 1) * THREADS];
    }
};

// c[j] += left rowsᵀ: column n of c[j] belongs to row 8 j + n of the tile.
template <bool KEPT, int ROWS, int N>
__device__ __forceinline__ void along_width(float (&c)[N][4], const Left<KEPT>& left, const Tile<ROWS>& rows) {
    static_assert(8 * N == ROWS, "a column for each row");
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        float4 top, bottom;
        left.get(step, top, bottom);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const float4 b = rows.chunk(8 * j + g, 4 * step + t);
            multiply_add(c[j], top.x, bottom.x, top.y, bottom.y, b.x, b.y);
            multiply_add(c[j], top.z, bottom.z, top.w, bottom.w, b.z, b.w);
        }
    }
}

// c += weights rows, where weights are results of `along_width`, rounded. c[4 s + i] has in column n element 32 s + 4 n + i of the
// width: a thread has 8 neighbours of each span.
template <int ROWS, int N, int WIDE>
__device__ __forceinline__ void along_rows(float (&c)[WIDE][4], const float (&weights)[N][4], const Tile<ROWS>& rows) {
    static_assert(8 * N == ROWS && 4 * SPANS == WIDE, "a row for each column, an element for each column");
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const float a[4] = {rounded(weights[j][0]), rounded(weights[j][2]), rounded(weights[j][1]), rounded(weights[j][3])};
#pragma unroll
        for (int span = 0; span < SPANS; ++span) {
            const float4 b = rows.chunk(8 * j + 2 * t, 8 * span + g), next = rows.chunk(8 * j + 2 * t + 1, 8 * span + g);
            multiply_add(c[4 * span], a[0], a[1], a[2], a[3], b.x, next.x);
            multiply_add(c[4 * span + 1], a[0], a[1], a[2], a[3], b.y, next.y);
            multiply_add(c[4 * span + 2], a[0], a[1], a[2], a[3], b.z, next.z);
            multiply_add(c[4 * span + 3], a[0], a[1], a[2], a[3], b.w, next.w);
        }
    }
}

// Writes what `along_rows` left of row g (half 0) or g + 8 (half 1), times a factor.
template <int WIDE>
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
                if (at < WIDTH) pack.store(row + at);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (at + i < WIDTH) row[at + i] = pack.at[i];
            }
        }
}

// Over the four threads that have parts of one row.
__device__ __forceinline__ float over_row(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float top_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

template <int N> __device__ __forceinline__ void clear(float (&c)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[j][i] = 0;
}
