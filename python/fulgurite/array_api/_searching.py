"""Functions that search, sort, and find the elements that differ."""

from __future__ import annotations

import math
from typing import NamedTuple

from .. import ops
from .._errors import Refusal
from . import _dtypes as dt
from ._array import Array, array_of, promoted, wrap
from ._checks import axes_of, boolean, count, described, one_axis, refusal
from ._indexing import from_start, places_of
from ._statistics import reduced

def _extreme(function: str, x, axis, keepdims) -> Array:
    native = array_of(function, "x", x, dt.NUMBERS)
    boolean(function, "keepdims", keepdims)
    operator = getattr(ops, function)
    if axis is None:
        if not x.size:
            raise refusal(function, "x", described(x), "at least one element", Refusal)
        found = operator(ops.reshape(native, [-1]), 0)
        return wrap(ops.reshape(found, [1] * native.ndim) if keepdims else found)
    at = one_axis(function, axis, native.ndim)
    if not native.shape[at]:
        raise refusal(function, "x", described(x), f"at least one element along axis {at}", Refusal)
    return wrap(operator(native, at, keepdims))


def argmax(x, /, *, axis=None, keepdims=False) -> Array:
    """The places of the largest elements, the first of equal ones; NaN is larger than any number."""
    return _extreme("argmax", x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False) -> Array:
    """The places of the smallest elements, the first of equal ones; NaN is smaller than any number."""
    return _extreme("argmin", x, axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False) -> Array:
    """How many elements are not zero."""
    native = array_of("count_nonzero", "x", x)
    native = native if native.dtype == dt.boolean else ops.ne(native, 0)
    return wrap(reduced(ops.sum, native, axes_of("count_nonzero", axis, native.ndim),
                        boolean("count_nonzero", "keepdims", keepdims)))


def where(condition, x1, x2, /) -> Array:
    """Elements of ``x1`` where the condition holds, else of ``x2``. At least one of the two is an array."""
    chosen = array_of("where", "condition", condition, (dt.boolean,))
    return wrap(ops.where(chosen, *promoted("where", {"x1": x1, "x2": x2})))


def searchsorted(x1, x2, /, *, side="left", sorter=None) -> Array:
    """Where numbers would be put into a sorted vector, before or behind the equal ones. NaN is behind all numbers."""
    if side not in ("left", "right"):
        raise refusal("searchsorted", "side", repr(side), "'left' or 'right'", Refusal)
    if array_of("searchsorted", "x1", x1, dt.NUMBERS).ndim != 1:
        raise refusal("searchsorted", "x1", described(x1), "one dimension", Refusal)
    line, values = promoted("searchsorted", {"x1": x1, "x2": x2}, dt.NUMBERS)
    if sorter is not None:
        order = array_of("searchsorted", "sorter", sorter, dt.INTEGERS)
        if order.shape != line.shape:
            raise refusal("searchsorted", "sorter", described(sorter), f"the shape of x1, {x1.shape}", Refusal)
        line = ops.index_select(line, 0, from_start("searchsorted", "sorter", order, line.shape[0]))
    return wrap(_places(line, values, side == "right"))


def _places(line, values, right: bool):
    """Where values are in a sorted vector. PyTorch's search, which the operator has, finds none beside NaN."""
    if line.dtype not in dt.FLOATS:
        return ops.searchsorted(line, values, right=right)
    numbers = ops.sum(ops.logical_not(ops.isnan(line)))
    infinity = ops.full([], math.inf, dtype=line.dtype, device=line.device)
    found = ops.searchsorted(ops.where(ops.isnan(line), infinity, line), values, right=right)
    behind = ops.full_like(numbers, line.shape[0]) if right else numbers
    return ops.where(ops.isnan(values), behind, ops.minimum(found, numbers))


def _order(function: str, x, axis, descending, stable):
    native = array_of(function, "x", x)
    boolean(function, "descending", descending), boolean(function, "stable", stable)
    if not native.ndim:
        raise refusal(function, "x", "a zero-dimensional array", "at least one dimension", Refusal)
    # Booleans are sorted as numbers.
    kept = ops.to(native, dtype=dt.uint8) if native.dtype == dt.boolean else native
    return ops.sort(kept, one_axis(function, axis, native.ndim), descending, True)


def sort(x, /, *, axis=-1, descending=False, stable=True) -> Array:
    """The elements along an axis in order. NaN is larger than any number; the order of equal elements is kept."""
    values = _order("sort", x, axis, descending, stable)[0]
    return wrap(ops.to(values, dtype=dt.boolean) if x.dtype == dt.boolean else values)


def argsort(x, /, *, axis=-1, descending=False, stable=True) -> Array:
    """The places of the elements along an axis in their order, as ``sort`` has it."""
    return wrap(_order("argsort", x, axis, descending, stable)[1])


class UniqueAll(NamedTuple):
    """What ``unique_all`` returns."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What ``unique_counts`` returns."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What ``unique_inverse`` returns."""

    values: Array
    inverse_indices: Array


def _unique(function: str, x) -> UniqueAll:
    native = array_of(function, "x", x)
    size = count(native.shape)
    flat = ops.reshape(native, [size])
    kept = ops.to(flat, dtype=dt.uint8) if native.dtype == dt.boolean else flat
    ordered, order = ops.sort(kept, 0, False, True)
    if size:
        # The first of each run of equal elements. Every NaN differs from its neighbours.
        first = ops.ones([1], dtype=dt.boolean, device=native.device)
        if size > 1:
            slices = ops.prims.slice
            first = ops.cat([first, ops.ne(slices(ordered, [1], [size], [1]), slices(ordered, [0], [size - 1], [1]))])
    else:
        first = ops.zeros([0], dtype=dt.boolean, device=native.device)
    starts = places_of(function, first, native.device)
    # The order is stable: the first of a run is the first in the array too.
    indices = ops.index_select(order, 0, starts)
    groups = ops.cumsum(ops.to(first, dtype=dt.int64), 0) - 1
    inverse = ops.scatter(ops.zeros_like(order), 0, order, groups)
    end = ops.full([1], size, dtype=dt.int64, device=native.device)
    counts = ops.diff(ops.cat([starts, end]))
    return UniqueAll(wrap(ops.index_select(flat, 0, indices)), wrap(indices),
                     wrap(ops.reshape(inverse, list(native.shape))), wrap(counts))


def unique_all(x, /) -> UniqueAll:
    """The elements that differ, in order, with their first places, the places of x among them, and their counts.

    How many there are is found on the host. Every NaN is an element of its own; 0 and -0 are one.
    """
    return _unique("unique_all", x)


def unique_counts(x, /) -> UniqueCounts:
    """The elements that differ, in order, and how often each is there."""
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x, /) -> UniqueInverse:
    """The elements that differ, in order, and the place of each element of x among them."""
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x, /) -> Array:
    """The elements that differ, in order."""
    return _unique("unique_values", x).values


def isin(x1, x2, /, *, invert=False) -> Array:
    """Whether each element of ``x1`` is one of ``x2``. NaN is none."""
    boolean("isin", "invert", invert)
    elements, tests = promoted("isin", {"x1": x1, "x2": x2})
    if elements.dtype == dt.boolean:
        elements, tests = ops.to(elements, dtype=dt.uint8), ops.to(tests, dtype=dt.uint8)
    size = count(tests.shape)
    if not size:
        found = ops.zeros(list(elements.shape), dtype=dt.boolean, device=elements.device)
    else:
        line = ops.sort(ops.reshape(tests, [size]), 0)[0]
        flat = ops.reshape(elements, [count(elements.shape)])
        places = ops.minimum(_places(line, flat, False), ops.full([], size - 1, dtype=dt.int64, device=line.device))
        found = ops.reshape(ops.eq(ops.index_select(line, 0, places), flat), list(elements.shape))
    return wrap(ops.logical_not(found) if invert else found)
