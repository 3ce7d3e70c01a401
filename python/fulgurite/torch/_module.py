"""Modules of PyTorch as our programs: a backend of ``torch.compile``, and ``fulgurite.jit(module)``."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import logging
import re

import torch
from torch.fx.passes.split_module import split_module

from .. import _native
from .._errors import ArgumentError, Error, meant, not_called
from .._executor import executor_names
from .._explanation import Explanation
from .._function import Traces, _positional_names
from .._trees import word
from ..transforms import _native as native_transforms
from ._buckets import Bucketed, Buckets, Compiled, counted
from ._exchange import DTYPES, cross, extent_of, has_gradient, shares
from ._graph import (
    Unsupported, differentiable, draws, enables_gradients, interpret, operator_of, path_of, place_of, place_of_stack,
    switches_autocast, views_of, why_not, writes, written_inputs,
)
from ._table import example_of


#: Why a graph under PyTorch's autocast is left to PyTorch as a whole.
_AUTOCAST = "torch.autocast is on, whose types are PyTorch's: use fulgurite.jit(module, autocast=...) instead"


#: Why a call is left to PyTorch as a whole whose arguments share what is written.
_OVERLAP = "an argument, parameter or buffer that is written in place shares memory with another one"


class Break:
    """A node that PyTorch computes between two programs, and why; without a node, where ``torch.compile`` gave up."""

    def __init__(self, node, reason: str):
        self.name = "torch.compile" if node is None else str(getattr(node.target, "__name__", node.target))
        self.place = None if node is None else place_of(node)
        self.reason = reason.split("\n  at ")[0]

    def __repr__(self) -> str:
        at = f" at {self.place}" if self.place else ""
        return f"{self.name}{at}: {self.reason}"


class Report:
    """What was compiled, in order, and what was left to PyTorch; ``keep`` is whether programs are kept to be shown."""

    def __init__(self, keep: bool = True):
        self.keep = keep
        self.programs: list[Program] = []
        self.breaks: list[Break] = []
        self.last: list[Program] = []
        #: What was compiled for which shapes.
        self.used: dict = {}
        #: Names of parameters and buffers, and the size of the batch that is padded.
        self.state: set[str] = set()
        self.size: int | None = None
        #: Python's collector, while the first graph is captured; nothing before and after that.
        self.pause: _Pause | None = None
        self.captured = False


class _Pause:
    """Pauses Python's collector of cycles until `end`.

    While a module is captured, PyTorch makes so many objects that all of the process are walked over, which takes a
    tenth of the time, and next to nothing of them is in cycles.
    """

    def __init__(self):
        self.running = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        """Goes on as before; a second call does nothing."""
        running, self.running = self.running, False
        if running:
            gc.enable()


class _Receiver:
    """How the captured code calls the module and its arguments, where that is not ``self`` and their own names.

    ``torch.compile`` captures the method ``forward``, whose first parameter may have any name. It does not capture
    code of ``torch.nn``, so that it captures a function ``inner(*args, **kwargs)`` around such a module, ``fn``.
    """

    def __init__(self, module):
        forward = module.forward if isinstance(module, torch.nn.Module) else None
        code = getattr(getattr(forward, "__func__", None), "__code__", None)
        self.root = code.co_varnames[0] if code is not None and code.co_argcount else "self"
        self.wrapped = forward is not None and bool(torch._dynamo.trace_rules.check(forward))
        self.names: list[str] = []
        if self.wrapped:
            self.root = "fn"
            self.names, self.rest = _positional_names(forward)

    def renamed(self, source: str) -> str:
        """A source as dynamo writes it for a method ``forward(self, ...)``."""
        if source.startswith(f"L['{self.root}']"):
            return "L['self']" + source[len(self.root) + 5 :]
        found = re.match(r"L\['(args|kwargs)'\]\['?(\w+)'?\]", source) if self.wrapped else None
        if found is None:
            return source
        kind, which = found.groups()
        if kind == "args":
            behind = int(which) - len(self.names)
            which = self.names[int(which)] if behind < 0 else f"{self.rest}.{behind}"
        return f"L['{which}']" + source[found.end() :]

    def renames(self, graph_module) -> None:
        """Renames the modules that nodes belong to."""
        for node in graph_module.graph.nodes if self.root != "self" else ():
            stack = node.meta.get("nn_module_stack")
            if stack:
                node.meta["nn_module_stack"] = {
                    key: (self.renamed(value[0]), *value[1:]) if isinstance(value, tuple) else value
                    for key, value in stack.items()
                }


def _name_of(node, receiver: _Receiver | None = None) -> str:
    """What an input is called in traces: the path of a parameter, the name of an argument."""
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", None)
    name = name() if callable(name) else name
    if isinstance(name, str) and receiver is not None:
        name = receiver.renamed(name)
    path = path_of(name) if isinstance(name, str) else ""
    return traced_name(path or word(node.name))


def traced_name(path: str) -> str:
    """A path as traces have it: none begins with a digit."""
    return path if not path[0].isdigit() else f"arg{path}"


class Program(torch.nn.Module):
    """A graph that our programs compute; where an operator refuses, the graph is divided around its node."""

    def __init__(self, graph_module, names, options: dict, report: Report):
        super().__init__()
        self.__dict__["graph_module"] = graph_module
        self.options = options
        self.report = report
        self.names = names
        self.random = draws(graph_module.graph)
        self.writes = written_inputs(graph_module.graph)
        self.enables = enables_gradients(graph_module.graph)
        self.forms: dict = {}
        self.functions: dict = {}
        self.divided = None
        self.left_to_autocast = False
        #: Whether the caller has turned gradients off.
        self.off = False
        self.last = None
        if report.keep:
            report.programs.append(self)

    def forward(self, *inputs):
        kinds = {each.device.type for each in inputs if isinstance(each, torch.Tensor)} or {"cpu"}
        if any(torch.is_autocast_enabled(kind) for kind in kinds):
            # The types of its operators are PyTorch's; ours are asked for by `autocast=` of `jit`.
            if not self.left_to_autocast and not self.options.get("strict"):
                self.report.breaks.append(Break(None, _AUTOCAST))
            if self.options.get("strict"):
                raise Error(_AUTOCAST, code="Unsupported")
            self.left_to_autocast = True
            return _Part(self.graph_module)(*inputs)
        if self.divided is not None:
            return self.divided(*inputs)
        if self.writes and _overlap(inputs, self.writes):
            # Arguments of a program are values: what is written into one is not read through another.
            if self.options.get("strict"):
                raise Error(_OVERLAP, code="Memory")
            if all(each.reason != _OVERLAP for each in self.report.breaks):
                self.report.breaks.append(Break(None, _OVERLAP))
            return _Part(self.graph_module)(*inputs)
        failed: list = []
        try:
            return self._run(inputs, failed)
        except (Error, Unsupported, TypeError, ValueError, IndexError) as error:
            refused = dict(failed[-1:]) or self._without_gradient(error)
            if not refused:
                raise
            if self.options.get("strict"):
                raise Error(str(Break(*next(iter(refused.items())))), code="Unsupported") from error
        self.divided = divide(self.graph_module, self.names, self.options, self.report, refused)
        if self.report.keep:
            self.report.programs.remove(self)
        return self.divided(*inputs)

    def _without_gradient(self, error) -> dict:
        """The nodes of an operator that has no gradient, where that is the error."""
        if getattr(error, "code", "") != "NoGradient":
            return {}
        calls = (node for node in self.graph_module.graph.nodes if node.op.startswith("call"))
        return {node: str(error) for node in calls if operator_of(node) == error.operator}

    def _form(self, inputs):
        """The tensors of a call with their paths, and its form."""
        flat: list = []
        structure = tuple(_structure(value, name, flat) for name, value in zip(self.names, inputs))
        form = self.forms.get(structure)
        if form is None:
            paths = [path for path, _ in flat] + ["generator"] * self.random
            form = self.forms[structure] = _native.Form(paths, str(len(self.forms)), structure)
        tensors = [tensor for _, tensor in flat]
        if self.random:
            # PyTorch's generator decides, so that torch.manual_seed repeats a run; the numbers are our own.
            device = next((each.device for each in tensors), None)
            tensors.append(torch.randint(0, 1 << 31, (2,), dtype=torch.int64).to(device, non_blocking=True))
        return tensors, [path for path, _ in flat], form

    def _trace(self, failed, wrt, structure, tensors):
        tensors = list(tensors)
        generator = tensors.pop() if self.random else None
        device = next((each.device for each in tensors), "cpu")
        leaves = iter(tensors)
        inputs = [_input(value, leaves) for value in structure]
        without = self.off and bool(wrt)
        output, written = interpret(self.graph_module, inputs, device, generator, failed, constant=without)
        found: list = []
        # Results that PyTorch knows to have no gradient: those of `detach()`, or made without gradients. Exported
        # programs do not say which they are.
        constants: list = []
        exported = any("val" in node.meta for node in self.graph_module.graph.nodes)
        has_gradient: set = set()
        if exported:
            # The paths of inputs begin with their names, which may have dots.
            parts = (path.split(".") for path in wrt)
            begin = {".".join(each[:count]) for each in parts for count in range(1, len(each) + 1)}
            inputs_of = {node for node, name in zip(_placeholders(self.graph_module), self.names) if name in begin}
            has_gradient = differentiable(self.graph_module.graph, inputs_of)

        def leaf(value, node):
            if isinstance(value, _native.Tensor):
                example = example_of(node) if isinstance(node, torch.fx.Node) else None
                if isinstance(example, torch.Tensor):
                    if node not in has_gradient if exported else not example.requires_grad:
                        constants.append(len(found))
                found.append(value)
                return _Leaf(len(found) - 1)
            if isinstance(value, (list, tuple)):
                nodes = node if isinstance(node, (list, tuple)) and len(node) == len(value) else [None] * len(value)
                return tuple(leaf(item, each) for item, each in zip(value, nodes))
            return value

        returned = next(node for node in self.graph_module.graph.nodes if node.op == "output")
        of = leaf(output, returned.args[0])
        targets = tuple(written)
        found.extend(written.values())
        # Values that are written into inputs are behind the results.
        return found, [f"out{i}" for i in range(len(found))], (of, targets, tuple(constants))

    def _native(self, wrt, failed):
        """The compiled function with gradients of the inputs with these paths, or without any."""
        function = self.functions.get(wrt)
        if function is None:
            holder: list = [failed]

            def trace(structure, tensors):
                return self._trace(holder[0], wrt, structure, tensors)

            known = ("executors", "transforms", "autocast")
            options = {key: value for key, value in self.options.items() if key in known}
            name = self.options.get("name", "graph")
            if wrt:
                function = _native.VjpFunction(trace, name, list(wrt), **options)
            else:
                function = _native.Function(trace, name, **options)
            self.functions[wrt] = function = (function, holder)
        function, holder = function
        holder[0] = failed
        return function

    def _run(self, inputs, failed):
        tensors, paths, form = self._form(inputs)
        if any(tensor.dtype not in DTYPES for tensor in tensors):
            self._foreign(inputs, failed)
        wrt, self.off = (), not torch.is_grad_enabled()
        if self.enables or not self.off:
            wrt = tuple(path for path, each in zip(paths, tensors) if each.requires_grad and has_gradient(each))
        function = self._native(wrt, failed)
        if self.report.keep:
            self.report.last = [each for each in self.report.last if each is not self] + [self]
        given = tensors
        if wrt:
            call = _Call(function, form, (*paths, "generator")[: len(tensors)])
            with torch.enable_grad():
                results = list(_Run.apply(call, *tensors))
            of, targets, _ = call.structure
        else:
            crossing = cross(tensors)
            arrays, (of, targets, _) = function.call(form, crossing.arrays)
            results = crossing.results(arrays)
        self.last = function
        if self.report.keep:
            counted(self, paths, given, wrt)
        if targets:
            with torch.no_grad():
                # What the backward program reads of the old values, it misses: it is told by the tensor's version.
                for target, value in zip(targets, results[len(results) - len(targets) :]):
                    inputs[target].copy_(value)
        return _filled(of, results)

    def _foreign(self, inputs, failed):
        """Says which nodes have an input of a dtype that is none here."""
        for placeholder, value in zip(_placeholders(self.graph_module), inputs):
            each: list = []
            _structure(value, "", each)
            foreign = next((tensor.dtype for _, tensor in each if tensor.dtype not in DTYPES), None)
            if foreign is not None:
                reason = f"an input has dtype {foreign}, which is no element type here"
                failed.extend((user, reason) for user in placeholder.users if user.op.startswith("call"))
                raise Error(reason, code="DType")

    def traces(self, which: str, target: str | None = None) -> Traces:
        if isinstance(self.last, _native.VjpFunction):
            return Traces(self.last.stages(which, target))
        return Traces(self.last.stages(target) if self.last is not None and which == "forward" else [])


def _structure(value, name: str, flat: list):
    """An input without its tensors, which are added to ``flat`` with their paths."""
    if isinstance(value, torch.Tensor):
        flat.append((name, value))
        return None
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_structure(item, f"{name}.{i}", flat) for i, item in enumerate(value)))
    return (type(value), value)


def _input(structure, leaves):
    """An input of its structure and the next tensors."""
    if structure is None:
        return next(leaves)
    kind, value = structure
    return [_input(item, leaves) for item in value] if kind == "list" else value


def _overlap(inputs, places) -> bool:
    """Whether a tensor at one of these places shares memory with another input."""
    tensors: list = []
    starts = []
    for value in inputs:
        starts.append(len(tensors))
        _structure(value, "", found := [])
        tensors += [tensor for _, tensor in found]
    extents = [extent_of(each) if each.layout is torch.strided and not each.is_meta else (0, 0) for each in tensors]
    for place in places:
        own, at = inputs[place], starts[place]
        if isinstance(own, torch.Tensor) and own.numel():
            start, end = extents[at]
            if any(i != at and low < end and start < high for i, (low, high) in enumerate(extents)):
                return True
    return False


class _Leaf:
    """A tensor in the structure of an output."""

    def __init__(self, index: int):
        self.index = index


def _filled(of, results):
    if isinstance(of, _Leaf):
        return results[of.index]
    return tuple(_filled(item, results) for item in of) if isinstance(of, tuple) else of


class _Call:
    """One call of a program with gradients."""

    def __init__(self, function, form, paths):
        self.function = function
        self.form = form
        self.paths = paths
        self.structure = None
        self.watched: list = []

    def watch(self, name: str, tensor) -> None:
        """Remembers the version of a tensor whose memory the backward program reads."""
        # Another tensor of the same memory and version: one with a graph would keep itself alive.
        self.watched.append([name, tensor.detach(), tensor._version])


class _Run(torch.autograd.Function):
    """The forward program, and the backward program as its derivative."""

    @staticmethod
    def forward(ctx, call, *tensors):
        crossing = cross(list(tensors))
        given = crossing.arrays
        arrays, call.structure, ctx.pullback = call.function.call(call.form, given)
        ctx.set_materialize_grads(False)
        ctx.call = call
        results = crossing.results(arrays)
        # What is saved has the memory of arguments and of results, and is not copied.
        saved = {array.buffer_address for _, array in ctx.pullback.saved() if array.numel()}
        for name, tensor, array in zip(call.paths, tensors, given):
            if array.buffer_address in saved:
                call.watch(f"'{name}'", tensor)
        for i, (tensor, array) in enumerate(zip(results, arrays)):
            if array.buffer_address in saved and shares(tensor, array):
                call.watch(f"result {i}", tensor)
        _, targets, constants = call.structure
        fixed = {*constants, *range(len(results) - len(targets), len(results))}
        fixed |= {i for i, each in enumerate(results) if not has_gradient(each)}
        ctx.mark_non_differentiable(*(results[i] for i in sorted(fixed)))
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *cotangents):
        paths = ctx.call.paths
        if ctx.pullback is None:
            raise RuntimeError(
                "the backward program was run before, and what the forward program saved for it is freed: the first "
                "call needs retain_graph=True"
            )
        for name, tensor, version in ctx.call.watched:
            if tensor._version != version:
                raise RuntimeError(
                    f"{name} was changed in place after the forward pass: the backward program reads its old values"
                )
        crossing = cross([cotangent for cotangent in cotangents if cotangent is not None])
        arrays = iter(crossing.arrays)
        gradients = ctx.pullback.call([None if cotangent is None else next(arrays) for cotangent in cotangents])
        # Of two inputs with one gradient each has its own memory: PyTorch adds to gradients in place.
        found = dict(zip((path for path, _ in gradients), crossing.results([array for _, array in gradients])))
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            # As what PyTorch's own operators save: a loss that is still held, as that of the step before is while the
            # next one runs, would keep all of it.
            ctx.pullback = None
            ctx.call.watched.clear()
        return (None, *(found.get(path) for path in paths))


class _Part(torch.nn.Module):
    """Nodes between two programs. Those that turn gradients off are repeated in each part, and do not turn them on."""

    def __init__(self, graph_module):
        super().__init__()
        self.graph_module = graph_module

    def forward(self, *inputs):
        enabled = torch.is_grad_enabled()
        try:
            return self.graph_module(*inputs)
        finally:
            torch.set_grad_enabled(enabled)


def divide(graph_module, names, options, report, refused=None):
    """The graph as programs with the nodes between them that PyTorch computes."""
    refused = dict(refused or {})
    if any(switches_autocast(node) for node in graph_module.graph.nodes):
        if options.get("strict"):
            raise Error(_AUTOCAST, code="Unsupported")
        report.breaks.append(Break(None, _AUTOCAST))
        return graph_module
    for node in graph_module.graph.nodes:
        reason = refused.get(node) or why_not(node)
        if node.op == "get_attr":
            reason = ""
        if reason:
            refused[node] = reason
    # PyTorch makes the views through which it writes; ours would be copies.
    for node in [node for node in refused if writes(node)]:
        for view in views_of(node):
            refused.setdefault(view, "it makes a view of memory that PyTorch writes into")
    if refused and options.get("strict"):
        node, reason = next(iter(refused.items()))
        raise Error(f"{Break(node, reason)}", code="Unsupported")
    report.breaks.extend(Break(node, reason) for node, reason in refused.items())
    if not refused and not any(node.op == "get_attr" for node in graph_module.graph.nodes):
        return Program(graph_module, names, options, report)
    part, ours, parts = 0, True, {}
    for node in graph_module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        theirs = node in refused or node.op == "get_attr"
        if theirs == ours:
            part, ours = part + 1, not theirs
        parts[node] = part
    kinds = {part: node not in refused and node.op != "get_attr" for node, part in parts.items()}
    split = split_module(graph_module, None, lambda node: parts[node], keep_original_order=True)
    known = {node.name: name for node, name in zip(_placeholders(graph_module), names)}
    for part, supported in kinds.items():
        name = f"submod_{part}"
        inner = getattr(split, name, None)
        if supported and inner is not None and any(node.op.startswith("call") for node in inner.graph.nodes):
            inner_names = _unique(known.get(node.name, word(node.name)) for node in _placeholders(inner))
            setattr(split, name, Program(inner, inner_names, options, report))
        elif inner is not None:
            setattr(split, name, _Part(inner))
    return split


def _placeholders(graph_module):
    return [node for node in graph_module.graph.nodes if node.op == "placeholder"]


def _unique(names) -> list[str]:
    """Each name once: gradients are found by it."""
    unique: dict[str, None] = {}
    for name in names:
        while name in unique:
            name += "_"
        unique[name] = None
    return list(unique)


def _compile(graph_module, options: dict, report: Report, buckets=None, receiver=None):
    if receiver is not None:
        receiver.renames(graph_module)
    names = _unique(_name_of(node, receiver) for node in _placeholders(graph_module))
    if buckets is None:
        return divide(graph_module, names, options, report)
    # What PyTorch computes between two programs is not proved to be independent of the padding.
    program = divide(graph_module, names, {**options, "strict": True}, report)
    return Bucketed(graph_module, names, buckets, program, report)


#: What the backend did for `torch.compile`, in order.
_REPORT = Report(keep=False)


def backend(graph_module, example_inputs, *, options=None, **_):
    """The backend of ``torch.compile(module, backend="fulgurite")``; ``options`` are those of :func:`jit`."""
    options = dict(options or {})
    known = ("executors", "transforms", "autocast", "strict")
    for name in options:
        if name not in known:
            raise ArgumentError(f"torch.compile: the backend fulgurite has no option {name!r}{meant(name, known)}; it "
                                f"has {', '.join(known)}", operator="jit", argument=str(name))
    options["executors"] = executor_names(options.get("executors"))
    options["transforms"] = native_transforms(options.get("transforms", ()))
    return _compile(graph_module, options, _REPORT)


def breaks() -> list[Break]:
    """What ``torch.compile(..., backend="fulgurite")`` left to PyTorch in this process, and why."""
    return list(_REPORT.breaks)


torch._dynamo.register_backend(backend, name="fulgurite")


#: Where PyTorch can: programs of two compiled modules that share their code do not count against one limit, beyond
#: which `torch.compile` runs a module eagerly. As many are kept as a compiled function of ours keeps.
_OWN_CACHE = {
    name: value for name, value in {"isolate_recompiles": True, "recompile_limit": 64}.items()
    if name in inspect.signature(torch.compile).parameters
}


@contextlib.contextmanager
def without_messages():
    """Leaves out what a captured function writes to a log, which would break the graph."""
    ignored = getattr(torch._dynamo.config, "ignore_logging_functions", None)
    names = ("debug", "info", "warning", "warning_once", "error", "log")
    added = {getattr(logging.Logger, name) for name in names if hasattr(logging.Logger, name)} - (ignored or set())
    if ignored is None:
        yield
        return
    # PyTorch 2.11 sorts the set for its own log, which fails for functions, and says so at length.
    of_metrics = logging.getLogger("torch._dynamo.metrics_context")
    was_disabled, of_metrics.disabled = of_metrics.disabled, True
    ignored |= added
    try:
        yield
    finally:
        ignored -= added
        of_metrics.disabled = was_disabled


class CompiledModule:
    """A compiled module. What it does not have itself is the module's: parameters, ``train()``, ``state_dict()``."""

    def __init__(self, module, executors=None, transforms=(), autocast=None, strict=False, dynamic=False,
                 buckets=None):
        self._begin(module, type(module).__name__, executors, transforms, autocast, strict)
        options, report, receiver = self._options, self.report, _Receiver(module)
        buckets = self.__dict__["_buckets"] = (
            None if buckets is None else Buckets.of_module(module, buckets))

        # A function, not a method: libraries that wrap `torch.compile` copy what they are given.
        def compile(graph_module, example_inputs):
            report.captured = True
            if report.pause is not None:
                report.pause.end()
            return _compile(graph_module, options, report, buckets, receiver)

        # A second graph would be compiled for each size of the batch, and what is between two is PyTorch's.
        self.__dict__["_whole"] = strict or buckets is not None
        self._compiled = torch.compile(module, backend=compile, dynamic=dynamic, fullgraph=self._whole, **_OWN_CACHE)

    def _begin(self, module, name, executors=None, transforms=(), autocast=None, strict=False):
        self.__dict__["module"] = module
        self.report = Report()
        if isinstance(module, torch.nn.Module):
            self.report.state = {traced_name(name) for name, _ in (*module.named_parameters(remove_duplicate=False),
                                 *module.named_buffers(remove_duplicate=False))}
        self._options = dict(executors=executor_names(executors), transforms=native_transforms(transforms),
                             autocast=autocast, strict=strict, name=name)

    def __call__(self, *arguments, **keywords):
        self.report.last = []
        counts = torch._dynamo.utils.counters["graph_break"]
        before = dict(counts)
        if self._buckets is not None:
            arguments, keywords = self._buckets.marked(arguments, keywords)
        pause = None if self.report.captured else _Pause()
        self.report.pause = pause
        try:
            with without_messages():
                return self._compiled(*arguments, **keywords)
        except torch.fx.experimental.symbolic_shapes.ConstraintViolationError as error:
            told = " ".join(str(error).split())
            hint = ""
            if "torch.ops.fulgurite." in told:
                hint = (" (sizes of an operator of torch.ops.fulgurite follow no formula that is known: call a "
                        "function of PyTorch instead, and name the operator by fulgurite.torch.replaces)")
            raise Error(f"buckets: PyTorch needs the size of the batch as a number{hint}: {told[:600]}", code="Buckets",
                        operator="jit", argument="buckets") from error
        except torch._dynamo.exc.BackendCompilerFailed as error:
            # What was refused here is an error of the call, as it is.
            if isinstance(error.inner_exception, Error):
                raise error.inner_exception from None
            raise
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
            if not self._whole:
                raise
            what = "buckets are for modules that are" if self._buckets is not None else "strict=True, and it is not"
            reason = str(error).strip().splitlines()[0]
            at = place_of_stack(getattr(error, "real_stack", None))
            raise Error(f"jit: {what} one graph: torch.compile: {reason}{at}", code="Unsupported",
                        operator="jit", argument="buckets" if self._buckets is not None else "strict") from error
        finally:
            if pause is not None:
                pause.end()
            for reason, count in counts.items():
                if count > before.get(reason, 0):
                    self.report.breaks.append(Break(None, reason.strip().splitlines()[0]))

    def __repr__(self) -> str:
        return f"CompiledModule({self.__dict__.get('module')!r})"

    def __deepcopy__(self, memo):
        raise TypeError("a compiled module is not copied: copy the module, and compile the copy")

    def __getattr__(self, name):
        if "module" not in self.__dict__:
            raise AttributeError(name)
        module = self.__dict__["module"]
        found = getattr(module, name)
        if not inspect.ismethod(found) or found.__self__ is not module:
            return found

        @functools.wraps(found)
        def call(*arguments, **keywords):
            # `train()`, `to()` and others return the module.
            result = found(*arguments, **keywords)
            return self if result is module else result

        return call

    def __setattr__(self, name, value):
        if name in ("report", "_options", "_compiled"):
            self.__dict__[name] = value
        else:
            setattr(self.__dict__["module"], name, value)

    def __delattr__(self, name):
        delattr(self.__dict__["module"], name)

    @property
    def breaks(self) -> list[Break]:
        """What is left to PyTorch, and why."""
        return list(self.report.breaks)

    def cache_info(self) -> list[Compiled]:
        """What was compiled for which shapes of the arguments, how often each was used, and its memory."""
        return list(self.report.used.values())

    def last_traces(self, target: str | None = None) -> Traces:
        """The forward programs of the last call after each stage; behind those of forward and backward together."""
        parts = ((program, part) for program in self.report.last for part in ("joint", "forward"))
        return Traces(trace for program, part in parts for trace in program.traces(part, target))

    def last_backward_traces(self, target: str | None = None) -> Traces:
        """The backward programs of the last call with gradients after each stage."""
        last = reversed(self.report.last)
        return Traces(trace for program in last for trace in program.traces("backward", target))

    def last_joint_traces(self, target: str | None = None) -> Traces:
        """Forward and backward as one program, as they were before they were divided."""
        return Traces(trace for program in self.report.last for trace in program.traces("joint", target))

    def explain(self, target: str | None = None) -> Explanation:
        """Which executor took which line of the last call, why others did not, and what was left to PyTorch."""
        told = [program.last.explain(target) for program in self.report.last if program.last is not None]
        if not told and not self.breaks:
            raise not_called(self._options["name"], "compiled(...)")
        return Explanation("\n".join([*told, *(f"left to PyTorch: {each}" for each in self.breaks)]))


def jit(module, *, executors=None, transforms=(), autocast=None, strict=False, dynamic=False,
        buckets=None) -> CompiledModule:
    """A module of PyTorch, unmodified, as our programs.

    ``torch.compile`` captures the graphs, and every node becomes the operator that computes it. Forward and backward
    are two programs inside autograd, with parameters under their names. Nodes that no operator computes are left to
    PyTorch and listed by ``breaks``; with ``strict=True`` they are an error.

    Parameters
    ----------
    module : torch.nn.Module, callable or torch.export.ExportedProgram
        Of an exported program the graph is what was exported, and calls are checked against its sizes.
    executors : list of str or Executor, optional
        Executors in the order in which they are asked.
    transforms : list, optional
        Functions from trace to trace; see :mod:`fulgurite.transforms`.
    autocast : str, optional
        ``"bfloat16"`` or ``"float16"`` for mixed precision.
    strict : bool, optional
        Whether a node that is left to PyTorch, or a graph break of ``torch.compile``, is an error.
    dynamic : bool, optional
        What ``torch.compile`` is told. Programs are compiled for each shape in any case.
    buckets : dict, optional
        Sizes to which the batch is padded, by names and dimensions of arguments: ``{"x": {0: [8, 32]}}``. Programs are
        compiled for these sizes alone, and results are cut. Where padding might change a result, the call is an error:
        see the chapter of the book.
    """
    if isinstance(module, CompiledModule):
        raise ArgumentError("jit: the module is compiled already", operator="jit", argument="module")
    if isinstance(module, torch.export.ExportedProgram):
        from ._export import CompiledProgram

        return CompiledProgram(module, buckets, executors=executors, transforms=transforms, autocast=autocast,
                               strict=strict)
    return CompiledModule(module, executors, transforms, autocast, strict, dynamic, buckets)
