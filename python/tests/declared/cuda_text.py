"""Operators with kernels as CUDA C++ text: elementwise, by rows with shared memory, and in two launches."""

import numpy as np

import fulgurite
from fulgurite import CudaKernel, Executor, Floating, Tensor, ops, require

SQUAREPLUS = r"""
extern "C" __global__ void squareplus_text(const T* input, T* out, float b, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float x = (float)widen(input[i]);
    out[i] = narrow<T>((x + sqrtf(x * x + b)) * 0.5f);
}
"""


def blocks(out):
    return (out.numel() + 255) // 256


@fulgurite.operator
class squareplus_text:
    """A smooth relu, elementwise: ``(x + sqrt(x * x + b)) / 2``, by a kernel as text on CUDA."""

    dtypes = ("float32", "bfloat16")
    autocast = "full"
    cuda = CudaKernel(SQUAREPLUS, define={"T": "input"}, grid=blocks, block=256,
                      arguments=["input", "out", ("b", "float"), (lambda out: out.numel(), "u64")])

    def signature(input: Tensor[Floating], b: float = 4.0) -> Tensor: ...

    def requires(b):
        require(b > 0, "PositiveB", f"b is {b}, expected more than 0")

    def decomposition(input, b):
        return (input + ops.sqrt(input * input + b)) * 0.5

    def reference(input, b):
        return (input + np.sqrt(input * input + b)) / 2

    def samples(s):
        s.elementwise_unary((-3.0, 3.0))
        s.case(s.normal([4, 8]), b=2.0)

    def errors(e):
        e.case("PositiveB", "expected more than 0", e.normal([2]), b=-1.0)


ROWS = r"""
// A block sums a row in shared memory, a piece of it at a time.
extern "C" __global__ void row_means(const float* input, const float* weight, float* mean, float* scaled, u32 size) {
    extern __shared__ float parts[];
    const float* row = input + (u64)blockIdx.x * size;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) sum += row[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) mean[blockIdx.x] = parts[0] / size;
    const float scale = weight ? weight[blockIdx.x] : 1.0f;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) scaled[(u64)blockIdx.x * size + i] = row[i] * scale;
}
"""

by_text = Executor("by_text", version="1", arrays="numpy", devices=("cpu", "cuda"))


def row_means_meta(input: Tensor[Floating], weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    require(input.ndim == 2, "Matrix", f"input is {input}, expected a matrix")
    return input.like(shape=input.shape[:1]), input


def row_means_on_host(input, weight):
    scale = 1 if weight is None else weight[:, None]
    return input.mean(-1) if input.shape[1] else np.zeros(len(input), input.dtype), input * scale


def row_means_reference(input, weight):
    return input.mean(-1), input if weight is None else input * weight[:, None]


def row_means_samples(s):
    for rows, size in ((3, 5), (2, 300), (1, 1)):
        s.case(s.normal([rows, size]))
        s.case(s.normal([rows, size]), s.normal([rows]))


row_means = by_text.register_operator(
    "row_means", meta=row_means_meta, fn=row_means_on_host, results=("mean", "scaled"), dtypes=("float32",),
    reference=row_means_reference, samples=row_means_samples,
    errors=lambda e: e.case("Matrix", "expected a matrix", e.normal([3])),
    cuda=CudaKernel(ROWS, "row_means", grid=lambda input: input.shape[0], block=128, shared=128 * 4,
                    arguments=["input", "weight", "mean", "scaled", (lambda input: input.shape[1], "u32")]))

TWO = r"""
extern "C" __global__ void sums_of_blocks(const float* input, float* sums, u64 count) {
    // One thread a block: what the second kernel adds is what the first one left.
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * WIDTH; i < count && i < (u64)(blockIdx.x + 1) * WIDTH; ++i) sum += input[i];
    sums[blockIdx.x] = sum;
}

extern "C" __global__ void sum_of_sums(const float* sums, float* out, u32 count) {
    float sum = 0.0f;
    for (u32 i = 0; i < count; ++i) sum += sums[i];
    *out = sum;
}
"""


def pieces(input):
    return (input.numel() + 63) // 64


whole_sum = by_text.register_operator(
    "whole_sum", meta=lambda input: input.like(shape=()), signature="(input: tensor<floating>) -> tensor",
    fn=lambda input: input.sum(), dtypes=("float32",), reference=lambda input: input.sum(),
    samples=lambda s: [s.case(s.normal(shape)) for shape in ([4], [3, 70], [64], [2, 129])],
    cuda=[
        CudaKernel(TWO, "sums_of_blocks", grid=pieces, block=1, define={"WIDTH": 64},
                   workspace={"sums": lambda input: 4 * pieces(input)},
                   arguments=["input", "sums", (lambda input: input.numel(), "u64")]),
        CudaKernel(TWO, "sum_of_sums", grid=1, block=1, define={"WIDTH": 64},
                   arguments=["sums", "out", (pieces, "u32")]),
    ])
