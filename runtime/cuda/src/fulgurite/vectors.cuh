// Several neighbouring elements read or written by one instruction, as they are or as f32.
#ifndef FULGURITE_VECTORS
#define FULGURITE_VECTORS
#include "fulgurite/elements.cuh"

// The type that holds `BYTES` bytes, which are read and written at once.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef u64 type; };
template <> struct Word<16> { typedef uint4 type; };

// N neighbouring elements. Where they are read or written at once, their address is a multiple of their size together.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

// At most 16 bytes.
template <int N, typename T> __device__ __forceinline__ Pack<T, N> load(const T* from) {
    typedef typename Word<sizeof(T) * N>::type Bits;
    Pack<T, N> pack;
    *reinterpret_cast<Bits*>(&pack) = *reinterpret_cast<const Bits*>(from);
    return pack;
}

// As `load`, one by one where the address is not known to be ALIGNED.
template <int N, bool ALIGNED, typename T> __device__ __forceinline__ Pack<T, N> load_anywhere(const T* from) {
    if constexpr (ALIGNED) {
        return load<N>(from);
    } else {
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = from[i];
        return pack;
    }
}

template <int N, typename T> __device__ __forceinline__ void store(T* to, const Pack<T, N>& pack) {
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// The last elements of a tensor may be fewer than N: what is behind `count` of them is neither read nor written.
template <int N, typename T, typename Count>
__device__ __forceinline__ Pack<T, N> load_some(const T* from, Count count) {
    if (count >= N) return load<N>(from);
    Pack<T, N> pack = {};
#pragma unroll
    for (int j = 0; j < N - 1; ++j) {
        if (j < count) pack.at[j] = from[j];
    }
    return pack;
}
template <int N, typename T, typename Count>
__device__ __forceinline__ void store_some(T* to, const Pack<T, N>& pack, Count count) {
    if (count >= N) return store<N>(to, pack);
#pragma unroll
    for (int j = 0; j < N - 1; ++j) {
        if (j < count) to[j] = pack.at[j];
    }
}

// N elements as f32, at most 16 bytes at once. ALIGNED says that addresses are multiples of what is read at once;
// otherwise elements are read one by one.
template <int N, bool ALIGNED, typename T> __device__ __forceinline__ void read(const T* from, float (&to)[N]) {
    if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = widen(from[i]);
        return;
    }
    constexpr int AT_ONCE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int first = 0; first < N; first += AT_ONCE) {
        const Pack<T, AT_ONCE> pack = load<AT_ONCE>(from + first);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) to[first + i] = widen(pack.at[i]);
    }
}

// Writes words at once. The instruction is spelled out: the compiler splits a copy of a structure, and does not always
// join the parts again.
__device__ __forceinline__ void store_words(void* to, const u32 (&bits)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                 : "memory");
}
__device__ __forceinline__ void store_words(void* to, const u32 (&bits)[2]) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" : : "l"(to), "r"(bits[0]), "r"(bits[1]) : "memory");
}
__device__ __forceinline__ void store_words(void* to, const u32 (&bits)[1]) { *(u32*)to = bits[0]; }

// N elements from f32, rounded; the reverse of `read`.
template <int N, bool ALIGNED, typename T> __device__ __forceinline__ void write(T* to, const float (&from)[N]) {
    constexpr int BYTES = N * sizeof(T), AT_ONCE = BYTES > 16 ? 16 / sizeof(T) : N;
    if constexpr (BYTES < 4) {
        *to = narrow<T>(from[0]);
    } else if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < N; i += 4 / sizeof(T)) {
            if constexpr (sizeof(T) == 2) {
                const u32 both = Halves<T>::of(from[i], from[i + 1]);
                to[i].bits = (u16)both;
                to[i + 1].bits = (u16)(both >> 16);
            } else {
                to[i] = narrow<T>(from[i]);
            }
        }
    } else {
#pragma unroll
        for (int first = 0; first < N; first += AT_ONCE) {
            u32 bits[AT_ONCE * sizeof(T) / 4];
#pragma unroll
            for (int i = 0; i < AT_ONCE * sizeof(T) / 4; ++i) {
                if constexpr (sizeof(T) == 2) {
                    bits[i] = Halves<T>::of(from[first + 2 * i], from[first + 2 * i + 1]);
                } else {
                    bits[i] = __float_as_uint(from[first + i]);
                }
            }
            store_words(to + first, bits);
        }
    }
}

#endif
