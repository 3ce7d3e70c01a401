// The backward kernel of one pass, `backward_joint.cu`: its pieces of work, what it has in shared memory, and the warps
// of its first warp group. One fills the places of each ring, and one brings sums to memory.

constexpr int OWN_BYTES = OWN * PADDED * 2;
constexpr int TILE_BYTES = TILE * PADDED * 2;
// Gradients of a tile's scores: rows are queries, and each warp group's 64 keys beside each other.
constexpr int SCORE_BYTES = TILE * ROW_BYTES;
// What a warp group has of the gradient of a tile of queries: a part of the width.
constexpr int SHARE = PADDED / CONSUMERS;
constexpr int SUM_BYTES = TILE * SHARE * 4;
static_assert(TILE == 64, "a warp group has all queries of a tile");

typedef Ring<1, OWN_BYTES> OwnRing;
typedef Ring<STAGES, TILE_BYTES> TileRing;

struct Problem {
    const T *d_out, *query, *key, *value;
    // Of all queries of all heads: the logarithms to base 2 of the sums of their weights, and behind them as many δ.
    const float* rows;
    T *d_query, *d_key, *d_value;
    // The sums so far of tiles of queries, in the order in which threads have them, and how many blocks added theirs;
    // before these counts, how many pieces of work were taken.
    float* sums;
    u32* counts;
    Strides of_d_out, of_query, of_key, of_value, of_d_query, of_d_key, of_d_value;
    int heads, shared_heads, queries, keys;
    float scale;
    int batches, pieces, heads_at_once, falling, rising;
    // Of the queries and of the keys of a head.
    int tiles, blocks;

    // Whether the blocks of a head add in falling order: those of the first `falling` heads of keys do.
    __device__ __forceinline__ bool falls(int batch, int shared_head) const {
        return batch * shared_heads + shared_head < falling;
    }
};

// A piece of work: OWN keys of a head, and the tiles of queries that see them, of each of `times` heads.
struct Work {
    int batch, shared_head, block, times, begin, end;

    // Blocks that others wait for are taken before them. With causal attention the last keys have least to do, and a
    // block of keys comes to a tile of queries two tiles after the next block: in falling order they hardly wait. The
    // last heads are taken in rising order, so that the last pieces of work are small.
    __device__ __forceinline__ Work(const Problem& p, int index) {
        const int falling = p.falling * p.blocks;
        const bool falls = index < falling;
        const Place place(falls ? index : index - falling, falls ? p.falling : p.rising, p.blocks,
                          falls ? 1 : p.heads_at_once);
        block = falls ? p.blocks - 1 - place.block : place.block;
        const int column = falls ? place.column : place.column + p.falling;
        batch = column / p.shared_heads;
        shared_head = column % p.shared_heads;
        times = p.heads / p.shared_heads;
        end = p.tiles;
        begin = CAUSAL ? min(block * OWN / TILE, end) : 0;
    }
    __device__ __forceinline__ int head(int i) const { return shared_head * times + i; }
    __device__ __forceinline__ int tiles() const { return (end - begin) * times; }
};

// Which of those that add to a tile of queries a block is.
struct Turn {
    int before;
    bool last;

    __device__ __forceinline__ Turn(const Problem& p, const Work& work, int tile) {
        const int highest = CAUSAL ? min(tile * TILE / OWN, p.blocks - 1) : p.blocks - 1;
        before = p.falls(work.batch, work.shared_head) ? highest - work.block : work.block;
        last = before == highest;
    }
};
__device__ __forceinline__ i64 place_of_tile(const Problem& p, const Work& work, int head, int tile) {
    return (i64)(work.batch * p.heads + head) * p.tiles + tile;
}

// Waits until `before` blocks have added theirs.
__device__ __forceinline__ void await_count(const u32* count, u32 before) {
    u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
    while (now != before);
}

// The warps that fill have few registers: what follows from the same number is computed where it is used, and not kept.
template <typename I> __device__ __forceinline__ I again(I x) {
    asm volatile("" : "+r"(x));
    return x;
}

// Copies of ROWS rows from `first` on by one warp, of which there are `count`; zeros beyond.
template <int ROWS>
__device__ __forceinline__ void fetch_rows(u32 to, const T* rows, i64 stride, int first, int count) {
    constexpr int TOGETHER = 32 / CHUNKS;
    const int lane = again((int)threadIdx.x) % 32, chunk = lane % CHUNKS, row = lane / CHUNKS;
    to += chunk / 8 * (ROWS * ROW_BYTES) + row * ROW_BYTES + (chunk % 8 ^ row) * 16;
    const T* from = rows + (first + row) * stride + 8 * chunk;
    int left = WIDTH == PADDED || 8 * chunk < WIDTH ? count - first - row : 0;
#pragma unroll 1
    for (int i = 0; i < ROWS; i += TOGETHER, from += TOGETHER * stride) {
        asm volatile("" : "+l"(from));
        // Nothing is read where there are 0 bytes to copy.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"((to ^ i % 8 * 16) + i * ROW_BYTES), "l"(from), "r"(i < left ? 16 : 0)
                     : "memory");
    }
}
// And of what is known of TILE queries.
__device__ __forceinline__ void fetch_known(u32 to, const float* known, int first, int count) {
    const int lane = again((int)threadIdx.x) % 32;
    known += first + lane;
    count -= first + lane;
    to += 4 * lane;
#pragma unroll 1
    for (int i = 0; i < TILE; i += 32, known += 32, count -= 32, to += 4 * 32)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(to), "l"(known), "r"(count > 0 ? 4 : 0)
                     : "memory");
}

// Where all of it is in shared memory; tiles begin at multiples of 1024 bytes.
struct Places {
    OwnRing key, value;
    TileRing query, d_out;
    u32 scores, sums, logs, deltas;
    Pieces pieces;
    Barrier sums_full, sums_free, sums_there, sums_taken;

    __device__ __forceinline__ Places(u32 from)
        : pieces(from + 2 * OWN_BYTES + 2 * STAGES * (TILE_BYTES + 4 * TILE) +
                 CONSUMERS * (2 * SCORE_BYTES + SUM_BYTES)) {
        key.tiles = from;
        value.tiles = key.tiles + OWN_BYTES;
        query.tiles = value.tiles + OWN_BYTES;
        d_out.tiles = query.tiles + STAGES * TILE_BYTES;
        scores = d_out.tiles + STAGES * TILE_BYTES;
        sums = scores + 2 * CONSUMERS * SCORE_BYTES;
        logs = sums + CONSUMERS * SUM_BYTES;
        deltas = logs + STAGES * 4 * TILE;
        key.barriers = deltas + STAGES * 4 * TILE + Pieces::BYTES;
        value.barriers = key.barriers + OwnRing::BARRIERS;
        query.barriers = value.barriers + OwnRing::BARRIERS;
        d_out.barriers = query.barriers + TileRing::BARRIERS;
        sums_full.at = d_out.barriers + TileRing::BARRIERS;
        sums_free.at = sums_full.at + 8;
        sums_there.at = sums_full.at + 16;
        sums_taken.at = sums_full.at + 24;
    }
    __device__ __forceinline__ u32 logs_of(u32 turn) const { return logs + turn % STAGES * (4 * TILE); }
    __device__ __forceinline__ u32 deltas_of(u32 turn) const { return deltas + turn % STAGES * (4 * TILE); }

    // By one thread.
    __device__ __forceinline__ void start() const {
        constexpr int WARPS = 4 * CONSUMERS;
        key.start(WARPS, 1);
        value.start(WARPS, 1);
        query.start(WARPS, 1);
        d_out.start(WARPS, 1);
        pieces.start(WARPS + 3);
        sums_full.start_for_warps(WARPS);
        sums_free.start(1);
        sums_there.start(1);
        sums_taken.start_for_warps(WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    }
};

// Of one of the tensors that tiles are of.
template <bool OF_QUERY> __device__ __forceinline__ void fill_tiles(const Problem& p, const Places& places) {
    Filler filler;
    u32 turn = 0;
    for (u32 round = 0;; ++round) {
        const int index = OF_QUERY ? places.pieces.give(p.counts, round) : places.pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        // What was asked for last belongs to the piece before: once that has arrived, nothing else is waited for.
        if (work.begin == work.end) filler.finish();
        const int of_head = work.end - work.begin, last = work.batch * p.heads + work.head(work.times - 1);
        for (int left = work.tiles(); left > 0; --left, ++turn) {
            // Little is kept from one part to the next.
            const TileRing ring = OF_QUERY ? places.query : places.d_out;
            if (!__all_sync(0xffffffffu, ring.used(turn).passed(TileRing::parity(turn) ^ 1))) {
                filler.finish();
                ring.used(again(turn)).await(TileRing::parity(again(turn)) ^ 1);
            }
            int ahead = again(left) - 1, row = again(last) - ahead / of_head;
            const int first = (p.tiles - 1 - ahead % of_head) * TILE;
            if (!OF_QUERY) row += p.batches * p.heads;
            const u32 to_known = OF_QUERY ? places.logs_of(again(turn)) : places.deltas_of(again(turn));
            fetch_known(to_known, p.rows + (i64)row * p.queries, first, p.queries);
            const Strides& strides = OF_QUERY ? p.of_query : p.of_d_out;
            const T* rows = OF_QUERY ? p.query : p.d_out;
            ahead = again(left) - 1, row = again(last) - ahead / of_head;
            rows += row / p.heads * strides.batch + row % p.heads * strides.head;
            fetch_rows<TILE>(ring.tile(again(turn)), rows, strides.row,
                             (p.tiles - 1 - ahead % of_head) * TILE, p.queries);
            end_batch();
            if (filler.pending != 0) filler.tell<1>();
            filler.pending = ring.filled(again(turn)).at;
        }
    }
    filler.finish();
}
// Of the block's own tensors; nothing else is on its way meanwhile.
__device__ __forceinline__ void fill_own(const Problem& p, const Places& at) {
    for (u32 round = 0;; ++round) {
        const int index = at.pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        const int first = work.block;
        const auto fetch = [&](const OwnRing& ring, const T* tensor, const Strides& strides) {
            // Nothing of this is kept for the other tensor.
            int batch = work.batch, head = work.shared_head;
            asm volatile("" : "+r"(batch), "+r"(head));
            ring.used(again(round)).await(OwnRing::parity(again(round)) ^ 1);
            const T* rows = tensor + batch * strides.batch + head * strides.head;
            fetch_rows<OWN>(ring.tile(0), rows, strides.row, again(first) * OWN, p.keys);
            end_batch();
        };
        fetch(at.key, p.key, p.of_key);
        fetch(at.value, p.value, p.of_value);
        Filler{at.key.filled(round).at}.tell<1>();
        Filler{at.value.filled(round).at}.tell<0>();
    }
}

// Adds what the other warp groups have of tiles of queries to the sums in memory, in turn, and fetches sums to which
// only they have to add.
__device__ __forceinline__ void bring_sums(const Problem& p, const Places& at) {
    u32 sent = 0, fetched = 0;
    for (u32 round = 0;; ++round) {
        const int index = at.pieces.take(round);
        if (index >= p.pieces) break;
        const Work work(p, index);
        int tile = work.begin, head = work.head(0);
        for (int left = threadIdx.x % 32 == 0 ? work.tiles() : 0; left > 0; --left) {
            const Turn order(p, work, tile);
            const i64 place = place_of_tile(p, work, head, tile);
            float* sums = p.sums + place * (TILE * PADDED);
            u32* count = p.counts + 1 + place;
            if (++tile == work.end) {
                tile = work.begin;
                ++head;
            }
            if (order.last) {
                if (order.before == 0) continue;
                // Of an earlier one, or of none.
                at.sums_taken.await(fetched % 2 ^ 1);
                await_count(count, order.before);
                ++fetched;
                asm volatile("fence.proxy.async;" : : : "memory");
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                             :
                             : "r"(at.sums_there.at), "n"(CONSUMERS * SUM_BYTES)
                             : "memory");
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :
                    : "r"(at.sums), "l"(sums), "n"(CONSUMERS * SUM_BYTES), "r"(at.sums_there.at)
                    : "memory");
                continue;
            }
            at.sums_full.await(sent++ % 2);
            if (order.before == 0) {
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                             :
                             : "l"(sums), "r"(at.sums), "n"(CONSUMERS * SUM_BYTES)
                             : "memory");
            } else {
                await_count(count, order.before);
                asm volatile("fence.proxy.async;" : : : "memory");
                asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                             :
                             : "l"(sums), "r"(at.sums), "n"(CONSUMERS * SUM_BYTES)
                             : "memory");
            }
            asm volatile("cp.async.bulk.commit_group;" : : : "memory");
            asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
            at.sums_free.arrive();
            asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
            asm volatile("fence.proxy.async;" : : : "memory");
            asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(count), "r"(order.before + 1) : "memory");
        }
        __syncwarp();
    }
}
