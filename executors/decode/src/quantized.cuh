// Weights of 8 or 4 bits as the elements that the tensor cores multiply: integers are widened exactly, RAISED with a
// number that is added to all of them. Multiplied by the scale of their group they are rounded once (with an offset
// once as well).
//
// Of a word of eight numbers of 4 bits, or of two words of four of 8 bits, the results are pairs whose places there
// differ by 16 bits, since these need no moves: 0 and 4, 1 and 5, 2 and 6, 3 and 7, or 0 and 2, 1 and 3, 4 and 6, 5 and
// 7. Eight elements of the other operand are brought into the same order.
#include "fulgurite/elements.cuh"

// Two elements each: x y + z, rounded once.
__device__ __forceinline__ u32 of_pairs(bf16, u32 x, u32 y, u32 z) {
    u32 out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(y), "r"(z));
    return out;
}
__device__ __forceinline__ u32 of_pairs(f16, u32 x, u32 y, u32 z) {
    u32 out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(x), "r"(y), "r"(z));
    return out;
}

// Bit patterns, twice in a word, of numbers that are added to integers in the last bits of the mantissa, and of what
// takes them off again.
template <typename T> struct Magic;
template <> struct Magic<bf16> {
    // 128, 1 and -1; -128, and -136 where 0 to 15 stand for -8 to 7.
    static constexpr u32 BASE = 0x43004300u, ONE = 0x3f803f80u, MINUS_ONE = 0xbf80bf80u;
    static constexpr u32 OFF = 0xc300c300u, OFF_CENTERED = 0xc308c308u;
    static constexpr float RAISED_BY = 136.0f;
};
template <> struct Magic<f16> {
    // 1024 and 1; -1024, -1032, and -1152, which takes 128 off as well.
    static constexpr u32 BASE = 0x64006400u, ONE = 0x3c003c00u;
    static constexpr u32 OFF = 0xe400e400u, OFF_CENTERED = 0xe408e408u, OFF_SIGNED = 0xe480e480u;
    static constexpr float RAISED_BY = 1032.0f;
};

// (word & mask) | base by one instruction; of constants the compiler makes two.
__device__ __forceinline__ u32 raised(u32 word, u32 mask, u32 base) {
    u32 out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(base));
    return out;
}

// The numbers of 4 bits at bits 0 and 16, as elements; CENTERED, 8 less; RAISED, `Magic<T>::RAISED_BY` more than that.
template <typename T, bool CENTERED, bool RAISED> __device__ __forceinline__ u32 pair_of_4(u32 word) {
    typedef Magic<T> M;
    if constexpr (RAISED) return raised(word, 0x000f000fu, M::BASE);
    return of_pairs(T(), raised(word, 0x000f000fu, M::BASE), M::ONE, CENTERED ? M::OFF_CENTERED : M::OFF);
}

// The signed numbers of 8 bits at bits 0 and 16, as elements.
__device__ __forceinline__ u32 pair_of_8(bf16, u32 word) {
    typedef Magic<bf16> M;
    // A bf16 has seven bits behind the first: the sign is the last bit of the exponent, which makes 128 256.
    const u32 off = raised(word, 0x00800080u, M::BASE);
    return of_pairs(bf16(), off, M::MINUS_ONE, raised(word, 0x007f007fu, M::BASE));
}
__device__ __forceinline__ u32 pair_of_8(f16, u32 word) {
    typedef Magic<f16> M;
    return of_pairs(f16(), raised(word ^ 0x00800080u, 0x00ff00ffu, M::BASE), M::ONE, M::OFF_SIGNED);
}

// Eight numbers: those of word `part` of 4 bits, of words `2 part` and `2 part + 1` of 8 bits.
template <typename T, int NUMBER_BITS, bool CENTERED, bool RAISED>
__device__ __forceinline__ uint4 eight_integers(const uint4& packed, int part) {
    const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
    u32 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (NUMBER_BITS == 4) {
            pairs[i] = pair_of_4<T, CENTERED, RAISED>(words[part] >> (4 * i));
        } else {
            pairs[i] = pair_of_8(T(), words[2 * part + i / 2] >> (8 * (i % 2)));
        }
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Eight numbers times their scale, plus their offset, which hold an element twice.
template <typename T> __device__ __forceinline__ uint4 times_scale(const uint4& eight, u32 scale, u32 offset) {
    return make_uint4(
        of_pairs(T(), eight.x, scale, offset), of_pairs(T(), eight.y, scale, offset),
        of_pairs(T(), eight.z, scale, offset), of_pairs(T(), eight.w, scale, offset));
}

// Eight neighbours in the order of `eight_integers`.
template <int NUMBER_BITS> __device__ __forceinline__ uint4 in_order_of_numbers(const uint4& eight) {
    if constexpr (NUMBER_BITS == 4) {
        return make_uint4(
            __byte_perm(eight.x, eight.z, 0x5410), __byte_perm(eight.x, eight.z, 0x7632),
            __byte_perm(eight.y, eight.w, 0x5410), __byte_perm(eight.y, eight.w, 0x7632));
    } else {
        return make_uint4(
            __byte_perm(eight.x, eight.y, 0x5410), __byte_perm(eight.x, eight.y, 0x7632),
            __byte_perm(eight.z, eight.w, 0x5410), __byte_perm(eight.z, eight.w, 0x7632));
    }
}

// A scale as an element T, twice.
template <typename T, typename S> __device__ __forceinline__ u32 twice(S scale) {
    return narrow<T>(widen(scale)).bits * 0x10001u;
}
