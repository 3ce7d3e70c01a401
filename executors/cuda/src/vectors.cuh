// What the kernels of llmc share: several neighbouring elements read and written at once as f32, copies to shared memory, exponentials, and sums over
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

// N elements, at most 16 bytes at once. ALIGNED says that addresses are multiples of what is read at once; otherwise
// elements are read one by one.
template <int N, typename T> __device__ __forceinline__ void read(const T* from, float (&to)[N]) {
    if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < N; ++i) to[i] = widen(from[i]);
        return;
    }
    constexpr int AT_ONCE = N * sizeof(T) > 16 ? 16 / sizeof(T) : N;
#pragma unroll
    for (int first = 0; first < N; first += AT_ONCE) {
        const Pack<T, AT_ONCE> pack = Pack<T, AT_ONCE>::load(from + first);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) to[first + i] = widen(pack.at[i]);
    }
}

// Stores are spelled out: the compiler takes a copy of a structure apart, and does not always find together again what belongs
// together.
__device__ __forceinline__ void store(void* to, const u32 (&bits)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                 : "memory");
}
__device__ __forceinline__ void store(void* to, const u32 (&bits)[2]) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" : : "l"(to), "r"(bits[0]), "r"(bits[1]) : "memory");
}
__device__ __forceinline__ void store(void* to, const u32 (&bits)[1]) { *(u32*)to = bits[0]; }

template <int N, typename T> __device__ __forceinline__ void write(T* to, const float (&from)[N]) {
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
            store(to + first, bits);
        }
    }
}

// 16 bytes on their way from memory to shared memory; what was asked for since the last batch is one. The thread that
// asked for them may read them once its batch is there; others wait for one another besides. Elements that are not
// aligned are there at once.
template <typename T> __device__ __forceinline__ void fetch(T* to, const T* from) {
    if constexpr (!ALIGNED) {
#pragma unroll
        for (int i = 0; i < 16 / (int)sizeof(T); ++i) to[i] = from[i];
        return;
    }
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void end_batch() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int LATER> __device__ __forceinline__ void await_all_but() {
    asm volatile("cp.async.wait_group %0;" : : "n"(LATER) : "memory");
}

constexpr float LOG2_E = 1.4426950408889634f;

// An approximation to 22 bits; numbers that are not normal are 0.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// e^x, as good as elements of type T can tell: elements of 16 bits never see the error of the approximation.
template <typename T> __device__ __forceinline__ float exponential(float x) {
    if constexpr (sizeof(T) == 2) {
        return power_of_two(x * LOG2_E);
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

// Two sums at once over the LANES threads of a row. `scratch` holds 64 numbers, which no thread may write again before the block
// has come together once more.
template <int LANES> __device__ __forceinline__ void group_sums(float& a, float& b, float* scratch) {
    constexpr int WIDTH = LANES > 32 ? 32 : LANES;
#pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset >>= 1) {
        a += __shfl_xor_sync(0xffffffffu, a, offset);
        b += __shfl_xor_sync(0xffffffffu, b, offset);
    }
    if constexpr (LANES > 32) {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        if (lane == 0) {
            scratch[warp] = a;
            scratch[32 + warp] = b;
        }
        __syncthreads();
        a = lane < LANES / 32 ? scratch[lane] : 0.0f;
        b = lane < LANES / 32 ? scratch[32 + lane] : 0.0f;
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
            a += __shfl_xor_sync(0xffffffffu, a, offset);
            b += __shfl_xor_sync(0xffffffffu, b, offset);
        }
    }
}
