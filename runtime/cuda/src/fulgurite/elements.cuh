// Element types without the toolkit's headers, and the arithmetic type of each.
#ifndef FULGURITE_ELEMENTS
#define FULGURITE_ELEMENTS

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned u32;
typedef int i32;
typedef long long i64;
typedef unsigned long long u64;

// 16-bit floating-point numbers are kept as their bits; arithmetic on them is carried out in f32.
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
struct boolean { u8 bits; };

#define INFINITY_F32 __int_as_float(0x7f800000)
#define INFINITY_F64 __longlong_as_double(0x7ff0000000000000LL)

// A bfloat16 is the upper half of a float.
__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_f32(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ __forceinline__ float to_f32(float x) { return x; }

// To nearest, ties to even. NaN stays NaN; what is too large for f16 becomes infinite.
__device__ __forceinline__ bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
__device__ __forceinline__ f16 to_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// Two numbers rounded to 16 bits each, the first in the lower half: one instruction instead of two.
template <typename T> struct Halves;
template <> struct Halves<bf16> {
    static __device__ __forceinline__ u32 of(float low, float high) {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};
template <> struct Halves<f16> {
    static __device__ __forceinline__ u32 of(float low, float high) {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};

// `Wide<T>::type` is the type that arithmetic on T is carried out in.
template <typename T> struct Wide { typedef T type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<f16> { typedef float type; };
template <> struct Wide<i32> { typedef i64 type; };
template <> struct Wide<u32> { typedef i64 type; };
template <> struct Wide<i16> { typedef i64 type; };
template <> struct Wide<u16> { typedef i64 type; };
template <> struct Wide<i8> { typedef i64 type; };
template <> struct Wide<u8> { typedef i64 type; };
template <> struct Wide<boolean> { typedef i64 type; };

// An element in its arithmetic type.
__device__ __forceinline__ float widen(bf16 x) { return to_f32(x); }
__device__ __forceinline__ float widen(f16 x) { return to_f32(x); }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ i64 widen(i32 x) { return x; }
__device__ __forceinline__ i64 widen(u32 x) { return x; }
__device__ __forceinline__ i64 widen(i16 x) { return x; }
__device__ __forceinline__ i64 widen(u16 x) { return x; }
__device__ __forceinline__ i64 widen(i8 x) { return x; }
__device__ __forceinline__ i64 widen(u8 x) { return x; }
__device__ __forceinline__ i64 widen(boolean x) { return x.bits != 0; }

// From the arithmetic type back to T: rounded. Integers wrap; a boolean is whether the number differs from zero.
template <typename T> struct Narrow;
template <> struct Narrow<float> { static __device__ __forceinline__ float from(float x) { return x; } };
template <> struct Narrow<double> { static __device__ __forceinline__ double from(double x) { return x; } };
template <> struct Narrow<bf16> { static __device__ __forceinline__ bf16 from(float x) { return to_bf16(x); } };
template <> struct Narrow<f16> { static __device__ __forceinline__ f16 from(float x) { return to_f16(x); } };
template <> struct Narrow<i64> { static __device__ __forceinline__ i64 from(i64 x) { return x; } };
template <> struct Narrow<i32> { static __device__ __forceinline__ i32 from(i64 x) { return (i32)x; } };
template <> struct Narrow<u32> { static __device__ __forceinline__ u32 from(i64 x) { return (u32)x; } };
template <> struct Narrow<i16> { static __device__ __forceinline__ i16 from(i64 x) { return (i16)x; } };
template <> struct Narrow<u16> { static __device__ __forceinline__ u16 from(i64 x) { return (u16)x; } };
template <> struct Narrow<i8> { static __device__ __forceinline__ i8 from(i64 x) { return (i8)x; } };
template <> struct Narrow<u8> { static __device__ __forceinline__ u8 from(i64 x) { return (u8)x; } };
template <> struct Narrow<boolean> {
    static __device__ __forceinline__ boolean from(i64 x) {
        boolean y;
        y.bits = x != 0;
        return y;
    }
};
template <typename T> __device__ __forceinline__ T narrow(typename Wide<T>::type x) { return Narrow<T>::from(x); }

#endif
