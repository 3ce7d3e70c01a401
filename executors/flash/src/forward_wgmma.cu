// Attention of OWN queries of one head to its keys, tile by tile, by sm_90a's products of warp groups. One warp group
// fills shared memory; the others have 64 queries each. Scores are never written; the weights' sums and the largest
// scores are carried along. While the products of a tile with its values are under way, the weights of the next one are
// computed. Blocks stay, and take one piece of work after the other.

typedef Ring<OWN_STAGES, OWN * PADDED * 2> OwnRing;
typedef Ring<STAGES, TILE * PADDED * 2> TileRing;

struct Problem {
    const T *query, *key, *value;
    T* out;
#if AFTER
    const STARTS* starts;
#else
    float* log_sums;
#endif
    Strides of_query, of_key, of_value, of_out;
    int heads, shared_heads, queries, keys;
    float scale;
    int batches, pieces, heads_at_once;
    u32* counter;
    Changes changes;
};

// A piece of work.
struct Work {
    int head, shared_head, first_own, start, tiles;
    // How many keys may be seen, and the first of the first tile.
    int seen, begin;
    i64 batch;

    // With causal attention the last queries have most to do: they begin first.
    __device__ __forceinline__ Work(const Problem& p, int index) {
        const int blocks = (p.queries + OWN - 1) / OWN;
        const Place place(index, p.heads * p.batches, blocks, p.heads_at_once);
        first_own = (blocks - 1 - place.block) * OWN;
        head = place.column % p.heads;
        batch = place.column / p.heads;
        shared_head = head / (p.heads / p.shared_heads);
        // The position of the first query; so that sums with it fit, as if it was next to the rows that see something.
#if AFTER
        const i64 given = widen(p.starts[batch]);
        start = given > p.keys ? p.keys : given < -p.queries ? -p.queries : (int)given;
#else
        start = 0;
#endif
        seen = p.changes.keys_of(batch, p.keys);
        begin = WINDOW ? max(p.changes.first_key_of(first_own), 0) / TILE * TILE : 0;
        tiles = max((CAUSAL ? min(seen, start + first_own + OWN) : seen) - begin + TILE - 1, 0) / TILE;
    }
};

__device__ __forceinline__ void fill(
    const Problem& p, const OwnRing& own, const TileRing& keys, const TileRing& values, const Pieces& pieces) {
    Filler filler;
    u32 turn = 0;
    for (u32 round = 0;; ++round) {
        const int index = threadIdx.x < 32 ? pieces.give(p.counter, round) : pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        const Rows q(p.query + work.batch * p.of_query.batch + work.head * p.of_query.head, p.of_query.row);
        const Rows k(p.key + work.batch * p.of_key.batch + work.shared_head * p.of_key.head, p.of_key.row);
        const Rows v(p.value + work.batch * p.of_value.batch + work.shared_head * p.of_value.head, p.of_value.row);
        filler.fill(own, round, [&](u32 to) { q.fetch<OWN>(to, p.of_query.row, work.first_own, p.queries); });
        // What no query sees may be anything, and counts as zeros.
        const int end = CAUSAL ? min(work.seen, work.start + p.queries) : work.seen;
        for (int i = 0; i < work.tiles; ++i, ++turn) {
            const int first = work.begin + i * TILE;
            filler.fill(keys, turn, [&](u32 to) { k.fetch<TILE>(to, p.of_key.row, first, end); });
            filler.fill(values, turn, [&](u32 to) { v.fetch<TILE>(to, p.of_value.row, first, end); });
        }
    }
    filler.finish();
}

// The weights of a row so far.
struct Softmax {
    float top[2], total[2];
};

// What makes powers of two of scores: positive, so that the largest score has the largest power. Scores are negated, or
// cleared, where their factor is not. Scores that are changed become powers before.
__device__ __forceinline__ float power_factor(float scale) {
    if (SCORES_CHANGED) return 1.0f;
    return scale < 0 ? -scale * LOG2_E : scale > 0 ? scale * LOG2_E : 1.0f;
}

// Turns scores into weights, relative to the largest score so far; `shrink` is what earlier sums are multiplied with.
__device__ __forceinline__ void soften(
    float (&scores)[TILE / 8][4], Softmax& rows, float (&shrink)[2], int first, int first_of_warp, int keys, int start,
    float scale, const Changes& changes, const HeadChanges& change) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float to_power = power_factor(scale);
    if (SCORES_CHANGED) {
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j) {
            IN_ORDER;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int query = first_of_warp + g + i / 2 * 8, key = first + 8 * j + 2 * t + i % 2;
                float slope;
                scores[j][i] = change.exponent(scores[j][i], query, key, scale * LOG2_E, slope);
            }
        }
    } else if (!(scale > 0)) {
        const float factor = scale < 0 ? -1.0f : scale;
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[j][i] *= factor;
    }
#if MASK == 3
    change.hide(scores, first_of_warp, first, -INFINITY_F32);
#endif
#if WINDOW
    if (changes.window_hides(first, first_of_warp + 15)) {
        const int begin = changes.first_key_of(first_of_warp + g) - first - 2 * t;
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (8 * j + i % 2 < begin + i / 2 * 8) scores[j][i] = -INFINITY_F32;
    }
#endif
    if (first + TILE > keys || (CAUSAL && first + TILE - 1 > start + first_of_warp)) {
        // Of the row of each half, columns from here on are not seen.
        int end[2] = {keys - first - 2 * t, keys - first - 2 * t};
        if (CAUSAL) {
            end[0] = min(end[0], start + first_of_warp + g + 1 - first - 2 * t);
            end[1] = min(end[1], start + first_of_warp + g + 9 - first - 2 * t);
        }
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (8 * j + i % 2 >= end[i / 2]) scores[j][i] = -INFINITY_F32;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float highest = rows.top[half];
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
            highest = fmaxf(highest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
        highest = top_of_row(highest);
        // As long as a row has no key, nothing is subtracted from its scores, which are all -infinity.
        const float from = highest == -INFINITY_F32 ? 0.0f : highest * to_power;
        shrink[half] = power_of_two(__fmaf_rn(rows.top[half], to_power, -from));
        rows.top[half] = highest;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
                scores[j][i] = power_of_two(__fmaf_rn(scores[j][i], to_power, -from));
                sum += scores[j][i];
            }
        rows.total[half] = __fmaf_rn(rows.total[half], shrink[half], sum);
    }
}

// Clears the weights that are dropped, once they are summed up.
__device__ __forceinline__ void drop(
    float (&weights)[TILE / 8][4], const HeadChanges& change, int first_of_warp, int first) {
#if DROPPED
    u32 kept[(TILE / 8 + 7) / 8];
    change.draw<false, TILE / 8>(kept, first_of_warp, first);
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (!is_kept(kept, j, i)) weights[j][i] = 0;
#endif
}

// Warp groups take turns in starting products: while one's are under way, the others compute weights. A turn is a
// hardware barrier, at which a warp group waits and the one before it arrives.
__device__ __forceinline__ void await_turn(int group) {
    asm volatile("bar.sync %0, %1;" : : "r"(1 + group), "n"(2 * GROUP) : "memory");
}
__device__ __forceinline__ void give_turn_to(int group) {
    asm volatile("bar.arrive %0, %1;" : : "r"(1 + group % CONSUMERS), "n"(2 * GROUP) : "memory");
}

__device__ __forceinline__ void attend(
    const Problem& p, const OwnRing& own, const TileRing& keys, const TileRing& values, const Pieces& pieces) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, group = threadIdx.x / GROUP - 1;
    u32 turn = 0;
    if (group == CONSUMERS - 1) give_turn_to(0);
    for (u32 round = 0;; ++round) {
        const int index = pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        const int first_of_warp = work.first_own + 64 * group + threadIdx.x % GROUP / 32 * 16;
        const HeadChanges change(p.changes, work.batch, p.heads, work.head, p.queries, p.keys);
        const u32 q = own.tile(round) + group * (64 * ROW_BYTES);
        float sums[WIDE][4], scores[TILE / 8][4], shrink[2];
        u32 weights[TILE / 16][4];
        Softmax rows = {{-INFINITY_F32, -INFINITY_F32}, {0, 0}};
        clear(sums);
        own.await_filled(round);
        if (work.tiles > 0) {
            keys.await_filled(turn);
            await_turn(group);
            along_width(scores, q, keys.tile(turn));
            give_turn_to(group + 1);
            await_products<0>();
            settle(scores);
            keys.release(turn);
            soften(scores, rows, shrink, work.begin, first_of_warp, work.seen, work.start, p.scale, p.changes, change);
            drop(scores, change, first_of_warp, work.begin);
            pack(weights, scores);
            for (int i = 1; i < work.tiles; ++i) {
                keys.await_filled(turn + i);
                await_turn(group);
                along_width(scores, q, keys.tile(turn + i));
                values.await_filled(turn + i - 1);
                along_rows(sums, weights, values.tile(turn + i - 1));
                give_turn_to(group + 1);
                await_products<1>();
                settle(scores);
                keys.release(turn + i);
                const int first = work.begin + i * TILE;
                soften(scores, rows, shrink, first, first_of_warp, work.seen, work.start, p.scale, p.changes, change);
                drop(scores, change, first_of_warp, first);
                await_products<0>();
                settle(sums);
                values.release(turn + i - 1);
                // Largest scores seldom change after the first tiles.
                if (!__all_sync(0xffffffffu, shrink[0] == 1 && shrink[1] == 1)) {
#pragma unroll
                    for (int j = 0; j < WIDE; ++j)
#pragma unroll
                        for (int e = 0; e < 4; ++e) sums[j][e] *= shrink[e / 2];
                }
                pack(weights, scores);
            }
            own.release(round);
            values.await_filled(turn + work.tiles - 1);
            along_rows(sums, weights, values.tile(turn + work.tiles - 1));
            await_products<0>();
            settle(sums);
            values.release(turn + work.tiles - 1);
        } else {
            own.release(round);
        }
        turn += work.tiles;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = first_of_warp + g + 8 * half;
            const float all = over_row(rows.total[half]);
            const bool real = query < p.queries;
            // A query that sees nothing gets zeros.
            const bool nothing = (AFTER || SOME_SEE_NOTHING) && all == 0;
            const float share = nothing ? 0.0f : p.changes.kept_factor() / all;
            T* row = place(p.out, p.of_out, work.batch, work.head, query);
            write_columns(row, real, 0, sums, half, share);
#if !AFTER
            if (t == 0 && real)
                p.log_sums[(work.batch * p.heads + work.head) * p.queries + query] =
                    nothing ? INFINITY_F32 : __fmaf_rn(rows.top[half], power_factor(p.scale), log2f(all)) * LN_2;
#endif
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(
    const T* query, const T* key, const T* value, T* out,
#if AFTER
    const STARTS* starts,
#else
    float* log_sums,
#endif
    Strides of_query, Strides of_key, Strides of_value, Strides of_out, int heads, int shared_heads, int queries,
    int keys, float scale, int batches, int pieces, int heads_at_once, u32* counter TAKEN) {
    // Rows are in the order that products read where tiles begin at multiples of 1024 bytes.
    extern __shared__ __align__(1024) uint4 shared[];
    const Problem p = {query, key, value, out,
#if AFTER
                       starts,
#else
                       log_sums,
#endif
                       of_query, of_key, of_value, of_out, heads, shared_heads, queries, keys, scale, batches, pieces,
                       heads_at_once, counter, GIVEN};
    const u32 from = shared_address(shared);
    const u32 of_keys = from + OWN_STAGES * OWN * PADDED * 2, of_values = of_keys + STAGES * TILE * PADDED * 2;
    const u32 barriers = of_values + STAGES * TILE * PADDED * 2;
    const OwnRing own_ring = {from, barriers};
    const TileRing key_ring = {of_keys, barriers + OwnRing::BARRIERS};
    const TileRing value_ring = {of_values, barriers + OwnRing::BARRIERS + TileRing::BARRIERS};
    const Pieces taken(barriers + OwnRing::BARRIERS + 2 * TileRing::BARRIERS);
    if (threadIdx.x == 0) {
        own_ring.start(4 * CONSUMERS);
        key_ring.start(4 * CONSUMERS);
        value_ring.start(4 * CONSUMERS);
        taken.start(4 * CONSUMERS + GROUP / 32 - 1);
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        shrink_registers<FILLER_REGISTERS>();
        fill(p, own_ring, key_ring, value_ring, taken);
    } else {
        grow_registers<REGISTERS>();
        attend(p, own_ring, key_ring, value_ring, taken);
    }
}
