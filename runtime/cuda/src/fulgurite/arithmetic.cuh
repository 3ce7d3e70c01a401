// Functions of one or two numbers, with the host's results. Types are those that arithmetic is carried out in.
#ifndef FULGURITE_ARITHMETIC
#define FULGURITE_ARITHMETIC
#include "fulgurite/elements.cuh"

// Modulo 2^64: C++ leaves an overflow of signed numbers undefined.
__device__ __forceinline__ i64 wrapping_add(i64 x, i64 y) { return (i64)((u64)x + (u64)y); }
__device__ __forceinline__ i64 wrapping_sub(i64 x, i64 y) { return (i64)((u64)x - (u64)y); }
__device__ __forceinline__ i64 wrapping_mul(i64 x, i64 y) { return (i64)((u64)x * (u64)y); }

// The absolute value; that of the least integer is itself.
__device__ __forceinline__ i64 absolute(i64 x) { return x < 0 ? wrapping_sub(0, x) : x; }

// Towards zero; 0 for a division by zero. The least integer by -1 wraps.
__device__ __forceinline__ i64 quotient(i64 x, i64 y) {
    if (y == 0) return 0;
    return y == -1 ? wrapping_sub(0, x) : x / y;
}

// The remainder with the divisor's sign. For a division by zero NaN, and 0 of integers.
__device__ __forceinline__ float remainder_of(float x, float y) {
    const float rest = fmodf(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}
__device__ __forceinline__ double remainder_of(double x, double y) {
    const double rest = fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}
__device__ __forceinline__ i64 remainder_of(i64 x, i64 y) {
    const i64 rest = y == 0 || y == -1 ? 0 : x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

// Bits moved to the left, and to the right with copies of the sign. By a negative number or by 64 and more nothing is
// left, to the right copies of the sign.
__device__ __forceinline__ i64 shift_left(i64 x, i64 y) { return y < 0 || y > 63 ? 0 : (i64)((u64)x << y); }
__device__ __forceinline__ i64 shift_right(i64 x, i64 y) { return x >> (y < 0 || y > 63 ? 63 : y); }

// By Euclid's algorithm; of zeros 0. That of the smallest integer and itself or 0 is 2^63, which wraps.
__device__ __forceinline__ i64 greatest_common_divisor(i64 x, i64 y) {
    u64 a = x < 0 ? 0 - (u64)x : (u64)x, b = y < 0 ? 0 - (u64)y : (u64)y;
    while (b != 0) {
        const u64 rest = a % b;
        a = b;
        b = rest;
    }
    return (i64)a;
}

// Modulo 2^64. A negative exponent gives 1 for the base 1, 1 or -1 for the base -1, and 0 for all others.
__device__ __forceinline__ i64 power(i64 base, i64 exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
    i64 result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) result = wrapping_mul(result, base);
        base = wrapping_mul(base, base);
    }
    return result;
}

// A power whose exponent is not known beforehand. Squares, cubes and reciprocals are products and quotients, as where
// the exponent is known beforehand.
__device__ __forceinline__ float power_of(float x, float y) {
    if (y == 2) return x * x;
    if (y == 3) return x * x * x;
    if (y == -1) return 1.0f / x;
    return powf(x, y);
}
__device__ __forceinline__ double power_of(double x, double y) {
    if (y == 2) return x * x;
    if (y == 3) return x * x * x;
    if (y == -1) return 1.0 / x;
    return pow(x, y);
}

// -1, 0 or 1; 0 for a NaN.
template <typename W> __device__ __forceinline__ W sign(W x) { return (W)(x > 0) - (W)(x < 0); }

// The larger or the smaller of two; NaN if either is; x if they are equal.
__device__ __forceinline__ float maximum(float x, float y) { return y > x || y != y ? y : x; }
__device__ __forceinline__ double maximum(double x, double y) { return y > x || y != y ? y : x; }
__device__ __forceinline__ i64 maximum(i64 x, i64 y) { return y > x ? y : x; }
__device__ __forceinline__ bool maximum(bool x, bool y) { return y > x ? y : x; }
__device__ __forceinline__ float minimum(float x, float y) { return y < x || y != y ? y : x; }
__device__ __forceinline__ double minimum(double x, double y) { return y < x || y != y ? y : x; }
__device__ __forceinline__ i64 minimum(i64 x, i64 y) { return y < x ? y : x; }
__device__ __forceinline__ bool minimum(bool x, bool y) { return y < x ? y : x; }

// Towards zero; what is too large becomes the nearest integer, a NaN becomes 0.
__device__ __forceinline__ i64 truncated(float x) { return x != x ? 0 : __float2ll_rz(x); }
__device__ __forceinline__ i64 truncated(double x) { return x != x ? 0 : __double2ll_rz(x); }

// A number that the compiler must not look into: functions that it evaluates itself differ in their last bits from
// those of the device.
__device__ __forceinline__ float opaque(float x) {
    asm("" : "+f"(x));
    return x;
}
__device__ __forceinline__ double opaque(double x) {
    asm("" : "+d"(x));
    return x;
}

// An integer of the same order as the number: NaN above all, both zeros equal. Negative numbers grow with their
// magnitude as bits; turning those bits over reverses that.
__device__ __forceinline__ i64 order_key(i64 x) { return x; }
__device__ __forceinline__ i64 order_key(float x) {
    const int bits = __float_as_int(x + 0.0f);
    return x != x ? 0x7fffffff : bits < 0 ? bits ^ 0x7fffffff : bits;
}
__device__ __forceinline__ i64 order_key(double x) {
    const i64 bits = __double_as_longlong(x + 0.0);
    return x != x ? 0x7fffffffffffffffLL : bits < 0 ? bits ^ 0x7fffffffffffffffLL : bits;
}

constexpr float LOG2_E = 1.4426950408889634f;

// 2^x by an approximation to 22 bits. Results that are subnormal are 0.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// e^x, as exact as elements of type T can tell: the error of the approximation is less than 16 bits can show.
template <typename T> __device__ __forceinline__ float exponential(float x) {
    if constexpr (sizeof(T) == 2) {
        return power_of_two(x * LOG2_E);
    } else {
        return expf(x);
    }
}

#endif
