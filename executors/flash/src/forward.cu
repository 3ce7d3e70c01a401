// Attention of OWN queries of one head to its keys, tile by tile: scores are never written. The weights' sums and the
// largest scores are carried along (Milakov and Gimelshein 2018; Dao et al. 2022).

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(
    const T* query, const T* key, const T* value, T* out,
#if AFTER
    const STARTS* starts,
#else
    float* log_sums,
#endif
    Strides of_query, Strides of_key, Strides of_value, Strides of_out, int heads, int shared_heads, int queries,
    int keys, float scale TAKEN) {
    extern __shared__ uint4 shared[];
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // With causal attention the last queries have most to do: those of all heads begin first.
    const int all = gridDim.x / ((queries + OWN - 1) / OWN), block = gridDim.x / all - 1 - blockIdx.x / all;
    const int head = blockIdx.x % all % heads;
    const i64 batch = blockIdx.x % all / heads;
    const int shared_head = head / (heads / shared_heads);
    // The position of the first query; so that sums with it fit, as if it was next to the rows that see something.
#if AFTER
#define HIDES(key, query) false
    const i64 given = widen(starts[batch]);
    const int start = given > keys ? keys : given < -queries ? -queries : (int)given;
    // What comes later may be anything, also NaN, which a weight of 0 would not hide: zeros stand for it.
    const int filled = min(keys, start + queries);
#else
    constexpr int start = 0;
    const Changes changes = GIVEN;
#define HIDES(key, query) changes.window_hides(key, query)
    const HeadChanges change(changes, batch, heads, head, queries, keys);
    const int filled = changes.keys_of(batch, keys);
#endif
    const int first_own = block * OWN, first_of_warp = first_own + threadIdx.x / 32 * 16;
    const int own[2] = {first_of_warp + g, first_of_warp + g + 8};
    const T* q = query + batch * of_query.batch + head * of_query.head;
    const T* k = key + batch * of_key.batch + shared_head * of_key.head;
    const T* v = value + batch * of_value.batch + shared_head * of_value.head;

    Tiles<true> tiles(shared);
    auto ask = [&](int first) { tiles.ask(k, of_key.row, v, of_value.row, first, filled); };
    // What no query of the block sees is passed by: those after `end`, and with a window those before `begin`.
#if AFTER
    const int seen = keys, begin = 0;
#else
    const int seen = filled, begin = WINDOW ? max(changes.first_key_of(first_own), 0) / TILE * TILE : 0;
#endif
    const int end = CAUSAL ? min(seen, start + first_own + OWN) : seen;
    if (!SOME_SEE_NOTHING || begin < end) ask(begin);
    const Left<(PADDED <= 128)> left(shared + Tiles<true>::BYTES / 16, q, of_query.row, own, queries);
    float sums[WIDE][4], top[2] = {-INFINITY_F32, -INFINITY_F32}, total[2] = {0, 0};
    clear(sums);
    const float to_power = scale * LOG2_E;
    for (int first = begin; first < end; first += TILE) {
        tiles.arrive();
        if (first + TILE < end) ask(first + TILE);
        // Tiles that all queries of the warp come before.
        if (CAUSAL && first > start + first_of_warp + 15) continue;
#if WINDOW
        if (changes.window_hides(first + TILE - 1, first_of_warp)) continue;
#endif
        float scores[TILE / 8][4];
        clear(scores);
        along_width(scores, left, tiles.one);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j) {
            IN_ORDER;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#if SCORES_CHANGED
                float slope;
                const int at = first + 8 * j + 2 * t + i % 2;
                scores[j][i] = change.exponent(scores[j][i], own[i / 2], at, to_power, slope);
#else
                scores[j][i] *= to_power;
#endif
            }
        }
        if (first + TILE > seen || (CAUSAL && first + TILE - 1 > start + first_of_warp) ||
            HIDES(first, first_of_warp + 15)) {
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int at = first + 8 * j + 2 * t + i % 2;
                    if (at >= seen || (CAUSAL && at > start + own[i / 2]) || HIDES(at, own[i / 2]))
                        scores[j][i] = -INFINITY_F32;
                }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float highest = top[half];
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
                highest = fmaxf(highest, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
            highest = top_of_row(highest);
            // As long as a row has no key, nothing is subtracted from its scores, which are all -infinity.
            const float from = highest == -INFINITY_F32 ? 0.0f : highest;
            const float shrink = power_of_two(top[half] - from);
            top[half] = highest;
            float sum = 0;
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    scores[j][i] = power_of_two(scores[j][i] - from);
                    sum += scores[j][i];
                }
            total[half] = __fmaf_rn(total[half], shrink, sum);
#pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                sums[j][2 * half] *= shrink;
                sums[j][2 * half + 1] *= shrink;
            }
        }
#if DROPPED
        // Of the weights that were summed up, some are not multiplied.
        u32 kept[(TILE / 8 + 7) / 8];
        change.draw<false, TILE / 8>(kept, first_of_warp, first);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (!is_kept(kept, j, i)) scores[j][i] = 0;
#endif
        along_rows(sums, scores, tiles.other);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float all = over_row(total[half]);
        if (own[half] < queries) {
            // A query that sees nothing gets zeros.
#if AFTER
            const float share = all == 0.0f ? 0.0f : 1.0f / all;
#else
            const float share = SOME_SEE_NOTHING && all == 0.0f ? 0.0f : changes.kept_factor() / all;
#endif
            write_row(place(out, of_out, batch, head, own[half]), sums, half, share);
#if !AFTER
            const float log_sum = SOME_SEE_NOTHING && all == 0.0f ? INFINITY_F32 : (top[half] + log2f(all)) * LN_2;
            if (t == 0) log_sums[(batch * heads + head) * queries + own[half]] = log_sum;
#endif
        }
    }
}
