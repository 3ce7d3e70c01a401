"""Programs of ``torch.export`` as ours: the same table of names, with the program's names of parameters and buffers."""

from __future__ import annotations

import operator

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from .._errors import ArgumentError, Error
from .._trees import word
from ._buckets import Bucketed, Buckets
from ._module import CompiledModule, _unique, divide
from ._table import example_of

_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
#: The part of a graph where gradients are on or off.
_WITHOUT_GRADIENTS = getattr(torch.ops.higher_order, "wrap_with_set_grad_enabled", "")
_WRITTEN = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class CompiledProgram(CompiledModule):
    """A compiled program of ``torch.export``. What it does not have itself is that of ``program.module()``, whose
    parameters and buffers are the program's own tensors.

    Attributes
    ----------
    program : torch.export.ExportedProgram
    module : torch.nn.Module
        ``program.module()``.
    """

    def __init__(self, program, buckets=None, **options):
        _refuse(program)
        module = program.module()
        self._begin(module, name="exported", **options)
        self.__dict__["program"] = program
        self.__dict__["_sizes"] = _Inputs(program)
        signature = program.graph_signature
        graph_module = _lowered(program)
        given = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        paths = [_path(spec.target) if spec.kind in _STATE else word(node.name)
                 for node, spec in zip(given, signature.input_specs)]
        names = _unique(paths)
        self.report.state = {path for path, spec in zip(paths, signature.input_specs) if spec.kind in _STATE}
        self.__dict__["_specs"] = [(spec.kind, spec.target) for spec in signature.input_specs]
        if buckets is None:
            self.__dict__["_run"] = divide(graph_module, names, self._options, self.report)
            return
        taken = [name for name, spec in zip(names, signature.input_specs) if spec.kind not in _STATE]
        buckets = Buckets(buckets, taken)
        for node, name in zip(given, names):
            example = example_of(node)
            buckets.check_exported(name, example.shape if isinstance(example, torch.Tensor) else (), self._sizes.ranges)
        run = divide(graph_module, names, {**self._options, "strict": True}, self.report)
        self.__dict__["_run"] = Bucketed(graph_module, names, buckets, run, self.report)

    def __call__(self, *arguments, **keywords):
        self.report.last = []
        flat = self._sizes.flattened(arguments, keywords)
        self._sizes.check(flat, self.module)
        state = {**dict(self.module.named_parameters(remove_duplicate=False)),
                 **dict(self.module.named_buffers(remove_duplicate=False))}
        given, constants = iter(flat), self.program.constants
        inputs = [next(given) if kind not in _STATE else state[target] if target in state else constants[target]
                  for kind, target in self._specs]
        results = self._run(*inputs)
        return pytree.tree_unflatten(list(results), self.program.call_spec.out_spec)


def _path(target: str) -> str:
    """The name of a parameter in traces, as compiled modules have it: none begins with a digit."""
    return target if not target[0].isdigit() else f"arg{target}"


def _refuse(program) -> None:
    """An error if a program is one that is not a function of tensors and its state."""
    signature = program.graph_signature
    for spec in signature.input_specs:
        if spec.kind not in (*_STATE, InputKind.USER_INPUT):
            raise Error(f"jit: the exported program takes a {spec.kind.name} ('{spec.target}'), expected tensors and "
                        "numbers", code="Unsupported", operator="jit")
    for spec in signature.output_specs:
        if spec.kind not in (*_WRITTEN, OutputKind.USER_OUTPUT):
            raise Error(f"jit: the exported program has a result of the kind {spec.kind.name}: export the forward pass "
                        "alone, whose backward pass is made here", code="Unsupported", operator="jit")


def _lowered(program):
    """The program's graph with what it changes as copies into its inputs, and without graphs inside of it."""
    graph_module = torch.fx.GraphModule(program.graph_module, torch.fx.Graph())
    inputs: dict = {}
    output = _copied(program.graph_module, graph_module, None, inputs)
    graph = graph_module.graph
    signature, results = program.graph_signature, []
    by_target = {spec.target: inputs[spec.arg.name] for spec in signature.input_specs if spec.target is not None}
    for value, spec in zip(output, signature.output_specs):
        if spec.kind is OutputKind.USER_OUTPUT:
            results.append(value)
            continue
        target = by_target.get(spec.target) if spec.kind is OutputKind.BUFFER_MUTATION else None
        target = inputs[spec.target] if target is None else target
        copy = graph.call_function(torch.ops.aten.copy_.default, (target, value))
        copy.meta["val"] = example_of(target)
    graph.output(tuple(results))
    graph_module.recompile()
    return graph_module


def _copied(source, into, arguments, inputs):
    """Copies a graph into another, those of parts without gradients as well; what it returns."""
    graph, values = into.graph, {}
    arguments = None if arguments is None else iter(arguments)
    for node in source.graph.nodes:
        if node.op == "placeholder" and arguments is not None:
            values[node] = next(arguments)
        elif node.op == "output":
            return torch.fx.node.map_arg(node.args[0], values.__getitem__)
        elif node.target is _WITHOUT_GRADIENTS:
            enabled, part, *given = node.args
            graph.call_function(torch._C._set_grad_enabled, (enabled,))
            values[node] = _copied(getattr(source, part.target), into, [values[each] for each in given], inputs)
            graph.call_function(torch._C._set_grad_enabled, (not enabled,))
        elif node.target is operator.getitem and isinstance(values.get(node.args[0]), (list, tuple)):
            values[node] = values[node.args[0]][node.args[1]]
        elif node.op == "get_attr" and all(user.target is _WITHOUT_GRADIENTS for user in node.users):
            continue
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
            if node.op == "get_attr":
                setattr(into, node.target, getattr(source, node.target))
            if node.op == "placeholder":
                inputs[node.name] = values[node]
    raise Error("the exported program has no output", code="Graph")


class _Inputs:
    """What a program takes: which tensors, of which sizes."""

    def __init__(self, program):
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        self.spec = program.call_spec.in_spec
        self.names = [spec.arg.name for spec in specs]
        self.examples = [example_of(nodes[name]) for name in self.names]
        self.ranges = {str(symbol): (symbol, bounds) for symbol, bounds in program.range_constraints.items()}

    def flattened(self, arguments, keywords) -> list:
        order = self.spec.children()[1].context if hasattr(self.spec, "children") else list(keywords)
        if set(order) == set(keywords):
            keywords = {name: keywords[name] for name in order}
        flat, spec = pytree.tree_flatten((arguments, keywords))
        if spec != self.spec:
            raise ArgumentError(f"exported program: the arguments are {_shown(spec)}, expected {_shown(self.spec)}, as "
                                "it was exported", operator="jit")
        return flat

    def check(self, flat, module) -> None:
        """An error if an argument is another one than the program was exported for."""
        known: dict = {}
        waiting = []
        for name, value, example in zip(self.names, flat, self.examples):
            if not isinstance(example, torch.Tensor):
                if isinstance(example, (torch.SymInt, torch.SymFloat)):
                    waiting.append((f"'{name}'", example.node.expr, value))
                elif type(value) is not type(example) or value != example:
                    _wrong(f"'{name}' is {value!r:.40}", f"{example!r:.40}, which the program was exported with", name)
                continue
            if not isinstance(value, torch.Tensor):
                _wrong(f"'{name}' is a {type(value).__name__}", "a tensor", name)
            if value.dtype != example.dtype:
                _wrong(f"'{name}' has dtype {value.dtype}", str(example.dtype), name)
            if value.device.type != example.device.type:
                _wrong(f"'{name}' is on {value.device}", str(example.device), name)
            if value.ndim != example.ndim:
                _wrong(f"'{name}' has {value.ndim} dimensions", str(example.ndim), name)
            for dim, (found, expected) in enumerate(zip(value.shape, example.shape)):
                place = f"dimension {dim} of '{name}'"
                if isinstance(expected, int):
                    if found != expected:
                        _wrong(f"{place} is {found}", f"{expected}: it is not dynamic", name)
                elif expected.node.expr.is_Symbol and str(expected.node.expr) not in known:
                    known[str(expected.node.expr)] = int(found)
                    waiting.append((place, expected.node.expr, found))
                else:
                    waiting.append((place, expected.node.expr, found))
        for place, expression, found in waiting:
            symbols = {symbol: known.get(str(symbol)) for symbol in expression.free_symbols}
            lacking = [symbol for symbol, value in symbols.items() if value is None]
            if len(lacking) == 1:
                import sympy

                solved = sympy.solve(expression - int(found), lacking[0])
                if len(solved) != 1 or not solved[0].is_integer:
                    _wrong(f"{place} is {found}", f"a value of {expression}", place)
                symbols[lacking[0]] = known[str(lacking[0])] = int(solved[0])
            value = expression.subs(symbols)
            if value.is_number and int(value) != int(found):
                _wrong(f"{place} is {found}", f"{int(value)}, which is {expression}", place)
        for symbol, bounds in self.ranges.values():
            at = symbol.subs({each: known[str(each)] for each in symbol.free_symbols if str(each) in known})
            if at.is_number and not bounds.lower <= at <= bounds.upper:
                place = next((place for place, expression, _ in waiting if symbol in (expression, *expression.args)
                              or symbol in expression.free_symbols), str(symbol))
                _wrong(f"{place} is {at}", f"{bounds.lower} to {bounds.upper}", place)
        guards = getattr(module, "_guards_fn", None)
        if guards is not None:
            try:
                guards(*flat)
            except AssertionError as error:
                raise ArgumentError(f"exported program: {error}", operator="jit") from None


def _shown(spec) -> str:
    return " ".join(str(spec).split())[:200]


def _wrong(actual: str, expected: str, name: str) -> None:
    raise ArgumentError(f"exported program: {actual}, expected {expected}", operator="jit", argument=name)
