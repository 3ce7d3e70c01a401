// Scans of lines: each element becomes what RULE makes of all elements up to it. Line i of the operand starts at
// FROM(i), that of a second operand at SECOND(i), and those of the result and of the positions at TO(i) and PLACE(i);
// elements are `along` apart. A rule has a state of some neighbouring elements: empty, of one element, and of two
// neighbouring states. States of several elements are joined in the order of the elements. Elements are NUMBER there.
#include "fulgurite/reductions.cuh"

const u32 ITEMS = 4;

// A state of two numbers.
template <typename A, typename B> struct Two {
    A first;
    B second;
};

template <typename S> __device__ __forceinline__ S from_lane_below(S state, u32 distance) {
    return __shfl_up_sync(0xffffffffu, state, distance);
}
template <typename A, typename B> __device__ __forceinline__ Two<A, B> from_lane_below(Two<A, B> state, u32 distance) {
    Two<A, B> lower;
    lower.first = __shfl_up_sync(0xffffffffu, state.first, distance);
    lower.second = __shfl_up_sync(0xffffffffu, state.second, distance);
    return lower;
}

// Sums and products, of double or of integers, which wrap.
template <typename W> struct Sums {
    typedef W State;
    static __device__ __forceinline__ State empty() { return 0; }
    static __device__ __forceinline__ State element(W x, W, i64) { return x; }
    static __device__ __forceinline__ State then(State x, State y) { return Sum::combine(x, y); }
    static __device__ __forceinline__ W value(State x) { return x; }
    static __device__ __forceinline__ i64 place(State) { return 0; }
};
template <typename W> struct Products {
    typedef W State;
    static __device__ __forceinline__ State empty() { return 1; }
    static __device__ __forceinline__ State element(W x, W, i64) { return x; }
    static __device__ __forceinline__ double then(double x, double y) { return x * y; }
    static __device__ __forceinline__ i64 then(i64 x, i64 y) { return wrapping_mul(x, y); }
    static __device__ __forceinline__ W value(State x) { return x; }
    static __device__ __forceinline__ i64 place(State) { return 0; }
};

// The last of the best elements and its position; NaN is the best. SIGN is -1 where the smallest is the best.
template <typename W, int SIGN> struct Best {
    typedef Two<W, i64> State;
    static __device__ __forceinline__ State empty() {
        State none = {(W)0, -1};
        return none;
    }
    static __device__ __forceinline__ State element(W x, W, i64 place) {
        State one = {x, place};
        return one;
    }
    static __device__ __forceinline__ State then(State x, State y) {
        const W a = x.first, b = y.first;
        const bool later = b != b || (SIGN > 0 ? b >= a : b <= a);
        return y.second >= 0 && (x.second < 0 || later) ? y : x;
    }
    static __device__ __forceinline__ W value(State x) { return x.first; }
    static __device__ __forceinline__ i64 place(State x) { return x.second; }
};

// Logarithms of sums of exponentials: the largest exponent, and the sum of the exponentials of what is left of each.
// The exponential is computed in E.
__device__ __forceinline__ double exponential_in(float, double x) { return expf((float)x); }
__device__ __forceinline__ double exponential_in(double, double x) { return exp(x); }
template <typename E> struct LogSums {
    typedef Two<double, double> State;
    static __device__ __forceinline__ State empty() {
        State none = {-INFINITY_F64, 0.0};
        return none;
    }
    static __device__ __forceinline__ State element(double x, double, i64) {
        State one = {x, 1.0};
        return one;
    }
    static __device__ __forceinline__ State then(State x, State y) {
        const double a = x.first, b = y.first;
        // One of both shares is whole. Equal exponents may be infinite, where their difference is no number.
        const double other = a == b ? 1.0 : exponential_in((E)0, a > b ? b - a : a - b);
        State both;
        both.first = a >= b || a != a ? a : b;
        both.second = a > b ? x.second + y.second * other : x.second * other + y.second;
        return both;
    }
    static __device__ __forceinline__ double value(State x) { return x.first + log(x.second); }
    static __device__ __forceinline__ i64 place(State) { return 0; }
};

// y = a · y before + b: of several elements the product of all a, and the y that follows zero.
struct Linear {
    typedef Two<double, double> State;
    static __device__ __forceinline__ State empty() {
        State none = {1.0, 0.0};
        return none;
    }
    static __device__ __forceinline__ State element(double a, double b, i64) {
        State one = {a, b};
        return one;
    }
    static __device__ __forceinline__ State then(State x, State y) {
        State both;
        // Nothing of what was before is left after a zero, also if a product before it is too large for a number.
        both.first = x.first == 0 || y.first == 0 ? 0 : x.first * y.first;
        both.second = y.first * x.second + y.second;
        return both;
    }
    static __device__ __forceinline__ double value(State x) { return x.second; }
    static __device__ __forceinline__ i64 place(State) { return 0; }
};

typedef RULE Rule;
typedef Rule::State State;

struct Line {
    const IN* in;
    const IN* second;
    OUT* out;
    i64* places;
    i64 in_along, second_along, out_along, places_along;

    __device__ __forceinline__ State element(u64 at) const {
        const NUMBER x = (NUMBER)widen(in[(i64)at * in_along]);
        const NUMBER y = TWO_OPERANDS ? (NUMBER)widen(second[(i64)at * second_along]) : (NUMBER)0;
        return Rule::element(x, y, (i64)at);
    }
    __device__ __forceinline__ void store(u64 at, State state) const {
        out[(i64)at * out_along] = narrow<OUT>((Wide<OUT>::type)Rule::value(state));
        if (HAS_PLACES) places[(i64)at * places_along] = Rule::place(state);
    }
};

// What the lanes of a warp up to this one have.
__device__ __forceinline__ State joined_up_to(State state) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const State lower = from_lane_below(state, distance);
        if (lane >= distance) state = Rule::then(lower, state);
    }
    return state;
}

// What a thread has of the elements that a block goes through in a round: ITEMS neighbouring ones.
struct Round {
    State own[ITEMS];
    // Of the threads before this one, with what was before the round.
    State before;
};

// Goes on with a round that begins at `begin`: `carry` becomes what is known after it.
__device__ __forceinline__ Round next_round(const Line& line, u64 begin, u64 end, State* warps_states, State& carry) {
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const u64 first = begin + threadIdx.x * ITEMS;
    Round round;
    State total = Rule::empty();
#pragma unroll
    for (u32 j = 0; j < ITEMS; ++j) {
        if (first + j < end) total = Rule::then(total, line.element(first + j));
        round.own[j] = total;
    }
    const State through = joined_up_to(total);
    State lower = from_lane_below(through, 1);
    if (lane == 0) lower = Rule::empty();
    __syncthreads();
    if (lane == 31) warps_states[warp] = through;
    __syncthreads();
    State earlier = carry;
    for (u32 w = 0; w < warps; ++w) {
        if (w == warp) earlier = carry;
        carry = Rule::then(carry, warps_states[w]);
    }
    round.before = Rule::then(earlier, lower);
    return round;
}

__device__ __forceinline__ Line line_of(u64 i, const IN* in, const IN* second, OUT* out, i64* places, i64 in_along,
                                        i64 second_along, i64 out_along, i64 places_along) {
    Line line = {in + FROM(i), second + SECOND(i), out + TO(i), places + PLACE(i),
                 in_along,     second_along,       out_along,   places_along};
    return line;
}

#define TENSORS                                                                                                        \
    const IN *in, const IN *second, OUT *out, i64 *places, i64 in_along, i64 second_along, i64 out_along,              \
        i64 places_along
#define LINE(i) line_of(i, in, second, out, places, in_along, second_along, out_along, places_along)

// A block has a piece of a line, blockIdx.y of gridDim.y pieces of `piece` elements. With several, `states` has for
// each what is before it.
extern "C" __global__ void __launch_bounds__(512) scan_rows(TENSORS, const State* states, u64 length, u64 piece) {
    __shared__ State of_warps[32];
    const Line line = LINE((u64)blockIdx.x);
    const u64 start = blockIdx.y * piece, end = start + piece < length ? start + piece : length;
    State carry = states ? states[(u64)blockIdx.x * gridDim.y + blockIdx.y] : Rule::empty();
    for (u64 begin = start; begin < end; begin += blockDim.x * ITEMS) {
        const Round round = next_round(line, begin, end, of_warps, carry);
        const u64 first = begin + threadIdx.x * ITEMS;
#pragma unroll
        for (u32 j = 0; j < ITEMS; ++j) {
            if (first + j < end) line.store(first + j, Rule::then(round.before, round.own[j]));
        }
    }
}

// The states of pieces, each by itself.
extern "C" __global__ void __launch_bounds__(512) scan_pieces(TENSORS, State* states, u64 length, u64 piece) {
    __shared__ State of_warps[32];
    const Line line = LINE((u64)blockIdx.x);
    const u64 start = blockIdx.y * piece, end = start + piece < length ? start + piece : length;
    State carry = Rule::empty();
    for (u64 begin = start; begin < end; begin += blockDim.x * ITEMS) next_round(line, begin, end, of_warps, carry);
    if (threadIdx.x == 0) states[(u64)blockIdx.x * gridDim.y + blockIdx.y] = carry;
}

// The state of each piece becomes that of the pieces before it: a thread a line.
extern "C" __global__ void scan_states(State* states, u64 lines, u32 pieces) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lines) return;
    State* own = states + i * pieces;
    State before = Rule::empty();
#pragma unroll 4
    for (u32 p = 0; p < pieces; ++p) {
        const State state = own[p];
        own[p] = before;
        before = Rule::then(before, state);
    }
}

// A thread a line: neighbouring threads have neighbouring elements where lines are adjacent.
extern "C" __global__ void scan_columns(TENSORS, u64 lines, u64 length) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lines) return;
    const Line line = LINE(i);
    State state = Rule::empty();
    for (u64 j = 0; j < length; ++j) {
        state = Rule::then(state, line.element(j));
        line.store(j, state);
    }
}
