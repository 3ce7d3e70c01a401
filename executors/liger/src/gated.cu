// Gated linear units: an activation of `gate` times `up`, elementwise. ACTIVATION is 0 for x σ(x), 1 and 2 for x Φ(x)
// by the error function and by a hyperbolic tangent.
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

constexpr float SCALE = 0.7978845608028654f; // √(2/π)
constexpr float CUBIC = 0.044715f;

// σ(z) and σ(z) (1 - σ(z)), from e^-|z|, so that no exponential overflows and nothing is lost to cancellation.
struct Sigmoid {
    float value, slope;
    __device__ __forceinline__ explicit Sigmoid(float z) {
        const float small = exponential<T>(-fabsf(z));
        float share;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0f + small));
        // A step of Newton's makes the approximation exact to a bit.
        if constexpr (sizeof(T) > 2) share = fmaf(share, fmaf(-(1.0f + small), share, 1.0f), share);
        value = z >= 0.0f ? share : small * share;
        slope = small * share * share;
        if (z != z) value = slope = z;
    }
};

// The activation of x, and its derivative.
struct Activated {
    float value, slope;
    __device__ __forceinline__ explicit Activated(float x) {
        if constexpr (ACTIVATION == 1) {
            const float part = 0.5f * erfcf(-0.7071067811865476f * x);
            value = x * part;
            slope = part + x * (0.5f * SCALE) * exponential<float>(-0.5f * x * x);
        } else {
            const float inner = ACTIVATION == 0 ? x : 2.0f * SCALE * (x + CUBIC * x * x * x);
            const float rate = ACTIVATION == 0 ? 1.0f : 2.0f * SCALE * (1.0f + 3.0f * CUBIC * x * x);
            const Sigmoid s(inner);
            value = x * s.value;
            // Far away the slope of σ is 0, however fast the inner function grows.
            slope = s.value + (s.slope == 0.0f ? 0.0f : x * s.slope * rate);
        }
    }
};

// The product of the activation, rounded as a tensor of it would be, and of `up`.
__device__ __forceinline__ float unit_of(float activation, float up) { return widen(narrow<T>(activation)) * up; }

// Each thread takes EACH packs; the last elements, less than a pack, are taken one by one.
extern "C" __global__ void __launch_bounds__(THREADS) gated(const T* gate, const T* up, T* out, u64 count) {
    const u64 first = ((u64)blockIdx.x * (EACH * THREADS) + threadIdx.x) * PACK;
    float x[EACH][PACK], y[EACH][PACK];
    auto product = [](float x, float y) { return unit_of(Activated(x).value, y); };
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
            read<PACK, ALIGNED>(gate + at, x[u]);
            read<PACK, ALIGNED>(up + at, y[u]);
        }
    }
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) x[u][i] = product(x[u][i], y[u][i]);
            write<PACK, ALIGNED>(out + at, x[u]);
        } else {
#pragma unroll 1
            for (u64 i = at; i < count; ++i) out[i] = narrow<T>(product(widen(gate[i]), widen(up[i])));
        }
    }
}

// The gradients of both operands; with UNIT also the result of `gated`, computed again. A thread has read its elements
// of all operands before it writes any result.
template <bool UNIT>
__device__ __forceinline__ void backward(
    const T* gate, const T* up, const T* d_out, T* unit, T* d_gate, T* d_up, u64 count) {
    const u64 first = ((u64)blockIdx.x * (EACH * THREADS) + threadIdx.x) * PACK;
    float x[EACH][PACK], y[EACH][PACK], d[EACH][PACK];
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
            read<PACK, ALIGNED>(gate + at, x[u]);
            read<PACK, ALIGNED>(up + at, y[u]);
            read<PACK, ALIGNED>(d_out + at, d[u]);
        }
    }
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const u64 at = first + u * (THREADS * PACK);
        if (at + PACK <= count) {
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                const Activated activated(x[u][i]);
                const float by = y[u][i], change = d[u][i];
                x[u][i] = change * by * activated.slope;
                y[u][i] = change * activated.value;
                if constexpr (UNIT) d[u][i] = unit_of(activated.value, by);
            }
            if constexpr (UNIT) write<PACK, ALIGNED>(unit + at, d[u]);
            write<PACK, ALIGNED>(d_gate + at, x[u]);
            write<PACK, ALIGNED>(d_up + at, y[u]);
        } else {
#pragma unroll 1
            for (u64 i = at; i < count; ++i) {
                const Activated activated(widen(gate[i]));
                const float by = widen(up[i]), change = widen(d_out[i]);
                d_gate[i] = narrow<T>(change * by * activated.slope);
                d_up[i] = narrow<T>(change * activated.value);
                if constexpr (UNIT) unit[i] = narrow<T>(unit_of(activated.value, by));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gated_backward(
    const T* gate, const T* up, const T* d_out, T* d_gate, T* d_up, u64 count) {
    backward<false>(gate, up, d_out, nullptr, d_gate, d_up, count);
}

extern "C" __global__ void __launch_bounds__(THREADS) gated_backward_and_unit(
    const T* gate, const T* up, const T* d_out, T* unit, T* d_gate, T* d_up, u64 count) {
    backward<true>(gate, up, d_out, unit, d_gate, d_up, count);
}
