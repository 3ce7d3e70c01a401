// What a problem of attention changes about scores and weights, beside positions that come later:
//
// | macro | |
// |---|---|
// | MASK | 1: booleans say which keys are seen; 2: numbers of the elements' type are added to scores; 3: bits say it |
// | LENGTHS | a batch has fewer keys than there are rows; the type of their numbers |
// | WINDOW | a query sees that number of last keys, its own included (only with CAUSAL) |
// | CAPPED | scores become cap tanh(score / cap) |
// | DROPPED | some weights are 0, the others divided by what is kept of them; 2: of a part of a larger batch |
//
// What a problem has not takes no parameters and no instructions.
#ifndef MASK
#define MASK 0
#endif
#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef CAPPED
#define CAPPED 0
#endif
#ifndef DROPPED
#define DROPPED 0
#endif
#if DROPPED
#include "fulgurite/philox.cuh"
#endif

// Whether queries may see no key at all.
#ifdef LENGTHS
#define SOME_SEE_NOTHING 1
#else
#define SOME_SEE_NOTHING (MASK || WINDOW)
#endif
// Whether a mask has an element for each score, which is looked at as the score is computed.
#define MARKED (MASK == 1 || MASK == 2)
// Whether scores are more than products times a factor.
#define SCORES_CHANGED (MARKED || CAPPED)

#if MASK == 1
typedef u8 Mark;
#else
typedef T Mark;
#endif
// Of [batch, heads, queries, keys], in elements; 0 where one is for all. Of a head, numbers of elements are `int`.
struct MarkStrides {
    i64 batch, head, query, key;
};
// Of bases of rows, [batch, heads, queries], in elements; 0 where one is for all.
struct BaseStrides {
    i64 batch, head, query;
};
// Of words with the bits of 32 columns each: [batch, heads, rows, words], in words; and how many rows there are. Rows
// are queries or keys, as the kernel has them.
struct BitStrides {
    i64 batch, head, row, rows;
};
// Between the results of eight columns: marks are read when they are used, so that few registers hold them.
#if MARKED
#define IN_ORDER asm volatile("" : : : "memory")
#else
#define IN_ORDER
#endif

#if MASK == 2
#define TAKEN_MASK , const Mark *mask, MarkStrides of_mask, const float *bases, BaseStrides of_bases
#define GIVEN_MASK mask, of_mask, bases, of_bases,
#elif MASK == 1
#define TAKEN_MASK , const Mark *mask, MarkStrides of_mask
#define GIVEN_MASK mask, of_mask,
#elif MASK
#define TAKEN_MASK , const u32 *bits, BitStrides of_bits
#define GIVEN_MASK bits, of_bits,
#else
#define TAKEN_MASK
#define GIVEN_MASK
#endif
#ifdef LENGTHS
#define TAKEN_LENGTHS , const LENGTHS* lengths
#define GIVEN_LENGTHS lengths,
#else
#define TAKEN_LENGTHS
#define GIVEN_LENGTHS
#endif
#if WINDOW
#define TAKEN_WINDOW , int window
#define GIVEN_WINDOW window,
#else
#define TAKEN_WINDOW
#define GIVEN_WINDOW
#endif
#if CAPPED
#define TAKEN_CAP , float cap
#define GIVEN_CAP cap,
#else
#define TAKEN_CAP
#define GIVEN_CAP
#endif
#if DROPPED == 2
#define TAKEN_DROPPED , const u64 *generator, u32 threshold, float kept, u64 rows_of_part
#define GIVEN_DROPPED generator, threshold, kept, rows_of_part,
#elif DROPPED
#define TAKEN_DROPPED , const u64 *generator, u32 threshold, float kept
#define GIVEN_DROPPED generator, threshold, kept,
#else
#define TAKEN_DROPPED
#define GIVEN_DROPPED
#endif
// The last parameters of a kernel, and what they are given to.
#define TAKEN TAKEN_MASK TAKEN_LENGTHS TAKEN_WINDOW TAKEN_CAP TAKEN_DROPPED
#define GIVEN {GIVEN_MASK GIVEN_LENGTHS GIVEN_WINDOW GIVEN_CAP GIVEN_DROPPED}

struct Changes {
#if MARKED
    const Mark* mask;
    MarkStrides of_mask;
#if MASK == 2
    // What is subtracted from sums of scores and numbers (`mask_bases.cu`).
    const float* bases;
    BaseStrides of_bases;
#endif
#elif MASK
    const u32* bits;
    BitStrides of_bits;
#endif
#ifdef LENGTHS
    const LENGTHS* lengths;
#endif
#if WINDOW
    int window;
#endif
#if CAPPED
    float cap;
#endif
#if DROPPED
    // The seed and the offset; words whose upper 24 bits are below the threshold drop their weight; what kept weights
    // are multiplied with.
    const u64* generator;
    u32 threshold;
    float kept;
#endif
#if DROPPED == 2
    // The rows of weights of the part that the generator, which also holds the sum of the offset and its number, is of.
    u64 rows_of_part;
#endif

    // Of the keys of a batch, how many may be seen.
    __device__ __forceinline__ int keys_of(i64 batch, int keys) const {
#ifdef LENGTHS
        const i64 length = widen(lengths[batch]);
        return length < 0 ? 0 : length < keys ? (int)length : keys;
#else
        return keys;
#endif
    }
    // The first key that a query sees; may be negative.
    __device__ __forceinline__ int first_key_of(int query) const {
#if WINDOW
        return query - window + 1;
#else
        return 0;
#endif
    }
    // One more than the last query that sees a key, of `queries`.
    __device__ __forceinline__ int end_of_queries(int key, int queries) const {
#if WINDOW
        return window < queries - key ? key + window : queries;
#else
        return queries;
#endif
    }
    // Whether a key is behind those of its batch, which are `count`.
    __device__ __forceinline__ bool length_hides(int key, int count) const {
#ifdef LENGTHS
        return key >= count;
#else
        return false;
#endif
    }
    // Whether a window hides a key from a query.
    __device__ __forceinline__ bool window_hides(int key, int query) const {
        return WINDOW && key < first_key_of(query);
    }
    // What weights that were kept are multiplied with.
    __device__ __forceinline__ float kept_factor() const {
#if DROPPED
        return kept;
#else
        return 1.0f;
#endif
    }
};

// The changes of a head of a batch.
struct HeadChanges {
#if MARKED
    const Mark* mask;
    int of_query, of_key, last_query, last_key;
#if MASK == 2
    const float* bases;
    int base_of_query;
#endif
#elif MASK
    const u32* bits;
    int words, last_row;
#endif
#if CAPPED
    float cap;
#endif
#if DROPPED
    u64 seed, offset, row;
    u32 threshold;
    int keys;
#endif

    __device__ __forceinline__ HeadChanges(const Changes& c, i64 batch, int heads, int head, int queries, int keys) {
#if MARKED
        mask = c.mask + batch * c.of_mask.batch + head * c.of_mask.head;
        of_query = (int)c.of_mask.query;
        of_key = (int)c.of_mask.key;
        last_query = queries - 1;
        last_key = keys - 1;
#if MASK == 2
        bases = c.bases + batch * c.of_bases.batch + head * c.of_bases.head;
        base_of_query = (int)c.of_bases.query;
#endif
#elif MASK
        bits = c.bits + batch * c.of_bits.batch + head * c.of_bits.head;
        words = (int)c.of_bits.row;
        last_row = (int)c.of_bits.rows - 1;
#endif
#if CAPPED
        cap = c.cap;
#endif
#if DROPPED
        seed = c.generator[0];
        offset = c.generator[1];
        row = ((u64)batch * heads + head) * queries;
#if DROPPED == 2
        row += (c.generator[2] - offset) * c.rows_of_part;
#endif
        threshold = c.threshold;
        this->keys = keys;
#endif
    }

    // The exponent to base 2 that a product becomes: `to_power` is the factor of scores in units of log 2. `slope` is
    // multiplied with the derivative of the score by the product, but for the factor. Queries and keys that are none
    // get anything but a fault. The sum with a number of a mask is rounded to f32, as the formula's is: beside a number
    // far below 0 nothing is left of the score. The base of the row keeps what is left near 0, where logarithms of sums
    // have digits.
    __device__ __forceinline__ float exponent(
        float product, int query, int key, float to_power, float& slope) const {
        float score = product * to_power;
#if CAPPED
        const float most = cap * LOG2_E, bent = bend(product * (to_power / most));
        score = most * bent;
        slope *= 1.0f - bent * bent;
#endif
#if MARKED
        const int row = min(query, last_query);
        const Mark mark = mask[row * of_query + min(key, last_key) * of_key];
#if MASK == 1
        score = mark ? score : -INFINITY_F32;
#else
        score = (__fmaf_rn(score, LN_2, widen(mark)) - bases[row * base_of_query]) * LOG2_E;
#endif
#endif
        return score;
    }

#if MASK == 3
    // Numbers of pairs that do not see each other become `hidden`, of 16 rows by 8 N columns in the layout of results;
    // `row` and `column` are the first ones, the column a multiple of 32. Rows beyond the last get those of the last.
    template <int N>
    __device__ __forceinline__ void hide(float (&c)[N][4], int row, int column, float hidden) const {
        static_assert(N % 4 == 0, "words have 32 columns");
        const int lane = threadIdx.x % 32, t = lane % 4;
        const u32* from[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            from[half] = bits + (i64)min(row + lane / 4 + 8 * half, last_row) * words + column / 32;
#pragma unroll
        for (int word = 0; word < N / 4; ++word)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 seen = from[half][word] >> 2 * t;
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
                        if (!(seen >> (8 * j + i) & 1)) c[4 * word + j][2 * half + i] = hidden;
            }
    }
#endif

#if CAPPED
    // The hyperbolic tangent; as exact as products of 16 bits can tell, or of f32.
    static __device__ __forceinline__ float bend(float x) {
        if constexpr (sizeof(T) == 4) return tanhf(x);
        // Near 0 the difference would lose digits, of which large caps make much.
        if (fabsf(x) < 0.03f) return x - x * x * x * (1.0f / 3.0f);
        const float power = x * (2.0f * LOG2_E);
        // NaN stays.
        return 1.0f - __fdividef(2.0f, 1.0f + power_of_two(power > 126.0f ? 126.0f : power));
    }
#endif

#if DROPPED
    __device__ __forceinline__ u32 keeps(u32 word) const { return word >> 8 >= threshold; }
    __device__ __forceinline__ u32 four(u64 block) const {
        const Words words = philox(seed, offset, block);
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) bits |= keeps(words.at[i]) << i;
        return bits;
    }

    // Which weights are kept of results of 16 rows by 8 N columns, number i of results j as bit 4 j + i: eight results
    // a word. `row` and `column` are the first of the 16 and of the columns; rows are of keys with BY_KEYS, and
    // otherwise of queries. The numbers are those of `prims::uniform` for [batch, heads, queries, keys], of which a
    // block of words has four neighbours.
    template <bool BY_KEYS, int N>
    __device__ __forceinline__ void draw(u32 (&bits)[(N + 7) / 8], int first_row, int first_column) const {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int word = 0; word < (N + 7) / 8; ++word) {
            const int count = min(N - 8 * word, 8), column = first_column + 64 * word;
            u32 mine = 0;
            if (keys % 4 == 0 && !BY_KEYS) {
                // Of a row's eight columns two threads have four each, neighbours of one block: one draws for one row,
                // its neighbour for the other.
                const u64 first = (row + first_row + g + t % 2 * 8) * keys + column + t / 2 * 4;
#pragma unroll 2
                for (int j = 0; j < count; ++j) mine |= four((first + 8 * j) / 4) << 4 * j;
                const u32 other = __shfl_xor_sync(0xffffffffu, mine, 1);
                bits[word] = t % 2 == 0 ? (mine & 0x33333333u) | (other & 0x33333333u) << 2
                                        : (other >> 2 & 0x33333333u) | (mine & 0xccccccccu);
            } else if (keys % 4 == 0) {
                // Of a column, four threads have neighbours of one block: each draws for one of the four numbers.
                const int r = g % 4;
                const int key = first_row + g - r + r / 2 * 8;
                const u64 first = (row + column + 2 * t + r % 2) * keys + key;
#pragma unroll 2
                for (int j = 0; j < count; ++j) mine |= four((first + (u64)(8 * j) * keys) / 4) << 4 * j;
                u32 all = 0;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const u32 theirs = __shfl_sync(0xffffffffu, mine, (lane & ~12) | i << 2);
                    all |= (theirs >> r & 0x11111111u) << i;
                }
                bits[word] = all;
            } else {
#pragma unroll 1
                for (int at = 0; at < 4 * count; ++at) {
                    const int one = first_row + g + at % 4 / 2 * 8, other = column + at / 4 * 8 + 2 * t + at % 2;
                    const u64 element = (row + (BY_KEYS ? other : one)) * keys + (BY_KEYS ? one : other);
                    mine |= (four(element / 4) >> element % 4 & 1) << at;
                }
                bits[word] = mine;
            }
        }
    }
#endif
};

// Whether number i of results j is kept.
template <int N> __device__ __forceinline__ bool is_kept(const u32 (&bits)[N], int j, int i) {
    return bits[j / 8] >> (j % 8 * 4 + i) & 1;
}
