// The gradients of attention by sm_90a's products of warp groups. Compiled twice: blocks have OWN queries and go over
// keys, or have OWN keys (OF_KEYS) and go over the queries of all heads that share them. Every sum has one place, and
// one order. The formulas are those of `backward.cu`.
//
// One warp group fills shared memory; the others have 64 rows each. `one` is query or key, `other` d_out or value.

constexpr int OWN_BYTES = OWN * PADDED * 2;
constexpr int TILE_BYTES = TILE * PADDED * 2;
// What is known of each query lies behind the tiles of queries.
constexpr int ROWS_BYTES = OF_KEYS ? (8 * TILE + 1023) / 1024 * 1024 : 0;

typedef Ring<1, 2 * OWN_BYTES> OwnRing;
typedef Ring<STAGES, 2 * TILE_BYTES + ROWS_BYTES> TileRing;

struct Problem {
    const T *d_out, *query, *key, *value;
    // Of all queries of all heads: the logarithms to base 2 of the sums of their weights, and behind them as many δ.
    const float* rows;
    T *d_query, *d_key, *d_value;
    Strides of_d_out, of_query, of_key, of_value;
    int heads, shared_heads, queries, keys;
    float scale;
    int batches;
};

// A piece of work: OWN rows of a head, and the tiles of all heads that they meet.
struct Work {
    int batch, head, shared_head, first_own, begin, tiles;

    // With causal attention the last queries and the first keys have most to do: those of all heads begin first.
    __device__ __forceinline__ Work(const Problem& p, int index) {
        const int heads = OF_KEYS ? p.shared_heads : p.heads, rows = OF_KEYS ? p.keys : p.queries;
        const int all = heads * p.batches, times = p.heads / p.shared_heads;
        const int column = index % all, block = index / all;
        batch = column / heads;
        if (OF_KEYS) {
            first_own = block * OWN;
            shared_head = column % heads;
            head = shared_head * times;
            begin = CAUSAL ? first_own / TILE * TILE : 0;
            tiles = max((p.queries - begin + TILE - 1) / TILE, 0) * times;
        } else {
            first_own = ((rows + OWN - 1) / OWN - 1 - block) * OWN;
            head = column % heads;
            shared_head = head / times;
            begin = 0;
            tiles = ((CAUSAL ? min(p.keys, first_own + OWN) : p.keys) + TILE - 1) / TILE;
        }
    }
    // The first row of the tile behind one, which may be the next head's.
    __device__ __forceinline__ int next(const Problem& p, int first) const {
        return OF_KEYS && first + TILE >= p.queries ? begin : first + TILE;
    }
};

// Starts the copies of rows from `first` on of a head of two tensors.
template <int ROWS>
__device__ __forceinline__ void fetch_pair(
    u32 to, const T* one, const Strides& of_one, const T* other, const Strides& of_other, const Work& work, int head,
    int first, int count) {
    // Registers are few: nothing of this is kept for the next tile.
    int batch = work.batch;
    asm volatile("" : "+r"(batch));
    fetch_rows<ROWS>(to, one + batch * of_one.batch + head * of_one.head, of_one.row, first, count);
    fetch_rows<ROWS>(to + ROWS * PADDED * 2, other + batch * of_other.batch + head * of_other.head, of_other.row,
                     first, count);
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
        filler.fill(own, round, [&](u32 to) {
            if constexpr (OF_KEYS) {
                fetch_pair<OWN>(to, p.key, p.of_key, p.value, p.of_value, work, work.shared_head, work.first_own,
                                p.keys);
            } else {
                fetch_pair<OWN>(to, p.query, p.of_query, p.d_out, p.of_d_out, work, work.head, work.first_own,
                                p.queries);
            }
        });
        int first = work.begin, head = work.head;
        for (int i = 0; i < work.tiles; ++i, ++turn) {
            filler.fill(tiles, turn, [&](u32 to) {
                if constexpr (OF_KEYS) {
                    fetch_pair<TILE>(to, p.query, p.of_query, p.d_out, p.of_d_out, work, head, first, p.queries);
                    fetch_known(p, to + 2 * TILE_BYTES, work.batch * p.heads + head, first);
                } else {
                    fetch_pair<TILE>(to, p.key, p.of_key, p.value, p.of_value, work, work.shared_head, first, p.keys);
                }
            });
            first = work.next(p, first);
            if (OF_KEYS && first == work.begin) ++head;
        }
    }
    filler.finish();
}

__device__ __forceinline__ void write_rows(T* row, const float (&c)[WIDE][4], int half, float factor) {
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        write_pair(row, 8 * j + threadIdx.x % 4 * 2, c[j][2 * half] * factor, c[j][2 * half + 1] * factor);
}

__device__ __forceinline__ void differentiate(const Problem& p, const OwnRing& own, const TileRing& tiles, int count) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, group = threadIdx.x / GROUP - 1;
    const float to_power = p.scale * LOG2_E;
    u32 turn = 0;
    for (int round = 0; piece(round) < count; ++round) {
        const Work work(p, piece(round));
        const int first_of_group = work.first_own + 64 * group;
        const int first_of_warp = first_of_group + threadIdx.x % GROUP / 32 * 16;
        float log[2] = {0, 0}, delta[2] = {0, 0};
        if (!OF_KEYS) {
            const float* rows = p.rows + (i64)(work.batch * p.heads + work.head) * p.queries;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int query = first_of_warp + g + 8 * half;
                if (query < p.queries) {
                    log[half] = rows[query];
                    delta[half] = rows[(i64)p.batches * p.heads * p.queries + query];
                }
            }
        }
        // Gradients of `one`, and where rows are keys, of `other`.
        float d_one[WIDE][4], d_other[WIDE][4], weights[TILE / 8][4], d_weights[TILE / 8][4];
        u32 packed[TILE / 16][4], d_packed[TILE / 16][4];
        clear(d_one);
        if constexpr (OF_KEYS) clear(d_other);
        const u32 one = own.tile(round) + group * (64 * ROW_BYTES), other = one + OWN_BYTES;
        own.await_filled(round);
        int first = work.begin;
        for (const u32 end = turn + work.tiles; turn < end; ++turn, first = work.next(p, first)) {
            tiles.await_filled(turn);
            const u32 tile = tiles.tile(turn);
            if (CAUSAL && (OF_KEYS ? first + TILE - 1 < first_of_group : first > first_of_group + 63)) {
                tiles.release(turn);
                continue;
            }
            along_width(weights, one, tile);
            along_width(d_weights, other, tile + TILE_BYTES);
            await_products<1>();
            settle(weights);
            // Of columns, where they are queries: two of each eight.
            const u32 known = tile + 2 * TILE_BYTES + 8 * t;
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j) {
                float logs[2] = {log[0], log[1]};
                if (OF_KEYS)
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                                 : "=f"(logs[0]), "=f"(logs[1])
                                 : "r"(known + 32 * j)
                                 : "memory");
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    weights[j][i] = power_of_two(__fmaf_rn(weights[j][i], to_power, -logs[OF_KEYS ? i % 2 : i / 2]));
            }
            const bool whole = first + TILE <= (OF_KEYS ? p.queries : p.keys) &&
                               (!CAUSAL || (OF_KEYS ? first >= first_of_warp + 15 : first + TILE - 1 <= first_of_warp));
            if (!whole) {
#pragma unroll
                for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int column = first + 8 * j + 2 * t + i % 2, row = first_of_warp + g + i / 2 * 8;
                        const bool seen = OF_KEYS ? column < p.queries && (!CAUSAL || row <= column)
                                                  : column < p.keys && (!CAUSAL || column <= row);
                        if (!seen) weights[j][i] = 0;
                    }
            }
            await_products<0>();
            settle(d_weights);
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j) {
                float deltas[2] = {delta[0], delta[1]};
                if (OF_KEYS)
                    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                                 : "=f"(deltas[0]), "=f"(deltas[1])
                                 : "r"(known + 4 * TILE + 32 * j)
                                 : "memory");
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    d_weights[j][i] = weights[j][i] * (d_weights[j][i] - deltas[OF_KEYS ? i % 2 : i / 2]);
            }
            if constexpr (OF_KEYS) {
                pack(packed, weights);
                along_rows(d_other, packed, tile + TILE_BYTES);
            }
            pack(d_packed, d_weights);
            along_rows(d_one, d_packed, tile);
            await_products<0>();
            settle(d_one);
            if constexpr (OF_KEYS) settle(d_other);
            tiles.release(turn);
        }
        own.release(round);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_of_warp + g + 8 * half;
            if (row >= (OF_KEYS ? p.keys : p.queries)) continue;
            if constexpr (OF_KEYS) {
                const i64 at = (((i64)work.batch * p.keys + row) * p.shared_heads + work.shared_head) * WIDTH;
                write_rows(p.d_key + at, d_one, half, p.scale);
                write_rows(p.d_value + at, d_other, half, 1.0f);
            } else {
                write_rows(p.d_query + (((i64)work.batch * p.queries + row) * p.heads + work.head) * WIDTH, d_one, half,
                           p.scale);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward(
    const T* d_out, const T* query, const T* key, const T* value, const float* rows, T* d_query, T* d_key,
    T* d_value, Strides of_d_out, Strides of_query, Strides of_key, Strides of_value, int heads,
    int shared_heads, int queries, int keys, float scale, int batches, int count) {
    // Rows are in the order that products read where tiles begin at multiples of 1024 bytes.
    extern __shared__ __align__(1024) uint4 shared[];
    const Problem p = {d_out,    query,  key,    value,    rows,  d_query,      d_key,   d_value, of_d_out,
                       of_query, of_key, of_value, heads, shared_heads, queries, keys,    scale,   batches};
    const u32 from = shared_address(shared), of_tiles = from + 2 * OWN_BYTES;
    const u32 barriers = of_tiles + STAGES * (2 * TILE_BYTES + ROWS_BYTES);
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
