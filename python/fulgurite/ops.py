"""Every operator of the registry, as a function.

``fulgurite.ops.rms_norm(x, [8], weight)`` runs the operator on arrays; in a function that is being traced it adds a
line to the trace. Prims are in ``ops.prims``, the kernel symbols of an executor in a module of its name
(``ops.liger``). The functions, their signatures and their documentation are made from the declarations.
"""

from __future__ import annotations

import difflib
import inspect
import types

from . import _native

OPERATORS = {operator.name: operator for operator in _native.operators()}

_ANNOTATIONS = {
    "tensor": "Array", "optional": "Array | None", "list": "Sequence[Array]", "operand": "Array | float | int | bool",
}
_ATTRIBUTES = {
    "bool": "bool", "int": "int", "size": "int", "float": "float", "number": "float | int | bool", "str": "str",
    "dtype": "dtype",
}


def annotation(kind: str, type_name: str) -> str:
    """The type of a parameter in Python's words."""
    if kind != "attribute":
        return _ANNOTATIONS[kind]
    if type_name.endswith("?"):
        return annotation(kind, type_name[:-1]) + " | None"
    if type_name.endswith("[]"):
        return f"Sequence[{annotation(kind, type_name[:-2])}]"
    if type_name.startswith('"'):
        return f"Literal[{type_name.replace('|', ', ')}]"
    return _ATTRIBUTES.get(type_name, "object")


def signature(operator) -> inspect.Signature:
    """The signature of an operator's function."""
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default if has_default else inspect.Parameter.empty,
            annotation=annotation(kind, type_name),
        )
        for name, kind, type_name, _, has_default, default in operator.params
    ]
    # A declaration may have a required parameter behind optional ones, which Python has only by name.
    optional = False
    for i, parameter in enumerate(parameters):
        optional = optional or parameter.default is not inspect.Parameter.empty
        if optional and parameter.default is inspect.Parameter.empty:
            parameters[i:] = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters[i:]]
            break
    results = operator.results
    if results is None:
        returned = "list[Array]"
    else:
        returned = "Array" if len(results) == 1 else f"tuple[{', '.join(['Array'] * len(results))}]"
    return inspect.Signature(parameters, return_annotation=returned)


def documentation(operator) -> str:
    """The documentation of an operator's function in numpydoc's form."""
    lines = [operator.docs.strip(), "", "Parameters", "----------"]
    for name, kind, type_name, dtypes, has_default, default in operator.params:
        optional = f", default {default!r}" if has_default else ""
        lines.append(f"{name} : {annotation(kind, type_name)}{optional}")
        if dtypes:
            lines.append(f"    {dtypes[0].upper()}{dtypes[1:]}.")
    lines += ["", "Returns", "-------"]
    if operator.results is None:
        lines.append("list of Array")
    else:
        lines += [f"{name} : Array" for name in operator.results]
    notes = []
    if operator.torch:
        notes.append(f"Mirrors ``torch.{operator.torch}``.")
    if operator.random:
        notes.append("Draws random numbers.")
    notes.append(f"Declared at {operator.declared}.")
    return "\n".join([*lines, "", "Notes", "-----", *notes])


def _function(operator):
    def call(*arguments, **keywords):
        return operator(*arguments, **keywords)

    name = operator.name.rsplit("::", 1)[-1]
    namespace = operator.name.rpartition("::")[0]
    call.__name__ = name
    call.__qualname__ = name
    call.__module__ = f"{__name__}.{namespace}" if namespace else __name__
    call.__doc__ = documentation(operator)
    call.__signature__ = signature(operator)
    call.operator = operator
    return call


def _unknown(name: str, known) -> AttributeError:
    near = difflib.get_close_matches(name, known, 1)
    hint = f", did you mean '{near[0]}'?" if near else ""
    return AttributeError(f"no operator is called '{name}'{hint}")


class _Namespace(types.ModuleType):
    """The operators of one namespace; their functions are made when they are first asked for."""

    def __init__(self, name: str, members: dict):
        super().__init__(f"{__name__}.{name}", f"The operators of {name}.")
        self.__dict__["_members"] = members

    def __getattr__(self, name: str):
        operator = self._members.get(name)
        if operator is None:
            raise _unknown(name, self._members)
        function = _function(operator)
        setattr(self, name, function)
        return function

    def __dir__(self):
        return sorted(self._members)


_MEMBERS: dict[str, dict] = {}
for _name, _operator in OPERATORS.items():
    _namespace, _, _short = _name.rpartition("::")
    _MEMBERS.setdefault(_namespace, {})[_short] = _operator
_TOP = _MEMBERS.pop("", {})
_NAMESPACES = {name: _Namespace(name, members) for name, members in _MEMBERS.items()}


#: Called with each operator that is declared later (``True``) or withdrawn (``False``).
_WATCHERS: list = []


def _declare(operator):
    """Makes an operator that was declared meanwhile one of these, and returns its function."""
    namespace, _, short = operator.name.rpartition("::")
    OPERATORS[operator.name] = operator
    if namespace and namespace not in _NAMESPACES:
        _NAMESPACES[namespace] = _Namespace(namespace, {})
    if namespace:
        _NAMESPACES[namespace]._members[short] = operator
        _NAMESPACES[namespace].__dict__.pop(short, None)
    else:
        _TOP[short] = operator
        globals().pop(short, None)
    for watcher in _WATCHERS:
        watcher(operator, True)
    return _function(operator)


def _forget(operator) -> None:
    """Forgets an operator that was withdrawn."""
    namespace, _, short = operator.name.rpartition("::")
    if OPERATORS.get(operator.name) is not operator:
        return
    del OPERATORS[operator.name]
    members = _NAMESPACES[namespace]._members if namespace else _TOP
    members.pop(short, None)
    (_NAMESPACES[namespace].__dict__ if namespace else globals()).pop(short, None)
    for watcher in _WATCHERS:
        watcher(operator, False)


def __getattr__(name: str):
    if name in _TOP:
        function = globals()[name] = _function(_TOP[name])
        return function
    if name in _NAMESPACES:
        return _NAMESPACES[name]
    raise _unknown(name, [*_TOP, *_NAMESPACES])


def __dir__():
    return sorted([*_TOP, *_NAMESPACES])
