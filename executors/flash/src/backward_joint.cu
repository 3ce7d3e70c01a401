// The gradients of attention for query, key and value by one kernel: five products of each tile of scores. A block has
// OWN keys and goes over the queries of all heads that share them; what its scores bring to the gradients of queries
// is added to sums in memory. For each tile of queries the blocks of keys take turns, so that every sum has one order.
//
// The first warp group fills shared memory and brings sums to memory (`joint.cuh`); the others have 64 keys each.
// Scores and weights have a row for each key. The formulas are those of `backward.cu`.

// Turns scores into weights: rows are keys, columns queries from `first` on, whose logarithms are at `logs`.
__device__ __forceinline__ void weigh(
    float (&weights)[TILE / 8][4], u32 logs, const Problem& p, int first, int first_of_warp) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float to_power = p.scale * LOG2_E;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        float log[2];
        read_two(log, logs + 32 * j + 8 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            weights[j][i] = power_of_two(__fmaf_rn(weights[j][i], to_power, -log[i % 2]));
    }
    const bool seen = !CAUSAL || first >= first_of_warp + 15;
    if (seen && first + TILE <= p.queries && first_of_warp + 16 <= p.keys) return;
    // Of the row of each half, columns from `begin` on and before `end` are seen.
    const int from = first + 2 * t, end = p.queries - from;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int key = first_of_warp + g + 8 * half;
        const int begin = key >= p.keys ? TILE : CAUSAL ? key - from : 0;
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (8 * j + i < begin || 8 * j + i >= end) weights[j][2 * half + i] = 0;
    }
}

// Turns gradients of weights into gradients of scores.
__device__ __forceinline__ void differentiate_weights(
    float (&d_weights)[TILE / 8][4], const float (&weights)[TILE / 8][4], u32 deltas) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        float delta[2];
        read_two(delta, deltas + 32 * j + 8 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i) d_weights[j][i] = weights[j][i] * (d_weights[j][i] - delta[i % 2]);
    }
}

// Writes gradients of scores as rows of queries, where the products of all warp groups read them.
__device__ __forceinline__ void share_scores(const u32 (&d_packed)[TILE / 16][4], u32 to) {
    const int lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8;
    const int chunk = threadIdx.x % GROUP / 32 * 2 + lane / 8 % 2;
    const u32 at = to + row * ROW_BYTES + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int j = 0; j < TILE / 16; ++j)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(at + j * (16 * ROW_BYTES)), "r"(d_packed[j][0]), "r"(d_packed[j][1]), "r"(d_packed[j][2]),
                       "r"(d_packed[j][3])
                     : "memory");
}

// Starts c = scores keys: all keys of the block, and this warp group's share of the width.
__device__ __forceinline__ void along_keys(float (&c)[SHARE / 8][4], u32 scores, u32 keys) {
    const u64 left = describe(scores, 0), right = describe(keys, 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < OWN / 16; ++step)
        multiply<true>(T(), c, left + (step / 4 * SCORE_BYTES + step % 4 * 32) / 16,
                       right + step * (16 * ROW_BYTES / 16), step > 0);
    end_products();
}

// How many tiles of queries a warp group gave to the warp that brings them to memory, and took from it.
struct Exchanged {
    u32 given, taken;
};

// Gives the warp group's share of the gradient of a tile of queries to the warp that brings it to memory, or, as the
// last, adds it to the others' and writes the result.
__device__ __forceinline__ void add_query(
    const Problem& p, const Places& at, const Work& work, int head, int tile, Exchanged& exchanged,
    float (&d_query)[SHARE / 8][4], int group) {
    const Turn order(p, work, tile);
    const int thread = threadIdx.x % GROUP;
    const u32 sums = at.sums + group * SUM_BYTES + thread * 16;
    if (!order.last) {
        at.sums_free.await(exchanged.given++ % 2 ^ 1);
#pragma unroll
        for (int j = 0; j < SHARE / 8; ++j)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                         :
                         : "r"(sums + j * (GROUP * 16)), "f"(d_query[j][0]), "f"(d_query[j][1]), "f"(d_query[j][2]),
                           "f"(d_query[j][3])
                         : "memory");
        show_to_products();
        __syncwarp();
        at.sums_full.arrive_for_warp();
        return;
    }
    if (order.before > 0) {
        at.sums_there.await(exchanged.taken++ % 2);
#pragma unroll
        for (int j = 0; j < SHARE / 8; ++j) {
            float sum[4];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                         : "r"(sums + j * (GROUP * 16))
                         : "memory");
#pragma unroll
            for (int i = 0; i < 4; ++i) d_query[j][i] += sum[i];
        }
        __syncwarp();
        at.sums_taken.arrive_for_warp();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int query = tile * TILE + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
        T* row = place(p.d_query, p.of_d_query, work.batch, head, query);
        write_columns(row, query < p.queries, group * SHARE, d_query, half, p.scale);
    }
}

// The tiles of a piece of work, one step for each. While weights are computed, the products for keys of the step before
// and those of d_out are under way; while gradients of scores are exchanged, the scores of the next step.
__device__ __forceinline__ void differentiate(const Problem& p, const Places& at) {
    // All threads of a warp have the same, and are known to: addresses of products are then in registers of the warp.
    const int g = threadIdx.x % 32 / 4, group = __shfl_sync(0xffffffffu, threadIdx.x / GROUP - 1, 0);
    u32 turn = 0;
    Exchanged exchanged = {0, 0};
    for (u32 round = 0;; ++round) {
        const int index = at.pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        const int first_of_warp = work.block * OWN + 64 * group + threadIdx.x % GROUP / 32 * 16;
        float d_key[WIDE][4], d_value[WIDE][4], weights[TILE / 8][4], d_weights[TILE / 8][4];
        float d_query[SHARE / 8][4];
        u32 packed_scores[TILE / 16][4];
        clear(d_key);
        settle(d_key);
        clear(d_value);
        settle(d_value);
        const u32 key = at.key.tile(0), value = at.value.tile(0);
        const u32 own_rows = group * (64 * ROW_BYTES), own_width = group * (SHARE / 64 * OWN * ROW_BYTES);
        at.key.await_filled(round);
        at.value.await_filled(round);
        if (work.tiles() > 0) {
            int tile = work.begin, head = work.head(0);
            at.query.await_filled(turn);
            along_width(weights, key + own_rows, at.query.tile(turn));
            for (int left = work.tiles();; --left) {
                const u32 query = at.query.tile(turn), d_out = at.d_out.tile(turn);
                at.d_out.await_filled(turn);
                along_width(d_weights, value + own_rows, d_out);
                await_products<1>();
                settle(weights);
                weigh(weights, at.logs_of(turn), p, tile * TILE, first_of_warp);
                u32 packed[TILE / 16][4];
                pack(packed, weights);
                along_rows(d_value, packed, d_out);
                await_products<1>();
                settle(d_weights);
                differentiate_weights(d_weights, weights, at.deltas_of(turn));
                pack(packed_scores, d_weights);
                const u32 scores = at.scores + turn % 2 * (CONSUMERS * SCORE_BYTES);
                share_scores(packed_scores, scores + group * SCORE_BYTES);
                show_to_products();
                await_products<0>();
                settle(d_value);
                at.d_out.release(turn);
                asm volatile("bar.sync 1, %0;" : : "n"(CONSUMERS * GROUP) : "memory");
                along_keys(d_query, scores, key + own_width);
                along_rows(d_key, packed_scores, query);
                await_products<1>();
                settle(d_query);
                add_query(p, at, work, head, tile, exchanged, d_query, group);
                if (left == 1) break;
                at.query.await_filled(turn + 1);
                await_products<0>();
                settle(d_key);
                at.query.release(turn);
                along_width(weights, key + own_rows, at.query.tile(turn + 1));
                ++turn;
                if (++tile == work.end) {
                    tile = work.begin;
                    ++head;
                }
            }
            await_products<0>();
            settle(d_key);
            at.query.release(turn);
            ++turn;
        }
        at.key.release(round);
        at.value.release(round);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_of_warp + g + 8 * half;
            T* d_key_row = place(p.d_key, p.of_d_key, work.batch, work.shared_head, row);
            write_columns(d_key_row, row < p.keys, 0, d_key, half, p.scale);
            T* d_value_row = place(p.d_value, p.of_d_value, work.batch, work.shared_head, row);
            write_columns(d_value_row, row < p.keys, 0, d_value, half, 1.0f);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward(
    const T* d_out, const T* query, const T* key, const T* value, const float* rows, T* d_query, T* d_key,
    T* d_value, float* sums, u32* counts, Strides of_d_out, Strides of_query, Strides of_key, Strides of_value,
    Strides of_d_query, Strides of_d_key, Strides of_d_value, int heads, int shared_heads, int queries, int keys,
    float scale, int batches, int pieces, int heads_at_once, int falling, int rising, int tiles,
    int blocks) {
    // Rows are in the order that products read where tiles begin at multiples of 1024 bytes.
    extern __shared__ __align__(1024) uint4 shared[];
    const Problem p = {d_out,    query,  key,    value,    rows,       d_query,  d_key,      d_value, sums, counts,
                       of_d_out, of_query, of_key, of_value, of_d_query, of_d_key, of_d_value, heads, shared_heads,
                       queries,  keys,   scale,  batches,  pieces, heads_at_once, falling, rising, tiles, blocks};
    const Places at(shared_address(shared));
    if (threadIdx.x == 0) at.start();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        shrink_registers<FILLER_REGISTERS>();
        const int warp = threadIdx.x / 32;
        if (warp == 0) fill_tiles<true>(p, at);
        else if (warp == 1) fill_tiles<false>(p, at);
        else if (warp == 2) fill_own(p, at);
        else bring_sums(p, at);
    } else {
        grow_registers<REGISTERS>();
        differentiate(p, at);
    }
}
