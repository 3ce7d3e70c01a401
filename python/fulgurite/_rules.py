"""Python functions of declarations as the compiler calls them: with all arguments in the order of the signature."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Mapping

from ._arrays import from_dlpack
from ._errors import ArgumentError, Refusal
from ._native import Meta

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def require(condition, code: str, message: str) -> None:
    """States a precondition of an operator: in ``requires``, ``meta`` or ``checker``.

    Parameters
    ----------
    condition : bool
        What must hold.
    code : str
        The name of the precondition, by which error samples and callers know it: ``"WeightShape"``.
    message : str
        The argument, what was expected and what came.
    """
    if not condition:
        raise Refusal(message, code=code)


def place() -> tuple[str, int]:
    """File and line of the caller of the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def wrong(name: str, part: str, message: str) -> ArgumentError:
    return ArgumentError(f"{name}: {part} {message}", operator=name, argument=part)


def _parameters(function):
    """The parameters of a function, as far as Python knows them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def by_name(name: str, part: str, function, names: list[str], every: bool):
    """``function``, which takes arguments by their names in the signature, all of them if ``every``."""
    parameters = _parameters(function)
    if parameters is None:
        raise wrong(name, part, "has no parameters that Python knows: wrap it in a function")
    own = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    rest = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for each in own:
        if each not in names:
            near = difflib.get_close_matches(each, names, 1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            raise wrong(name, part, f"takes '{each}', the signature has {', '.join(names)}{hint}")
    missing = [each for each in names if each not in own]
    if every and missing and not rest:
        raise wrong(name, part, f"does not take '{missing[0]}': it takes every argument, so that none is forgotten")
    taken = [(i, each) for i, each in enumerate(names) if rest or each in own]

    def call(*values):
        return function(**{each: values[i] for i, each in taken})

    return call


def by_position(name: str, part: str, function, names: list[str]):
    """``function``, which takes all arguments in their order; those that it has behind ``*`` by name."""
    return leading(name, part, function, [(each, None, None, None, False, None) for each in names])[0]


def leading(name: str, part: str, function, params):
    """As :func:`by_position`, of a function that may do without the last arguments, if they have defaults.

    Returns
    -------
    callable
        The function of all arguments.
    list
        The places of the arguments that it does without, which must then be at their defaults.
    """
    if not callable(function):
        raise wrong(name, part, f"is {function!r:.60}, expected a function")
    names = [param[0] for param in params]
    parameters = _parameters(function)
    if parameters is None:
        return _without_defaults(function, params), []
    if not all(param[4] for param in params[_taken(parameters, names):]):
        count = len(names)
    else:
        count = _taken(parameters, names)
    named = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    keywords = [each for each in names[:count] if each in named]
    places = [each for each in names[:count] if each not in named]
    try:
        inspect.signature(function).bind(*places, **dict.fromkeys(keywords))
    except TypeError as error:
        raise wrong(name, part, f"cannot be called with ({', '.join(names[:count])}): {error}") from None
    omitted = list(range(count, len(names)))
    if not keywords and not omitted:
        return function, omitted

    def call(*values):
        given = dict(zip(names, values))
        return function(*(given[each] for each in places), **{each: given[each] for each in keywords})

    return call, omitted


def _taken(parameters, names: list[str]) -> int:
    """How many of the arguments a function can take, from the first on."""
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return len(names)
    places = sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)
    named = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    count = 0
    for each in names:
        if each in named:
            count += 1
        elif places:
            count, places = count + 1, places - 1
        else:
            break
    return count


def _without_defaults(function, params):
    """A function whose parameters Python does not know, called without the last arguments at their defaults."""

    def call(*values):
        count = len(values)
        while count and params[count - 1][4] and at_default(values[count - 1], params[count - 1]):
            count -= 1
        return function(*values[:count])

    return call


def at_default(value, param) -> bool:
    """Whether an argument is what the signature has where none is given."""
    default = param[5]
    return type(value) is type(default) and (value == default or (value != value and default != default))


def for_defaults(checker, params, omitted):
    """A checker that refuses what functions do without, unless it is at its default."""
    if not omitted:
        return checker

    def check(*values):
        for i in omitted:
            if not at_default(values[i], params[i]):
                return f"{params[i][0]} is {values[i]!r:.40}, the kernel has the default, {params[i][5]!r}"
        return True if checker is None else checker(*values)

    return check


def of_checker(name: str, function, names: list[str]):
    """A checker, which takes arguments by name if all of its parameters are names of the signature."""
    parameters = _parameters(function)
    if parameters and all(each.name in names for each in parameters):
        return by_name(name, "checker", function, names, False)
    return by_position(name, "checker", function, names)


def _one_for_each(name: str, gradients, params) -> list:
    """What a pullback returned, as one entry for each argument."""
    tensors = [param[0] for param in params if param[1] != "attribute"]
    if isinstance(gradients, Mapping):
        for each in gradients:
            if each not in tensors:
                raise ValueError(f"there is a gradient of '{each}', the tensors are {', '.join(tensors)}")
        missing = [each for each in tensors if each not in gradients]
        if missing:
            raise ValueError(f"there is no gradient of '{missing[0]}': None says that it has none")
        given = gradients
    elif isinstance(gradients, (tuple, list)) and not (len(tensors) == 1 and params_list(params, tensors[0])):
        if len(gradients) != len(tensors):
            raise ValueError(f"there are {len(gradients)} gradients for the tensors {', '.join(tensors)}")
        given = dict(zip(tensors, gradients))
    elif len(tensors) == 1:
        given = {tensors[0]: gradients}
    else:
        raise ValueError(
            f"the pullback returned {type(gradients).__name__}, expected a dictionary or a tuple with the gradients of "
            f"{', '.join(tensors)}"
        )
    return [given.get(param[0]) if param[1] != "attribute" else None for param in params]


def params_list(params, name: str) -> bool:
    return any(param[0] == name and param[1] == "list" for param in params)


def of_grad(name: str, function, params):
    """A gradient: ``function`` returns results and a pullback of cotangents, which gives gradients.

    ``params`` returns the parameters, once the operator is registered.
    """

    @functools.wraps(function)
    def call(*values):
        pair = function(*values)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise TypeError(f"it returned {type(pair).__name__}, expected results and a function of their cotangents")
        results, pullback = pair
        return results, lambda cotangents: _one_for_each(name, pullback(*cotangents), params())

    return call


def of_reference(function):
    """A reference in NumPy: copies of the arguments, as float64, int64 and bool, and back."""
    import numpy

    def given(value):
        if isinstance(value, list):
            return [given(item) for item in value]
        return numpy.array(numpy.from_dlpack(value)) if hasattr(value, "__dlpack__") else value

    def made(value):
        value = numpy.asarray(value)
        kind = {"f": "float64", "i": "int64", "u": "int64", "b": "bool"}.get(value.dtype.kind)
        if kind is None:
            raise TypeError(f"it returned an array of {value.dtype}, expected numbers")
        return from_dlpack(numpy.array(value, dtype=kind, order="C", copy=True))

    def call(*values):
        results = function(*[given(value) for value in values])
        return [made(each) for each in (results if isinstance(results, (tuple, list)) else [results])]

    return call


def codes_of(*functions) -> list[str]:
    """The codes of ``require(...)`` in the sources of functions, as far as there are sources."""
    found: list[str] = []
    for function in functions:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError, IndentationError):
            continue
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            if getattr(called, "attr", getattr(called, "id", "")) != "require":
                continue
            named = (keyword.value for keyword in node.keywords if keyword.arg == "code")
            code = node.args[1] if len(node.args) > 1 else next(named, None)
            if isinstance(code, ast.Constant) and isinstance(code.value, str) and code.value not in found:
                found.append(code.value)
    return found


def _like(self: Meta, shape=None, dtype=None, device=None) -> Meta:
    """The meta with another shape, element type or device: ``input.like(shape=(rows,), dtype="float32")``."""
    return Meta(list(self.shape if shape is None else shape), self.dtype if dtype is None else dtype,
                self.device if device is None else device)


def _numel(self: Meta) -> int:
    count = 1
    for extent in self.shape:
        count *= extent
    return count


def _key(self: Meta):
    return (tuple(self.shape), self.dtype, self.device)


Meta.like = _like
Meta.numel = _numel
Meta.ndim = property(lambda self: len(self.shape), doc="Number of dimensions.")
Meta.__eq__ = lambda self, other: _key(self) == _key(other) if isinstance(other, Meta) else NotImplemented
Meta.__hash__ = lambda self: hash(_key(self))
