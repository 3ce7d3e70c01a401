"""Trees of arrays: dictionaries, lists, tuples and dataclasses. What is no array is a part of the structure."""

from __future__ import annotations

import dataclasses
import re

from ._errors import ArgumentError
from ._native import Array, Tensor, dtype

_LEAF = ("leaf",)
_STATIC = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), dtype, type)


class Leaves:
    """The leaves of a tree in order, with their paths."""

    def __init__(self):
        self.arrays: list = []
        self.paths: list[str] = []
        self._known: set[str] = set()

    def add(self, path: str, leaf) -> None:
        path = path or "value"
        unique, count = path, 0
        while unique in self._known:
            count += 1
            unique = f"{path}_{count}"
        self._known.add(unique)
        self.arrays.append(leaf)
        self.paths.append(unique)


def word(key) -> str:
    """A key as a part of a path: paths have dots between words of letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", str(key)) or "_"


def join(path: str, key) -> str:
    return f"{path}.{word(key)}" if path else word(key)


def flatten(value, path: str, leaves: Leaves):
    """Adds the leaves of a tree, and returns its structure, which can be hashed."""
    if isinstance(value, (Array, Tensor)):
        leaves.add(path, value)
        return _LEAF
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (str, int)):
                raise ArgumentError(f"the dictionary at '{path}' has the key {key!r}, expected a string or an integer")
        parts = tuple((key, flatten(item, join(path, key), leaves)) for key, item in value.items())
        return ("dict", type(value), parts)
    if isinstance(value, (list, tuple)):
        names = getattr(type(value), "_fields", range(len(value)))
        return ("list", type(value), tuple(flatten(item, join(path, name), leaves) for name, item in zip(names, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        parts = tuple((name, flatten(getattr(value, name), join(path, name), leaves)) for name in fields)
        return ("dataclass", type(value), parts)
    if isinstance(value, float):
        # Zeros of both signs are equal, and NaN is not.
        return ("float", value.hex())
    if isinstance(value, _STATIC) or callable(value):
        return ("static", type(value), value)
    if hasattr(value, "__dlpack__"):
        leaves.add(path, Array.from_dlpack(value))
        return _LEAF
    try:
        hash(value)
    except TypeError:
        message = (
            f"'{path or 'the value'}' is a {type(value).__name__}, expected an array, a number, a string, or a "
            "dictionary, list, tuple or dataclass of these"
        )
        raise ArgumentError(message, argument=path or None) from None
    return ("static", type(value), value)


def unflatten(structure, leaves):
    """The tree of a structure with the next leaves of an iterator."""
    kind = structure[0]
    if kind == "leaf":
        return next(leaves)
    if kind == "float":
        return float.fromhex(structure[1])
    if kind == "static":
        return structure[2]
    _, of, parts = structure
    if kind == "dict":
        items = {key: unflatten(part, leaves) for key, part in parts}
        return items if of is dict else _dict_of(of, items)
    if kind == "dataclass":
        fields = {name: unflatten(part, leaves) for name, part in parts}
        made = object.__new__(of)
        for name, item in fields.items():
            object.__setattr__(made, name, item)
        return made
    items = [unflatten(part, leaves) for part in parts]
    if of is list:
        return items
    return of(*items) if hasattr(of, "_fields") else of(items)


def _dict_of(of, items):
    try:
        return of(items)
    except TypeError:
        # A defaultdict takes its factory first: what a function returns is a plain dictionary.
        return items
