"""Element types: kinds, promotion by the standard, limits.

``bfloat16`` and ``float16`` are here beside the standard's types. Complex numbers and ``uint64`` are not.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .. import ops
from .._errors import Refusal
from .._native import Array as Native
from .._native import Tensor, dtype
from ._checks import described, refusal

boolean = dtype("bool")
int8, int16, int32, int64 = (dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32 = (dtype(f"uint{bits}") for bits in (8, 16, 32))
float16, bfloat16, float32, float64 = dtype("float16"), dtype("bfloat16"), dtype("float32"), dtype("float64")

#: The types that the standard names.
STANDARD = (boolean, int8, int16, int32, int64, uint8, uint16, uint32, float32, float64)
SIGNED, UNSIGNED = (int8, int16, int32, int64), (uint8, uint16, uint32)
INTEGERS = UNSIGNED + SIGNED
FLOATS = (float16, bfloat16, float32, float64)
NUMBERS = INTEGERS + FLOATS
ALL = (boolean, *NUMBERS)
#: The default types.
INT, FLOAT = int64, float32

KINDS = {
    "bool": (boolean,), "signed integer": SIGNED, "unsigned integer": UNSIGNED, "integral": INTEGERS,
    "real floating": FLOATS, "complex floating": (), "numeric": NUMBERS,
}
#: What the functions accept, in the words of messages.
WORDS = {
    ALL: "an array", NUMBERS: "a numeric dtype", FLOATS: "a floating-point dtype", INTEGERS: "an integer dtype",
    (boolean,): "the dtype bool", (boolean, *INTEGERS): "an integer dtype or bool",
}
#: The standard's types that are not here, and why.
MISSING = {
    **{name: "there are no complex numbers" for name in ("complex64", "complex128")},
    "uint64": "there is no uint64: the widest unsigned type is uint32",
}

_BITS = {of: 8 << place for family in (SIGNED, UNSIGNED) for place, of in enumerate(family)}
_RANGES = {
    **{of: (-(2 ** (_BITS[of] - 1)), 2 ** (_BITS[of] - 1) - 1) for of in SIGNED},
    **{of: (0, 2 ** _BITS[of] - 1) for of in UNSIGNED},
}
_FORMATS = {
    boolean: "?", int8: "b", int16: "h", int32: "i", int64: "q", uint8: "B", uint16: "H", uint32: "I", float16: "e",
    float32: "f", float64: "d",
}
_WIDER = {
    **{(narrow, wide): wide for family in (SIGNED, UNSIGNED) for place, narrow in enumerate(family)
       for wide in family[place + 1:]},
    # An unsigned and a signed type meet in the smallest signed type that holds both.
    **{(unsigned, signed): next(of for of in SIGNED if _BITS[of] > _BITS[unsigned] and _BITS[of] >= _BITS[signed])
       for unsigned in UNSIGNED for signed in SIGNED},
    (float16, float32): float32, (float16, float64): float64, (bfloat16, float32): float32,
    (bfloat16, float64): float64, (float32, float64): float64,
}


@dataclass(frozen=True)
class finfo_object:
    """Limits of a floating-point type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


@dataclass(frozen=True)
class iinfo_object:
    """Limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: dtype


# Bits of the fraction, and the largest exponent.
_FLOATS = {float16: (10, 15), bfloat16: (7, 127), float32: (23, 127), float64: (52, 1023)}


def known(function: str, argument: str, value, among=ALL) -> dtype:
    """A type of this namespace. Names and other libraries' types are refused, as the standard has only objects."""
    if not isinstance(value, dtype):
        why = MISSING.get(str(getattr(value, "name", getattr(value, "__name__", value))))
        expected = "a dtype of fulgurite.array_api" + (f"; {why}" if why else "")
        raise refusal(function, argument, described(value), expected)
    if value not in among:
        raise refusal(function, argument, f"the dtype {value.name}", WORDS[among])
    return value


def kind_of(kind: dtype) -> str:
    """``bool``, ``integer`` or ``floating-point``."""
    return "bool" if kind == boolean else "integer" if kind in INTEGERS else "floating-point"


def wider(function: str, first: dtype, second: dtype) -> dtype:
    """The type that two types promote to by the standard."""
    if first == second:
        return first
    found = _WIDER.get((first, second)) or _WIDER.get((second, first))
    if found is None:
        raise refusal(
            function, None, f"{first.name} and {second.name} meet",
            "dtypes of one kind that promote: convert one with astype",
        )
    return found


def type_of_scalar(function: str, argument: str, value, beside: dtype) -> dtype:
    """The type that a Python number has beside arrays of a type: that type, if it is of no lower kind."""
    if isinstance(value, complex):
        raise refusal(function, argument, described(value), "a real number; there are no complex numbers")
    if not isinstance(value, (bool, int, float)):
        raise refusal(function, argument, described(value), "an array or a Python number")
    fits = {
        "bool": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "floating-point": not isinstance(value, bool),
    }[kind_of(beside)]
    if not fits:
        raise refusal(function, argument, described(value), f"a Python number for arrays of dtype {beside.name}")
    return beside


def filled(function: str, argument: str, value, like):
    """A zero-dimensional native array of a number, in the type and on the device of another native array."""
    if isinstance(like, Tensor):
        # A traced function has no constants: the number is an attribute of a line.
        fits(function, argument, value, like.dtype)
        return ops.full([], value, dtype=like.dtype, device=like.device)
    made = packed(function, argument, [value], [], like.dtype)
    return made if like.device == "cpu" else made.to_device(like.device)


def fits(function: str, argument: str, number, kind: dtype) -> None:
    """Refuses a number that an integer type has not: fractions, NaN and infinities are in none."""
    if kind not in _RANGES:
        return
    low, high = _RANGES[kind]
    if not low <= number <= high or number != int(number):
        expected = f"a whole number from {low} to {high}, as {kind.name} has them"
        raise refusal(function, argument, described(number), expected, Refusal)


def packed(function: str, argument: str, numbers: list, shape: list[int], kind: dtype) -> Native:
    """A native array of Python numbers in row-major order. Integers that do not fit are refused."""
    stored = float32 if kind == bfloat16 else kind
    if kind in FLOATS:
        numbers = [_float(number, stored) for number in numbers]
    elif kind == boolean:
        numbers = [number != 0 for number in numbers]
    else:
        for i, number in enumerate(numbers):
            fits(function, argument, number, kind)
            numbers[i] = int(number)
    made = Native.from_bytes(shape, stored, struct.pack(f"={len(numbers)}{_FORMATS[stored]}", *numbers))
    return made if stored == kind else ops.to(made, dtype=kind)


def _float(number, stored: dtype) -> float:
    try:
        number = float(number)
        struct.pack(f"={_FORMATS[stored]}", number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    return number


def result_type(*arrays_and_dtypes) -> dtype:
    """The type that arrays, types and Python numbers promote to. Types of two kinds do not promote."""
    found, numbers = None, []
    for i, each in enumerate(arrays_and_dtypes):
        if isinstance(each, (bool, int, float, complex)):
            numbers.append((i, each))
            continue
        kind = each.dtype if is_array(each) else known("result_type", f"arrays_and_dtypes[{i}]", each)
        found = kind if found is None else wider("result_type", found, kind)
    if found is None:
        raise refusal("result_type", "arrays_and_dtypes", described(arrays_and_dtypes), "at least one array or dtype",
                      Refusal)
    for i, number in numbers:
        type_of_scalar("result_type", f"arrays_and_dtypes[{i}]", number, found)
    return found


def is_array(value) -> bool:
    """Whether a value is an array of this namespace."""
    return isinstance(getattr(value, "_native", None), (Native, Tensor))


def can_cast(from_, to, /) -> bool:
    """Whether the promotion of an array or a type with ``to`` is ``to``."""
    first = from_.dtype if is_array(from_) else known("can_cast", "from_", from_)
    second = known("can_cast", "to", to)
    return first == second or (_WIDER.get((first, second)) or _WIDER.get((second, first))) == second


def isdtype(dtype, kind) -> bool:
    """Whether a type is a type, or of a kind: the standard's words, or a tuple of them and of types."""
    given = known("isdtype", "dtype", dtype)
    for each in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(each, str):
            if each not in KINDS:
                raise refusal("isdtype", "kind", repr(each), f"one of {', '.join(map(repr, KINDS))}", Refusal)
            if given in KINDS[each]:
                return True
        elif given == known("isdtype", "kind", each):
            return True
    return False


def finfo(type, /) -> finfo_object:
    """Limits of a floating-point type, or of an array's."""
    kind = known("finfo", "type", type.dtype if is_array(type) else type, FLOATS)
    fraction, exponent = _FLOATS[kind]
    largest = (2.0 - 2.0**-fraction) * 2.0**exponent
    return finfo_object(kind.itemsize * 8, 2.0**-fraction, largest, -largest, 2.0 ** (1 - exponent), kind)


def iinfo(type, /) -> iinfo_object:
    """Limits of an integer type, or of an array's."""
    kind = known("iinfo", "type", type.dtype if is_array(type) else type, INTEGERS)
    low, high = _RANGES[kind]
    return iinfo_object(kind.itemsize * 8, high, low, kind)
