// AdamW, or Adam (COUPLED), over many tensors in one launch. The few numbers of the step are computed before it, in
// f64, by a launch of their own.
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/vectors.cuh"

struct Setting {
    const RATE* lr;
    const STEP* step;
#if CONDITIONAL
    const bool* apply;
#endif
#if CLIPPED
    // The norm of all gradients.
    const float* norm;
#endif
};
struct Settings {
    Setting at[SETTINGS];
};
struct Rates {
    double beta1[SETTINGS], beta2[SETTINGS], weight_decay[SETTINGS], eps[SETTINGS];
#if CLIPPED
    double max_norm[SETTINGS];
#endif
};

// What a setting's blocks read: 1 - lr·wd, -lr / (1 - β₁ᵗ), √(1 - β₂ᵗ), whether everything is to stay as it is, and
// what gradients are multiplied by first.
struct Numbers {
    float decay, rate, root;
    u32 unchanged;
    float factor;
};

extern "C" __global__ void __launch_bounds__(32)
    adamw_numbers(
    const __grid_constant__ Settings settings, const __grid_constant__ Rates rates, Numbers* numbers) {
    const int i = threadIdx.x;
    if (i >= SETTINGS) return;
    const double lr = *settings.at[i].lr, step = *settings.at[i].step;
    Numbers own;
    own.decay = (float)(1.0 - lr * rates.weight_decay[i]);
    own.rate = (float)-(lr / (1.0 - pow(rates.beta1[i], step)));
    own.root = (float)sqrt(1.0 - pow(rates.beta2[i], step));
#if CONDITIONAL
    own.unchanged = *settings.at[i].apply ? 0 : 1;
#else
    own.unchanged = 0;
#endif
#if CLIPPED
    own.factor = minimum((float)rates.max_norm[i] / (*settings.at[i].norm + 1e-6f), 1.0f);
#else
    own.factor = 1;
#endif
    numbers[i] = own;
}

typedef ELEMENT PARAM;
typedef MOMENT STATE;

struct Tensors {
    struct {
        const PARAM* param;
        const GRAD* grad;
        const STATE* mean;
        const STATE* square;
        PARAM* next_param;
        STATE* next_mean;
        STATE* next_square;
#if COPIED
        // The new parameter in another type.
        COPY* copy;
#endif
    } at[TENSORS];
};
// The setting of each tensor.
struct Choice {
    u32 at[TENSORS];
};

// Off by a unit or two in the last place.
__device__ __forceinline__ float nearly_root(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float nearly_inverse(float x) {
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

extern "C" __global__ void __launch_bounds__(THREADS) adamw(
    const __grid_constant__ Tensors tensors, const __grid_constant__ Table table, const __grid_constant__ Choice choice,
    const __grid_constant__ Rates rates, const Numbers* numbers) {
    const Chunk chunk(table);
    const auto& tensor = tensors.at[chunk.tensor];
    const u32 setting = choice.at[chunk.tensor];
    const Numbers number = numbers[setting];
    const float eps = (float)rates.eps[setting];
    const float beta2 = (float)rates.beta2[setting];
    const float rest1 = (float)(1.0 - rates.beta1[setting]), rest2 = (float)(1.0 - rates.beta2[setting]);
    const bool decays = rates.weight_decay[setting] != 0.0;
#if COUPLED
    const float coupled = (float)rates.weight_decay[setting];
#endif

    // What is rounded to 16 bits needs no quotients and roots that are exact to the last bit, which take most of the
    // time where so few bytes are moved.
    constexpr bool NEARLY = sizeof(STATE) == 2;
    const float inverse_root = 1.0f / number.root;

    // One element, in the order of the operations of the operator's decomposition: all in f32, rounded when written.
    const auto update = [&](float& p, float g, float& m, float& v) {
#if CONDITIONAL
        // All threads take the same way. What is written may not be where it was read from.
        if (number.unchanged) return;
#endif
#if CLIPPED
        // As `scale` of norm.cu writes it: rounded, and not joined with what follows.
        g = widen(narrow<SCALED>(__fmul_rn(g, number.factor)));
#endif
#if COUPLED
        if (decays) g = g + p * coupled;
#endif
        m = m + (g - m) * rest1;
        v = v * beta2 + (g * g) * rest2;
#if !COUPLED
        if (decays) p = p * number.decay;
#endif
        if constexpr (NEARLY) {
            p = p + (m * number.rate) * nearly_inverse(nearly_root(v) * inverse_root + eps);
        } else {
            p = p + (m * number.rate) / (sqrtf(v) / number.root + eps);
        }
    };
    constexpr int EACH = 2;
    for (u64 first = chunk.begin + threadIdx.x * PACK; first < chunk.whole; first += EACH * THREADS * PACK) {
        float p[EACH][PACK], g[EACH][PACK], m[EACH][PACK], v[EACH][PACK];
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * (THREADS * PACK);
            if (at < chunk.whole) {
                read<PACK, ALIGNED>(tensor.param + at, p[u]);
                read<PACK, ALIGNED>(tensor.grad + at, g[u]);
                read<PACK, ALIGNED>(tensor.mean + at, m[u]);
                read<PACK, ALIGNED>(tensor.square + at, v[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            const u64 at = first + u * (THREADS * PACK);
            if (at < chunk.whole) {
#pragma unroll
                for (int i = 0; i < PACK; ++i) update(p[u][i], g[u][i], m[u][i], v[u][i]);
                write<PACK, ALIGNED>(tensor.next_param + at, p[u]);
#if COPIED
                write<PACK, ALIGNED>(tensor.copy + at, p[u]);
#endif
                write<PACK, ALIGNED>(tensor.next_mean + at, m[u]);
                write<PACK, ALIGNED>(tensor.next_square + at, v[u]);
            }
        }
    }
    const u64 last = chunk.whole + threadIdx.x;
    if (last < chunk.end) {
        float p = widen(tensor.param[last]), m = widen(tensor.mean[last]), v = widen(tensor.square[last]);
        update(p, widen(tensor.grad[last]), m, v);
        tensor.next_param[last] = narrow<PARAM>(p);
#if COPIED
        tensor.copy[last] = narrow<COPY>(p);
#endif
        tensor.next_mean[last] = narrow<STATE>(m);
        tensor.next_square[last] = narrow<STATE>(v);
    }
}
