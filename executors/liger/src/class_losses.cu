// Losses of rows of COLUMNS logits and one class each, and their gradients.
#include "fulgurite/copies.cuh"
#include "fulgurite/faults.cuh"
#include "fulgurite/reductions.cuh"

typedef ELEMENT T;

// What the loss of a row consists of: see the operator `class_losses`. CAPPED, SMOOTHED and WEIGHTED say which of these
// numbers are of use.
struct Options {
    const CLASS_WEIGHT* weight;
    i64 ignored;
    // What part of the target its class has, and what each class has.
    float kept, spread;
    float square;
    float cap;

    __device__ __forceinline__ float weight_of(int column) const {
        return WEIGHTED ? widen(weight[column]) : 1.0f;
    }
    // The hyperbolic tangent of a part of the cap.
    __device__ __forceinline__ float bent(float logit) const {
        const float part = logit / cap;
        if constexpr (sizeof(T) > 2) return tanhf(part);
        // Of a small part of a large cap, the difference of two numbers near one would lose all digits.
        if (fabsf(part) < 0.01f) return part * (1.0f - part * part * (1.0f / 3.0f));
        return 1.0f - __fdividef(2.0f, 1.0f + power_of_two(part * (2.0f * LOG2_E)));
    }
    __device__ __forceinline__ float capped(float logit) const { return CAPPED ? cap * bent(logit) : logit; }
};

// What a loss and its gradient need to know of all logits of a row.
struct Seen {
    const Options& options;
    Exponentials<T> sums;
    // What is spread over the classes: the sum of their shares times the distances of the logits to `base`, and the
    // sum of the shares. The loss has the distance of the class's logit too: nothing is lost to its size.
    float base, moved, shares;

    __device__ __forceinline__ Seen(const Options& options, float aimed) : options(options), base(0), moved(0) {
        shares = 0;
        // Of infinite numbers there are no distances.
        if (SMOOTHED && is_finite(options.capped(aimed))) base = options.capped(aimed);
    }
    static __device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < INFINITY_F32; }

    template <int N, typename At> __device__ __forceinline__ void add(float (&x)[N], At at) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] = options.capped(x[i]);
            if (SMOOTHED) {
                const float share = options.spread * options.weight_of(at(i));
                moved = __fmaf_rn(share, x[i] - base, moved);
                shares += share;
            }
        }
        sums.add(x);
    }
    // Every thread gets the whole row's. `scratch` holds 64 numbers.
    __device__ __forceinline__ void over_block(float* scratch) {
        sums.over_block(scratch);
        if (SMOOTHED) {
            __syncthreads();
            moved = block_reduce<Sum, float>(moved, scratch, 0.0f);
            shares = block_reduce<Sum, float>(shares, scratch, 0.0f);
        }
    }
};

// A row's class, which of its logits that is, and the loss's cotangent.
struct Aim {
    i64 class_;
    float cotangent;
    __device__ __forceinline__ Aim(const TARGET* target, const float* d_losses, u64 row) {
        class_ = (i64)target[row];
        cotangent = GRADIENT ? d_losses[row] : 0.0f;
    }
    __device__ __forceinline__ bool inside() const { return class_ >= 0 && class_ < COLUMNS; }
    // The logit of the class, or -1.
    __device__ __forceinline__ int hit(const Options& options) const {
        return class_ != options.ignored && inside() ? (int)class_ : -1;
    }
    // One thread reports a class that there is not.
    __device__ __forceinline__ void check(const Options& options, Fault* fault, unsigned code) const {
        if (class_ != options.ignored && !inside()) report_fault(fault, code, class_, COLUMNS);
    }
};

// The loss of a row from the logit of its class.
__device__ __forceinline__ float loss_of(const Seen& seen, int hit, float logit) {
    if (hit < 0) return 0.0f;
    const Options& options = seen.options;
    const float log_total = logf(seen.sums.total), log_sum = seen.sums.top + log_total;
    // The difference first: nothing is lost to the size of the logits.
    float loss = log_total - (options.capped(logit) - seen.sums.top);
    if (WEIGHTED) loss *= options.weight_of(hit);
    if (SMOOTHED) loss = options.kept * loss + (seen.shares * (log_sum - seen.base) - seen.moved);
    if (options.square != 0.0f) loss += options.square * log_sum * log_sum;
    return loss;
}

// The gradient of a row's logits.
struct Slope {
    const Options& options;
    const Portion<T> portion;
    int hit;
    float aimed, share, spread;
    __device__ __forceinline__ Slope(const Seen& seen, const Aim& aim)
        : options(seen.options), portion(seen.sums), hit(aim.hit(seen.options)), spread(0) {
        const float d = aim.cotangent;
        aimed = share = 0;
        if (hit < 0) return;
        share = aimed = d * options.kept * options.weight_of(hit);
        if (SMOOTHED) {
            spread = d * options.spread;
            share += d * seen.shares;
        }
        if (options.square != 0.0f) share += 2.0f * options.square * (seen.sums.top + logf(seen.sums.total)) * d;
    }
    template <int N> __device__ __forceinline__ void of(float (&x)[N], int at) const {
        float bent[N];
#pragma unroll
        for (int i = 0; i < N; ++i) {
            bent[i] = CAPPED ? options.bent(x[i]) : 0.0f;
            x[i] = share * portion.of(CAPPED ? options.cap * bent[i] : x[i]);
            if (SMOOTHED) x[i] -= spread * options.weight_of(at + i);
        }
        if (hit >= at && hit < at + N) {
#pragma unroll
            for (int i = 0; i < N; ++i)
                if (at + i == hit) x[i] -= aimed;
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (CAPPED) x[i] *= 1.0f - bent[i] * bent[i];
            // What is not counted may be no number.
            if (hit < 0) x[i] = 0.0f;
        }
    }
};

#ifdef STEPS
// A row is kept by its block, each pack at a place of the thread that handles it: STEPS packs a thread in shared
// memory, the last EXTRA ones in registers. While the gradient of a row is written, the block's next row is on its
// way to the places that become free.
struct Kept {
    T* places;
    Pack<T, PACK> extra[EXTRA > 0 ? EXTRA : 1];
    __device__ __forceinline__ T* place(int s) const { return places + (s * THREADS + (int)threadIdx.x) * PACK; }
    static __device__ __forceinline__ int pack(int s) { return (int)threadIdx.x + s * THREADS; }
    // Asks for the thread's s-th pack of a row, if it has one there: a batch.
    __device__ __forceinline__ void ask(const Stream<T>& x, int s) const {
        if (pack(s) < x.packs) fetch<ALIGNED>(place(s), x.x + x.head + pack(s) * PACK);
        end_batch();
    }
    __device__ __forceinline__ void ask_extra(const Stream<T>& x) {
#pragma unroll
        for (int e = 0; e < EXTRA; ++e) {
            const T* from = x.x + x.head + pack(STEPS + e) * PACK;
            if (pack(STEPS + e) >= x.packs) continue;
            if constexpr (ALIGNED) {
                extra[e] = load<PACK>(from);
            } else {
#pragma unroll
                for (int i = 0; i < PACK; ++i) extra[e].at[i] = from[i];
            }
        }
    }
    __device__ __forceinline__ void read_extra(int e, float (&held)[PACK]) const {
#pragma unroll
        for (int i = 0; i < PACK; ++i) held[i] = widen(extra[e].at[i]);
    }
};

template <int S> __device__ __forceinline__ void see(const Stream<T>& x, const Kept& kept, Seen& seen) {
    if constexpr (S < STEPS) {
        await_all_but<STEPS - 1 - S>();
        if (kept.pack(S) < x.packs) {
            float held[PACK];
            read<PACK, true>(kept.place(S), held);
            seen.add(held, [&](int i) { return x.head + kept.pack(S) * PACK + i; });
        }
        see<S + 1>(x, kept, seen);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) class_losses_kept(
    const T* logits, const TARGET* target, const float* d_losses, const CLASS_WEIGHT* weight, float* losses,
    T* d_logits, u64 rows, i64 ignored, float part, float spread, float square, float cap, Fault* fault,
    unsigned code) {
    extern __shared__ __align__(16) unsigned char bytes[];
    // Two rows' worth: while a warp reads the sums of one, another may write those of the next.
    __shared__ float scratch[2][64];
    const Options options = {weight, ignored, part, spread, square, cap};
    Kept kept;
    kept.places = reinterpret_cast<T*>(bytes);
    // What is in no pack waits in a register.
    T end;
    Aim aim(target, d_losses, blockIdx.x);
    auto ask_others = [&](const Stream<T>& x) {
        if (x.end() >= 0) end = x.x[x.end()];
        kept.ask_extra(x);
    };
    {
        const Stream<T> x(logits, blockIdx.x);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) kept.ask(x, s);
        ask_others(x);
    }
    int turn = 0;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const Stream<T> x(logits, row);
        const int hit = aim.hit(options);
        // Read before anybody writes the gradient in its place.
        const float logit = LOSSES && threadIdx.x == 0 && hit >= 0 ? widen(x.x[hit]) : 0.0f;
        Seen seen(options, SMOOTHED ? widen(x.x[hit < 0 ? 0 : hit]) : 0.0f);
        see<0>(x, kept, seen);
#pragma unroll
        for (int e = 0; e < EXTRA; ++e) {
            if (kept.pack(STEPS + e) < x.packs) {
                float held[PACK];
                kept.read_extra(e, held);
                seen.add(held, [&](int i) { return x.head + kept.pack(STEPS + e) * PACK + i; });
            }
        }
        if (x.end() >= 0) {
            float last[1] = {widen(end)};
            seen.add(last, [&](int) { return x.end(); });
        }
        seen.over_block(scratch[turn]);
        if (threadIdx.x == 0) {
            aim.check(options, fault, code);
            if (LOSSES) losses[row] = loss_of(seen, hit, logit);
        }
        const Slope slope(seen, aim);
        // Behind the last row nothing is asked for.
        const u64 next = row + gridDim.x;
        Stream<T> following(logits, next < rows ? next : row);
        const T last = end;
        aim = Aim(target, d_losses, next < rows ? next : row);
        if (next >= rows) following.packs = 0;
        T* y = d_logits + x.start;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (kept.pack(s) < x.packs) {
                const int at = x.head + kept.pack(s) * PACK;
                float held[PACK];
                read<PACK, true>(kept.place(s), held);
                slope.of(held, at);
                write<PACK, ALIGNED>(y + at, held);
            }
            kept.ask(following, s);
        }
#pragma unroll
        for (int e = 0; e < EXTRA; ++e) {
            if (kept.pack(STEPS + e) < x.packs) {
                const int at = x.head + kept.pack(STEPS + e) * PACK;
                float held[PACK];
                kept.read_extra(e, held);
                slope.of(held, at);
                write<PACK, ALIGNED>(y + at, held);
            }
        }
        if (next < rows) ask_others(following);
        if (x.end() >= 0) {
            float held[1] = {widen(last)};
            slope.of(held, x.end());
            y[x.end()] = narrow<T>(held[0]);
        }
    }
}
#else
// A block a row: read once for its loss, and a second time for its gradient. (Registers for one block keep
// the compiler from local memory.)
extern "C" __global__ void __launch_bounds__(THREADS, 1) class_losses_streamed(
    const T* logits, const TARGET* target, const float* d_losses, const CLASS_WEIGHT* weight, float* losses,
    T* d_logits, u64 rows, i64 ignored, float part, float spread, float square, float cap, Fault* fault,
    unsigned code) {
    __shared__ float scratch[64];
    const Options options = {weight, ignored, part, spread, square, cap};
    const u64 row = blockIdx.x;
    const Stream<T> x(logits, row);
    const Aim aim(target, d_losses, row);
    const int hit = aim.hit(options);
    const float logit = LOSSES && threadIdx.x == 0 && hit >= 0 ? widen(x.x[hit]) : 0.0f;
    Seen seen(options, SMOOTHED ? widen(x.x[hit < 0 ? 0 : hit]) : 0.0f);
    x.visit(seen);
    seen.over_block(scratch);
    if (threadIdx.x == 0) {
        aim.check(options, fault, code);
        if (LOSSES) losses[row] = loss_of(seen, hit, logit);
    }
    if (GRADIENT) {
        const Slope slope(seen, aim);
        x.each(
            [&](float value, int at) {
                float held[1] = {value};
                slope.of(held, at);
                return held[0];
            },
            d_logits);
    }
}
#endif
