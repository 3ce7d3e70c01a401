#include "fulgurite/elements.cuh"

// Sums of windows that overlap: element i of the result is at PLACES(i) in the RANK dimensions that have windows, of
// INNER elements; the windows of its other dimensions start at FROM. In each dimension there are COUNTS windows of
// SIZES elements, STEPS apart; their elements are DILATIONS apart. BETWEEN_WINDOWS and BETWEEN_ELEMENTS are the
// operand's strides.
typedef Wide<ELEMENT>::type W;
constexpr i64 COUNT[] = COUNTS, SIZE[] = SIZES, STEP[] = STEPS, DILATION[] = DILATIONS;
constexpr i64 WINDOW[] = BETWEEN_WINDOWS, ITEM[] = BETWEEN_ELEMENTS;

// Adds the elements of all windows that are at `place` in the dimensions from D on, in their order.
template <int D> struct Sum {
    static __device__ __forceinline__ void add(W& total, const ELEMENT* from, const i64* place) {
        constexpr i64 count = COUNT[D], size = SIZE[D], step = STEP[D], dilation = DILATION[D];
        constexpr i64 window = WINDOW[D], item = ITEM[D];
        for (i64 k = 0; k < size; ++k) {
            const i64 before = place[D] - k * dilation;
            if (before < 0) break;
            const i64 o = before / step;
            if (o * step == before && o < count) Sum<D + 1>::add(total, from + o * window + k * item, place);
        }
    }
};
template <> struct Sum<RANK> {
    static __device__ __forceinline__ void add(W& total, const ELEMENT* from, const i64*) { total += widen(*from); }
};

extern "C" __global__ void sum_of_windows(const ELEMENT* from, ELEMENT* to, u64 count) {
    const INDEX stride = (INDEX)gridDim.x * blockDim.x;
    for (INDEX i = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const INDEX outer = i / (INDEX)INNER;
        const i64 place[] = PLACES(i % (INDEX)INNER);
        W total = 0;
        Sum<0>::add(total, from + FROM(outer), place);
        to[i] = narrow<ELEMENT>(total);
    }
}
