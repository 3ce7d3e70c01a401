// Products by the tensor cores: operands of 16 bits as they are, sums in f32 (sm_80 and later).
#ifndef FULGURITE_TENSOR_CORES
#define FULGURITE_TENSOR_CORES
#include "fulgurite/elements.cuh"

// c += a b, with a 16 x 16, b 16 x 8. With g = lane / 4 and t = lane % 4 the thread has, of the 16 places of the sum,
// 2 t and 2 t + 1 of rows g and g + 8 of a, then those 8 further; the same places of column g of b; and columns 2 t and
// 2 t + 1 of rows g and g + 8 of c.
__device__ __forceinline__ void multiply_add(bf16, float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(f16, float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// 16 bytes that are read once by one thread: they need no place in the first cache.
__device__ __forceinline__ uint4 load_once(const void* from) {
    uint4 bits;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(from));
    return bits;
}

#endif
