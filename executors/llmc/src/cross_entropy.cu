// Cross entropy of rows of COLUMNS logits and one class each.
#include "fulgurite/faults.cuh"
#include "fulgurite/reductions.cuh"

typedef ELEMENT T;

// Loss and log-sum-exp of row blockIdx.x.
extern "C" __global__ void __launch_bounds__(THREADS) crossentropy_rows(
    const T* logits, const TARGET* target, float* losses, float* log_sums, i64 ignored, Fault* fault, unsigned code) {
    __shared__ float scratch[64];
    const u64 row = blockIdx.x;
    const Stream<T> x(logits, row);
    Exponentials<T> seen = x.exponentials();
    seen.over_block(scratch);
    if (threadIdx.x != 0) return;
    const float log_total = logf(seen.total);
    log_sums[row] = seen.top + log_total;
    const i64 class_ = (i64)target[row];
    float loss = 0;
    if (class_ != ignored) {
        if (class_ < 0 || class_ >= COLUMNS) {
            report_fault(fault, code, class_, COLUMNS);
        } else {
            // The difference first: nothing is lost to the size of the logits.
            loss = log_total - (widen(x.x[class_]) - seen.top);
        }
    }
    losses[row] = loss;
}

// The losses of all rows as one number, by one block, and the share that each row has in it. MEAN is 0 for a sum.
extern "C" __global__ void __launch_bounds__(THREADS)
    crossentropy_total(
    const float* losses, const TARGET* target, T* loss, float* share, u64 rows, i64 ignored) {
    __shared__ float scratch[32];
    float total = 0, count = 0;
    for (u64 row = threadIdx.x; row < rows; row += THREADS) {
        total += losses[row];
        if (MEAN && (i64)target[row] != ignored) count += 1;
    }
    total = block_reduce<Sum, float>(total, scratch, 0.0f);
    if (MEAN) count = block_reduce<Sum, float>(count, scratch, 0.0f);
    if (threadIdx.x != 0) return;
    *loss = narrow<T>(MEAN ? total / count : total);
    *share = MEAN ? 1.0f / count : 1.0f;
}

// Losses that stay as they are, in the logits' element type.
extern "C" __global__ void __launch_bounds__(THREADS)
    crossentropy_losses(
    const float* losses, T* loss, float* share, u64 rows) {
    const u64 row = (u64)blockIdx.x * THREADS + threadIdx.x;
    if (row == 0) *share = 1.0f;
    if (row < rows) loss[row] = narrow<T>(losses[row]);
}

// (softmax - one at the class) · share · cotangent of row blockIdx.x; PER_ROW is 1 if each row has a cotangent of its
// own.
extern "C" __global__ void __launch_bounds__(THREADS) crossentropy_softmax_backward(
    const T* logits, const TARGET* target, const float* log_sums, const float* share, const T* d_loss, T* d_logits,
    i64 ignored, Fault* fault, unsigned code) {
    const u64 row = blockIdx.x;
    const i64 class_ = (i64)target[row];
    const bool counts = class_ != ignored;
    if (counts && (class_ < 0 || class_ >= COLUMNS) && threadIdx.x == 0) report_fault(fault, code, class_, COLUMNS);
    const float log_sum = log_sums[row];
    // The share is infinite if no row counts.
    const float scale = counts ? *share * widen(d_loss[PER_ROW ? row : 0]) : 0.0f;
    const int hit = counts && class_ >= 0 && class_ < COLUMNS ? (int)class_ : -1;
    const Stream<T> x(logits, row);
    x.each(
        [&](float value, int at) {
            return counts ? (exponential<T>(value - log_sum) - (at == hit ? 1.0f : 0.0f)) * scale : 0.0f;
        },
        d_logits);
}
