"""Functions that make arrays."""

from __future__ import annotations

import math

from .. import _arrays, ops
from .._errors import Refusal
from .._native import Array as Native
from .._native import Tensor
from . import _dtypes as dt
from ._array import Array, array_of, converted, wrap
from ._checks import described, integer, refusal, shape_of

_BUFFERS = {
    "?": dt.boolean, "B": dt.uint8, "b": dt.int8, "H": dt.uint16, "h": dt.int16, "I": dt.uint32, "i": dt.int32,
    "e": dt.float16, "f": dt.float32, "d": dt.float64,
}


def _placed(native, device) -> Array:
    here = device is None or str(device) == native.device
    return wrap(native if here else native.to_device(device))


def _of_buffer(view: memoryview) -> Native:
    letter = view.format.lstrip("@=")
    kind = _BUFFERS.get(letter)
    if kind is None and letter in ("l", "q"):
        kind = dt.int64 if view.itemsize == 8 else dt.int32
    if kind is None or view.itemsize != kind.itemsize:
        raise refusal("asarray", "obj", f"a buffer of format '{view.format}'",
                      "one of bool, the integers but uint64, float16, float32 or float64", Refusal)
    return Native.from_bytes(list(view.shape), kind, view.tobytes())


def _of_numbers(obj, kind) -> Native:
    shape = _arrays.shape_of_lists(obj)
    numbers: list = []

    def collect(part, depth):
        if depth < len(shape):
            if not isinstance(part, (list, tuple)) or len(part) != shape[depth]:
                raise refusal("asarray", "obj", f"ragged: {described(part)} in dimension {depth}",
                              f"a sequence of {shape[depth]} elements", Refusal)
            for item in part:
                collect(item, depth + 1)
            return
        if isinstance(part, Array) and not part.ndim:
            part = part._native.flat()[0]
        if isinstance(part, complex):
            raise refusal("asarray", "obj", described(part), "real numbers; there are no complex numbers")
        if not isinstance(part, (bool, int, float)):
            if isinstance(part, (str, bytes)) or not hasattr(part, "__float__") or getattr(part, "shape", ()):
                raise refusal("asarray", "obj", described(part), "a number, or a nested sequence of numbers")
            # Numbers of NumPy.
            part = part.item() if hasattr(part, "item") else float(part)
        numbers.append(part)

    collect(obj, 0)
    if kind is None:
        if any(isinstance(number, float) for number in numbers) or not numbers:
            kind = dt.FLOAT
        else:
            kind = dt.boolean if all(isinstance(number, bool) for number in numbers) else dt.INT
    return dt.packed("asarray", "obj", numbers, shape, kind)


def asarray(obj, /, *, dtype=None, device=None, copy=None) -> Array:
    """An array of an array, of nested sequences of numbers, or of what has ``__dlpack__`` or the buffer protocol.

    Floats are float32 without a ``dtype``, integers int64. Arrays of other libraries, and a :class:`fulgurite.Array`,
    are used where they are unless ``copy`` is true: nobody may write to their memory then. Buffers and sequences are
    copied. Numbers that an integer ``dtype`` may not have are refused; ``astype`` converts them.
    """
    kind = None if dtype is None else dt.known("asarray", "dtype", dtype)
    if copy not in (None, True, False):
        raise refusal("asarray", "copy", described(copy), "True, False or None")
    if isinstance(obj, Array):
        native = obj._native
    elif isinstance(obj, (Native, Tensor)):
        native = _not_complex("asarray", "obj", obj)
    elif isinstance(obj, (bool, int, float, complex, list, tuple)):
        if copy is False:
            raise refusal("asarray", "copy", "False", "None or True: numbers are copied", Refusal)
        return _placed(_of_numbers(obj, kind), device)
    elif hasattr(obj, "__dlpack__"):
        native = _imported("asarray", "obj", obj)
    elif _has_buffer(obj):
        if copy is False:
            raise refusal("asarray", "copy", "False", "None or True: buffers are copied", Refusal)
        native = _of_buffer(memoryview(obj))
    else:
        if isinstance(obj, str) or not hasattr(obj, "__float__"):
            expected = "an array, nested sequences of numbers, or an object with DLPack or the buffer protocol"
            raise refusal("asarray", "obj", described(obj), expected)
        native = _of_numbers(obj, kind)
    changes = kind is not None and kind != native.dtype or device is not None and str(device) != native.device
    if kind in dt.INTEGERS and kind != native.dtype and not dt.can_cast(native.dtype, kind):
        raise refusal("asarray", "dtype", kind.name, f"a dtype that {native.dtype.name} promotes to; astype cuts off")
    if copy is False and changes:
        raise refusal("asarray", "copy", "False", "None or True: another dtype or device needs a copy", Refusal)
    if copy and not changes:
        native = _copied(native)
    if isinstance(obj, Array) and not changes and not copy:
        return obj
    return _placed(native if kind is None else converted(native, kind), device)


def _has_buffer(obj) -> bool:
    if isinstance(obj, str):
        return False
    try:
        memoryview(obj).release()
    except (TypeError, BufferError):
        return False
    return True


def _imported(function: str, argument: str, obj) -> Native:
    try:
        native = _arrays.from_dlpack(obj)
    except RuntimeError as error:
        raise refusal(function, argument, described(obj), f"an array that DLPack brings here: {error}") from None
    return _not_complex(function, argument, native)


def _not_complex(function: str, argument: str, native):
    """``native``, which is refused if its elements are complex: the standard's functions here take no such numbers."""
    if native.dtype.is_complex:
        raise refusal(function, argument, native.dtype.name, "a real dtype; there are no complex numbers here")
    return native


def _copied(native):
    # The memory of our own arrays does not change: only that of others has to be left.
    if isinstance(native, Tensor) or not native.is_external:
        return native
    host = native.to_device("cpu")
    made = Native.from_bytes(list(host.shape), host.dtype, host.to_bytes())
    return made.to_device(native.device)


def from_dlpack(x, /, *, device=None, copy=None) -> Array:
    """The array of an object that has ``__dlpack__``, over its memory unless ``copy`` is true or ``device`` another."""
    if not hasattr(x, "__dlpack__"):
        raise AttributeError(str(refusal("from_dlpack", "x", described(x), "an object with __dlpack__")))
    native = x._native if isinstance(x, Array) else _imported("from_dlpack", "x", x)
    moved = device is not None and str(device) != native.device
    if moved and copy is False:
        raise refusal("from_dlpack", "device", repr(device), f"{native.device}: without a copy it stays there", Refusal)
    if copy and not moved:
        native = _copied(native)
    return _placed(native, device)


def _constant(function: str, shape, value, kind, device, argument="fill_value") -> Array:
    sizes = shape_of(function, "shape", shape)
    number = dt.packed(function, argument, [value], [], kind)
    if device is not None and str(device) != "cpu":
        number = number.to_device(device)
    return wrap(ops.broadcast_to(number, sizes))


def full(shape, fill_value, *, dtype=None, device=None) -> Array:
    """An array of one number, in its default type without a ``dtype``."""
    if isinstance(fill_value, Array) and not fill_value.ndim:
        dtype = fill_value.dtype if dtype is None else dtype
        fill_value = fill_value._native.flat()[0]
    if not isinstance(fill_value, (bool, int, float)):
        hint = "; there are no complex numbers" if isinstance(fill_value, complex) else ""
        raise refusal("full", "fill_value", described(fill_value), f"a Python number{hint}")
    default = dt.boolean if isinstance(fill_value, bool) else dt.INT if isinstance(fill_value, int) else dt.FLOAT
    kind = default if dtype is None else dt.known("full", "dtype", dtype)
    return _constant("full", shape, fill_value, kind, device)


def zeros(shape, *, dtype=None, device=None) -> Array:
    """An array of zeros, of float32 without a ``dtype``."""
    return _constant("zeros", shape, 0, dt.FLOAT if dtype is None else dt.known("zeros", "dtype", dtype), device)


def ones(shape, *, dtype=None, device=None) -> Array:
    """An array of ones, of float32 without a ``dtype``."""
    return _constant("ones", shape, 1, dt.FLOAT if dtype is None else dt.known("ones", "dtype", dtype), device)


def empty(shape, *, dtype=None, device=None) -> Array:
    """An array whose elements say nothing. They are zeros."""
    return _constant("empty", shape, 0, dt.FLOAT if dtype is None else dt.known("empty", "dtype", dtype), device)


def _like(function: str, x, value, dtype, device) -> Array:
    native = array_of(function, "x", x)
    kind = native.dtype if dtype is None else dt.known(function, "dtype", dtype)
    if isinstance(native, Tensor):
        return wrap(ops.full_like(native, value, dtype=kind))
    return _constant(function, x.shape, value, kind, x.device if device is None else device)


def full_like(x, /, fill_value, *, dtype=None, device=None) -> Array:
    """An array of one number, with the shape, type and device of ``x``."""
    if not isinstance(fill_value, (bool, int, float)):
        hint = "; there are no complex numbers" if isinstance(fill_value, complex) else ""
        raise refusal("full_like", "fill_value", described(fill_value), f"a Python number{hint}")
    return _like("full_like", x, fill_value, dtype, device)


def zeros_like(x, /, *, dtype=None, device=None) -> Array:
    """An array of zeros, with the shape, type and device of ``x``."""
    return _like("zeros_like", x, 0, dtype, device)


def ones_like(x, /, *, dtype=None, device=None) -> Array:
    """An array of ones, with the shape, type and device of ``x``."""
    return _like("ones_like", x, 1, dtype, device)


def empty_like(x, /, *, dtype=None, device=None) -> Array:
    """An array whose elements say nothing, with the shape, type and device of ``x``. They are zeros."""
    return _like("empty_like", x, 0, dtype, device)


def _real(function: str, argument: str, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = "; there are no complex numbers" if isinstance(value, complex) else ""
        raise refusal(function, argument, described(value), f"an int or a float{hint}")
    return value


def arange(start, /, stop=None, step=1, *, dtype=None, device=None) -> Array:
    """Numbers from ``start`` to ``stop``, which is left out, in steps; int64 if all are integers, else float32."""
    if stop is None:
        start, stop = 0, start
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        _real("arange", name, value)
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        raise refusal("arange", "step", f"start {start}, stop {stop}, step {step}", "finite numbers, a step that is "
                      "not 0", Refusal)
    whole = all(isinstance(value, int) for value in (start, stop, step))
    kind = dt.INT if whole else dt.FLOAT
    if dtype is not None:
        kind = dt.known("arange", "dtype", dtype, dt.NUMBERS)
    if kind in dt.INTEGERS and not whole:
        raise refusal("arange", "dtype", kind.name, "a floating-point dtype for a start, stop or step that is a float")
    length = max(0, -((start - stop) // step)) if whole else max(0, math.ceil((stop - start) / step))
    place = "cpu" if device is None else str(device)
    if kind in dt.INTEGERS:
        for value in (start, start + (length - 1) * step)[: 2 if length else 0]:
            dt.fits("arange", "stop", value, kind)
    if not length:
        return zeros((0,), dtype=kind, device=device)
    return wrap(ops.prims.iota(length, start, step, kind, place))


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True) -> Array:
    """``num`` numbers at equal distances from ``start`` to ``stop``, which is the last unless ``endpoint`` is false."""
    _real("linspace", "start", start), _real("linspace", "stop", stop)
    steps = integer("linspace", "num", num)
    if steps < 0:
        raise refusal("linspace", "num", str(steps), "a number of at least 0", Refusal)
    kind = dt.FLOAT if dtype is None else dt.known("linspace", "dtype", dtype, dt.FLOATS)
    place = "cpu" if device is None else str(device)
    made = ops.linspace(float(start), float(stop), steps + (not endpoint and steps > 0), dtype=kind, device=place)
    return wrap(made if endpoint or not steps else ops.prims.slice(made, [0], [steps], [1]))


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None) -> Array:
    """A matrix with ones on the ``k``-th diagonal, above the main one for a positive ``k``."""
    rows = shape_of("eye", "n_rows", n_rows)[0]
    columns = rows if n_cols is None else shape_of("eye", "n_cols", n_cols)[0]
    kind = dt.FLOAT if dtype is None else dt.known("eye", "dtype", dtype)
    offset = integer("eye", "k", k)
    row = arange(rows, device=device)._native
    column = arange(columns, device=device)._native
    # An offset beyond the matrix is no different from one at its end.
    offset = max(-rows, min(columns, offset))
    return wrap(converted(ops.eq(ops.unsqueeze(row, 1) + offset, column), kind))


def meshgrid(*arrays, indexing="xy") -> tuple:
    """Coordinate matrices of vectors."""
    if indexing not in ("xy", "ij"):
        raise refusal("meshgrid", "indexing", repr(indexing), "'xy' or 'ij'", Refusal)
    natives = [array_of("meshgrid", f"arrays[{i}]", x) for i, x in enumerate(arrays)]
    for i, native in enumerate(natives):
        if native.ndim > 1:
            raise refusal("meshgrid", f"arrays[{i}]", described(arrays[i]), "one dimension", Refusal)
        if native.dtype != natives[0].dtype:
            raise refusal("meshgrid", f"arrays[{i}]", f"an array of dtype {native.dtype.name}",
                          f"the dtype of the first, {natives[0].dtype.name}")
    if not natives:
        return ()
    return tuple(map(wrap, ops.meshgrid([ops.reshape(native, [-1]) for native in natives], indexing)))


def tril(x, /, *, k=0) -> Array:
    """Matrices with zeros above the ``k``-th diagonal."""
    return _triangle("tril", x, k)


def triu(x, /, *, k=0) -> Array:
    """Matrices with zeros below the ``k``-th diagonal."""
    return _triangle("triu", x, k)


def _triangle(function: str, x, k) -> Array:
    native = array_of(function, "x", x)
    if native.ndim < 2:
        raise refusal(function, "x", described(x), "at least two dimensions", Refusal)
    rows, columns = native.shape[-2:]
    # A diagonal beyond the matrix is no different from one at its end.
    offset = max(-rows - 1, min(columns + 1, integer(function, "k", k)))
    return wrap(getattr(ops, function)(native, offset))
