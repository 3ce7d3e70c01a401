"""Transforms of the user's own for ``jit(..., transforms=[...])``.

A transform is a function from a :class:`fulgurite.Trace` to a :class:`fulgurite.Trace`. Its name in traces is the
function's. It runs on the program as it was written, or at another place: ``at("before_claim", f)``. The text of a
trace reads back, so a transform may work on it: ``Trace(str(trace).replace("gelu(", "relu("))``. Results are verified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

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
    return Transform(name or function.__name__, function, place)


def _native(transforms) -> list:
    """As the compiler takes them."""
    made = [each if isinstance(each, Transform) else at("start", each) for each in transforms]
    # Names of functions without one (`<lambda>`) are no names of stages.
    return [(each.name.strip("<>") or "transform", each.function, each.place) for each in made]
