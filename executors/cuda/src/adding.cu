// Adding many elements at indices, after the updates were sorted by target (see sorting.cu): `keys` holds targets in
// order, `updates` the updates in order for each. A target has `packs` packs of PACK elements; those of key k start at
// k * along, its c-th at COLUMN(c). Update n has its elements at SOURCE(n) + SOURCE_COLUMN(c). All offsets are in
// elements.
//
// The updates of one target are a run. A run is added in its order to what the target holds, in pieces of CHUNK
// updates: the sums of the pieces, if there are several, are added in order by add_chunks. So a target that is hit very
// often keeps no warp busy for long, and the order of additions is fixed. Instead of a sum it may be another rule:
// COMBINE(x, y) is that of two, the earlier one first, and NEUTRAL changes nothing before any y.
#include "fulgurite/arithmetic.cuh"
#include "fulgurite/vectors.cuh"

typedef Wide<ELEMENT>::type W;
typedef Pack<ELEMENT, PACK> Packed;
const u32 CHUNK = 256;

// Pieces of long runs leave their sums here. Starts of pieces that do not start a run are at least CHUNK apart, and so
// are starts of long runs; one of each may share a slot of CHUNK positions.
__device__ __forceinline__ W* sum_of(W* sums, u32 begin, bool starts_run, u64 columns) {
    return sums + ((u64)(begin / CHUNK) * 2 + (starts_run ? 0 : 1)) * columns;
}

// A warp has a position and some of the packs; it works if a piece starts there.
extern "C" __global__ void add_runs(
    const KEY* keys, const u32* updates, const ELEMENT* source, ELEMENT* target, W* sums, u32* starts, u32 count,
    u64 targets, u64 packs, u32 slabs, i64 along) {
    const u32 lane = threadIdx.x & 31;
    const u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (warp >= (u64)count * slabs) return;
    const u32 begin = (u32)(warp / slabs), slab = (u32)(warp % slabs);
    const KEY key = keys[begin];
    // An index out of range, which was reported.
    if (key >= targets) return;
    const bool starts_run = begin == 0 || keys[begin - 1] != key;
    if (!starts_run) {
        if (begin < CHUNK || keys[begin - CHUNK] != key) return;
        u32 low = 0, high = begin;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (keys[middle] < key) low = middle + 1;
            else high = middle;
        }
        if ((begin - low) % CHUNK != 0) return;
    }
    u32 length = 1;
    for (u32 same = ~0u; same == ~0u;) {
        const u32 further = length + lane;
        same = __ballot_sync(~0u, further < CHUNK && further < count - begin && keys[begin + further] == key);
        length += __popc(same);
    }
    const bool is_whole = starts_run && (length < CHUNK || CHUNK >= count - begin || keys[begin + CHUNK] != key);
    const u32* own = updates + begin;
    for (u64 c = (u64)slab * 32 + lane; c < packs; c += (u64)slabs * 32) {
        ELEMENT* place = target + (i64)key * along + COLUMN(c);
        const ELEMENT* column = source + SOURCE_COLUMN(c);
        W total[PACK];
        const Packed before = load<PACK>(place);
#pragma unroll
        for (int v = 0; v < PACK; ++v) total[v] = starts_run ? (W)widen(before.at[v]) : (W)NEUTRAL;
#pragma unroll 4
        for (u32 i = 0; i < length; ++i) {
            const Packed next = load<PACK>(column + SOURCE(own[i]));
#pragma unroll
            for (int v = 0; v < PACK; ++v) total[v] = COMBINE(total[v], (W)widen(next.at[v]));
        }
        if (is_whole) {
            Packed after;
#pragma unroll
            for (int v = 0; v < PACK; ++v) after.at[v] = narrow<ELEMENT>(total[v]);
            store<PACK>(place, after);
        } else {
            W* sum = sum_of(sums, begin, starts_run, packs * PACK) + c * PACK;
#pragma unroll
            for (int v = 0; v < PACK; ++v) sum[v] = total[v];
        }
    }
    if (starts_run && !is_whole && slab == 0 && lane == 0) starts[begin / CHUNK] = begin;
}

// A block has a slot, and with it the long run that starts there, if one does: starts[slot] is all ones otherwise.
extern "C" __global__ void add_chunks(
    const KEY* keys, ELEMENT* target, W* sums, const u32* starts, u32 count, u64 packs, i64 along) {
    const u32 begin = starts[blockIdx.x];
    if (begin == ~0u) return;
    const KEY key = keys[begin];
    const u64 columns = packs * PACK;
    for (u64 e = (u64)blockIdx.y * blockDim.x + threadIdx.x; e < columns; e += (u64)gridDim.y * blockDim.x) {
        W total = sum_of(sums, begin, true, columns)[e];
        for (u64 n = (u64)begin + CHUNK; n < count && keys[n] == key; n += CHUNK) {
            total = COMBINE(total, sum_of(sums, (u32)n, false, columns)[e]);
        }
        target[(i64)key * along + COLUMN(e / PACK) + (i64)(e % PACK)] = narrow<ELEMENT>(total);
    }
}
