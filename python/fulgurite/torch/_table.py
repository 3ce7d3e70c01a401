"""PyTorch's functions and methods, and what computes them here: one table of names.

A function whose name the registry has (``torch = "nn.functional.gelu"`` in a declaration) is that operator, with the
arguments that PyTorch's signature names. :data:`TABLE` has the functions that are spelled otherwise, and
:data:`REASONS` says why others are left to PyTorch.
"""

from __future__ import annotations

import builtins
import inspect
import operator as python
from collections.abc import Callable

import torch

from .. import ops
from .._arrays import complex_number
from .._errors import ArgumentError
from .._native import Tensor
from ._exchange import DTYPES, TORCH_DTYPES
from ._library import operator_of

#: Names of PyTorch's functions that are spelled otherwise here.
TABLE: dict[str, Callable] = {}

#: What computes functions of the user's own (:func:`fulgurite.torch.replaces`).
REPLACED: dict[Callable, Callable] = {}

#: Why functions are left to PyTorch.
REASONS = {
    "Tensor.item": "the value is needed in Python, before it is computed",
    "Tensor.tolist": "the values are needed in Python, before they are computed",
    "Tensor.numpy": "the values are needed in Python, before they are computed",
    "nonzero": "the shape of the result depends on the data",
    "Tensor.nonzero": "the shape of the result depends on the data",
    "masked_select": "the shape of the result depends on the data",
    "unique": "the shape of the result depends on the data",
}

#: Arguments that say how a result is stored, and change no value.
_IGNORED = {"memory_format", "layout", "pin_memory", "requires_grad", "_stacklevel", "non_blocking", "copy"}


#: Arguments that ask for more than the operator gives, or for memory that is written; not where they are false.
_ASKED_FOR = {"inplace", "return_indices"}

#: Operators that have `unbiased` alone in PyTorch's older forms.
_VARIANCES = {"var", "std", "var_mean", "std_mean"}

#: Operators that make tensors of PyTorch's default type.
_MADE = {"ones", "zeros", "empty", "full", "rand", "randn", "eye", "linspace", "logspace"}


def _registry() -> dict:
    """Operators by PyTorch's names. Of a composite and a prim of one name the composite promotes as PyTorch does."""
    found: dict = {}
    for each in ops.OPERATORS.values():
        if each.torch and each.kind in ("composite", "prim"):
            if each.torch not in found or each.kind == "composite":
                found[each.torch] = each
    return found


OPERATORS = _registry()


def _paths() -> dict:
    """Names of PyTorch's functions, by the functions."""
    found: dict = {}
    spaces = [(torch, ""), (torch.nn.functional, "nn.functional."), (torch.special, "special."),
              (torch.linalg, "linalg."), (torch.Tensor, "Tensor."), (python, "operator.")]
    for space, prefix in spaces:
        for name, value in vars(space).items():
            if callable(value) and not name.startswith("__"):
                try:
                    found.setdefault(value, []).append(prefix + name)
                except TypeError:
                    continue
    return found


PATHS = _paths()


class Entry:
    """What computes a call, or why nothing does."""

    def __init__(self, name: str, run: Callable | None = None, reason: str = "", mutates: bool = False,
                 operator: str = ""):
        self.name = name
        self.run = run
        self.reason = reason
        self.mutates = mutates
        self.operator = operator or name.rsplit(".", 1)[-1].rstrip("_")


_ENTRIES: dict = {}
# An operator that is declared later may compute what none did.
ops._WATCHERS.append(lambda *_: _ENTRIES.clear())


def entry(kind: str, target) -> Entry:
    """The entry of a node's target: of ``call_function`` a function, of ``call_method`` a name."""
    key = (kind, target)
    try:
        if key in _ENTRIES:
            return _ENTRIES[key]
    except TypeError:
        return Entry(str(target), reason="it is no function of PyTorch")
    if kind == "call_function" and target in REPLACED:
        name = getattr(target, "__qualname__", str(target))
        return Entry(f"{getattr(target, '__module__', '?')}.{name}", REPLACED[target], operator=name)
    _ENTRIES[key] = found = _entry(kind, target)
    return found


def example_of(node):
    """What PyTorch says of a node's value: tensors without data. Dynamo and ``torch.export`` name it differently."""
    return None if node is None else node.meta.get("example_value", node.meta.get("val"))


def _own(operator, call) -> Callable:
    """Calls an operator of ``torch.ops.fulgurite`` with the arguments of its schema."""
    return lambda context, *arguments, **keywords: operator(*call.bound(arguments, keywords))


def namespaces(name: str) -> list[str]:
    """The names under which the registry may have a function of PyTorch."""
    special, linalg = name.removeprefix("special_"), name.removeprefix("linalg_")
    return [name, f"nn.functional.{name}", f"special.{special}", f"linalg.{linalg}", f"Tensor.{name}"]


def _entry(kind: str, target) -> Entry:
    own = operator_of(target) if kind == "call_function" else None
    if own is not None:
        return Entry(f"ops.fulgurite.{own[0].name}", _own(*own), operator=own[0].name)
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        from ._aten import entry_of

        return entry_of(target)
    if kind == "call_method":
        names = [f"Tensor.{target}", target, f"nn.functional.{target}", f"special.{target}", f"linalg.{target}"]
    elif target is builtins.getattr:
        names = ["getattr"]
    else:
        names = list(PATHS.get(target, ()))
        short = getattr(target, "__name__", str(target))
        if not names and getattr(target, "__module__", "").split(".")[0] in ("torch", "_operator", "math"):
            names = [short]
        # `torch.relu` is `nn.functional.relu`, and the registry has one of the names.
        names += [name.removeprefix("nn.functional.") for name in names if name.startswith("nn.functional.")]
        names += [f"nn.functional.{short}", f"Tensor.{short}"] if names else []
    shown = names[0] if names else f"{getattr(target, '__module__', '?')}.{getattr(target, '__name__', target)}"
    for name in names:
        if name in REASONS:
            return Entry(name, reason=REASONS[name])
    for name in names:
        if name in TABLE:
            return Entry(name, TABLE[name], mutates=getattr(TABLE[name], "mutates", False),
                         operator=getattr(TABLE[name], "operator", ""))
        if name in OPERATORS:
            called = _called(OPERATORS[name], target if kind == "call_function" else None)
            return Entry(name, called, operator=OPERATORS[name].name)
    special = names[-1].rsplit(".", 1)[-1] if names else ""
    if special.startswith("__") and special.endswith("__"):
        return _of_python(special, shown)
    # In-place forms: the value that they compute takes the place of their first argument.
    for name in names:
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else None
        if plain and name.startswith("operator."):
            continue
        if plain:
            base = _entry("call_method", plain.removeprefix("Tensor.")) if kind == "call_method" else None
            if base is not None and base.run is not None:
                return Entry(name, base.run, mutates=True)
    if shown.startswith("operator.i") and f"operator.{shown[10:]}" in TABLE:
        return Entry(shown, TABLE[f"operator.{shown[10:]}"], mutates=True)
    return Entry(shown, reason=f"no operator computes torch.{shown}")


def _of_python(name: str, shown: str) -> Entry:
    """The entry of a method that Python calls for an operator: ``__eq__``, ``__radd__``."""
    plain = getattr(python, name, None)
    if plain is not None:
        return entry("call_function", plain)
    turned = getattr(python, f"__{name[3:]}", None) if name.startswith("__r") else None
    found = None if turned is None else entry("call_function", turned)
    if found is None or found.run is None:
        return Entry(shown, reason=f"no operator computes torch.{shown}")
    return Entry(found.name, lambda context, a, b: found.run(context, b, a), operator=found.operator)


def _called(operator, target) -> Callable:
    """Calls an operator with PyTorch's arguments."""
    names = [name for name, *_ in operator.params]
    first_list = [i for i, param in enumerate(operator.params[:2]) if param[2].rstrip("?") in ("int[]", "size[]")]
    theirs = None
    if inspect.isfunction(target):
        signature = inspect.signature(target)
        if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
            theirs = signature.parameters

    def call(context, *arguments, **keywords):
        arguments = list(arguments)
        if operator.name in _VARIANCES and len(arguments) == 2 and isinstance(arguments[1], bool):
            # `x.var(False)` is PyTorch's older form with `unbiased` alone.
            keywords["correction"] = int(arguments.pop())
        if first_list and len(arguments) > first_list[0] + 1:
            # `x.permute(0, 2, 1)`, `torch.ones(2, 3)`
            at = first_list[0]
            # `x.roll(1, 0)` has another parameter for the second.
            behind = operator.params[at + 1][2] if at + 1 < len(names) else ""
            if "int" not in behind and "size" not in behind and all(type(each) is int for each in arguments[at:]):
                arguments[at:] = [arguments[at:]]
        if theirs is not None:
            named = dict(zip(theirs, arguments))
            named.update(keywords)
            arguments = []
        else:
            named = dict(keywords)
        for name in list(named):
            if name in names:
                continue
            value = named.pop(name)
            if name == "inplace" and value:
                context.mutates = True
                continue
            default = theirs[name].default if theirs is not None and name in theirs else None
            harmless = name in _IGNORED or value is None or _equal(value, default)
            harmless = harmless or (name in _ASKED_FOR and value is False)
            if name == "layout" and value not in (None, torch.strided):
                harmless = False
            if name == "device" and value is not None:
                harmless = device_name(value) == context.device
            if not harmless:
                raise ArgumentError(
                    f"{operator.name}: PyTorch's argument '{name}' is {value!r:.40}, which the operator does not have",
                    operator=operator.name, argument=name)
        if "device" in names and len(arguments) <= names.index("device"):
            example = example_of(context.node)
            if named.get("device") is not None:
                named["device"] = device_name(named["device"])
            elif isinstance(example, torch.Tensor) and example.device.type != "cpu":
                # PyTorch's default device, or the one that a context manager sets.
                named["device"] = device_name(example.device)
        if operator.name in _MADE and torch.get_default_dtype() != torch.float32 and named.get("dtype") is None:
            fill = named.get("fill_value", arguments[1] if operator.name == "full" and len(arguments) > 1 else 0.0)
            if isinstance(fill, float) and len(arguments) <= names.index("dtype"):
                named["dtype"] = torch.get_default_dtype()
        if "generator" in names and named.get("generator") is None and _draws(operator, names, arguments, named):
            named["generator"] = context.generator()
        return operator(*_with_complex(arguments), **named)

    return call


def device_name(device) -> str:
    """Our name of a device of PyTorch's. `cuda` is the current one."""
    device = torch.device(device)
    if device.type == "cpu":
        return "cpu"
    index = device.index
    if index is None:
        index = torch.cuda.current_device() if device.type == "cuda" and torch.cuda.is_available() else 0
    return f"{device.type}:{index}"


def _equal(value, default) -> bool:
    """Whether an argument is PyTorch's default; tensors have an elementwise `==`."""
    return type(value) is type(default) and not isinstance(value, Tensor) and bool(value == default)


def _draws(operator, names, arguments, named) -> bool:
    """Whether a call of an operator with a generator draws random numbers."""

    def given(name):
        if name in named:
            return named[name]
        at = names.index(name)
        return arguments[at] if at < len(arguments) else operator.params[at][5]

    if "training" in names and not given("training"):
        return False
    chance = next((name for name in ("dropout_p", "p") if name in names), None)
    return chance is None or given(chance) > 0


def named(*names: str):
    """Puts a function into the table under names of PyTorch's."""

    def add(function):
        TABLE.update({name: function for name in names})
        return function

    return add


def _any_tensor(*values) -> bool:
    return any(isinstance(value, Tensor) for value in values)


def _with_complex(arguments) -> list:
    """The arguments of an operator, complex numbers as tensors, which it takes where it takes operands."""
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    if not tensors or not any(isinstance(value, complex) for value in arguments):
        return list(arguments)
    # The widest of them keeps the digits of the number.
    beside = max(tensors, key=lambda tensor: tensor.dtype.name in ("float64", "complex128"))
    return [complex_number(value, beside) if isinstance(value, complex) else value for value in arguments]


def _arithmetic(name: str, function: Callable, operator: str) -> None:
    def call(context, *arguments, **keywords):
        if not _any_tensor(*arguments):
            return function(*arguments, **keywords)
        return getattr(ops, operator)(*_with_complex(arguments), **keywords)

    call.operator = operator
    TABLE[f"operator.{name}"] = call


for _name, _operator in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "neg": "neg", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq",
    "ne": "ne", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "abs": "abs", "pos": "positive",
}.items():
    _arithmetic(_name, getattr(python, _name), _operator)


@named("getattr")
def _getattr(context, value, name, *default):
    if not isinstance(value, Tensor):
        return getattr(value, name, *default)
    if name == "dtype":
        return TORCH_DTYPES[value.dtype.name]
    if name == "device":
        return torch.device(value.device)
    if name in ("shape", "ndim", "T", "mT"):
        found = getattr(value, name)
        return torch.Size(found) if name == "shape" else found
    if name == "is_cuda":
        return value.device.startswith("cuda")
    if name in ("real", "imag"):
        return getattr(ops, name)(value)
    raise ArgumentError(f"getattr: a traced value has no '{name}'")


@named("mH", "matrix_H", "adjoint", "Tensor.adjoint")
def _adjoint(context, value):
    return ops.conj(ops.transpose(value, -2, -1)) if value.ndim else value


@named("Tensor.size")
def _size(context, value, dim=None):
    return torch.Size(value.shape) if dim is None else value.shape[dim]


@named("Tensor.dim", "Tensor.ndimension")
def _dim(context, value):
    return value.ndim


@named("Tensor.numel", "numel", "Tensor.nelement")
def _numel(context, value):
    return value.numel()


@named("Tensor.contiguous", "Tensor.clone", "clone")
def _same(context, value, **_):
    return value


@named("Tensor.cpu")
def _cpu(context, value, **_):
    return _to(context, value, device="cpu")


@named("Tensor.is_floating_point", "is_floating_point")
def _is_floating(context, value):
    return value.dtype.is_floating_point


@named("Tensor.is_complex", "is_complex")
def _is_complex(context, value):
    return value.dtype.is_complex


def converted(value, dtype):
    """The tensor in an element type of PyTorch's."""
    if dtype not in DTYPES:
        raise ArgumentError(f"to: there is no element type {dtype}", operator="to", argument="dtype")
    return value if DTYPES[dtype] == value.dtype else ops.to(value, dtype=DTYPES[dtype])


@named("Tensor.to")
def _to(context, value, *arguments, **keywords):
    wanted, device = keywords.get("dtype"), keywords.get("device")
    for argument in arguments:
        if isinstance(argument, torch.dtype):
            wanted = argument
        elif isinstance(argument, Tensor):
            wanted = TORCH_DTYPES[argument.dtype.name]
        elif not isinstance(argument, bool) and argument is not None:
            device = argument
    if device is not None and device_name(device) != value.device:
        raise ArgumentError(f"to: a traced value stays on {value.device}, {device} is asked for", operator="to")
    return value if wanted is None else converted(value, wanted)


for _name, _dtype in {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "long": torch.int64,
                      "double": torch.float64, "int": torch.int32, "short": torch.int16, "char": torch.int8,
                      "bool": torch.bool}.items():
    TABLE[f"Tensor.{_name}"] = lambda context, value, _dtype=_dtype, **_: converted(value, _dtype)


@named("split", "Tensor.split")
def _split(context, value, size, dim=0):
    if isinstance(size, int):
        return ops.split(value, size, dim)
    return ops.split_with_sizes(value, list(size), dim)


@named("arange")
def _arange(context, *arguments, start=None, end=None, step=None, dtype=None, device=None, **others):
    known("arange", others)
    # `arange(end)`, `arange(start, end, step)`, and each of them by name.
    given = list(arguments)
    if len(given) == 1 and end is None:
        end = given.pop()
    start = given.pop(0) if given else start
    end = given.pop(0) if given else end
    step = given.pop(0) if given else step
    start, step = 0 if start is None else start, 1 if step is None else step
    if dtype is None and any(isinstance(each, float) for each in (start, end, step)):
        dtype = torch.get_default_dtype()
    return ops.arange(start, end, step, dtype=dtype, device=device_name(device or context.device))


@named("torch._C._log_api_usage_once", "_log_api_usage_once")
def _log_api_usage_once(context, *_):
    return None


def known(name: str, others: dict) -> None:
    """An error if a call has other arguments than those that change no value."""
    for argument, value in others.items():
        ignored = argument in _IGNORED and (argument != "layout" or value is torch.strided)
        if not ignored and value is not None:
            raise ArgumentError(f"{name}: PyTorch's argument '{argument}' is {value!r:.40}, which is not known here",
                                operator=name, argument=argument)


def _filled(context, value, size, number, dtype, device):
    size = [size] if isinstance(size, int) else list(size)
    dtype = DTYPES[dtype] if dtype is not None else value.dtype
    return ops.full(size, number, dtype=dtype, device=device_name(device or value.device))


def _sizes(sizes, size):
    if size is not None:
        return size
    return sizes[0] if len(sizes) == 1 else sizes


@named("Tensor.new_zeros")
def _new_zeros(context, value, *sizes, size=None, dtype=None, device=None, **others):
    known("new_zeros", others)
    return _filled(context, value, _sizes(sizes, size), 0, dtype, device)


@named("Tensor.new_ones")
def _new_ones(context, value, *sizes, size=None, dtype=None, device=None, **others):
    known("new_ones", others)
    return _filled(context, value, _sizes(sizes, size), 1, dtype, device)


@named("Tensor.new_full")
def _new_full(context, value, size, fill_value, dtype=None, device=None, **others):
    known("new_full", others)
    return _filled(context, value, size, fill_value, dtype, device)


@named("nn.functional.batch_norm")
def _batch_norm(context, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1,
                eps=1e-5):
    if momentum is None:
        raise ArgumentError("batch_norm: momentum is None", operator="batch_norm", argument="momentum")
    out, mean, var = ops.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and running_mean is not None:
        context.replace(1, mean, "running_mean")
        context.replace(2, var, "running_var")
    return out


@named("nn.functional.instance_norm")
def _instance_norm(context, input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                   momentum=0.1, eps=1e-5):
    out, mean, var = ops.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    if use_input_stats and running_mean is not None:
        context.replace(1, mean, "running_mean")
        context.replace(2, var, "running_var")
    return out


@named("torch._C._set_grad_enabled", "_set_grad_enabled")
def _set_grad_enabled(context, enabled):
    context.constant = not enabled


@named("_enter_autocast")
def _enter_autocast(context, device, dtype=None, enabled=True, *_):
    if enabled:
        raise ArgumentError("autocast: use fulgurite.jit(module, autocast=...), which has classes of its own")


@named("_exit_autocast")
def _exit_autocast(context, *_):
    return None


@named("Tensor.detach", "detach", "Tensor.detach_")
def _detach(context, value):
    # Of integers there is no gradient to leave out.
    return ops.detach(value) if value.dtype.is_floating_point or value.dtype.is_complex else value


@named("einsum")
def _einsum(context, equation, *operands):
    listed = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    return ops.einsum(equation, list(operands[0] if listed else operands))


@named("meshgrid")
def _meshgrid(context, *tensors, indexing="ij"):
    listed = len(tensors) == 1 and isinstance(tensors[0], (list, tuple))
    return ops.meshgrid(list(tensors[0] if listed else tensors), indexing=indexing)


def _extreme(of_all: str, of_dim: str, of_two: str):
    """`torch.max(x)`, `torch.max(x, dim)` and `torch.max(x, other)` are three operators."""

    def call(context, value, *arguments, **keywords):
        if not arguments and not keywords:
            return getattr(ops, of_all)(value)
        if _any_tensor(*arguments[:1], keywords.get("other")):
            return getattr(ops, of_two)(value, *arguments, **keywords)
        return getattr(ops, of_dim)(value, *arguments, **keywords)

    return call


TABLE["max"] = TABLE["Tensor.max"] = _extreme("amax", "max", "maximum")
TABLE["min"] = TABLE["Tensor.min"] = _extreme("amin", "min", "minimum")
TABLE["T"] = TABLE["Tensor.T"] = lambda context, value: value.T
TABLE["mT"] = TABLE["Tensor.mT"] = lambda context, value: value.mT


@named("Tensor.type")
def _type(context, value, dtype, *_):
    return converted(value, dtype)
