// The gradients of attention by sm_90a's products of warp groups. Compiled twice: blocks have OWN queries and go over
// keys, or have OWN keys (OF_KEYS) and go over the queries of all heads that share them. Every sum has one place, and
// one order. The formulas are those of `backward.cu`.
//
// One warp group fills shared memory; the others have 64 rows each. `one` is query or key, `other` d_out or value.
// Wide heads leave a thread registers for one of the gradients of keys and values: there two warp groups have the same
// keys, and each has one of the two (SHARED_ROWS).

// Narrow heads leave registers for the block's own rows, and for products that go on during the next step.
// Masks and random numbers need them.
#define AHEAD (PADDED == 64 && !MASK && !CAPPED && !DROPPED)

constexpr int OWN_BYTES = OWN * PADDED * 2;
constexpr int TILE_BYTES = TILE * PADDED * 2;
// The numbers of each query follow the tiles of queries; tiles begin at multiples of 1024 bytes.
constexpr int KNOWN_BYTES = OF_KEYS ? (8 * TILE + 1023) / 1024 * 1024 : 0;

typedef Ring<OWN_STAGES, 2 * OWN_BYTES> OwnRing;
typedef Ring<STAGES, 2 * TILE_BYTES + KNOWN_BYTES> TileRing;

struct Problem {
    const T *d_out, *query, *key, *value;
    // Of all queries of all heads: the logarithms to base 2 of the sums of their weights, and behind them as many δ.
    const float* rows;
    T *d_query, *d_key, *d_value;
    Strides of_d_out, of_query, of_key, of_value, of_d_query, of_d_key, of_d_value;
    int heads, shared_heads, queries, keys;
    float scale;
    int batches;
    Changes changes;
};

// A piece of work: OWN rows of a head, and the tiles of all heads that they meet.
struct Work {
    int batch, head, shared_head, first_own, begin, end, tiles;

    // With causal attention the last queries and the first keys have most to do: those of all heads begin first.
    __device__ __forceinline__ Work(const Problem& p, int index) {
        const int heads = OF_KEYS ? p.shared_heads : p.heads, rows = OF_KEYS ? p.keys : p.queries;
        const int all = heads * p.batches, times = p.heads / p.shared_heads, blocks = (rows + OWN - 1) / OWN;
        const int column = index % all, block = index / all;
        batch = column / heads;
        if (OF_KEYS) {
            first_own = block * OWN;
            shared_head = column % heads;
            head = shared_head * times;
            begin = CAUSAL ? first_own / TILE * TILE : 0;
            const int seen = p.changes.keys_of(batch, p.keys);
            end = p.changes.end_of_queries(min(first_own + OWN, seen) - 1, p.queries);
#ifdef LENGTHS
            if (seen <= first_own) end = begin;
#endif
            tiles = max((end - begin + TILE - 1) / TILE, 0) * times;
        } else {
            first_own = (blocks - 1 - block) * OWN;
            head = column % heads;
            shared_head = head / times;
            const int seen = p.changes.keys_of(batch, p.keys);
            begin = WINDOW ? max(p.changes.first_key_of(first_own), 0) / TILE * TILE : 0;
            end = CAUSAL ? min(seen, first_own + OWN) : seen;
            tiles = (end - begin + TILE - 1) / TILE;
            if (SOME_SEE_NOTHING) tiles = max(tiles, 0);
        }
    }
    // The first row of the tile behind one, which may be the next head's.
    __device__ __forceinline__ int next(const Problem& p, int first) const {
        return OF_KEYS && first + TILE >= end ? begin : first + TILE;
    }
};

// Rows of a head of a tensor.
__device__ __forceinline__ Rows rows_of(const T* tensor, const Strides& strides, const Work& work, int head) {
    // The filling warp group has few registers: nothing of this is kept for the next tile.
    int batch = work.batch;
    asm volatile("" : "+r"(batch), "+r"(head));
    return Rows(tensor + batch * strides.batch + head * strides.head, strides.row);
}

// Starts the copies of what is known of TILE queries of a head of all batches: TILE logarithms, and as many δ.
__device__ __forceinline__ void fetch_known(const Problem& p, u32 to, int head, int first) {
    for (int i = threadIdx.x; i < 2 * TILE; i += GROUP) {
        const int query = first + i % TILE;
        const float* from = p.rows + (i64)(i < TILE ? head : head + p.batches * p.heads) * p.queries + query;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(to + 4 * i), "l"(from), "r"(query < p.queries ? 4 : 0)
                     : "memory");
    }
}

__device__ __forceinline__ void fill(const Problem& p, const OwnRing& own, const TileRing& tiles, int count) {
    Filler filler;
    u32 turn = 0;
    for (int round = 0; piece(round) < count; ++round) {
        const Work work(p, piece(round));
        // What is the block's own, and what its tiles are of: `one` and `other` of each.
        const Strides &own_one = OF_KEYS ? p.of_key : p.of_query, &own_other = OF_KEYS ? p.of_value : p.of_d_out;
        const Strides &of_one = OF_KEYS ? p.of_query : p.of_key, &of_other = OF_KEYS ? p.of_d_out : p.of_value;
        const int seen = p.changes.keys_of(work.batch, p.keys);
        const int own_count = OF_KEYS ? seen : p.queries, rows_count = OF_KEYS ? p.queries : seen;
        filler.fill(own, round, [&](u32 to) {
            const int head = OF_KEYS ? work.shared_head : work.head;
            const Rows one = rows_of(OF_KEYS ? p.key : p.query, own_one, work, head);
            one.fetch<OWN>(to, own_one.row, work.first_own, own_count);
            const Rows other = rows_of(OF_KEYS ? p.value : p.d_out, own_other, work, head);
            other.fetch<OWN>(to + OWN_BYTES, own_other.row, work.first_own, own_count);
        });
        const int heads = OF_KEYS ? p.heads / p.shared_heads : 1, of_head = work.tiles / heads;
        for (int i = 0; i < heads; ++i) {
            const int head = OF_KEYS ? work.head + i : work.shared_head;
            int first = work.begin;
            for (int j = 0; j < of_head; ++j, ++turn, first += TILE)
                filler.fill(tiles, turn, [&](u32 to) {
                    rows_of(OF_KEYS ? p.query : p.key, of_one, work, head)
                        .fetch<TILE>(to, of_one.row, first, rows_count);
                    rows_of(OF_KEYS ? p.d_out : p.value, of_other, work, head)
                        .fetch<TILE>(to + TILE_BYTES, of_other.row, first, rows_count);
                    if constexpr (OF_KEYS)
                        fetch_known(p, to + 2 * TILE_BYTES, work.batch * p.heads + head, first);
                });
        }
    }
    filler.finish();
}

// What a thread knows of the queries of its weights: of its two rows in registers, or of its columns in shared memory
// at `columns`, two of each eight.
struct Known {
    float log[2], delta[2];
    u32 columns;
#if DROPPED
    // Which weights of the tile are kept.
    u32 kept[(TILE / 8 + 7) / 8];
#endif
};

// Turns scores into weights. `first` is the tile's first row.
__device__ __forceinline__ void weigh(
    float (&weights)[TILE / 8][4], Known& known, const Problem& p, const Work& work, int head, int first,
    int first_of_warp) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float to_power = p.scale * LOG2_E;
#if MASK || CAPPED || DROPPED
    const HeadChanges change(p.changes, work.batch, p.heads, head, p.queries, p.keys);
#endif
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        IN_ORDER;
        float logs[2] = {known.log[0], known.log[1]};
        if constexpr (OF_KEYS) read_two(logs, known.columns + 32 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#if SCORES_CHANGED
            const int row = first_of_warp + g + i / 2 * 8, column = first + 8 * j + 2 * t + i % 2;
            float slope;
            weights[j][i] = power_of_two(
                change.exponent(weights[j][i], OF_KEYS ? column : row, OF_KEYS ? row : column, to_power, slope) -
                logs[OF_KEYS ? i % 2 : i / 2]);
#else
            weights[j][i] = power_of_two(__fmaf_rn(weights[j][i], to_power, -logs[OF_KEYS ? i % 2 : i / 2]));
#endif
        }
    }
#if MASK == 3
    change.hide(weights, first_of_warp, first, 0.0f);
#endif
#if DROPPED
    change.draw<OF_KEYS, TILE / 8>(known.kept, first_of_warp, first);
#endif
    const int count = OF_KEYS ? p.queries : p.changes.keys_of(work.batch, p.keys);
    const bool seen = !CAUSAL || (OF_KEYS ? first >= first_of_warp + 15 : first + TILE - 1 <= first_of_warp);
    const bool hides = OF_KEYS ? p.changes.window_hides(first_of_warp, first + TILE - 1)
                               : p.changes.window_hides(first, first_of_warp + 15);
    const int keys = p.changes.keys_of(work.batch, p.keys);
    const bool behind = OF_KEYS && p.changes.length_hides(first_of_warp + 15, keys);
    if (seen && !hides && !behind && first + TILE <= count) return;
    // Of the row of each half, columns from `begin` on and before `end` are seen.
    const int from = first + 2 * t, row = first_of_warp + g;
    int begin[2] = {0, 0}, end[2] = {count - from, count - from};
#pragma unroll
    for (int half = 0; half < 2 && CAUSAL; ++half) {
        if (OF_KEYS) begin[half] = row + 8 * half - from;
        else end[half] = min(end[half], row + 8 * half + 1 - from);
#if WINDOW
        if (OF_KEYS) end[half] = min(end[half], p.changes.end_of_queries(row + 8 * half, count) - from);
        else begin[half] = p.changes.first_key_of(row + 8 * half) - from;
#endif
    }
#ifdef LENGTHS
#pragma unroll
    for (int half = 0; half < 2 && OF_KEYS; ++half)
        if (row + 8 * half >= keys) end[half] = 0;
#endif
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (8 * j + i % 2 < begin[i / 2] || 8 * j + i % 2 >= end[i / 2]) weights[j][i] = 0;
}

// The gradient of a weight before some were dropped; `factor` is what the others were multiplied with.
__device__ __forceinline__ float kept_gradient(float gradient, const Known& known, int j, int i, float factor) {
#if DROPPED
    return is_kept(known.kept, j, i) ? gradient * factor : 0.0f;
#else
    return gradient;
#endif
}

// Weights of which some are dropped, as left operand.
__device__ __forceinline__ void pack_kept(
    u32 (&packed)[TILE / 16][4], const float (&weights)[TILE / 8][4], const Known& known) {
#if DROPPED
    float kept[TILE / 8][4];
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) kept[j][i] = is_kept(known.kept, j, i) ? weights[j][i] : 0.0f;
    pack(packed, kept);
#else
    pack(packed, weights);
#endif
}

// Turns gradients of weights into gradients of scores.
__device__ __forceinline__ void differentiate_weights(
    float (&d_weights)[TILE / 8][4], const float (&weights)[TILE / 8][4], const Known& known, float factor) {
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        float deltas[2] = {known.delta[0], known.delta[1]};
        if constexpr (OF_KEYS) read_two(deltas, known.columns + 4 * TILE + 32 * j);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            d_weights[j][i] =
                weights[j][i] * (kept_gradient(d_weights[j][i], known, j, i, factor) - deltas[OF_KEYS ? i % 2 : i / 2]);
    }
}

// The tiles of a piece of work, one step for each. AHEAD: products of a step are under way during the next, in the
// order scores of the next tile, gradient that this tile's scores bring, gradients of the next tile's weights. Wide
// heads do not leave the registers for it, and other warp groups fill the time. All warp groups of a block take all its
// tiles, also those of which they see nothing: branches that groups take apart would keep addresses out of the
// registers that warps share, and products wait for addresses.
__device__ __forceinline__ void differentiate(
    const Problem& p, const OwnRing& own, const TileRing& tiles, int count) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, group = threadIdx.x / GROUP - 1;
    u32 turn = 0;
    for (int round = 0; piece(round) < count; ++round) {
        const Work work(p, piece(round));
        const int own_group = SHARED_ROWS ? 0 : group;
        const int first_of_warp = work.first_own + 64 * own_group + threadIdx.x % GROUP / 32 * 16;
        // Tiles of each of the heads that share keys.
        const int of_head = OF_KEYS ? max(work.tiles / (p.heads / p.shared_heads), 1) : 1;
        Known known = {{0, 0}, {0, 0}, 0};
        if (!OF_KEYS) {
            const float* rows = p.rows + (i64)(work.batch * p.heads + work.head) * p.queries;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int query = first_of_warp + g + 8 * half;
                if (query < p.queries) {
                    known.log[half] = rows[query];
                    known.delta[half] = rows[(i64)p.batches * p.heads * p.queries + query];
                }
            }
        }
        // Gradients of `one`, and where rows are keys, of `other`. What is cleared is settled: products that are under
        // way would be waited for where the compiler moves it between them.
        float d_one[WIDE][4], weights[TILE / 8][4], d_weights[TILE / 8][4];
        u32 packed[TILE / 16][4];
        clear(d_one);
        settle(d_one);
#if !SHARED_ROWS
        float d_other[WIDE][4];
        u32 d_packed[TILE / 16][4];
        if constexpr (OF_KEYS) {
            clear(d_other);
            settle(d_other);
        }
#endif
        const u32 own_rows = own.tile(round) + own_group * (64 * ROW_BYTES);
        own.await_filled(round);
#if AHEAD
        u32 one[PADDED / 16][4], other[PADDED / 16][4];
        hold(one, own_rows);
        hold(other, own_rows + OWN_BYTES);
        own.release(round);
#else
        const u32 one = own_rows, other = own_rows + OWN_BYTES;
#endif
        int first = work.begin;
#if AHEAD
        if (work.tiles > 0) {
            tiles.await_filled(turn);
            along_width(weights, one, tiles.tile(turn));
            // A group of no products: as many are under way as in all other steps.
            end_products();
            along_width(d_weights, other, tiles.tile(turn) + TILE_BYTES);
            for (int i = 0;; ++i) {
                const u32 tile = tiles.tile(turn + i);
                known.columns = tile + 2 * TILE_BYTES + 8 * t;
                await_products<2>();
                settle(weights);
                weigh(weights, known, p, work, work.head + (OF_KEYS ? i / of_head : 0), first, first_of_warp);
                if constexpr (OF_KEYS) {
                    pack_kept(packed, weights, known);
                    along_rows(d_other, packed, tile + TILE_BYTES);
                }
                await_products<OF_KEYS ? 1 : 0>();
                settle(d_weights);
                if (i > 0) tiles.release(turn + i - 1);
                differentiate_weights(d_weights, weights, known, p.changes.kept_factor());
                pack(d_packed, d_weights);
                if (i + 1 == work.tiles) break;
                const u32 next = tiles.tile(turn + i + 1);
                tiles.await_filled(turn + i + 1);
                along_width(weights, one, next);
                along_rows(d_one, d_packed, tile);
                along_width(d_weights, other, next + TILE_BYTES);
                first = work.next(p, first);
            }
            along_rows(d_one, d_packed, tiles.tile(turn + work.tiles - 1));
            await_products<0>();
            settle(d_one);
            if constexpr (OF_KEYS) settle(d_other);
            tiles.release(turn + work.tiles - 1);
        }
#elif SHARED_ROWS
        // `d_one` is the warp group's own gradient: of values in the first one, of keys in the second.
        for (int i = 0; i < work.tiles; ++i) {
            const u32 tile = tiles.tile(turn + i);
            known.columns = tile + 2 * TILE_BYTES + 8 * t;
            tiles.await_filled(turn + i);
            along_width(weights, one, tile);
            if (group == 1) along_width(d_weights, other, tile + TILE_BYTES);
            await_products<0>();
            settle(weights);
            settle(d_weights);
            weigh(weights, known, p, work, work.head + i / of_head, first, first_of_warp);
            if (group == 0) {
                pack_kept(packed, weights, known);
                along_rows(d_one, packed, tile + TILE_BYTES);
            } else {
                differentiate_weights(d_weights, weights, known, p.changes.kept_factor());
                pack(packed, d_weights);
                along_rows(d_one, packed, tile);
            }
            await_products<0>();
            settle(d_one);
            tiles.release(turn + i);
            first = work.next(p, first);
        }
#else
        for (int i = 0; i < work.tiles; ++i) {
            const u32 tile = tiles.tile(turn + i);
            known.columns = tile + 2 * TILE_BYTES + 8 * t;
            tiles.await_filled(turn + i);
            along_width(weights, one, tile);
            along_width(d_weights, other, tile + TILE_BYTES);
            await_products<1>();
            settle(weights);
            weigh(weights, known, p, work, work.head + (OF_KEYS ? i / of_head : 0), first, first_of_warp);
            await_products<0>();
            settle(d_weights);
            differentiate_weights(d_weights, weights, known, p.changes.kept_factor());
            if constexpr (OF_KEYS) {
                pack_kept(packed, weights, known);
                along_rows(d_other, packed, tile + TILE_BYTES);
            }
            pack(d_packed, d_weights);
            along_rows(d_one, d_packed, tile);
            await_products<0>();
            settle(d_one);
            if constexpr (OF_KEYS) settle(d_other);
            tiles.release(turn + i);
            first = work.next(p, first);
        }
#endif
        turn += work.tiles;
        if (!AHEAD) own.release(round);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_of_warp + g + 8 * half;
            const bool real = row < (OF_KEYS ? p.keys : p.queries);
#if SHARED_ROWS
            T* row_of_result = group == 0 ? place(p.d_value, p.of_d_value, work.batch, work.shared_head, row)
                                          : place(p.d_key, p.of_d_key, work.batch, work.shared_head, row);
            write_columns(row_of_result, real, 0, d_one, half, group == 0 ? p.changes.kept_factor() : p.scale);
#else
            if constexpr (OF_KEYS) {
                T* d_key = place(p.d_key, p.of_d_key, work.batch, work.shared_head, row);
                write_columns(d_key, real, 0, d_one, half, p.scale);
                T* d_value = place(p.d_value, p.of_d_value, work.batch, work.shared_head, row);
                write_columns(d_value, real, 0, d_other, half, p.changes.kept_factor());
            } else {
                T* d_query = place(p.d_query, p.of_d_query, work.batch, work.head, row);
                write_columns(d_query, real, 0, d_one, half, p.scale);
            }
#endif
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward(
    const T* d_out, const T* query, const T* key, const T* value, const float* rows, T* d_query, T* d_key,
    T* d_value, Strides of_d_out, Strides of_query, Strides of_key, Strides of_value, Strides of_d_query,
    Strides of_d_key, Strides of_d_value, int heads, int shared_heads, int queries, int keys, float scale,
    int batches, int count TAKEN) {
    // Rows are in the order that products read where tiles begin at multiples of 1024 bytes.
    extern __shared__ __align__(1024) uint4 shared[];
    const Problem p = {d_out,    query,  key,    value,    rows,  d_query,      d_key,   d_value, of_d_out,
                       of_query, of_key, of_value, of_d_query, of_d_key, of_d_value, heads, shared_heads, queries, keys,
                       scale, batches, GIVEN};
    const u32 from = shared_address(shared), of_tiles = from + OWN_STAGES * 2 * OWN_BYTES;
    const u32 barriers = of_tiles + STAGES * (2 * TILE_BYTES + KNOWN_BYTES);
    const OwnRing own = {from, barriers};
    const TileRing tiles = {of_tiles, barriers + OwnRing::BARRIERS};
    if (threadIdx.x == 0) {
        own.start(4 * CONSUMERS);
        tiles.start(4 * CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        shrink_registers<FILLER_REGISTERS>();
        fill(p, own, tiles, count);
    } else {
        grow_registers<REGISTERS>();
        differentiate(p, own, tiles, count);
    }
}
