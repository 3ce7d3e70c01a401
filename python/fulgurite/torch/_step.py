"""A graph of a whole loss as the programs of a training step."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import _native, ops
from .._errors import Error
from .._native import Tensor
from . import _optim
from ._exchange import DTYPES, cross, has_gradient, to_array
from ._graph import Unsupported, draws, interpret, switches_autocast, why_not
from ._module import _AUTOCAST, Break, _filled, _input, _Leaf, _name_of, _placeholders, _structure, _unique
from ._state import Binding, refuse
from ._table import PATHS, TABLE

LOST = (
    "the step before failed while it was writing parameters and the optimizer's state: they are a part of an update. "
    "Load both (load_state_dict), and call reset() of the step"
)


def mark(value):
    """The loss of a graph: a node that finds it among what dynamo returns."""
    _MARKED.append(value)
    return value


#: What :func:`mark` was called with, where a graph runs.
_MARKED: list = []

torch.compiler.allow_in_graph(mark)
PATHS[mark] = ["fulgurite.loss"]


def _marked(context, value):
    context.marked.append(value)
    return value


TABLE["fulgurite.loss"] = _marked


class Program:
    """A graph of the whole loss, as dynamo captured it, and the programs that are made of it."""

    def __init__(self, graph_module, owner):
        self.owner = owner
        self.graph_module = graph_module
        self.constants = self._lift(graph_module)
        for node in graph_module.graph.nodes:
            if switches_autocast(node):
                refuse(_AUTOCAST)
            reason = "" if node.op == "get_attr" else why_not(node)
            if reason:
                refuse(f"a step is one program, and {Break(node, reason)}")
        self.names = _unique(_name_of(node) for node in _placeholders(graph_module))
        self.random = draws(graph_module.graph)
        self.binding = None
        self.forms: dict = {}
        self.functions: dict = {}
        self.last = None

    @staticmethod
    def _lift(graph_module) -> list:
        """Tensors of the graph itself become inputs behind the others: they are returned."""
        found = []
        graph = graph_module.graph
        behind = _placeholders(graph_module)[-1] if _placeholders(graph_module) else None
        for node in [node for node in graph.nodes if node.op == "get_attr"]:
            value = graph_module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if not isinstance(value, torch.Tensor):
                continue
            with graph.inserting_after(behind) if behind is not None else graph.inserting_before(None):
                placeholder = graph.placeholder(f"constant_{len(found)}")
            placeholder.meta = dict(node.meta)
            node.replace_all_uses_with(placeholder)
            graph.erase_node(node)
            behind = placeholder
            found.append(value)
        if found:
            graph_module.recompile()
        return found

    def reached(self, inputs, candidates) -> set:
        """Which tensors have a gradient in PyTorch: the graph is run there without data, forward and backward."""
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.enable_grad():
            fakes: dict = {}

            def fake(value):
                if isinstance(value, torch.Tensor):
                    if id(value) not in fakes:
                        made = mode.from_tensor(value.detach())
                        fakes[id(value)] = made.requires_grad_(value.requires_grad and has_gradient(value))
                    return fakes[id(value)]
                return type(value)(fake(item) for item in value) if isinstance(value, (list, tuple)) else value

            _MARKED.clear()
            self.graph_module(*[fake(value) for value in inputs])
            loss = _MARKED.pop()
            _MARKED.clear()
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
                refuse(f"the loss has shape {shape}, expected one element", "Shape", "loss")
            wanted = [fakes[key] for key in candidates]
            if not loss.requires_grad or not wanted:
                return set()
            gradients = torch.autograd.grad(loss.sum(), wanted, allow_unused=True)
        return {key for key, gradient in zip(candidates, gradients) if gradient is not None}

    def __call__(self, *inputs):
        owner = self.owner
        inputs = (*inputs, *self.constants)
        kinds = {each.device.type for each in inputs if isinstance(each, torch.Tensor)} or {"cpu"}
        if any(torch.is_autocast_enabled(kind) for kind in kinds):
            refuse(_AUTOCAST.replace("jit(module", "train_step(module"))
        owner.check()
        flat: list = []
        structure = tuple(_structure(value, name, flat) for name, value in zip(self.names, inputs))
        found = [tensor for _, tensor in flat]
        foreign = next(((path, each) for path, each in flat if each.dtype not in DTYPES), None)
        if foreign is not None:
            refuse(f"'{foreign[0]}' has dtype {foreign[1].dtype}, which is no element type here", "DType", foreign[0])
        if self.binding is None or not self.binding.is_current(owner, found):
            self.binding = Binding(self, inputs, found)
        owner.ran = self
        try:
            return self._run(inputs, [path for path, _ in flat], structure, found)
        except BaseException:
            # An update that is done, and was not noted, is one that `check` tells.
            if not (owner.lost or owner.midway):
                for slot in self.binding.slots:
                    slot.undo(owner.optimizer)
                self.binding = None
            raise

    def _run(self, inputs, paths, structure, found):
        owner, binding = self.owner, self.binding
        part = owner.part()
        others = [i for i, place in enumerate(binding.places) if place is None]
        leaves = [binding.array(i, found[i]) for i in others]
        leaf_paths = [_apart(paths[i]) for i in others]
        rates, numbers, places = binding.numbers(owner.optimizer)
        if part in GRADIENTS:
            # These read parameters, and write to none.
            leaf_paths += [f"params.{slot.name}" for slot in binding.slots]
            leaves += [to_array(slot.param) for slot in binding.slots]
            rates, numbers, places = [], [], []
        if part == "first":
            owner.accumulated = []
        if part in ("more", "last"):
            own = {id(slot.param) for slot in binding.slots}
            lost = next((name for name, param in owner.accumulated if id(param) not in own), None)
            if lost is not None:
                refuse(f"a call before of the same step made a gradient of '{lost}', which this loss does not reach: "
                       "with accumulate each call of a step reaches the same parameters; restart() begins a step "
                       "again", "Gradient")
            gradients = [slot.param.grad for slot in binding.slots]
            if any(each is None for each in gradients):
                refuse("gradients were taken away between the calls of one step: call restart()", "Gradient")
            leaf_paths += [f"grads.{slot.name}" for slot in binding.slots]
            leaves += map(to_array, gradients)
        if self.random:
            # PyTorch's generator decides, so that torch.manual_seed repeats a run; the numbers are our own.
            leaf_paths.append("generator")
            leaves.append(to_array(torch.randint(0, 1 << 31, (2,), dtype=torch.int64).to(binding.device)))
        leaf_paths = _unique([*leaf_paths, *rates])
        leaves += numbers
        updates = tuple((slot.name, slot.update) for slot in binding.slots)
        key = (structure, part, tuple(binding.places), tuple(leaf_paths), tuple(places), updates)
        form = self.forms.get(key)
        new = form is None
        if new:
            form = self.forms[key] = _native.Form(leaf_paths, str(len(self.forms)), key)
        owner.midway = True
        self.last = function = self._function(part)
        ran, crossing = False, None
        try:
            # With one of the state's tensors: work here comes behind what PyTorch's current stream does by now.
            crossing = cross([binding.slots[0].param])
            if part in GRADIENTS:
                arrays, told = function.call(form, leaves)
                moved = []
            else:
                if new:
                    function.compile(binding.lend(), form, leaves)
                arrays, told, moved = function.call(binding.lend(), form, leaves)
            ran = part not in GRADIENTS
            results = crossing.results(arrays)
        except BaseException as error:
            # Ends the call: what PyTorch does next comes behind what was enqueued.
            crossing = None
            self._failed(error, ran)
            raise
        of, outputs, targets = told
        # One that the run made: what it passes through has the faults of other runs.
        own = [each for each in arrays if not each.is_external] or arrays
        owner.unchecked.append((min(own, key=lambda each: each.numel()), part))
        with torch.no_grad():
            for number, array in moved:
                binding.tensors[number].copy_(torch.from_dlpack(array))
            if targets:
                written = results[len(results) - len(targets) :]
                torch._foreach_copy_([inputs[i] for i in targets], written)
        if part in GRADIENTS:
            for slot, gradient in zip(binding.slots, results[outputs:]):
                slot.param.grad = gradient
            owner.accumulated = [(slot.name, slot.param) for slot in binding.slots]
        else:
            if moved:
                # These have other memory now; the next step is given that of the tensors again.
                binding.state = None
            torch.autograd.graph.increment_version(binding.tensors)
            _optim.counted(binding.slots)
            for slot in binding.slots:
                slot.param.grad = None
            owner.grad_norm = results[outputs] if owner.max_norm is not None else None
        owner.counted(part)
        owner.midway = False
        return _filled(of, results)

    def _failed(self, error, ran: bool) -> None:
        owner = self.owner
        owner.lost = ran or bool(getattr(error, "overwritten", False))
        owner.midway = False
        if owner.lost:
            raise Error(f"{error}\ntrain_step: {LOST}", code="Lost", operator="train_step") from error
        # It may be the fault of a call before, whose run ended meanwhile.
        owner.check()

    def _function(self, part: str):
        """The program that makes gradients, or the one that updates."""
        device = self.binding.device
        donated = sorted({path.split(".")[0] for path, _ in self.binding.named()})
        key = (part in GRADIENTS, str(device), tuple(donated))
        function = self.functions.get(key)
        if function is None:
            options = dict(self.owner.options)
            if device.type != "cpu":
                options["device"] = str(device)
            if part in GRADIENTS:
                function = _native.Function(self._gradients, self.owner.name, **options)
            else:
                function = _native.StepFunction(self._update, self.owner.name, donated, **options)
            self.functions[key] = function
        return function

    # What is traced.

    def _differentiated(self, params, others, key, named):
        """Gradients of parameters, and what the graph returns: its output's structure, its tensors, what it writes."""
        structure, _, places, *_ = key
        device = next((each.device for each in params), "cpu")
        found: dict = {}

        def loss(inner):
            rest = iter(others)
            leaves = iter([next(rest) if place is None else inner[place] for place in places])
            inputs = [_input(value, leaves) for value in structure]
            failed: list = []
            marked: list = []
            try:
                output, written = interpret(self.graph_module, inputs, device, named.get("generator"), failed, marked)
            except (Error, Unsupported, TypeError, ValueError, IndexError) as error:
                if not failed:
                    raise
                message = f"train_step: a step is one program, and {Break(*failed[-1])}"
                raise Error(message, code=getattr(error, "code", "") or "Unsupported", operator="train_step") from error
            tensors: list = []
            found["of"] = _leaves(output, tensors)
            found["outputs"] = len(tensors)
            found["targets"] = tuple(written)
            value = ops.reshape(marked[-1], [])
            if self.owner.accumulate > 1:
                value = ops.div(value, self.owner.accumulate)
            return value, [*tensors, *written.values()]

        _, aux, gradients = _native.value_and_grad(list(params), loss)
        outputs = found["outputs"]
        return gradients, aux[:outputs], aux[outputs:], (found["of"], outputs, found["targets"])

    def _gradients(self, key, tensors):
        """Gradients alone, with those before them."""
        paths, slots = key[3], self.binding.slots
        named = dict(zip(paths, tensors))
        params = [named[f"params.{slot.name}"] for slot in slots]
        gradients, outputs, written, told = self._differentiated(params, tensors[: key[2].count(None)], key, named)
        gradients = self._summed(gradients, named)
        results = [*outputs, *gradients, *written]
        names = [f"grads.{slot.name}" for slot in slots]
        return results, _result_paths(outputs, names, written), told

    def _summed(self, gradients, named):
        before = (named.get(f"grads.{slot.name}") for slot in self.binding.slots)
        return [new if old is None else ops.add(old, new) for old, new in zip(before, gradients)]

    def _update(self, state, key, tensors):
        """The new state."""
        _, _, places, paths, numbers, _ = key
        slots = self.binding.slots
        named = dict(zip(paths, tensors))
        params, states = state[: len(slots)], iter(state[len(slots) :])
        gradients, outputs, written, told = self._differentiated(params, tensors[: places.count(None)], key, named)
        gradients = self._summed(gradients, named)
        norm = []
        if self.owner.max_norm is not None:
            gradients, total = _clipped(gradients, self.owner.max_norm)
            norm = [total]
        new_params, new_states = [], []
        for slot, param, gradient, (rate, step) in zip(slots, params, gradients, numbers):
            own = [next(states) for _ in slot.states]

            def update(slot=slot, param=param, gradient=gradient, own=own, rate=rate, step=step):
                return _optim.updated(slot, param, gradient, own, named[rate], named[step])

            new, *others = _native.scope(f"optim.{slot.name}", update)
            new_params.append(new)
            new_states += others
        results = [*outputs, *norm, *written]
        return [*new_params, *new_states], (results, _result_paths(outputs, ["norm"] * len(norm), written), told)


#: Calls that make gradients and update nothing.
GRADIENTS = ("first", "more")

#: Roots of paths that a step's own arrays have.
_ROOTS = {"params", "grads", "lr", "step", "generator"}


def _apart(path: str) -> str:
    """The path of an argument, which may have the name of what is the step's own."""
    root = path.split(".")[0]
    states = {"exp_avg", "exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg", "sum", "acc_delta",
              "row_var", "col_var", "variance"}
    return f"input.{path}" if root in _ROOTS or root in states else path


def _result_paths(outputs, names, written) -> list[str]:
    return [*(f"out{i}" for i in range(len(outputs))), *names, *(f"written{i}" for i in range(len(written)))]


def _leaves(output, tensors: list):
    """The structure of a graph's output, whose tensors are added to a list."""
    if isinstance(output, Tensor):
        tensors.append(output)
        return _Leaf(len(tensors) - 1)
    return tuple(_leaves(item, tensors) for item in output) if isinstance(output, (list, tuple)) else output


def _clipped(gradients, most: float):
    """Gradients of a total norm of at most ``most``, and the norm before."""
    kinds = {each.dtype.name for each in gradients}
    if len(kinds) == 1:
        *scaled, norm = ops.clip_grad_norm(gradients, most)
        return scaled, norm
    wide = [each if each.dtype.name == "float64" else ops.to(each, dtype="float32") for each in gradients]
    wide = [ops.to(each, dtype="float64") for each in wide] if "float64" in kinds else wide
    *_, norm = ops.clip_grad_norm(wide, float("inf"))
    of_kind = {kind: [i for i, each in enumerate(gradients) if each.dtype.name == kind] for kind in sorted(kinds)}
    scaled = list(gradients)
    for places in of_kind.values():
        for i, each in zip(places, ops.clip_grads_with_norm([gradients[i] for i in places], norm, most)):
            scaled[i] = each
    return scaled, norm
