"""What arrays and values of traces have besides their native methods: arithmetic, indices, the operators as methods."""

from __future__ import annotations

import struct

from . import _native, ops
from ._errors import ArgumentError
from ._native import Array, Tensor, dtype, from_dlpack

_FORMATS = {
    "bool": "?", "uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "int64": "q",
    "float16": "e", "float32": "f", "float64": "d", "complex64": "f", "complex128": "d",
}


def array(values, dtype=None, device=None) -> Array:
    """An array of numbers, of nested lists of numbers, or of what has ``__dlpack__``.

    Parameters
    ----------
    values : number, nested lists, or an array of any library
        Arrays of other libraries are used where they are, without a copy.
    dtype : dtype or str, optional
        The element type. Without one, complex numbers are complex64, floats float32, integers int64 and booleans bool,
        as in PyTorch.
    device : str, optional
        Where the array is: ``"cpu"``, ``"cuda:0"``. Without one, where it is, or on the host.
    """
    if type(values) in (bool, int, float, complex, list, tuple):
        made = _of_lists(values, dtype)
    else:
        if hasattr(values, "__array__") and not hasattr(values, "__dlpack__"):
            # A number of NumPy's is no array of its.
            values = values.__array__()
        made = from_dlpack(values)
        if dtype is not None and made.dtype != _native.dtype(dtype):
            made = ops.to(made, dtype=dtype)
    return made if device is None else made.to_device(device)


def shape_of_lists(values) -> list[int]:
    """The lengths of nested lists, by their first elements; none of a number."""
    shape = []
    while isinstance(values, (list, tuple)):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    return shape


def _of_lists(values, wanted) -> Array:
    shape = shape_of_lists(values)
    numbers: list = []

    def collect(part, depth):
        if depth == len(shape):
            if not isinstance(part, (bool, int, float, complex)):
                raise ArgumentError(f"array: an element is {part!r}, expected a number", operator="array")
            numbers.append(part)
            return
        if not isinstance(part, (list, tuple)) or len(part) != shape[depth]:
            raise ArgumentError(
                f"array: the lists are ragged: expected {shape[depth]} elements in dimension {depth}, got {part!r:.60}",
                operator="array",
            )
        for item in part:
            collect(item, depth + 1)

    collect(values, 0)
    if wanted is not None:
        kind = dtype(wanted)
    elif any(isinstance(number, complex) for number in numbers):
        kind = dtype("complex64")
    elif any(isinstance(number, float) for number in numbers) or not numbers:
        kind = dtype("float32")
    elif all(isinstance(number, bool) for number in numbers) and numbers:
        kind = dtype("bool")
    else:
        kind = dtype("int64")
    stored = dtype("float32") if kind.name == "bfloat16" else kind
    if not stored.is_complex and any(isinstance(number, complex) for number in numbers):
        raise ArgumentError(f"array: an element is a complex number, which {stored} is not", operator="array")
    if stored.is_complex:
        numbers = [part for number in map(complex, numbers) for part in (number.real, number.imag)]
    elif stored.is_floating_point:
        numbers = [float(number) for number in numbers]
    elif stored.name != "bool":
        numbers = [int(number) for number in numbers]
    try:
        data = struct.pack(f"={len(numbers)}{_FORMATS[stored.name]}", *numbers)
    except (struct.error, OverflowError) as error:
        raise ArgumentError(f"array: an element is out of the range of {stored}: {error}", operator="array") from None
    made = Array.from_bytes(shape, stored, data)
    return made if stored == kind else ops.to(made, dtype=kind)


def _nested(flat, shape):
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _tolist(self: Array):
    """The elements as nested lists of numbers; a number for a zero-dimensional array."""
    return _nested(self.flat(), self.shape)


def _item(self: Array):
    """The number of an array of one element."""
    if self.numel() != 1:
        raise ValueError(f"item: expected one element, the array has shape {self.shape}")
    return self.flat()[0]


def _numpy(self: Array):
    """The array of NumPy over the same memory, which may only be read; a copy if the array is on a device."""
    import numpy

    here = self.to_device("cpu")
    if here.dtype.name == "bfloat16":
        raise TypeError("NumPy has no bfloat16: convert with .to(dtype='float32') before")
    return numpy.from_dlpack(here)


def _as_numpy(self: Array, dtype=None, copy=None):
    import numpy

    return numpy.array(_numpy(self), dtype=dtype, copy=True) if copy else numpy.asarray(_numpy(self), dtype=dtype)


def _to(self, *arguments, **keywords):
    """The tensor in another element type or on another device: ``to("bfloat16")``, ``to("cuda:0")``."""
    device = keywords.pop("device", None)
    wanted = keywords.pop("dtype", None)
    if keywords:
        raise ArgumentError(f"to: has no argument '{next(iter(keywords))}'", operator="to")
    for argument in arguments:
        try:
            wanted = dtype(argument)
        except (TypeError, ValueError):
            device = argument
    result = self
    if wanted is not None and dtype(wanted) != self.dtype:
        result = ops.to(result, dtype=wanted)
    if device is not None:
        if isinstance(result, Tensor):
            raise ArgumentError("to: a traced value stays on its device", operator="to", argument="device")
        result = result.to_device(device)
    return result


def from_the_end(indices, extent: int):
    """Positions with those below zero counted from the end. The same tensor for types without a sign."""
    if indices.dtype.name not in ("int64", "int32"):
        return indices
    return ops.where(indices < 0, indices + extent, indices)


def _getitem(self, index):
    """Basic indices (integers, slices, ``None``, ``...``), and one integer array."""
    parts = list(index) if isinstance(index, tuple) else [index]
    # Arrays have an elementwise `==`.
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one '...' at most")
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > self.ndim:
        raise IndexError(f"too many indices: {taken} for a tensor of shape {self.shape}")
    at = dots[0] if dots else len(parts)
    parts[at : at + len(dots)] = [slice(None)] * (self.ndim - taken)
    starts, ends, steps, shape, arrays = [], [], [], [], []
    dim = 0
    for part in parts:
        if part is None:
            shape.append(1)
            continue
        extent = self.shape[dim]
        if isinstance(part, slice):
            start, end, step = part.indices(extent)
            if step < 0:
                raise IndexError("a slice has a positive step: use ops.flip")
            end = max(start, end)
            shape.append(-(-(end - start) // step))
        elif isinstance(part, (Array, Tensor)):
            if part.dtype.name not in ("int64", "int32") or part.ndim != 1 or arrays:
                raise IndexError(
                    "an index is an integer, a slice, None, '...' or one array of integers with one dimension, got "
                    f"{part!r:.60}"
                )
            arrays.append((len(shape), from_the_end(part, extent)))
            start, end, step = 0, extent, 1
            shape.append(extent)
        else:
            if isinstance(part, bool):
                raise IndexError("an index is a boolean: compare and use ops.where")
            try:
                place = part.__index__()
            except AttributeError:
                raise IndexError(f"an index is an integer, a slice, None or '...', got {part!r:.60}") from None
            if not -extent <= place < extent:
                raise IndexError(f"index {place} is out of range: dimension {dim} of {self.shape} has {extent}")
            start = place % extent
            end, step = start + 1, 1
        starts.append(start)
        ends.append(end)
        steps.append(step)
        dim += 1
    result = self
    whole = all(s == 0 and e == n and t == 1 for s, e, t, n in zip(starts, ends, steps, self.shape))
    if not whole and result.dtype.is_complex:
        parts = ops.view_as_real(result)
        result = ops.view_as_complex(ops.prims.slice(parts, [*starts, 0], [*ends, 2], [*steps, 1]))
    elif not whole:
        result = ops.prims.slice(result, starts, ends, steps)
    if tuple(shape) != tuple(result.shape):
        result = ops.reshape(result, shape)
    for where, indices in arrays:
        result = ops.index_select(result, where, indices)
    return result


def _setitem(self, index, value):
    raise TypeError("arrays do not change: ops.slice_scatter, ops.index_put and ops.where make changed copies")


def _binary(name: str, swapped: bool = False):
    function = None

    def method(self, other):
        nonlocal function
        function = function or getattr(ops, name)
        if isinstance(other, complex):
            other = complex_number(other, self)
        try:
            return function(other, self) if swapped else function(self, other)
        except ArgumentError as error:
            if error.argument in ("input", "other", "exponent", "self") and not _is_operand(other):
                return NotImplemented
            raise

    method.__name__ = name
    return method


def complex_number(number: complex, beside):
    """A complex number as a tensor without dimensions, which ``beside`` meets as it meets a number."""
    kind = "float64" if beside.dtype.name in ("float64", "complex128") else "float32"
    parts = (ops.full([], part, dtype=kind, device=beside.device) for part in (number.real, number.imag))
    return ops.complex(*parts)


def _is_operand(value) -> bool:
    known = isinstance(value, (bool, int, float, Array, Tensor))
    return known or hasattr(value, "__dlpack__") or hasattr(value, "__float__")


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}
_COMPARED = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}

_OPERATORS = frozenset(dir(ops))


def _method(name: str):
    """An operator as a method. Integers behind the tensor may stand for a list: ``x.permute(0, 2, 1)``."""
    function = getattr(ops, name)
    params = function.operator.params
    takes_list = len(params) > 1 and params[1][2].rstrip("?") in ("int[]", "size[]")
    # `x.roll(1, 0)` has another parameter for the second.
    takes_list = takes_list and not (len(params) > 2 and ("int" in params[2][2] or "size" in params[2][2]))

    def method(self, *arguments, **keywords):
        integers = len(arguments) > 1 and all(isinstance(each, int) for each in arguments)
        if takes_list and integers:
            arguments = (list(arguments),)
        return function(self, *arguments, **keywords)

    method.__name__ = name
    method.__doc__ = function.__doc__
    return method


def _getattr(self, name: str):
    if name in _OPERATORS and not name.startswith("_"):
        function = getattr(ops, name)
        operator = getattr(function, "operator", None)
        if operator is not None and operator.params and operator.params[0][1] in ("tensor", "operand"):
            method = _method(name)
            for kind in (Array, Tensor):
                setattr(kind, name, method)
            return getattr(self, name)
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _no_truth(self):
    raise TypeError(
        "the truth of a traced value is not known before it is computed: use ops.where, or return the value and decide "
        "outside of the traced function"
    )


def _truth(self: Array) -> bool:
    if self.numel() != 1:
        raise ValueError(f"the truth of an array of shape {self.shape} is ambiguous: use ops.any or ops.all")
    return bool(_item(self))


def _length(self) -> int:
    if not self.ndim:
        raise TypeError("a zero-dimensional tensor has no len()")
    return self.shape[0]


def _rows(self):
    return (self[i] for i in range(_length(self)))


for _kind in (Array, Tensor):
    for _python, _name in _BINARY.items():
        setattr(_kind, f"__{_python}__", _binary(_name))
        setattr(_kind, f"__r{_python}__", _binary(_name, swapped=True))
    for _python, _name in _COMPARED.items():
        setattr(_kind, f"__{_python}__", _binary(_name))
    for _python, _name in _UNARY.items():
        setattr(_kind, f"__{_python}__", lambda self, _name=_name: getattr(ops, _name)(self))
    _kind.__hash__ = object.__hash__
    _kind.__getitem__ = _getitem
    _kind.__setitem__ = _setitem
    _kind.__len__ = _length
    _kind.__iter__ = _rows
    _kind.__getattr__ = _getattr
    _kind.to = _to
    _kind.T = property(lambda self: ops.permute(self, list(range(self.ndim))[::-1]), doc="The dimensions reversed.")
    _kind.mT = property(lambda self: ops.transpose(self, -2, -1), doc="The last two dimensions exchanged.")
    # Arrays of NumPy leave arithmetic to us.
    _kind.__array_priority__ = 1000
    _kind.__array_ufunc__ = None

Tensor.__bool__ = _no_truth


def _no_number(name: str):
    def method(self, *arguments):
        raise TypeError(f"{name} of a traced value is not known before it is computed: return the value, and ask for "
                        "its numbers outside of the traced function")

    method.__name__ = name
    return method


for _name in ("item", "tolist", "numpy"):
    setattr(Tensor, _name, _no_number(_name))


def _in_pytorch(cls, function, types, arguments=(), keywords=None):
    """What PyTorch calls where one of its functions is given a value of a traced function."""
    name = getattr(function, "__name__", "a function")
    instead = f"use fulgurite.ops.{name}" if name in ops.OPERATORS else "use operators of fulgurite.ops"
    raise ArgumentError(
        f"torch's {name}: an argument is a value of a function that fulgurite.jit traces: {instead}, or compile what "
        "is written in PyTorch as it is, by fulgurite.torch.jit(function), and call it with tensors",
        argument="function")


# In arithmetic with a tensor PyTorch takes the TypeError for a refusal, and asks the value.
Tensor.__torch_function__ = classmethod(_in_pytorch)
Array.__bool__ = _truth
Array.__float__ = lambda self: float(_item(self))
Array.__int__ = lambda self: int(_item(self))
Array.item = _item
Array.tolist = _tolist
Array.numpy = _numpy
Array.__array__ = _as_numpy
