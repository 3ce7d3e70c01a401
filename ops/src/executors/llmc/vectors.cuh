// What the kernels of llmc share: several neighbouring elements read and written at once as f32, exponentials, and sums over
// the threads that a row has.

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

// N elements, at most 16 bytes at once; the address is a multiple of what is read at once.
template <int N, typename T> __device__ __forceinline__ void read(const T* from, float (&to)[N]) {
    constexpr int AT_ONCE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int first = 0; first < N; first += AT_ONCE) {
        const Pack<T, AT_ONCE> pack = Pack<T, AT_ONCE>::load(from + first);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) to[first + i] = widen(pack.at[i]);
    }
}

template <int N, typename T> __device__ __forceinline__ void write(T* to, const float (&from)[N]) {
    constexpr int AT_ONCE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int first = 0; first < N; first += AT_ONCE) {
        Pack<T, AT_ONCE> pack;
        if constexpr (sizeof(T) == 2 && AT_ONCE > 1) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i += 2) {
                const u32 both = Halves<T>::of(from[first + i], from[first + i + 1]);
                pack.at[i].bits = (u16)both;
                pack.at[i + 1].bits = (u16)(both >> 16);
            }
        } else {
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) pack.at[i] = narrow<T>(from[first + i]);
        }
        pack.store(to + first);
    }
}

// e^x, as good as elements of type T can tell: elements of 16 bits never see the error of the approximation.
template <typename T> __device__ __forceinline__ float exponential(float x) {
    if constexpr (sizeof(T) == 2) {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
        return y;
    } else {
        return expf(x);
    }
}

// The largest number, whatever NaN there is: what is computed with it brings NaN back.
struct Top {
    static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

// Over the LANES threads of a row: a part of a warp, or the whole block. All threads of the block come here.
template <int LANES, typename R> __device__ __forceinline__ float group_reduce(float x, float* scratch, float neutral) {
    if constexpr (LANES > 32) {
        return block_reduce<R, float>(x, scratch, neutral);
    } else {
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset >>= 1) x = R::combine(x, __shfl_xor_sync(0xffffffffu, x, offset));
        return x;
    }
}
