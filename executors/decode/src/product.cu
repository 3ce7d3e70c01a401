#include "fulgurite/arithmetic.cuh"
#include "fulgurite/copies.cuh"
#if SHARED
#include "fulgurite/clusters.cuh"
#endif
#include "fulgurite/tensor_cores.cuh"
#include "fulgurite/vectors.cuh"

// out[m][n] = Σ input[m][k] weight[n][k] for few rows m: the time is that of reading the weight, so each element is
// read once, 16 bytes at a time, and many reads are on their way: each thread has a ring of DEPTH places in shared
// memory, which only it writes and reads, and goes through the tiles of its block without a break. A tile is 16 outputs
// n; the warps of a block share the inputs k.
//
// Weights are the left operand of the tensor cores, rows of the input the columns of the right one. Which places of a
// sum a thread has does not matter as long as both operands agree: here a thread has 8 neighbours of 32 inputs, a step,
// and of the next 32, so that both are of the same line of the cache.
//
// Each block reads all rows of the input, which for many rows are as many bytes as its weights. SHARED, a tile is 32
// outputs, and belongs to a cluster of two blocks: each multiplies one half of the inputs and tells the other its sums
// of the 16 outputs that the other one writes. So half as much is read.
//
// Weights of fewer BITS than an element are quantized (`quantized.cuh`): 16 bytes are then 16 or 32 inputs, and a step
// has four times as many. The scales of a tile come to a table in shared memory with the first of its weights. Where a
// step is of one group and there are no offsets, the tensor cores add up products with integers, and each sum is
// multiplied by its scale. Otherwise the threads whose places are added up have other groups, and each weight is
// multiplied by its scale before.
//
// PAIRED, two blocks are on a multiprocessor, and share its registers.
//
// With NORM a row is that of its root-mean-square normalization: elements are multiplied by `gain + OFFSET`, and the
// sum by the reciprocal root of the mean of the squares, which each block computes of the elements that it reads
// anyway.
typedef ELEMENT T;

// What a thread has of a step: 16 bytes of a row of the weight, which are PARTS times 8 inputs.
constexpr int PARTS = 16 / BITS, NEIGHBOURS = 8 * PARTS, STEP = 4 * NEIGHBOURS;
#if BITS < 16
typedef u8 W;
// Scales of a row of the weight, and the tables of a tile: of scales, and of those of the other weight or of offsets.
constexpr int SCALES = INPUTS / GROUP_SIZE, KINDS = GATED || OFFSETS ? 2 : 1;
constexpr bool BEHIND = !OFFSETS && GROUP_SIZE % STEP == 0;
// Widening adds one number to every integer of 4 bits. It is not taken off each of them: that number times the sum of
// the row's elements is subtracted from the sum of products.
constexpr bool RAISED = BEHIND && BITS == 4 && ROWS <= 8;
#else
typedef T W;
#endif
// Elements W of a row, and of four threads.
constexpr int ROW = INPUTS / 8 * BITS / sizeof(W), AT_ONCE = 16 / sizeof(W);
// The blocks of a tile, and the steps of one of them.
constexpr int BLOCKS = SHARED ? 2 : 1;
constexpr int STEPS = INPUTS / STEP;
constexpr int OWN_STEPS = (STEPS + BLOCKS - 1) / BLOCKS;
constexpr int GROUPS = (ROWS + 7) / 8;
constexpr int MATRICES = GATED || SHARED ? 2 : 1;
constexpr int TILE = 16 * BLOCKS;
constexpr int TILES = (OUTPUTS + TILE - 1) / TILE;
constexpr int PAIRS = (OWN_STEPS + 2 * WARPS - 1) / (2 * WARPS);
// Whether a thread keeps its part of the rows in registers for all tiles. Otherwise it has those of CHUNK steps, and of
// as many that come next.
constexpr bool KEPT = 2 * PAIRS * GROUPS * PARTS <= (BITS < 16 && MATRICES * WARPS > 24 ? 8 : 16);
constexpr int CHUNK = KEPT ? 2 * PAIRS : BITS < 16 && GROUPS > 1 ? 1 : 4 / PARTS;
// Steps of a warp in a tile; of the last some may be beyond the end.
constexpr int EACH = (2 * PAIRS + CHUNK - 1) / CHUNK * CHUNK;
// If there are few rows, one warp adds up the sums of all warps while the others go on with the next tile.
constexpr int BUFFERS = GROUPS == 1 && !SHARED ? 2 : 1;
#if BITS < 16
// Tiles whose scales are in use or on their way.
constexpr int TABLES = (DEPTH + EACH - 1) / EACH + 1;
#endif

#if NORM
// Two numbers times two others, each rounded once.
__device__ __forceinline__ u32 times(u32 x, u32 y) {
    u32 product;
    // -0 is what changes no sum.
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(x), "r"(y), "r"(0x80008000u));
    return product;
}

// 8 elements of a row times those of `gain + OFFSET`, rounded.
__device__ __forceinline__ uint4 scaled(const uint4& row, const uint4& gain) {
    if constexpr (OFFSET == 0.0f) {
        return make_uint4(
            times(row.x, gain.x), times(row.y, gain.y), times(row.z, gain.z), times(row.w, gain.w));
    }
    const Pack<T, 8>& x = reinterpret_cast<const Pack<T, 8>&>(row);
    const Pack<T, 8>& y = reinterpret_cast<const Pack<T, 8>&>(gain);
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        words[i] = Halves<T>::of(
            widen(x.at[2 * i]) * (widen(y.at[2 * i]) + OFFSET),
            widen(x.at[2 * i + 1]) * (widen(y.at[2 * i + 1]) + OFFSET));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}
#endif

#if PAIRED
#define BOUNDS __launch_bounds__(32 * WARPS, 2)
#else
#define BOUNDS __launch_bounds__(32 * WARPS)
#endif
extern "C" __global__ void BOUNDS product(
    const T* input, const W* weight,
#if GATED
    const W* up,
#endif
#if BITS < 16
    const SCALE* scales,
#if GATED
    const SCALE* up_scales,
#endif
#if OFFSETS
    const SCALE* offsets,
#endif
#endif
#if NORM
    const T* gain,
#endif
#if BIAS
    const T* bias,
#endif
#if RESIDUAL
    const T* residual,
#endif
    T* out) {
    extern __shared__ uint4 ring[];
    __shared__ float partial[BUFFERS][MATRICES][WARPS][8 * GROUPS][17];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int rank = blockIdx.x % BLOCKS;
    // STEPS if it is beyond the end.
    auto step_of = [&](int i) {
        const int step = (i / 2 * WARPS + warp) * 2 + i % 2;
        return SHARED && step >= OWN_STEPS ? STEPS : rank * OWN_STEPS + step;
    };
#if SHARED
    // Sums of the other block, of the outputs that this one writes; and its parts of the rows' squares.
    __shared__ float of_other[8 * GROUPS][17];
#if NORM
    __shared__ float squares_of_other[8 * GROUPS];
#endif
    // No block writes to the other's memory before that one has begun.
    cluster_arrive();
#endif
    auto place = [&](int slot, int half) -> uint4* {
        return ring + (slot * 2 * MATRICES + half) * (32 * WARPS) + threadIdx.x;
    };
#if BITS < 16
    // The table of a kind of the n-th tile of this block.
    auto table_of = [&](int n, int kind) -> SCALE* {
        SCALE* const tables = reinterpret_cast<SCALE*>(ring + DEPTH * 2 * MATRICES * 32 * WARPS);
        return tables + (n % TABLES * KINDS + kind) * (TILE * SCALES);
    };
    // All threads copy the scales of a tile, which are one piece of memory: by 16 bytes, and the end of the last tile's
    // by 4.
    auto ask_table = [&](int n, int tile) {
        const int bytes = min(TILE, OUTPUTS - TILE * tile) * SCALES * (int)sizeof(SCALE);
#pragma unroll
        for (int kind = 0; kind < KINDS; ++kind) {
#if GATED
            const SCALE* const of = kind ? up_scales : scales;
#elif OFFSETS
            const SCALE* const of = kind ? offsets : scales;
#else
            const SCALE* const of = scales;
#endif
            const u8* const from = reinterpret_cast<const u8*>(of + TILE * tile * SCALES);
            u8* const to = reinterpret_cast<u8*>(table_of(n, kind));
            for (int at = 16 * threadIdx.x; at + 16 <= bytes; at += 16 * 32 * WARPS) {
                fetch_bytes<16>(to + at, from + at);
            }
            for (int at = bytes / 16 * 16 + 4 * threadIdx.x; at < bytes; at += 4 * 32 * WARPS) {
                fetch_bytes<4>(to + at, from + at);
            }
        }
    };
#endif
    // The next weights to be asked for: the tile, its number among the block's tiles, and the step. `with_table` asks
    // for the scales of a tile as well.
    int asked_tile = blockIdx.x / BLOCKS, asked_tiles = 0, asked = 0;
    auto ask = [&](int slot, bool with_table) {
        const int step = step_of(asked);
#if BITS < 16
        if (with_table && asked == 0 && asked_tile < TILES) ask_table(asked_tiles, asked_tile);
#endif
        if (asked_tile < TILES && step < STEPS) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Beyond the last output its weights are read again, and the result is not written.
                const int row = min(TILE * asked_tile + g + 8 * half, OUTPUTS - 1);
                const int at = row * ROW + AT_ONCE * (4 * step + t);
                fetch<true>(reinterpret_cast<W*>(place(slot, half)), weight + at);
#if GATED
                fetch<true>(reinterpret_cast<W*>(place(slot, 2 + half)), up + at);
#endif
#if SHARED
                const int later = min(TILE * asked_tile + 16 + g + 8 * half, OUTPUTS - 1);
                fetch<true>(
                    reinterpret_cast<W*>(place(slot, 2 + half)), weight + later * ROW + AT_ONCE * (4 * step + t));
#endif
            }
        }
        end_batch();
        if (++asked == EACH) {
            asked = 0;
            ++asked_tiles;
            asked_tile += gridDim.x / BLOCKS;
        }
    };
    auto fill = [&] {
#pragma unroll 1
        for (int slot = 0; slot < DEPTH; ++slot) ask(slot, !LATE_FIGURES);
    };
#if SETTLED
    // No kernel of the program writes the weights: they may be read before the one before has ended.
    fill();
#endif
    let_next_begin();
    wait_for_previous();
#if !SETTLED
    fill();
#endif
#if LATE_FIGURES
    // Scales may be written by the kernel before, weights were asked for already.
#pragma unroll 1
    for (int n = 0, tile = blockIdx.x / BLOCKS; n < TABLES && n * EACH < DEPTH && tile < TILES; ++n) {
        ask_table(n, tile);
        tile += gridDim.x / BLOCKS;
    }
    end_batch();
#endif
#if NORM
    // Of rows times rows: squares are on the diagonal.
    float squares[GROUPS][4] = {};
#endif
    // PARTS times 8 elements of each row `8 group + g`, of CHUNK steps; the squares of a row are counted once.
    constexpr int PIECES = CHUNK * PARTS;
    uint4 x[PIECES][GROUPS], next[PIECES][GROUPS];
#if BITS < 16
    // Of each step the sums of the rows 2 t and 2 t + 1 of a group.
    float row_sums[RAISED ? CHUNK : 1][GROUPS][4], next_sums[RAISED ? CHUNK : 1][GROUPS][4];
    auto add_rows = [&](float(&to)[RAISED ? CHUNK : 1][GROUPS][4], const uint4(&of)[PIECES][GROUPS]) {
        if constexpr (RAISED) {
            constexpr u32 ones = Magic<T>::ONE;
#pragma unroll
            for (int i = 0; i < CHUNK; ++i)
#pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    float total[4] = {};
#pragma unroll
                    for (int part = 0; part < PARTS; ++part) {
                        const uint4 of_rows = of[i * PARTS + part][group];
                        multiply_add(T(), total, ones, ones, ones, ones, of_rows.x, of_rows.y);
                        multiply_add(T(), total, ones, ones, ones, ones, of_rows.z, of_rows.w);
                    }
#pragma unroll
                    for (int n = 0; n < 4; ++n) to[i][group][n] = total[n];
                }
        }
    };
#endif
    auto read_rows = [&](uint4(&to)[PIECES][GROUPS], int first, bool counts) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const int step = step_of(first + i / PARTS), at = STEP * step + NEIGHBOURS * t + i % PARTS * 8;
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const int row = 8 * group + g;
                to[i][group] = make_uint4(0, 0, 0, 0);
                if (row < ROWS && step < STEPS) {
                    to[i][group] = *reinterpret_cast<const uint4*>(input + row * INPUTS + at);
                }
            }
#if NORM
            const uint4 upper = to[i][0], lower = GROUPS > 1 ? to[i][GROUPS - 1] : make_uint4(0, 0, 0, 0);
            const uint4 gains = *reinterpret_cast<const uint4*>(gain + (step < STEPS ? at : 0));
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                uint4& own = to[i][group];
                if (counts) {
                    multiply_add(T(), squares[group], upper.x, lower.x, upper.y, lower.y, own.x, own.y);
                    multiply_add(T(), squares[group], upper.z, lower.z, upper.w, lower.w, own.z, own.w);
                }
                own = scaled(own, gains);
            }
#endif
#if BITS < 16
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) to[i][group] = in_order_of_numbers<BITS>(to[i][group]);
#endif
        }
    };
    read_rows(x, 0, true);
#if BITS < 16
    add_rows(row_sums, x);
#endif
#if LATE_FIGURES
    await_all_but<0>();
#endif
#if BITS < 16
    // Other threads have copied parts of the first table.
    await_all_but<DEPTH - 1>();
    __syncthreads();
#endif
    int own_tiles = 0, slot = 0;
#if SHARED
    cluster_wait();
#endif
    for (int tile = blockIdx.x / BLOCKS; tile < TILES; tile += gridDim.x / BLOCKS) {
        const bool is_first = tile == blockIdx.x / BLOCKS;
        float sums[MATRICES][GROUPS][4] = {};
#if BITS < 16
        // The scales of the row of the weight that is a half of a place.
        auto scales_of = [&](int half, int kind) -> const SCALE* {
            return table_of(own_tiles, kind) + (g + 8 * (half % 2) + (SHARED && half > 1 ? 16 : 0)) * SCALES;
        };
#endif
#pragma unroll 1
        for (int first = 0; first < EACH; first += CHUNK) {
            // Of the last chunk the next is the first of the next tile.
            const bool wraps = first + CHUNK == EACH;
            if constexpr (!KEPT) {
                read_rows(next, wraps ? 0 : first + CHUNK, is_first && !wraps);
#if BITS < 16
                add_rows(next_sums, next);
#endif
            }
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) {
                await_all_but<DEPTH - 1>();
                const int step = step_of(first + i);
                if (step < STEPS) {
#pragma unroll
                    for (int m = 0; m < MATRICES; ++m) {
                        const uint4 upper = *place(slot, 2 * m), lower = *place(slot, 2 * m + 1);
#if BITS < 16
                        const int group_of = (STEP * step + (BEHIND ? 0 : NEIGHBOURS * t)) / GROUP_SIZE;
                        const SCALE upper_scale = scales_of(2 * m, GATED ? m : 0)[group_of];
                        const SCALE lower_scale = scales_of(2 * m + 1, GATED ? m : 0)[group_of];
#if OFFSETS
                        const u32 upper_offset = twice<T>(scales_of(2 * m, 1)[group_of]);
                        const u32 lower_offset = twice<T>(scales_of(2 * m + 1, 1)[group_of]);
#else
                        // -0 is what changes no sum.
                        constexpr u32 upper_offset = 0x80008000u, lower_offset = 0x80008000u;
#endif
                        float integers[GROUPS][4] = {};
                        float(&added)[GROUPS][4] = BEHIND ? integers : sums[m];
#endif
#pragma unroll
                        for (int part = 0; part < PARTS; ++part) {
#if BITS < 16
                            uint4 a = eight_integers<T, BITS, !OFFSETS, RAISED>(upper, part);
                            uint4 b = eight_integers<T, BITS, !OFFSETS, RAISED>(lower, part);
                            if constexpr (!BEHIND) {
                                a = times_scale<T>(a, twice<T>(upper_scale), upper_offset);
                                b = times_scale<T>(b, twice<T>(lower_scale), lower_offset);
                            }
#else
                            const uint4 a = upper, b = lower;
                            float(&added)[GROUPS][4] = sums[m];
#endif
#pragma unroll
                            for (int group = 0; group < GROUPS; ++group) {
                                const uint4 of_rows = x[i * PARTS + part][group];
                                multiply_add(T(), added[group], a.x, b.x, a.y, b.y, of_rows.x, of_rows.y);
                                multiply_add(T(), added[group], a.z, b.z, a.w, b.w, of_rows.z, of_rows.w);
                            }
                        }
#if BITS < 16
                        if constexpr (BEHIND) {
#pragma unroll
                            for (int group = 0; group < GROUPS; ++group)
#pragma unroll
                                for (int n = 0; n < 4; ++n) {
                                    float integer = integers[group][n];
                                    if constexpr (RAISED) {
                                        integer = fmaf(-Magic<T>::RAISED_BY, row_sums[i][group][n], integer);
                                    }
                                    const float scale = widen(n < 2 ? upper_scale : lower_scale);
                                    sums[m][group][n] = fmaf(integer, scale, sums[m][group][n]);
                                }
                        }
#endif
                    }
                }
                ask(slot, true);
                slot = slot + 1 == DEPTH ? 0 : slot + 1;
            }
            if constexpr (!KEPT) {
#pragma unroll
                for (int i = 0; i < PIECES; ++i)
#pragma unroll
                    for (int group = 0; group < GROUPS; ++group) x[i][group] = next[i][group];
#if BITS < 16
                if constexpr (RAISED) {
#pragma unroll
                    for (int i = 0; i < CHUNK; ++i)
#pragma unroll
                        for (int group = 0; group < GROUPS; ++group)
#pragma unroll
                            for (int n = 0; n < 4; ++n) row_sums[i][group][n] = next_sums[i][group][n];
                }
#endif
            }
        }
#pragma unroll
        for (int m = 0; m < MATRICES; ++m)
#pragma unroll
            for (int group = 0; group < GROUPS; ++group)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    partial[own_tiles % BUFFERS][m][warp][8 * group + 2 * t + i % 2][g + i / 2 * 8] = sums[m][group][i];
#if NORM
        __shared__ float of_squares[WARPS][8 * GROUPS];
        if (is_first && t == g / 2) {
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                of_squares[warp][8 * group + g] = g % 2 ? squares[group][2 * group + 1] : squares[group][2 * group];
            }
        }
#endif
#if BITS < 16
        // Parts of the next tile's table that other threads read.
        await_all_but<DEPTH - 1>();
#endif
        __syncthreads();
        auto of_warps = [&](int matrix, int row, int output) {
            float total = 0;
#pragma unroll
            for (int from = 0; from < WARPS; ++from) {
                total += partial[own_tiles % BUFFERS][matrix][from][row][output];
            }
            return total;
        };
#if NORM
        auto squares_of_warps = [&](int row) {
            float square = 0;
#pragma unroll
            for (int from = 0; from < WARPS; ++from) square += of_squares[from][row];
            return square;
        };
#endif
#if SHARED
        for (int place = threadIdx.x; place < 16 * ROWS; place += 32 * WARPS) {
            const int row = place / 16, output = place % 16;
            store_in_block(&of_other[row][output], 1 - rank, of_warps(1 - rank, row, output));
#if NORM
            if (is_first && output == 0) store_in_block(&squares_of_other[row], 1 - rank, squares_of_warps(row));
#endif
        }
        cluster_arrive();
        cluster_wait();
#endif
        // The first of these threads is in another warp for each tile.
        const int from_first = BUFFERS == 1 ? 0 : 32 * (own_tiles % WARPS);
        const int thread = threadIdx.x >= from_first ? threadIdx.x - from_first : threadIdx.x + 32 * WARPS - from_first;
        for (int place = thread; place < 16 * ROWS; place += 32 * WARPS) {
            const int row = place / 16, n = TILE * tile + (SHARED ? 16 * rank : 0) + place % 16;
            if (n >= OUTPUTS) continue;
#if SHARED
            float total[1] = {of_warps(rank, row, place % 16) + of_other[row][place % 16]};
#else
            float total[MATRICES];
#pragma unroll
            for (int m = 0; m < MATRICES; ++m) total[m] = of_warps(m, row, place % 16);
#endif
#if NORM
            float square = squares_of_warps(row);
#if SHARED
            square += squares_of_other[row];
#endif
            const float rstd = 1.0f / sqrtf(square / INPUTS + EPS);
            for (float& each : total) each *= rstd;
#endif
#if BIAS
            total[0] += widen(bias[n]);
#endif
#if GATED
            // Each result is rounded, as if it was written and read.
            const float gate = widen(narrow<T>(total[0])), other = widen(narrow<T>(total[1]));
            total[0] = widen(narrow<T>(gate / (1.0f + expf(-gate)))) * other;
#endif
#if RESIDUAL
            total[0] = widen(narrow<T>(total[0])) + widen(residual[row * OUTPUTS + n]);
#endif
            out[row * OUTPUTS + n] = narrow<T>(total[0]);
        }
        // The sums of the next tile are written where these were read, unless there are two places: the ones of this
        // tile are read by then, since no warp goes through the next barrier before.
#if SHARED
        cluster_arrive();
        cluster_wait();
#else
        if constexpr (BUFFERS == 1) __syncthreads();
#endif
        ++own_tiles;
    }
}
