"""Generated tests of what is declared in Python, for pytest.

>>> test_operators = fulgurite.testing.generate(my_operators)    # in a file test_*.py

The templates are those of declarations in Rust: results against the reference in float64 over the samples, metas
against results, gradients against differences, errors with their text, any layout of operands, empty and
zero-dimensional ones, determinism, decomposition against kernels.
"""

from __future__ import annotations

import types

from . import _native
from ._errors import ArgumentError, Error
from ._executor import Executor
from ._native import ErrorSamples, GeneratedTest, Samples, SampleTensor
from ._operator import Operator


def _run(generated) -> str | None:
    """What is wrong, without lines of this package's own source, which no author of a declaration wrote."""
    message = generated.run()
    if message is None:
        return None
    return "\n".join(line for line in message.splitlines() if not line.strip().startswith("at python/src/"))


def tests(*declared) -> list[GeneratedTest]:
    """The generated tests of operators, of executors (their symbols, and what they implement), and of modules of these.

    Raises
    ------
    fulgurite.Error
        If there is none.
    """
    operators, executors = [], []

    def add(value):
        if isinstance(value, Operator):
            if value not in operators:
                operators.append(value)
        elif isinstance(value, Executor):
            if value not in executors:
                executors.append(value)
                for symbol in value.symbols:
                    add(symbol)
        elif isinstance(value, types.ModuleType):
            for each in vars(value).values():
                if isinstance(each, (Operator, Executor)):
                    add(each)
        elif isinstance(value, (list, tuple)):
            for each in value:
                add(each)
        else:
            raise ArgumentError(f"expected a module, an operator or an executor, got {value!r:.60}",
                                argument="declared")

    for each in declared:
        add(each)
    names = [each.name for each in operators]
    found = _native.tests(names) if names else []
    for executor in executors:
        others = [name for name in dict.fromkeys(executor.implemented) if name not in names]
        if others:
            found += _native.tests(others, list(executor.names.values()))
    if not found:
        raise Error("no test is generated: nothing is declared in what was given", code="NoTest")
    return found


def generate(*declared):
    """A parametrized function of pytest that runs :func:`tests`, one after the other.

    Parameters
    ----------
    declared : modules, operators, executors
        What is tested.

    Returns
    -------
    callable
        To be bound to a name that begins with ``test``.
    """
    import pytest

    @pytest.mark.parametrize("generated", [pytest.param(each, id=each.name) for each in tests(*declared)])
    def test_generated(generated):
        if generated.skip:
            pytest.skip(generated.skip)
        message = _run(generated)
        if message is not None:
            pytest.fail(message, pytrace=False)

    return test_generated


def check(*declared) -> int:
    """Runs :func:`tests` without pytest: how many passed.

    Raises
    ------
    AssertionError
        With the messages of those that fail.
    """
    failed, passed = [], 0
    for each in tests(*declared):
        message = None if each.skip else _run(each)
        if message is not None:
            failed.append(f"{each.name}\n{message}")
        elif not each.skip:
            passed += 1
    assert not failed, "\n\n".join(failed)
    return passed


__all__ = ["ErrorSamples", "GeneratedTest", "SampleTensor", "Samples", "check", "generate", "tests"]
