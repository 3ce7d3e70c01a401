"""Functions of arrays that are traced and compiled, and their derivatives."""

from __future__ import annotations

import collections
import functools
import inspect
import sys
from collections.abc import Sequence

from . import _native
from ._errors import ArgumentError, Error, not_called
from ._executor import executor_names
from ._explanation import Explanation
from ._native import Array, Tensor, Trace
from ._trees import Leaves, flatten, join, unflatten
from .transforms import _native as native_transforms


class Traces(list):
    """Traces in the order of the stages that made them. A notebook shows them as one page."""

    def __getitem__(self, which):
        """By number, or by the name of a stage: ``traces["claim"]``."""
        if isinstance(which, str):
            for trace in self:
                if trace.stage == which:
                    return trace
            if not self:
                raise KeyError(f"no stage is called {which!r}: there is no program; the last call compiled and ran "
                               "none")
            raise KeyError(f"no stage is called {which!r}, there are: {', '.join(each.stage for each in self)}")
        found = super().__getitem__(which)
        return Traces(found) if isinstance(which, slice) else found

    def __str__(self) -> str:
        return "\n".join(str(trace) for trace in self)

    def _repr_html_(self) -> str:
        return _native.show(list(self))


def scope(name: str, function):
    """Calls ``function`` with names in the trace prefixed by ``name``: ``scope("attn", lambda: softmax(x, -1))``."""
    return _native.scope(name, function)


def _positional_names(function) -> tuple[list[str], str]:
    """Names of positional parameters, and of the one that takes the rest."""
    names, rest = [], "args"
    try:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                rest = parameter.name
    except (TypeError, ValueError):
        pass
    return names, rest


class _Arguments:
    """How the arguments of one function are flattened; forms that were seen are kept."""

    def __init__(self, function):
        self.names, self.rest = _positional_names(function)
        self.forms: dict = {}

    def path(self, index: int) -> str:
        names = self.names
        return names[index] if index < len(names) else join(self.rest, index - len(names))

    def flatten(self, arguments, keywords):
        leaves = Leaves()
        structure = (
            tuple(flatten(each, self.path(i), leaves) for i, each in enumerate(arguments)),
            tuple((name, flatten(each, name, leaves)) for name, each in keywords.items()),
        )
        return leaves, structure

    def form(self, leaves: Leaves, structure):
        try:
            form = self.forms.get(structure)
        except TypeError:
            raise ArgumentError("an argument that is no array cannot be hashed") from None
        if form is None:
            form = self.forms[structure] = _native.Form(leaves.paths, str(len(self.forms)), structure)
        return form


def _unflatten_arguments(structure, tensors):
    leaves = iter(tensors)
    positional, named = structure
    arguments = [unflatten(part, leaves) for part in positional]
    return arguments, {name: unflatten(part, leaves) for name, part in named}


def _results(function_name: str, result):
    """What a traced function returned, as the compiler takes it."""
    leaves = Leaves()
    structure = flatten(result, "result", leaves)
    for path, leaf in zip(leaves.paths, leaves.arrays):
        if isinstance(leaf, Array):
            raise Error(
                f"{function_name}: returns an array at '{path}' that it did not compute from its arguments; return "
                "such arrays outside of the traced function",
                code="Constant",
            )
    return leaves.arrays, leaves.paths, structure


def _name_of(function) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "function"


class Function:
    """A compiled function; see :func:`jit`."""

    def __init__(self, function, executors=None, transforms=(), device=None, autocast=None):
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._arguments = _Arguments(function)
        self._options = dict(
            executors=executor_names(executors),
            transforms=native_transforms(transforms),
            device=device,
            autocast=autocast,
        )
        self._name = _name_of(function)
        self._native = _native.Function(self._trace, self._name, **self._options)
        self._vjp = None

    def _trace(self, structure, tensors):
        arguments, keywords = _unflatten_arguments(structure, tensors)
        return _results(self._name, self._function(*arguments, **keywords))

    def __call__(self, *arguments, **keywords):
        leaves, structure = self._arguments.flatten(arguments, keywords)
        if any(isinstance(leaf, Tensor) for leaf in leaves.arrays):
            # A compiled function in a traced one is a part of that one.
            asked = [name for name, value in self._options.items() if value]
            if asked:
                raise ArgumentError(
                    f"{self._name}: is called in a traced function, where its own '{asked[0]}' has no effect: give it "
                    "to the function that is compiled", operator=self._name, argument=asked[0])
            return self._function(*arguments, **keywords)
        form = self._arguments.form(leaves, structure)
        arrays, of = self._native.call(form, leaves.arrays)
        return unflatten(of, iter(arrays))

    @property
    def compiles(self) -> int:
        """How often it was compiled, its vjp included."""
        return self._native.compiles + (self._vjp.compiles if self._vjp else 0)

    def last_traces(self, target: str | None = None) -> Traces:
        """The program of the last call after each stage."""
        return Traces(self._native.stages(target))

    def last_backward_traces(self, target: str | None = None) -> Traces:
        """The backward program of the last ``fulgurite.vjp`` after each stage."""
        return Traces(self._vjp.stages("backward", target) if self._vjp else [])

    def explain(self, target: str | None = None) -> Explanation:
        """Which executor took which line of the last call, and why others did not."""
        if self._native.compiles == 0:
            raise not_called(self._name)
        return Explanation(self._native.explain(target))

    def _vjp_function(self):
        if self._vjp is None:
            self._vjp = _native.VjpFunction(self._trace, self._name, [], **self._options)
        return self._vjp


def jit(function=None, *, executors: Sequence[str] | None = None, transforms=(), device=None, autocast=None,
        strict=False, buckets=None):
    """A function that is traced and compiled when it is first called, and again when its arguments change form.

    Parameters
    ----------
    function : callable, torch.nn.Module or torch.export.ExportedProgram
        A function of arrays and of dictionaries, lists, tuples and dataclasses of them; arrays of other libraries are
        used without a copy. Other values (numbers, strings) are known when it is traced: another value compiles again.
        A module of PyTorch, or an exported program, is compiled by :func:`fulgurite.torch.jit`.
    executors : list of str or Executor, optional
        Executors in the order in which they are asked; ``"default"`` stands for the default ones that are not named.
    transforms : list, optional
        Functions from trace to trace; see :mod:`fulgurite.transforms`.
    device : str, optional
        Where the program runs: arguments on the host are copied to it.
    autocast : dtype or str, optional
        ``"bfloat16"`` or ``"float16"`` for mixed precision.
    strict : bool, optional
        Of a module: whether what no operator computes is an error; otherwise it is left to PyTorch.
    buckets : dict, optional
        Of a module: sizes to which the batch is padded, ``{"x": {0: [8, 32]}}``; see :func:`fulgurite.torch.jit`.
    """
    if function is None:
        return functools.partial(
            jit, executors=executors, transforms=transforms, device=device, autocast=autocast, strict=strict,
            buckets=buckets
        )
    torch = sys.modules.get("torch")
    exported = getattr(getattr(torch, "export", None), "ExportedProgram", ())
    compiled = getattr(sys.modules.get("fulgurite.torch"), "CompiledModule", ())
    if torch is not None and isinstance(function, (torch.nn.Module, exported, compiled)):
        from . import torch as of_torch

        if device is not None:
            raise ArgumentError("jit: a module runs where its parameters are: use module.to(device)", operator="jit",
                                argument="device")
        return of_torch.jit(function, executors=executors, transforms=transforms, autocast=autocast, strict=strict,
                            buckets=buckets)
    if buckets is not None:
        raise ArgumentError("jit: buckets are for modules of PyTorch", operator="jit", argument="buckets")
    if not callable(function):
        raise ArgumentError(f"jit: expected a function, got {function!r:.60}", operator="jit", argument="function")
    return Function(function, executors, transforms, device, autocast)


def train_step(module, loss, optimizer, **options):
    """A training step of a module of PyTorch as one program: :func:`fulgurite.torch.train_step`."""
    from . import torch as of_torch

    return of_torch.train_step(module, loss, optimizer, **options)


class _ValueAndGrad:
    def __init__(self, function, argnums, has_aux, with_value):
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._argnums = argnums
        self._has_aux = has_aux
        self._with_value = with_value
        self._jitted = Function(self._traced)
        self._jitted._arguments = _Arguments(function)
        self._jitted._name = _name_of(function)

    def __call__(self, *arguments, **keywords):
        leaves, _ = self._jitted._arguments.flatten(arguments, keywords)
        if any(isinstance(leaf, Tensor) for leaf in leaves.arrays):
            return self._traced(*arguments, **keywords)
        return self._jitted(*arguments, **keywords)

    def last_traces(self, target: str | None = None) -> Traces:
        return self._jitted.last_traces(target)

    def explain(self, target: str | None = None) -> Explanation:
        return self._jitted.explain(target)

    def _traced(self, *arguments, **keywords):
        numbers = (self._argnums,) if isinstance(self._argnums, int) else tuple(self._argnums)
        name = _name_of(self._function)
        for number in numbers:
            if not -len(arguments) <= number < len(arguments):
                message = f"{name}: argnums has {number}, the call has {len(arguments)} positional arguments"
                raise ArgumentError(message, operator="grad", argument="argnums")
        leaves = Leaves()
        structures = [flatten(arguments[number], str(number), leaves) for number in numbers]
        found = {}

        def loss(tensors):
            inner, tensors = list(arguments), iter(tensors)
            for number, structure in zip(numbers, structures):
                inner[number] = unflatten(structure, tensors)
            value = self._function(*inner, **keywords)
            aux = Leaves()
            if self._has_aux:
                if not isinstance(value, tuple) or len(value) != 2:
                    raise ArgumentError(f"{name}: has_aux=True, expected (loss, aux), got {type(value).__name__}")
                value, rest = value
                found["aux"] = flatten(rest, "aux", aux)
            if not isinstance(value, Tensor):
                message = f"{name}: returned {type(value).__name__}, expected a scalar tensor"
                raise ArgumentError(message, operator="grad")
            return value, aux.arrays

        value, aux, gradients = _native.value_and_grad(leaves.arrays, loss)
        gradients = iter(gradients)
        trees = tuple(unflatten(structure, gradients) for structure in structures)
        grads = trees[0] if isinstance(self._argnums, int) else trees
        if self._has_aux:
            aux = unflatten(found["aux"], iter(aux))
            return ((value, aux), grads) if self._with_value else (grads, aux)
        return (value, grads) if self._with_value else grads


def value_and_grad(function, argnums: int | Sequence[int] = 0, has_aux: bool = False):
    """A function that returns the value of ``function``, a scalar, and its gradient.

    Works on arrays, where it is compiled, and in traced functions: ``jit(value_and_grad(loss))`` is one program.

    Parameters
    ----------
    function : callable
        Returns a floating-point scalar; with ``has_aux`` a pair of it and a tree that is not differentiated.
    argnums : int or tuple of int, optional
        The positional arguments, trees of floating-point tensors, by which it is differentiated.
    has_aux : bool, optional
        Whether the function returns a second value.

    Returns
    -------
    callable
        Returns ``(value, gradients)``, or ``((value, aux), gradients)``.
    """
    return _ValueAndGrad(function, argnums, has_aux, True)


def grad(function, argnums: int | Sequence[int] = 0, has_aux: bool = False):
    """As :func:`value_and_grad`, without the value, as ``torch.func.grad``: ``gradients``, or ``(gradients, aux)``."""
    return _ValueAndGrad(function, argnums, has_aux, False)


#: Functions of `vjp` that were compiled, the last ones: each keeps what it was made of alive.
_KEPT: collections.OrderedDict = collections.OrderedDict()
_MOST_KEPT = 64


def vjp(function, *primals):
    """The value of a function, and the function that takes cotangents of it to gradients, as ``torch.func.vjp``.

    The two are programs of their own: the forward program saves what the backward program reads.

    Returns
    -------
    value
        What ``function(*primals)`` returns.
    pullback : callable
        Takes a tree like the value (``None`` stands for zero), and returns a tuple with a tree for each of ``primals``;
        what is not floating-point has the gradient ``None``.
    """
    jitted = function if isinstance(function, Function) else _KEPT.get(function)
    if jitted is None:
        jitted = _KEPT[function] = Function(function)
        if len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    arguments = jitted._arguments
    leaves, structure = arguments.flatten(primals, {})
    if any(isinstance(leaf, Tensor) for leaf in leaves.arrays):
        raise Error("vjp: is called in a traced function; use value_and_grad there", code="Traced", operator="vjp")
    form = arguments.form(leaves, structure)
    arrays, of, pullback = jitted._vjp_function().call(form, leaves.arrays)
    value = unflatten(of, iter(arrays))

    def backward(cotangents):
        given: list = []
        _cotangents(of, cotangents, "result", given)
        found = dict(pullback.call(given))
        gradients = iter([found.get(path) for path in leaves.paths])
        return tuple(unflatten(part, gradients) for part in structure[0])

    return value, backward


def _cotangents(structure, tree, path, given):
    """Adds a cotangent, or ``None``, for each leaf of a structure."""
    kind = structure[0]
    if kind == "leaf":
        leaves = Leaves()
        if tree is not None and flatten(tree, path, leaves) != structure:
            raise ArgumentError(f"vjp: the cotangent '{path}' is a {type(tree).__name__}, expected an array")
        given.append(leaves.arrays[0] if tree is not None else None)
        return
    if kind in ("static", "float"):
        return
    parts = structure[2]
    pairs = parts if kind in ("dict", "dataclass") else list(enumerate(parts))
    for key, part in pairs:
        if tree is None:
            item = None
        elif kind == "dataclass":
            item = getattr(tree, key)
        else:
            try:
                item = tree[key]
            except (KeyError, IndexError, TypeError):
                raise ArgumentError(f"vjp: there is no cotangent '{join(path, key)}'") from None
        _cotangents(part, item, join(path, key), given)


def last_traces(function, target: str | None = None) -> Traces:
    """The program of the last call of a compiled function or module after each stage; of a module, the forward one.

    Parameters
    ----------
    function : callable
        What :func:`jit` returned, after a call.
    target : str, optional
        Compiles the program of the last call for another target, ``"cuda:sm_90a"`` or ``"cpu"``, and runs nothing: the
        device need not be there.
    """
    return _asked(function, "last_traces", target)


def last_backward_traces(function, target: str | None = None) -> Traces:
    """The backward program of the last call that had one, after each stage; ``target`` as of :func:`last_traces`."""
    return _asked(function, "last_backward_traces", target)


def explain(function, target: str | None = None) -> Explanation:
    """Which executor took which line of the last call, and why others did not; ``target`` as of :func:`last_traces`."""
    return _asked(function, "explain", target)


def _asked(function, what, target):
    method = getattr(function, what, None)
    if method is None:
        raise ArgumentError(f"{what}: expected what jit returned, got {function!r:.60}", operator=what)
    return method() if target is None else method(target=target)


__all__ = ["Function", "Trace", "Traces", "explain", "grad", "jit", "last_backward_traces", "last_traces", "scope",
           "train_step", "value_and_grad", "vjp"]
