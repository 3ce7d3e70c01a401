"""Fulgurite: a tensor compiler for the people who write operators and kernels.

>>> import numpy, fulgurite
>>> x = fulgurite.array([[1.0, 2.0], [3.0, 4.0]])
>>> fulgurite.ops.softmax(x, -1).shape
(2, 2)
>>> f = fulgurite.jit(lambda x: (x * x).sum())
>>> f(x).item()
30.0

``fulgurite.ops`` has every operator, ``fulgurite.jit`` compiles functions of arrays, ``fulgurite.torch`` gives both to
PyTorch; it is imported when it is asked for. ``fulgurite.array_api`` is the namespace of the Python array API standard.
"""

from __future__ import annotations

import os as _os

from . import _native

_native.package(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)

from . import ops, transforms  # noqa: E402
from ._arrays import array, from_dlpack  # noqa: E402
from ._cuda import CudaKernel  # noqa: E402
from ._errors import ArgumentError, Error, Refusal  # noqa: E402
from ._executor import Executor  # noqa: E402
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
from ._native import Array, Line, Meta, Tensor, Trace, Value, dtype, executors  # noqa: E402
from ._operator import Operator, operator  # noqa: E402
from ._rules import require  # noqa: E402
from ._signature import Boolean, Floating, Integer, Number, Operand, Size  # noqa: E402

globals().update({each.name: each for each in _native.dtypes()})

__all__ = [
    "Array", "ArgumentError", "Boolean", "CudaKernel", "Error", "Executor", "Floating", "Integer", "Line", "Meta",
    "Number", "Operand", "Operator", "Refusal", "Size", "Tensor", "Trace", "Traces", "Value", "array", "array_api",
    "dtype", "executors", "explain", "from_dlpack", "grad", "jit", "last_backward_traces", "last_traces", "operator",
    "ops", "require", "scope", "testing", "train_step", "transforms", "value_and_grad", "vjp",
    *(each.name for each in _native.dtypes()),
]


def __getattr__(name: str):
    # PyTorch, and what tests need, are imported when they are asked for.
    if name in ("array_api", "torch", "testing"):
        import importlib

        return importlib.import_module(f"fulgurite.{name}")
    raise AttributeError(f"module 'fulgurite' has no attribute '{name}'")
