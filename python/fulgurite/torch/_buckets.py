"""Batches that are padded to sizes that the user names, and what was compiled for which shapes."""

from __future__ import annotations

import dataclasses
import inspect

import torch

from .._errors import ArgumentError
from ._batches import cuts
from ._table import example_of


class Buckets:
    """The sizes to which dimensions of arguments are padded, by the arguments' names."""

    def __init__(self, buckets, names):
        names = list(names)
        self.sizes: dict = {}
        if not isinstance(buckets, dict):
            _wrong(f"expected sizes by arguments and dimensions, such as {{\"x\": {{0: [8, 32]}}}}, got "
                   f"{buckets!r:.60}")
        for name, dims in buckets.items():
            if name not in names:
                _wrong(f"there is no argument '{name}', expected one of {', '.join(names)}")
            for dim, sizes in (dims.items() if isinstance(dims, dict) else [(0, dims)]):
                known = isinstance(sizes, (list, tuple)) and sizes
                if not known or any(type(each) is not int or each < 2 for each in sizes):
                    _wrong(f"the sizes of dimension {dim} of '{name}' are {sizes!r:.60}, expected integers of 2 or "
                           "more")
                if type(dim) is not int or dim < 0:
                    _wrong(f"'{name}' has dimension {dim!r}, expected an integer that is not negative")
                self.sizes[name, dim] = sorted(sizes)

    @classmethod
    def of_module(cls, module, buckets):
        """Those of a module or a function that ``torch.compile`` captures."""
        forward = module.forward if isinstance(module, torch.nn.Module) else module
        signature = inspect.signature(forward)
        made = cls(buckets, signature.parameters)
        made.signature = signature
        return made

    def check_exported(self, name: str, shape, ranges) -> None:
        """An error if an exported program does not take the sizes of an argument's buckets."""
        for (of, dim), sizes in self.sizes.items():
            if of != name:
                continue
            if dim >= len(shape):
                _wrong(f"'{name}' has {len(shape)} dimensions, and dimension {dim} has buckets")
            extent = shape[dim]
            if isinstance(extent, int):
                _wrong(f"dimension {dim} of '{name}' is {extent} in the exported program, expected one that is dynamic")
            symbol = extent.node.expr
            bounds = ranges.get(str(symbol), (None, None))[1]
            beyond = next((each for each in sizes if bounds is not None and not bounds.lower <= each <= bounds.upper),
                          None)
            if beyond is not None:
                _wrong(f"{beyond} is no size of dimension {dim} of '{name}', which was exported for {bounds.lower} to "
                       f"{bounds.upper}")

    def marked(self, arguments, keywords):
        """The arguments, with the dimensions that are padded named to ``torch.compile``."""
        try:
            bound = self.signature.bind(*arguments, **keywords)
        except TypeError:
            # The module says what is wrong.
            return arguments, keywords
        for name in {name for name, _ in self.sizes}:
            value = bound.arguments.get(name)
            if value is None:
                continue
            if not isinstance(value, torch.Tensor):
                _wrong(f"'{name}' is a {type(value).__name__}, expected a tensor")
            # A tensor of its own, in the same memory: the marks are not the caller's.
            bound.arguments[name] = value = value.view_as(value)
            for (of, dim), sizes in self.sizes.items():
                if of != name:
                    continue
                if dim >= value.ndim:
                    _wrong(f"'{name}' has {value.ndim} dimensions, and dimension {dim} has buckets")
                if value.shape[dim] > sizes[-1]:
                    _wrong(f"dimension {dim} of '{name}' is {value.shape[dim]}, the largest bucket is {sizes[-1]}")
                # `torch.compile` makes programs of their own for 0 and 1.
                if value.shape[dim] > 1:
                    torch._dynamo.mark_dynamic(value, dim)
        return bound.args, bound.kwargs


def _wrong(message: str) -> None:
    raise ArgumentError(f"buckets: {message}", operator="jit", argument="buckets")


class Bucketed(torch.nn.Module):
    """A graph whose batch is padded: its program runs for the sizes of buckets alone."""

    def __init__(self, graph_module, names, buckets: Buckets, program, report):
        super().__init__()
        self.__dict__["graph_module"] = graph_module
        self.program = program
        self.report = report
        self.proved: dict = {}
        given = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        found = {}
        for node, name in zip(given, names):
            value = example_of(node)
            for dim, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if (name, dim) in buckets.sizes and isinstance(extent, torch.SymInt):
                    found.setdefault(extent.node.expr, set()).update([tuple(buckets.sizes[name, dim])])
        if len(found) > 1 or any(len(sizes) > 1 for sizes in found.values()):
            _wrong("two dimensions of different sizes, or with different buckets, are padded: name one size of the "
                   "batch for all arguments that have it")
        self.symbol, self.sizes = None, ()
        for self.symbol, (self.sizes,) in found.items():
            pass
        self.places = []
        for i, (node, name) in enumerate(zip(given, names)):
            value = example_of(node)
            extents = value.shape if isinstance(value, torch.Tensor) else [value]
            for dim, extent in enumerate(extents):
                if isinstance(extent, torch.SymInt) and self.symbol in extent.node.expr.free_symbols:
                    if extent.node.expr != self.symbol:
                        _wrong(f"dimension {dim} of '{name}' is {extent.node.expr} of the batch")
                    self.places.append((i, dim if isinstance(value, torch.Tensor) else None))

    def forward(self, *inputs):
        if self.symbol is None:
            return self.program(*inputs)
        at, dim = next(each for each in self.places if each[1] is not None)
        size = inputs[at].shape[dim]
        bucket = next((each for each in self.sizes if each >= size), None)
        if bucket is None:
            _wrong(f"a batch is {size}, the largest bucket is {self.sizes[-1]}")
        # An empty batch has no row to copy.
        if size in (0, bucket):
            return self._counted(size, inputs)
        padded = list(inputs)
        for i, dim in self.places:
            padded[i] = bucket if dim is None else _padded(padded[i], dim, bucket)
        key = (size, bucket, tuple(tuple(each.shape) for each in inputs if isinstance(each, torch.Tensor)))
        if key not in self.proved:
            self.proved[key] = cuts(self.graph_module, inputs, padded)
        results = self._counted(size, padded)
        flat, spec = torch.utils._pytree.tree_flatten(results)
        flat = [each if cut is None else each.narrow(cut[0], 0, cut[1]) for each, cut in zip(flat, self.proved[key])]
        return torch.utils._pytree.tree_unflatten(flat, spec)

    def _counted(self, size: int, inputs):
        self.report.size = size
        try:
            return self.program(*inputs)
        finally:
            self.report.size = None


def _padded(value, dim: int, extent: int):
    """A tensor with copies of its first row behind its rows: numbers that the program can have."""
    # Without a gradient: where that of the first row is infinite, zero times it would be added as NaN.
    row = value.detach().narrow(dim, 0, 1)
    sizes = list(value.shape)
    sizes[dim] = extent - value.shape[dim]
    return torch.cat([value, row.expand(sizes)], dim)


@dataclasses.dataclass
class Compiled:
    """What was compiled for the shapes of one call, and how often it was used.

    Attributes
    ----------
    name : str
        The module.
    inputs : dict
        Shapes of the arguments, by their names.
    gradients : bool
        Whether there is a backward program as well.
    calls : int
    sizes : dict
        With buckets, the sizes of batches that were padded to this one, and how often each was.
    memory : int or None
        Bytes of arguments, results and intermediate values, as the compiler plans them, of forward and backward
        program together without what both have; ``None`` where the program does not say.
    """

    name: str
    inputs: dict
    gradients: bool
    calls: int = 0
    sizes: dict = dataclasses.field(default_factory=dict)
    memory: int | None = None


def counted(program, paths, tensors, wrt) -> None:
    """Notes a call of a program in its report."""
    report = program.report
    shapes = {path: tuple(each.shape) for path, each in zip(paths, tensors) if path not in report.state}
    kinds = tuple((each.dtype, str(each.device)) for each in tensors)
    key = (id(program), tuple(shapes.items()), wrt, kinds)
    found = report.used.get(key)
    if found is None:
        found = report.used[key] = Compiled(program.options.get("name", "graph"), shapes, bool(wrt))
        found.memory = _memory(program)
    found.calls += 1
    if report.size is not None:
        found.sizes[report.size] = found.sizes.get(report.size, 0) + 1


def _memory(program) -> int:
    """The bytes that the last call's programs need."""
    (inputs, outputs, own), *backward = program.last.memory()
    # The backward program's arguments are results of the forward program.
    return inputs + outputs + own + sum(own for _, _, own in backward)
