#if ROWS_HERE
#include "fulgurite/reductions.cuh"
#endif

// The gradients of attention. Weights are computed again from the logarithms of their sums; scores are never written.
// Some blocks have OWN queries and go over keys, the others have OWN keys and go over queries: every sum has one place,
// and one order. With P the weights and δ = Σ d_out out of a row: d_value = Pᵀ d_out, d_scores = P (d_out valueᵀ - δ),
// d_query = d_scores key scale, d_key = d_scoresᵀ query scale.

// Registers hold the rows of a block where they are short.
constexpr bool KEPT = PADDED <= 64;
// Of two gradients of keys registers hold this many results of 8 columns; of wider heads blocks compute parts of them.
constexpr int OF_PART = WIDE <= 16 ? WIDE : WIDE / 2;
constexpr int KEY_PARTS = WIDE / OF_PART;

struct Problem {
    const T *d_out, *query, *key, *value;
#if ROWS_HERE
    // Of all queries of all heads the logarithms of the sums of their weights, and what was attended to, [batch,
    // queries, heads, WIDTH].
    const float* rows;
    const T* out;
#else
    // Of all queries of all heads: the logarithms to base 2 of the sums of their weights, and behind them as many δ.
    const float* rows;
#endif
    T *d_query, *d_key, *d_value;
    Strides of_d_out, of_query, of_key, of_value, of_d_query, of_d_key, of_d_value;
    int batches, heads, shared_heads, queries, keys;
    float scale;
    Changes changes;

    __device__ __forceinline__ const float* logs_of(i64 batch, int head) const {
        return rows + (batch * heads + head) * queries;
    }
    __device__ __forceinline__ const float* deltas_of(i64 batch, int head) const {
        return logs_of(batch, head) + (i64)batches * heads * queries;
    }
#if ROWS_HERE
    // Of a query, computed here: PARTS neighbouring threads have a part of its row each, and all of a warp call it.
    template <int PARTS> __device__ __forceinline__ float delta(i64 batch, int head, int query, bool real) const {
        constexpr int EACH = 16 / sizeof(T);
        float sum = 0;
        if (real) {
            const T* a = d_out + batch * of_d_out.batch + head * of_d_out.head + query * of_d_out.row;
            const T* b = out + ((batch * queries + query) * heads + head) * WIDTH;
            // All loads at once would take registers that the gradients have.
#pragma unroll 2
            for (int at = threadIdx.x % PARTS * EACH; at < WIDTH; at += PARTS * EACH) {
#if ROWS_ALIGNED
                const Pack<T, EACH> x = load<EACH>(a + at), y = load<EACH>(b + at);
#pragma unroll
                for (int i = 0; i < EACH; ++i) sum = __fmaf_rn(widen(x.at[i]), widen(y.at[i]), sum);
#else
                // The same sums, in the same order.
#pragma unroll
                for (int i = 0; i < EACH; ++i) sum = __fmaf_rn(widen(a[at + i]), widen(b[at + i]), sum);
#endif
            }
        }
        return lanes_reduce<Sum, PARTS>(sum);
    }
#endif
};

__device__ __forceinline__ void of_queries(const Problem& p, int index, uint4* shared) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // With causal attention the last queries have most to do: those of all heads begin first.
    const int all = p.batches * p.heads, block = (p.queries + OWN - 1) / OWN - 1 - index / all;
    const int head = index % all % p.heads;
    const i64 batch = index % all / p.heads;
    const int shared_head = head / (p.heads / p.shared_heads);
    const int first_own = block * OWN, first_of_warp = first_own + threadIdx.x / 32 * 16;
    int own[2] = {first_of_warp + g, first_of_warp + g + 8};
    const T* k = p.key + batch * p.of_key.batch + shared_head * p.of_key.head;
    const T* v = p.value + batch * p.of_value.batch + shared_head * p.of_value.head;

    // What no query of the block sees is passed by.
    const int seen = p.changes.keys_of(batch, p.keys), end = CAUSAL ? min(seen, first_own + OWN) : seen;
    const int begin = WINDOW ? max(p.changes.first_key_of(first_own), 0) / TILE * TILE : 0;
    const HeadChanges change(p.changes, batch, p.heads, head, p.queries, p.keys);
    typedef Tiles<false> Both;
    Both tiles(shared);
    auto ask = [&](int first) { tiles.ask(k, p.of_key.row, v, p.of_value.row, first, seen); };
    if (Both::EARLY && (!SOME_SEE_NOTHING || begin < end)) ask(begin);
    uint4* const own_shared = shared + Both::BYTES / 16;
    const T* queries = p.query + batch * p.of_query.batch + head * p.of_query.head;
    const Left<KEPT> query(own_shared, queries, p.of_query.row, own, p.queries);
    const T* d_outs = p.d_out + batch * p.of_d_out.batch + head * p.of_d_out.head;
    const Left<KEPT> d_out(own_shared + Left<KEPT>::BYTES / 16, d_outs, p.of_d_out.row, own, p.queries);
    const float* logs = p.logs_of(batch, head);
    float log[2] = {0, 0}, delta[2] = {0, 0};
#if ROWS_HERE
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const bool real = own[half] < p.queries;
        delta[half] = p.delta<4>(batch, head, own[half], real);
        if (real) log[half] = logs[own[half]] * LOG2_E;
    }
#else
    const float* deltas = p.deltas_of(batch, head);
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (own[half] < p.queries) {
            log[half] = logs[own[half]];
            delta[half] = deltas[own[half]];
        }
#endif
    float gradient[WIDE][4];
    clear(gradient);
    const float to_power = p.scale * LOG2_E;
    for (int first = begin; first < end; first += TILE) {
        if constexpr (!Both::EARLY) ask(first);
        tiles.arrive();
        if (Both::EARLY && first + TILE < end) ask(first + TILE);
        if (CAUSAL && first > first_of_warp + 15) continue;
#if WINDOW
        if (p.changes.window_hides(first + TILE - 1, first_of_warp)) continue;
#endif
        float weights[TILE / 8][4], d_weights[TILE / 8][4];
        clear(weights);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) d_weights[j][i] = DROPPED ? 0.0f : -delta[i / 2];
        along_width(weights, query, tiles.one);
        along_width(d_weights, d_out, tiles.other);
        const bool whole = first + TILE <= seen && (!CAUSAL || first + TILE - 1 <= first_of_warp) &&
                           !p.changes.window_hides(first, first_of_warp + 15);
#if WINDOW
        // The bounds of the window are computed here, and not kept during the products: the widest heads leave no
        // registers for them.
        asm volatile("" : "+r"(own[0]), "+r"(own[1]));
#endif
#if DROPPED
        u32 kept[(TILE / 8 + 7) / 8];
        change.draw<false, TILE / 8>(kept, first_of_warp, first);
#endif
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j) {
            IN_ORDER;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = first + 8 * j + 2 * t + i % 2;
                float weight;
#if SCORES_CHANGED
                float slope = 1.0f;
                weight = power_of_two(change.exponent(weights[j][i], own[i / 2], at, to_power, slope) - log[i / 2]);
#else
                weight = power_of_two(__fmaf_rn(weights[j][i], to_power, -log[i / 2]));
#endif
                if (!whole && (at >= seen || (CAUSAL && at > own[i / 2]) || p.changes.window_hides(at, own[i / 2])))
                    weight = 0;
#if DROPPED
                d_weights[j][i] = (is_kept(kept, j, i) ? d_weights[j][i] * p.changes.kept : 0.0f) - delta[i / 2];
#endif
#if CAPPED
                weight *= slope;
#endif
                d_weights[j][i] *= weight;
            }
        }
        along_rows(gradient, d_weights, tiles.one);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (own[half] < p.queries)
            write_row(place(p.d_query, p.of_d_query, batch, head, own[half]), gradient, half, p.scale);
}

// BEGIN is the first result of 8 columns of the part.
template <int BEGIN> __device__ __forceinline__ void of_keys(const Problem& p, int index, uint4* shared) {
    // Of the tile's queries, and of the next one's.
    __shared__ float logs[2][TILE], deltas[2][TILE];
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // With causal attention the first keys are read by most queries, and begin first.
    const int all = p.batches * p.shared_heads, block = index / all;
    const int shared_head = index % all % p.shared_heads;
    const i64 batch = index % all / p.shared_heads;
    const int times = p.heads / p.shared_heads;
    const int first_own = block * OWN, first_of_warp = first_own + threadIdx.x / 32 * 16;
    const int own[2] = {first_of_warp + g, first_of_warp + g + 8};

    // The queries of all heads that share these keys, tile by tile.
    const int begin = CAUSAL ? first_own / TILE * TILE : 0;
    const int seen = p.changes.keys_of(batch, p.keys);
    int end = p.changes.end_of_queries(min(first_own + OWN, seen) - 1, p.queries);
#ifdef LENGTHS
    if (seen <= first_own) end = begin;
#endif
    const int tiles_of_head = begin < end ? (end - begin + TILE - 1) / TILE : 0;
    const int count = times * tiles_of_head;
    auto first_of = [&](int index) { return begin + index % tiles_of_head * TILE; };
    typedef Tiles<false> Both;
    Both tiles(shared);
    auto ask = [&](int index) {
        const int head = shared_head * times + index / tiles_of_head, first = first_of(index);
        tiles.ask(p.query + batch * p.of_query.batch + head * p.of_query.head, p.of_query.row,
                  p.d_out + batch * p.of_d_out.batch + head * p.of_d_out.head, p.of_d_out.row, first, p.queries);
#if ROWS_HERE
        const float* from = p.logs_of(batch, head);
#pragma unroll
        for (int near = 0; near < TILE; near += THREADS / 2) {
            const int row = near + threadIdx.x / 2;
            const bool there = row < TILE && first + row < p.queries;
            const float delta = p.delta<2>(batch, head, first + row, there);
            if (row < TILE && threadIdx.x % 2 == 0) {
                logs[index % 2][row] = there ? from[first + row] * LOG2_E : 0;
                deltas[index % 2][row] = delta;
            }
        }
#else
        const float *from = p.logs_of(batch, head), *from_deltas = p.deltas_of(batch, head);
        for (int row = threadIdx.x; row < TILE; row += THREADS) {
            const bool there = first + row < p.queries;
            const int at = there ? first + row : 0;
            fetch_or_clear<4>(&logs[index % 2][row], from + at, there);
            fetch_or_clear<4>(&deltas[index % 2][row], from_deltas + at, there);
        }
#endif
    };
    if (Both::EARLY && count > 0) ask(0);
    uint4* const own_shared = shared + Both::BYTES / 16;
    const T* keys = p.key + batch * p.of_key.batch + shared_head * p.of_key.head;
    const Left<KEPT> key(own_shared, keys, p.of_key.row, own, seen);
    const T* values = p.value + batch * p.of_value.batch + shared_head * p.of_value.head;
    const Left<KEPT> value(own_shared + Left<KEPT>::BYTES / 16, values, p.of_value.row, own, seen);
    float d_key[OF_PART][4], d_value[OF_PART][4];
    clear(d_key);
    clear(d_value);
    const float to_power = p.scale * LOG2_E;
    for (int index = 0; index < count; ++index) {
        const int first = first_of(index);
        if constexpr (!Both::EARLY) ask(index);
        tiles.arrive();
        if (Both::EARLY && index + 1 < count) ask(index + 1);
        if (CAUSAL && first + TILE - 1 < first_of_warp) continue;
#if WINDOW
        if (p.changes.window_hides(first_of_warp + 15, first)) continue;
#endif
#if MASK || DROPPED
        const HeadChanges change(
            p.changes, batch, p.heads, shared_head * times + index / tiles_of_head, p.queries, p.keys);
#elif CAPPED
        const HeadChanges change(p.changes, 0, 0, 0, 0, 0);
#endif
        float weights[TILE / 8][4], d_weights[TILE / 8][4];
        clear(weights);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                d_weights[j][i] = d_weights[j][i + 2] = DROPPED ? 0.0f : -deltas[index % 2][8 * j + 2 * t + i];
        along_width(weights, key, tiles.one);
        along_width(d_weights, value, tiles.other);
        const bool whole = first + TILE <= p.queries && (!CAUSAL || first >= first_of_warp + 15) &&
                           !p.changes.length_hides(first_of_warp + 15, seen) &&
                           !p.changes.window_hides(first_of_warp, first + TILE - 1);
#if DROPPED
        u32 kept[(TILE / 8 + 7) / 8];
        change.draw<true, TILE / 8>(kept, first_of_warp, first);
#endif
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j) {
            IN_ORDER;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = 8 * j + 2 * t + i % 2, at = first + row;
                float weight;
#if SCORES_CHANGED
                float slope = 1.0f;
                const float score = change.exponent(weights[j][i], at, own[i / 2], to_power, slope);
                weight = power_of_two(score - logs[index % 2][row]);
#else
                weight = power_of_two(__fmaf_rn(weights[j][i], to_power, -logs[index % 2][row]));
#endif
                if (!whole && (at >= p.queries || (CAUSAL && at < own[i / 2]) ||
                               p.changes.length_hides(own[i / 2], seen) || p.changes.window_hides(own[i / 2], at)))
                    weight = 0;
#if DROPPED
                const bool is = is_kept(kept, j, i);
                weights[j][i] = is ? weight : 0.0f;
                d_weights[j][i] = (is ? d_weights[j][i] * p.changes.kept : 0.0f) - deltas[index % 2][row];
#else
                weights[j][i] = weight;
#endif
#if CAPPED
                weight *= slope;
#endif
                d_weights[j][i] *= weight;
            }
        }
        along_rows<BEGIN>(d_value, weights, tiles.other);
        along_rows<BEGIN>(d_key, d_weights, tiles.one);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (own[half] < p.keys) {
            write_row<BEGIN>(place(p.d_key, p.of_d_key, batch, shared_head, own[half]), d_key, half, p.scale);
            write_row<BEGIN>(place(p.d_value, p.of_d_value, batch, shared_head, own[half]), d_value, half,
                             p.changes.kept_factor());
        }
}

// The first blocks are those of keys, which have more to do.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward(
    const T* d_out, const T* query, const T* key, const T* value, const float* rows,
#if ROWS_HERE
    const T* out,
#endif
    T* d_query, T* d_key, T* d_value, Strides of_d_out, Strides of_query, Strides of_key, Strides of_value,
    Strides of_d_query,
    Strides of_d_key, Strides of_d_value, int batches, int heads, int shared_heads, int queries, int keys,
    float scale TAKEN) {
    extern __shared__ uint4 shared[];
    const Problem problem = {d_out, query, key, value, rows,
#if ROWS_HERE
                             out,
#endif
                             d_query, d_key, d_value, of_d_out, of_query, of_key, of_value, of_d_query, of_d_key,
                             of_d_value, batches, heads, shared_heads, queries, keys, scale, GIVEN};
    const int index = blockIdx.x, blocks_of_keys = (keys + OWN - 1) / OWN * batches * shared_heads;
    if (KEY_PARTS == 1 && index < blocks_of_keys) {
        of_keys<0>(problem, index, shared);
    } else if (index < KEY_PARTS * blocks_of_keys) {
        if (index % 2 == 0) of_keys<0>(problem, index / 2, shared);
        else of_keys<WIDE - OF_PART>(problem, index / 2, shared);
    } else {
        of_queries(problem, index - KEY_PARTS * blocks_of_keys, shared);
    }
}
