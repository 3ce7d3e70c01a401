// The tensor cores of sm_90a: products of 64 rows by a warp group, of operands in shared memory and registers, and what
// orders them with copies: barriers in shared memory.
//
// A tile in shared memory is 64 elements wide (128 bytes a row), wider ones are several beside each other. Its chunks
// of 16 bytes are in the order that the instructions read without conflicts of banks: chunk c of row r at c ^ r % 8.
#include "fulgurite/elements.cuh"

constexpr int ROW_BYTES = 128;

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// The descriptor of an operand in shared memory. `apart`: bytes between tiles beside each other, where a product
// goes along both.
__device__ __forceinline__ u64 describe(u32 address, u32 apart) {
    constexpr u64 SWIZZLED = 1ull << 62, EIGHT_ROWS = (u64)(8 * ROW_BYTES / 16) << 32;
    return SWIZZLED | EIGHT_ROWS | (u64)(apart / 16) << 16 | (address & 0x3ffff) / 16;
}

// Products are issued and go on while the warp group does other work.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
// Waits until at most the LATER last groups of products are under way.
template <int LATER> __device__ __forceinline__ void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LATER) : "memory");
}
// Keeps the compiler from moving uses of results to before this point.
template <int N> __device__ __forceinline__ void settle(float (&c)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[j][i]) : : "memory");
}

#define FOUR_RESULTS(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define RESULTS_4(c, j) FOUR_RESULTS(c, j), FOUR_RESULTS(c, j + 1), FOUR_RESULTS(c, j + 2), FOUR_RESULTS(c, j + 3)
#define RESULTS_8(c) RESULTS_4(c, 0), RESULTS_4(c, 4)
#define RESULTS_12(c) RESULTS_8(c), RESULTS_4(c, 8)
#define RESULTS_16(c) RESULTS_12(c), RESULTS_4(c, 12)
#define RESULTS_24(c) RESULTS_16(c), RESULTS_4(c, 16), RESULTS_4(c, 20)
#define RESULTS_32(c) RESULTS_24(c), RESULTS_4(c, 24), RESULTS_4(c, 28)
#define PLACES_8 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define PLACES_12 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47}"
#define PLACES_16 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63}"
#define PLACES_24 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
    "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}"
#define PLACES_32 \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, " \
    "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, " \
    "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, " \
    "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// c = a b, or c += a b: c 64 x COLUMNS with COLUMNS = 8 N, of which warp w of the group has rows 16 w to 16 w + 15 in
// the layout of results of m16n8k16; b 16 x COLUMNS. ACROSS: b's rows are rows of its tile; otherwise its columns are.
#define PRODUCTS(N, COLUMNS, A0, A1, A2, A3, A4, A5, A6, TYPE, OF_TYPE) \
    template <bool ACROSS> \
    __device__ __forceinline__ void multiply(OF_TYPE, float (&c)[N][4], const u32 (&a)[4], u64 b, bool add) { \
        asm volatile("{.reg .pred add; setp.ne.b32 add, %" #A5 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " " PLACES_##N \
                     ", {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #A4 ", add, 1, 1, %" #A6 ";}" \
                     : RESULTS_##N(c) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)add), "n"(ACROSS ? 1 : 0)); \
    } \
    template <bool ACROSS> \
    __device__ __forceinline__ void multiply(OF_TYPE, float (&c)[N][4], u64 a, u64 b, bool add) { \
        asm volatile("{.reg .pred add; setp.ne.b32 add, %" #A2 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " " PLACES_##N \
                     ", %" #A0 ", %" #A1 ", add, 1, 1, 0, %" #A3 ";}" \
                     : RESULTS_##N(c) \
                     : "l"(a), "l"(b), "r"((u32)add), "n"(ACROSS ? 1 : 0)); \
    }
PRODUCTS(8, 64, 32, 33, 34, 35, 36, 37, 38, "bf16", bf16)
PRODUCTS(8, 64, 32, 33, 34, 35, 36, 37, 38, "f16", f16)
PRODUCTS(12, 96, 48, 49, 50, 51, 52, 53, 54, "bf16", bf16)
PRODUCTS(12, 96, 48, 49, 50, 51, 52, 53, 54, "f16", f16)
PRODUCTS(16, 128, 64, 65, 66, 67, 68, 69, 70, "bf16", bf16)
PRODUCTS(16, 128, 64, 65, 66, 67, 68, 69, 70, "f16", f16)
PRODUCTS(24, 192, 96, 97, 98, 99, 100, 101, 102, "bf16", bf16)
PRODUCTS(24, 192, 96, 97, 98, 99, 100, 101, 102, "f16", f16)
PRODUCTS(32, 256, 128, 129, 130, 131, 132, 133, 134, "bf16", bf16)
PRODUCTS(32, 256, 128, 129, 130, 131, 132, 133, 134, "f16", f16)

// How many threads of a warp arrive at a barrier: 1 or 32. With 1 the first thread arrives for all, after the warp has
// met in `__syncwarp` or in another instruction of the whole warp. racecheck does not know this order: for it, an
// arrival orders only what the arriving thread did. `tests/device.sh sanitize` therefore compiles with 32 for
// racecheck, which then cannot see whether the warp has met.
constexpr int ARRIVING = 1;

// A barrier in shared memory. A phase ends when as many threads have arrived as `start` says; phases are counted by
// their parity.
struct Barrier {
    u32 at;

    __device__ __forceinline__ void start(int threads) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at), "r"(threads) : "memory");
    }
    __device__ __forceinline__ void start_for_warps(int warps) const { start(warps * ARRIVING); }
    __device__ __forceinline__ void arrive() const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(at) : "memory");
    }
    // For a warp, whose threads have met.
    __device__ __forceinline__ void arrive_for_warp() const {
        if (ARRIVING == 32 || threadIdx.x % 32 == 0) arrive();
    }
    __device__ __forceinline__ bool passed(u32 parity) const {
        u32 passed;
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(passed)
                     : "r"(at), "r"(parity)
                     : "memory");
        return passed;
    }
    __device__ __forceinline__ void await(u32 parity) const {
        while (!passed(parity)) {
        }
    }
};

// What this thread wrote to shared memory is seen by products that others issue after a barrier.
__device__ __forceinline__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

// Gives up registers, or takes what others gave up: COUNT of each thread of the warp group.
template <int COUNT> __device__ __forceinline__ void shrink_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void grow_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(COUNT));
}

// Two numbers of neighbours in shared memory.
__device__ __forceinline__ void read_two(float (&two)[2], u32 from) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two[0]), "=f"(two[1]) : "r"(from) : "memory");
}
