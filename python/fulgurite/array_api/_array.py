"""The array object of the namespace."""

from __future__ import annotations

from .. import ops
from .._errors import Refusal
from .._native import Array as Native
from .._native import Tensor
from . import _dtypes as dt
from ._checks import count, described, refusal

VERSION = "2025.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", VERSION)


class Array:
    """An array of the Python array API standard: a :class:`fulgurite.Array` with the standard's rules.

    It is a class of its own because the rules are others than PyTorch's, which ``fulgurite.Array`` has: types promote
    without regard to dimensions, kinds do not mix, ``/`` is for floating-point numbers. ``x.native`` is the array of
    the package, over the same memory, and ``asarray`` takes one.

    The data of a native array does not change. ``x[i] = v`` and ``x += v`` give ``x`` another one: a view that was
    taken before keeps the old values. Arrays are made by ``asarray`` and the other functions.
    """

    __slots__ = ("_native",)
    # NumPy leaves arithmetic to us, which refuses its arrays.
    __array_ufunc__ = None
    __hash__ = None

    def __init__(self, *arguments, **keywords):
        raise TypeError("array_api.Array: arrays are made by array_api.asarray and the other creation functions")

    @property
    def native(self):
        """The :class:`fulgurite.Array`, or in a traced function the :class:`fulgurite.Tensor`."""
        return self._native

    @property
    def dtype(self):
        """Element type."""
        return self._native.dtype

    @property
    def device(self) -> str:
        """Device: ``cpu``, ``cuda:0``."""
        return self._native.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._native.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return tuple(self._native.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return count(self._native.shape)

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise refusal("Array.T", "self", f"an array of shape {self.shape}", "two dimensions; mT is for stacks of "
                          "matrices, permute_dims for others", Refusal)
        return wrap(ops.transpose(self._native, 0, 1))

    @property
    def mT(self) -> Array:
        """The transposes of a stack of matrices."""
        if self.ndim < 2:
            raise refusal("Array.mT", "self", f"an array of shape {self.shape}", "at least two dimensions", Refusal)
        return wrap(ops.transpose(self._native, -2, -1))

    def __array_namespace__(self, /, *, api_version: str | None = None):
        if api_version is not None and api_version not in _VERSIONS:
            raise refusal("Array.__array_namespace__", "api_version", repr(api_version),
                          f"one of {', '.join(map(repr, _VERSIONS))}", Refusal)
        from .. import array_api

        return array_api

    def to_device(self, device, /, *, stream=None) -> Array:
        """The array on a device; itself if it is there. Streams are the runtime's own."""
        if stream is not None:
            raise refusal("Array.to_device", "stream", described(stream), "None", Refusal)
        if isinstance(self._native, Tensor):
            raise refusal("Array.to_device", "self", "a value of a trace", "an array: values stay on their device")
        return self if str(device) == self.device else wrap(self._native.to_device(device))

    def __dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None):
        native = data("Array.__dlpack__", self)
        # The standard's devices are enumerations.
        wanted = None if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if wanted is not None and wanted != native.__dlpack_device__() and wanted == (1, 0) and copy is not False:
            native = native.to_device("cpu")
        return native.__dlpack__(stream=stream, max_version=max_version, dl_device=wanted, copy=copy)

    def __dlpack_device__(self, /) -> tuple[int, int]:
        return data("Array.__dlpack_device__", self).__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return data("Array.__array__", self).__array__(dtype, copy)

    def __bool__(self, /) -> bool:
        return bool(_number(self, "__bool__"))

    def __int__(self, /) -> int:
        return int(_number(self, "__int__"))

    def __float__(self, /) -> float:
        return float(_number(self, "__float__"))

    def __complex__(self, /) -> complex:
        return complex(_number(self, "__complex__"))

    def __index__(self, /) -> int:
        if self.dtype not in dt.INTEGERS:
            raise refusal("Array.__index__", "self", f"an array of dtype {self.dtype.name}", "an integer dtype")
        return int(_number(self, "__index__"))

    def __len__(self, /) -> int:
        if not self.ndim:
            raise refusal("Array.__len__", "self", "a zero-dimensional array", "at least one dimension")
        return self.shape[0]

    def __iter__(self, /):
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"array_api.{self._native!r}"


def wrap(native) -> Array:
    """An array of the namespace over one of the package."""
    made = object.__new__(Array)
    made._native = native
    return made


def data(function: str, x: Array) -> Native:
    """The native array, which must have data: a value of a traced function has none."""
    if isinstance(x._native, Tensor):
        raise refusal(function, "self", "a value of a trace, which has no data", "an array outside of traced functions")
    return x._native


def _number(x: Array, method: str):
    if x.ndim:
        raise refusal(f"Array.{method}", "self", f"an array of shape {x.shape}", "zero dimensions")
    return data(f"Array.{method}", x).flat()[0]


def array_of(function: str, argument: str, value, among=dt.ALL):
    """The native array of an argument that must be an array, of one of some types."""
    if not isinstance(value, Array):
        hint = "; asarray makes one" if hasattr(value, "__dlpack__") or isinstance(value, (Native, Tensor)) else ""
        raise refusal(function, argument, described(value), f"an array of fulgurite.array_api{hint}")
    if value.dtype not in among:
        raise refusal(function, argument, f"an array of dtype {value.dtype.name}", dt.WORDS[among])
    return value._native


def converted(native, kind):
    """A native array in a type; itself if it has it."""
    return native if native.dtype == kind else ops.to(native, dtype=kind)


def promoted(function: str, given: dict, among=dt.ALL) -> list:
    """Native arrays in the type that the named arguments, arrays and Python numbers, promote to."""
    arrays = [(name, value) for name, value in given.items() if isinstance(value, Array)]
    if not arrays:
        name, value = next(iter(given.items()))
        raise refusal(function, name, described(value), "an array: at least one argument is one")
    kind = None
    for name, value in arrays:
        array_of(function, name, value, among)
        kind = value.dtype if kind is None else dt.wider(function, kind, value.dtype)
    out = []
    for name, value in given.items():
        if isinstance(value, Array):
            out.append(converted(value._native, kind))
            continue
        if hasattr(value, "__dlpack__") or isinstance(value, (Native, Tensor)):
            array_of(function, name, value)
        dt.type_of_scalar(function, name, value, kind)
        out.append(dt.filled(function, name, value, converted(arrays[0][1]._native, kind)))
    return out
