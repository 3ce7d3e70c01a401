// Products of the rows of each of GROUPS groups, by the tensor cores: operands of 16 bits, sums in f32, added up in the
// order of the rows or inputs. `order` and `starts` are those of `sort_rows`. A block has a tile of HEIGHT x WIDTH of a
// result; operands come by DEPTH, of which STAGES - 1 tiles are on their way.
#include "fulgurite/copies.cuh"
#include "fulgurite/tensor_cores.cuh"

typedef ELEMENT T;

constexpr int THREADS = 256, WIDTH = 128, DEPTH = 32;
constexpr int STAGES = HEIGHT >= 128 ? 2 : HEIGHT >= 64 ? 3 : 4;
constexpr int WARPS_DOWN = HEIGHT > 16 ? 2 : 1, WARPS_ACROSS = THREADS / 32 / WARPS_DOWN;
// Squares of 16 x 16 of a warp's part.
constexpr int DOWN = HEIGHT / 16 / WARPS_DOWN, ACROSS = WIDTH / 16 / WARPS_ACROSS;

// EXTENT rows or columns of an operand, of DEPTH products. Along a line elements are neighbours in memory: lines go
// along the depth, or, TURNED, across it. Eight neighbours of following lines are in different banks.
template <int EXTENT, bool TURNED> struct Tile {
    static constexpr int LINES = TURNED ? DEPTH : EXTENT, LENGTH = TURNED ? EXTENT : DEPTH, PITCH = LENGTH + 8;
    T at[LINES * PITCH];

    // Asks for the elements from `start` on of lines of `length` elements, a multiple of 8; for zeros behind their ends
    // and where `line_of` gives no line. `anywhere` can be read.
    template <typename Line>
    __device__ __forceinline__ void ask(const Line& line_of, const T* anywhere, int start, int length) {
        for (int chunk = threadIdx.x; chunk < LINES * LENGTH / 8; chunk += THREADS) {
            const int line = chunk / (LENGTH / 8), column = chunk % (LENGTH / 8) * 8;
            const T* from = line_of(line);
            const bool there = from != nullptr && start + column < length;
            fetch_or_clear<16>(at + line * PITCH + column, there ? from + start + column : anywhere, there);
        }
    }
    // 16 rows from `row` on of the left operand, of 16 products from `depth` on.
    __device__ __forceinline__ void rows(u32 (&bits)[4], int row, int depth) const {
        const int lane = threadIdx.x % 32;
        if constexpr (TURNED) {
            load<true>(bits, depth + lane % 8 + lane / 16 * 8, row + lane / 8 % 2 * 8);
        } else {
            load<false>(bits, row + lane % 16, depth + lane / 16 * 8);
        }
    }
    // 16 columns from `column` on of the right operand: the first 8 columns' two words, then the others'.
    __device__ __forceinline__ void columns(u32 (&bits)[4], int column, int depth) const {
        const int lane = threadIdx.x % 32;
        if constexpr (TURNED) {
            load<true>(bits, depth + lane % 16, column + lane / 16 * 8);
        } else {
            load<false>(bits, column + lane % 8 + lane / 16 * 8, depth + lane / 8 % 2 * 8);
        }
    }

  private:
    template <bool TRANSPOSED> __device__ __forceinline__ void load(u32 (&bits)[4], int line, int column) const {
        const u32 from = (u32)__cvta_generic_to_shared(at + line * PITCH + column);
        if constexpr (TRANSPOSED) {
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                         : "r"(from)
                         : "memory");
        } else {
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                         : "r"(from)
                         : "memory");
        }
    }
};

// A thread's part of a tile of the result.
struct Sums {
    float at[DOWN][2 * ACROSS][4];

    // `ask(left, right, first)` asks for the operands' tiles from the product `first` on, of `depth` products.
    template <typename Left, typename Right, typename Ask>
    __device__ __forceinline__ void multiply(Left (&left)[STAGES], Right (&right)[STAGES], int depth, const Ask& ask) {
        const int warp = threadIdx.x / 32;
        const int row = warp / WARPS_ACROSS * 16 * DOWN, column = warp % WARPS_ACROSS * 16 * ACROSS;
#pragma unroll
        for (int d = 0; d < DOWN; ++d)
#pragma unroll
            for (int c = 0; c < 2 * ACROSS; ++c)
#pragma unroll
                for (int i = 0; i < 4; ++i) at[d][c][i] = 0;
#pragma unroll
        for (int stage = 0; stage + 1 < STAGES; ++stage) {
            if (stage * DEPTH < depth) ask(left[stage], right[stage], stage * DEPTH);
            end_batch();
        }
        int stage = 0;
        for (int first = 0; first < depth; first += DEPTH) {
            await_all_but<STAGES - 2>();
            // The tiles are there for all, and nobody reads those before any more.
            __syncthreads();
            const int later = stage == 0 ? STAGES - 1 : stage - 1, ahead = first + (STAGES - 1) * DEPTH;
            if (ahead < depth) ask(left[later], right[later], ahead);
            end_batch();
#pragma unroll
            for (int part = 0; part < DEPTH; part += 16) {
                u32 a[DOWN][4], b[ACROSS][4];
#pragma unroll
                for (int d = 0; d < DOWN; ++d) left[stage].rows(a[d], row + 16 * d, part);
#pragma unroll
                for (int c = 0; c < ACROSS; ++c) right[stage].columns(b[c], column + 16 * c, part);
#pragma unroll
                for (int d = 0; d < DOWN; ++d)
#pragma unroll
                    for (int c = 0; c < 2 * ACROSS; ++c) {
                        const u32(&pair)[4] = b[c / 2];
                        multiply_add(
                            T(), at[d][c], a[d][0], a[d][1], a[d][2], a[d][3], pair[c % 2 * 2], pair[c % 2 * 2 + 1]);
                    }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
    }

    // Calls `to(row, column)` for the place of two neighbours in the result, or null, and writes them.
    template <typename To> __device__ __forceinline__ void write(const To& to) const {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int row = warp / WARPS_ACROSS * 16 * DOWN + lane / 4;
        const int column = warp % WARPS_ACROSS * 16 * ACROSS + lane % 4 * 2;
#pragma unroll
        for (int d = 0; d < DOWN; ++d)
#pragma unroll
            for (int c = 0; c < 2 * ACROSS; ++c)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    T* const place = to(row + 16 * d + 8 * half, column + 8 * c);
                    if (place == nullptr) continue;
                    const float low = at[d][c][2 * half], high = at[d][c][2 * half + 1];
                    if constexpr (ALIGNED) {
                        *reinterpret_cast<u32*>(place) = Halves<T>::of(low, high);
                    } else {
                        place[0] = narrow<T>(low);
                        place[1] = narrow<T>(high);
                    }
                }
    }
};

#if OUTER
struct Results {
    T* at[GROUPS];
};

// Of each group the sum of left[r]ᵀ right[r], left [rows, OUTPUTS], right [rows, INPUTS].
extern "C" __global__ void __launch_bounds__(THREADS, 1) grouped_outer(
    const T* left, const T* right, const __grid_constant__ Results results, const u32* order, const u32* starts) {
    __shared__ __align__(16) Tile<HEIGHT, true> lefts[STAGES];
    __shared__ __align__(16) Tile<WIDTH, true> rights[STAGES];
    const int group = blockIdx.z, row = blockIdx.y * HEIGHT, column = blockIdx.x * WIDTH;
    const u32* const own = order + starts[group];
    const int depth = starts[group + 1] - starts[group];
    Sums sums;
    sums.multiply(lefts, rights, depth, [&](Tile<HEIGHT, true>& of_left, Tile<WIDTH, true>& of_right, int first) {
        auto of = [&](const T* rows, int length) {
            return [=](int line) { return first + line < depth ? rows + (u64)own[first + line] * length : nullptr; };
        };
        of_left.ask(of(left, OUTPUTS), left, row, OUTPUTS);
        of_right.ask(of(right, INPUTS), right, column, INPUTS);
    });
    T* const out = results.at[group];
    sums.write([&](int down, int across) {
        const bool there = row + down < OUTPUTS && column + across < INPUTS;
        return there ? out + (u64)(row + down) * INPUTS + column + across : nullptr;
    });
}
#else
struct Matrices {
    const T* at[GROUPS];
};

// Of each row input[r] weights[g]ᵀ, or, WEIGHTS_TURNED, input[r] weights[g], with the group g of the row; 0 of a row
// of none.
extern "C" __global__ void __launch_bounds__(THREADS, 1) grouped_linear(
    const T* input, const __grid_constant__ Matrices weights, T* out, const u32* order, const u32* starts) {
    __shared__ __align__(16) Tile<HEIGHT, false> lefts[STAGES];
    __shared__ __align__(16) Tile<WIDTH, WEIGHTS_TURNED> rights[STAGES];
    __shared__ u32 begins[GROUPS + 2];
    __shared__ u32 rows[HEIGHT];
    for (int i = threadIdx.x; i < GROUPS + 2; i += THREADS) begins[i] = starts[i];
    __syncthreads();
    // The tile of a group that the block has: groups have different numbers of them.
    int group = 0, tile = blockIdx.x;
    for (; group <= GROUPS; ++group) {
        const int tiles = (begins[group + 1] - begins[group] + HEIGHT - 1) / HEIGHT;
        if (tile < tiles) break;
        tile -= tiles;
    }
    if (group > GROUPS) return;
    const int begin = begins[group] + tile * HEIGHT, count = min(HEIGHT, (int)begins[group + 1] - begin);
    const int column = blockIdx.y * WIDTH;
    if (threadIdx.x < HEIGHT) rows[threadIdx.x] = threadIdx.x < count ? order[begin + threadIdx.x] : 0;
    __syncthreads();
    Sums sums;
    const T* const weight = group < GROUPS ? weights.at[group] : input;
    // Rows of no group have no products.
    const int depth = group < GROUPS ? INPUTS : 0;
    typedef Tile<HEIGHT, false> Rows;
    typedef Tile<WIDTH, WEIGHTS_TURNED> Columns;
    sums.multiply(lefts, rights, depth, [&](Rows& of_input, Columns& of_weight, int first) {
        auto row_of = [&](int line) { return line < count ? input + (u64)rows[line] * INPUTS : nullptr; };
        of_input.ask(row_of, input, first, INPUTS);
        if constexpr (WEIGHTS_TURNED) {
            auto line_of = [&](int line) {
                return first + line < INPUTS ? weight + (u64)(first + line) * OUTPUTS : nullptr;
            };
            of_weight.ask(line_of, weight, column, OUTPUTS);
        } else {
            auto line_of = [&](int line) {
                return column + line < OUTPUTS ? weight + (u64)(column + line) * INPUTS : nullptr;
            };
            of_weight.ask(line_of, weight, first, INPUTS);
        }
    });
    sums.write([&](int down, int across) {
        const bool there = down < count && column + across < OUTPUTS;
        return there ? out + (u64)rows[down] * OUTPUTS + column + across : nullptr;
    });
}
#endif
