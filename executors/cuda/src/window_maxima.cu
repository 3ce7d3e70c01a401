#include "fulgurite/elements.cuh"
#include "fulgurite/vectors.cuh"

// Largest elements of windows of images, and sums of what windows give to their largest elements. In each of RANK
// dimensions images have EXTENTS elements; COUNTS windows of SIZES elements are STEPS apart, the first starts LOW
// before the image, and their elements are DILATIONS apart. A thread has PACK neighbouring elements of the result,
// those of as many channels. OUTER(i) says where the image of element i starts, and PLACES(i) where the element is in
// the image, or among its windows. STRIDES are the operand's in these dimensions.
constexpr AT EXTENT[] = EXTENTS, COUNT[] = COUNTS, SIZE[] = SIZES, STEP[] = STEPS, FIRST[] = LOW, GAP[] = DILATIONS;
constexpr i64 STRIDE[] = STRIDES;
typedef Wide<ELEMENT>::type W;
// Positions that are read and written at once.
constexpr int PAIR = PACK < 2 ? PACK : 2;

#ifdef FORWARD
struct Best {
    W value[PACK];
    AT position[PACK];
    bool found;
};

// Looks at a window's elements in row-major order: the first of equal ones stays, and the first NaN.
template <int D> struct Find {
    static __device__ __forceinline__ void look(Best& best, const ELEMENT* from, const AT* place, AT position) {
        constexpr AT size = SIZE[D], gap = GAP[D], extent = EXTENT[D];
        const AT start = place[D] * STEP[D] - FIRST[D];
#pragma unroll(size < 8 ? size : 1)
        for (AT k = 0; k < size; ++k) {
            const AT at = start + k * gap;
            if (at >= extent) break;
            if (at < 0) continue;
            Find<D + 1>::look(best, from + at * STRIDE[D], place, position * extent + at);
        }
    }
};
template <> struct Find<RANK> {
    static __device__ __forceinline__ void look(Best& best, const ELEMENT* from, const AT*, AT position) {
        const Pack<ELEMENT, PACK> read = load<PACK>(from);
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            const W value = widen(read.at[j]);
            if (best.found && (value <= best.value[j] || best.value[j] != best.value[j])) continue;
            best.value[j] = value;
            best.position[j] = position;
        }
        best.found = true;
    }
};

extern "C" __global__ void max_of_windows(const ELEMENT* from, ELEMENT* values, i64* positions, u64 count) {
    const INDEX stride = (INDEX)gridDim.x * blockDim.x;
    for (INDEX number = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; number < count; number += stride) {
        const INDEX i = number * PACK;
        const AT place[] = PLACES(i);
        Best best = {};
        Find<0>::look(best, from + OUTER(i), place, 0);
        Pack<ELEMENT, PACK> found;
#pragma unroll
        for (int j = 0; j < PACK; ++j) {
            found.at[j] = narrow<ELEMENT>(best.value[j]);
        }
        store(values + i, found);
#pragma unroll
        for (int j = 0; j < PACK; j += PAIR) {
            Pack<i64, PAIR> at;
#pragma unroll
            for (int k = 0; k < PAIR; ++k) at.at[k] = best.position[j + k];
            store(positions + i + j, at);
        }
    }
}
#else
constexpr i64 OTHER[] = STRIDES_OF_POSITIONS;

// Adds what the windows give that have the image's element `own`, at `place`, and chose it: in the order of the places
// that it has in them.
template <int D> struct Sum {
    static __device__ __forceinline__ void add(W* total, const ELEMENT* d, const i64* chosen, const AT* place, AT own) {
        constexpr AT size = SIZE[D], gap = GAP[D], step = STEP[D], count = COUNT[D];
#pragma unroll(size < 8 ? size : 1)
        for (AT k = 0; k < size; ++k) {
            const AT before = place[D] + FIRST[D] - k * gap;
            if (before < 0) break;
            const AT o = before / step;
            if (o * step == before && o < count) {
                Sum<D + 1>::add(total, d + o * STRIDE[D], chosen + o * OTHER[D], place, own);
            }
        }
    }
};
template <> struct Sum<RANK> {
    static __device__ __forceinline__ void add(W* total, const ELEMENT* d, const i64* chosen, const AT*, AT own) {
        const Pack<ELEMENT, PACK> given = load<PACK>(d);
#pragma unroll
        for (int j = 0; j < PACK; j += PAIR) {
            const Pack<i64, PAIR> at = load<PAIR>(chosen + j);
#pragma unroll
            for (int k = 0; k < PAIR; ++k) {
                if (at.at[k] == own) total[j + k] += widen(given.at[j + k]);
            }
        }
    }
};

extern "C" __global__ void max_of_windows_backward(const ELEMENT* d, const i64* chosen, ELEMENT* to, u64 count) {
    const INDEX stride = (INDEX)gridDim.x * blockDim.x;
    for (INDEX number = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; number < count; number += stride) {
        const INDEX i = number * PACK;
        const AT place[] = PLACES(i);
        AT own = 0;
#pragma unroll
        for (int dim = 0; dim < RANK; ++dim) own = own * EXTENT[dim] + place[dim];
        W total[PACK] = {};
        Sum<0>::add(total, d + OUTER(i), chosen + OUTER_OF_POSITIONS(i), place, own);
        Pack<ELEMENT, PACK> sums;
#pragma unroll
        for (int j = 0; j < PACK; ++j) sums.at[j] = narrow<ELEMENT>(total[j]);
        store(to + i, sums);
    }
}
#endif
