"""Operators that are declared in Python."""

from __future__ import annotations

import inspect

from . import _native, ops
from ._errors import ArgumentError, meant
from ._rules import by_name, by_position, codes_of, of_grad, of_reference, place
from ._signature import signature_text

#: The functions of a declaration.
RULES = ("signature", "requires", "meta", "decomposition", "grad", "reference", "samples", "errors", "fn")
#: What else a declaration says.
FACTS = ("name", "results", "torch", "dtypes", "waive", "tolerances", "no_grad", "arrays", "borrows", "cuda",
         "autocast", "autocast_keeps")
#: The classes of autocast.
CLASSES = ("low", "full", "widest", "keep")


class Operator:
    """A declared operator; see :func:`operator`. A call with arrays runs it, in a traced function it is a line."""

    def __init__(self, registration, executors=()):
        self._registrations = [registration]
        self.operator = registration.operator
        #: The executors of a kernel symbol.
        self.executors = tuple(executors)
        function = ops._declare(self.operator)
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__doc__, self.__signature__ = function.__doc__, function.__signature__

    def __call__(self, *arguments, **keywords):
        return self.operator(*arguments, **keywords)

    @property
    def name(self) -> str:
        """The whole name: ``mine::swish``."""
        return self.operator.name

    @property
    def signature(self) -> str:
        """The signature as the registry has it."""
        return self.operator.signature

    def infer(self, *arguments, **keywords):
        """The metas of the results, of arrays or metas. Nothing is computed."""
        return self.operator.infer(*arguments, **keywords)

    def withdraw(self) -> None:
        """Takes the declaration back: its name is free again. Programs that were compiled with it keep running."""
        while self._registrations:
            # Implementations need the operator: they were registered later.
            self._registrations[-1].withdraw()
            self._registrations.pop()
        ops._forget(self.operator)

    def __repr__(self) -> str:
        return f"<operator {self.signature}>"


def _tolerances(given) -> list:
    """Looser tolerances as the registry takes them: templates, element type, factor, scaled part, reason."""
    made = []
    for each in given:
        unknown = set(each) - {"templates", "dtype", "factor", "scaled", "reason"}
        if unknown or not each.get("reason") or not each.get("templates"):
            raise ArgumentError(
                f"a tolerance is {each}, expected a dictionary with 'templates' and 'reason', and 'factor', 'scaled' "
                "or 'dtype'", argument="tolerances")
        templates = each["templates"]
        dtype = each.get("dtype")
        made.append(([templates] if isinstance(templates, str) else list(templates),
                     None if dtype is None else _native.dtype(dtype).short_name,
                     float(each.get("factor", 1.0)), float(each.get("scaled", 0.0)), each["reason"]))
    return made


def _default_name(function) -> str:
    """``my_operators::softcap``, as in a crate."""
    module = (function.__module__ or "").rpartition(".")[2].strip("_")
    return f"{module}::{function.__name__}" if module.isidentifier() else function.__name__


def _function(name: str, part: str, value):
    value = value.__func__ if isinstance(value, staticmethod) else value
    if not callable(value):
        raise ArgumentError(f"{name}: {part} is {value!r:.60}, expected a function", operator=name, argument=part)
    return value


def parts_of(name: str, names: list[str], rules: dict, positional: bool, params) -> dict:
    """The rules of an operator as the registry calls them. ``params`` returns the native parameters."""

    def taken(part, every):
        if positional:
            return by_position(name, part, rules[part], names)
        return by_name(name, part, rules[part], names, every)

    parts = {}
    for part in ("requires", "meta"):
        if part in rules:
            parts[part] = taken(part, False)
    if "requires" in parts and "meta" in parts:
        # The meta alone is asked too: it does not accept what the preconditions refuse.
        requires, meta = parts["requires"], parts["meta"]
        parts["meta"] = lambda *values: (requires(*values), meta(*values))[1]
    if "decomposition" in rules:
        parts["decomposition"] = taken("decomposition", True)
    if "grad" in rules:
        parts["grad"] = of_grad(name, taken("grad", True), params)
    if "reference" in rules:
        parts["reference"] = of_reference(by_name(name, "reference", rules["reference"], names, False))
    for part in ("samples", "errors"):
        if part in rules:
            parts[part] = rules[part]
    return parts


def parameters_in(signature: str) -> list[tuple[str, bool]]:
    """The names of the parameters of a signature in text, and whether they are tensors."""
    inner, found, depth, quoted, word = signature.rpartition("->")[0].strip()[1:-1], [], 0, False, ""
    for c in [*inner, ","]:
        if c == '"':
            quoted = not quoted
        depth += (c in "[<") - (c in "]>") if not quoted else 0
        if c == "," and not quoted and depth == 0:
            name, _, of = word.partition(":")
            if name.strip():
                found.append((name.strip(), of.strip().startswith("tensor")))
            word = ""
        else:
            word += c
    return found


def names_in(signature: str) -> list[str]:
    """The names of the parameters of a signature in text."""
    return [name for name, _ in parameters_in(signature)]


def results_in(signature: str) -> list[str] | None:
    """The names of the results of a signature in text; ``None`` for a list of them."""
    results = signature.rpartition("->")[2].strip()
    if results.startswith("("):
        return [each.partition(":")[0].strip() for each in results[1:-1].split(",")]
    return None if results.endswith("[]") else ["out"]


def autocast_of(name: str, facts: dict) -> dict:
    """What a declaration says of autocast, as the registry takes it."""
    given, keeps = facts.get("autocast"), facts.get("autocast_keeps") or ()
    if given is not None and given not in CLASSES:
        raise ArgumentError(f"{name}: autocast is {given!r:.40}, expected one of {', '.join(CLASSES)}"
                            f"{meant(given, CLASSES)}", operator=name, argument="autocast")
    return {"autocast": given, "autocast_keeps": [keeps] if isinstance(keeps, str) else list(keeps)}


def declare(function, facts: dict, rules: dict, doc: str, at) -> Operator:
    """Registers an operator of its facts and rules."""
    name = facts.get("name") or _default_name(function)
    signature = rules.pop("signature", None)
    if isinstance(signature, str):
        text = signature
    else:
        text = signature_text(name, signature or rules.get("decomposition") or rules.get("meta"), facts.get("results"))
    rules = {part: _function(name, part, rule) for part, rule in rules.items()}
    names, made = names_in(text), []
    kernel, cuda = rules.pop("fn", None), facts.get("cuda")
    if kernel is None and cuda is None and "decomposition" not in rules and "meta" not in rules:
        raise ArgumentError(f"{name}: has neither a decomposition nor a meta, which say what its results are",
                            operator=name, argument="meta")
    if "meta" not in rules and "decomposition" not in rules:
        raise ArgumentError(f"{name}: its kernel needs a meta beside it, which says what the results are",
                            operator=name, argument="meta")
    parts = parts_of(name, names, rules, False, lambda: made[0].operator.params)
    codes = codes_of(*(rules[part] for part in ("requires", "meta") if part in rules))
    registration = _native.register_operator(
        name, text, inspect.cleandoc(doc or ""), at, parts, codes=codes,
        waive=list(dict(facts.get("waive") or {}).items()), tolerances=_tolerances(facts.get("tolerances") or ()),
        no_grad=facts.get("no_grad"), torch=facts.get("torch"), **autocast_of(name, facts),
        dtypes=[_native.dtype(each).short_name for each in facts.get("dtypes") or ()],
    )
    made.append(registration)
    declared = Operator(registration)
    if kernel is not None or cuda is not None:
        from ._executor import python_executor

        try:
            python_executor().register_implementation(
                declared, kernel, cuda=cuda, arrays=facts.get("arrays"), borrows=bool(facts.get("borrows")))
        except BaseException:
            declared.withdraw()
            raise
    return declared


def operator(declaration=None, /, **given):
    """Declares an operator: a class with its rules as functions, or a function that is its decomposition.

    The signature is that of the function ``signature``, or else of the decomposition; its annotations are the types of
    the registry (``Tensor[Floating]``, ``Tensor | None``, ``float``, ``Literal["none", "mean"]``). Rules take arguments
    by name: ``meta``, ``requires`` and ``reference`` those that they use, ``decomposition`` and ``grad`` all of them.

    Parameters
    ----------
    declaration : class or function
        A class has the rules as functions without ``self``, and the other parameters as attributes.
    meta : callable, optional
        Metas of the results, of :class:`fulgurite.Meta` arguments. It follows from the decomposition.
    requires : callable, optional
        Preconditions, by :func:`fulgurite.require`.
    decomposition : callable, optional
        Traced code of other operators. Without one the operator is a prim, which an executor must run.
    grad : callable, optional
        Returns results and a function that takes cotangents to gradients: one, a tuple, or a dictionary by names. It
        follows from the decomposition.
    fn : callable, optional
        A kernel: a function of arrays, which the executor ``python`` runs by default.
    cuda : CudaKernel or list of CudaKernel, optional
        The kernel on CUDA, as text: :class:`fulgurite.CudaKernel`.
    reference, samples, errors : callable, optional
        The independent reference in NumPy (float64), inputs on which it must be right, and calls that it must refuse,
        for the generated tests (:func:`fulgurite.testing.generate`).
    name : str, optional
        ``module::function`` by default.
    results : tuple of str, optional
        Names of several results.
    arrays, borrows : optional
        How ``fn`` takes its arrays; see :class:`fulgurite.Executor`.
    autocast : str, optional
        What mixed precision makes of its operands: ``"low"`` (the low-precision type), ``"full"`` (float32),
        ``"widest"`` (the widest type among them) or ``"keep"``; operands named by ``autocast_keeps`` stay.
    torch, dtypes, waive, tolerances, no_grad : optional
        As in Rust: the function of PyTorch that it mirrors, element types, arguments that decide about no sample,
        looser tolerances of generated tests, and why there is no gradient.

    Returns
    -------
    Operator
        Called with arrays it runs; in a traced function it is one line.
    """
    if declaration is None:
        return lambda declaration: operator(declaration, **given)
    name = given.get("name") or getattr(declaration, "__name__", "operator")
    own = dict(given)
    if isinstance(declaration, type):
        for key, value in vars(declaration).items():
            if not key.startswith("_"):
                own[key] = value
    elif callable(declaration):
        own.setdefault("decomposition", declaration)
        if own["decomposition"] is not declaration:
            own.setdefault("signature", declaration)
    else:
        message = f"operator: expected a class or a function, got {declaration!r:.60}"
        raise ArgumentError(message, argument="declaration")
    known = [*RULES, *FACTS]
    for key in own:
        if key not in known:
            raise ArgumentError(
                f"{name}: '{key}' is no part of a declaration{meant(key, known)} (helpers begin with '_'; the parts "
                f"are {', '.join(known)})", operator=name, argument=key)
    rules = {part: own[part] for part in RULES if own.get(part) is not None}
    if isinstance(rules.get("signature"), staticmethod):
        rules["signature"] = rules["signature"].__func__
    facts = {fact: own[fact] for fact in FACTS if own.get(fact) is not None}
    return declare(declaration, facts, rules, declaration.__doc__ or "", place())
