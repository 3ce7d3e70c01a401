"""Functions of the user's own that an operator computes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .._errors import ArgumentError
from ._table import _ENTRIES, REPLACED


def replaces(function: Callable, by: Callable | None = None):
    """Has compiled modules compute a Python function by other operators.

    ``torch.compile`` does not look into ``function`` any more: a call of it is one node of the graph, and ``by``
    computes the node. It is for functions that stand for an operator of the registry, or for several::

        @fulgurite.torch.replaces(model.apply_rope)
        def _(x, cos, sin):
            return fulgurite.ops.apply_rope(x, cos, sin)

    Eager PyTorch is not changed. The shapes and element types of the results must be those of ``function``; that the
    values are the same is yours to test. ``function`` must take and return tensors, numbers and the like, not modules;
    what it writes in place is not seen.

    Parameters
    ----------
    function : callable
        A function that is called by modules, as their code finds it when it is compiled.
    by : callable, optional
        Takes the same arguments with a :class:`fulgurite.Tensor` for each tensor. Without it, a decorator is returned.
    """
    if not callable(function):
        raise ArgumentError(f"replaces: expected a function, got {type(function).__name__}", argument="function")
    if by is None:
        def decorate(by: Callable) -> Callable:
            replaces(function, by)
            return by

        return decorate
    if not callable(by):
        raise ArgumentError(f"replaces: expected a function, got {type(by).__name__}", argument="by")
    # What was compiled looked into the function.
    torch.compiler.reset()
    torch.compiler.allow_in_graph(function)
    _ENTRIES.pop(("call_function", function), None)
    REPLACED[function] = lambda context, *arguments, **keywords: by(*arguments, **keywords)
    return by
