"""Functions of elements, and the arithmetic of arrays."""

from __future__ import annotations

from .. import ops
from .._errors import Refusal
from .._native import Array as Native
from .._native import Tensor
from . import _dtypes as dt
from ._array import Array, array_of, converted, promoted, wrap
from ._checks import broadcast, described, refusal

_BITS = (dt.boolean, *dt.INTEGERS)
_BOOLEAN = (dt.boolean,)


def _same(x):
    return x


def _sign(x):
    signs = ops.sign(x)
    # PyTorch's sign of NaN, which the operator has, is 0.
    return ops.where(ops.isnan(x), x, signs) if x.dtype in dt.FLOATS else signs


def _remainder(x1, x2):
    found = ops.remainder(x1, x2)
    if found.dtype in dt.FLOATS:
        # A zero has the sign of the divisor; PyTorch's, which the operator has, that of the dividend.
        return ops.where(ops.eq(found, 0), ops.copysign(ops.zeros_like(found), x2), found)
    return found


def _floor_divide(x1, x2):
    if x1.dtype not in dt.FLOATS:
        return ops.floor_divide(x1, x2)
    # At infinities the standard prefers the quotient, PyTorch what the remainder leaves. Finite quotients are the
    # operator's: `floor` of a rounded quotient may be one too large.
    found, quotient = ops.floor_divide(x1, x2), ops.div(x1, x2)
    special = ops.logical_or(ops.isinf(x1), ops.logical_or(ops.isinf(x2), ops.isinf(quotient)))
    found = ops.where(special, quotient, found)
    return ops.where(ops.eq(found, 0), ops.copysign(found, quotient), found)


def _pow(x1, x2):
    if x2.dtype in dt.SIGNED and isinstance(x2, Native) and x2.numel() and bool(ops.any(ops.lt(x2, 0))):
        raise refusal("pow", "x2", "an integer below 0", "integers of at least 0, or floating-point dtypes", Refusal)
    return ops.pow(x1, x2)


def _shift(operator):
    def shift(x1, x2):
        if x2.dtype in dt.SIGNED and isinstance(x2, Native) and x2.numel() and bool(ops.any(ops.lt(x2, 0))):
            raise refusal(operator, "x2", "an integer below 0", "shifts of at least 0", Refusal)
        return getattr(ops, operator)(x1, x2)

    return shift


def _rounding(operator):
    # Integers are whole already.
    return lambda x: x if x.dtype in dt.INTEGERS else getattr(ops, operator)(x)


#: By the standard's name: what computes it (an operator's name, or a function), and the types that it takes.
_UNARY = {
    "abs": ("abs", dt.NUMBERS), "bitwise_invert": ("bitwise_not", _BITS), "ceil": (_rounding("ceil"), dt.NUMBERS),
    "conj": (_same, dt.NUMBERS), "floor": (_rounding("floor"), dt.NUMBERS), "isfinite": ("isfinite", dt.NUMBERS),
    "isinf": ("isinf", dt.NUMBERS), "isnan": ("isnan", dt.NUMBERS), "logical_not": ("logical_not", _BOOLEAN),
    "negative": ("neg", dt.NUMBERS), "positive": (_same, dt.NUMBERS), "real": (_same, dt.NUMBERS),
    "round": (_rounding("round"), dt.NUMBERS), "sign": (_sign, dt.NUMBERS), "square": ("square", dt.NUMBERS),
    "trunc": (_rounding("trunc"), dt.NUMBERS),
    **{name: (name, dt.FLOATS) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p",
        "log2", "reciprocal", "signbit", "sin", "sinh", "sqrt", "tan", "tanh")},
}
_BINARY = {
    "add": ("add", dt.NUMBERS), "subtract": ("sub", dt.NUMBERS), "multiply": ("mul", dt.NUMBERS),
    "divide": ("div", dt.FLOATS), "floor_divide": (_floor_divide, dt.NUMBERS), "remainder": (_remainder, dt.NUMBERS),
    "pow": (_pow, dt.NUMBERS), "bitwise_left_shift": (_shift("bitwise_left_shift"), dt.INTEGERS),
    "bitwise_right_shift": (_shift("bitwise_right_shift"), dt.INTEGERS), "equal": ("eq", dt.ALL),
    "not_equal": ("ne", dt.ALL), "less": ("lt", dt.NUMBERS), "less_equal": ("le", dt.NUMBERS),
    "greater": ("gt", dt.NUMBERS), "greater_equal": ("ge", dt.NUMBERS),
    **{name: (name, dt.NUMBERS) for name in ("maximum", "minimum")},
    **{name: (name, _BITS) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: (name, _BOOLEAN) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: (name, dt.FLOATS) for name in ("atan2", "copysign", "hypot", "logaddexp", "nextafter")},
}


def _documentation(operator, among, many: bool) -> str:
    what = f"``fulgurite.ops.{operator}``" if isinstance(operator, str) else "As the standard has it"
    takes = "of arrays or Python numbers, at least one of them an array" if many else "of an array"
    return f"{what}, {takes} of {dt.WORDS[among]}. Promotion and special cases are the standard's."


def _unary(name, operator, among):
    compute = operator if callable(operator) else getattr(ops, operator)

    def function(x, /):
        return wrap(compute(array_of(name, "x", x, among)))

    return _named(function, name, _documentation(operator, among, False))


def _binary(name, operator, among):
    compute = operator if callable(operator) else getattr(ops, operator)

    def function(x1, x2, /):
        first, second = promoted(name, {"x1": x1, "x2": x2}, among)
        if first.shape != second.shape:
            broadcast(name, first.shape, second.shape)
        return wrap(compute(first, second))

    return _named(function, name, _documentation(operator, among, True))


def _named(function, name, documentation):
    function.__name__ = function.__qualname__ = name
    function.__module__ = "fulgurite.array_api"
    function.__doc__ = documentation
    return function


FUNCTIONS = {
    **{name: _unary(name, *how) for name, how in _UNARY.items()},
    **{name: _binary(name, *how) for name, how in _BINARY.items()},
}


def clip(x, /, min=None, max=None):
    """Elements below ``min`` are ``min`` and those above ``max`` are ``max``; NaN anywhere gives NaN.

    Bounds are Python numbers that the type of ``x`` has, or arrays whose type promotes to that of ``x``.
    """
    found = array_of("clip", "x", x, dt.NUMBERS)
    for name, bound, choose in (("min", min, ops.maximum), ("max", max, ops.minimum)):
        if bound is None:
            continue
        kept, limit = promoted("clip", {"x": x, name: bound}, dt.NUMBERS)
        if kept.dtype != x.dtype:
            got = f"an array of dtype {limit.dtype.name}"
            raise refusal("clip", name, got, f"one that promotes to that of x, {x.dtype.name}")
        found = choose(found, limit)
    return wrap(found)


def imag(x, /):
    """Refused: there are no complex numbers, and real numbers have no imaginary part in the standard."""
    raise refusal("imag", "x", described(x), "an array of a complex dtype; there are no complex numbers")


FUNCTIONS["clip"] = clip


def _is_operand(value) -> bool:
    return isinstance(value, (bool, int, float, complex, Array))


def _dunder(name: str, swapped: bool):
    function = FUNCTIONS[name]

    def method(self, other, /):
        if not _is_operand(other):
            if hasattr(other, "__dlpack__") or isinstance(other, (Native, Tensor)):
                array_of(name, "other", other)
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method


def _in_place(name: str):
    function = FUNCTIONS[name]

    def method(self, other, /):
        if not _is_operand(other):
            return NotImplemented
        found = function(self, other)
        if found.dtype != self.dtype or found.shape != self.shape:
            got = f"of dtype {found.dtype.name} and shape {found.shape}"
            kept = f"{self.dtype.name} and {self.shape}, which an operation in place keeps"
            raise refusal(name, None, f"the result is {got}", kept)
        self._native = found._native
        return self

    return method


OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
for _python, _name in OPERATORS.items():
    setattr(Array, f"__{_python}__", _dunder(_name, False))
    setattr(Array, f"__r{_python}__", _dunder(_name, True))
    setattr(Array, f"__i{_python}__", _in_place(_name))
for _python, _name in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
                       "ne": "not_equal"}.items():
    setattr(Array, f"__{_python}__", _dunder(_name, False))
for _python, _name in {"abs": "abs", "neg": "negative", "pos": "positive", "invert": "bitwise_invert"}.items():
    setattr(Array, f"__{_python}__", lambda self, /, _function=FUNCTIONS[_name]: _function(self))


def astype(x, dtype, /, *, copy=True, device=None):
    """The array in another type, by conversion: fractions are cut off, numbers that are not 0 are true."""
    native = array_of("astype", "x", x)
    kind = dt.known("astype", "dtype", dtype)
    if device is not None:
        native = x.to_device(device)._native
    if native is x._native and kind == x.dtype and not copy:
        return x
    return wrap(converted(native, kind))
