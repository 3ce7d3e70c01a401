// Rows of COLUMNS elements of type T that fit registers: a block goes from row to row, and the next one is on its way
// while it works.
typedef KeptRow<COLUMNS, PACK, GROUP> Row;

constexpr int STEPS = Row::STEPS;
constexpr int ROWS = THREADS / GROUP;

// The elements of a row that the thread has, as they are in memory.
struct Held {
    Pack<T, PACK> packs[STEPS];
    __device__ __forceinline__ void take(const T* row) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
            if (Row::has(s)) packs[s] = load_anywhere<PACK, ALIGNED>(row + Row::column(s));
    }
    __device__ __forceinline__ float at(int s, int i) const { return widen(packs[s].at[i]); }
};

// Threads without a row take part in the sums with the last one.
__device__ __forceinline__ u64 row_of(u64 first, u64 rows) {
    const u64 own = first + threadIdx.x / GROUP;
    return own < rows ? own : rows - 1;
}
