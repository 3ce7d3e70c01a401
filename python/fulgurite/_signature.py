"""Signatures of declarations: annotations of Python functions as the text that the registry reads.

``(input: Tensor[Floating], weight: Tensor | None = None, eps: float = 1e-5) -> Tensor`` is
``(input: tensor<floating>, weight: tensor? = none, eps: float = 1e-05) -> tensor``.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing

from ._errors import ArgumentError
from ._native import Array, Tensor, dtype

ONE = "tensor"


class Class:
    """A class of element types: ``Tensor[Floating]``."""

    def __init__(self, name: str, words: str):
        self.name = name
        self.__doc__ = words

    def __repr__(self) -> str:
        return self.name.capitalize()


Floating = Class("floating", "float16, bfloat16, float32, float64.")
Integer = Class("integer", "uint8, int8, uint16, int16, uint32, int32, int64.")
Boolean = Class("boolean", "bool alone.")
Number = Class("number", "Everything but bool.")


class Size(int):
    """An attribute that is an integer from zero on."""


class TensorType:
    """A tensor with a class of element types, in annotations."""

    def __init__(self, of: Class, suffix: str = ""):
        self.of = of
        self.suffix = suffix

    def __or__(self, other):
        if other in (None, type(None)):
            return TensorType(self.of, "?")
        if other in (float, int, bool):
            return TensorType(self.of, "|number")
        return NotImplemented

    __ror__ = __or__

    def __call__(self, *_):
        raise TypeError("a tensor in a signature is no function")

    def __repr__(self) -> str:
        return f"Tensor[{self.of!r}]{self.suffix}"

    @property
    def text(self) -> str:
        return f"tensor<{self.of.name}>{self.suffix}"


def _tensor_of(cls, of):
    if not isinstance(of, Class):
        raise TypeError(f"Tensor[...] takes Floating, Integer, Boolean or Number, got {of!r}")
    return TensorType(of)


Tensor.__class_getitem__ = classmethod(_tensor_of)


class Operand:
    """A tensor or a number, in annotations: ``Operand[Number]``."""

    def __class_getitem__(cls, of):
        return TensorType(of, "|number")


_WORDS = {bool: "bool", int: "int", Size: "size", float: "float", str: "str", dtype: "dtype"}
_LISTS = (list, tuple, collections.abc.Sequence)
#: What annotations that are strings may name without importing it.
_NAMES = {"Tensor": Tensor, "Array": Array, "Floating": Floating, "Integer": Integer, "Boolean": Boolean,
          "Number": Number, "Operand": Operand, "Size": Size, "dtype": dtype, "Literal": typing.Literal,
          "Sequence": collections.abc.Sequence, "Optional": typing.Optional, "Union": typing.Union}


def type_text(annotation) -> str:
    """The type of a parameter as the registry writes it.

    Raises
    ------
    ValueError
        For what is no type of a parameter.
    """
    if annotation in (Tensor, Array):
        return ONE
    if annotation is Operand:
        return "tensor|number"
    if isinstance(annotation, TensorType):
        return annotation.text
    if isinstance(annotation, type) and annotation in _WORDS:
        return _WORDS[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal and parts and all(isinstance(part, str) for part in parts):
        return "|".join(json.dumps(part, ensure_ascii=False) for part in parts)
    if origin in (typing.Union, types.UnionType):
        rest = [part for part in parts if part is not type(None)]
        if len(rest) == len(parts):
            if set(rest) <= {int, float, bool} and {int, float} <= set(rest):
                return "number"
            tensors = [part for part in rest if part in (Tensor, Array) or isinstance(part, TensorType)]
            if len(tensors) == 1 and set(rest) - set(tensors) <= {int, float, bool}:
                return type_text(tensors[0]) + "|number"
        else:
            inner = typing.Union[tuple(rest)]
            return type_text(inner) + "?"
    if origin in _LISTS and parts and (origin is not tuple or parts[1:] == (Ellipsis,)):
        return type_text(parts[0]) + "[]"
    raise ValueError(
        f"{annotation!r} is no type of a parameter, expected Tensor, Tensor[Floating], Tensor | None, list[Tensor], "
        "Operand, bool, int, Size, float, int | float, str, dtype, Literal of strings, or a list or an option of these"
    )


def value_text(value, of: str) -> str:
    """A default as the registry writes it, for a parameter of the type ``of``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(float(value)) if of.rstrip("?[]") == "float" else repr(int(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dtype):
        return value.short_name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(value_text(item, of) for item in value)}]"
    raise ValueError(f"{value!r} cannot be a default")


def annotations_of(function) -> dict:
    """The annotations of a function, those that are strings evaluated where it is."""
    found = {}
    scope = {**_NAMES, **getattr(function, "__globals__", {})}
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is not None and cells:
        scope.update({name: cell.cell_contents for name, cell in zip(code.co_freevars, cells) if _is_set(cell)})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, scope)
            except Exception as error:
                raise ValueError(f"the annotation of '{name}', {annotation!r}, cannot be read: {error}") from error
        found[name] = annotation
    return found


def _is_set(cell) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _results_text(annotation, names) -> str:
    if names is not None:
        names = [names] if isinstance(names, str) else list(names)
        return ONE if len(names) == 1 else f"({', '.join(f'{name}: {ONE}' for name in names)})"
    if annotation is inspect.Signature.empty or annotation in (Tensor, Array):
        return ONE
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and len(parts) > 1 and parts[1] is not Ellipsis:
        return f"({', '.join(f'result{i}: {ONE}' for i in range(len(parts)))})"
    if origin in _LISTS and parts:
        return f"{ONE}[]"
    raise ValueError(f"returns {annotation!r}, expected Tensor, tuple[Tensor, Tensor] or list[Tensor]")


def signature_text(name: str, function, results=None) -> str:
    """The signature of a function by its annotations, with names of several results."""

    def wrong(message):
        return ArgumentError(f"{name}: {message}", operator=name, argument="signature")

    try:
        annotations = annotations_of(function)
        parameters = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY,
                                      parameter.POSITIONAL_ONLY):
                raise ValueError(f"'{parameter}' is no parameter of an operator")
            if parameter.name not in annotations:
                raise ValueError(
                    f"the parameter '{parameter.name}' has no annotation, which says whether it is a tensor: annotate "
                    "it, or give the signature as text, signature=\"(input: tensor, eps: float = 1e-5) -> tensor\""
                )
            of = type_text(annotations[parameter.name])
            text = f"{parameter.name}: {of}"
            if parameter.default is not parameter.empty:
                text += f" = {value_text(parameter.default, of)}"
            parameters.append(text)
        returned = annotations.get("return", inspect.Signature.empty)
        if isinstance(returned, TensorType):
            returned = Tensor
        return f"({', '.join(parameters)}) -> {_results_text(returned, results)}"
    except ValueError as error:
        raise wrong(str(error)) from None
