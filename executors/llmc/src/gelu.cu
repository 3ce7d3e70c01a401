// The Gaussian error linear unit by a hyperbolic tangent. x/2 (1 + tanh u) is x σ(2u), which loses nothing to
// cancellation where tanh is close to -1; σ comes from e^-|2u|, so that no exponential overflows.
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

constexpr float SCALE = 0.7978845608028654f; // √(2/π)
constexpr float CUBIC = 0.044715f;

struct Sigmoid {
    // σ(2u), and σ(2u) (1 - σ(2u)).
    float value, slope;
    __device__ __forceinline__ Sigmoid(float x) {
        const float twice = 2.0f * SCALE * (x + CUBIC * x * x * x);
        const float small = exponential<T>(-fabsf(twice));
        // 1 / (1 + small): a step of Newton's makes the approximation exact to a bit, since nothing is near the ends of
        // the range.
        float share;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0f + small));
        if constexpr (sizeof(T) > 2) share = fmaf(share, fmaf(-(1.0f + small), share, 1.0f), share);
        value = twice >= 0.0f ? share : small * share;
        slope = small * share * share;
    }
};

__device__ __forceinline__ float forward(float x) { return x * Sigmoid(x).value; }

__device__ __forceinline__ float backward(float x, float d) {
    const Sigmoid s(x);
    const float inner = 2.0f * SCALE * (1.0f + 3.0f * CUBIC * x * x);
    return d * (s.value + x * s.slope * inner);
}

constexpr int EACH = 2;

// Each thread takes EACH packs; the last elements, less than a pack, are taken one by one.
extern "C" __global__ void __launch_bounds__(THREADS) gelu(const T* in, T* out, u64 count) {
    const u64 first = ((u64)blockIdx.x * (EACH * THREADS) + threadIdx.x) * PACK;
    float held[EACH][PACK];
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) read<PACK, ALIGNED>(in + at, held[u]);
    }
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[u][i] = forward(held[u][i]);
            write<PACK, ALIGNED>(out + at, held[u]);
        } else {
#pragma unroll 1
            for (u64 i = at; i < count; ++i) out[i] = narrow<T>(forward(widen(in[i])));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gelu_backward(const T* in, const T* d_out, T* d_in, u64 count) {
    const u64 first = ((u64)blockIdx.x * (EACH * THREADS) + threadIdx.x) * PACK;
    float held[EACH][PACK], d[EACH][PACK];
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
            read<PACK, ALIGNED>(in + at, held[u]);
            read<PACK, ALIGNED>(d_out + at, d[u]);
        }
    }
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) held[u][i] = backward(held[u][i], d[u][i]);
            write<PACK, ALIGNED>(d_in + at, held[u]);
        } else {
#pragma unroll 1
            for (u64 i = at; i < count; ++i) d_in[i] = narrow<T>(backward(widen(in[i]), widen(d_out[i])));
        }
    }
}
