"""Kernels as CUDA C++ text: what a program launches, without Python."""

from __future__ import annotations

import os
import re
import struct
import types
from collections.abc import Mapping

from ._errors import ArgumentError, meant
from ._native import Meta, dtype
from ._rules import by_name, place

#: C types of arguments that are values, as `struct` packs them; with the names of `fulgurite/elements.cuh`.
_VALUES = {
    "bool": "?", "char": "b", "i8": "b", "unsigned char": "B", "u8": "B", "short": "h", "i16": "h",
    "unsigned short": "H", "u16": "H", "int": "i", "i32": "i", "unsigned": "I", "unsigned int": "I", "u32": "I",
    "long long": "q", "i64": "q", "unsigned long long": "Q", "u64": "Q", "size_t": "Q", "float": "f", "double": "d",
}
#: The C types of elements.
_ELEMENTS = {
    "float64": "double", "float32": "float", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "boolean",
}
_HEADER = '#include "fulgurite/elements.cuh"'
_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')
#: What an extent of a grid can be at most; the limits of a device are compared when it is planned for.
_MOST = 2**31 - 1


class CudaKernel:
    """A kernel for CUDA as text in CUDA C++, which ``cuda=`` of an operator or of an executor takes.

    It is a launch in the compiled program, as a kernel that is declared in Rust: it is compiled by NVRTC when a program
    with it is first compiled, and replayed with the rest as a graph. Python is asked once for each program, not when it
    runs.

    Numbers may be functions of the operator's arguments and results by their names, of which tensors are
    :class:`fulgurite.Meta`: ``grid=lambda out: (out.numel() + 255) // 256``.

    Parameters
    ----------
    source : str or path
        The text, or a path (``pathlib.Path``) of a file that has it. It includes no headers but the library's own
        (``fulgurite/elements.cuh`` and others), of which the first is always there.
    entry : str, optional
        The kernel, declared ``extern "C" __global__ void``. May be left out where the text has one.
    arguments : sequence
        What the kernel takes, in its order: the name of a tensor, a result or a piece of workspace is a pointer to its
        first element (``None`` is a null pointer, a list of tensors a structure of pointers); a pair of a value and its
        C type, ``("eps", "float")`` or ``(lambda out: out.numel(), "u64")``, is a number.
    grid, block : int, sequence or callable
        Up to three extents each. A grid with an extent of 0 launches nothing.
    shared : int or callable, optional
        Bytes of dynamic shared memory of a block.
    cluster : int, sequence or callable, optional
        Blocks of a cluster.
    define : dict, optional
        Names that the text is given, as ``#define`` would: a number, a text, a function, or the name of a tensor for
        the C type of its elements, ``{"T": "input"}``.
    workspace : dict, optional
        Bytes of memory on the device by names, which ``arguments`` may have. Kernels of one list share equal names.
    """

    def __init__(self, source, entry: str | None = None, *, arguments, grid, block=256, shared=0, cluster=None,
                 define: Mapping | None = None, workspace: Mapping | None = None):
        at = place()
        self.place = f"{at[0]}:{at[1]}"
        name = None
        if isinstance(source, os.PathLike):
            name = os.path.basename(source)
            with open(source, encoding="utf-8") as file:
                source = file.read()
        if not isinstance(source, str):
            raise _wrong("CudaKernel", "source", f"is {source!r:.60}, expected text or a path")
        if entry is None:
            found = sorted(set(_ENTRY.findall(source)))
            if len(found) != 1:
                raise _wrong("CudaKernel", "entry",
                             f"is missing: the text has {_listed(found)} (extern \"C\" __global__ void NAME(...))")
            entry = found[0]
        self.entry = entry
        self.name = name or f"{entry}.cu"
        # Behind the text, so that its lines keep their numbers; directives are read from the whole of it.
        self.text = source if _HEADER in source else f"{source}\n{_HEADER}\n"
        self.arguments = list(arguments)
        self.numbers = {"grid": grid, "block": block, "shared": shared, "cluster": cluster}
        self.define, self.workspace = dict(define or {}), dict(workspace or {})

    def __repr__(self) -> str:
        return f"<CUDA kernel {self.entry} of {self.name}>"


def _listed(names) -> str:
    return f"{len(names)} kernels: {', '.join(names)}" if names else "no kernel"


def _wrong(who: str, part: str, message: str) -> ArgumentError:
    return ArgumentError(f"{who}: {part} {message}", operator=who, argument=part)


def bound(who: str, kernels, params: list[tuple[str, bool]], results: list[str] | None):
    """Kernels for an operator as the compiler asks for them: a function of all arguments and of the results' metas,
    which returns the workspace and the launches.

    Parameters
    ----------
    params : list of (str, bool)
        Names of the parameters, and whether they are tensors.
    results : list of str or None
        Names of the results; ``None`` where their number follows from the arguments.
    """
    kernels = list(kernels) if isinstance(kernels, (list, tuple)) else [kernels]
    for kernel in kernels:
        if not isinstance(kernel, CudaKernel):
            raise _wrong(who, "cuda", f"is {kernel!r:.60}, expected a CudaKernel, or a list of these")
    if not kernels:
        raise _wrong(who, "cuda", "is empty, expected a CudaKernel, or a list of these")
    if results is None:
        raise _wrong(who, "cuda", "is given for a list of results: CUDA kernels as text write results with names")
    # One list for all, so that what a kernel leaves in the workspace is there for the next one.
    workspace = list(dict.fromkeys(name for kernel in kernels for name in kernel.workspace))
    parts = [_Bound(who, kernel, params, results, workspace) for kernel in kernels]

    def asked(values, metas):
        given = [*values, *metas]
        sizes = [max(part.bytes_of(name, given) for part in parts) for name in workspace]
        return sizes, [launch for part in parts if (launch := part.launch(given)) is not None]

    return asked


class _Bound:
    """A kernel with the names of an operator."""

    def __init__(self, who, kernel, params, results, workspace):
        self.who, self.kernel = who, kernel
        self.names = [name for name, _ in params] + list(results)
        self.tensors = {name for name, tensor in params if tensor} | set(results)
        self.places = {name: ("result", i) for i, name in enumerate(results)}
        self.places.update({name: ("argument", i) for i, (name, tensor) in enumerate(params) if tensor})
        self.places.update({name: ("workspace", i) for i, name in enumerate(workspace)})
        for name in workspace:
            if name in self.names:
                raise _wrong(who, "workspace", f"has '{name}', which the operator has as well")
        self.numbers = {name: self.value(name, number) for name, number in kernel.numbers.items()}
        self.workspace = {name: self.value("workspace", size) for name, size in kernel.workspace.items()}
        self.define = {name: self.defined(name, value) for name, value in kernel.define.items()}
        self.arguments = [self.argument(each) for each in kernel.arguments]

    def value(self, part, value):
        """A function of the names' values, of a number or of a function."""
        if callable(value):
            called = by_name(self.who, part, value, self.names, False)
            return lambda given: called(*given)
        return lambda given: value

    def defined(self, name, value):
        if isinstance(value, str) and value in self.tensors:
            at = self.names.index(value)
            return lambda given: _element(given[at], value)
        return self.value("define", value)

    def argument(self, given):
        """How an argument of the kernel is made of the names' values."""
        if isinstance(given, str):
            if given in self.places:
                return lambda _, found=(*self.places[given], b""): found
            if given in self.names:
                raise _wrong(self.who, "arguments",
                             f"has '{given}', which is a number: say its C type, (\"{given}\", \"float\")")
            known = list(self.places)
            raise _wrong(self.who, "arguments", f"has '{given}', there are {', '.join(known)}{meant(given, known)}")
        if not isinstance(given, (tuple, list)) or len(given) != 2 or not isinstance(given[1], str):
            raise _wrong(self.who, "arguments", f"has {given!r:.60}, expected a name, or a value and its C type")
        value, kind = given
        if kind not in _VALUES:
            raise _wrong(self.who, "arguments",
                         f"has the C type '{kind}', expected one of {', '.join(_VALUES)}{meant(kind, _VALUES)}")
        if isinstance(value, str):
            if value not in self.names or value in self.tensors:
                known = [name for name in self.names if name not in self.tensors]
                raise _wrong(self.who, "arguments", f"has the number '{value}', there are {', '.join(known) or 'none'}"
                             f"{meant(value, known)}")
            at = self.names.index(value)
            made = lambda values: values[at]  # noqa: E731
        else:
            made = self.value("arguments", value)
        return lambda values: ("value", 0, _packed(made(values), kind))

    def bytes_of(self, name, given) -> int:
        """Bytes of a piece of workspace; 0 where another kernel says it."""
        size = self.workspace.get(name)
        return 0 if size is None else _whole(f"workspace '{name}'", size(given), 0)

    def launch(self, given):
        """What is launched, or nothing."""
        grid = _extents("grid", self.numbers["grid"](given))
        if 0 in grid:
            return None
        cluster = self.numbers["cluster"](given)
        return types.SimpleNamespace(
            name=self.kernel.name, text=self.kernel.text, entry=self.kernel.entry, place=self.kernel.place,
            defines=[(name, _text(name, value(given))) for name, value in self.define.items()],
            grid=grid, block=_extents("block", self.numbers["block"](given)),
            cluster=None if cluster is None else _extents("cluster", cluster),
            shared=_whole("shared", self.numbers["shared"](given), 0),
            arguments=[argument(given) for argument in self.arguments],
        )


def _element(value, name: str) -> str:
    """The C type of a tensor's elements."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, Meta):
        raise ValueError(f"'{name}' is {value!r:.40} in this call, which has no elements")
    return _ELEMENTS[value.dtype.name]


def _text(name: str, value) -> str:
    """A value of ``define`` in C."""
    if isinstance(value, dtype):
        return _ELEMENTS[value.name]
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        # Python's words for what is no number are none of C's.
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"define '{name}' is {value}, which C has no text for")
        return repr(value)
    if isinstance(value, (int, str)):
        return str(value)
    raise ValueError(f"define '{name}' is {value!r:.40}, expected a number, a text or an element type")


def _whole(what: str, value, least: int) -> int:
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise ValueError(f"{what} is {value!r:.40}, expected a whole number") from None
    if not least <= number <= _MOST:
        raise ValueError(f"{what} is {number}, expected {least} to {_MOST}")
    return number


def _extents(what: str, value) -> list[int]:
    """Three extents of one to three."""
    extents = list(value) if isinstance(value, (tuple, list)) else [value]
    if not 1 <= len(extents) <= 3:
        raise ValueError(f"{what} has {len(extents)} extents, expected one to three")
    return [_whole(what, extent, 0) for extent in extents] + [1] * (3 - len(extents))


def _packed(value, kind: str) -> bytes:
    try:
        return struct.pack(f"<{_VALUES[kind]}", value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"a kernel's argument is {value!r:.40}, expected a number of the C type {kind}: {error}"
                         ) from None
