"""A graph of ``torch.fx`` (as dynamo captures it) as a program of ours: each node is the operator that computes it."""

from __future__ import annotations

import os
import re

import torch

from .. import _native, ops
from .._errors import ArgumentError, Error
from .._native import Tensor
from ._exchange import TORCH_DTYPES
from ._aten import arguments_of
from ._table import REPLACED, entry, example_of


class Unsupported(Exception):
    """A node that is left to PyTorch, and why."""

    def __init__(self, node, reason: str):
        super().__init__(f"{node.format_node() if hasattr(node, 'format_node') else node}: {reason}")
        self.node = node
        self.reason = reason


#: Methods whose results are views in PyTorch: what is written into them is written into their base.
_VIEWS = {
    "view", "reshape", "transpose", "permute", "expand", "unsqueeze", "squeeze", "flatten", "chunk", "split", "t",
    "narrow", "select", "unbind", "getitem", "view_as", "unflatten", "movedim", "swapaxes", "diagonal", "detach",
    "contiguous", "to", "T", "mT", "getattr", "float", "half", "expand_as", "reshape_as", "type_as", "bfloat16",
    "double", "long", "int", "bool", "type", "cpu", "adjoint", "broadcast_to", "broadcast_tensors",
    "tensor_split", "hsplit", "vsplit", "dsplit", "unfold", "ravel", "swapdims", "moveaxis", "split_with_sizes",
    "unsafe_split", "unsafe_chunk", "meshgrid", "positive", "pos", "H", "mH", "atleast_1d", "atleast_2d",
    "atleast_3d",
    "slice", "alias", "lift", "lift_fresh", "_conj", "detach_", "view_as_real", "_unsafe_view",
    # Of complex numbers these are views, of real ones and of those that are computed the tensor itself.
    "conj", "conj_physical", "real", "imag", "view_as_complex", "resolve_conj", "resolve_neg", "matrix_H",
    "_neg_view",
    # In evaluation these return their argument.
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
}


def why_not(node) -> str:
    """Why a node is left to PyTorch; empty if an operator computes it."""
    if node.op in ("placeholder", "get_attr", "output"):
        return ""
    if node.op == "call_module":
        return "a module that dynamo did not look into"
    found = entry(node.op, node.target)
    if found.run is None:
        return found.reason
    return _why_no_write(node) if writes(node) else ""


def why_not_operator(target) -> str:
    """Why an operator of ATen or a function of PyTorch is left to it; empty if an operator computes it."""
    return entry("call_function", target).reason


def operator_of(node) -> str:
    """The name of the operator that computes a node, as far as the table says it."""
    return entry(node.op, node.target).operator


def writes(node) -> bool:
    """Whether a node changes the memory of its first argument."""
    if not node.op.startswith("call") or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return False
    name = _short(node)
    # Python's `operator.and_` and `operator.or_` are no methods in place.
    in_place = name.endswith("_") and not name.endswith("__") and getattr(node.target, "__module__", "") != "_operator"
    return in_place or name == "setitem" or bool(node.kwargs.get("inplace")) or entry(node.op, node.target).mutates


def _short(node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[-1]
    return str(getattr(node.target, "__name__", node.target))


def _base(node):
    """The node whose memory a node has: through views and what was computed in place."""
    while node.op.startswith("call"):
        if _is_replaced(node) and node.all_input_nodes:
            node = node.all_input_nodes[0]
            continue
        if not node.args or not isinstance(node.args[0], torch.fx.Node):
            break
        if _short(node) not in _VIEWS and not writes(node):
            break
        node = node.args[0]
    return node


def _is_replaced(node) -> bool:
    """Whether a function of the user's own is called, which may return views of its arguments."""
    return node.op == "call_function" and node.target in REPLACED


def _through_view(node) -> bool:
    """Whether a node is a view of its base, and not the base itself or what was computed in place of it."""
    if _is_replaced(node):
        return True
    while node.op.startswith("call") and node.args and isinstance(node.args[0], torch.fx.Node):
        if writes(node):
            node = node.args[0]
            continue
        return _short(node) in _VIEWS or _is_replaced(node)
    return False


def views_of(node) -> list:
    """The nodes that make views of the memory into which a node writes."""
    base = _base(node.args[0])

    def is_view(each) -> bool:
        if _is_replaced(each):
            return any(_base(argument) is base for argument in each.all_input_nodes)
        return _short(each) in _VIEWS and each.op.startswith("call") and _base(each) is base

    return [each for each in node.graph.nodes if is_view(each)]


def _why_no_write(node) -> str:
    """Why what is written in place cannot become a value of its own."""
    base = _base(node.args[0])
    # What is made of the memory behind the write is made of the new value, and what was made of it before keeps the
    # old one: that must not be read any more. A write through a view would be one into a part of the base.
    order = {each: number for number, each in enumerate(node.graph.nodes)}
    views = views_of(node)
    stale = (order[view] < order[node] and any(order[user] > order[node] for user in view.users) for view in views)
    if _through_view(node.args[0]) or any(stale):
        return "it writes into memory that has views"
    value = example_of(base)
    if base.op in ("placeholder", "get_attr") and value is not None and value.requires_grad:
        return "it writes into a tensor that requires a gradient"
    differentiable = (getattr(example_of(each), "requires_grad", False) for each in node.all_input_nodes)
    if base.op in ("placeholder", "get_attr") and any(differentiable):
        return "it writes a value that has a gradient into an input"
    return ""


def switches_autocast(node) -> bool:
    """Whether a node turns PyTorch's mixed precision on or off."""
    return node.op == "call_function" and _short(node) in ("_enter_autocast", "_exit_autocast")


#: The folder of PyTorch.
_PYTORCH = os.path.dirname(torch.__file__) + os.sep


def place_of(node) -> str | None:
    """The line of the user's program that a node comes from, as ``file:line``."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', getattr(node, "stack_trace", None) or "")
    # PyTorch's own modules, and what wraps their calls, are in between.
    lines = [each for each in lines if not each[0].startswith(_PYTORCH)] or lines
    return f"{lines[-1][0]}:{lines[-1][1]}" if lines else None


def place_of_stack(stack) -> str:
    """`` at file:line`` of the user's line in the stack of an error of ``torch.compile``, or nothing."""
    lines = [each for each in stack or () if not each.filename.startswith(_PYTORCH)]
    return f" at {lines[-1].filename}:{lines[-1].lineno}" if lines else ""


def scope_of(node) -> str:
    """The module that a node belongs to: ``transformer.h.0.attn``."""
    stack = node.meta.get("nn_module_stack") or {}
    names = [value[0] for value in stack.values() if isinstance(value, tuple)]
    return path_of(names[-1]) if names else ""


def path_of(source: str) -> str:
    """A path of words, of a source as dynamo writes it: ``L['self']._modules['fc']._parameters['weight']``."""
    source = re.sub(r"^L\['self'\]", "", source)
    source = re.sub(r"_(modules|parameters|buffers)\b", "", source)
    words = re.findall(r"[A-Za-z0-9_]+", re.sub(r"^L\[", "[", source))
    return ".".join(words)


class Context:
    """What table entries may ask for beside their arguments."""

    def __init__(self, graph, device: str, generator):
        self.graph = graph
        self.device = device
        self.mutates = False
        self.constant = False
        self.node = None
        #: Values that `_train` finds again.
        self.marked: list = []
        self._generator = generator
        self._replaced: list = []

    def generator(self):
        """The generator of random numbers, two integers that PyTorch's generator draws for each call."""
        if self._generator is None:
            raise ArgumentError("random numbers are drawn, and the program has no generator")
        return self._generator

    def replace(self, argument: int, value, name: str = "") -> None:
        """Gives an argument of the node, by its place or its name, another value, for the nodes behind it."""
        given = self.node.args
        self._replaced.append((given[argument] if argument < len(given) else self.node.kwargs[name], value))


def differentiable(graph, wrt) -> set:
    """The nodes that have a gradient in PyTorch, where the inputs ``wrt`` have one and the graph does not say it."""
    found, enabled = set(wrt), True
    for node in graph.nodes:
        if _short(node) == "_set_grad_enabled":
            enabled = node.args[0]
        value = example_of(node)
        number = isinstance(value, torch.Tensor) and not value.is_floating_point()
        if enabled and not number and _short(node) not in ("detach", "detach_") and node.op.startswith("call"):
            if any(each in found for each in node.all_input_nodes):
                found.add(node)
        if writes(node) and node in found:
            found.add(_base(node))
    return found


def written_inputs(graph) -> list:
    """The numbers of the inputs that a graph writes into, statistics of normalizations included."""
    places = {node: i for i, node in enumerate(node for node in graph.nodes if node.op == "placeholder")}
    bases = [_base(node.args[0]) for node in graph.nodes if writes(node)]
    for node in graph.nodes:
        # These write into arguments of theirs.
        if node.op == "call_function" and _short(node) in _STATISTICS:
            bases += node.all_input_nodes[1:]
    return sorted({places[each] for each in bases if each in places})


#: Functions that update the statistics that they are given.
_STATISTICS = ("batch_norm", "instance_norm", "native_batch_norm", "_native_batch_norm_legit")


def enables_gradients(graph) -> bool:
    """Whether a graph that dynamo captured has parts with gradients also where the caller has turned them off."""
    exported = any("val" in node.meta for node in graph.nodes)
    return not exported and any(_short(node) == "_set_grad_enabled" and node.args[0] for node in graph.nodes
                                if node.op == "call_function")


#: Names of normal random numbers.
_NORMAL = ("normal", "normal_functional", "log_normal")


def draws(graph) -> bool:
    """Whether a graph draws random numbers."""

    def given(node, name, place, default):
        if isinstance(node.target, torch._ops.OpOverload):
            arguments = arguments_of(node)
            return arguments.get({"training": "train"}.get(name, name), arguments.get(name, default))
        return node.kwargs.get(name, node.args[place] if place < len(node.args) else default)

    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            name = _short(node)
            if "scaled_dot_product" in name and given(node, "dropout_p", 4, 0.0):
                return True
            if "dropout" in name and given(node, "training", 2, True) and given(node, "p", 1, 0.5):
                return True
            attention = "multi_head_attention" in name and given(node, "training", 13, True)
            if attention and given(node, "dropout_p", 10, 0.0):
                return True
            if name.startswith("rrelu") and given(node, "training", 3, False):
                return True
            # Not `normalize`, nor what else begins so: PyTorch's generator stays as it is where nothing is drawn.
            if name.startswith(("rand", "bernoulli", "multinomial", "gumbel")) or name.rstrip("_") in _NORMAL:
                return True
    return False


def interpret(module, inputs, device: str, generator=None, failed=None, marked=None, constant=False):
    """Computes a graph on values of a trace: its output, and the values that took the place of inputs, by number.

    ``failed`` is given the node at which an operator refused, ``marked`` the values that are marked. ``constant`` is
    whether the caller has turned gradients off, which a part of the graph turns on.
    """
    graph = module.graph
    values: dict = {}
    context = Context(graph, device, generator)
    context.marked = context.marked if marked is None else marked
    context.constant = constant
    arguments = iter(inputs)
    places = {}
    written: dict = {}
    # Nodes that have the memory of a node: what is computed in place.
    same: dict = {}
    before = _native.place(None)
    try:
        for node in graph.nodes:
            context.node = node
            if node.op == "placeholder":
                places[node] = len(places)
                values[node] = next(arguments)
                continue
            if node.op == "output":
                output = torch.fx.node.map_arg(node.args[0], values.__getitem__)
                return output, {places[each]: value for each, value in written.items()}
            if node.op == "get_attr":
                raise Unsupported(node, "a constant tensor of the graph")
            _native.place(place_of(node) or before)
            value = _run(node, values, context)
            changed, context._replaced = context._replaced, []
            if context.mutates:
                context.mutates = False
                changed.append((node.args[0], value))
            values[node] = value
            for target, new in changed:
                target = _base(target)
                if context.constant and target not in places:
                    raise Unsupported(node, "it writes without gradients into a value that may have one")
                if isinstance(values[target], Tensor) and new.dtype != values[target].dtype:
                    new = ops.to(new, dtype=values[target].dtype)
                same.setdefault(target, [target]).append(node)
                for each in same[target]:
                    if each is not node or writes(node):
                        values[each] = new
                if target in places:
                    written[target] = ops.detach(new) if new.dtype.is_floating_point or new.dtype.is_complex else new
    except (Error, Unsupported, TypeError, ValueError, IndexError) as error:
        if failed is not None:
            failed.append((context.node, error.reason if isinstance(error, Unsupported) else str(error)))
        raise
    finally:
        _native.place(before)
    raise Error("the graph has no output", code="Graph")


def _run(node, values, context):
    found = entry(node.op, node.target)
    if found.run is None:
        raise Unsupported(node, found.reason)
    context.mutates = found.mutates
    arguments = torch.fx.node.map_arg(node.args, values.__getitem__)
    keywords = torch.fx.node.map_arg(node.kwargs, values.__getitem__)

    def run():
        result = found.run(context, *arguments, **keywords)
        _expect_like(node, result, example_of(node))
        return _detached(result) if context.constant else result

    scope = scope_of(node)
    return _native.scope(scope, run) if scope else run()


def _expect_like(node, result, example) -> None:
    """An error if a result is not of the shape and type that PyTorch says: the table has another operator then."""
    if isinstance(example, (tuple, list)) and isinstance(result, (tuple, list)):
        read = {user.args[1] for user in node.users if _short(user) == "getitem"}
        lacks = [i for i, each in enumerate(result) if each is None and i in read and example[i] is not None]
        if lacks and len(result) == len(example):
            raise Unsupported(node, f"result {lacks[0]} is read, which no operator computes")
        # A result that is `None` in PyTorch (weights that nobody asked for) need not be there.
        theirs = [each for each in example if each is not None]
        if len(result) not in (len(theirs), len(example)):
            raise Unsupported(node, f"PyTorch has {len(example)} results, the operator {len(result)}")
        for ours, theirs in zip(result, theirs if len(result) == len(theirs) else example):
            if ours is not None:
                _expect_like(node, ours, theirs)
        return
    if isinstance(example, torch.Tensor) and result is None and node.op.startswith("call"):
        raise Unsupported(node, "no operator computes its result")
    if isinstance(example, torch.Tensor) and isinstance(result, (tuple, list)):
        raise Unsupported(node, f"PyTorch has one result, the operator {len(result)}")
    if isinstance(example, (tuple, list)) and isinstance(result, Tensor):
        raise Unsupported(node, f"PyTorch has {len(example)} results, the operator one")
    if not isinstance(example, torch.Tensor) or not isinstance(result, Tensor):
        return
    theirs = tuple(example.shape)
    # Extents that PyTorch does not know as numbers are not compared.
    same = len(theirs) == len(result.shape) and all(
        a == b for a, b in zip(result.shape, theirs) if type(b) is int)
    if not same or TORCH_DTYPES[result.dtype.name] != example.dtype:
        raise Unsupported(node, f"its result is {example.dtype} {list(theirs)} in PyTorch, and "
                                f"{TORCH_DTYPES[result.dtype.name]} {list(result.shape)} by the operator")


def _detached(result):
    if isinstance(result, Tensor):
        return ops.detach(result) if result.dtype.is_floating_point or result.dtype.is_complex else result
    if isinstance(result, (list, tuple)):
        return type(result)(_detached(item) for item in result)
    return result
