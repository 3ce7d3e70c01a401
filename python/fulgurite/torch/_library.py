"""``torch.ops.fulgurite.*``: every operator of the registry by ``torch.library``.

Schema, fake implementation, kernels, autograd and autocast are made from the declarations. ``fulgurite::rms_norm`` is
the operator ``rms_norm``, ``fulgurite::prims_exp`` the prim ``prims::exp``. Where a parameter is a tensor or a number,
there is an overload for each. ``fulgurite::rms_norm_vjp`` has the gradients: it computes the forward pass again.
Results never share memory with arguments, so that operators that are views elsewhere are copies here.
"""

from __future__ import annotations

import functools
import itertools

import torch

from .._errors import Error
from .._native import Front, Kernel, Meta
from ..ops import OPERATORS, _WATCHERS
from ._exchange import DTYPES, TORCH_DTYPES, cross, has_gradient
from ._sizes import inferred

#: Operators that are not registered, with the reason.
REFUSED: dict[str, str] = {}

_TYPES = {"bool": "bool", "int": "SymInt", "size": "SymInt", "float": "float", "number": "Scalar", "str": "str",
          "dtype": "ScalarType"}
_LIBRARY: torch.library.Library | None = None
_DEVICES = ("CPU", "CUDA")


class _Refused(Exception):
    """Why an operator has no schema."""


def _attribute(type_name: str) -> str:
    """An attribute's type in a schema."""
    if type_name.endswith("?"):
        return _attribute(type_name[:-1]) + "?"
    if type_name.endswith("[]"):
        if type_name[:-2].endswith("[]"):
            raise _Refused(f"PyTorch's schemas have no type for {type_name}")
        return _attribute(type_name[:-2]) + "[]"
    if type_name.startswith('"'):
        return "str"
    if "|" in type_name:
        # `size[]|"same"|"valid"`: an overload with words has them as a string.
        return _attribute(type_name.split("|")[0])
    if type_name not in _TYPES:
        raise _Refused(f"PyTorch's schemas have no type for {type_name}")
    return _TYPES[type_name]


def mixed(type_name: str) -> bool:
    """Whether a parameter takes words beside another type: ``size[]|"same"|"valid"``."""
    return '|"' in type_name and not type_name.startswith('"')


def _default(value) -> str | None:
    """A default in a schema; nothing if it cannot be written there."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value) if not isinstance(value, float) or abs(value) != float("inf") else None
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        parts = [_default(part) for part in value]
        return None if None in parts else f"[{', '.join(parts)}]"
    return None


def _parameters(operator, numbers: frozenset) -> str:
    """The parameters of a schema, where the operands of these names are numbers, or words."""
    given = [i for i, param in enumerate(operator.params) if not param[4] or (param[0] in numbers and mixed(param[2]))]
    last_required = max(given, default=-1)
    parts = []
    for i, (name, kind, type_name, _, has_default, default) in enumerate(operator.params):
        of = {"tensor": "Tensor", "optional": "Tensor?", "list": "Tensor[]"}.get(kind)
        if kind == "operand":
            of = "Scalar" if name in numbers else "Tensor"
        if of is None:
            of = "str" if name in numbers else _attribute(type_name)
        text = _default(default) if has_default else None
        if of == "str" and name in numbers:
            # The default is of the other type.
            text, has_default = None, False
        if has_default and text is None:
            # `None` stands for the declared default.
            of, text = of if of.endswith("?") else of + "?", "None"
        if has_default and of == "Tensor":
            raise _Refused(f"'{name}' is a tensor with a default that is a number")
        # Schemas have no required parameter behind optional ones.
        parts.append(f"{of} {name}" + (f"={text}" if text is not None and i > last_required else ""))
    return ", ".join(parts)


def _returns(operator) -> str:
    if operator.results is None:
        return "Tensor[]"
    return "Tensor" if len(operator.results) == 1 else f"({', '.join(['Tensor'] * len(operator.results))})"


def _overloads(operator):
    """The operands that are numbers or words, and the overload's name."""
    operands = [name for name, kind, *_ in operator.params if kind == "operand"]
    tensors = any(kind in ("tensor", "list") for _, kind, *_ in operator.params)
    # What makes a tensor of numbers says where (`linspace`).
    makes = tensors or not operands or any(name == "device" for name, *_ in operator.params)
    for count in range(len(operands) + 1):
        for numbers in itertools.combinations(operands, count):
            if makes or count < len(operands):
                yield frozenset(numbers), "_".join((*numbers, "Scalar")) if numbers else ""
    for name, _, type_name, *_ in operator.params:
        if mixed(type_name):
            yield frozenset({name}), f"{name}_str"


class _Call:
    """One overload of an operator: how PyTorch's arguments become ours."""

    def __init__(self, operator, name: str, overload: str):
        self.operator = operator
        self.name = name
        self.overload = overload
        self.params = operator.params
        self.single = operator.results is not None and len(operator.results) == 1
        self.listed = any(kind == "list" for _, kind, *_ in self.params)
        self.kernel = Kernel(operator)

    @functools.cached_property
    def overloaded(self):
        """What PyTorch made of it."""
        return getattr(getattr(torch.ops.fulgurite, self.name), self.overload or "default")

    @functools.cached_property
    def derivative(self):
        """What PyTorch made of the operator that computes its gradients."""
        return getattr(getattr(torch.ops.fulgurite, f"{self.name}_vjp"), self.overload or "default")

    @property
    def qualified(self) -> str:
        return f"fulgurite::{self.name}" + (f".{self.overload}" if self.overload else "")

    def bound(self, arguments, keywords) -> list:
        """The arguments in the order of the signature, defaults included."""
        values = list(arguments)
        for name, _, _, _, _, default in self.params[len(values):]:
            values.append(keywords.get(name, default))
        for i, (_, kind, _, _, has_default, default) in enumerate(self.params):
            # `None` stands for a default that no schema can have.
            if values[i] is None and has_default and kind == "attribute":
                values[i] = default
        return values

    def mapped(self, values, tensor, size=None) -> tuple:
        """The arguments with each tensor replaced, and each size that is a symbol."""

        def one(value):
            if isinstance(value, torch.Tensor):
                return tensor(value)
            if size is not None and isinstance(value, torch.SymInt):
                return size(value)
            if isinstance(value, (list, tuple)):
                return [one(item) for item in value]
            return value

        return tuple(one(value) for value in values)

    def returned(self, results):
        if self.single:
            return results[0]
        return list(results) if self.operator.results is None else tuple(results)

    def results(self, value) -> list:
        return [value] if self.single else list(value)

    def crossed(self, values, others=()):
        """The arguments with arrays for tensors, the arrays of further tensors, and the call in which they cross."""
        tensors: list = []

        def place(tensor):
            tensors.append(tensor)
            return _Place(len(tensors) - 1)

        form = self.mapped(values, place)
        count = len(tensors)
        call = cross([*tensors, *others])
        arrays = call.arrays
        return tuple(_filled(value, arrays) for value in form), arrays[count:], call

    def mixed_precision(self, device: str, keys):
        """What runs under ``torch.autocast``: the operands in the types of the operator's class, then the operator."""

        def run(*arguments, **keywords):
            values = self.bound(arguments, keywords)
            values = _cast(self.operator, self.params, values, torch.get_autocast_dtype(device.lower()))
            packet = getattr(torch.ops.fulgurite, self.name)
            # Within the call nothing is converted again.
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return getattr(packet, self.overload or "default")(*values)

        return run

    def fake(self, *arguments, **keywords):
        def infer(values, number):
            """The metas of the results, where ``number`` says what a size is."""
            return self.results(self.operator.infer(*self.mapped(values, lambda each: _meta(each, number), number)))

        found = inferred(infer, self.bound(arguments, keywords))
        made = [torch.empty(shape, dtype=TORCH_DTYPES[dtype.name], device=device) for shape, dtype, device in found]
        return self.returned(made)

    def tensors(self, values):
        """Names and tensors of the arguments; ``tensors.0`` is the first of a list."""
        for (name, kind, *_), value in zip(self.params, values):
            if isinstance(value, torch.Tensor):
                yield name, value
            elif kind == "list":
                yield from ((f"{name}.{i}", item) for i, item in enumerate(value))

    # Gradients: an operator of their own, so that they are one node in the graphs of torch.compile.

    def backward_kernel(self, cotangents, wrt, *arguments, **keywords):
        values = self.bound(arguments, keywords)
        names = [name for name, _ in self.tensors(values)]
        values, others, call = self.crossed(values, [each for each in cotangents if each is not None])
        arrays = iter(others)
        given = [None if cotangent is None else next(arrays) for cotangent in cotangents]
        return call.results(self.operator.gradients(values, [names[i] for i in wrt], given))

    def backward_fake(self, cotangents, wrt, *arguments, **keywords):
        tensors = [tensor for _, tensor in self.tensors(self.bound(arguments, keywords))]
        return [torch.empty(tensors[i].shape, dtype=tensors[i].dtype, device=tensors[i].device) for i in wrt]

    def differentiated(self, *arguments):
        """The call with its derivative, where :class:`Front` knows that the kernel alone comes behind autograd."""
        if self.listed:
            return self.before_autograd(None, *arguments)
        output = _Differentiated.apply(self, None, None, *arguments)
        return output if self.single else self.returned(self.results(output))

    def before_autograd(self, keys, *arguments):
        """The call where :class:`Front` does not know that it is the kernel's alone."""
        tensors: list = []

        def place(tensor):
            tensors.append(tensor)
            return _Place(len(tensors) - 1)

        form = self.mapped(arguments, place)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self.returned(self.results(_Differentiated.apply(self, keys, form, *tensors)))
        return self.below_autograd(keys, arguments)

    def below_autograd(self, keys, arguments):
        """The call as the dispatcher goes on with it behind autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.overloaded.redispatch(keys & torch._C._after_autograd_keyset, *arguments)


class _Differentiated(torch.autograd.Function):
    """A call of an operator with its derivative.

    Autograd sees the tensors among the function's arguments, and none in a list. ``values`` are the arguments of the
    call, or with a ``form`` the tensors in it. Without ``keys`` the kernel is called as it is: the dispatcher would
    come to it as well.
    """

    @staticmethod
    def forward(ctx, call, keys, form, *values):
        arguments = values if form is None else [_filled(value, values) for value in form]
        output = call.kernel(*arguments) if keys is None else call.below_autograd(keys, arguments)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.form = call, form
        ctx.places = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*[values[i] for i in ctx.places])
        # A graph does not hold its tensors otherwise.
        ctx.others = [None if isinstance(value, torch.Tensor) else value for value in values]
        fixed = [each for each in call.results(output) if not has_gradient(each)]
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        return output if call.single else tuple(output)

    @staticmethod
    def backward(ctx, *cotangents):
        call, saved, needed = ctx.call, iter(ctx.saved_tensors), ctx.needs_input_grad[3:]
        values, places = list(ctx.others), ctx.places
        for place in places:
            values[place] = next(saved)
        found = {}
        wrt = [i for i, place in enumerate(places) if needed[place]]
        if wrt and any(cotangent is not None for cotangent in cotangents):
            arguments = values if ctx.form is None else [_filled(value, values) for value in ctx.form]
            gradients = call.derivative(list(cotangents), wrt, *call.bound(arguments, {}))
            found = dict(zip((places[i] for i in wrt), gradients))
        return (None, None, None, *(found.get(i) for i in range(len(values))))


def is_direct(keys) -> bool:
    """Whether the dispatcher calls a kernel for the host or CUDA behind autograd, for these keys."""
    below = (keys & torch._C._after_autograd_keyset).remove(torch._C.DispatchKey.ADInplaceOrView)
    return below.highestPriorityTypeId() in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


_WIDTHS = (torch.float16, torch.bfloat16, torch.float32)


def _cast(operator, params, values, low: torch.dtype) -> list:
    """The arguments of a call under autocast, by the operator's class (see the chapter "Mixed precision")."""
    tensors = [each for value in values for each in (value if isinstance(value, (list, tuple)) else [value])
               if isinstance(each, torch.Tensor) and each.is_floating_point()]
    kinds = {each.dtype for each in tensors}
    if not kinds or not kinds <= set(_WIDTHS):
        # f64 stays, and everything beside it.
        return values
    wanted = low
    if operator.autocast == "full":
        wanted = torch.float32
        at = next((i for i, (name, _, kind, *_) in enumerate(params) if name == "dtype" and kind == "dtype?"), None)
        if at is not None:
            # The operator computes in f32 of operands as they are.
            values[at] = torch.float32 if values[at] is None else values[at]
            return values
    elif operator.autocast == "widest":
        # f16 and bf16 meet in f32.
        wanted = kinds.pop() if len(kinds) == 1 else torch.float32

    def one(value):
        return value.to(wanted) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    kept = operator.autocast_keeps
    return [value if name in kept else [one(each) for each in value] if isinstance(value, (list, tuple)) else one(value)
            for (name, *_), value in zip(params, values)]


class _Place:
    """A tensor in the form of a call."""

    def __init__(self, index: int):
        self.index = index


def _filled(value, tensors):
    """A part of a form with the tensors in their places."""
    if isinstance(value, _Place):
        return tensors[value.index]
    return [_filled(item, tensors) for item in value] if isinstance(value, list) else value


def _meta(tensor: torch.Tensor, number) -> Meta:
    if tensor.dtype not in DTYPES:
        raise Error(f"a tensor has dtype {tensor.dtype}, expected one of {', '.join(TORCH_DTYPES)}", code="DType")
    return Meta([number(extent) for extent in tensor.shape], DTYPES[tensor.dtype], str(tensor.device))


def _no_second_derivative(name: str):
    def backward(ctx, *_):
        raise NotImplementedError(
            f"fulgurite::{name} has no derivative: second derivatives of operators in PyTorch are not supported; "
            "fulgurite.grad of a function of arrays nests"
        )

    return backward


def register() -> None:
    """Registers all operators; a second call does nothing."""
    global _LIBRARY
    if _LIBRARY is not None:
        return
    _LIBRARY = torch.library.Library("fulgurite", "DEF")
    for operator in list(OPERATORS.values()):
        if operator.name not in REFUSED:
            _try_register(operator, _LIBRARY)
    _WATCHERS.append(_declared)


#: The libraries of operators that are declared later, each with one.
_LATER: dict[str, torch.library.Library] = {}


def _declared(operator, there: bool) -> None:
    """Registers an operator that is declared later, or forgets one that is withdrawn."""
    REFUSED.pop(operator.name, None)
    if there:
        _LATER[operator.name] = torch.library.Library("fulgurite", "FRAGMENT")
        _try_register(operator, _LATER[operator.name])
    elif operator.name in _LATER:
        _LATER.pop(operator.name)._destroy()


def operator_of(target):
    """The operator of a function of ``torch.ops.fulgurite``, and how PyTorch's arguments become its own; or nothing."""
    packet = getattr(target, "overloadpacket", target)
    namespace, _, name = getattr(packet, "_qualified_op_name", "").partition("::")
    if namespace != "fulgurite":
        return None
    found = next((each for each in OPERATORS.values() if each.name.replace("::", "_") == name), None)
    return found and (found, _Call(found, name, ""))


def _try_register(operator, library) -> None:
    if operator.kind not in ("prim", "composite"):
        REFUSED[operator.name] = "a kernel symbol of an executor: the operators that it implements call it"
    elif operator.collective:
        REFUSED[operator.name] = "a collective: it is run by the programs of several ranks"
    else:
        try:
            _register(operator, library)
        except _Refused as refused:
            REFUSED[operator.name] = str(refused)


def _register(operator, library) -> None:
    name = operator.name.replace("::", "_")
    tags = (torch.Tag.pt2_compliant_tag,)
    for numbers, overload in _overloads(operator):
        call = _Call(operator, name, overload)
        parameters = _parameters(operator, numbers)
        suffix = f".{overload}" if overload else ""
        library.define(f"{name}{suffix}({parameters}) -> {_returns(operator)}", tags=tags)
        for device in _DEVICES:
            library.impl(f"{name}{suffix}", call.kernel, device)
        tensors = [name for name, kind, *_ in operator.params if kind != "attribute" and name not in numbers]
        if not tensors:
            # What makes a tensor of no tensor has no device by which it is found.
            library.impl(f"{name}{suffix}", call.kernel, "CompositeExplicitAutograd")
            torch.library.register_fake(call.qualified, call.fake, lib=library)
            continue
        torch.library.register_fake(call.qualified, call.fake, lib=library)
        if operator.autocast in ("low", "full", "widest"):
            keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
            keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
            for device in _DEVICES:
                library.impl(f"{name}{suffix}", call.mixed_precision(device, keys), f"Autocast{device}")
        library.define(
            f"{name}_vjp{suffix}(Tensor?[] cotangents, int[] wrt, {parameters}) -> Tensor[]", tags=tags
        )
        for device in _DEVICES:
            library.impl(f"{name}_vjp{suffix}", call.backward_kernel, device)
        backward = f"fulgurite::{name}_vjp{suffix}"
        torch.library.register_fake(backward, call.backward_fake, lib=library)
        torch.library.register_autograd(
            backward, _no_second_derivative(f"{name}_vjp"), setup_context=lambda *_, **__: None, lib=library
        )
        front = Front(operator, call.differentiated, call.before_autograd)
        library.impl(f"{name}{suffix}", front, "Autograd", with_keyset=True)
