"""Operators that the tests declare: as a class, as a function, with several results, and with a kernel of their own."""

import numpy as np

import fulgurite
from fulgurite import Floating, Tensor, ops, require


@fulgurite.operator
class squareplus:
    """A smooth relu, elementwise: ``(x + sqrt(x * x + b)) / 2``."""

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


def _samples(s):
    for shape in ([4, 8], [], [0, 3], [5, 1, 7]):
        s.case(s.normal(shape), s.normal(shape))


def _reference(gate, up):
    return gate / (1 + np.exp(-gate)) * up


@fulgurite.operator(reference=_reference, samples=_samples)
def gated_silu(gate: Tensor[Floating], up: Tensor[Floating]) -> Tensor:
    """``silu(gate) * up``, elementwise."""
    return ops.silu(gate) * up


@fulgurite.operator
class mean_and_rstd:
    """The mean of rows, and the reciprocal of their standard deviation."""

    results = ("mean", "rstd")

    def signature(input: Tensor[Floating], eps: float = 1e-5) -> tuple[Tensor, Tensor]: ...

    def requires(input):
        require(input.ndim > 0, "Rank", f"input is {input}, expected a row at least")

    def decomposition(input, eps):
        mean = ops.mean(input, -1, keepdim=True)
        centered = input - mean
        return mean, ops.rsqrt(ops.mean(centered * centered, -1, keepdim=True) + eps)

    def reference(input, eps):
        mean = input.mean(-1, keepdims=True)
        return mean, 1 / np.sqrt(((input - mean) ** 2).mean(-1, keepdims=True) + eps)

    def samples(s):
        s.case(s.normal([4, 8]))
        s.case(s.normal([7]), eps=0.5)
        s.case(s.normal([2, 3, 5]))

    def errors(e):
        e.case("Rank", "expected a row at least", e.normal([]))


@fulgurite.operator
class cube:
    """``x ** 3``, elementwise, by a kernel in NumPy, with a gradient of its own."""

    arrays = "numpy"
    dtypes = ("float32", "float64")

    def signature(input: Tensor[Floating]) -> Tensor: ...

    def meta(input):
        return input

    def fn(input):
        return input**3

    def grad(input):
        return cube(input), lambda d_out: d_out * input * input * 3.0

    def reference(input):
        return input**3

    def samples(s):
        s.elementwise_unary((-2.0, 2.0))
