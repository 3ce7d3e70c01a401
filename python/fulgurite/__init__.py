"""Fulgurite: a tensor compiler for the people who write operators and kernels.

>>> import numpy, fulgurite
>>> x = fulgurite.array([[1.0, 2.0], [3.0, 4.0]])
>>> fulgurite.ops.softmax(x, -1).shape
(2, 2)
>>> f = fulgurite.jit(lambda x: (x * x).sum())
>>> f(x).item()
30.0

``fulgurite.ops`` has every operator, ``fulgurite.jit`` compiles functions of arrays, ``fulgurite.torch`` gives both to
PyTorch; it is imported when it is asked for.
"""

from __future__ import annotations

import os as _os

from . import _native

_native.package(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)

from . import ops, transforms  # noqa: E402
from ._arrays import array, from_dlpack  # noqa: E402
from ._errors import ArgumentError, Error  # noqa: E402
from ._function import (  # noqa: E402
    Traces,
    explain,
    grad,
    jit,
    last_backward_traces,
    last_traces,
    scope,
    train_step,
    value_and_grad,
    vjp,
)
from ._native import Array, Meta, Tensor, Trace, dtype, executors  # noqa: E402

globals().update({each.name: each for each in _native.dtypes()})

__all__ = [
    "Array", "ArgumentError", "Error", "Meta", "Tensor", "Trace", "Traces", "array", "dtype", "executors", "explain",
    "from_dlpack", "grad", "jit", "last_backward_traces", "last_traces", "ops", "scope", "train_step", "transforms",
    "value_and_grad", "vjp", *(each.name for each in _native.dtypes()),
]


def __getattr__(name: str):
    # PyTorch is imported when it is asked for.
    if name == "torch":
        import importlib

        return importlib.import_module("fulgurite.torch")
    raise AttributeError(f"module 'fulgurite' has no attribute '{name}'")
