"""What a training step writes to: parameters and the optimizer's states, and whether they may be written."""

from __future__ import annotations

import bisect
import struct

import torch

from .. import _native
from .._errors import Error
from .._native import Array
from .._trees import word
from . import _optim
from ._exchange import DTYPES, extent_of, to_array
from ._module import _unique


def refuse(message: str, code: str = "Unsupported", argument: str | None = None):
    raise Error(f"train_step: {message}", code=code, operator="train_step", argument=argument)


def _scalar(value: float) -> Array:
    return Array.from_bytes([], "float64", struct.pack("=d", value))


def hooked(param) -> bool:
    """Whether a hook is called with a parameter's gradient."""
    return bool(param._backward_hooks or getattr(param, "_post_accumulate_grad_hooks", None))


class Binding:
    """What one graph is with the tensors of a call: the parameters that it trains, with their states and settings."""

    def __init__(self, program, inputs, found):
        owner = program.owner
        optimizer = owner.optimizer
        self.rule = _optim.rule_of(optimizer)
        names = owner.names()
        groups = {id(param): number for number, group in enumerate(optimizer.param_groups) for param in group["params"]}
        candidates = {id(each): each for each in found if each.requires_grad and each.is_leaf}
        reached = program.reached(inputs, candidates)
        trained = [each for each in candidates.values() if id(each) in reached and id(each) in groups]
        self._check(owner, names, groups, reached, candidates, trained)
        order = {id(param): number for number, param in
                 enumerate(param for group in optimizer.param_groups for param in group["params"])}
        trained.sort(key=lambda each: order[id(each)])
        self.settings = owner.settings()
        self.slots = []
        paths = _unique(word(names.get(id(each), f"param{order[id(each)]}")) for each in trained)
        for path, param in zip(paths, trained):
            group = groups[id(param)]
            update = self.rule.update(optimizer.param_groups[group], param)
            self.slots.append(_optim.Slot(path, param, group, update))
        self.device = trained[0].device
        at = {id(slot.param): number for number, slot in enumerate(self.slots)}
        #: For each tensor of the inputs, in order, the number of the parameter that it is, or ``None``.
        self.places = [at.get(id(each)) for each in found]
        #: The tensors of the inputs that are the module's own and not trained.
        self.kept = {i: each for i, each in enumerate(found) if self.places[i] is None and id(each) in names}
        #: Which of them wanted a gradient: PyTorch 2.11 captures a module no second time that is frozen or thawed.
        self.wanted = [each.requires_grad for each in found]
        self.state = None
        self.tensors: list[torch.Tensor] = []
        self.arrays: dict = {}
        for slot in self.slots:
            slot.begin(optimizer, self.rule)
        #: Where the tensors are that a step writes to: `x.data = y` keeps the tensor.
        self.pointers = [each.data_ptr() for _, each in self.named()]
        self._disjoint()

    @staticmethod
    def _check(owner, names, groups, reached, candidates, trained) -> None:
        params = [param for group in owner.optimizer.param_groups for param in group["params"]]
        ours = [each for each in candidates.values() if id(each) in reached]
        if not ours:
            refuse("no parameter has a gradient: the loss depends on none that requires one", "NoGradient")
        if not trained:
            refuse(f"none of the optimizer's {len(params)} parameters has a gradient of this loss, which depends on "
                    f"{len(ours)} others: it was made for another module, or before the parameters were replaced",
                    "Optimizer", "optimizer")
        others = [each for each in ours if id(each) not in groups and id(each) in names]
        strange = [each for each in params if id(each) not in names]
        if others and strange and names:
            refuse(f"parameter '{names[id(others[0])]}' of the module is not one of the optimizer's, and the optimizer "
                    f"has one of shape {tuple(strange[0].shape)} that is not the module's: it was replaced after the "
                    "optimizer was made", "Optimizer", "optimizer")
        if len({id(each) for each in params}) != len(params):
            refuse("a parameter is in two groups of the optimizer", "Optimizer", "optimizer")
        for each in trained:
            name = names.get(id(each), "a parameter")
            if type(each) not in (torch.nn.Parameter, torch.Tensor):
                refuse(f"'{name}' is a {type(each).__name__}, expected a Parameter", argument=name)
            if hooked(each):
                refuse(f"'{name}' has a hook on its gradient, which is inside of the program here", argument=name)
            if each.dtype not in DTYPES:
                refuse(f"'{name}' has dtype {each.dtype}, which is no element type here", "DType", name)
            if each.device != trained[0].device:
                refuse(f"'{name}' is on {each.device}, others on {trained[0].device}", "Device", name)

    def _disjoint(self) -> None:
        """An error where two tensors that are written share memory; and where that memory is, in order."""
        extents = [(*extent_of(each), name) for name, each in self.named()]
        self.extents = sorted(each for each in extents if each[0] < each[1])
        for before, behind in zip(self.extents, self.extents[1:]):
            if before[1] > behind[0]:
                refuse(f"'{before[2]}' and '{behind[2]}' share memory, which the step writes to twice", "Memory")

    def named(self):
        """The tensors that a step writes to, with their paths."""
        for slot in self.slots:
            yield f"params.{slot.name}", slot.param
        for slot in self.slots:
            for (kind, _), tensor in zip(slot.update.states, slot.states):
                yield f"{kind}.{slot.name}", tensor

    def overlaps(self, tensor) -> bool:
        """Whether a tensor has memory that a step writes to."""
        start, end = extent_of(tensor)
        at = bisect.bisect_left(self.extents, (start,))
        near = self.extents[max(at - 1, 0) : at + 1]
        return any(low < end and start < high for low, high, _ in near)

    def is_current(self, owner, found) -> bool:
        """Whether the tensors, the states and the settings are those that were seen last."""
        optimizer = owner.optimizer
        for tensor, place, wanted in zip(found, self.places, self.wanted):
            if tensor.requires_grad != wanted or place is not None and tensor is not self.slots[place].param:
                return False
        if any(found[i] is not each for i, each in self.kept.items()) or self.settings != owner.settings():
            return False
        for slot in self.slots:
            if hooked(slot.param) or not slot.is_current(optimizer):
                return False
        return all(each.data_ptr() == pointer for pointer, (_, each) in zip(self.pointers, self.named()))

    def lend(self):
        """The state of our programs: the memory of parameters and of the optimizer's states."""
        if self.state is None:
            pairs = list(self.named())
            self.tensors = [tensor for _, tensor in pairs]
            self.state = _native.State([path for path, _ in pairs], "", [each.detach() for each in self.tensors])
        return self.state

    def numbers(self, optimizer):
        """The numbers of a step with their paths: a learning rate for each group, and each count of steps once."""
        values: dict = {}
        places = []
        for slot in self.slots:
            rate = f"lr.{slot.group}"
            values.setdefault(rate, _optim.number_of(optimizer.param_groups[slot.group]))
            counts = f"step.{int(slot.count) + 1}"
            # The path is that of a class, not of a count, which is another one at each step.
            values.setdefault(counts, slot.count + 1.0)
            places.append((rate, counts))
        renamed = {}
        for path in values:
            renamed[path] = path if path.startswith("lr.") else f"step.{sum(k.startswith('step.') for k in renamed)}"
        paths = [renamed[path] for path in values]
        return paths, [_scalar(value) for value in values.values()], [(renamed[a], renamed[b]) for a, b in places]

    def array(self, index: int, tensor):
        """The array of an input that is not trained. On CUDA its memory is ours from step to step."""
        if tensor.requires_grad or self.overlaps(tensor):
            tensor = tensor.detach().clone() if self.overlaps(tensor) else tensor.detach()
        if self.device.type == "cpu" or tensor.device.type == "cpu":
            return to_array(tensor)
        known = self.arrays.get(index)
        if index in self.kept:
            if known is None or known[0] is not self.kept[index] or known[2] != tensor.data_ptr():
                known = self.arrays[index] = (self.kept[index], to_array(tensor), tensor.data_ptr())
            return known[1]
        # An array over memory of another library is waited for when it is gone: a copy stays from step to step.
        form = (tensor.shape, tensor.dtype)
        if known is None or known[2] != form:
            place = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            known = self.arrays[index] = (place, to_array(place), form)
        known[0].copy_(tensor)
        return known[1]
