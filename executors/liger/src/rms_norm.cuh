// What normalizations by the root mean square share. CASTING says what is rounded to the element type before the result
// is: 0 nothing, 1 the normalized row, 2 its scale as well.
#include "fulgurite/copies.cuh"
#include "fulgurite/reductions.cuh"
#include "fulgurite/rows.cuh"
#include "fulgurite/vectors.cuh"

typedef ELEMENT T;

// With RESIDUAL a row is the sum of two, which is written as well, and its cotangent is added to the gradient.
#if RESIDUAL
#define RESIDUAL_AND_SUM const T *residual, T *sum,
#define D_SUM const T *d_sum,
#else
#define RESIDUAL_AND_SUM
#define D_SUM
#endif

constexpr float PER_COLUMN = 1.0f / COLUMNS;

__device__ __forceinline__ float rounded(float x) { return widen(narrow<T>(x)); }

// 1 / √(mean(x²) + eps), from the sum of a row's squares.
__device__ __forceinline__ float scale_of(float squares, float eps) {
    const float scale = rsqrtf(squares * PER_COLUMN + eps);
    return CASTING == 2 ? rounded(scale) : scale;
}

// A normalized element as the weight multiplies it.
__device__ __forceinline__ float cast_normal(float normal) { return CASTING > 0 ? rounded(normal) : normal; }

// What the pack at `column` of a normalized row is multiplied with.
__device__ __forceinline__ void gains(const WEIGHT* weight, float offset, int column, float (&to)[PACK]) {
    read<PACK, WEIGHT_ALIGNED>(weight + column, to);
#pragma unroll
    for (int i = 0; i < PACK; ++i) to[i] += offset;
}

// The cotangent of a normalized element.
__device__ __forceinline__ float d_normal(float d, float gain) {
    return CASTING > 0 ? rounded(d * gain) : d * gain;
}
