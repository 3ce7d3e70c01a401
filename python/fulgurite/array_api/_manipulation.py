"""Functions that change shapes and the order of elements."""

from __future__ import annotations

from .. import ops
from .._errors import Refusal
from .._native import Tensor
from . import _dtypes as dt
from ._array import Array, array_of, converted, data, wrap
from ._checks import axes_of, broadcast, count, described, integer, one_axis, refusal, shape_of


def _several(function: str, arrays) -> list:
    """The native arrays of a list or tuple in the type that they promote to."""
    if not isinstance(arrays, (list, tuple)) or not arrays:
        raise refusal(function, "arrays", described(arrays), "a list or tuple of at least one array")
    natives = [array_of(function, f"arrays[{i}]", x) for i, x in enumerate(arrays)]
    kind = natives[0].dtype
    for native in natives[1:]:
        kind = dt.wider(function, kind, native.dtype)
    return [converted(native, kind) for native in natives]


def broadcast_shapes(*shapes) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    given = [shape_of("broadcast_shapes", f"shapes[{i}]", shape) for i, shape in enumerate(shapes)]
    return broadcast("broadcast_shapes", *given)


def broadcast_to(x, /, shape) -> Array:
    """The array, repeated along new dimensions and those of size 1."""
    native, sizes = array_of("broadcast_to", "x", x), shape_of("broadcast_to", "shape", shape)
    if broadcast("broadcast_to", native.shape, sizes) != tuple(sizes):
        raise refusal("broadcast_to", "shape", str(tuple(sizes)), f"a shape that {x.shape} broadcasts to", Refusal)
    return wrap(ops.broadcast_to(native, sizes))


def broadcast_arrays(*arrays) -> tuple:
    """The arrays in their common shape, each with its type."""
    natives = [array_of("broadcast_arrays", f"arrays[{i}]", x) for i, x in enumerate(arrays)]
    shape = list(broadcast("broadcast_arrays", *(native.shape for native in natives)))
    return tuple(wrap(ops.broadcast_to(native, shape)) for native in natives)


def concat(arrays, /, *, axis=0) -> Array:
    """Arrays one after the other along an axis; flattened before if it is ``None``."""
    natives = _several("concat", arrays)
    if axis is None:
        natives, axis = [ops.reshape(native, [-1]) for native in natives], 0
    at = one_axis("concat", axis, natives[0].ndim)
    for i, native in enumerate(natives):
        if native.ndim != natives[0].ndim or any(
            a != b for d, (a, b) in enumerate(zip(native.shape, natives[0].shape)) if d != at
        ):
            raise refusal("concat", f"arrays[{i}]", described(arrays[i]),
                          f"the shape of the first, {tuple(natives[0].shape)}, but for axis {at}", Refusal)
    return wrap(ops.cat(natives, at))


def stack(arrays, /, *, axis=0) -> Array:
    """Arrays of one shape along a new axis."""
    natives = _several("stack", arrays)
    for i, native in enumerate(natives):
        if native.shape != natives[0].shape:
            raise refusal("stack", f"arrays[{i}]", described(arrays[i]),
                          f"the shape of the first, {tuple(natives[0].shape)}", Refusal)
    return wrap(ops.stack(natives, one_axis("stack", axis, natives[0].ndim + 1)))


def unstack(x, /, *, axis=0) -> tuple:
    """The arrays along an axis."""
    native = array_of("unstack", "x", x)
    at = one_axis("unstack", axis, native.ndim)
    return tuple(map(wrap, ops.unbind(native, at))) if native.shape[at] else ()


def expand_dims(x, /, axis) -> Array:
    """The array with dimensions of size 1 at an axis, or at some axes of the result."""
    native = array_of("expand_dims", "x", x)
    items = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = axes_of("expand_dims", tuple(items), native.ndim + len(items))
    sizes = iter(native.shape)
    rank = native.ndim + len(axes)
    return wrap(ops.reshape(native, [1 if d in axes else next(sizes) for d in range(rank)]))


def squeeze(x, /, axis) -> Array:
    """The array without some dimensions of size 1."""
    native = array_of("squeeze", "x", x)
    axes = axes_of("squeeze", axis if isinstance(axis, (tuple, list)) else (axis,), native.ndim)
    for d in axes:
        if native.shape[d] != 1:
            raise refusal("squeeze", "axis", f"{d}, which has size {native.shape[d]}", "axes of size 1", Refusal)
    return wrap(ops.reshape(native, [size for d, size in enumerate(native.shape) if d not in axes]))


def reshape(x, /, shape, *, copy=None) -> Array:
    """The elements in row-major order in another shape, of which one size may be -1."""
    native = array_of("reshape", "x", x)
    items = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = [integer("reshape", "shape", item) for item in items]
    known = count(size for size in sizes if size != -1)
    whole = count(native.shape)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes) or (
        (known == 0 or whole % known != 0) if -1 in sizes else known != whole
    ):
        raise refusal("reshape", "shape", str(tuple(sizes)), f"a shape of {whole} elements as {x.shape} has, with one "
                      "-1 at most", Refusal)
    sizes = [whole // known if size == -1 else size for size in sizes]
    if copy is False and not (isinstance(native, Tensor) or native.is_contiguous()):
        raise refusal("reshape", "copy", "False", "None or True: the elements are not in order in memory", Refusal)
    return wrap(ops.reshape(native, sizes))


def permute_dims(x, /, axes) -> Array:
    """The dimensions in another order."""
    native = array_of("permute_dims", "x", x)
    order = axes_of("permute_dims", axes, native.ndim, "axes")
    if len(order) != native.ndim:
        raise refusal("permute_dims", "axes", str(tuple(axes)), f"all {native.ndim} axes of x", Refusal)
    return wrap(ops.permute(native, order))


def moveaxis(x, source, destination, /) -> Array:
    """The array with some axes elsewhere."""
    native = array_of("moveaxis", "x", x)
    both = [axes_of("moveaxis", value if isinstance(value, (tuple, list)) else (value,), native.ndim, name)
            for name, value in (("source", source), ("destination", destination))]
    if len(both[0]) != len(both[1]):
        raise refusal("moveaxis", "destination", str(destination), f"{len(both[0])} axes as source has", Refusal)
    rest = iter(d for d in range(native.ndim) if d not in both[0])
    moved = dict(zip(both[1], both[0]))
    return wrap(ops.permute(native, [moved[d] if d in moved else next(rest) for d in range(native.ndim)]))


def flip(x, /, *, axis=None) -> Array:
    """The elements in the other direction along some axes, or along all."""
    native = array_of("flip", "x", x)
    axes = axes_of("flip", axis, native.ndim)
    return wrap(ops.flip(native, axes) if axes else native)


def roll(x, /, shift, *, axis=None) -> Array:
    """The elements moved along some axes, or along the flattened array; those that leave come in at the other end."""
    native = array_of("roll", "x", x)
    if axis is None:
        if isinstance(shift, (tuple, list)):
            raise refusal("roll", "shift", described(shift), "an integer where axis is None", Refusal)
        flat = ops.reshape(native, [-1])
        return wrap(ops.reshape(_rolled(flat, integer("roll", "shift", shift), 0), list(native.shape)))
    # The standard has sums of shifts where an axis is given twice.
    axes = [one_axis("roll", d, native.ndim) for d in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = [integer("roll", "shift", s) for s in (shift if isinstance(shift, (tuple, list)) else (shift,))]
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise refusal("roll", "shift", str(shift), f"an integer, or {len(axes)} of them as axis has", Refusal)
    for s, d in zip(shifts, axes):
        native = _rolled(native, s, d)
    return wrap(native)


def _rolled(native, shift: int, axis: int):
    size = native.shape[axis]
    return ops.roll(native, [shift % size], [axis]) if size and shift % size else native


def tile(x, repetitions, /) -> Array:
    """The array several times along each dimension."""
    native, times = array_of("tile", "x", x), shape_of("tile", "repetitions", repetitions)
    return wrap(ops.tile(native, [1] * (native.ndim - len(times)) + times) if times else native)


def repeat(x, repeats, /, *, axis=None) -> Array:
    """Each element some times, along an axis or of the flattened array.

    Where ``repeats`` is an array its elements are read on the host.
    """
    native = array_of("repeat", "x", x)
    if axis is None:
        native, axis = ops.reshape(native, [-1]), 0
    at = one_axis("repeat", axis, native.ndim)
    size = native.shape[at]
    if isinstance(repeats, Array):
        array_of("repeat", "repeats", repeats, dt.INTEGERS)
        counts = data("repeat", repeats).flat()
        if repeats.ndim > 1 or len(counts) not in (1, size):
            raise refusal("repeat", "repeats", described(repeats), f"one dimension of 1 or {size} elements", Refusal)
    else:
        counts = [integer("repeat", "repeats", repeats)]
    if any(times < 0 for times in counts):
        raise refusal("repeat", "repeats", str(min(counts)), "numbers of at least 0", Refusal)
    counts = counts * size if len(counts) == 1 else counts
    places = [i for i, times in enumerate(counts) for _ in range(times)]
    index = dt.packed("repeat", "repeats", places, [len(places)], dt.int64).to_device(native.device)
    return wrap(ops.index_select(native, at, index))


