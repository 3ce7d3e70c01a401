"""Matrices: the standard's ``linalg`` extension. Decompositions are of float32 and float64."""

from __future__ import annotations

import math
from typing import NamedTuple

from .. import ops
from .._errors import Refusal
from . import _dtypes as dt
from ._array import Array, array_of, converted, promoted, wrap
from ._checks import axes_of, boolean, broadcast, count, described, integer, refusal
from ._elementwise import _is_operand
from ._statistics import reduced

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]

_MISSING = {name: "eigenvalues of a matrix that is not symmetric are complex numbers" for name in ("eig", "eigvals")}


def __getattr__(name: str):
    why = f": {_MISSING[name]}, which there are none of" if name in _MISSING else ""
    raise AttributeError(f"fulgurite.array_api.linalg has no '{name}'{why}")


class Eigh(NamedTuple):
    """What ``eigh`` returns."""

    eigenvalues: Array
    eigenvectors: Array


class QR(NamedTuple):
    """What ``qr`` returns."""

    Q: Array
    R: Array


class Slogdet(NamedTuple):
    """What ``slogdet`` returns."""

    sign: Array
    logabsdet: Array


class SVD(NamedTuple):
    """What ``svd`` returns."""

    U: Array
    S: Array
    Vh: Array


def _matrices(function: str, x, argument: str = "x", square: bool = False, among=dt.FLOATS):
    native = array_of(function, argument, x, among)
    if native.ndim < 2:
        raise refusal(function, argument, described(x), "at least two dimensions", Refusal)
    if square and native.shape[-1] != native.shape[-2]:
        raise refusal(function, argument, described(x), "square matrices", Refusal)
    return native


def matmul(x1, x2, /) -> Array:
    """Products of matrices, or of matrices and vectors; leading dimensions broadcast."""
    if not isinstance(x1, Array) or not isinstance(x2, Array):
        name, value = ("x2", x2) if isinstance(x1, Array) else ("x1", x1)
        array_of("matmul", name, value)
    left, right = promoted("matmul", {"x1": x1, "x2": x2}, dt.NUMBERS)
    for name, x in (("x1", x1), ("x2", x2)):
        if not x.ndim:
            raise refusal("matmul", name, described(x), "at least one dimension", Refusal)
    if left.shape[-1] != right.shape[-2 if right.ndim > 1 else -1]:
        raise refusal("matmul", "x2", described(x2), f"{left.shape[-1]} rows, as x1 of shape {x1.shape} has columns",
                      Refusal)
    return wrap(ops.matmul(left, right))


def matrix_transpose(x, /) -> Array:
    """The last two dimensions exchanged."""
    return wrap(ops.transpose(_matrices("matrix_transpose", x, among=dt.ALL), -2, -1))


def tensordot(x1, x2, /, *, axes=2) -> Array:
    """Sums of products over axes of both: the last of ``x1`` and the first of ``x2``, or a pair of lists of axes."""
    left, right = promoted("tensordot", {"x1": x1, "x2": x2}, dt.NUMBERS)
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise refusal("tensordot", "axes", described(axes), "an integer, or a pair of lists of axes", Refusal)
        pairs = [axes_of("tensordot", each, native.ndim, "axes") for each, native in zip(axes, (left, right))]
    else:
        n = integer("tensordot", "axes", axes)
        if not 0 <= n <= min(left.ndim, right.ndim):
            raise refusal("tensordot", "axes", str(n), f"0 to {min(left.ndim, right.ndim)}", Refusal)
        pairs = [list(range(left.ndim - n, left.ndim)), list(range(n))]
    if [left.shape[d] for d in pairs[0]] != [right.shape[d] for d in pairs[1]]:
        raise refusal("tensordot", "axes", str(axes), f"axes of equal sizes of {x1.shape} and {x2.shape}", Refusal)
    return wrap(ops.tensordot(left, right, pairs))


def vecdot(x1, x2, /, *, axis=-1) -> Array:
    """Dot products of vectors along an axis; the other dimensions broadcast."""
    left, right = promoted("vecdot", {"x1": x1, "x2": x2}, dt.NUMBERS)
    if not left.ndim or not right.ndim:
        raise refusal("vecdot", "x1" if not left.ndim else "x2", "a zero-dimensional array", "at least one dimension",
                      Refusal)
    at = integer("vecdot", "axis", axis)
    smaller = min(left.ndim, right.ndim)
    # A positive axis means different dimensions where ranks differ.
    if at >= 0 and left.ndim != right.ndim or not -smaller <= at < smaller:
        raise refusal("vecdot", "axis", str(at), f"an axis from {-smaller} to -1", Refusal)
    at = at - left.ndim if at >= 0 else at
    if left.shape[at] != right.shape[at]:
        raise refusal("vecdot", "x2", described(x2), f"the size {left.shape[at]} along axis {axis}", Refusal)
    left, right = ops.movedim(left, [at], [-1]), ops.movedim(right, [at], [-1])
    found = ops.matmul(ops.unsqueeze(left, -2), ops.unsqueeze(right, -1))
    return wrap(ops.reshape(found, list(broadcast("vecdot", left.shape[:-1], right.shape[:-1]))))


def cross(x1, x2, /, *, axis=-1) -> Array:
    """Cross products of vectors of three elements along an axis."""
    left, right = promoted("cross", {"x1": x1, "x2": x2}, dt.NUMBERS)
    at = integer("cross", "axis", axis)
    smaller = min(left.ndim, right.ndim)
    if at >= 0 and left.ndim != right.ndim or not -smaller <= at < smaller:
        raise refusal("cross", "axis", str(at), f"an axis from {-smaller} to -1", Refusal)
    at = at - left.ndim if at >= 0 else at
    for name, native in (("x1", left), ("x2", right)):
        if native.shape[at] != 3:
            raise refusal("cross", name, f"of size {native.shape[at]} along axis {axis}", "3", Refusal)
    shape = list(broadcast("cross", left.shape, right.shape))
    return wrap(ops.linalg_cross(ops.broadcast_to(left, shape), ops.broadcast_to(right, shape), at))


def outer(x1, x2, /) -> Array:
    """All products of the elements of two vectors."""
    left, right = promoted("outer", {"x1": x1, "x2": x2}, dt.NUMBERS)
    for name, native in (("x1", left), ("x2", right)):
        if native.ndim != 1:
            raise refusal("outer", name, f"an array of shape {tuple(native.shape)}", "one dimension", Refusal)
    return wrap(ops.mul(ops.unsqueeze(left, 1), right))


def diagonal(x, /, *, offset=0) -> Array:
    """Diagonals of matrices, above the main one for a positive ``offset``."""
    native = _matrices("diagonal", x, among=dt.ALL)
    return wrap(_diagonal(native, integer("diagonal", "offset", offset)))


def _diagonal(native, offset: int):
    rows, columns = native.shape[-2:]
    if not -rows <= offset <= columns:
        return ops.prims.slice(ops.reshape(native, [*native.shape[:-2], rows * columns]),
                               [0] * (native.ndim - 1), [*native.shape[:-2], 0], [1] * (native.ndim - 1))
    return ops.diagonal(native, offset, -2, -1)


def trace(x, /, *, offset=0, dtype=None) -> Array:
    """Sums of diagonals, in the types of ``sum``."""
    native = _matrices("trace", x, among=dt.NUMBERS)
    kind = native.dtype if native.dtype in dt.FLOATS else dt.INT
    kind = kind if dtype is None else dt.known("trace", "dtype", dtype, dt.NUMBERS)
    return wrap(ops.sum(_diagonal(native, integer("trace", "offset", offset)), [-1], dtype=kind))


def cholesky(x, /, *, upper=False) -> Array:
    """Triangular factors of symmetric positive definite matrices."""
    return wrap(ops.cholesky(_matrices("cholesky", x, square=True), boolean("cholesky", "upper", upper)))


def det(x, /) -> Array:
    """Determinants."""
    return wrap(ops.det(_matrices("det", x, square=True)))


def slogdet(x, /) -> Slogdet:
    """Signs of determinants, and logarithms of their absolute values."""
    return Slogdet(*map(wrap, ops.slogdet(_matrices("slogdet", x, square=True))))


def eigh(x, /) -> Eigh:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices; the lower triangle is read."""
    return Eigh(*map(wrap, ops.eigh(_matrices("eigh", x, square=True))))


def eigvalsh(x, /) -> Array:
    """Eigenvalues of symmetric matrices in ascending order; the lower triangle is read."""
    return wrap(ops.eigvalsh(_matrices("eigvalsh", x, square=True)))


def inv(x, /) -> Array:
    """Inverses. A singular matrix is an error."""
    return wrap(ops.inv(_matrices("inv", x, square=True)))


def solve(x1, x2, /) -> Array:
    """Solutions of linear equations: of one vector where ``x2`` has one dimension, else of the columns of matrices."""
    _matrices("solve", x1, "x1", square=True)
    left, right = promoted("solve", {"x1": x1, "x2": x2}, dt.FLOATS)
    if not right.ndim or right.shape[-2 if right.ndim > 1 else -1] != left.shape[-1]:
        raise refusal("solve", "x2", described(x2), f"{left.shape[-1]} rows as x1 has", Refusal)
    columns = ops.unsqueeze(right, -1) if right.ndim == 1 else right
    stack = list(broadcast("solve", left.shape[:-2], columns.shape[:-2]))
    left = ops.broadcast_to(left, [*stack, *left.shape[-2:]])
    columns = ops.broadcast_to(columns, [*stack, *columns.shape[-2:]])
    found = ops.solve(left, columns)
    return wrap(ops.squeeze(found, [-1]) if right.ndim == 1 else found)


def matrix_power(x, n, /) -> Array:
    """Powers of square matrices; of the inverses for an ``n`` below 0."""
    native, power = _matrices("matrix_power", x, square=True), integer("matrix_power", "n", n)
    return wrap(ops.matrix_power(native if power >= 0 else ops.inv(native), abs(power)))


def qr(x, /, *, mode="reduced") -> QR:
    """Orthonormal and upper triangular factors."""
    if mode not in ("reduced", "complete"):
        raise refusal("qr", "mode", repr(mode), "'reduced' or 'complete'", Refusal)
    return QR(*map(wrap, ops.qr(_matrices("qr", x), mode)))


def svd(x, /, *, full_matrices=True) -> SVD:
    """Singular values in descending order, and the singular vectors."""
    return SVD(*map(wrap, ops.svd(_matrices("svd", x), boolean("svd", "full_matrices", full_matrices))))


def svdvals(x, /) -> Array:
    """Singular values in descending order."""
    return wrap(ops.svdvals(_matrices("svdvals", x)))


def _cutoff(function: str, native, values, rtol):
    """The singular values above a part of the largest, as truth."""
    if rtol is None:
        rtol = max(native.shape[-2:]) * dt.finfo(native.dtype).eps
    if isinstance(rtol, Array):
        part = ops.unsqueeze(converted(array_of(function, "rtol", rtol, dt.FLOATS), native.dtype), -1)
    elif isinstance(rtol, (int, float)) and not isinstance(rtol, bool):
        part = dt.filled(function, "rtol", rtol, native)
    else:
        raise refusal(function, "rtol", described(rtol), "a number, an array or None")
    return ops.gt(values, ops.mul(ops.amax(values, [-1], True), part))


def matrix_rank(x, /, *, rtol=None) -> Array:
    """How many singular values are above ``rtol`` times the largest."""
    native = _matrices("matrix_rank", x)
    if not all(native.shape[-2:]):
        return wrap(ops.zeros(list(native.shape[:-2]), dtype=dt.INT, device=native.device))
    return wrap(ops.sum(_cutoff("matrix_rank", native, ops.svdvals(native), rtol), [-1]))


def pinv(x, /, *, rtol=None) -> Array:
    """Pseudo-inverses: singular values of at most ``rtol`` times the largest are zero."""
    native = _matrices("pinv", x)
    rows, columns = native.shape[-2:]
    if not rows or not columns:
        return wrap(ops.zeros([*native.shape[:-2], columns, rows], dtype=native.dtype, device=native.device))
    u, values, vh = ops.svd(native, False)
    kept = _cutoff("pinv", native, values, rtol)
    values = ops.where(kept, ops.reciprocal(values), ops.zeros_like(values))
    turned = ops.mul(ops.transpose(vh, -2, -1), ops.unsqueeze(values, -2))
    return wrap(ops.matmul(turned, ops.transpose(u, -2, -1)))


_NORMS = ("fro", "nuc", 1, 2, math.inf, -1, -2, -math.inf)


def matrix_norm(x, /, *, keepdims=False, ord="fro") -> Array:
    """Norms of matrices."""
    native = _matrices("matrix_norm", x)
    if ord not in _NORMS or isinstance(ord, bool):
        raise refusal("matrix_norm", "ord", described(ord), f"one of {', '.join(map(repr, _NORMS))}", Refusal)
    return wrap(ops.matrix_norm(native, ord, keepdim=boolean("matrix_norm", "keepdims", keepdims)))


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2) -> Array:
    """Norms of vectors along an axis or some, or of all elements."""
    native = array_of("vector_norm", "x", x, dt.FLOATS)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise refusal("vector_norm", "ord", described(ord), "a number")
    axes = axes_of("vector_norm", axis, native.ndim)
    keepdims = boolean("vector_norm", "keepdims", keepdims)
    if ord < 0 and not count(native.shape[d] for d in axes):
        raise refusal("vector_norm", "x", described(x), f"at least one element for the order {ord}", Refusal)

    def norm(native, dims, keepdim):
        return ops.vector_norm(native, float(ord), dims, keepdim)

    return wrap(reduced(norm, native, axes, keepdims))


def _matmul(self, other, /):
    return matmul(self, other) if _is_operand(other) or hasattr(other, "__dlpack__") else NotImplemented


def _rmatmul(self, other, /):
    return matmul(other, self) if _is_operand(other) or hasattr(other, "__dlpack__") else NotImplemented


def _imatmul(self, other, /):
    found = _matmul(self, other)
    if found is not NotImplemented and (found.dtype != self.dtype or found.shape != self.shape):
        got = f"the result is of dtype {found.dtype.name} and shape {found.shape}"
        raise refusal("matmul", None, got, f"{self.dtype.name} and {self.shape}, which an operation in place keeps")
    if found is not NotImplemented:
        self._native = found._native
        return self
    return found


Array.__matmul__, Array.__rmatmul__, Array.__imatmul__ = _matmul, _rmatmul, _imatmul
