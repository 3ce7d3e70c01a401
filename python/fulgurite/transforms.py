"""Transforms of the user's own for ``jit(..., transforms=[...])``.

A transform is a function from a :class:`fulgurite.Trace` to a :class:`fulgurite.Trace`. Its name in traces is the
function's. It runs on the program as it was written, or at another place: ``at("before_claim", f)``. What it returns is
verified.

:class:`Rewrite` replaces lines by what a function computes, :func:`replace` makes a transform of one that does so for
every line of an operator. The text of a trace reads back as well: ``Trace(str(trace).replace("gelu(", "relu("))``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

from . import _native as native
from ._errors import ArgumentError
from ._native import Line, Tensor, Trace, Value

PLACES = ("start", "before_autodiff", "after_autodiff", "before_claim")


@dataclasses.dataclass(frozen=True)
class Transform:
    """A function from trace to trace, its name, and the stage at which it runs."""

    name: str
    function: Callable
    place: str = "start"


def at(place: str, function: Callable, name: str | None = None) -> Transform:
    """The transform at one of the places ``start``, ``before_autodiff``, ``after_autodiff`` and ``before_claim``."""
    if place not in PLACES:
        raise ValueError(f"a transform is at {place!r}, expected one of {', '.join(PLACES)}")
    if isinstance(function, Transform):
        return Transform(name or function.name, function.function, place)
    return Transform(name or getattr(function, "__name__", type(function).__name__), function, place)


class Rewrite:
    """Lines of a trace that are replaced, all at once.

    >>> def merge_rope(trace):
    ...     rewrite, open = Rewrite(trace), {}
    ...     for line in trace.find("apply_rope"):
    ...         first = open.pop((line["cos"], line["sin"]), None)
    ...         if first is None:
    ...             open[line["cos"], line["sin"]] = line
    ...         else:
    ...             rewrite.replace([first, line], ops.rope, first["input"], line["input"], line["cos"], line["sin"])
    ...     return rewrite.trace()
    """

    def __init__(self, trace: Trace):
        if not isinstance(trace, Trace):
            raise ArgumentError(f"Rewrite: expected a Trace, got {type(trace).__name__}")
        self._trace = trace
        self._replaced: list = []

    def replace(self, lines: Line | list[Line], function: Callable, *arguments, **keywords) -> None:
        """Replaces lines by what ``function`` computes.

        Parameters
        ----------
        lines : Line or list of Line
            Lines of one program. What replaces them is written where the last of them was, so no line before that may
            read what they compute.
        function : callable
            Traced with a :class:`fulgurite.Tensor` for each value among its arguments. Returns a tensor, or a tuple or
            list of them: for each result of the lines, in their order, or for each that other lines read. Shapes and
            element types must be those of the results.
        *arguments, **keywords
            Values of the trace (:class:`fulgurite.Value`), lists of them, and what the function takes besides.
        """
        lines = [lines] if isinstance(lines, Line) else list(lines)
        for line in lines:
            if not isinstance(line, Line):
                raise ArgumentError(f"replace: expected lines of a trace, got {type(line).__name__}")
        if not callable(function):
            raise ArgumentError(f"replace: expected a function, got {type(function).__name__}")
        values: list[Value] = []

        def gather(item):
            if isinstance(item, Value):
                values.append(item)
            elif isinstance(item, (list, tuple)):
                for each in item:
                    gather(each)

        gather(arguments)
        gather(list(keywords.values()))

        def traced(tensors):
            given = iter(tensors)

            def filled(item):
                if isinstance(item, Value):
                    return next(given)
                return type(item)(filled(each) for each in item) if isinstance(item, (list, tuple)) else item

            result = function(*filled(list(arguments)), **dict(zip(keywords, filled(list(keywords.values())))))
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            for each in results:
                if not isinstance(each, Tensor):
                    name = getattr(function, "__name__", "the function")
                    raise ArgumentError(f"replace: {name} returned {type(each).__name__}, expected tensors")
            return results

        self._replaced.append((lines, values, traced))

    def trace(self, name: str | None = None) -> Trace:
        """The trace with the lines replaced; the same one if there are none.

        Parameters
        ----------
        name : str, optional
            What the trace says that made it; the name of the calling function by default.
        """
        if not self._replaced:
            return self._trace
        if name is None:
            name = sys._getframe(1).f_code.co_name.strip("<>")
        return native.replaced(self._trace, name, self._replaced)


def replace(operator: str, function: Callable, where: Callable | None = None, place: str = "start") -> Transform:
    """A transform that replaces each line of an operator by what ``function`` computes.

    Parameters
    ----------
    operator : str
        The whole name: ``gelu``, ``prims::exp``.
    function : callable
        Called with the operator's arguments by name; tensors among them are :class:`fulgurite.Tensor`.
    where : callable, optional
        Called with a :class:`fulgurite.Line`: whether it is replaced.
    place : str, optional
        See :func:`at`.
    """
    name = getattr(function, "__name__", "").strip("<>")
    name = name if name.isidentifier() and name != "lambda" else f"replace_{operator.replace('::', '_')}"

    def transform(trace: Trace) -> Trace:
        rewrite = Rewrite(trace)
        for line in trace.find(operator):
            if where is None or where(line):
                rewrite.replace(line, function, **line.arguments)
        return rewrite.trace(name)

    return at(place, transform, name)


def _native(transforms) -> list:
    """As the compiler takes them."""
    made = [each if isinstance(each, Transform) else at("start", each) for each in transforms]
    # Names of functions without one (`<lambda>`) are no names of stages.
    return [(each.name.strip("<>") or "transform", each.function, each.place) for each in made]


__all__ = ["PLACES", "Line", "Rewrite", "Transform", "Value", "at", "replace"]
