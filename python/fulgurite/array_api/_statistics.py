"""Functions of all elements, or of those along some axes."""

from __future__ import annotations

import math

from .. import ops
from .._errors import Refusal
from . import _dtypes as dt
from ._array import Array, array_of, converted, wrap
from ._checks import axes_of, boolean, count, described, integer, one_axis, refusal


def reduced(operator, native, axes: list[int], keepdims: bool, **attributes):
    """The operator's result over some axes. Over none of them, it is that of each element alone."""
    if axes:
        return operator(native, axes, keepdim=keepdims, **attributes)
    # An empty list of dimensions means all of them to PyTorch.
    return operator(ops.reshape(native, [*native.shape, 1]), [native.ndim], keepdim=False, **attributes)


def _arguments(function: str, x, axis, keepdims, among):
    native = array_of(function, "x", x, among)
    return native, axes_of(function, axis, native.ndim), boolean(function, "keepdims", keepdims)


def _summed_type(function: str, native, dtype):
    """The type of sums and products: int64 for shorter integers, as there is no uint64."""
    if dtype is not None:
        return dt.known(function, "dtype", dtype, dt.NUMBERS)
    return native.dtype if native.dtype in dt.FLOATS else dt.INT


def sum(x, /, *, axis=None, dtype=None, keepdims=False) -> Array:
    """Sums. Integers and booleans are added as int64 without a ``dtype``, unsigned ones too: there is no uint64."""
    native, axes, keepdims = _arguments("sum", x, axis, keepdims, dt.ALL)
    return wrap(reduced(ops.sum, native, axes, keepdims, dtype=_summed_type("sum", native, dtype)))


def prod(x, /, *, axis=None, dtype=None, keepdims=False) -> Array:
    """Products, in the types of ``sum``."""
    native, axes, keepdims = _arguments("prod", x, axis, keepdims, dt.ALL)
    native = converted(native, _summed_type("prod", native, dtype))
    for d in sorted(axes, reverse=True):
        native = ops.prod(native, d, keepdim=keepdims, dtype=native.dtype)
    return wrap(native)


def mean(x, /, *, axis=None, keepdims=False) -> Array:
    """Means of floating-point numbers; NaN of none."""
    native, axes, keepdims = _arguments("mean", x, axis, keepdims, dt.FLOATS)
    return wrap(reduced(ops.mean, native, axes, keepdims))


def _extreme(function: str, operator, x, axis, keepdims) -> Array:
    native, axes, keepdims = _arguments(function, x, axis, keepdims, dt.NUMBERS)
    if 0 in [native.shape[d] for d in axes]:
        raise refusal(function, "x", described(x), "at least one element along each axis", Refusal)
    return wrap(reduced(operator, native, axes, keepdims) if axes else native)


def max(x, /, *, axis=None, keepdims=False) -> Array:
    """The largest elements; NaN where there is one."""
    return _extreme("max", ops.amax, x, axis, keepdims)


def min(x, /, *, axis=None, keepdims=False) -> Array:
    """The smallest elements; NaN where there is one."""
    return _extreme("min", ops.amin, x, axis, keepdims)


def _spread(function: str, operator, x, axis, correction, keepdims) -> Array:
    native, axes, keepdims = _arguments(function, x, axis, keepdims, dt.FLOATS)
    if isinstance(correction, bool) or not isinstance(correction, (int, float)):
        raise refusal(function, "correction", described(correction), "an int or a float")
    found = reduced(operator, native, axes, keepdims, correction=float(correction))
    if not count(native.shape[d] for d in axes) - correction > 0:
        # The operator divides by at least 0, as PyTorch does.
        found = ops.full_like(found, math.nan)
    return wrap(found)


def var(x, /, *, axis=None, correction=0.0, keepdims=False) -> Array:
    """Variances: sums of squares over the number of elements less ``correction``; NaN if that is not above 0."""
    return _spread("var", ops.var, x, axis, correction, keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False) -> Array:
    """Standard deviations: the square roots of ``var``."""
    return _spread("std", ops.std, x, axis, correction, keepdims)


def _cumulative(function: str, operator, x, axis, dtype, include_initial, initial: int) -> Array:
    native = array_of(function, "x", x)
    boolean(function, "include_initial", include_initial)
    if axis is None and native.ndim != 1:
        raise refusal(function, "axis", "None", f"an axis: x has {native.ndim} dimensions", Refusal)
    at = one_axis(function, 0 if axis is None else axis, native.ndim)
    kind = _summed_type(function, native, dtype)
    found = operator(converted(native, kind), at, dtype=kind)
    if include_initial:
        sizes = [1 if d == at else size for d, size in enumerate(native.shape)]
        found = ops.cat([ops.full(sizes, initial, dtype=kind, device=native.device), found], at)
    return wrap(found)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False) -> Array:
    """Sums of the elements up to each, with 0 in front where ``include_initial`` is true."""
    return _cumulative("cumulative_sum", ops.cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False) -> Array:
    """Products of the elements up to each, with 1 in front where ``include_initial`` is true."""
    return _cumulative("cumulative_prod", ops.cumprod, x, axis, dtype, include_initial, 1)


def _truth(function: str, operator, x, axis, keepdims) -> Array:
    native, axes, keepdims = _arguments(function, x, axis, keepdims, dt.ALL)
    # PyTorch's result of uint8 is uint8.
    native = native if native.dtype == dt.boolean else ops.ne(native, 0)
    return wrap(reduced(operator, native, axes, keepdims) if axes else native)


def all(x, /, *, axis=None, keepdims=False) -> Array:
    """Whether all elements are true or not zero."""
    return _truth("all", ops.all, x, axis, keepdims)


def any(x, /, *, axis=None, keepdims=False) -> Array:
    """Whether some element is true or not zero."""
    return _truth("any", ops.any, x, axis, keepdims)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None) -> Array:
    """Differences of neighbours along an axis, ``n`` times, with arrays of the type of ``x`` before and behind it."""
    native = array_of("diff", "x", x, dt.NUMBERS)
    at, times = one_axis("diff", axis, native.ndim), integer("diff", "n", n)
    if times < 0:
        raise refusal("diff", "n", str(times), "a number of at least 0", Refusal)
    joined = []
    for name, part in (("prepend", prepend), ("x", x), ("append", append)):
        if part is None:
            continue
        joined.append(array_of("diff", name, part))
        if joined[-1].dtype != native.dtype:
            raise refusal("diff", name, f"an array of dtype {part.dtype.name}", f"that of x, {native.dtype.name}")
    whole = ops.cat(joined, at) if len(joined) > 1 else native
    # More differences than elements leave none.
    return wrap(ops.diff(whole, n=times if times < whole.shape[at] else whole.shape[at], dim=at) if times else whole)
