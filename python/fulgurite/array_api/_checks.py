"""Refusals of the namespace, and arguments that many functions share."""

from __future__ import annotations

import math

from .._errors import ArgumentError, Refusal
from .._native import dtype


class IndexRefusal(Refusal, IndexError):
    """An axis or an index that is out of range."""


def described(value) -> str:
    """What a value is, for messages."""
    kind = type(value).__name__
    if isinstance(value, dtype):
        return f"the dtype {value.name}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"a {type(value).__module__}.{kind} of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = repr(value)
    return f"{kind} {text[:60]}{'...' if len(text) > 60 else ''}"


def refusal(function: str, argument: str | None, got: str, expected: str, kind=ArgumentError):
    """The exception for an argument: what it is, and what was expected. ``kind`` is its class."""
    what = f"argument '{argument}' is {got}" if argument else got
    message = f"array_api.{function}: {what}, expected {expected}"
    return kind(message, operator=f"array_api.{function}", argument=argument)


def integer(function: str, argument: str, value) -> int:
    """A Python integer, of anything with ``__index__`` that is no boolean."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return value.__index__()
    raise refusal(function, argument, described(value), "an integer")


def shape_of(function: str, argument: str, value) -> list[int]:
    """A shape as a list: an integer, or a tuple or list of them, none below zero."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    sizes = [integer(function, argument, item) for item in items]
    if any(size < 0 for size in sizes):
        raise refusal(function, argument, described(value), "sizes of at least 0", Refusal)
    return sizes


def one_axis(function: str, value, ndim: int, argument: str = "axis") -> int:
    """An axis counted from the start."""
    axis = integer(function, argument, value)
    if not -ndim <= axis < ndim:
        bounds = f"an axis from {-ndim} to {ndim - 1}" if ndim else "no axis: the array has zero dimensions"
        raise refusal(function, argument, str(axis), bounds, IndexRefusal)
    return axis % ndim


def axes_of(function: str, value, ndim: int, argument: str = "axis") -> list[int]:
    """Axes counted from the start, each at most once; all of them for ``None``."""
    if value is None:
        return list(range(ndim))
    items = value if isinstance(value, (tuple, list)) else (value,)
    axes = [one_axis(function, item, ndim, argument) for item in items]
    if len(set(axes)) != len(axes):
        raise refusal(function, argument, str(tuple(items)), "axes that differ", Refusal)
    return axes


def boolean(function: str, argument: str, value) -> bool:
    """A Python boolean."""
    if not isinstance(value, bool):
        raise refusal(function, argument, described(value), "True or False")
    return value


def broadcast(function: str, *shapes) -> tuple[int, ...]:
    """The common shape of shapes by the rules of broadcasting."""
    out: list[int] = []
    for shape in shapes:
        shape = list(shape)
        rank = max(len(out), len(shape))
        left, right = [1] * (rank - len(out)) + out, [1] * (rank - len(shape)) + shape
        if any(a != b and a != 1 and b != 1 for a, b in zip(left, right)):
            listed = ", ".join(str(tuple(each)) for each in shapes)
            raise refusal(function, None, f"the shapes are {listed}", "shapes that broadcast", Refusal)
        out = [b if a == 1 else a for a, b in zip(left, right)]
    return tuple(out)


def count(shape) -> int:
    """Number of elements of a shape."""
    return math.prod(shape)
