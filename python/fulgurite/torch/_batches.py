"""Whether a graph may run with more rows in a batch than were asked for: a proof by its structure.

The graph is traced for the batch that is asked for and for the padded one, into ATen operators. Both must be the same
program but for extents of the batch, and of each value it is shown, operator by operator, that its first rows do not
depend on those behind them: a value whose extent differs has the same first rows in both, and any other value is the
same. What is not shown is refused: statistics of a batch, means and losses over it, numbers that depend on its size.
"""

from __future__ import annotations

import math
import operator

import torch
from torch._decomp import core_aten_decompositions
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from .._errors import Error
from ._graph import place_of


class _Refused(Exception):
    """Why the rows of a value are not shown to be independent of others."""


def cuts(graph_module, inputs, padded) -> list:
    """For each output the dimension that padding made longer and its extent before, or ``None``.

    ``inputs`` and ``padded`` are the inputs of the graph without and with padding.

    Raises
    ------
    fulgurite.Error
        If padding may change a result, with the operator and its line.
    """
    ours = _traced(graph_module, inputs)
    try:
        theirs = _traced(graph_module, padded)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        _refuse(None, f"the padded batch is an error: {' '.join(str(error).split())[:200]}")
    nodes = list(zip(ours.graph.nodes, theirs.graph.nodes))
    if len(ours.graph.nodes) != len(theirs.graph.nodes):
        _refuse(None, "it is another program for another size of the batch")
    varying: dict = {}
    for node, other in nodes:
        try:
            if node.op == "output":
                return [_cut(each, varying) for each in torch.utils._pytree.tree_leaves(node.args[0])]
            if node.op != other.op or node.target != other.target and node.op != "placeholder":
                raise _Refused("it is another program for another size of the batch")
            numbers = node.op == "placeholder" and not isinstance(node.meta.get("val"), torch.Tensor)
            varying[node] = None if numbers else _differing(node.meta.get("val"), other.meta.get("val"))
            if node.op == "get_attr":
                _same_data(getattr(ours, node.target), getattr(theirs, other.target))
            if node.op == "call_function":
                _checked(node, other, varying)
        except _Refused as refused:
            _refuse(node, str(refused))
    raise Error("the graph has no output", code="Graph")


def _refuse(node, reason: str) -> None:
    at = place_of(node) if node is not None else None
    name = f"'{node.target}'" + (f" at {at}" if at else "") + ": " if node is not None else ""
    raise Error(f"buckets: padding may change the results: {name}{reason}", code="Buckets", operator="jit",
                argument="buckets")


def _traced(graph_module, inputs):
    """The graph as ATen operators on values, for inputs of these sizes."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(value):
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty(tuple(value.shape), dtype=value.dtype, device=value.device)

    interpreter = torch.fx.Interpreter(graph_module)
    with torch.no_grad(), torch.fx.traceback.preserve_node_meta(), mode:
        return make_fx(torch.func.functionalize(interpreter.run), decomposition_table=core_aten_decompositions())(
            *[fake(value) for value in inputs])


def _same_data(value, other) -> None:
    """An error if tensors that the graph has as constants differ for the two sizes."""
    if isinstance(value, torch.Tensor):
        value, other = (getattr(each, "constant", each) for each in (value, other))
        if value is None or other is None or value is not other and not torch.equal(value, other):
            raise _Refused("a tensor that it makes of numbers may depend on the size of the batch")


def _differing(value, other):
    """The dimension whose extent differs, of a tensor or of each of several."""
    if isinstance(value, (list, tuple)):
        return [_differing(a, b) for a, b in zip(value, other)]
    if not isinstance(value, torch.Tensor):
        if value != other:
            raise _Refused("a number depends on the size of the batch")
        return None
    if value.ndim != other.ndim or value.dtype != other.dtype:
        raise _Refused("its type depends on the size of the batch")
    dims = [dim for dim, (a, b) in enumerate(zip(value.shape, other.shape)) if a != b]
    if len(dims) > 1:
        raise _Refused("two dimensions of its result are the batch")
    return dims[0] if dims else None


def _cut(node, varying):
    if not isinstance(node, torch.fx.Node):
        if isinstance(node, (torch.SymInt, int)) and not isinstance(node, bool):
            _refuse(None, "the graph returns a number, which may be the size of the batch")
        return None
    dim = varying[node]
    return None if dim is None else (dim, node.meta["val"].shape[dim])


class _Call:
    """A call of an operator for both sizes."""

    def __init__(self, node, other, varying):
        schema = node.target._schema.arguments
        names = [each.name for each in schema]
        defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
        self.arguments = {**defaults, **dict(zip(names, node.args)), **node.kwargs}
        self.others = {**defaults, **dict(zip(names, other.args)), **other.kwargs}
        self.varying = varying
        self.node = node
        result = varying[node]
        self.result = result[0] if isinstance(result, list) else result
        value = node.meta.get("val")
        self.value = value[0] if isinstance(value, (list, tuple)) and value else value

    def dim_of(self, name: str):
        """The dimension of the batch of an operand; ``None`` if it has none."""
        operand = self.arguments.get(name)
        return self.varying.get(operand) if isinstance(operand, torch.fx.Node) else None

    def shape_of(self, name: str):
        return tuple(self.arguments[name].meta["val"].shape)

    def operands(self):
        return [each for each in self.node.all_input_nodes if self.varying[each] is not None]

    def same(self, *names: str) -> None:
        """An error if an argument differs for the two sizes."""
        for name, value in self.arguments.items():
            if name not in names and not _alike(value, self.others[name]):
                raise _Refused(f"its argument '{name}' depends on the size of the batch")

    def keeps(self, dim, message: str = "") -> None:
        if self.result != dim:
            raise _Refused(message or f"dimension {dim} of its operand is the batch, and {self.result} of its result")


def _alike(a, b) -> bool:
    if isinstance(a, torch.fx.Node) or isinstance(b, torch.fx.Node):
        return isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node) and a.name == b.name
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(_alike, a, b))
    return type(a) is type(b) and (a == b or a != a and b != b)


#: What an exported program asserts of sizes and types, of which programs have their own.
_ASSERTIONS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


def _checked(node, other, varying) -> None:
    """An error if the first rows of a result are not shown to be functions of first rows."""
    if node.target is operator.getitem:
        found = varying[node.args[0]]
        if not isinstance(found, list) or node.args[1] != other.args[1]:
            raise _Refused("it reads a part that is not known")
        varying[node] = found[node.args[1]]
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        raise _Refused("nothing is known of it")
    call = _Call(node, other, varying)
    name = node.target._schema.name.split("::")[-1]
    # Attention is one that may draw; without dropout it does not.
    drawn = call.arguments.get("dropout_p", 1.0) != 0.0
    if torch.Tag.nondeterministic_seeded in node.target.tags and drawn:
        raise _Refused("it draws random numbers, of which the padded batch has others")
    # Operators of other libraries may have the names of PyTorch's.
    rule = _RULES.get(name) if node.target.namespace == "aten" else None
    if rule is None and torch.Tag.pointwise in node.target.tags:
        rule = _pointwise
    if not call.operands() and call.result is None:
        # It depends on no batch.
        call.same()
        return
    if name in _ASSERTIONS:
        # It computes nothing, and it held for the batch that is asked for.
        return
    if rule is None:
        hint = ""
        if node.target.namespace == "fulgurite":
            hint = ": call a function of PyTorch instead, and name the operator by fulgurite.torch.replaces"
        raise _Refused(f"nothing shows that it computes the rows of a batch one by one{hint}")
    rule(call)


def _pointwise(call) -> None:
    call.same()
    for operand in call.operands():
        if call.result is None or call.varying[operand] - operand.meta["val"].ndim != call.result - call.value.ndim:
            raise _Refused("its operands have the batch in different dimensions")


def _over(*names: str):
    """What computes along dimensions: none of them is the batch."""

    def rule(call) -> None:
        call.same()
        dim = call.dim_of("self")
        shape = call.shape_of("self")
        given = next((call.arguments[name] for name in names if name in call.arguments), None)
        dims = range(len(shape)) if given is None or given == [] else [given] if isinstance(given, int) else given
        dims = {each % len(shape) for each in dims} if shape else set()
        if dim in dims:
            raise _Refused(f"it computes over dimension {dim}, which is the batch")
        lost = len(shape) - call.value.ndim
        call.keeps(dim - sum(each < dim for each in dims) if lost else dim)

    return rule


def _reshaped(call) -> None:
    """The same elements in row-major order: what is before the batch stays there."""
    call.same("size", "shape", "dim", "implicit")
    dim, before = call.dim_of("self"), call.shape_of("self")
    after = tuple(call.value.shape)
    if dim is None or call.result is None or math.prod(before[:dim]) != math.prod(after[: call.result]):
        raise _Refused("it mixes the batch with the dimensions before it")
    if math.prod(before[:dim]) > 1 and before[dim] != after[call.result]:
        raise _Refused("it mixes the batch with other dimensions")


def _permuted(call) -> None:
    call.same()
    dims = [each % call.value.ndim for each in call.arguments["dims"]]
    call.keeps(dims.index(call.dim_of("self")))


def _expanded(call) -> None:
    call.same("size")
    dim = call.dim_of("self")
    if dim is not None:
        call.keeps(dim + call.value.ndim - len(call.shape_of("self")))


def _repeated(call) -> None:
    call.same()
    dim = call.dim_of("self")
    call.keeps(dim + call.value.ndim - len(call.shape_of("self")))
    if call.arguments["repeats"][call.result] != 1:
        raise _Refused("it repeats the batch")


def _copied(call) -> None:
    call.same()
    call.keeps(call.dim_of("self"))


def _made(call) -> None:
    """Every element is the same, or its position: its first ones are those of a smaller tensor."""
    call.same("size", "end", "self")


def _joined(call) -> None:
    call.same()
    dim = call.arguments.get("dim", 0) % call.value.ndim
    if call.result is None or dim == call.result:
        raise _Refused("it joins tensors along the batch")
    for operand in call.operands():
        call.keeps(call.varying[operand])


def _sliced(call) -> None:
    call.same("end")
    dim, of_batch = call.arguments.get("dim", 0) % call.value.ndim, call.dim_of("self")
    if of_batch is None:
        # The first rows of a table, as many as the batch has.
        if dim != call.result or any(each["end"] is None or each["end"] < 0 for each in (call.arguments, call.others)):
            raise _Refused("it counts from the end of a table")
        return
    if dim != of_batch:
        call.same()
        call.keeps(of_batch)
        return
    extent = call.shape_of("self")[dim]
    start, end, step = (call.arguments[each] for each in ("start", "end", "step"))
    ends = [extent if each is None else each for each in (end, call.others["end"])]
    if (start or 0) < 0 or min(ends) < 0 or step != 1:
        raise _Refused("it counts from the end of the batch, or leaves rows out")
    if call.result is None and not (ends[0] == ends[1] <= extent):
        raise _Refused("it reads rows behind those that were given")
    if call.result is not None and ((start or 0) != 0 or ends[0] < extent):
        raise _Refused("it reads a part of the batch")


def _selected(call) -> None:
    call.same()
    dim, of_batch = call.arguments["dim"] % len(call.shape_of("self")), call.dim_of("self")
    if dim != of_batch:
        call.keeps(of_batch - (dim < of_batch))
    elif not 0 <= call.arguments["index"] < call.shape_of("self")[dim]:
        raise _Refused("it counts from the end of the batch")


def _split(call) -> None:
    call.same()
    if call.arguments.get("dim", 0) % len(call.shape_of("self")) == call.dim_of("self"):
        raise _Refused("it divides the batch")
    if any(each != call.result for each in call.varying[call.node]):
        raise _Refused("it divides the batch")


def _product(left: str, right: str, added: str | None = None):
    def rule(call) -> None:
        call.same()
        ndim = len(call.shape_of(left))
        a, b = call.dim_of(left), call.dim_of(right)
        last = ndim - 1
        if a == last or b == last - 1:
            raise _Refused("it sums over the batch")
        for dim in (a, b):
            if dim is not None:
                call.keeps(dim)
        if added is not None and call.dim_of(added) is not None:
            call.keeps(call.dim_of(added) + ndim - len(call.shape_of(added)))

    return rule


def _first(name: str, *others: str):
    """What computes each element of the first dimension by itself, with the same weights."""

    def rule(call) -> None:
        call.same("N")
        for operand in call.operands():
            if operand is not call.arguments[name] and operand not in [call.arguments.get(each) for each in others]:
                raise _Refused("its weights depend on the batch")
            if call.varying[operand] != 0:
                raise _Refused(f"dimension {call.varying[operand]} of an operand is the batch, expected 0")
        call.keeps(0)

    return rule


def _batch_norm(call) -> None:
    if call.arguments["training"]:
        raise _Refused("it computes statistics of the batch")
    _first("input")(call)


def _layer_norm(call) -> None:
    call.same()
    dim = call.dim_of("input")
    if len(call.operands()) != 1 or dim is None:
        raise _Refused("its weights depend on the batch")
    if dim >= len(call.shape_of("input")) - len(call.arguments["normalized_shape"]):
        raise _Refused("it normalizes over the batch")
    call.keeps(dim)


def _embedded(call) -> None:
    call.same()
    if call.dim_of("weight") is not None:
        raise _Refused("its table depends on the batch")
    call.keeps(call.dim_of("indices"))


def _indexed(call) -> None:
    call.same()
    if call.dim_of("self") is not None or any(each is None for each in call.arguments["indices"]):
        raise _Refused("it reads rows of the batch by positions")
    most = max(each.meta["val"].ndim for each in call.arguments["indices"])
    for operand in call.operands():
        call.keeps(call.varying[operand] + most - operand.meta["val"].ndim)


def _gathered(call) -> None:
    call.same()
    of, index = call.dim_of("self"), call.dim_of("index")
    if of is None or of != index or call.arguments["dim"] % call.value.ndim == of:
        raise _Refused("it reads rows of the batch by positions")
    call.keeps(of)


def _triangular(call) -> None:
    call.same()
    dim = call.dim_of("self")
    if dim >= call.value.ndim - 2:
        raise _Refused("its result depends on the position in the batch")
    call.keeps(dim)


def _padded(call) -> None:
    call.same()
    dim = call.dim_of("self")
    at = 2 * (call.value.ndim - 1 - dim)
    if any(call.arguments["pad"][at : at + 2]):
        raise _Refused("it pads the batch")
    call.keeps(dim)


def _written(call) -> None:
    raise _Refused("it writes the batch into an argument or a buffer")


_REDUCES, _ALONG = _over("dim"), _over("dim")
#: What shows for an operator that first rows of its result are made of first rows; elementwise ones have a tag.
_RULES = {
    "copy_": _written,
    **dict.fromkeys(("sum", "mean", "amax", "amin", "any", "all", "var", "std", "var_mean", "prod", "argmax", "argmin",
                     "logsumexp", "norm", "linalg_vector_norm", "max", "min", "median"), _REDUCES),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax", "cumsum", "cumprod",
                     "sort", "topk", "logcumsumexp"), _ALONG),
    "flip": _over("dims"),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze"), _reshaped),
    "permute": _permuted, "expand": _expanded, "repeat": _repeated,
    **dict.fromkeys(("clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh_copy", "lift_fresh"), _copied),
    **dict.fromkeys(("full", "zeros", "ones", "arange", "full_like", "zeros_like", "ones_like", "new_zeros", "new_ones",
                     "new_full"), _made),
    "cat": _joined, "slice": _sliced, "select": _selected,
    **dict.fromkeys(("split", "split_with_sizes", "unbind", "chunk"), _split),
    "mm": _product("self", "mat2"), "bmm": _product("self", "mat2"), "addmm": _product("mat1", "mat2", "self"),
    "baddbmm": _product("batch1", "batch2", "self"),
    **dict.fromkeys(("convolution", "native_group_norm", "_native_batch_norm_legit_no_training"), _first("input")),
    **dict.fromkeys(("avg_pool2d", "max_pool2d_with_indices", "_adaptive_avg_pool2d", "avg_pool1d",
                     "upsample_nearest2d", "avg_pool3d", "_adaptive_avg_pool3d"), _first("self")),
    "upsample_bilinear2d": _first("input"),
    "_scaled_dot_product_flash_attention_for_cpu": _first("query", "key", "value", "attn_mask"),
    "_scaled_dot_product_flash_attention": _first("query", "key", "value"),
    "_scaled_dot_product_efficient_attention": _first("query", "key", "value", "attn_bias"),
    "native_batch_norm": _batch_norm, "native_layer_norm": _layer_norm, "embedding": _embedded, "index": _indexed,
    "gather": _gathered,
    **dict.fromkeys(("tril", "triu"), _triangular),
    "constant_pad_nd": _padded,
}
