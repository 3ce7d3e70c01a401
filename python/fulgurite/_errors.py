"""The exceptions of the package."""

from __future__ import annotations

import difflib


class Error(RuntimeError):
    """What the compiler, an operator or a running program refuses.

    Attributes
    ----------
    code : str
        A short name of the kind of error; for a failing precondition of an operator its name (``WeightShape``).
    operator : str or None
        The operator that refused, where it was one.
    argument : str or None
        The argument that the message names first, where there is one.
    """

    def __init__(self, message: str, *, code: str = "", operator: str | None = None, argument: str | None = None):
        super().__init__(message)
        self.code = code
        self.operator = operator
        self.argument = argument


class ArgumentError(Error, TypeError):
    """An argument of another type than the signature says, a missing one, or one too many."""


class Refusal(Error, ValueError):
    """A precondition that does not hold: what :func:`fulgurite.require` raises in a rule of a declaration."""


def not_called(name: str, call: str = "") -> Error:
    """What is said of a compiled function or module before its first call."""
    return Error(f"explain: nothing was compiled of {name} yet; call it with arguments first, {call or f'{name}(...)'}",
                 code="NotCalled", operator="explain")


def meant(name, known) -> str:
    """``, did you mean 'x'?`` where a known name is near, or nothing."""
    near = difflib.get_close_matches(str(name), list(known), 1)
    return f", did you mean '{near[0]}'?" if near else ""
