// The gradients of attention. Weights are computed again from the logarithms of their sums; scores are never written. Some blocks
// have OWN queries and go over keys, the others have OWN keys and go over queries: every sum has one place, and one order.
// With P the weights and δ = Σ d_out out of a row: d_value = Pᵀ d_out, d_scores = P (d_out valueᵀ - δ), d_query = d_scores key scale,
// d_key = d_scoresᵀ query scale.

// Registers hold the rows of a block where they are short.
constexpr bool KEPT = PADDED <= 64;

struct Problem {
    const T *d_out, *query, *key, *value, *out;
    const float* log_sums;
    T *d_query, *d_key, *d_value;
    Strides of_d_out, of_query, of_key, of_value;
    int heads, shared_heads, queries, keys;
    float scale;
};

__device__ __forceinline__ float dot(float4 a, float4 b) {
    return __fmaf_rn(a.x, b.x, __fmaf_rn(a.y, b.y, __fmaf_rn(a.z, b.z, a.w * b.w)));
}

// The row of `out`, [batch, queries, heads, WIDTH], of a head.
__device__ __forceinline__ i64 row_of_out(const Problem& p, i64 batch, int head, i64 at) {
    return ((batch * p.queries + at) * p.heads + head) * WIDTH;
}

__device__ __forceinline__ void of_queries(const Problem& p, int index, float4* shared) {
    const Tile<TILE> key_tile{shared}, value_tile{shared + TILE * CHUNKS};
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int blocks = (p.queries + OWN - 1) / OWN;
    const int block = blocks - 1 - index % blocks;
    const int head = index / blocks % p.heads;
    const i64 batch = index / blocks / p.heads;
    const int shared_head = head / (p.heads / p.shared_heads);
    const int first_own = block * OWN, first_of_warp = first_own + threadIdx.x / 32 * 16;
    const int own[2] = {first_of_warp + g, first_of_warp + g + 8};
    const T* q = p.query + batch * p.of_query.batch + head * p.of_query.head;
    const T* d = p.d_out + batch * p.of_d_out.batch + head * p.of_d_out.head;
    const T* k = p.key + batch * p.of_key.batch + shared_head * p.of_key.head;
    const T* v = p.value + batch * p.of_value.batch + shared_head * p.of_value.head;

    Left<KEPT> query(shared + 2 * TILE * CHUNKS), d_out(shared + 2 * TILE * CHUNKS + Left<KEPT>::BYTES / 16);
    float delta[2] = {0, 0}, sum[2] = {INFINITY_F32, INFINITY_F32};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        float4 of_q[2], of_d[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            of_q[half] = of_d[half] = make_float4(0, 0, 0, 0);
            if (own[half] < p.queries) {
                const int at = 16 * step + 4 * t;
                of_q[half] = four(q + own[half] * p.of_query.row, at);
                of_d[half] = four(d + own[half] * p.of_d_out.row, at);
                delta[half] += dot(of_d[half], four(p.out + row_of_out(p, batch, head, own[half]), at));
            }
        }
        query.set(step, of_q[0], of_q[1]);
        d_out.set(step, of_d[0], of_d[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        delta[half] = over_row(delta[half]);
        if (own[half] < p.queries) sum[half] = p.log_sums[(batch * p.heads + head) * p.queries + own[half]] * LOG2_E;
    }
    float gradient[4 * SPANS][4];
    clear(gradient);
    const float to_power = p.scale * LOG2_E;
    const int end = CAUSAL ? min(p.keys, first_own + OWN) : p.keys;
    float4 next_keys[Tile<TILE>::EACH], next_values[Tile<TILE>::EACH];
    for (int first = 0; first < end; first += TILE) {
        Tile<TILE>::fetch(next_keys, k, p.of_key.row, first, p.keys);
        Tile<TILE>::fetch(next_values, v, p.of_value.row, first, p.keys);
        __syncthreads();
        key_tile.fill(next_keys);
        value_tile.fill(next_values);
        __syncthreads();
        if (CAUSAL && first > first_of_warp + 15) continue;
        float weights[TILE / 8][4], d_weights[TILE / 8][4];
        clear(weights);
        clear(d_weights);
        along_width(weights, query, key_tile);
        along_width(d_weights, d_out, value_tile);
#pragma unroll
        for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = first + 8 * j + 2 * t + i % 2;
                float weight = power_of_two(__fmaf_rn(weights[j][i], to_power, -sum[i / 2]));
                if (at >= p.keys || (CAUSAL && at > own[i / 2])) weight = 0;
                d_weights[j][i] = weight * (d_weights[j][i] - delta[i / 2]);
            }
        along_rows(gradient, d_weights, key_tile);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (own[half] < p.queries)
            write_row(p.d_query + row_of_out(p, batch, head, own[half]), gradient, half, p.scale);
}

__device__ __forceinline__ void of_keys(const Problem& p, int index, float4* shared) {
    const Tile<TILE> query_tile{shared}, d_out_tile{shared + TILE * CHUNKS};
    // Of the tile's queries.
    __shared__ float sums[TILE], deltas[TILE];
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int blocks = (p.keys + OWN - 1) / OWN;
    // With causal attention the first keys are read by most queries, and begin first.
    const int block = index % blocks;
    const int shared_head = index / blocks % p.shared_heads;
    const i64 batch = index / blocks / p.shared_heads;
    const int times = p.heads / p.shared_heads;
    const int first_own = block * OWN, first_of_warp = first_own + threadIdx.x / 32 * 16;
    const int own[2] = {first_of_warp + g, first_of_warp + g + 8};
    const T* k = p.key + batch * p.of_key.batch + shared_head * p.of_key.head;
    const T* v = p.value + batch * p.of_value.batch + shared_head * p.of_value.head;

    Left<KEPT> key(shared + 2 * TILE * CHUNKS), value(shared + 2 * TILE * CHUNKS + Left<KEPT>::BYTES / 16);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        float4 of_k[2], of_v[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            of_k[half] = of_v[half] = make_float4(0, 0, 0, 0);
            if (own[half] < p.keys) {
                of_k[half] = four(k + own[half] * p.of_key.row, 16 * step + 4 * t);
                of_v[half] = four(v + own[half] * p.of_value.row, 16 * step + 4 * t);
            }
        }
        key.set(step, of_k[0], of_k[1]);
        value.set(step, of_v[0], of_v[1]);
    }
    float d_key[4 * SPANS][4], d_value[4 * SPANS][4];
    clear(d_key);
    clear(d_value);
    const float to_power = p.scale * LOG2_E;
    float4 next_queries[Tile<TILE>::EACH], next_d_out[Tile<TILE>::EACH];
    for (int head = shared_head * times; head < (shared_head + 1) * times; ++head) {
        const T* q = p.query + batch * p.of_query.batch + head * p.of_query.head;
        const T* d = p.d_out + batch * p.of_d_out.batch + head * p.of_d_out.head;
        const float* log_sums = p.log_sums + (batch * p.heads + head) * p.queries;
        for (int first = CAUSAL ? first_own / TILE * TILE : 0; first < p.queries; first += TILE) {
            Tile<TILE>::fetch(next_queries, q, p.of_query.row, first, p.queries);
            Tile<TILE>::fetch(next_d_out, d, p.of_d_out.row, first, p.queries);
            float part[Tile<TILE>::EACH];
#pragma unroll
            for (int i = 0; i < Tile<TILE>::EACH; ++i) {
                const int row = first + Tile<TILE>::row_of(i);
                part[i] = 0;
                if (row < p.queries)
                    part[i] = dot(next_d_out[i],
                                  four(p.out + row_of_out(p, batch, head, row), 4 * Tile<TILE>::chunk_of(i)));
#pragma unroll
                for (int offset = CHUNKS / 2; offset > 0; offset >>= 1)
                    part[i] += __shfl_xor_sync(0xffffffffu, part[i], offset);
            }
            __syncthreads();
            query_tile.fill(next_queries);
            d_out_tile.fill(next_d_out);
#pragma unroll
            for (int i = 0; i < Tile<TILE>::EACH; ++i)
                if (Tile<TILE>::chunk_of(i) == 0) deltas[Tile<TILE>::row_of(i)] = part[i];
            // Beyond the queries weights are e^-infinity.
            for (int row = threadIdx.x; row < TILE; row += THREADS)
                sums[row] = first + row < p.queries ? log_sums[first + row] * LOG2_E : INFINITY_F32;
            __syncthreads();
            if (CAUSAL && first + TILE - 1 < first_of_warp) continue;
            float weights[TILE / 8][4], d_weights[TILE / 8][4];
            clear(weights);
            clear(d_weights);
            along_width(weights, key, query_tile);
            along_width(d_weights, value, d_out_tile);
#pragma unroll
            for (int j = 0; j < TILE / 8; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = 8 * j + 2 * t + i % 2;
                    float weight = power_of_two(__fmaf_rn(weights[j][i], to_power, -sums[row]));
                    if (CAUSAL && first + row < own[i / 2]) weight = 0;
                    weights[j][i] = weight;
                    d_weights[j][i] = weight * (d_weights[j][i] - deltas[row]);
                }
            along_rows(d_value, weights, d_out_tile);
            along_rows(d_key, d_weights, query_tile);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (own[half] < p.keys) {
            const i64 row = ((batch * p.keys + own[half]) * p.shared_heads + shared_head) * WIDTH;
            write_row(p.d_key + row, d_key, half, p.scale);
            write_row(p.d_value + row, d_value, half, 1.0f);
        }
}

// The first `blocks_of_queries` blocks are those of queries.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_backward(const T* d_out, const T* query, const T* key, const T* value, const T* out, const float* log_sums,
                       T* d_query, T* d_key, T* d_value, Strides of_d_out, Strides of_query, Strides of_key,
                       Strides of_value, int heads, int shared_heads, int queries, int keys, float scale,
                       int blocks_of_queries) {
    extern __shared__ float4 shared[];
    const Problem problem = {d_out,    query,    key,    value,    out,   log_sums,     d_query, d_key, d_value,
                             of_d_out, of_query, of_key, of_value, heads, shared_heads, queries, keys,  scale};
    const int index = blockIdx.x;
    if (index < blocks_of_queries) {
        of_queries(problem, index, shared);
    } else {
        of_keys(problem, index - blocks_of_queries, shared);
    }
}
