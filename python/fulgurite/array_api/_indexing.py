"""Indices: selections, boolean and integer arrays, and changed copies."""

from __future__ import annotations

from itertools import compress

from .. import ops
from .._errors import Refusal
from .._native import Tensor
from . import _dtypes as dt
from ._array import Array, array_of, converted, wrap
from ._checks import IndexRefusal, broadcast, count, described, one_axis, refusal


def places_of(function: str, native, device: str):
    """The numbers of the true elements in row-major order, found on the host, as an array of int64."""
    if isinstance(native, Tensor):
        raise refusal(function, "x", "a value of a trace", "an array: the shape of the result depends on its data")
    found = list(compress(range(count(native.shape)), native.to_bytes()))
    return dt.packed(function, "x", found, [len(found)], dt.int64).to_device(device)


def from_start(function: str, argument: str, index, size: int):
    """Indices of int64 counted from the start. Those out of range are refused, where there is data to read."""
    index = converted(index, dt.int64)
    if isinstance(index, Tensor):
        return ops.where(ops.lt(index, 0), index + size, index)
    if index.numel():
        low, high = ops.amin(index).flat()[0], ops.amax(index).flat()[0]
        if low < -size or high >= size:
            raise refusal(function, argument, f"the index {low if low < -size else high}",
                          f"indices from {-size} to {size - 1}, as an axis of size {size} has them", IndexRefusal)
        if low < 0:
            index = ops.where(ops.lt(index, 0), index + size, index)
    return index


def _parts(x: Array, key) -> list:
    """One part of a key for each dimension, and its ``None``s."""
    parts = list(key) if isinstance(key, tuple) else [key]
    wrong = "integers, slices, None, '...', arrays of integers, or one array of booleans alone"
    for i, part in enumerate(parts):
        if isinstance(part, Array):
            array_of("Array.__getitem__", "key", part, (dt.boolean, *dt.INTEGERS))
            if part.dtype == dt.boolean and len(parts) > 1:
                raise refusal("Array.__getitem__", "key", f"an array of booleans among {len(parts)} parts", wrong,
                              IndexRefusal)
            # An array without dimensions is an integer.
            if part.dtype != dt.boolean and not part.ndim and not isinstance(part._native, Tensor):
                parts[i] = part.__index__()
        elif isinstance(part, bool) or not (
            part is None or part is Ellipsis or isinstance(part, slice) or hasattr(part, "__index__")
        ):
            raise refusal("Array.__getitem__", "key", described(part), wrong, IndexRefusal)
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if len(dots) > 1 or taken > x.ndim:
        got = "two '...'" if len(dots) > 1 else f"{taken} indices"
        raise refusal("Array.__getitem__", "key", got, f"one '...' and {x.ndim} indices at most", IndexRefusal)
    at = dots[0] if dots else len(parts)
    parts[at : at + len(dots)] = [slice(None)] * (x.ndim - taken)
    return parts


def _masked(x: Array, mask: Array) -> Array:
    if mask.ndim > x.ndim or any(m not in (0, n) for m, n in zip(mask.shape, x.shape)):
        raise refusal("Array.__getitem__", "key", described(mask), f"the first sizes of x, {x.shape}", IndexRefusal)
    native, rest = x._native, list(x.shape[mask.ndim :])
    if not mask.size:
        return wrap(ops.zeros([0, *rest], dtype=x.dtype, device=x.device))
    places = places_of("Array.__getitem__", mask._native, x.device)
    return wrap(ops.index_select(ops.reshape(native, [mask.size, *rest]), 0, places))


def _getitem(self: Array, key, /) -> Array:
    if isinstance(key, tuple) and len(key) == 1 and isinstance(key[0], Array):
        key = key[0]
    if isinstance(key, Array) and key.dtype == dt.boolean:
        return _masked(self, key)
    parts = _parts(self, key)
    arrays = any(isinstance(part, Array) for part in parts)
    starts, ends, steps, flips, shape, chosen = [], [], [], [], [], []
    dim = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        size = self.shape[dim]
        start, end, step = 0, size, 1
        if isinstance(part, slice):
            start, end, step = _bounds(part, size)
            if step < 0:
                # The same elements from the other end.
                length = len(range(start, end, step))
                last = start + (length - 1) * step
                start, end, step = (last, start + 1, -step) if length else (0, 0, 1)
                flips.append(len(shape))
            end = max(start, end)
            shape.append(-(-(end - start) // step))
        elif isinstance(part, Array):
            chosen.append((len(shape), from_start("Array.__getitem__", "key", part._native, size)))
            shape.append(size)
        else:
            place = part.__index__()
            if not -size <= place < size:
                raise refusal("Array.__getitem__", "key", f"the index {place}",
                              f"an index from {-size} to {size - 1} for axis {dim} of {self.shape}", IndexRefusal)
            start, end = place % size, place % size + 1
            if arrays:
                # Beside arrays, an integer is one.
                like = ops.zeros([], dtype=dt.int64, device=self.device)
                chosen.append((len(shape), like))
                shape.append(1)
        starts.append(start)
        ends.append(end)
        steps.append(step)
        dim += 1
    native = self._native
    if any(s != 0 or e != n or t != 1 for s, e, t, n in zip(starts, ends, steps, self.shape)):
        native = ops.prims.slice(native, starts, ends, steps)
    if tuple(shape) != tuple(native.shape):
        native = ops.reshape(native, shape)
    if flips:
        native = ops.flip(native, flips)
    return wrap(_gathered(native, chosen) if chosen else native)


def _bounds(part: slice, size: int) -> tuple[int, int, int]:
    for name, value in (("start", part.start), ("stop", part.stop), ("step", part.step)):
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
            raise refusal("Array.__getitem__", "key", f"a slice whose {name} is {described(value)}", "integers or None",
                          IndexRefusal)
    if part.step is not None and part.step.__index__() == 0:
        raise refusal("Array.__getitem__", "key", "a slice with the step 0", "a step that is not 0", Refusal)
    return part.indices(size)


def _gathered(native, chosen):
    """Elements at arrays of indices of some dimensions, which broadcast to each other, as in NumPy."""
    dims = [dim for dim, _ in chosen]
    sizes = [native.shape[dim] for dim in dims]
    common = list(broadcast("Array.__getitem__", *(index.shape for _, index in chosen)))
    rest = [dim for dim in range(native.ndim) if dim not in dims]
    others = [native.shape[dim] for dim in rest]
    rows = ops.reshape(ops.permute(native, dims + rest), [count(sizes), *others])
    place = None
    for (_, index), size in zip(chosen, sizes):
        place = index if place is None else place * size + index
    place = ops.reshape(ops.broadcast_to(place, common), [count(common)])
    found = ops.reshape(ops.index_select(rows, 0, place), [*common, *others])
    # Dimensions of arrays that are neighbours are where the first of them was, else in front.
    if dims == list(range(dims[0], dims[0] + len(dims))) and dims[0]:
        n, k = len(common), dims[0]
        found = ops.permute(found, [*range(n, n + k), *range(n), *range(n + k, n + len(others))])
    return found


def _setitem(self: Array, key, value, /) -> None:
    """A changed copy takes the place of the elements, which are not written to: it costs a pass over the array."""
    if isinstance(self._native, Tensor):
        raise refusal("Array.__setitem__", "self", "a value of a trace", "an array outside of traced functions")
    if isinstance(value, Array):
        if value.dtype != self.dtype and dt.wider("Array.__setitem__", self.dtype, value.dtype) != self.dtype:
            raise refusal("Array.__setitem__", "value", described(value), f"a dtype that promotes to {self.dtype.name}")
        given = converted(value._native, self.dtype)
    else:
        dt.type_of_scalar("Array.__setitem__", "value", value, self.dtype)
        given = dt.filled("Array.__setitem__", "value", value, self._native)
    if isinstance(key, Array) and key.dtype == dt.boolean and key.shape == self.shape and not given.ndim:
        self._native = ops.where(key._native, given, self._native)
        return
    numbers = ops.prims.iota(self.size, 0, 1, dt.int64, self.device)
    places = _getitem(wrap(ops.reshape(numbers, list(self.shape))), key)
    if broadcast("Array.__setitem__", given.shape, places.shape) != places.shape:
        raise refusal("Array.__setitem__", "value", f"an array of shape {tuple(given.shape)}",
                      f"a shape that broadcasts to {places.shape}", Refusal)
    if not places.size:
        return
    flat, index = ops.reshape(self._native, [-1]), ops.reshape(places._native, [-1])
    values = ops.reshape(ops.broadcast_to(given, list(places.shape)), [-1])
    self._native = ops.reshape(ops.index_put(flat, [index], values), list(self.shape))


Array.__getitem__ = _getitem
Array.__setitem__ = _setitem


def take(x, indices, /, *, axis=None) -> Array:
    """Elements at the places of one array of integers along an axis, which may be left out of one dimension."""
    native, index = array_of("take", "x", x), array_of("take", "indices", indices, dt.INTEGERS)
    if index.ndim != 1:
        raise refusal("take", "indices", described(indices), "one dimension", Refusal)
    if axis is None and native.ndim != 1:
        raise refusal("take", "axis", "None", f"an axis: x has {native.ndim} dimensions", Refusal)
    at = one_axis("take", 0 if axis is None else axis, native.ndim)
    return wrap(ops.index_select(native, at, from_start("take", "indices", index, native.shape[at])))


def take_along_axis(x, indices, /, *, axis=-1) -> Array:
    """Elements at places along an axis, which every other place has of its own."""
    native = array_of("take_along_axis", "x", x)
    index = array_of("take_along_axis", "indices", indices, dt.INTEGERS)
    at = one_axis("take_along_axis", axis, native.ndim)
    if index.ndim != native.ndim:
        raise refusal("take_along_axis", "indices", described(indices), f"{native.ndim} dimensions as x has", Refusal)
    index = from_start("take_along_axis", "indices", index, native.shape[at])
    shape = list(broadcast("take_along_axis", *(
        [1 if d == at else n for d, n in enumerate(each.shape)] for each in (native, index))))
    places = ops.broadcast_to(index, shape[:at] + [index.shape[at]] + shape[at + 1 :])
    rows = ops.broadcast_to(native, shape[:at] + [native.shape[at]] + shape[at + 1 :])
    return wrap(ops.gather(rows, at, places))


def nonzero(x, /) -> tuple:
    """The indices of the elements that are not zero, one array for each dimension. They are found on the host."""
    native = array_of("nonzero", "x", x)
    if not native.ndim:
        raise refusal("nonzero", "x", "a zero-dimensional array", "at least one dimension", Refusal)
    places = places_of("nonzero", native if native.dtype == dt.boolean else ops.ne(native, 0), native.device)
    found: list = []
    for size in reversed(native.shape):
        size = max(size, 1)
        found.insert(0, wrap(ops.remainder(places, size)))
        places = ops.floor_divide(places, size)
    return tuple(found)
