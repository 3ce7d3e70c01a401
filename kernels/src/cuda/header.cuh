// What every hand-written kernel of Fulgurite starts with: element types without the toolkit's headers, the arithmetic type of
// each, sums and extrema over warps and blocks in a fixed order, and the report of an index out of range.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned u32;
typedef int i32;
typedef long long i64;
typedef unsigned long long u64;

// 16-bit floating-point numbers are kept as their bits; arithmetic on them is carried out in f32.
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct boolean { unsigned char bits; };

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
__device__ __forceinline__ float to_f32(f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits)); return y; }
__device__ __forceinline__ float to_f32(float x) { return x; }

// Rounds to nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ bf16 to_bf16(float x) {
    unsigned bits = __float_as_uint(x);
    bf16 y;
    y.bits = (bits & 0x7fffffffu) > 0x7f800000u ? (unsigned short)((bits >> 16) | 0x40u)
                                                : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    return y;
}
__device__ __forceinline__ f16 to_f16(float x) { f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); return y; }

// `Wide<T>::type` is the type that arithmetic on T is carried out in.
template <typename T> struct Wide { typedef T type; };
template <> struct Wide<bf16> { typedef float type; };
template <> struct Wide<f16> { typedef float type; };
template <> struct Wide<i32> { typedef i64 type; };
template <> struct Wide<u8> { typedef i64 type; };
template <> struct Wide<boolean> { typedef i64 type; };

__device__ __forceinline__ float widen(bf16 x) { return to_f32(x); }
__device__ __forceinline__ float widen(f16 x) { return to_f32(x); }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ i64 widen(i32 x) { return x; }
__device__ __forceinline__ i64 widen(u8 x) { return x; }
__device__ __forceinline__ i64 widen(boolean x) { return x.bits != 0; }

// From the arithmetic type back to T. Integers wrap; a boolean is whether the number differs from zero.
template <typename T> struct Narrow;
template <> struct Narrow<float> { static __device__ __forceinline__ float from(float x) { return x; } };
template <> struct Narrow<double> { static __device__ __forceinline__ double from(double x) { return x; } };
template <> struct Narrow<bf16> { static __device__ __forceinline__ bf16 from(float x) { return to_bf16(x); } };
template <> struct Narrow<f16> { static __device__ __forceinline__ f16 from(float x) { return to_f16(x); } };
template <> struct Narrow<i64> { static __device__ __forceinline__ i64 from(i64 x) { return x; } };
template <> struct Narrow<i32> { static __device__ __forceinline__ i32 from(i64 x) { return (i32)x; } };
template <> struct Narrow<u8> { static __device__ __forceinline__ u8 from(i64 x) { return (u8)x; } };
template <> struct Narrow<boolean> {
    static __device__ __forceinline__ boolean from(i64 x) { boolean y; y.bits = x != 0; return y; }
};
template <typename T> __device__ __forceinline__ T narrow(typename Wide<T>::type x) { return Narrow<T>::from(x); }

// The type that holds `BYTES` bytes, which are read and written at once.
template <int BYTES> struct Word;
template <> struct Word<1> { typedef u8 type; };
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef u64 type; };
template <> struct Word<16> { typedef uint4 type; };

// N neighbouring elements, read and written at once: the address is a multiple of their size together.
template <typename T, int N> struct alignas(sizeof(T) * N) Pack {
    typedef typename Word<sizeof(T) * N>::type Bits;
    T at[N];
    static __device__ __forceinline__ Pack load(const T* from) {
        Pack pack;
        *reinterpret_cast<Bits*>(&pack) = *reinterpret_cast<const Bits*>(from);
        return pack;
    }
    __device__ __forceinline__ void store(T* to) const {
        *reinterpret_cast<Bits*>(to) = *reinterpret_cast<const Bits*>(this);
    }
};

// An integer of the same order as the number: NaN above all, both zeros equal. Negative numbers grow with their magnitude as
// bits; turning those bits over reverses that.
__device__ __forceinline__ i64 order_key(i64 x) { return x; }
__device__ __forceinline__ i64 order_key(float x) {
    const int bits = __float_as_int(x + 0.0f);
    return x != x ? 0x7fffffff : bits < 0 ? bits ^ 0x7fffffff : bits;
}
__device__ __forceinline__ i64 order_key(double x) {
    const i64 bits = __double_as_longlong(x + 0.0);
    return x != x ? 0x7fffffffffffffffLL : bits < 0 ? bits ^ 0x7fffffffffffffffLL : bits;
}

#define INFINITY_F32 __int_as_float(0x7f800000)
#define INFINITY_F64 __longlong_as_double(0x7ff0000000000000LL)

// Extrema that give NaN if either is NaN.
__device__ __forceinline__ float maximum(float a, float b) { return a != a || a > b ? a : b; }
__device__ __forceinline__ double maximum(double a, double b) { return a != a || a > b ? a : b; }
__device__ __forceinline__ i64 maximum(i64 a, i64 b) { return a > b ? a : b; }
__device__ __forceinline__ float minimum(float a, float b) { return a != a || a < b ? a : b; }
__device__ __forceinline__ double minimum(double a, double b) { return a != a || a < b ? a : b; }
__device__ __forceinline__ i64 minimum(i64 a, i64 b) { return a < b ? a : b; }

struct Sum {
    template <typename W> static __device__ __forceinline__ W combine(W a, W b) { return a + b; }
};
struct Max {
    template <typename W> static __device__ __forceinline__ W combine(W a, W b) { return maximum(a, b); }
};
struct Min {
    template <typename W> static __device__ __forceinline__ W combine(W a, W b) { return minimum(a, b); }
};

// Every lane gets the result; the order is fixed.
template <typename R, typename W> __device__ __forceinline__ W warp_reduce(W x) {
    for (int offset = 16; offset > 0; offset >>= 1) x = R::combine(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

// Every thread gets the result. `scratch` holds 32 values; the block is a multiple of 32 threads, all of which come here.
template <typename R, typename W> __device__ __forceinline__ W block_reduce(W x, W* scratch, W neutral) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_reduce<R>(x);
    if (warps == 1) return x;
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_reduce<R>(lane < warps ? scratch[lane] : neutral);
}

// The first index out of range of a run is kept: who found it, the index, and how many there are.
struct Fault {
    unsigned code;
    unsigned reserved;
    i64 index;
    i64 size;
};
__device__ __forceinline__ void report_fault(Fault* fault, unsigned code, i64 index, i64 size) {
    if (atomicCAS(&fault->code, 0u, code) == 0u) {
        fault->index = index;
        fault->size = size;
    }
}
