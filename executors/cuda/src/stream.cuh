// Rows of COLUMNS elements that are longer than registers: a block of THREADS threads goes along one. Wherever the row
// starts, its middle is read by PACK elements at once if the tensor itself is aligned.
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/vectors.cuh"

constexpr int AHEAD = 4;

// Σ e^(x - top) of the elements seen so far, and the largest of them.
template <typename T> struct Exponentials {
    float top, total;
    __device__ __forceinline__ Exponentials() : top(-INFINITY_F32), total(0) {}

    // What is subtracted: as long as all are -∞ nothing is, since -∞ - -∞ is NaN.
    static __device__ __forceinline__ float shift(float top) { return top == -INFINITY_F32 ? 0.0f : top; }

    template <int N> __device__ __forceinline__ void add(const float (&x)[N]) {
        float next = top;
#pragma unroll
        for (int i = 0; i < N; ++i) next = fmaxf(next, x[i]);
        const float by = shift(next);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += exponential<T>(x[i] - by);
        total = total * exponential<T>(top - by) + sum;
        top = next;
    }
    template <int N, typename At> __device__ __forceinline__ void add(const float (&x)[N], At) { add(x); }
    __device__ __forceinline__ void join(float other_top, float other_total) {
        const float next = fmaxf(top, other_top), by = shift(next);
        total = total * exponential<float>(top - by) + other_total * exponential<float>(other_top - by);
        top = next;
    }
    // Every thread gets the whole row's, in a fixed order. `scratch` holds 64 numbers.
    __device__ __forceinline__ void over_block(float* scratch) {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        over_warp();
        if (lane == 0) {
            scratch[warp] = top;
            scratch[32 + warp] = total;
        }
        __syncthreads();
        const bool real = lane < THREADS / 32;
        top = real ? scratch[lane] : -INFINITY_F32;
        total = real ? scratch[32 + lane] : 0.0f;
        over_warp();
    }
    __device__ __forceinline__ void over_warp() {
        for (int offset = 16; offset > 0; offset >>= 1) {
            const float other_top = __shfl_xor_sync(0xffffffffu, top, offset);
            const float other_total = __shfl_xor_sync(0xffffffffu, total, offset);
            join(other_top, other_total);
        }
    }
};

// What part of a row's sum an element has. With 16 bits the division is a difference of exponents.
template <typename T> struct Portion {
    float top, share;
    __device__ __forceinline__ explicit Portion(const Exponentials<T>& seen) : top(seen.top), share(1.0f / seen.total) {
        if (sizeof(T) == 2) share = log2f(share);
    }
    __device__ __forceinline__ float of(float x) const {
        if constexpr (sizeof(T) == 2) return power_of_two(__fmaf_rn(x - top, LOG2_E, share));
        return exponential<T>(x - top) * share;
    }
};

// A row: the elements before the first whole line of 128 bytes, packs, the elements behind the last one. (From a line
// on, a warp's packs touch as few lines as they fill; a thread for each element before it there always is.)
template <typename T> struct Stream {
    const T* x;
    u64 start;
    int head, packs;
    __device__ __forceinline__ Stream(const T* in, u64 row) {
        start = row * COLUMNS;
        x = in + start;
        constexpr int LINE = PACK == 1 ? 1 : 128 / (int)sizeof(T);
        head = (int)((LINE - start % LINE) % LINE);
        if (head > COLUMNS) head = COLUMNS;
        packs = (COLUMNS - head) / PACK;
    }

    // Calls `seen.add(numbers, at)` for the thread's elements, some packs at a time; `at(i)` is the place of the i-th
    // number in the row.
    template <typename Seen> __device__ __forceinline__ void visit(Seen& seen) const {
        const T* middle = x + head;
        int pack = threadIdx.x;
        for (; pack + (AHEAD - 1) * THREADS < packs; pack += AHEAD * THREADS) {
            float held[AHEAD * PACK];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                read<PACK, ALIGNED>(
                    middle + (pack + u * THREADS) * PACK, *reinterpret_cast<float(*)[PACK]>(held + u * PACK));
            seen.add(held, [&](int i) { return head + (pack + i / PACK * THREADS) * PACK + i % PACK; });
        }
        for (; pack < packs; pack += THREADS) {
            float held[PACK];
            read<PACK, ALIGNED>(middle + pack * PACK, held);
            seen.add(held, [&](int i) { return head + pack * PACK + i; });
        }
        ends([&](int at) {
            float held[1] = {widen(x[at])};
            seen.add(held, [&](int) { return at; });
        });
    }

    __device__ __forceinline__ Exponentials<T> exponentials() const {
        Exponentials<T> seen;
        visit(seen);
        return seen;
    }

    // Writes `f(x, index in the row)` for each element x to the same place of `to`, which is aligned as the input is.
    // Each element is read before its place is written.
    template <typename F> __device__ __forceinline__ void each(F f, T* to) const {
        T* y = to + start;
        int pack = threadIdx.x;
        for (; pack + (AHEAD - 1) * THREADS < packs; pack += AHEAD * THREADS) {
            float held[AHEAD][PACK];
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) read<PACK, ALIGNED>(x + head + (pack + u * THREADS) * PACK, held[u]);
#pragma unroll
            for (int u = 0; u < AHEAD; ++u) {
                const int at = head + (pack + u * THREADS) * PACK;
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[u][i] = f(held[u][i], at + i);
                write<PACK, ALIGNED>(y + at, held[u]);
            }
        }
        for (; pack < packs; pack += THREADS) {
            const int at = head + pack * PACK;
            float held[PACK];
            read<PACK, ALIGNED>(x + at, held);
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[i] = f(held[i], at + i);
            write<PACK, ALIGNED>(y + at, held);
        }
        ends([&](int at) { y[at] = narrow<T>(f(widen(x[at]), at)); });
    }

    // Where the thread's element is that is not in a pack, or -1: there are fewer than threads.
    __device__ __forceinline__ int end() const {
        const int at = (int)threadIdx.x < head ? threadIdx.x : threadIdx.x + packs * PACK;
        return at < COLUMNS ? at : -1;
    }

    // The elements that are not in a pack.
    template <typename F> __device__ __forceinline__ void ends(F f) const {
        const int tail = head + packs * PACK;
        if (threadIdx.x < head) f(threadIdx.x);
        if (threadIdx.x < COLUMNS - tail) f(tail + threadIdx.x);
    }
};
