"""Executors whose kernels are Python functions."""

from __future__ import annotations

import functools
import inspect
import traceback

from . import _cuda, _native
from ._errors import ArgumentError
from ._operator import Operator, _tolerances, names_in, parameters_in, parts_of, results_in
from ._rules import by_position, codes_of, for_defaults, leading, of_checker, of_grad, place
from ._signature import signature_text

#: How kernels take their arrays.
ARRAYS = ("fulgurite", "numpy", "torch")
#: The executors of this process by name.
_BY_NAME: dict[str, Executor] = {}


def _as_given(value):
    return value


def _fulgurite_results(value):
    from ._arrays import from_dlpack

    return from_dlpack(value)


def _to_numpy(value):
    import numpy

    return numpy.from_dlpack(value)


def _of_numpy(value):
    import numpy

    return _native.Array.from_dlpack(_writable(numpy.asarray(value)))


def _writable(array):
    # NumPy gives out no read-only array, and an operand that is returned may be one.
    return array if array.flags.writeable else array.copy()


def _to_torch(value):
    import torch

    return torch.from_dlpack(value)


def _of_torch(value):
    import torch

    if not isinstance(value, torch.Tensor):
        raise TypeError(f"it returned {type(value).__name__}, expected a tensor of PyTorch")
    value = value.detach().resolve_conj().resolve_neg()
    if value.device.type == "cpu":
        return _native.Array.from_dlpack(value)
    value = value.contiguous()
    # Its address is enough: the program copies it on the stream that wrote it, before the memory is used again.
    return _native.Foreign(value.data_ptr(), list(value.shape), str(value.dtype).removeprefix("torch."),
                           str(value.device), value)


@functools.lru_cache(maxsize=64)
def _torch_stream(stream: int, device: int | None):
    import torch

    return torch.cuda.ExternalStream(stream, device=device)


def _in_torch(function, values, stream):
    """Calls a function without autograd, on the stream of the program."""
    import torch

    with torch.no_grad():
        if stream is None:
            return function(*values)
        device = next((value.__dlpack_device__()[1] for value in _tensors(values)), None)
        with torch.cuda.stream(_torch_stream(stream, device)):
            return function(*values)


def _tensors(values):
    for value in values:
        if isinstance(value, list):
            yield from _tensors(value)
        elif hasattr(value, "__dlpack__"):
            yield value


_EXCHANGE = {
    "fulgurite": (_as_given, _fulgurite_results), "numpy": (_to_numpy, _of_numpy), "torch": (_to_torch, _of_torch),
}


def _kernel(function, arrays: str, borrows: bool):
    """A function of arrays as programs call it: with all arguments and the stream, returning a list."""
    to, back = _EXCHANGE[arrays]

    def converted(value):
        if isinstance(value, list):
            return [converted(item) for item in value]
        return to(value) if hasattr(value, "__dlpack__") else value

    def run(*values):
        results = function(*[converted(value) for value in values])
        return [back(each) for each in (results if isinstance(results, (tuple, list)) else [results])]

    def call(values, stream):
        try:
            return _in_torch(run, values, stream) if arrays == "torch" else run(*values)
        except BaseException as error:
            if borrows:
                # The frames of the exception would keep the program's memory.
                traceback.clear_frames(error.__traceback__)
            raise

    return call


class Executor:
    """A named set of kernels and implementations, which ``jit(executors=[...])`` takes in its order.

    Parameters
    ----------
    name : str
        One word; unique among the executors of the process.
    version : str, optional
        What was measured of another version is not followed.
    devices : list of str, optional
        Kinds of devices: ``"cpu"``, ``"cuda"``. Those of this machine by default.
    priority : int, optional
        The place among the executors that are asked by default, lower ones first: 0 to 9, before the library's own.
        Without one the executor takes part where it is named.
    arrays : str, optional
        How functions take arrays: ``"torch"`` tensors, ``"numpy"`` arrays (of the host), or ``"fulgurite"`` arrays.
    precision : str, optional
        ``"exact"``, ``"tf32"`` or ``"fp8"``: the tolerances of generated tests follow from it.
    """

    def __init__(self, name: str, version: str = "1", *, devices=None, priority: int | None = None,
                 arrays: str = "fulgurite", precision: str = "exact", doc: str = ""):
        self.name, self.version, self.arrays = name, str(version), _arrays_of(name, arrays)
        if priority is not None and not 0 <= priority < 10:
            raise ArgumentError(f"{name}: priority is {priority}, expected 0 to 9, before the library's executors",
                                operator=name, argument="priority")
        #: Whether the kinds of devices were named: then there are no others.
        self._named = devices is not None
        self._about = (doc or f"Kernels of {name} in Python.", priority, precision, place())
        devices = list(_native.devices() if devices is None else [devices] if isinstance(devices, str) else devices)
        #: The executor of each kind of device: ``name``, and ``name_cuda`` for CUDA beside the host.
        self.names = {kind: name if kind == devices[0] else f"{name}_{kind}" for kind in devices}
        #: Kernel symbols, and names of the operators that it implements.
        self.symbols: list[Operator] = []
        self.implemented: list[str] = []
        self._registrations = []
        try:
            for kind, own in self.names.items():
                self._registrations.append(self._registered(own, kind))
        except BaseException:
            self.withdraw()
            raise
        _BY_NAME[name] = self

    def _registered(self, own: str, kind: str):
        return _native.register_executor(own, kind, self.version, *self._about)

    def _on_cuda(self, who: str) -> str:
        """The executor on CUDA, which is there for kernels as text on a machine without a GPU as well."""
        if "cuda" not in self.names:
            if self._named:
                raise ArgumentError(f"{who}: cuda is given, and {self.name} runs on {', '.join(self.names)}",
                                    operator=who, argument="cuda")
            own = f"{self.name}_cuda"
            self._registrations.append(self._registered(own, "cuda"))
            self.names["cuda"] = own
        return self.names["cuda"]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<executor {self.name} {self.version} on {', '.join(self.names)}>"

    def register_operator(self, name: str, *, meta=None, fn=None, cuda=None, like=None, signature: str | None = None,
                          results=None, grad=None, reference=None, samples=None, errors=None, arrays: str | None = None,
                          borrows: bool = False, waive=None, tolerances=(), no_grad: str | None = None,
                          dtypes=()) -> Operator:
        """A kernel symbol: an operator that this executor alone runs, by ``fn``, and on CUDA by ``cuda``.

        Parameters
        ----------
        name : str
            Without the executor's, which is its namespace.
        meta : callable
            Metas of the results, of :class:`fulgurite.Meta` arguments and attributes in their order. Its annotations
            are the signature, unless ``signature`` is given.
        fn : callable
            Takes arrays and attributes in the same order, and returns arrays. Shapes and element types are compared
            with those of ``meta``. It gets copies of its operands. It may be left out where there is a ``cuda``.
        cuda : CudaKernel or list of CudaKernel, optional
            The kernel on CUDA, as text.
        like : operator or callable, optional
            Has signature and meta in their place; a function is the meta.
        grad : callable, optional
            As that of :func:`fulgurite.operator`, by position.
        borrows : bool, optional
            ``fn`` gets the program's own memory, and promises to neither write nor keep it.

        Returns
        -------
        Operator
            Called as any other.
        """
        full = f"{self.name}::{name}"
        if fn is None and cuda is None:
            raise ArgumentError(f"{full}: a kernel symbol needs a kernel, fn or cuda", operator=full, argument="fn")
        if like is not None and callable(like) and not hasattr(like, "operator"):
            meta = meta or like
        elif like is not None:
            of = _operator_of(like)
            signature = signature or of.signature[len(of.name):]
            meta = meta or (lambda *values: of.infer(*values))
        if meta is None:
            raise ArgumentError(f"{full}: a kernel symbol needs a meta", operator=full, argument="meta")
        text = signature or signature_text(full, meta, results)
        names, made = names_in(text), []
        given = dict(meta=meta, grad=grad, reference=reference, samples=samples, errors=errors)
        rules = {part: rule for part, rule in given.items() if rule is not None}
        parts = parts_of(full, names, rules, True, lambda: made[0].operator.params)
        arrays = _arrays_of(full, arrays or self.arrays)
        owners = {}
        if fn is not None:
            parts["fn"] = _kernel(by_position(full, "fn", fn, names), arrays, borrows)
            owners.update(self.names)
        if cuda is not None:
            parts["cuda"] = _cuda.bound(full, cuda, parameters_in(text), results_in(text))
            owners["cuda"] = self._on_cuda(full)
        documented = (inspect.getdoc(fn) if fn else "") or inspect.getdoc(meta)
        registration = _native.register_operator(
            full, text, documented or f"A kernel of {self.name}.", place(), parts,
            owners=list(owners.values()), codes=codes_of(meta), borrows=borrows, plain=arrays == "fulgurite",
            waive=list(dict(waive or {}).items()), tolerances=_tolerances(tolerances),
            no_grad=no_grad or (None if grad else "it is a kernel symbol without a grad"),
            dtypes=[_native.dtype(each).short_name for each in dtypes],
        )
        made.append(registration)
        symbol = Operator(registration, owners.values())
        self.symbols.append(symbol)
        self._registrations.append(symbol)
        return symbol

    def register_implementation(self, op, fn=None, *, cuda=None, execution_transform=None, checker=None,
                                grad_transform=None, arrays: str | None = None, borrows: bool = False) -> None:
        """How this executor runs an operator that it does not own.

        Functions take the arguments in their order; they may do without the last ones, and calls in which these are not
        at their defaults are refused.

        Parameters
        ----------
        op : operator or str
            The operator: ``fulgurite.ops.rms_norm``, a declared one, or its name.
        fn : callable, optional
            A function of arrays, as for :meth:`register_operator`.
        cuda : CudaKernel or list of CudaKernel, optional
            The kernel on CUDA, as text; beside ``fn``, which then runs on other devices.
        execution_transform : callable, optional
            Traced code that computes the call, usually by kernel symbols, in place of ``fn``.
        checker : callable, optional
            Of metas and attributes (or of those that it names): whether this executor takes the call. ``False`` or a
            reason refuse it, and the next executor is asked. It takes every call by default.
        grad_transform : callable, optional
            Traced code that returns results and a function of cotangents; the operator's own gradient by default.
        """
        of = _operator_of(op)
        names, params = [param[0] for param in of.params], of.params
        who = f"{of.name} by {self.name}"
        if execution_transform is not None and (fn is not None or cuda is not None):
            raise ArgumentError(f"{who}: has {'fn' if cuda is None else 'cuda'} and execution_transform, expected one "
                                "of them", operator=of.name, argument="execution_transform")
        if fn is None and cuda is None and execution_transform is None and grad_transform is None:
            raise ArgumentError(f"{who}: has neither fn, cuda, execution_transform nor grad_transform",
                                operator=of.name, argument="fn")
        arrays = _arrays_of(who, arrays or self.arrays)
        parts, omitted = {}, set()

        def taken(part, function):
            made, without = leading(who, part, function, params)
            omitted.update(without)
            return made

        if fn is not None:
            parts["fn"] = _kernel(taken("fn", fn), arrays, borrows)
        if execution_transform is not None:
            parts["execution"] = taken("execution_transform", execution_transform)
        if grad_transform is not None:
            parts["grad"] = of_grad(who, taken("grad_transform", grad_transform), lambda: params)
        checker = of_checker(who, checker, names) if checker is not None else None
        checker = for_defaults(checker, params, sorted(omitted))
        if checker is not None:
            parts["checker"] = checker
        text = None
        if cuda is not None:
            text = _cuda.bound(who, cuda, [(param[0], param[1] != "attribute") for param in params], of.results)
            self._on_cuda(who)
        made = []
        try:
            for kind, own in self.names.items():
                given = {**parts, "cuda": text} if text is not None and kind == "cuda" else parts
                if given.keys() & {"fn", "cuda", "execution", "grad"}:
                    made.append(_native.register_implementation(of.name, own, place(), given, borrows=borrows,
                                                                plain=arrays == "fulgurite"))
        except BaseException:
            for each in reversed(made):
                each.withdraw()
            raise
        self._registrations.extend(made)
        if isinstance(op, Operator) and self is _BY_NAME.get("python"):
            # The kernel of a declaration is withdrawn with it.
            for each in made:
                self._registrations.remove(each)
            op._registrations.extend(made)
        else:
            self.implemented.append(of.name)

    def withdraw(self) -> None:
        """Takes the executor back, with its symbols and implementations."""
        while self._registrations:
            self._registrations[-1].withdraw()
            self._registrations.pop()
        self.symbols.clear()
        self.implemented.clear()
        if _BY_NAME.get(self.name) is self:
            del _BY_NAME[self.name]


def _arrays_of(who: str, arrays: str) -> str:
    if arrays not in ARRAYS:
        raise ArgumentError(f"{who}: arrays is {arrays!r}, expected one of {', '.join(ARRAYS)}", operator=who,
                            argument="arrays")
    return arrays


def _operator_of(op):
    """The native operator of a function of ``fulgurite.ops``, of a declared one, or of a name."""
    from .ops import OPERATORS

    if isinstance(op, str):
        if op not in OPERATORS:
            raise ArgumentError(f"no operator is called '{op}'", operator=op, argument="op")
        return OPERATORS[op]
    found = getattr(op, "operator", op)
    if not isinstance(found, _native.Operator):
        raise ArgumentError(f"expected an operator, got {op!r:.60}", argument="op")
    return found


def executor_names(executors) -> list[str] | None:
    """Names of executors for the compiler: an :class:`Executor` is one for each kind of device."""
    if executors is None:
        return None
    names = []
    # One name is no list of letters.
    for each in [executors] if isinstance(executors, (str, Executor)) else executors:
        own = each if isinstance(each, Executor) else _BY_NAME.get(str(each))
        names.extend(own.names.values() if own is not None else [str(each)])
    return names


def python_executor() -> Executor:
    """The executor of kernels that are parts of declarations (``fn``)."""
    return _BY_NAME.get("python") or Executor(
        "python", priority=9, doc="Kernels that declarations in Python have, before the library's own executors.")
