"""The Python array API standard (2025.12) over :class:`fulgurite.Array`.

>>> from fulgurite import array_api as xp
>>> x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
>>> float(xp.sum(x @ x.T))
52.0

The functions are the standard's, with its promotion and its special cases, over the operators of the registry. What is
not there is refused by an error that names the function, the argument, what was expected and what was given: complex
numbers, ``uint64``, ``fft``, and promotion of types of two kinds, which the standard leaves open.
"""

from __future__ import annotations

from math import e, inf, nan, pi

from . import linalg
from ._array import VERSION as __array_api_version__
from ._array import Array
from ._creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, tril,
    triu, zeros, zeros_like,
)
from ._dtypes import (
    MISSING as _MISSING,
)
from ._dtypes import (
    bfloat16, boolean, can_cast, finfo, float16, float32, float64, iinfo, int8, int16, int32, int64, isdtype,
    result_type, uint8, uint16, uint32,
)
from ._elementwise import FUNCTIONS as _FUNCTIONS
from ._elementwise import astype, clip, imag
from ._indexing import nonzero, take, take_along_axis
from ._info import __array_namespace_info__
from ._manipulation import (
    broadcast_arrays, broadcast_shapes, broadcast_to, concat, expand_dims, flip, moveaxis, permute_dims, repeat,
    reshape, roll, squeeze, stack, tile, unstack,
)
from ._searching import (
    argmax, argmin, argsort, count_nonzero, isin, searchsorted, sort, unique_all, unique_counts, unique_inverse,
    unique_values, where,
)
from ._statistics import all, any, cumulative_prod, cumulative_sum, diff, max, mean, min, prod, std, sum, var
from .linalg import matmul, matrix_transpose, tensordot, vecdot

newaxis = None
bool = boolean
globals().update(_FUNCTIONS)

__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "all", "any", "arange", "argmax", "argmin",
    "argsort", "asarray", "astype", "bfloat16", "bool", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "can_cast", "concat", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "e", "empty", "empty_like",
    "expand_dims", "eye", "finfo", "flip", "float16", "float32", "float64", "from_dlpack", "full", "full_like",
    "iinfo", "imag", "inf", "int16", "int32", "int64", "int8", "isdtype", "isin", "linalg", "linspace", "matmul",
    "matrix_transpose", "max", "mean", "meshgrid", "min", "moveaxis", "nan", "newaxis", "nonzero", "ones",
    "ones_like", "permute_dims", "pi", "prod", "repeat", "reshape", "result_type", "roll", "searchsorted", "sort",
    "squeeze", "stack", "std", "sum", "take", "take_along_axis", "tensordot", "tile", "tril", "triu", "uint16",
    "uint32", "uint8", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot",
    "where", "zeros", "zeros_like", *sorted(_FUNCTIONS),
]


def __getattr__(name: str):
    why = "fft needs complex numbers, which there are none of" if name == "fft" else _MISSING.get(name)
    raise AttributeError(f"fulgurite.array_api has no '{name}'" + (f": {why}" if why else ""))
