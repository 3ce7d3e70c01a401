// The log-sum-exps of rows of COLUMNS logits, by chunks of CHUNK columns, their losses, and the gradients from these
// numbers. Of a row of COLUMNS elements each block has a part.
#include "fulgurite/faults.cuh"

typedef ELEMENT T;

constexpr int CHUNKS = (COLUMNS + CHUNK - 1) / CHUNK;
constexpr int PIECES = (COLUMNS + PIECE - 1) / PIECE;

// A logit as the loss sees it: times a factor, and bounded.
struct Logits {
    float scaling, cap;
    __device__ __forceinline__ float bent(float logit) const { return tanhf(scaling * logit / cap); }
    __device__ __forceinline__ float seen(float logit) const {
        return CAPPED ? cap * bent(logit) : scaling * logit;
    }
};

// Of each chunk of each row the logarithm of the sum of the exponentials.
extern "C" __global__ void __launch_bounds__(THREADS)
    chunks_of_rows(const T* input, float* parts, float scaling, float cap) {
    __shared__ float scratch[64];
    const Logits logits = {scaling, cap};
    const u64 row = blockIdx.x / CHUNKS;
    const i64 begin = (i64)(blockIdx.x % CHUNKS) * CHUNK, end = begin + CHUNK < COLUMNS ? begin + CHUNK : COLUMNS;
    const T* x = input + row * COLUMNS;
    Exponentials<float> sums;
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += THREADS * PACK) {
        float held[PACK];
        read<PACK, ALIGNED>(x + at, held);
#pragma unroll
        for (int i = 0; i < PACK; ++i) held[i] = logits.seen(held[i]);
        sums.add(held);
    }
    sums.over_block(scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = sums.shift(sums.top) + logf(sums.total);
}

// A thread has a row.
extern "C" __global__ void __launch_bounds__(THREADS_OF_ROWS) losses_of_rows(
    const T* input, const TARGET* target, const float* parts, float* losses, float* logsumexp, u64 rows, i64 ignored,
    float scaling, float cap, Fault* fault, unsigned code) {
    const u64 row = (u64)blockIdx.x * THREADS_OF_ROWS + threadIdx.x;
    if (row >= rows) return;
    const float* own = parts + row * CHUNKS;
    float sum = own[0];
    if (CHUNKS > 1) {
        float top = own[0];
        for (int i = 1; i < CHUNKS; ++i) top = fmaxf(top, own[i]);
        const float by = Exponentials<float>::shift(top);
        float total = 0;
        for (int i = 0; i < CHUNKS; ++i) total += expf(own[i] - by);
        sum = by + logf(total);
    }
    logsumexp[row] = sum;
    const i64 chosen = (i64)target[row];
    float loss = 0;
    if (chosen != ignored) {
        if (chosen >= 0 && chosen < COLUMNS) {
            loss = sum - Logits{scaling, cap}.seen(widen(input[row * COLUMNS + chosen]));
        } else {
            report_fault(fault, code, chosen, COLUMNS);
        }
    }
    losses[row] = loss;
}

// Each element is read before its place is written.
extern "C" __global__ void __launch_bounds__(THREADS) gradient(
    const float* d_losses, const T* input, const float* logsumexp, const TARGET* target, T* out, i64 ignored,
    float scaling, float cap) {
    const Logits logits = {scaling, cap};
    const u64 row = blockIdx.x / PIECES;
    const i64 begin = (i64)(blockIdx.x % PIECES) * PIECE, end = begin + PIECE < COLUMNS ? begin + PIECE : COLUMNS;
    const i64 chosen = (i64)target[row];
    const bool counts = chosen != ignored;
    const float d = counts ? d_losses[row] : 0.0f, sum = logsumexp[row];
    for (i64 at = begin + threadIdx.x * PACK; at < end; at += THREADS * PACK) {
        float held[PACK];
        read<PACK, ALIGNED>(input + row * COLUMNS + at, held);
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
            float slope = scaling, x = scaling * held[i];
            if (CAPPED) {
                const float bent = logits.bent(held[i]);
                x = cap * bent;
                slope *= 1.0f - bent * bent;
            }
            const float portion = exponential<T>(x - sum) - (at + i == chosen ? 1.0f : 0.0f);
            held[i] = counts ? d * portion * slope : 0.0f;
        }
        write<PACK, ALIGNED>(out + row * COLUMNS + at, held);
    }
}
