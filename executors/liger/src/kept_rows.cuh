// Rows of COLUMNS elements of type T that fit registers. A block goes from row to row.
typedef KeptRow<COLUMNS, PACK, GROUP> Row;

constexpr int STEPS = Row::STEPS;
constexpr int ROWS = THREADS / GROUP;

// Words of one element of 32 bits, or of two of 16.
template <typename E> struct Words {
    static __device__ __forceinline__ float at(u32 word, int half) {
        E element;
        element.bits = (u16)(word >> (16 * half));
        return widen(element);
    }
    static __device__ __forceinline__ u32 sum(u32 a, u32 b) {
        return Halves<E>::of(at(a, 0) + at(b, 0), at(a, 1) + at(b, 1));
    }
};
template <> struct Words<float> {
    static __device__ __forceinline__ float at(u32 word, int) { return __uint_as_float(word); }
    static __device__ __forceinline__ u32 sum(u32 a, u32 b) { return __float_as_uint(at(a, 0) + at(b, 0)); }
};

// The elements of a row that the thread has, as they are in memory: in words, so that those of 16 bits take half a
// register each, and nothing waits for them before they are used.
struct Held {
    static constexpr int PER_WORD = 4 / (int)sizeof(T);
    static constexpr int WORDS = (PACK * (int)sizeof(T) + 3) / 4;
    u32 words[STEPS][WORDS];

    template <bool IS_ALIGNED> __device__ __forceinline__ void read_pack(int s, const T* from) {
        const Pack<T, PACK> pack = load_anywhere<PACK, IS_ALIGNED>(from);
        if constexpr (sizeof(pack) < 4) {
            words[s][0] = *reinterpret_cast<const u16*>(&pack);
        } else {
#pragma unroll
            for (int w = 0; w < WORDS; ++w) words[s][w] = reinterpret_cast<const u32*>(&pack)[w];
        }
    }
    __device__ __forceinline__ float at(int s, int i) const {
        return PER_WORD == 1 ? Words<T>::at(words[s][i], 0) : Words<T>::at(words[s][i / 2], i % 2);
    }
    // What was computed of them is computed again from here on: the compiler would keep two elements in two registers.
    __device__ __forceinline__ void forget() {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int w = 0; w < WORDS; ++w) asm volatile("" : "+r"(words[s][w]));
    }
    // Adds those of another row; the sums have the precision of the elements.
    __device__ __forceinline__ void add(const Held& other) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int w = 0; w < WORDS; ++w) words[s][w] = Words<T>::sum(words[s][w], other.words[s][w]);
    }
};

// A block works on a row for each of its groups in a turn.
__device__ __forceinline__ INDEX first_row() { return (INDEX)blockIdx.x * ROWS; }
__device__ __forceinline__ INDEX rows_of_a_turn() { return (INDEX)gridDim.x * ROWS; }

// Whether the thread has a row in the turn that begins at `first`.
__device__ __forceinline__ bool has_row(INDEX first, INDEX rows) { return first + threadIdx.x / GROUP < rows; }

// Its number; threads without a row take part in the sums with the last one.
__device__ __forceinline__ INDEX row_of(INDEX first, INDEX rows) {
    const INDEX own = first + threadIdx.x / GROUP;
    return own < rows ? own : rows - 1;
}

// Rows of OPERANDS tensors on their way to shared memory, DEPTH turns ahead: each thread fetches the packs that it
// reads itself, so that nobody waits for others. With a DEPTH of 0 they are read when they are needed.
template <int OPERANDS> struct Ahead {
    static constexpr int OF_A_ROW = STEPS * THREADS * PACK;
    T* const fetched;
    INDEX rows;
    int stage;

    __device__ __forceinline__ Ahead(unsigned char* shared, INDEX rows)
        : fetched(reinterpret_cast<T*>(shared)), rows(rows), stage(0) {}

    __device__ __forceinline__ T* place(int stage, int operand, int s) const {
        return fetched + (stage * OPERANDS + operand) * OF_A_ROW + (s * THREADS + (int)threadIdx.x) * PACK;
    }
    __device__ __forceinline__ void ask(INDEX first, int stage, const T* const (&tensors)[OPERANDS]) const {
        if constexpr (DEPTH > 0) {
            if (first < rows) {
                const u64 start = (u64)row_of(first, rows) * COLUMNS;
#pragma unroll
                for (int operand = 0; operand < OPERANDS; ++operand)
#pragma unroll
                    for (int s = 0; s < STEPS; ++s)
                        if (Row::has(s))
                            fetch<ALIGNED>(place(stage, operand, s), tensors[operand] + start + Row::column(s));
            }
            end_batch();
        }
    }
    __device__ __forceinline__ void begin(const T* const (&tensors)[OPERANDS]) const {
#pragma unroll
        for (int turn = 0; turn < DEPTH; ++turn) ask(first_row() + turn * rows_of_a_turn(), turn, tensors);
    }
    // The row of the turn that begins at `first`; asks for that of the turn DEPTH later.
    __device__ __forceinline__ void take(INDEX first, const T* const (&tensors)[OPERANDS], Held (&held)[OPERANDS]) {
        if constexpr (DEPTH > 0) await_all_but<(DEPTH > 0 ? DEPTH - 1 : 0)>();
        const u64 start = (u64)row_of(first, rows) * COLUMNS;
#pragma unroll
        for (int operand = 0; operand < OPERANDS; ++operand)
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                if (Row::has(s)) {
                    if constexpr (DEPTH > 0) {
                        held[operand].template read_pack<true>(s, place(stage, operand, s));
                    } else {
                        held[operand].template read_pack<ALIGNED>(s, tensors[operand] + start + Row::column(s));
                    }
                }
        ask(first + DEPTH * rows_of_a_turn(), stage, tensors);
        stage = stage + 1 < DEPTH ? stage + 1 : 0;
    }
};
